// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // MAP_ANONYMOUS
// jit/llvm/link.c: the memory manager of the RTDyld layer, the two links, and their comparison.
//
// Requirements:
//  1. One mapping holds both regions. Their addresses differ by less than 4 GiB and by no power of
//     two, so that neither 32-bit nor 64-bit addresses can agree by chance.
//  2. The linker asks for sections in an order that follows from the object alone. They are placed
//     in that order, each at its alignment; gaps are zero.
//  3. Unwind tables are placed after the image and dropped, since the code never throws.
//  4. A memory manager cannot refuse: NULL makes LLVM end the process. A forbidden section gets
//     spare memory outside the image and is recorded; the link is refused afterwards.
//  5. No outside symbol can be resolved: the code is linked in a bare library without a search
//     order. The session's messages are kept as text; otherwise LLVM prints them.
//  6. The regions are not executable; linked code never runs there.
#include "jit/llvm/link.h"

#include <llvm-c/Core.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/OrcEE.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"

enum { SECTION_LIMIT = 64, SECTION_NAME_BYTES = 32 };

typedef struct section {
  char name[SECTION_NAME_BYTES];
  size_t offset;
  size_t size;
} section_t;

// The header of spare memory (requirement 4); as large as the alignment of any section.
typedef struct spare {
  _Alignas(64) struct spare* next;
  size_t size;
} spare_t;

// The memory of one of the two links.
typedef struct region {
  uint8_t* base;
  size_t capacity;  // of the image; the same capacity for dropped sections follows it
  size_t used;
  size_t dropped;
  size_t section_count;
  section_t sections[SECTION_LIMIT];
  char problem[256];  // the first forbidden section; "": none
  bool is_unsupported;
  struct spare* spares;
} region_t;

struct qn__llvm_linker {
  qn_allocator_t allocator;
  LLVMOrcLLJITRef jit;
  LLVMOrcJITDylibRef library;
  region_t* region;  // of the link under way
  bool is_broken;
  qn__buffer_t messages;  // of the session
};

// ------------------------------------------------------------------------------------ placing

// Records the first problem: "BEFORE 'NAME' AFTER".
static void note(region_t* region, bool is_unsupported, const char* before, const char* name,
                 const char* after) {
  if (region->problem[0]) return;  // later problems follow from the first one
  (void)snprintf(region->problem, sizeof region->problem, "%s '%.100s' %s", before, name, after);
  region->is_unsupported = is_unsupported;
}

// Maps memory outside the image for a forbidden section (requirement 4).
static uint8_t* place_spare(region_t* region, size_t size) {
  size += sizeof(spare_t);
  void* memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;  // ends the process (requirement 4)
  spare_t* spare = memory;
  spare->next = region->spares;
  spare->size = size;
  region->spares = spare;
  return (uint8_t*)(spare + 1);
}

static void free_spares(region_t* region) {
  while (region->spares) {
    spare_t* spare = region->spares;
    region->spares = spare->next;
    (void)munmap(spare, spare->size);
  }
}

static bool bump(size_t* inout_used, size_t capacity, size_t size, size_t align, size_t* out) {
  if (QN_NEVER((align & (align - 1)) != 0)) return false;
  size_t at = (*inout_used + align - 1) & ~(align - 1);
  if (at > capacity || size > capacity - at) return false;
  *out = at;
  *inout_used = at + size;
  return true;
}

static uint8_t* place(void* opaque, uintptr_t size, unsigned alignment, const char* name,
                      bool is_writable) {
  region_t* region = opaque;
  size_t align = alignment ? alignment : 1;
  if (strncmp(name, ".got", 4) == 0) {
    note(region, true, "code for the cpu has no table of addresses, but", name, "is required");
    return place_spare(region, size);
  }
  if (is_writable) {
    note(region, true, "code for the cpu has no writable data of its own, but section", name, "is");
    return place_spare(region, size);
  }
  size_t at;
  if (strncmp(name, ".eh_frame", 9) == 0) {
    if (bump(&region->dropped, region->capacity, size, align, &at)) {
      return region->base + region->capacity + at;
    }
  } else if (align <= QN__LLVM_IMAGE_ALIGN_BYTES &&
             bump(&region->used, region->capacity, size, align, &at)) {
    if (region->section_count < SECTION_LIMIT) {
      section_t* section = &region->sections[region->section_count++];
      (void)snprintf(section->name, sizeof section->name, "%s", name);
      section->offset = at;
      section->size = size;
    }
    assert(region->used <= region->capacity);
    return region->base + at;
  }
  note(region, false, "section", name,
       "does not fit: its size or alignment is beyond that of the object");
  return place_spare(region, size);
}

static uint8_t* allocate_code(void* opaque, uintptr_t size, unsigned alignment, unsigned section_id,
                              const char* name) {
  (void)section_id;
  return place(opaque, size, alignment, name, false);
}

static uint8_t* allocate_data(void* opaque, uintptr_t size, unsigned alignment, unsigned section_id,
                              const char* name, LLVMBool is_read_only) {
  (void)section_id;
  return place(opaque, size, alignment, name, !is_read_only);
}

static LLVMBool finalize(void* opaque, char** out_message) {
  (void)opaque;
  (void)out_message;
  return 0;
}

static void* begin_object(void* self) {
  qn__llvm_linker_t* linker = self;
  assert(linker->region);
  return linker->region;
}

static void do_nothing(void* self) {
  (void)self;
}

static LLVMOrcObjectLayerRef make_layer(void* self, LLVMOrcExecutionSessionRef session,
                                        const char* triple) {
  (void)triple;
  return LLVMOrcCreateRTDyldObjectLinkingLayerWithMCJITMemoryManagerLikeCallbacks(
      session, self, begin_object, do_nothing, allocate_code, allocate_data, finalize, do_nothing);
}

// ------------------------------------------------------------------------------------ the session

// Appends an error, which is consumed.
static void keep_message(qn__llvm_linker_t* linker, LLVMErrorRef error) {
  if (!error) return;
  char* text = LLVMGetErrorMessage(error);
  if (linker->messages.size > 0) qn__buffer_cstr(&linker->messages, "; ");
  // LLVM ends some of its messages with a line feed; ours have one line.
  for (const char* at = text; *at; ++at) {
    if (*at != '\n') {
      qn__buffer_char(&linker->messages, *at);
    } else if (at[1] != '\0') {
      qn__buffer_char(&linker->messages, ' ');
    }
  }
  LLVMDisposeErrorMessage(text);
}

static void report(void* self, LLVMErrorRef error) {
  keep_message(self, error);
}

static qn_status_t take_messages(qn__llvm_linker_t* linker, qn_status_code_t code) {
  linker->is_broken = true;
  const char* text = linker->messages.size ? (const char*)linker->messages.data : "no reason given";
  return qn_status_make(code, "linking failed: %s", text);
}

qn_status_t qn__llvm_linker_create(qn_allocator_t allocator, LLVMTargetMachineRef machine,
                                   qn__llvm_linker_t** out_linker) {
  *out_linker = NULL;
  LLVMOrcJITTargetMachineBuilderRef machine_builder =
      LLVMOrcJITTargetMachineBuilderCreateFromTargetMachine(machine);
  qn__llvm_linker_t* linker = qn__alloc_zero(allocator, 1, sizeof *linker);
  if (!linker) {
    LLVMOrcDisposeJITTargetMachineBuilder(machine_builder);
    return qn__out_of_memory("a linker");
  }
  linker->allocator = allocator;
  qn__buffer_init(&linker->messages, allocator);
  LLVMOrcLLJITBuilderRef builder = LLVMOrcCreateLLJITBuilder();
  LLVMOrcLLJITBuilderSetJITTargetMachineBuilder(builder, machine_builder);
  LLVMOrcLLJITBuilderSetObjectLinkingLayerCreator(builder, make_layer, linker);
  LLVMErrorRef error = LLVMOrcCreateLLJIT(&linker->jit, builder);
  if (error) {
    keep_message(linker, error);
    linker->jit = NULL;
    qn_status_t status = take_messages(linker, QN_STATUS_INTERNAL);
    qn__llvm_linker_destroy(linker);
    return status;
  }
  LLVMOrcExecutionSessionRef session = LLVMOrcLLJITGetExecutionSession(linker->jit);
  LLVMOrcExecutionSessionSetErrorReporter(session, report, linker);
  linker->library = LLVMOrcExecutionSessionCreateBareJITDylib(session, "image");
  *out_linker = linker;
  return QN_OK;
}

void qn__llvm_linker_destroy(qn__llvm_linker_t* linker) {
  if (!linker) return;
  if (linker->jit) {
    LLVMErrorRef error = LLVMOrcDisposeLLJIT(linker->jit);
    if (error) LLVMConsumeError(error);
  }
  qn__buffer_deinit(&linker->messages);
  qn__free(linker->allocator, linker, sizeof *linker);
}

bool qn__llvm_linker_is_broken(const qn__llvm_linker_t* linker) {
  return linker->is_broken;
}

// ------------------------------------------------------------------------------------ one link

typedef struct lookup {
  qn__llvm_linker_t* linker;
  const qn__llvm_link_request_t* request;
  uint64_t* out_addresses;
  bool is_done;
} lookup_t;

static void take_addresses(LLVMErrorRef error, LLVMOrcCSymbolMapPairs pairs, size_t count,
                           void* self) {
  lookup_t* lookup = self;
  keep_message(lookup->linker, error);
  if (error) return;
  size_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    const char* name = LLVMOrcSymbolStringPoolEntryStr(pairs[i].Name);
    for (size_t k = 0; k < lookup->request->symbol_count; ++k) {
      if (strcmp(name, lookup->request->symbols[k]) != 0) continue;
      lookup->out_addresses[k] = pairs[i].Sym.Address;
      ++found;
    }
  }
  lookup->is_done = found == lookup->request->symbol_count;
}

// Looks the symbols up, for which ORC links the object in this thread.
static bool look_up(qn__llvm_linker_t* linker, const qn__llvm_link_request_t* request,
                    LLVMOrcCLookupSetElement* elements, uint64_t* out_addresses) {
  LLVMOrcExecutionSessionRef session = LLVMOrcLLJITGetExecutionSession(linker->jit);
  for (size_t i = 0; i < request->symbol_count; ++i) {
    // The lookup releases the names.
    elements[i].Name = LLVMOrcExecutionSessionIntern(session, request->symbols[i]);
    elements[i].LookupFlags = LLVMOrcSymbolLookupFlagsRequiredSymbol;
  }
  // The entries are hidden symbols: code would reach others through a table of addresses.
  LLVMOrcCJITDylibSearchOrderElement order = {linker->library,
                                              LLVMOrcJITDylibLookupFlagsMatchAllSymbols};
  lookup_t lookup = {linker, request, out_addresses, false};
  LLVMOrcExecutionSessionLookup(session, LLVMOrcLookupKindStatic, &order, 1, elements,
                                request->symbol_count, take_addresses, &lookup);
  return lookup.is_done;
}

static qn_status_t link_into(qn__llvm_linker_t* linker, const qn__llvm_link_request_t* request,
                             region_t* region, LLVMOrcCLookupSetElement* elements,
                             uint64_t* out_addresses) {
  assert(!linker->region && !linker->is_broken);
  qn__buffer_clear(&linker->messages);
  linker->region = region;
  LLVMOrcResourceTrackerRef tracker = LLVMOrcJITDylibCreateResourceTracker(linker->library);
  // The layer owns the buffer object, not the bytes.
  LLVMMemoryBufferRef object = LLVMCreateMemoryBufferWithMemoryRange(
      (const char*)request->object.data, request->object.size, "image", 0);
  LLVMErrorRef error = LLVMOrcLLJITAddObjectFileWithRT(linker->jit, tracker, object);
  keep_message(linker, error);
  bool is_linked = !error && look_up(linker, request, elements, out_addresses);
  qn_status_t status = QN_OK;
  if (region->problem[0]) {
    linker->is_broken = true;
    const char* more = linker->messages.size ? (const char*)linker->messages.data : "";
    status = qn_status_make(region->is_unsupported ? QN_STATUS_UNSUPPORTED : QN_STATUS_INTERNAL,
                            "%s%s%s", region->problem, more[0] ? "; " : "", more);
  } else if (!is_linked) {
    status = take_messages(linker, QN_STATUS_UNSUPPORTED);
  }
  error = LLVMOrcResourceTrackerRemove(tracker);
  if (error) {
    keep_message(linker, error);
    linker->is_broken = true;
  }
  LLVMOrcReleaseResourceTracker(tracker);
  linker->region = NULL;
  return status;
}

// ------------------------------------------------------------------------------------ both

static const char* section_at(const region_t* region, size_t offset, size_t* out_within) {
  for (size_t i = 0; i < region->section_count; ++i) {
    const section_t* section = &region->sections[i];
    if (offset >= section->offset && offset - section->offset < section->size) {
      *out_within = offset - section->offset;
      return section->name;
    }
  }
  *out_within = offset;
  return "(padding)";
}

static qn_status_t compare(const region_t* a, const region_t* b) {
  if (a->used != b->used) {
    return qn_status_make(QN_STATUS_INTERNAL, "two links of one object differ in size: %zu and %zu",
                          a->used, b->used);
  }
  if (memcmp(a->base, b->base, a->used) == 0) return QN_OK;
  size_t at = 0;
  while (a->base[at] == b->base[at]) ++at;
  size_t within;
  const char* name = section_at(a, at, &within);
  return qn_status_make(QN_STATUS_INTERNAL,
                        "the code depends on its address: byte %zu of the image (%s + %zu) differs "
                        "between two links",
                        at, name, within);
}

static qn_status_t link_both(qn__llvm_linker_t* linker, const qn__llvm_link_request_t* request,
                             region_t* regions, qn__buffer_t* out_image) {
  size_t count = request->symbol_count;
  LLVMOrcCLookupSetElement* elements =
      qn__arena_alloc_array(request->arena, count + 1, sizeof *elements);
  uint64_t* addresses = qn__arena_alloc_array(request->arena, count + 1, sizeof *addresses);
  if (!elements || !addresses) return qn__out_of_memory("a link");
  for (size_t i = 0; i < 2; ++i) {
    QN_TRY(link_into(linker, request, &regions[i], elements, addresses));
    for (size_t k = 0; k < count; ++k) {
      uint64_t offset = addresses[k] - (uint64_t)(uintptr_t)regions[i].base;
      if (offset >= regions[i].used || (i == 1 && offset != request->out_offsets[k])) {
        return qn_status_make(QN_STATUS_INTERNAL, "function '%s' lies outside of the image",
                              request->symbols[k]);
      }
      request->out_offsets[k] = offset;
    }
  }
  QN_TRY(compare(&regions[0], &regions[1]));
  qn__buffer_bytes(out_image, regions[0].base, regions[0].used);
  return qn__buffer_status(out_image, "an image");
}

qn_status_t qn__llvm_linker_link(qn__llvm_linker_t* linker, const qn__llvm_link_request_t* request,
                                 qn__buffer_t* out_image) {
  if (request->load_bytes > SIZE_MAX / 8) {
    return qn_status_make(QN_STATUS_INTERNAL, "an image of %zu bytes is too large",
                          request->load_bytes);
  }
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t capacity = (request->load_bytes + page) & ~(page - 1);
  // Two regions of twice the capacity, one page apart (requirement 1).
  size_t distance = 2 * capacity + page;
  size_t total = distance + 2 * capacity;
  assert(capacity >= request->load_bytes && (distance & (distance - 1)) != 0);
  region_t* regions = qn__arena_alloc_array(request->arena, 2, sizeof *regions);
  if (!regions) return qn__out_of_memory("a link");
  void* memory = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return qn__out_of_memory("an image");
  for (size_t i = 0; i < 2; ++i) {
    regions[i].base = (uint8_t*)memory + i * distance;
    regions[i].capacity = capacity;
  }
  qn_status_t status = link_both(linker, request, regions, out_image);
  for (size_t i = 0; i < 2; ++i) free_spares(&regions[i]);
  (void)munmap(memory, total);
  return status;
}
