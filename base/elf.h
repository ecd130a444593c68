// base/elf.h: build ids of ELF files and of what is mapped into the process.
//
// Thread rule: any thread. Read next: elf.c.
#ifndef QUERN_BASE_ELF_H_
#define QUERN_BASE_ELF_H_

#include "base/base.h"

enum { QN__BUILD_ID_HEX_BYTES = 65 };  // at most 32 bytes in hex, and a terminator

// The GNU build id of a 64-bit little-endian ELF file, in lower-case hex. Reads a few hundred
// bytes. False when there is none or the file is not as expected; `out` is then "".
bool qn__elf_build_id(const char* path, char out[QN__BUILD_ID_HEX_BYTES]);

// The build id in a run of notes (a PT_NOTE segment as it is mapped). The same results.
bool qn__elf_build_id_of_notes(qn_span_t notes, char out[QN__BUILD_ID_HEX_BYTES]);

// The build id of the mapped object that holds `address` (elf_mapped.c). False when it has none.
bool qn__mapped_build_id(const void* address, char out[QN__BUILD_ID_HEX_BYTES]);

#endif  // QUERN_BASE_ELF_H_
