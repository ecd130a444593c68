// jit/gpu/glsl_memory.c: loads, stores and atomics in GLSL.
//
// 1. Elements of 8 and 16 bits need support in storage buffers, not in arithmetic. Without it the
//    buffer is an array of 32-bit words: a load extracts its part, and a store changes its part by
//    two atomics, so that concurrent stores to neighbours in the word are not lost.
// 2. In shared memory an element has the compute type, so that two threads can write neighbours.
// 3. The verifier allows atomics on i32, u32, i64 and u64, and additions to f32 and f64. A float
//    is added by compare-and-swap on its bits where the target has no such instruction; such a
//    buffer is an array of bits in that kernel.
// 4. A buffer's elements begin at NAME_at in the array that is bound (devices/gpu/plan.h).
#include "jit/gpu/glsl.h"

// Returns whether the kernel has an atomic on the buffer.
static bool find_atomic(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  const qn__ir_buffer_t* buffer = walker->self;
  return stmt->kind != QN__STMT_ATOMIC || qn__buf_root(stmt->atomic.buffer) != buffer;
}

static bool has_atomic(const qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  qn__ir_walker_t walker = {find_atomic, NULL, (void*)(uintptr_t)buffer};
  return !qn__walk_block(&walker, &p->kernel->root->loop.body);
}

static bool is_shared(const qn__ir_buffer_t* buffer) {
  return buffer->scope == QN__SCOPE_SHARED;
}

// Returns whether a float atomic is one instruction.
static bool has_float_atomic(const qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  return buffer->dtype == QN_DTYPE_F32 && !is_shared(buffer) &&
         qn__glsl_has(p, "supports_atomic_float32");
}

static qn__gpu_glsl_storage_t plain(const char* type, uint32_t element_bytes) {
  return (qn__gpu_glsl_storage_t){.type = type, .element_bytes = element_bytes};
}

// Returns the storage of elements of 8 or 16 bits.
static qn__gpu_glsl_storage_t small(const qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  uint32_t bits = qn__dtype_bits(buffer->dtype);
  bool is_signed = qn__dtype_is_signed(buffer->dtype);
  if (is_shared(buffer)) return plain(qn__kprint_type(buffer->dtype, false), 4);
  if (bits == 8 && qn__glsl_has(p, "supports_storage_8bit")) {
    return plain(is_signed ? "int8_t" : "uint8_t", 1);
  }
  if (bits == 16 && qn__glsl_has(p, "supports_storage_16bit")) {
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
  bool is_bits = qn__dtype_is_float(dtype) && has_atomic(p, buffer) && !has_float_atomic(p, buffer);
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

// Prints a float addition by compare-and-swap. The loop ends when no other thread has changed the
// element between the load and the exchange.
static void add_float(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, const char* place,
                      const char* operand, const char* old) {
  const char* type = buffer->dtype == QN_DTYPE_F64 ? "qn_u64" : "uint";
  const char* value_type = qn__kprint_type(buffer->dtype, false);
  const char* bits = float_name(buffer->dtype);
  const char* addend = qn__kprint_name(p, value_type, operand);
  const char* expected = qn__kprint_temp(p);
  const char* name = qn__kprint_buffer(p, buffer);
  qn__kprint_line(p, "%s %s = %s[%s];", type, expected, name, place);
  qn__kprint_open(p, "for (;;)");
  const char* before =
      qn__kprint_name(p, value_type, qn__kprint_text(p, "QN_%s_FROM(%s)", bits, expected));
  const char* const args[] = {before, addend, NULL};
  const char* sum = qn__kprint_float_op(p, QN_OP_ADD, buffer->dtype, args);
  const char* found = qn__kprint_temp(p);
  qn__kprint_line(p, "const %s %s = atomicCompSwap(%s[%s], %s, QN_%s_BITS(%s));", type, found, name,
                  place, expected, bits, sum);
  qn__kprint_line(p, "if (%s == %s) break;", found, expected);
  qn__kprint_line(p, "%s = %s;", expected, found);
  qn__kprint_close(p);
  if (old) qn__kprint_line(p, "const %s %s = QN_%s_FROM(%s);", value_type, old, bits, expected);
}

void qn__glsl_atomic(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt, const char* index,
                     const char* operand, const char* operand2, const char* old) {
  const qn__ir_buffer_t* buffer = qn__buf_root(stmt->atomic.buffer);
  bool is_wide = qn__dtype_bits(buffer->dtype) == 64;
  (void)storage_or_fail(p, buffer);
  if (is_wide && (!qn__glsl_has(p, "supports_atomic_int64") || !p->options->has_int64)) {
    qn__kprint_unsupported(p, "%s on buffer '%s' of %s, which this target cannot (option %s)",
                           qn__atomic_text(stmt->atomic.op), stmt->atomic.buffer->name,
                           qn_dtype_text(buffer->dtype),
                           p->options->has_int64 ? "supports_atomic_int64" : "supports_int64");
    return;
  }
  const char* place = qn__kprint_name(p, "uint", place_of(p, buffer, index));
  if (qn__dtype_is_float(buffer->dtype) && !has_float_atomic(p, buffer)) {
    add_float(p, buffer, place, operand, old);
    return;
  }
  const char* name = qn__kprint_buffer(p, buffer);
  const char* args = operand2 ? qn__kprint_text(p, "%s, %s", operand, operand2) : operand;
  const char* call =
      qn__kprint_text(p, "%s(%s[%s], %s)", functions[stmt->atomic.op], name, place, args);
  if (old) {
    qn__kprint_line(p, "const %s %s = %s;", qn__kprint_type(buffer->dtype, false), old, call);
  } else {
    qn__kprint_line(p, "%s;", call);
  }
}
