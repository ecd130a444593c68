// SPDX-License-Identifier: Apache-2.0
// ir/interpret_memory.c: the interpreter's buffers: declares them, checks indices, reads and
// writes.
//
// Every index is checked against its dimension. The address is then checked against the memory of
// the root buffer, to find views and strides that reach beyond it. Fresh memory is filled with
// ones, so that uninitialised floats are NaN. A declaration that runs again replaces the previous
// one.
#include <assert.h>

#include "ir/interpreter.h"

#define MAX_BYTES ((int64_t)1 << 40)  // of one buffer, for all threads

static size_t dims_of(const qn__ir_buffer_t* buffer) {
  return 2 * (size_t)buffer->rank + 1;
}

static void release(qn__interpret_machine_t* machine, qn__interpret_buffer_t* held) {
  qn__free(machine->allocator, held->slots, held->count * sizeof *held->slots);
  qn__free(machine->allocator, held->dims, held->dim_count * sizeof *held->dims);
  qn__free(machine->allocator, held->memory, held->memory_bytes);
  *held = (qn__interpret_buffer_t){0};
}

void qn__machine_free_buffers(qn__interpret_machine_t* machine) {
  if (!machine->buffers) return;
  for (uint32_t i = 0; i < machine->function->buffer_count; ++i) {
    release(machine, &machine->buffers[i]);
  }
}

// Makes room for the slots of `count` threads. Returns false on failure.
static bool prepare(qn__interpret_machine_t* machine, const qn__ir_buffer_t* buffer, uint32_t level,
                    uint32_t count) {
  assert(buffer->id < machine->function->buffer_count);
  qn__interpret_buffer_t* held = &machine->buffers[buffer->id];
  release(machine, held);
  held->level = level;
  held->count = count;
  held->dim_count = count * dims_of(buffer);
  held->slots = qn__alloc_zero(machine->allocator, count, sizeof *held->slots);
  held->dims = qn__alloc_zero(machine->allocator, held->dim_count, sizeof *held->dims);
  if (held->slots && held->dims) return true;
  return qn__machine_fail(machine, QN_STATUS_OUT_OF_MEMORY, "no memory for buffer '%s'",
                          buffer->name);
}

// Computes extents and strides for one thread, and the number of elements from the lowest to the
// highest that they reach. Returns false on failure.
static bool measure(qn__interpret_machine_t* machine, const qn__ir_buffer_t* buffer, uint32_t index,
                    uint32_t thread, int64_t* out_low, int64_t* out_high) {
  int64_t* extents = machine->buffers[buffer->id].dims + index * dims_of(buffer);
  int64_t* strides = extents + buffer->rank;
  int64_t stride = 1, low = 0, high = 1;
  bool is_empty = false, overflows = false;
  for (uint32_t d = buffer->rank; d-- > 0;) {
    extents[d] = qn__machine_eval(machine, buffer->shape[d], thread).i;
    if (qn__machine_failed(machine)) return false;
    if (extents[d] < 0) {
      return qn__machine_fail(machine, QN_STATUS_VALUE_ERROR,
                              "buffer '%s' dim %" PRIu32 ": extent %" PRId64 " is negative",
                              buffer->name, d, extents[d]);
    }
    if (extents[d] == 0) is_empty = true;
    strides[d] = stride;
    if (buffer->strides) {
      strides[d] = qn__machine_eval(machine, buffer->strides[d], thread).i;
      if (qn__machine_failed(machine)) return false;
    }
    int64_t reach = 0;
    overflows |= __builtin_mul_overflow(extents[d] > 0 ? extents[d] - 1 : 0, strides[d], &reach);
    overflows |= __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high);
    if (!buffer->strides && extents[d] > 0) {
      overflows |= __builtin_mul_overflow(stride, extents[d], &stride);
    }
  }
  *out_low = is_empty ? 0 : low;
  *out_high = is_empty ? 0 : high;
  if (qn__dtype_is_packed(buffer->dtype) && extents[buffer->rank - 1] % 2 != 0) {
    return qn__machine_fail(machine, QN_STATUS_VALUE_ERROR,
                            "buffer '%s' of %s: the last extent is %" PRId64
                            ", expected an even number",
                            buffer->name, qn_dtype_text(buffer->dtype), extents[buffer->rank - 1]);
  }
  if (is_empty) return true;
  int64_t limit = MAX_BYTES / (int64_t)qn_dtype_size_bytes(buffer->dtype);
  if (overflows || high > limit || low < -limit) {
    return qn__machine_fail(machine, QN_STATUS_VALUE_ERROR,
                            "buffer '%s' is too large, limit %" PRId64 " bytes", buffer->name,
                            (int64_t)MAX_BYTES);
  }
  return true;
}

void qn__machine_bind(qn__interpret_machine_t* machine, const qn__ir_buffer_t* buffer,
                      uint64_t address) {
  int64_t low, high;
  if (!prepare(machine, buffer, 0, 1) || !measure(machine, buffer, 0, 0, &low, &high)) return;
  qn__interpret_slot_t* slot = machine->buffers[buffer->id].slots;
  slot->data = (uint8_t*)(uintptr_t)address;
  slot->low = slot->data ? slot->data + qn__dtype_bytes_of(buffer->dtype, low) : NULL;
  slot->high = slot->data ? slot->data + qn__dtype_bytes_of(buffer->dtype, high) : NULL;
}

static void alloc_view(qn__interpret_machine_t* machine, const qn__ir_buffer_t* view) {
  const qn__interpret_set_t* active = machine->active;
  if (!prepare(machine, view, machine->level, machine->levels[machine->level].count)) return;
  for (uint32_t i = 0; i < active->count; ++i) {
    uint32_t thread = active->threads[i];
    int64_t low, high;
    if (!measure(machine, view, thread, thread, &low, &high)) return;
    qn__interpret_slot_t* slot = &machine->buffers[view->id].slots[thread];
    const qn__interpret_buffer_t* base = &machine->buffers[view->base->id];
    uint32_t owner = qn__machine_ancestor(machine, base->level, thread);
    *slot = base->slots[owner];
    if (high == low) continue;  // empty: any start is valid
    bool is_high;
    slot->data = qn__machine_place(machine, view->base, view->base_indices, thread, &is_high);
    if (!slot->data) return;
    if (is_high) {
      (void)qn__machine_fail(machine, QN_STATUS_VALUE_ERROR,
                             "view '%s' begins in the middle of a byte of '%s'", view->name,
                             view->base->name);
      return;
    }
  }
}

void qn__machine_alloc(qn__interpret_machine_t* machine, const qn__ir_buffer_t* buffer) {
  if (buffer->scope == QN__SCOPE_VIEW) {
    alloc_view(machine, buffer);
    return;
  }
  // Tables, shared and global buffers are the same for all threads: they are declared outside of
  // thread loops, or are tables with the same elements for each thread.
  const qn__interpret_set_t* active = machine->active;
  uint32_t count = machine->levels[machine->level].count;
  if (!prepare(machine, buffer, machine->level, count)) return;
  qn__interpret_buffer_t* held = &machine->buffers[buffer->id];
  int64_t size = (int64_t)qn_dtype_size_bytes(buffer->dtype);
  int64_t element_count = 0, element_bytes = 0;
  for (uint32_t i = 0; i < active->count; ++i) {
    int64_t low, high;
    if (!measure(machine, buffer, active->threads[i], active->threads[i], &low, &high)) return;
    if (high > element_count) element_count = high;
  }
  element_bytes = qn__dtype_bytes_of(buffer->dtype, element_count);
  int64_t bytes;
  if (__builtin_mul_overflow(element_bytes, (int64_t)count, &bytes) || bytes > MAX_BYTES) {
    (void)qn__machine_fail(machine, QN_STATUS_VALUE_ERROR,
                           "buffer '%s' is too large, limit %" PRId64 " bytes", buffer->name,
                           (int64_t)MAX_BYTES);
    return;
  }
  held->memory_bytes = (size_t)bytes + 1;
  held->memory = qn__alloc(machine->allocator, held->memory_bytes);
  if (!held->memory) {
    (void)qn__machine_fail(machine, QN_STATUS_OUT_OF_MEMORY, "no memory for buffer '%s'",
                           buffer->name);
    return;
  }
  memset(held->memory, 0xff, held->memory_bytes);
  for (uint32_t i = 0; i < active->count; ++i) {
    uint32_t thread = active->threads[i];
    qn__interpret_slot_t* slot = &held->slots[thread];
    slot->data = held->memory + (int64_t)thread * element_bytes;
    slot->low = slot->data;
    slot->high = slot->data + element_bytes;
    if (buffer->scope != QN__SCOPE_CONST) continue;
    for (size_t e = 0; e < buffer->element_count && (int64_t)e < element_count; ++e) {
      const qn__ir_expr_t* element = buffer->elements[e];
      qn__ir_scalar_t value = element->kind == QN__EXPR_FLOAT
                                  ? (qn__ir_scalar_t){.f = element->float_value}
                                  : (qn__ir_scalar_t){.i = element->int_value};
      qn__machine_write(buffer, slot->data + (int64_t)e * size, value);
    }
  }
}

uint8_t* qn__machine_place(qn__interpret_machine_t* machine, const qn__ir_buffer_t* buffer,
                           qn__ir_expr_t* const* indices, uint32_t thread, bool* out_is_high) {
  const qn__interpret_buffer_t* held = &machine->buffers[buffer->id];
  int64_t offset = 0;
  if (!held->slots) {
    return qn__machine_fail(machine, QN_STATUS_INTERNAL,
                            "buffer '%s' is used before it is declared", buffer->name);
  }
  uint32_t owner = qn__machine_ancestor(machine, held->level, thread);
  assert(owner < held->count);
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    int64_t index = qn__machine_eval(machine, indices[d], thread).i;
    if (qn__machine_failed(machine)) return NULL;
    // `held` stays valid while an index is evaluated, since expressions declare nothing.
    const int64_t* dims = held->dims + owner * dims_of(buffer);
    if (index < 0 || index >= dims[d]) {
      bool is_huge = index < 0 && indices[d]->dtype == QN_DTYPE_U64;
      return qn__machine_fail(
          machine, QN_STATUS_OUT_OF_BOUNDS,
          is_huge ? "buffer '%s' dim %" PRIu32 ": index %" PRIu64 " outside of extent %" PRId64
                  : "buffer '%s' dim %" PRIu32 ": index %" PRId64 " outside of extent %" PRId64,
          buffer->name, d, index, dims[d]);
    }
    offset += index * dims[buffer->rank + d];
  }
  const qn__interpret_slot_t* slot = &held->slots[owner];
  int64_t size = (int64_t)qn_dtype_size_bytes(buffer->dtype);
  // Compare distances, since a pointer outside of the memory is undefined.
  *out_is_high = qn__dtype_is_packed(buffer->dtype) && offset % 2 != 0;
  int64_t offset_bytes = qn__dtype_bytes_of(buffer->dtype, offset);
  int64_t begin = slot->data - slot->low + offset_bytes;
  if (!slot->data || begin < 0 || begin + size > slot->high - slot->low) {
    return qn__machine_fail(machine, QN_STATUS_OUT_OF_BOUNDS,
                            "buffer '%s': element at offset %" PRId64 " is outside of its memory",
                            buffer->name, offset);
  }
  return slot->data + offset_bytes;
}

uint8_t* qn__machine_address(qn__interpret_machine_t* machine, const qn__ir_buffer_t* buffer,
                             qn__ir_expr_t* const* indices, uint32_t thread) {
  bool is_high;
  return qn__machine_place(machine, buffer, indices, thread, &is_high);
}

int64_t qn__machine_reach(const qn__interpret_machine_t* machine, const qn__ir_buffer_t* buffer,
                          uint32_t thread, const uint8_t* address) {
  const qn__interpret_buffer_t* held = &machine->buffers[buffer->id];
  const qn__interpret_slot_t* slot =
      &held->slots[qn__machine_ancestor(machine, held->level, thread)];
  assert(address >= slot->low && address <= slot->high);
  return (slot->high - address) / (int64_t)qn_dtype_size_bytes(buffer->dtype);
}

// Elements are the lower bytes of the words that hold them.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a little-endian machine");

qn__ir_scalar_t qn__machine_load(qn__interpret_machine_t* machine, const qn__ir_expr_t* load,
                                 uint32_t thread) {
  const qn__ir_buffer_t* buffer = load->load.buffer;
  bool is_high;
  const uint8_t* address = qn__machine_place(machine, buffer, load->load.indices, thread, &is_high);
  if (!address) return (qn__ir_scalar_t){0};
  if (!qn__dtype_is_packed(buffer->dtype)) return qn__machine_read(buffer, address);
  return qn__scalar_from_bits(buffer->dtype, is_high ? *address >> 4 : *address & 15);
}

qn__ir_scalar_t qn__machine_read(const qn__ir_buffer_t* buffer, const uint8_t* address) {
  uint64_t bits = 0;
  memcpy(&bits, address, qn_dtype_size_bytes(buffer->dtype));
  if (buffer->dtype == QN_DTYPE_BOOL) return (qn__ir_scalar_t){.i = bits != 0};
  return qn__scalar_from_bits(buffer->dtype, bits);
}

qn__ir_scalar_t qn__machine_read_word(qn__interpret_machine_t* machine, const qn__ir_expr_t* load,
                                      uint32_t thread) {
  const qn__ir_buffer_t* buffer = load->load.buffer;
  assert(qn__load_is_word(load));
  uint32_t word = 0;
  const uint8_t* address = qn__machine_address(machine, buffer, load->load.indices, thread);
  if (!address) return (qn__ir_scalar_t){0};
  const qn__interpret_buffer_t* held = &machine->buffers[buffer->id];
  const uint8_t* end = held->slots[qn__machine_ancestor(machine, held->level, thread)].high;
  if (end - address < (ptrdiff_t)sizeof word) {
    (void)qn__machine_fail(machine, QN_STATUS_OUT_OF_BOUNDS, "buffer '%s': a word at its end",
                           buffer->name);
    return (qn__ir_scalar_t){0};
  }
  memcpy(&word, address, sizeof word);
  return qn__scalar_from_bits(QN_DTYPE_I32, word);
}

void qn__machine_write(const qn__ir_buffer_t* buffer, uint8_t* address, qn__ir_scalar_t value) {
  uint64_t bits = qn__scalar_to_bits(buffer->dtype, value);
  memcpy(address, &bits, qn_dtype_size_bytes(buffer->dtype));
}
