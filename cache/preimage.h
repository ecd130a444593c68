// SPDX-License-Identifier: Apache-2.0
// cache/preimage.h: the bytes that a key is the hash of: tagged sections, each with its length.
//
// The engine adds the sections of sections.inc in the order of the table. Of the module it adds the
// size and two digests by different algorithms. So a preimage is small: an entry stores it whole,
// and a read compares it whole.
//
// Not here: the contents of the sections (the engine), the entry (entry.h). Pure functions. Read
// next: entry.h.
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
// Appends one section. Tags must rise strictly; a section may be empty or missing.
void qn__preimage_add(qn__buffer_t* buffer, qn__section_t tag, qn_span_t bytes);
// Appends the module's section: the size of its canonical bytes and their two digests.
void qn__preimage_add_module(qn__buffer_t* buffer, size_t size, qn_hash128_t digest,
                             const qn__sha256_t* second_digest);
// Returns the key: XXH3-128 of the preimage.
qn_hash128_t qn__preimage_key(qn_span_t preimage);

// Returns the next section; `*inout_offset` starts at 0. False at the end, where *inout_offset is
// preimage.size, and at bytes that do not parse.
bool qn__preimage_next(qn_span_t preimage, size_t* inout_offset, uint32_t* out_tag,
                       qn_span_t* out_bytes);
// Returns the section with that tag; `data` is NULL when there is none.
qn_span_t qn__preimage_section(qn_span_t preimage, uint32_t tag);
static inline bool qn__preimage_has(qn_span_t preimage, qn__section_t tag) {
  return qn__preimage_section(preimage, (uint32_t)tag).data != NULL;
}
// True when the preimage is well-formed to its last byte.
bool qn__preimage_is_valid(qn_span_t preimage);
// Returns the tag of the first section that differs; 0 when both preimages are equal.
uint32_t qn__preimage_first_difference(qn_span_t a, qn_span_t b);

// Returns "module", "target", ...; "unknown" for an unknown tag. Static storage.
const char* qn__section_text(uint32_t tag);
// True when the section holds text for people.
bool qn__section_is_text(uint32_t tag);

#endif  // QUERN_CACHE_PREIMAGE_H_
