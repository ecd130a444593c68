// SPDX-License-Identifier: Apache-2.0
// jit/llvm/object.c: checks a relocatable object by its section and symbol tables.
//
// An image must not have: 1. undefined symbols (calls of a library, for example for an operation
// that the processor lacks), 2. writable or thread-local data, 3. relocations through a global
// offset table. Absolute addresses are found by linking twice (link.h).
#include "jit/llvm/object.h"

#include <elf.h>

#include "base/alloc.h"

typedef struct view {
  qn_span_t bytes;
  const Elf64_Shdr* sections;
  size_t section_count;
  const char* names;  // of sections
  size_t names_size;
} view_t;

static qn_status_t malformed(const char* what) {
  return qn_status_make(QN_STATUS_INTERNAL, "the object that LLVM made is malformed: %s", what);
}

static bool is_within(qn_span_t bytes, uint64_t offset, uint64_t size) {
  return offset <= bytes.size && size <= bytes.size - offset;
}

static const char* text_at(const char* table, size_t size, uint64_t offset) {
  // A string table ends with a zero byte, which open_view and inspect_symbols check.
  return offset < size ? table + offset : "?";
}

static qn_status_t open_view(qn_span_t bytes, view_t* out) {
  Elf64_Ehdr header;
  if (bytes.size < sizeof header) return malformed("no header");
  memcpy(&header, bytes.data, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_REL) {
    return malformed("not a 64-bit little-endian relocatable file");
  }
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shoff % _Alignof(Elf64_Shdr) != 0 ||
      !is_within(bytes, header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr)) ||
      header.e_shstrndx >= header.e_shnum) {
    return malformed("the section table");
  }
  const void* table = bytes.data + header.e_shoff;
  *out = (view_t){bytes, table, header.e_shnum, NULL, 0};
  for (size_t i = 0; i < out->section_count; ++i) {
    const Elf64_Shdr* section = &out->sections[i];
    if (section->sh_type != SHT_NOBITS && section->sh_type != SHT_NULL &&
        !is_within(bytes, section->sh_offset, section->sh_size)) {
      return malformed("a section lies outside of the file");
    }
    if (section->sh_type == SHT_STRTAB &&
        (section->sh_size == 0 || bytes.data[section->sh_offset + section->sh_size - 1] != 0)) {
      return malformed("a string table has no end");
    }
  }
  const Elf64_Shdr* names = &out->sections[header.e_shstrndx];
  if (names->sh_type != SHT_STRTAB) return malformed("the names of sections");
  out->names = (const char*)bytes.data + names->sh_offset;
  out->names_size = (size_t)names->sh_size;
  return QN_OK;
}

static qn_status_t inspect_sections(const view_t* view, size_t* out_load_bytes) {
  size_t load_bytes = 0;
  for (size_t i = 0; i < view->section_count; ++i) {
    const Elf64_Shdr* section = &view->sections[i];
    const char* name = text_at(view->names, view->names_size, section->sh_name);
    if (!(section->sh_flags & SHF_ALLOC)) continue;
    if (section->sh_size > 0 && (section->sh_flags & (SHF_WRITE | SHF_TLS))) {
      return qn_status_make(QN_STATUS_UNSUPPORTED,
                            "code for the cpu has no writable data of its own, but section '%s' of "
                            "%llu bytes is",
                            name, (unsigned long long)section->sh_size);
    }
    size_t align = section->sh_addralign > 0 ? (size_t)section->sh_addralign : 1;
    if (align > 4096) return malformed("the alignment of a section");
    if (!qn__size_add(load_bytes, (size_t)section->sh_size, &load_bytes) ||
        !qn__size_add(load_bytes, 2 * align + 64, &load_bytes)) {
      return malformed("the size of a section");
    }
  }
  *out_load_bytes = load_bytes;
  return QN_OK;
}

// Returns whether a relocation uses a table of addresses.
static bool is_got_relocation(uint16_t machine, uint32_t type) {
  static const struct {
    uint16_t machine;
    uint32_t type;
  } table[] = {
      {EM_X86_64, R_X86_64_GOT32},
      {EM_X86_64, R_X86_64_GOTPCREL},
      {EM_X86_64, R_X86_64_GOTPCRELX},
      {EM_X86_64, R_X86_64_REX_GOTPCRELX},
      {EM_X86_64, R_X86_64_GOT64},
      {EM_X86_64, R_X86_64_GOTPCREL64},
      {EM_X86_64, R_X86_64_GOTOFF64},
      {EM_X86_64, R_X86_64_GOTPC32},
      {EM_X86_64, R_X86_64_GOTPC64},
      {EM_X86_64, R_X86_64_GOTPLT64},
      {EM_X86_64, R_X86_64_GOTTPOFF},
      {EM_AARCH64, R_AARCH64_ADR_GOT_PAGE},
      {EM_AARCH64, R_AARCH64_LD64_GOT_LO12_NC},
  };
  for (size_t i = 0; i < QN_COUNT_OF(table); ++i) {
    if (table[i].machine == machine && table[i].type == type) return true;
  }
  return false;
}

static qn_status_t inspect_relocations(const view_t* view, size_t* inout_load_bytes) {
  Elf64_Ehdr header;
  memcpy(&header, view->bytes.data, sizeof header);
  for (size_t i = 0; i < view->section_count; ++i) {
    const Elf64_Shdr* section = &view->sections[i];
    if (section->sh_type != SHT_RELA) continue;
    size_t count = (size_t)section->sh_size / sizeof(Elf64_Rela);
    // The linker reserves memory for one stub per relocation.
    if (!qn__size_add(*inout_load_bytes, count * 32, inout_load_bytes)) return malformed("a size");
    for (size_t k = 0; k < count; ++k) {
      Elf64_Rela relocation;
      memcpy(&relocation, view->bytes.data + section->sh_offset + k * sizeof relocation,
             sizeof relocation);
      uint32_t type = (uint32_t)ELF64_R_TYPE(relocation.r_info);
      if (!is_got_relocation(header.e_machine, type)) continue;
      return qn_status_make(QN_STATUS_UNSUPPORTED,
                            "code for the cpu has no table of addresses, but '%s' requires one "
                            "(relocation %u)",
                            text_at(view->names, view->names_size, section->sh_name), type);
    }
  }
  return QN_OK;
}

static qn_status_t inspect_symbols(const view_t* view, const Elf64_Shdr* table, qn__arena_t* arena,
                                   qn__llvm_object_t* out) {
  if (table->sh_link >= view->section_count ||
      view->sections[table->sh_link].sh_type != SHT_STRTAB) {
    return malformed("the names of symbols");
  }
  const Elf64_Shdr* strings = &view->sections[table->sh_link];
  const char* names = (const char*)view->bytes.data + strings->sh_offset;
  size_t count = (size_t)table->sh_size / sizeof(Elf64_Sym);
  out->functions = qn__arena_alloc_array(arena, count, sizeof *out->functions);
  if (count && !out->functions) return qn__out_of_memory("the symbols of an object");
  for (size_t i = 1; i < count; ++i) {
    Elf64_Sym symbol;
    memcpy(&symbol, view->bytes.data + table->sh_offset + i * sizeof symbol, sizeof symbol);
    const char* name = text_at(names, (size_t)strings->sh_size, symbol.st_name);
    if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_COMMON) {
      return qn_status_make(QN_STATUS_UNSUPPORTED,
                            "code for the cpu may call nothing outside of itself, but it needs "
                            "'%.200s'; the target may lack an extension for the operation",
                            name);
    }
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx >= view->section_count) {
      continue;
    }
    out->functions[out->function_count++] =
        (qn__llvm_object_symbol_t){name, symbol.st_shndx, symbol.st_value, symbol.st_size};
  }
  return QN_OK;
}

qn_status_t qn__llvm_object_inspect(qn_span_t bytes, qn__arena_t* arena, qn__llvm_object_t* out) {
  memset(out, 0, sizeof *out);
  view_t view = {{NULL, 0}, NULL, 0, NULL, 0};
  QN_TRY(open_view(bytes, &view));
  // Checks symbols first, since an undefined one is the reason of a table of addresses.
  const Elf64_Shdr* symbols = NULL;
  for (size_t i = 0; i < view.section_count && !symbols; ++i) {
    if (view.sections[i].sh_type == SHT_SYMTAB) symbols = &view.sections[i];
  }
  if (!symbols) return malformed("no symbols");
  QN_TRY(inspect_symbols(&view, symbols, arena, out));
  QN_TRY(inspect_sections(&view, &out->load_bytes));
  return inspect_relocations(&view, &out->load_bytes);
}
