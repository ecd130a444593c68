// SPDX-License-Identifier: Apache-2.0
// base/elf.h: reads build ids of ELF files and of objects mapped into the process.
#ifndef QUERN_BASE_ELF_H_
#define QUERN_BASE_ELF_H_

#include "base/base.h"

enum { QN__BUILD_ID_HEX_BYTES = 65 };  // at most 32 bytes in hex, and a terminator

// Reads the GNU build id of a 64-bit little-endian ELF file, in lower-case hex, from a few hundred
// bytes. False if there is none or the file is malformed; `out` is then "".
bool qn__elf_build_id(const char* path, char out[QN__BUILD_ID_HEX_BYTES]);

// Reads the build id from notes (a PT_NOTE segment as it is mapped). The same results.
bool qn__elf_build_id_of_notes(qn_span_t notes, char out[QN__BUILD_ID_HEX_BYTES]);

// Reads the build id of the mapped object that holds `address` (elf_mapped.c). False if it has
// none.
bool qn__mapped_build_id(const void* address, char out[QN__BUILD_ID_HEX_BYTES]);

#endif  // QUERN_BASE_ELF_H_
