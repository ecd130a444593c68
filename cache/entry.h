// cache/entry.h: the bytes of one cache entry: header, preimage, metadata, module, payload,
// checksum.
//
// docs/cache-format.md has the layout byte by byte. Any bytes may be handed to decode: every length
// is bounded before it is used, and nothing is believed before the checksum has been compared.
//
// Not here: files (disk.h). Thread rule: pure functions. Read next: disk.h.
#ifndef QUERN_CACHE_ENTRY_H_
#define QUERN_CACHE_ENTRY_H_

#include "cache/preimage.h"

#define QN__ENTRY_VERSION 2u
#define QN__ENTRY_HEADER_BYTES 96u
#define QN__ENTRY_CHECKSUM_BYTES 16u
// Sections start at multiples of this, with zeros between.
#define QN__ENTRY_ALIGNMENT 16u
#define QN__ENTRY_MAX_PREIMAGE_BYTES ((uint64_t)1 << 20)
#define QN__ENTRY_MAX_METADATA_BYTES ((uint64_t)16 << 20)
#define QN__ENTRY_MAX_MODULE_BYTES ((uint64_t)16 << 20)
#define QN__ENTRY_MAX_PAYLOAD_BYTES ((uint64_t)1 << 30)

// No entry is larger: the limits, header, checksum, and the gaps between the sections.
#define QN__ENTRY_MAX_BYTES                                                                   \
  (QN__ENTRY_MAX_PREIMAGE_BYTES + QN__ENTRY_MAX_METADATA_BYTES + QN__ENTRY_MAX_MODULE_BYTES + \
   QN__ENTRY_MAX_PAYLOAD_BYTES + QN__ENTRY_HEADER_BYTES + QN__ENTRY_CHECKSUM_BYTES +          \
   4 * QN__ENTRY_ALIGNMENT)

// Why bytes are not the entry that was asked for.
typedef enum qn__reason {
  QN__REASON_NONE = 0,  // it is
#define QN_REASON(name, lower, heals, text) QN__REASON_##name,
#include "cache/reasons.inc"
#undef QN_REASON
  QN__REASON_COUNT
} qn__reason_t;

// "checksum"; "the checksum of the entry does not match its bytes". Static storage.
const char* qn__reason_name(qn__reason_t reason);
const char* qn__reason_text(qn__reason_t reason);
// True when the file can serve nobody and may be removed.
bool qn__reason_heals(qn__reason_t reason);

typedef struct qn__entry {
  qn_hash128_t key;
  int64_t created_ns;  // Unix time
  int64_t compile_ns;  // what making it cost
  qn_span_t preimage;
  qn_span_t metadata;  // opaque here: functions, launch plans, ISA needs
  qn_span_t module;    // canonical bytes of the module, to compile it again; may be empty
  qn_span_t payload;   // the code
} qn__entry_t;

// The size of the encoded entry; 0 when a section is beyond its limit.
size_t qn__entry_size(const qn__entry_t* entry);
// Writes the entry into `out` (qn__entry_size bytes), all but the checksum. The key is derived from
// the preimage; entry->key is ignored.
void qn__entry_write(const qn__entry_t* entry, uint8_t* out);
// Puts the checksum into the last bytes of a written entry.
void qn__entry_seal(uint8_t* bytes, size_t size);
// Both, appended to `buffer` (sticky failure as usual). False when a section is beyond its limit.
bool qn__entry_encode(const qn__entry_t* entry, qn__buffer_t* buffer);

// What the caller looks for. The preimage is borrowed for the call.
typedef struct qn__expectation {
  qn_hash128_t key;
  qn_span_t preimage;
} qn__expectation_t;

// Decodes in place: the spans of `out_entry` are borrowed from `bytes`. `expected` NULL accepts any
// key, provided that it is the hash of the stored preimage. `out_entry` is meaningful only on
// REASON_NONE.
qn__reason_t qn__entry_decode(qn_span_t bytes, const qn__expectation_t* expected,
                              qn__entry_t* out_entry);

// Whether the stored module (empty: no) is the one that the preimage names by size and digests.
// Decoding does not ask: nobody runs those bytes. Who compiles from them does.
bool qn__entry_module_matches(const qn__entry_t* entry);

// The size of the whole entry that the header (QN__ENTRY_HEADER_BYTES) names, unverified but within
// the limits; 0 for other bytes.
uint64_t qn__entry_peek_size(const uint8_t* header);
// The time of creation that the header (QN__ENTRY_HEADER_BYTES) names, unverified; 0 for other
// bytes.
int64_t qn__entry_peek_created(const uint8_t* header);

#endif  // QUERN_CACHE_ENTRY_H_
