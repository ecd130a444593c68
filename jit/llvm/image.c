// SPDX-License-Identifier: Apache-2.0
// jit/llvm/image.c: runs LLVM's passes and code generation, links the object, and lists its
// functions for profilers and debuggers.
#include "jit/llvm/image.h"

#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdlib.h>

#include "jit/llvm/build.h"
#include "jit/llvm/emit.h"
#include "jit/llvm/opaque.h"

void qn__llvm_image_init(qn__llvm_image_t* image, qn_allocator_t allocator) {
  memset(image, 0, sizeof *image);
  qn__buffer_init(&image->bytes, allocator);
}

void qn__llvm_image_deinit(qn__llvm_image_t* image) {
  qn__buffer_deinit(&image->bytes);
}

qn_status_t qn__llvm_image_emit_file(LLVMModuleRef module, LLVMTargetMachineRef machine,
                                     LLVMCodeGenFileType type, LLVMMemoryBufferRef* out_buffer) {
  char* message = NULL;
  *out_buffer = NULL;
  if (!LLVMTargetMachineEmitToMemoryBuffer(machine, module, type, &message, out_buffer))
    return QN_OK;
  qn_status_t status = qn_status_make(QN_STATUS_UNSUPPORTED, "LLVM cannot make code: %s",
                                      message ? message : "no reason given");
  LLVMDisposeMessage(message);
  return status;
}

// Keeps the code generator from optimising functions that run once a call: beside their launches
// their time does not count, but that of the code generator does (an eighth to a third of it).
static void mark_once(LLVMModuleRef module) {
  static const char key[] = QN__EMIT_RUNS_ONCE;
  LLVMValueRef function = LLVMGetFirstFunction(module);
  for (; function; function = LLVMGetNextFunction(function)) {
    if (!LLVMGetStringAttributeAtIndex(function, QN__LLVM_OF_FUNCTION, key, sizeof key - 1)) {
      continue;
    }
    qn__llvm_add_attribute(function, QN__LLVM_OF_FUNCTION, "optnone");
    qn__llvm_add_attribute(function, QN__LLVM_OF_FUNCTION, "noinline");
  }
}

// Returns true for x86-64 without masks in registers of their own.
static bool has_masks_in_vectors(LLVMTargetMachineRef machine) {
  char* features = LLVMGetTargetMachineFeatureString(machine);
  bool has = strstr(features, "+avx2") && !strstr(features, "+avx512vl");
  LLVMDisposeMessage(features);
  return has;
}

// The code already has its vectors. LLVM only cleans up: it promotes stack slots, shares common
// subexpressions, moves invariants out of loops and simplifies addresses. Three kinds of passes are
// left out: vectorisers (they would only take our vectors apart), loop idioms and memcpy
// optimisation (they make calls of memset and memcpy, which cannot be resolved here), and inlining
// (kernels and loop bodies are reached through pointers). The C interface can leave passes out only
// by an explicit pipeline: it ignores the switches of LLVMPassBuilderOptions.
qn_status_t qn__llvm_optimize(LLVMModuleRef module, LLVMTargetMachineRef machine, qn_tier_t tier) {
  const char* pipeline = tier == QN_TIER_FAST ? QN__EMIT_PASSES_FAST : QN__EMIT_PASSES_FULL;
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = LLVMRunPasses(module, pipeline, machine, options);
  LLVMDisposePassBuilderOptions(options);
  mark_once(module);
  if (tier != QN_TIER_FAST) qn__llvm_make_loops_opaque(module);
  if (tier != QN_TIER_FAST && has_masks_in_vectors(machine)) qn__llvm_widen_masks(module);
  if (!error) return QN_OK;
  char* message = LLVMGetErrorMessage(error);
  qn_status_t status = qn_status_make(QN_STATUS_INTERNAL, "LLVM's passes failed: %s", message);
  LLVMDisposeErrorMessage(message);
  return status;
}

static int by_value(const void* a, const void* b) {
  const qn__llvm_object_symbol_t* one = a;
  const qn__llvm_object_symbol_t* other = b;
  if (one->value != other->value) return one->value < other->value ? -1 : 1;
  return strcmp(one->name, other->name);
}

static const qn__llvm_object_symbol_t* find(const qn__llvm_object_t* object, const char* name) {
  for (size_t i = 0; i < object->function_count; ++i) {
    if (strcmp(object->functions[i].name, name) == 0) return &object->functions[i];
  }
  return NULL;
}

// Lists the functions of the first entry's section. That entry gives the section's offset.
static qn_status_t list_symbols(qn__llvm_object_t* object, const char* first_entry,
                                uint64_t first_offset, qn__arena_t* arena,
                                qn__llvm_image_t* image) {
  const qn__llvm_object_symbol_t* first = find(object, first_entry);
  if (QN_NEVER(!first) || QN_NEVER(first_offset < first->value)) return QN_OK;
  uint64_t base = first_offset - first->value;
  uint16_t section = first->section;
  image->symbols = qn__arena_alloc_array(arena, object->function_count + 1, sizeof *image->symbols);
  if (!image->symbols) return qn__out_of_memory("the symbols of an image");
  qsort(object->functions, object->function_count, sizeof *object->functions, by_value);
  for (size_t i = 0; i < object->function_count; ++i) {
    const qn__llvm_object_symbol_t* symbol = &object->functions[i];
    if (symbol->section != section) continue;
    image->symbols[image->symbol_count++] = (qn__llvm_image_symbol_t){
        .name = qn__arena_cstr(arena, qn__str(symbol->name)),
        .offset = base + symbol->value,
        .size_bytes = symbol->size_bytes,
    };
  }
  return arena->is_exhausted ? qn__out_of_memory("the symbols of an image") : QN_OK;
}

uint64_t qn__llvm_image_append(const qn__llvm_image_t* image, qn__buffer_t* payload) {
  while (payload->size % QN__LLVM_IMAGE_ALIGN_BYTES != 0 && !payload->has_failed) {
    qn__buffer_u8(payload, 0);
  }
  uint64_t base = payload->size;
  qn__buffer_bytes(payload, image->bytes.data, image->bytes.size);
  return base;
}

void qn__llvm_image_write_symbols(const qn__llvm_image_t* image, uint64_t base, qn__buffer_t* out) {
  for (size_t i = 0; i < image->symbol_count; ++i) {
    const qn__llvm_image_symbol_t* symbol = &image->symbols[i];
    qn_str_t name = qn__str(symbol->name);
    qn__buffer_varint(out, base + symbol->offset);
    qn__buffer_varint(out, symbol->size_bytes);
    qn__buffer_run(out, (qn_span_t){(const uint8_t*)name.data, name.size});
  }
}

qn_status_t qn__llvm_image_link(qn__llvm_worker_t* worker, qn_span_t bytes,
                                const char* const* entries, size_t entry_count, qn__arena_t* arena,
                                qn__llvm_image_t* image) {
  qn__llvm_object_t object;
  QN_TRY(qn__llvm_object_inspect(bytes, arena, &object));
  image->offsets = qn__arena_alloc_array(arena, entry_count + 1, sizeof *image->offsets);
  image->sizes = qn__arena_alloc_array(arena, entry_count + 1, sizeof *image->sizes);
  if (!image->offsets || !image->sizes) return qn__out_of_memory("an image");
  for (size_t i = 0; i < entry_count; ++i) {
    const qn__llvm_object_symbol_t* symbol = find(&object, entries[i]);
    if (!symbol) {
      return qn_status_make(QN_STATUS_INTERNAL, "the object has no function '%s'", entries[i]);
    }
    image->sizes[i] = symbol->size_bytes;
  }
  qn__llvm_linker_t* linker;
  QN_TRY(qn__llvm_worker_linker(worker, &linker));
  qn__llvm_link_request_t request = {bytes,   object.load_bytes, entry_count,
                                     entries, image->offsets,    arena};
  QN_TRY(qn__llvm_linker_link(linker, &request, &image->bytes));
  if (entry_count == 0) return QN_OK;
  return list_symbols(&object, entries[0], image->offsets[0], arena, image);
}
