// SPDX-License-Identifier: Apache-2.0
// cache/entry.h: the bytes of one cache entry: header, preimage, metadata, module, payload,
// checksum.
//
// docs/cache-format.md has the layout byte by byte. Decoding accepts any bytes: it bounds every
// size before it uses it, and uses nothing but sizes before the checksum matches.
//
// Not here: files (disk.h). Pure functions. Read next: disk.h.
#ifndef QUERN_CACHE_ENTRY_H_
#define QUERN_CACHE_ENTRY_H_

#include <stdatomic.h>

#include "cache/preimage.h"

#define QN__ENTRY_VERSION 2u
#define QN__ENTRY_HEADER_BYTES 96u
#define QN__ENTRY_CHECKSUM_BYTES 16u
// Sections start at multiples of this, with zeros before them.
#define QN__ENTRY_ALIGNMENT 16u
#define QN__ENTRY_MAX_PREIMAGE_BYTES ((uint64_t)1 << 20)
#define QN__ENTRY_MAX_METADATA_BYTES ((uint64_t)16 << 20)
#define QN__ENTRY_MAX_MODULE_BYTES ((uint64_t)16 << 20)
#define QN__ENTRY_MAX_PAYLOAD_BYTES ((uint64_t)1 << 30)

// The size of the largest entry: all limits, header, checksum, and padding.
#define QN__ENTRY_MAX_BYTES                                                                   \
  (QN__ENTRY_MAX_PREIMAGE_BYTES + QN__ENTRY_MAX_METADATA_BYTES + QN__ENTRY_MAX_MODULE_BYTES + \
   QN__ENTRY_MAX_PAYLOAD_BYTES + QN__ENTRY_HEADER_BYTES + QN__ENTRY_CHECKSUM_BYTES +          \
   4 * QN__ENTRY_ALIGNMENT)

// Why bytes are not the expected entry.
typedef enum qn__reason {
  QN__REASON_NONE = 0,  // they are
#define QN_REASON(name, lower, heals, text) QN__REASON_##name,
#include "cache/reasons.inc"
#undef QN_REASON
  QN__REASON_COUNT
} qn__reason_t;

// "checksum"; "the checksum of the entry does not match its bytes". Static storage.
const char* qn__reason_name(qn__reason_t reason);
const char* qn__reason_text(qn__reason_t reason);
// True when a file with such bytes is of no use to any process and is removed.
bool qn__reason_heals(qn__reason_t reason);
// Counts a refused entry. A component has its counters of reasons in the order of
// cache/reasons.inc, from `first` on.
void qn__reason_count(qn__reason_t reason, _Atomic uint64_t* first);

typedef struct qn__entry {
  qn_hash128_t key;
  int64_t created_ns;  // Unix time
  int64_t compile_ns;  // the time of its compile
  qn_span_t preimage;
  qn_span_t metadata;  // functions, launch plans, ISA needs; not parsed here
  qn_span_t module;    // canonical bytes of the module, to compile it again; may be empty
  qn_span_t payload;   // the code
} qn__entry_t;

// Returns the size of the encoded entry; 0 when a section exceeds its limit.
size_t qn__entry_size(const qn__entry_t* entry);
// Writes the entry without its checksum into `out` (qn__entry_size bytes). Computes the key from
// the preimage; entry->key is ignored.
void qn__entry_write(const qn__entry_t* entry, uint8_t* out);
// Writes the checksum into the last bytes of a written entry.
void qn__entry_seal(uint8_t* bytes, size_t size);
// Appends the entry and its checksum to `buffer`. False when a section exceeds its limit.
bool qn__entry_encode(const qn__entry_t* entry, qn__buffer_t* buffer);

// The entry that a caller looks for. Borrows the preimage for the call.
typedef struct qn__expectation {
  qn_hash128_t key;
  qn_span_t preimage;
} qn__expectation_t;

// Decodes in place: the spans of `out_entry` borrow `bytes`. With `expected` NULL any key is
// accepted that is the hash of the stored preimage. `out_entry` is valid only after REASON_NONE.
qn__reason_t qn__entry_decode(qn_span_t bytes, const qn__expectation_t* expected,
                              qn__entry_t* out_entry);

// True when the preimage names the stored module by size and digests; false for an empty one.
// Decoding does not check this, because a hit does not use the module; a tool that compiles it
// must.
bool qn__entry_module_matches(const qn__entry_t* entry);

// The header of an entry. Nothing is verified, but the sizes are within their limits.
typedef struct qn__entry_header {
  qn_hash128_t key;
  int64_t created_ns, compile_ns;
  uint64_t preimage_bytes, metadata_bytes, module_bytes, payload_bytes;
  uint64_t entry_bytes;  // of the whole entry
} qn__entry_header_t;
// Reads QN__ENTRY_HEADER_BYTES. False for other bytes; *out_header is zero then.
bool qn__entry_header_read(const uint8_t* bytes, qn__entry_header_t* out_header);

#endif  // QUERN_CACHE_ENTRY_H_
