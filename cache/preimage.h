// cache/preimage.h: what a key is the hash of: tagged, length-prefixed sections.
//
// The engine fills it, one call per section of sections.inc in the order of the table. The module
// is represented by its size and two digests of different algorithms, so a preimage is small, is
// stored whole in the entry and compared whole on load.
//
// Not here: what goes into the sections (the engine), the entry around it (entry.h). Thread rule:
// pure functions on the caller's memory. Read next: entry.h.
#ifndef QUERN_CACHE_PREIMAGE_H_
#define QUERN_CACHE_PREIMAGE_H_

#include "base/buffer.h"
#include "base/digest.h"

typedef enum qn__section {
#define QN_SECTION(name, tag, text, is_text, doc) QN__SECTION_##name = tag,
#include "cache/sections.inc"
#undef QN_SECTION
} qn__section_t;

// Starts a preimage in `buffer` (initialised, empty).
void qn__preimage_begin(qn__buffer_t* buffer);
// Appends one section. Tags rise strictly from call to call; a section may be empty or left out.
void qn__preimage_add(qn__buffer_t* buffer, qn__section_t tag, qn_span_t bytes);
// Appends the module's section: the size of its canonical bytes and their two digests.
void qn__preimage_add_module(qn__buffer_t* buffer, size_t size, qn_hash128_t digest,
                             const qn__sha256_t* second_digest);
// The key: XXH3-128 of the preimage.
qn_hash128_t qn__preimage_key(qn_span_t preimage);

// Walks the sections: `*inout_offset` starts at 0. False at the end or when what follows is
// malformed; the two are told apart by *inout_offset == preimage.size.
bool qn__preimage_next(qn_span_t preimage, size_t* inout_offset, uint32_t* out_tag,
                       qn_span_t* out_bytes);
// Whether the preimage has a section of that tag.
bool qn__preimage_has(qn_span_t preimage, qn__section_t tag);
// True when the preimage is well-formed to its last byte.
bool qn__preimage_is_valid(qn_span_t preimage);
// The tag of the first section in which the two differ; 0 when they are equal.
uint32_t qn__preimage_first_difference(qn_span_t a, qn_span_t b);

// "module", "target", ...; "unknown" for a tag that this version does not know. Static storage.
const char* qn__section_text(uint32_t tag);
// Whether the section is text for people.
bool qn__section_is_text(uint32_t tag);

#endif  // QUERN_CACHE_PREIMAGE_H_
