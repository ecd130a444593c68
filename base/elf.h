// base/elf.h: build ids of ELF files, and the identity of a code generator made of them.
//
// A generator's identity names whatever decides its bytes: the build ids of the generator and of
// the compiler library under it. The engine predicts it from the files, so that a hit maps no
// compiler; the generator itself says it from what is really mapped. Both use
// qn__generator_identity, so the texts are equal when the files are. Thread rule: any thread. Read
// next: elf.c.
#ifndef QUERN_BASE_ELF_H_
#define QUERN_BASE_ELF_H_

#include "base/base.h"

enum {
  QN__BUILD_ID_HEX_BYTES = 65,  // at most 32 bytes in hex, and a terminator
  QN__GENERATOR_IDENTITY_BYTES = 256,
};

// The GNU build id of a 64-bit little-endian ELF file, in lower-case hex. Reads a few hundred
// bytes. False when there is none or the file is not as expected; `out` is then "".
bool qn__elf_build_id(const char* path, char out[QN__BUILD_ID_HEX_BYTES]);

// The build id in a run of notes (a PT_NOTE segment as it is mapped). The same results.
bool qn__elf_build_id_of_notes(qn_span_t notes, char out[QN__BUILD_ID_HEX_BYTES]);

// The build id of the mapped object that holds `address` (elf_mapped.c). False when it has none.
bool qn__mapped_build_id(const void* address, char out[QN__BUILD_ID_HEX_BYTES]);

// The build id of the compiler library that the generator `name` was linked with when quern was
// built, or that it will open (nvrtc_place.h). False for generators that have none or when the file
// is gone; *out_is_expected (may be NULL) tells the two apart.
bool qn__compiler_library_id(const char* name, char out[QN__BUILD_ID_HEX_BYTES],
                             bool* out_is_expected);

// One line: name, versions, build id of the generator, and of its library (NULL: it has none, or it
// has no id, which no other library's id equals).
void qn__generator_identity(const char* name, const char* build_id, const char* library_id,
                            char out[QN__GENERATOR_IDENTITY_BYTES]);

// The same line, said by the generator itself: of the mapped objects that hold an address of its
// own and one of its compiler library (NULL: it has none). An object without a build id gets a name
// that no other call gives it, so that nothing cached is ever shared through it.
void qn__mapped_identity(const char* name, const void* own_address, const void* library_address,
                         char out[QN__GENERATOR_IDENTITY_BYTES]);

#endif  // QUERN_BASE_ELF_H_
