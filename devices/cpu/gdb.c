// SPDX-License-Identifier: Apache-2.0
// devices/cpu/gdb.c: the JIT interface of debuggers: a list of object files in memory, and a
// function on which the debugger sets a breakpoint (GDB manual, "JIT Compilation Interface").
//
// The object file has only what gives kernels a name: an ELF header, a .text section without bytes
// at the address of the code, and a symbol table. One lock guards the list and is held while the
// debugger reads it.
#include <elf.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/thread.h"
#include "devices/cpu/debug.h"

// ---- the interface; the debugger defines its names and layout

typedef struct jit_code_entry {
  struct jit_code_entry* next_entry;
  struct jit_code_entry* prev_entry;
  const char* symfile_addr;
  uint64_t symfile_size;
} jit_code_entry_t;

typedef struct jit_descriptor {
  uint32_t version;
  uint32_t action_flag;  // 0 nothing, 1 register, 2 unregister
  jit_code_entry_t* relevant_entry;
  jit_code_entry_t* first_entry;
} jit_descriptor_t;

QN_API void __jit_debug_register_code(void);
extern QN_API jit_descriptor_t __jit_debug_descriptor;
jit_descriptor_t __jit_debug_descriptor = {1, 0, NULL, NULL};
__attribute__((noinline)) void __jit_debug_register_code(void) {
  __asm__ volatile("" ::: "memory");
}

// ---- object files

struct qn__cpu_gdb_object {
  jit_code_entry_t entry;
  qn__buffer_t file;
};

enum { SECTION_NONE, SECTION_TEXT, SECTION_SYMTAB, SECTION_STRTAB, SECTION_COUNT };

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#elif defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_NONE
#endif

static void write_file(const qn__cpu_symbol_t* symbols, size_t count, qn__buffer_t* out) {
  uintptr_t begin = UINTPTR_MAX, end = 0;
  size_t string_bytes = 1;
  for (size_t i = 0; i < count; i++) {
    uintptr_t symbol_end = symbols[i].address + symbols[i].size_bytes;
    if (symbols[i].address < begin) begin = symbols[i].address;
    if (symbol_end > end) end = symbol_end;
    string_bytes += strlen(symbols[i].name) + 1;
  }
  static const char section_names[] = ".text\0.symtab\0.strtab";
  size_t names_at = string_bytes;
  string_bytes += sizeof section_names;
  size_t sections_at = sizeof(Elf64_Ehdr);
  size_t symbols_at = sections_at + SECTION_COUNT * sizeof(Elf64_Shdr);
  size_t strings_at = symbols_at + (count + 1) * sizeof(Elf64_Sym);
  Elf64_Ehdr header = {
      .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
      .e_type = ET_REL,
      .e_machine = MACHINE,
      .e_version = EV_CURRENT,
      .e_shoff = sections_at,
      .e_ehsize = sizeof(Elf64_Ehdr),
      .e_shentsize = sizeof(Elf64_Shdr),
      .e_shnum = SECTION_COUNT,
      .e_shstrndx = SECTION_STRTAB,
  };
  Elf64_Shdr sections[SECTION_COUNT] = {
      [SECTION_TEXT] = {.sh_name = (Elf64_Word)names_at,
                        .sh_type = SHT_NOBITS,
                        .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                        .sh_addr = begin,
                        .sh_size = end - begin,
                        .sh_addralign = 64},
      [SECTION_SYMTAB] = {.sh_name = (Elf64_Word)names_at + 6,
                          .sh_type = SHT_SYMTAB,
                          .sh_offset = symbols_at,
                          .sh_size = (count + 1) * sizeof(Elf64_Sym),
                          .sh_link = SECTION_STRTAB,
                          .sh_info = 1,
                          .sh_entsize = sizeof(Elf64_Sym),
                          .sh_addralign = 8},
      [SECTION_STRTAB] = {.sh_name = (Elf64_Word)names_at + 14,
                          .sh_type = SHT_STRTAB,
                          .sh_offset = strings_at,
                          .sh_size = string_bytes,
                          .sh_addralign = 1},
  };
  qn__buffer_bytes(out, &header, sizeof header);
  qn__buffer_bytes(out, sections, sizeof sections);
  Elf64_Sym none = {0};
  qn__buffer_bytes(out, &none, sizeof none);
  size_t name_at = 1;
  for (size_t i = 0; i < count; i++) {
    Elf64_Sym symbol = {
        .st_name = (Elf64_Word)name_at,
        .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
        .st_shndx = SECTION_TEXT,
        .st_value = symbols[i].address - begin,
        .st_size = symbols[i].size_bytes,
    };
    qn__buffer_bytes(out, &symbol, sizeof symbol);
    name_at += strlen(symbols[i].name) + 1;
  }
  qn__buffer_u8(out, 0);
  for (size_t i = 0; i < count; i++) {
    qn__buffer_bytes(out, symbols[i].name, strlen(symbols[i].name) + 1);
  }
  qn__buffer_bytes(out, section_names, sizeof section_names);
}

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;

// Notifies the debugger, if there is one. Holds the lock.
static void notify(uint32_t action, jit_code_entry_t* entry) {
  __jit_debug_descriptor.action_flag = action;
  __jit_debug_descriptor.relevant_entry = entry;
  __jit_debug_register_code();
  __jit_debug_descriptor.action_flag = 0;
  __jit_debug_descriptor.relevant_entry = NULL;
}

qn__cpu_gdb_object_t* qn__gdb_register(const qn__cpu_symbol_t* symbols, size_t count) {
  qn_allocator_t allocator = qn_allocator_default();
  qn__cpu_gdb_object_t* object = qn__alloc_zero(allocator, 1, sizeof *object);
  if (!object) return NULL;
  qn__buffer_init(&object->file, allocator);
  write_file(symbols, count, &object->file);
  if (object->file.has_failed) {
    qn__buffer_deinit(&object->file);
    qn__free(allocator, object, sizeof *object);
    return NULL;
  }
  object->entry.symfile_addr = (const char*)object->file.data;
  object->entry.symfile_size = object->file.size;
  qn__mutex_lock(&list_mutex);
  object->entry.next_entry = __jit_debug_descriptor.first_entry;
  if (object->entry.next_entry) object->entry.next_entry->prev_entry = &object->entry;
  __jit_debug_descriptor.first_entry = &object->entry;
  notify(1, &object->entry);
  qn__mutex_unlock(&list_mutex);
  return object;
}

void qn__gdb_unregister(qn__cpu_gdb_object_t* object) {
  if (!object) return;
  qn__mutex_lock(&list_mutex);
  jit_code_entry_t* entry = &object->entry;
  if (entry->prev_entry) {
    entry->prev_entry->next_entry = entry->next_entry;
  } else {
    __jit_debug_descriptor.first_entry = entry->next_entry;
  }
  if (entry->next_entry) entry->next_entry->prev_entry = entry->prev_entry;
  notify(2, entry);
  qn__mutex_unlock(&list_mutex);
  qn__buffer_deinit(&object->file);
  qn__free(qn_allocator_default(), object, sizeof *object);
}
