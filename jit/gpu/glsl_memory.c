// SPDX-License-Identifier: Apache-2.0
// jit/gpu/glsl_memory.c: loads, stores and atomics in GLSL.
//
// 1. Elements of 8 and 16 bits need support in storage buffers, not in arithmetic. Without it the
//    buffer is an array of 32-bit words: a load extracts its part, and a store changes its part by
//    two atomics, so that concurrent stores to neighbours in the word are not lost.
// 2. In shared memory an element has the compute type, so that two threads can write neighbours.
// 3. An atomic is one instruction on integers of 32 and 64 bits, and where the target has it for
//    additions of f32. Others compare and swap a word; a buffer of floats is then an array of bits
//    in that kernel, and one of smaller elements is an array of words as in 1.
// 4. A buffer's elements begin at NAME_at in the array that is bound (devices/gpu/plan.h).
#include "jit/gpu/glsl.h"

typedef struct atomics {
  const qn__ir_buffer_t* buffer;
  bool is_any;    // the kernel has an atomic on the buffer
  bool is_other;  // than an addition
} atomics_t;

static bool find_atomic(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  atomics_t* atomics = walker->self;
  if (stmt->kind == QN__STMT_ATOMIC && qn__buf_root(stmt->atomic.buffer) == atomics->buffer) {
    atomics->is_any = true;
    atomics->is_other |= stmt->atomic.op != QN_ATOMIC_ADD;
  }
  return true;
}

static atomics_t atomics_of(const qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  atomics_t atomics = {.buffer = buffer};
  qn__ir_walker_t walker = {find_atomic, NULL, &atomics};
  (void)qn__walk_block(&walker, &p->kernel->root->loop.body);
  return atomics;
}

static bool is_shared(const qn__ir_buffer_t* buffer) {
  return buffer->scope == QN__SCOPE_SHARED;
}

// Returns whether the kernel changes floats of the buffer by compare-and-swap.
static bool is_swapped(const qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  if (!qn__dtype_is_float(buffer->dtype)) return false;
  atomics_t atomics = atomics_of(p, buffer);
  bool has_instruction = buffer->dtype == QN_DTYPE_F32 && !is_shared(buffer) && !atomics.is_other &&
                         qn__glsl_has(p, "supports_atomic_float32");
  return atomics.is_any && !has_instruction;
}

static qn__gpu_glsl_storage_t plain(const char* type, uint32_t element_bytes) {
  return (qn__gpu_glsl_storage_t){.type = type, .element_bytes = element_bytes};
}

// Returns the storage of elements of 8 or 16 bits.
static qn__gpu_glsl_storage_t small(const qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  uint32_t bits = qn__dtype_bits(buffer->dtype);
  bool is_signed = qn__dtype_is_signed(buffer->dtype);
  if (is_shared(buffer)) {
    bool is_bits = is_swapped(p, buffer);
    qn__gpu_glsl_storage_t storage =
        plain(is_bits ? "uint" : qn__kprint_type(buffer->dtype, false), 4);
    storage.is_bits = is_bits;
    return storage;
  }
  bool has_words = atomics_of(p, buffer).is_any;
  if (bits == 8 && !has_words && qn__glsl_has(p, "supports_storage_8bit")) {
    return plain(is_signed ? "int8_t" : "uint8_t", 1);
  }
  if (bits == 16 && !has_words && qn__glsl_has(p, "supports_storage_16bit")) {
    return plain(is_signed ? "int16_t" : "uint16_t", 2);
  }
  return (qn__gpu_glsl_storage_t){.type = "uint", .element_bytes = 4, .bits_in_word = bits};
}

qn__gpu_glsl_storage_t qn__gpu_glsl_storage(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  qn_dtype_t dtype = buffer->dtype;
  if (qn__dtype_bits(dtype) < 32) return small(p, buffer);
  if (dtype == QN_DTYPE_F64 && !p->options->has_float64) {
    return (qn__gpu_glsl_storage_t){.missing = "supports_float64"};
  }
  bool is_bits = is_swapped(p, buffer);
  bool is_wide = qn__dtype_bits(dtype) == 64;
  if (is_wide && (is_bits || dtype != QN_DTYPE_F64) && !p->options->has_int64) {
    return (qn__gpu_glsl_storage_t){.missing = "supports_int64"};
  }
  const char* type = dtype == QN_DTYPE_I64   ? "int64_t"
                     : dtype == QN_DTYPE_U64 ? "uint64_t"
                     : !is_bits              ? qn__kprint_type(dtype, false)
                     : is_wide               ? "uint64_t"
                                             : "uint";
  qn__gpu_glsl_storage_t storage = plain(type, is_wide ? 8 : 4);
  storage.is_bits = is_bits;
  return storage;
}

static qn__gpu_glsl_storage_t storage_or_fail(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  qn__gpu_glsl_storage_t storage = qn__gpu_glsl_storage(p, buffer);
  if (!storage.type) {
    qn__kprint_unsupported(p, "buffer '%s' holds %s, which this target cannot (option %s)",
                           buffer->name, qn_dtype_text(buffer->dtype), storage.missing);
    storage.type = "float";
  }
  return storage;
}

// Returns the place of an element in the bound array, a uint.
static const char* place_of(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer,
                            const char* index) {
  if (is_shared(buffer)) return qn__kprint_text(p, "uint(%s)", index);
  return qn__kprint_text(p, "uint(%s) + %s_at", index, qn__kprint_buffer(p, buffer));
}

static const char* element(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, const char* index) {
  return qn__kprint_text(p, "%s[%s]", qn__kprint_buffer(p, buffer), place_of(p, buffer, index));
}

// Returns the part of the macros' names that names a float: QN_F32_BITS.
static const char* float_name(qn_dtype_t dtype) {
  return dtype == QN_DTYPE_F64 ? "F64" : "F32";
}

const char* qn__glsl_load(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, const char* index) {
  qn__gpu_glsl_storage_t storage = storage_or_fail(p, buffer);
  const char* raw = storage.bits_in_word
                        ? qn__kprint_text(p, "%s_get(%s)", qn__kprint_buffer(p, buffer),
                                          place_of(p, buffer, index))
                        : element(p, buffer, index);
  qn_dtype_t dtype = buffer->dtype;
  if (storage.is_bits) return qn__kprint_text(p, "QN_%s_FROM(%s)", float_name(dtype), raw);
  if (qn__dtype_bits(dtype) >= 32) return raw;
  if (qn__dtype_is_int(dtype) || qn__dtype_is_stored(dtype))
    return qn__kprint_text(p, "%s(%s)", qn__kprint_type(dtype, false), raw);
  if (is_shared(buffer)) return raw;
  raw = qn__kprint_text(p, "uint(%s)", raw);
  if (dtype == QN_DTYPE_BOOL) return qn__kprint_text(p, "(%s != 0u)", raw);
  return qn__kprint_convert(p, QN_DTYPE_F32, dtype, raw);
}

// Converts a value of the compute type to the stored form.
static const char* stored(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer,
                          const qn__gpu_glsl_storage_t* storage, const char* value) {
  qn_dtype_t dtype = buffer->dtype;
  if (storage->is_bits) return qn__kprint_text(p, "QN_%s_BITS(%s)", float_name(dtype), value);
  if (qn__dtype_bits(dtype) >= 32) return value;
  if (!qn__dtype_is_int(dtype) && !qn__dtype_is_stored(dtype)) {
    if (is_shared(buffer)) return value;
    value = dtype == QN_DTYPE_BOOL ? qn__kprint_text(p, "((%s) ? 1u : 0u)", value)
                                   : qn__kprint_convert(p, dtype, QN_DTYPE_F32, value);
  }
  if (storage->bits_in_word) return qn__kprint_text(p, "uint(%s)", value);
  return storage->element_bytes < 4 ? qn__kprint_text(p, "%s(%s)", storage->type, value) : value;
}

void qn__glsl_store(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, const char* index,
                    const char* value) {
  qn__gpu_glsl_storage_t storage = storage_or_fail(p, buffer);
  const char* raw = stored(p, buffer, &storage, value);
  if (storage.bits_in_word) {
    qn__kprint_line(p, "%s_set(%s, %s);", qn__kprint_buffer(p, buffer), place_of(p, buffer, index),
                    raw);
  } else {
    qn__kprint_line(p, "%s = %s;", element(p, buffer, index), raw);
  }
}

// For an array of bytes NAME: NAME_get(at) extracts byte at & 3 of word at / 4. NAME_set clears
// that byte by an atomic AND, then sets it by an atomic OR.
void qn__glsl_word_helpers(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, bool is_written) {
  qn__gpu_glsl_storage_t storage = qn__gpu_glsl_storage(p, buffer);
  if (!storage.bits_in_word) return;
  const char* name = qn__kprint_buffer(p, buffer);
  bool is_byte = storage.bits_in_word == 8;
  const char* shift = is_byte ? "((at & 3u) << 3)" : "((at & 1u) << 4)";
  const char* word = is_byte ? "at >> 2" : "at >> 1";
  const char* mask = is_byte ? "0xffu" : "0xffffu";
  if (qn__dtype_class(buffer->dtype) == QN__CLASS_SIGNED) {
    qn__kprint_line(p, "int %s_get(uint at) { return bitfieldExtract(int(%s[%s]), int(%s), %u); }",
                    name, name, word, shift, storage.bits_in_word);
  } else {
    qn__kprint_line(p, "uint %s_get(uint at) { return (%s[%s] >> %s) & %s; }", name, name, word,
                    shift, mask);
  }
  if (!is_written) return;
  qn__kprint_open(p, "void %s_set(uint at, uint value)", name);
  qn__kprint_line(p, "atomicAnd(%s[%s], ~(%s << %s));", name, word, mask, shift);
  qn__kprint_line(p, "atomicOr(%s[%s], (value & %s) << %s);", name, word, mask, shift);
  qn__kprint_close(p);
}

// ---- atomics

static const char* const functions[] = {
    [QN_ATOMIC_ADD] = "atomicAdd",
    [QN_ATOMIC_MIN] = "atomicMin",
    [QN_ATOMIC_MAX] = "atomicMax",
    [QN_ATOMIC_AND] = "atomicAnd",
    [QN_ATOMIC_OR] = "atomicOr",
    [QN_ATOMIC_XOR] = "atomicXor",
    [QN_ATOMIC_EXCHANGE] = "atomicExchange",
    [QN_ATOMIC_CAS] = "atomicCompSwap",
};

// Returns the element of 8 or 16 bits in a word, as a value of the compute type.
static const char* part_of(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* word,
                           const char* shift) {
  uint32_t bits = qn__dtype_bits(dtype);
  if (qn__dtype_is_signed(dtype)) {
    return qn__kprint_text(p, "bitfieldExtract(int(%s), int(%s), %u)", word, shift, bits);
  }
  const char* part = qn__kprint_text(p, "(%s >> %s & 0x%xu)", word, shift, (1U << bits) - 1);
  if (!qn__dtype_is_float(dtype)) return part;
  return qn__kprint_convert(p, QN_DTYPE_F32, dtype, part);
}

static const char* value_of(qn__gpu_printer_t* p, const qn__gpu_swap_t* swap, const char* word) {
  qn_dtype_t dtype = swap->buffer->dtype;
  if (swap->shift) return part_of(p, dtype, word, swap->shift);
  if (!qn__dtype_is_float(dtype)) return word;
  return qn__kprint_text(p, "QN_%s_FROM(%s)", float_name(dtype), word);
}

static const char* word_with(qn__gpu_printer_t* p, const qn__gpu_swap_t* swap, const char* word,
                             const char* value) {
  qn_dtype_t dtype = swap->buffer->dtype;
  if (!swap->shift) {
    if (!qn__dtype_is_float(dtype)) return value;
    return qn__kprint_text(p, "QN_%s_BITS(%s)", float_name(dtype), value);
  }
  uint32_t mask = (1U << qn__dtype_bits(dtype)) - 1;
  if (qn__dtype_is_float(dtype)) value = qn__kprint_convert(p, dtype, QN_DTYPE_F32, value);
  return qn__kprint_text(p, "(%s & ~(0x%xu << %s)) | (uint(%s) & 0x%xu) << %s", word, mask,
                         swap->shift, value, mask, swap->shift);
}

static qn__gpu_swap_t swap_of(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer,
                              const qn__gpu_glsl_storage_t* storage, const char* place) {
  qn__gpu_swap_t swap = {
      .word_type = storage->type,
      .function = "atomicCompSwap",
      .value_of = value_of,
      .word_with = word_with,
      .buffer = buffer,
  };
  if (storage->bits_in_word) {
    bool is_byte = storage->bits_in_word == 8;
    swap.shift = qn__kprint_name(
        p, "uint", qn__kprint_text(p, is_byte ? "(%s & 3u) << 3" : "(%s & 1u) << 4", place));
    place = qn__kprint_text(p, is_byte ? "%s >> 2" : "%s >> 1", place);
  }
  swap.word = qn__kprint_text(p, "%s[%s]", qn__kprint_buffer(p, buffer), place);
  swap.first = swap.word;
  return swap;
}

// Prints an atomic load, or a store of a whole word.
static void print_access(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt,
                         const qn__gpu_swap_t* swap, const char* operand, const char* old) {
  const qn__ir_buffer_t* buffer = swap->buffer;
  bool is_ordered_by_atomic = qn__glsl_has(p, "supports_fence_by_atomic");
  const char* memory = is_shared(buffer) ? "Shared" : "Buffer";
  if (stmt->atomic.op == QN_ATOMIC_STORE) {
    const char* word = word_with(p, swap, NULL, operand);
    if (is_ordered_by_atomic) {
      qn__kprint_line(p, "atomicExchange(%s, %s);", swap->word, word);
    } else {
      qn__kprint_line(
          p, "atomicStore(%s, %s, gl_ScopeDevice, gl_StorageSemantics%s, gl_SemanticsRelease);",
          swap->word, word, memory);
    }
    return;
  }
  const char* load =
      is_ordered_by_atomic
          ? qn__kprint_text(p, "atomicOr(%s, %s(0))", swap->word, swap->word_type)
          : qn__kprint_text(
                p, "atomicLoad(%s, gl_ScopeDevice, gl_StorageSemantics%s, gl_SemanticsAcquire)",
                swap->word, memory);
  const char* word = qn__kprint_name(p, swap->word_type, load);
  if (!old) return;
  qn__kprint_line(p, "const %s %s = %s;", qn__kprint_type(buffer->dtype, false), old,
                  value_of(p, swap, word));
}

void qn__glsl_fence(qn__gpu_printer_t* p) {
  if (qn__glsl_has(p, "supports_fence_by_atomic")) {
    qn__kprint_line(p, "atomicAdd(qn_fence, 0u);");
    return;
  }
  qn__kprint_line(p,
                  "memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer | "
                  "gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);");
}

void qn__glsl_atomic(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt, const char* index,
                     const char* operand, const char* operand2, const char* old) {
  const qn__ir_buffer_t* buffer = qn__buf_root(stmt->atomic.buffer);
  qn_atomic_op_t op = stmt->atomic.op;
  bool is_wide = qn__dtype_bits(buffer->dtype) == 64;
  qn__gpu_glsl_storage_t storage = storage_or_fail(p, buffer);
  if (is_wide && (!qn__glsl_has(p, "supports_atomic_int64") || !p->options->has_int64)) {
    qn__kprint_unsupported(p, "%s on buffer '%s' of %s, which this target cannot (option %s)",
                           qn__atomic_text(op), stmt->atomic.buffer->name,
                           qn_dtype_text(buffer->dtype),
                           p->options->has_int64 ? "supports_atomic_int64" : "supports_int64");
    return;
  }
  const char* place = qn__kprint_name(p, "uint", place_of(p, buffer, index));
  qn__gpu_swap_t swap = swap_of(p, buffer, &storage, place);
  if (op == QN_ATOMIC_LOAD || (op == QN_ATOMIC_STORE && !swap.shift)) {
    print_access(p, stmt, &swap, operand, old);
    return;
  }
  if (op == QN_ATOMIC_STORE) qn__glsl_fence(p);
  if (storage.is_bits || qn__dtype_bits(buffer->dtype) < 32) {
    qn__kprint_swap_loop(p, stmt, &swap, operand, operand2, old);
    return;
  }
  const char* args = operand2 ? qn__kprint_text(p, "%s, %s", operand, operand2) : operand;
  const char* call = qn__kprint_text(p, "%s(%s, %s)", functions[op], swap.word, args);
  if (old) {
    qn__kprint_line(p, "const %s %s = %s;", qn__kprint_type(buffer->dtype, false), old, call);
  } else {
    qn__kprint_line(p, "%s;", call);
  }
}
