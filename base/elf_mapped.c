// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // dl_iterate_phdr
// base/elf_mapped.c: reads build ids from the program headers of mapped objects, without a file.
#include <link.h>

#include "base/elf.h"

typedef struct elf_search {
  uintptr_t address;
  char* out;
  bool is_found;
} elf_search_t;

static int visit(struct dl_phdr_info* info, size_t size, void* self) {
  (void)size;
  elf_search_t* search = self;
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
  elf_search_t search = {(uintptr_t)address, out, false};
  out[0] = '\0';
  (void)dl_iterate_phdr(visit, &search);
  return search.is_found;
}
