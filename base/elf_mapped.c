#define _GNU_SOURCE  // dl_iterate_phdr
// base/elf_mapped.c: reads build ids from the program headers of mapped objects, without a file;
// and the identity of a generator from them.
#include <link.h>
#include <stdio.h>
#include <unistd.h>

#include "base/elf.h"
#include "base/thread.h"

typedef struct search {
  uintptr_t address;
  char* out;
  bool is_found;
} search_t;

static int visit(struct dl_phdr_info* info, size_t size, void* self) {
  (void)size;
  search_t* search = self;
  bool is_inside = false;
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* segment = &info->dlpi_phdr[i];
    uintptr_t begin = info->dlpi_addr + segment->p_vaddr;
    if (segment->p_type != PT_LOAD) continue;
    is_inside |= search->address >= begin && search->address - begin < segment->p_memsz;
  }
  if (!is_inside) return 0;
  for (size_t i = 0; i < info->dlpi_phnum && !search->is_found; ++i) {
    const ElfW(Phdr)* segment = &info->dlpi_phdr[i];
    if (segment->p_type != PT_NOTE) continue;
    uintptr_t begin = info->dlpi_addr + segment->p_vaddr;
    const void* notes;
    memcpy(&notes, &begin, sizeof notes);
    search->is_found =
        qn__elf_build_id_of_notes((qn_span_t){notes, (size_t)segment->p_memsz}, search->out);
  }
  return 1;
}

bool qn__mapped_build_id(const void* address, char out[QN__BUILD_ID_HEX_BYTES]) {
  search_t search = {(uintptr_t)address, out, false};
  out[0] = '\0';
  (void)dl_iterate_phdr(visit, &search);
  return search.is_found;
}

void qn__mapped_identity(const char* name, const void* own_address, const void* library_address,
                         char out[QN__GENERATOR_IDENTITY_BYTES]) {
  char own[QN__BUILD_ID_HEX_BYTES], library[QN__BUILD_ID_HEX_BYTES];
  char unique[QN__BUILD_ID_HEX_BYTES];
  (void)snprintf(unique, sizeof unique, "unknown of process %ld at %" PRId64, (long)getpid(),
                 qn__now_ns());
  bool is_known = qn__mapped_build_id(own_address, own);
  bool is_library_known = library_address && qn__mapped_build_id(library_address, library);
  const char* library_id = is_library_known ? library : unique;
  qn__generator_identity(name, is_known ? own : unique, library_address ? library_id : NULL, out);
}
