// SPDX-License-Identifier: Apache-2.0
// jit/tvm_ffi/library_write.c: writes a library for tvm-ffi: an ELF shared object, without a
// linker.
//
//   headers, symbols, description  mapped for reading
//   code                           mapped for running: a few instructions for each function
//   dynamic section, address       mapped for writing while the loader fills them
//   state                          mapped for writing
//   section headers                for tools
//   bundle                         read from the file, never mapped
//
// tvm-ffi finds a function by dlsym, so each has a symbol. Its code puts the address of its
// description where the ABI has the handle, which functions of libraries do not have, and jumps to
// qn_tvm_ffi_library_call by an address that the loader fills in. Everything lies at the same place
// in the file and in memory, so an offset is an address. All parts that are mapped begin with a
// page.
//
// Offsets are computed from counts first; then each part is written at its own.
#include <assert.h>
#include <elf.h>
#include <stdio.h>

#include "base/argument.h"
#include "base/buffer.h"
#include "base/struct_size.h"
#include "jit/tvm_ffi/library.h"
#include "quern/ir.h"
#include "quern/tvm_ffi.h"
#include "target/target.h"

#define MAX_MODULE_BYTES ((size_t)64 << 20)
#define CODE_BYTES 32u  // of a function
#define CALLEE "qn_tvm_ffi_library_call"
#define STATE_BYTES 8u

// What differs between architectures.
typedef struct elf_arch {
  const char* name;  // as targets have it
  uint16_t elf_machine;
  uint32_t address_relocation;
  uint32_t page_bytes;  // the largest that systems use
  void (*write_code)(uint8_t* out, uint64_t at, uint64_t description, uint64_t address);
} elf_arch_t;

// endbr64; lea rdi, [description]; jmp *[address]
static void write_x86_64(uint8_t* out, uint64_t at, uint64_t description, uint64_t address) {
  memset(out, 0xcc, CODE_BYTES);  // int3
  memcpy(out, "\xf3\x0f\x1e\xfa\x48\x8d\x3d", 7);
  (void)qn__store_le(out + 7, (uint32_t)(description - (at + 11)), 4);
  memcpy(out + 11, "\xff\x25", 2);
  (void)qn__store_le(out + 13, (uint32_t)(address - (at + 17)), 4);
}

static uint32_t adrp(uint32_t reg, uint64_t at, uint64_t to) {
  const uint32_t pages = (uint32_t)((to >> 12) - (at >> 12));
  return 0x90000000u | (pages & 3u) << 29 | ((pages >> 2) & 0x7ffffu) << 5 | reg;
}

// bti c; adrp x0, description; add x0, x0, ...; adrp x16, address; ldr x16, [x16, ...]; br x16
static void write_aarch64(uint8_t* out, uint64_t at, uint64_t description, uint64_t address) {
  const uint32_t words[CODE_BYTES / 4] = {
      0xd503245fu,
      adrp(0, at + 4, description),
      0x91000000u | (uint32_t)(description & 0xfff) << 10,
      adrp(16, at + 12, address),
      0xf9400210u | (uint32_t)((address & 0xfff) / 8) << 10,
      0xd61f0200u,
  };
  for (size_t i = 0; i < CODE_BYTES / 4; i++) (void)qn__store_le(out + 4 * i, words[i], 4);
}

static const elf_arch_t machines[] = {
    {"x86_64", EM_X86_64, R_X86_64_GLOB_DAT, 0x1000, write_x86_64},
    {"aarch64", EM_AARCH64, R_AARCH64_GLOB_DAT, 0x10000, write_aarch64},
};

// ------------------------------------------------------------------------------------ layout

enum { SEGMENTS = 6, DYNAMIC_ENTRIES = 14 };
// The sections, in the order of their headers.
typedef enum elf_section {
  SECTION_NONE,
  SECTION_HASH,
  SECTION_SYMBOLS,
  SECTION_NAMES,
  SECTION_RELOCATIONS,
  SECTION_DATA,
  SECTION_CODE,
  SECTION_DYNAMIC,
  SECTION_ADDRESS,
  SECTION_STATE,
  SECTION_TITLES,
  SECTION_COUNT,
} elf_section_t;
static const char* const section_names[SECTION_COUNT] = {
    "",      ".hash",    ".dynsym", ".dynstr", ".rela.dyn", ".rodata",
    ".text", ".dynamic", ".got",    ".bss",    ".shstrtab"};

typedef struct elf_layout {
  const elf_arch_t* machine;
  const qn_module_t* module;
  const qn_tvm_ffi_library_options_t* options;
  size_t function_count;
  qn__buffer_t names;   // of symbols
  qn__buffer_t titles;  // of sections
  uint32_t callee_name, needed_name, run_path_name;
  struct {
    uint64_t offset, size;
  } parts[SECTION_COUNT];
  uint64_t headers_offset;  // of sections
  uint64_t bundle_offset;
} elf_layout_t;

static uint64_t align(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

static uint32_t add_name(qn__buffer_t* names, const char* prefix, const char* name) {
  const uint32_t at = (uint32_t)names->size;
  qn__buffer_cstr(names, prefix);
  qn__buffer_cstr(names, name);
  qn__buffer_u8(names, 0);
  return at;
}

static size_t targets_size(const qn_tvm_ffi_library_options_t* options) {
  size_t size = 0;
  for (size_t i = 0; i < options->target_count; i++) {
    size += strlen(qn_target_json(options->targets[i])) + 1;
  }
  return size;
}

// Distances in the description.
static uint64_t module_distance(const elf_layout_t* l) {
  return sizeof(qn__tvm_library_t) + l->function_count * sizeof(qn__tvm_library_function_t);
}
static uint64_t function_distance(size_t index) {
  return sizeof(qn__tvm_library_t) + index * sizeof(qn__tvm_library_function_t);
}

static void place(elf_layout_t* l, elf_section_t section, uint64_t offset, uint64_t size) {
  l->parts[section].offset = offset;
  l->parts[section].size = size;
}
static uint64_t end_of(const elf_layout_t* l, elf_section_t section) {
  return l->parts[section].offset + l->parts[section].size;
}

static void lay_out(elf_layout_t* l) {
  const uint64_t page = l->machine->page_bytes, symbols = l->function_count + 2;
  size_t module_size;
  (void)qn_module_bytes(l->module, &module_size);
  // One bucket for each symbol, as nchain has one.
  place(l, SECTION_HASH, sizeof(Elf64_Ehdr) + SEGMENTS * sizeof(Elf64_Phdr),
        (2 + 2 * symbols) * sizeof(uint32_t));
  place(l, SECTION_SYMBOLS, align(end_of(l, SECTION_HASH), 8), symbols * sizeof(Elf64_Sym));
  place(l, SECTION_NAMES, end_of(l, SECTION_SYMBOLS), l->names.size);
  place(l, SECTION_RELOCATIONS, align(end_of(l, SECTION_NAMES), 8), sizeof(Elf64_Rela));
  place(l, SECTION_DATA, align(end_of(l, SECTION_RELOCATIONS), 16),
        module_distance(l) + module_size + targets_size(l->options));
  place(l, SECTION_CODE, align(end_of(l, SECTION_DATA), page), l->function_count * CODE_BYTES);
  place(l, SECTION_DYNAMIC, align(end_of(l, SECTION_CODE), page),
        DYNAMIC_ENTRIES * sizeof(Elf64_Dyn));
  place(l, SECTION_ADDRESS, end_of(l, SECTION_DYNAMIC), 8);
  // A page of its own: the loader makes the one before it read-only.
  place(l, SECTION_STATE, align(end_of(l, SECTION_ADDRESS), page), STATE_BYTES);
  // The state takes no bytes of the file.
  place(l, SECTION_TITLES, l->parts[SECTION_STATE].offset, l->titles.size);
  l->headers_offset = align(end_of(l, SECTION_TITLES), 8);
  l->bundle_offset = align(l->headers_offset + SECTION_COUNT * sizeof(Elf64_Shdr), 16);
}

// ------------------------------------------------------------------------------------ parts

// Writes zeros up to an offset.
static void pad_to(qn__buffer_t* out, uint64_t offset) {
  assert(out->size <= offset || out->has_failed);
  if (out->has_failed || out->size >= offset) return;
  const size_t size = (size_t)offset - out->size;
  uint8_t* room = qn__buffer_extend(out, size);
  if (room) memset(room, 0, size);
}

static void put_headers(const elf_layout_t* l, qn__buffer_t* out) {
  const uint64_t page = l->machine->page_bytes;
  const Elf64_Ehdr header = {
      .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
      .e_type = ET_DYN,
      .e_machine = l->machine->elf_machine,
      .e_version = EV_CURRENT,
      .e_phoff = sizeof(Elf64_Ehdr),
      .e_shoff = l->headers_offset,
      .e_ehsize = sizeof(Elf64_Ehdr),
      .e_phentsize = sizeof(Elf64_Phdr),
      .e_phnum = SEGMENTS,
      .e_shentsize = sizeof(Elf64_Shdr),
      .e_shnum = SECTION_COUNT,
      .e_shstrndx = SECTION_TITLES,
  };
  const uint64_t code = l->parts[SECTION_CODE].offset, dynamic = l->parts[SECTION_DYNAMIC].offset;
  const uint64_t state = l->parts[SECTION_STATE].offset;
  const Elf64_Phdr segments[SEGMENTS] = {
      {PT_LOAD, PF_R, 0, 0, 0, end_of(l, SECTION_DATA), end_of(l, SECTION_DATA), page},
      {PT_LOAD, PF_R | PF_X, code, code, code, l->parts[SECTION_CODE].size,
       l->parts[SECTION_CODE].size, page},
      {PT_LOAD, PF_R | PF_W, dynamic, dynamic, dynamic, state - dynamic,
       state + STATE_BYTES - dynamic, page},
      {PT_DYNAMIC, PF_R | PF_W, dynamic, dynamic, dynamic, l->parts[SECTION_DYNAMIC].size,
       l->parts[SECTION_DYNAMIC].size, 8},
      {PT_GNU_RELRO, PF_R, dynamic, dynamic, dynamic, state - dynamic, state - dynamic, 1},
      {PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0, 0, 16},
  };
  qn__buffer_bytes(out, &header, sizeof header);
  qn__buffer_bytes(out, segments, sizeof segments);
}

// The hash of System V.
static uint32_t hash_of(const char* prefix, const char* name) {
  uint32_t hash = 0;
  for (int part = 0; part < 2; part++) {
    for (const char* at = part ? name : prefix; *at; at++) {
      hash = (hash << 4) + (uint8_t)*at;
      hash = (hash ^ (hash & 0xf0000000u) >> 24) & 0x0fffffffu;
    }
  }
  return hash;
}

// Puts symbols into buckets; chains hold those of a bucket.
static void put_hash(const elf_layout_t* l, qn__buffer_t* out) {
  const uint32_t symbols = (uint32_t)l->function_count + 2;
  pad_to(out, l->parts[SECTION_HASH].offset);
  uint8_t* room = qn__buffer_extend(out, (size_t)l->parts[SECTION_HASH].size);
  if (!room) return;
  memset(room, 0, (size_t)l->parts[SECTION_HASH].size);
  (void)qn__store_le(room, symbols, 4);
  (void)qn__store_le(room + 4, symbols, 4);
  uint8_t *buckets = room + 8, *chains = buckets + 4 * (size_t)symbols;
  for (uint32_t i = 2; i < symbols; i++) {
    const char* name = qn_module_function_name(l->module, i - 2);
    uint8_t* bucket = buckets + 4 * (size_t)(hash_of(QN__TVM_PREFIX, name) % symbols);
    memcpy(chains + 4 * (size_t)i, bucket, 4);
    (void)qn__store_le(bucket, i, 4);
  }
}

static void put_symbols(const elf_layout_t* l, qn__buffer_t* out) {
  pad_to(out, l->parts[SECTION_SYMBOLS].offset);
  const Elf64_Sym none = {0};
  const Elf64_Sym callee = {.st_name = l->callee_name,
                            .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)};
  qn__buffer_bytes(out, &none, sizeof none);
  qn__buffer_bytes(out, &callee, sizeof callee);
  uint32_t name = 1;
  for (size_t i = 0; i < l->function_count; i++) {
    const Elf64_Sym symbol = {.st_name = name,
                              .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                              .st_shndx = SECTION_CODE,
                              .st_value = l->parts[SECTION_CODE].offset + i * CODE_BYTES,
                              .st_size = CODE_BYTES};
    qn__buffer_bytes(out, &symbol, sizeof symbol);
    name += (uint32_t)(strlen(QN__TVM_PREFIX) + strlen(qn_module_function_name(l->module, i)) + 1);
  }
  qn__buffer_bytes(out, l->names.data, l->names.size);
  pad_to(out, l->parts[SECTION_RELOCATIONS].offset);
  const Elf64_Rela address = {.r_offset = l->parts[SECTION_ADDRESS].offset,
                              .r_info = ELF64_R_INFO(1u, l->machine->address_relocation)};
  qn__buffer_bytes(out, &address, sizeof address);
}

static void put_description(const elf_layout_t* l, qn__buffer_t* out) {
  const uint64_t start = l->parts[SECTION_DATA].offset;
  size_t module_size;
  const void* module = qn_module_bytes(l->module, &module_size);
  qn__tvm_library_t library = {
      .version = QN__TVM_LIBRARY_VERSION,
      .function_count = (uint32_t)l->function_count,
      .target_count = (uint32_t)l->options->target_count,
      .tier = (uint32_t)l->options->tier,
      .is_checked = l->options->is_checked,
      .size = l->parts[SECTION_DATA].size,
      .state_distance = (int64_t)(l->parts[SECTION_STATE].offset - start),
      .module_distance = module_distance(l),
      .module_size = module_size,
      .targets_distance = module_distance(l) + module_size,
      .targets_size = targets_size(l->options),
  };
  memcpy(library.magic, QN__TVM_LIBRARY_MAGIC, sizeof library.magic);
  pad_to(out, start);
  qn__buffer_bytes(out, &library, sizeof library);
  for (size_t i = 0; i < l->function_count; i++) {
    const qn__tvm_library_function_t function = {QN__TVM_FUNCTION_MAGIC, (uint32_t)i,
                                                 function_distance(i)};
    qn__buffer_bytes(out, &function, sizeof function);
  }
  qn__buffer_bytes(out, module, module_size);
  for (size_t i = 0; i < l->options->target_count; i++) {
    qn__buffer_cstr(out, qn_target_json(l->options->targets[i]));
    qn__buffer_u8(out, 0);
  }
}

static void put_code(const elf_layout_t* l, qn__buffer_t* out) {
  pad_to(out, l->parts[SECTION_CODE].offset);
  uint8_t* room = qn__buffer_extend(out, (size_t)l->parts[SECTION_CODE].size);
  if (!room) return;
  for (size_t i = 0; i < l->function_count; i++) {
    l->machine->write_code(room + i * CODE_BYTES, l->parts[SECTION_CODE].offset + i * CODE_BYTES,
                           l->parts[SECTION_DATA].offset + function_distance(i),
                           l->parts[SECTION_ADDRESS].offset);
  }
}

static void put_dynamic(const elf_layout_t* l, qn__buffer_t* out) {
  pad_to(out, l->parts[SECTION_DYNAMIC].offset);
  const Elf64_Dyn entries[] = {
      {DT_NEEDED, {l->needed_name}},
      {DT_RUNPATH, {l->run_path_name}},
      {DT_HASH, {l->parts[SECTION_HASH].offset}},
      {DT_STRTAB, {l->parts[SECTION_NAMES].offset}},
      {DT_SYMTAB, {l->parts[SECTION_SYMBOLS].offset}},
      {DT_STRSZ, {l->parts[SECTION_NAMES].size}},
      {DT_SYMENT, {sizeof(Elf64_Sym)}},
      {DT_RELA, {l->parts[SECTION_RELOCATIONS].offset}},
      {DT_RELASZ, {l->parts[SECTION_RELOCATIONS].size}},
      {DT_RELAENT, {sizeof(Elf64_Rela)}},
      {DT_FLAGS, {DF_BIND_NOW}},
      {DT_FLAGS_1, {DF_1_NOW | DF_1_NODELETE}},
      {DT_NULL, {0}},
  };
  _Static_assert(sizeof entries <= DYNAMIC_ENTRIES * sizeof(Elf64_Dyn), "they fit");
  qn__buffer_bytes(out, entries, sizeof entries);
}

static void put_section_headers(const elf_layout_t* l, qn__buffer_t* out) {
  static const struct {
    uint32_t type;
    uint64_t flags;
    uint32_t link, info;
    uint64_t alignment, entry_bytes;
  } kinds[SECTION_COUNT] = {
      [SECTION_HASH] = {SHT_HASH, SHF_ALLOC, SECTION_SYMBOLS, 0, 8, 4},
      [SECTION_SYMBOLS] = {SHT_DYNSYM, SHF_ALLOC, SECTION_NAMES, 1, 8, sizeof(Elf64_Sym)},
      [SECTION_NAMES] = {SHT_STRTAB, SHF_ALLOC, 0, 0, 1, 0},
      [SECTION_RELOCATIONS] = {SHT_RELA, SHF_ALLOC, SECTION_SYMBOLS, 0, 8, sizeof(Elf64_Rela)},
      [SECTION_DATA] = {SHT_PROGBITS, SHF_ALLOC, 0, 0, 16, 0},
      [SECTION_CODE] = {SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 0, 0, 16, 0},
      [SECTION_DYNAMIC] = {SHT_DYNAMIC, SHF_ALLOC | SHF_WRITE, SECTION_NAMES, 0, 8,
                           sizeof(Elf64_Dyn)},
      [SECTION_ADDRESS] = {SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 0, 0, 8, 8},
      [SECTION_STATE] = {SHT_NOBITS, SHF_ALLOC | SHF_WRITE, 0, 0, 8, 0},
      [SECTION_TITLES] = {SHT_STRTAB, 0, 0, 0, 1, 0},
  };
  pad_to(out, l->parts[SECTION_TITLES].offset);
  qn__buffer_bytes(out, l->titles.data, l->titles.size);
  pad_to(out, l->headers_offset);
  uint32_t name = 0;
  for (size_t i = 0; i < SECTION_COUNT; i++) {
    const bool is_loaded = (kinds[i].flags & SHF_ALLOC) != 0;
    const Elf64_Shdr header = {.sh_name = name,
                               .sh_type = kinds[i].type,
                               .sh_flags = kinds[i].flags,
                               .sh_addr = is_loaded ? l->parts[i].offset : 0,
                               .sh_offset = l->parts[i].offset,
                               .sh_size = l->parts[i].size,
                               .sh_link = kinds[i].link,
                               .sh_info = kinds[i].info,
                               .sh_addralign = kinds[i].alignment,
                               .sh_entsize = kinds[i].entry_bytes};
    qn__buffer_bytes(out, &header, sizeof header);
    name += (uint32_t)strlen(section_names[i]) + 1;
  }
  pad_to(out, l->bundle_offset);
}

// ------------------------------------------------------------------------------------ the whole

// Returns the architecture that the CPU targets have, or this machine's.
static qn_status_t find_machine(const qn_tvm_ffi_library_options_t* options,
                                const elf_arch_t** out_machine) {
  const char* name = NULL;
  for (size_t i = 0; i < options->target_count; i++) {
    const qn_target_t* target = options->targets[i];
    if (!target) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "qn_tvm_ffi_library_write: target %zu is null", i);
    }
    if (!target->arch) continue;
    if (name && strcmp(name, target->arch->name) != 0) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "a library is for one architecture, but its targets are of %s and %s",
                            name, target->arch->name);
    }
    name = target->arch->name;
  }
#ifdef __aarch64__
  const char* own = "aarch64";
#else
  const char* own = "x86_64";
#endif
  for (size_t i = 0; i < QN_COUNT_OF(machines); i++) {
    if (strcmp(machines[i].name, name ? name : own) == 0) {
      *out_machine = &machines[i];
      return QN_OK;
    }
  }
  return qn_status_make(QN_STATUS_UNSUPPORTED, "libraries for %s cannot be written",
                        name ? name : own);
}

static qn_status_t write_parts(elf_layout_t* l, qn__buffer_t* out, qn_sink_t sink) {
  qn__buffer_u8(&l->names, 0);
  for (size_t i = 0; i < l->function_count; i++) {
    (void)add_name(&l->names, QN__TVM_PREFIX, qn_module_function_name(l->module, i));
  }
  char needed[32];
  (void)snprintf(needed, sizeof needed, "libquern.so.%d.%d", QN_VERSION_MAJOR, QN_VERSION_MINOR);
  l->callee_name = add_name(&l->names, "", CALLEE);
  l->needed_name = add_name(&l->names, "", needed);
  l->run_path_name =
      add_name(&l->names, "", l->options->run_path ? l->options->run_path : "$ORIGIN");
  for (size_t i = 0; i < SECTION_COUNT; i++) (void)add_name(&l->titles, "", section_names[i]);
  if (l->names.has_failed || l->titles.has_failed) return qn__out_of_memory("names of a library");
  lay_out(l);
  put_headers(l, out);
  put_hash(l, out);
  put_symbols(l, out);
  put_description(l, out);
  put_code(l, out);
  put_dynamic(l, out);
  put_section_headers(l, out);
  QN_TRY(qn__buffer_status(out, "a library for tvm-ffi"));
  QN_TRY(sink.write(sink.self, out->data, out->size));
  return sink.write(sink.self, l->options->bundle, l->options->bundle_size);
}

qn_status_t qn_tvm_ffi_library_write(const qn_module_t* module,
                                     const qn_tvm_ffi_library_options_t* options, qn_sink_t sink) {
  QN_REQUIRE(module, options);
  QN_STRUCT_READ(qn_tvm_ffi_library_options_t, options, given);
  if (given.target_count == 0 || !given.targets || !given.bundle || given.bundle_size == 0 ||
      !sink.write) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "qn_tvm_ffi_library_write: %s is missing",
                          !sink.write                              ? "a sink"
                          : given.bundle && given.bundle_size != 0 ? "a target"
                                                                   : "a bundle");
  }
  if (given.tier != 0 && given.tier != QN_TIER_FULL && given.tier != QN_TIER_FAST) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "qn_tvm_ffi_library_write: tier %d is not a qn_tier_t", (int)given.tier);
  }
  size_t size;
  (void)qn_module_bytes(module, &size);
  if (size > MAX_MODULE_BYTES || given.target_count > 1024) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "a library takes a module of at most 64 MiB and 1024 targets");
  }
  elf_layout_t layout = {
      .module = module, .options = &given, .function_count = qn_module_function_count(module)};
  QN_TRY(find_machine(&given, &layout.machine));
  const qn_allocator_t allocator = qn_allocator_default();
  qn__buffer_t out;
  qn__buffer_init(&layout.names, allocator);
  qn__buffer_init(&layout.titles, allocator);
  qn__buffer_init(&out, allocator);
  qn_status_t status = write_parts(&layout, &out, sink);
  qn__buffer_deinit(&layout.names);
  qn__buffer_deinit(&layout.titles);
  qn__buffer_deinit(&out);
  return status;
}
