// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print_text.c: lines, texts, names and literals of the kernel printer.
//
// Texts live as long as the program's arena. Names are numbered from 0 in each kernel, by first
// use, so that one program gives the same text in every process.
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "ir/decimal.h"
#include "jit/gpu/print_inner.h"

// ---- failures

bool qn__kprint_ok(const qn__gpu_printer_t* p) {
  return qn_ok(p->status);
}

void qn__kprint_fail_status(qn__gpu_printer_t* p, qn_status_t status) {
  if (qn_ok(p->status)) {
    p->status = status;
  } else {
    qn_status_free(status);
  }
}

void qn__kprint_no_memory(qn__gpu_printer_t* p) {
  if (qn__kprint_ok(p)) p->status = qn__out_of_memory("the text of a kernel");
}

void qn__kprint_unsupported(qn__gpu_printer_t* p, const char* format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(text, sizeof text, format, args);
  va_end(args);
  qn__kprint_fail_status(p, qn_status_make(QN_STATUS_UNSUPPORTED, "function '%s': %s",
                                           p->kernel->function->name, text));
}

// ---- texts and lines

static const char* format_text(qn__gpu_printer_t* p, const char* format, va_list args)
    QN_PRINTF(2, 0);

static const char* format_text(qn__gpu_printer_t* p, const char* format, va_list args) {
  va_list again;
  va_copy(again, args);
  int size = vsnprintf(NULL, 0, format, args);
  char* text = size < 0 ? NULL : qn__arena_alloc(p->arena, (size_t)size + 1);
  if (text) (void)vsnprintf(text, (size_t)size + 1, format, again);
  va_end(again);
  if (text) return text;
  qn__kprint_no_memory(p);
  return "";
}

const char* qn__kprint_text(qn__gpu_printer_t* p, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const char* text = format_text(p, format, args);
  va_end(args);
  return text;
}

const char* qn__kprint_bare(qn__gpu_printer_t* p, const char* text) {
  size_t size = strlen(text);
  if (size < 2 || text[0] != '(' || text[size - 1] != ')') return text;
  uint32_t depth = 0;
  for (size_t i = 0; i + 1 < size; ++i) {
    if (text[i] == '(') depth++;
    if (text[i] == ')' && --depth == 0) return text;
  }
  return qn__kprint_text(p, "%.*s", (int)(size - 2), text + 1);
}

static void append_line(qn__gpu_printer_t* p, const char* text) {
  // A preprocessor directive is not indented.
  uint32_t indent = text[0] == '#' ? 0 : p->indent;
  for (uint32_t i = 0; i < indent; ++i) qn__buffer_cstr(&p->at->text, "  ");
  qn__buffer_cstr(&p->at->text, text);
  qn__buffer_char(&p->at->text, '\n');
  qn__buffer_u32(&p->at->lines, p->ir_line);
  for (const char* c = text; *c; ++c) {
    if (*c == '\n') qn__buffer_u32(&p->at->lines, p->ir_line);
  }
}

void qn__kprint_line(qn__gpu_printer_t* p, const char* format, ...) {
  va_list args;
  va_start(args, format);
  append_line(p, format_text(p, format, args));
  va_end(args);
}

void qn__kprint_open(qn__gpu_printer_t* p, const char* format, ...) {
  va_list args;
  va_start(args, format);
  append_line(p, qn__kprint_text(p, "%s {", format_text(p, format, args)));
  va_end(args);
  p->indent++;
}

void qn__kprint_close(qn__gpu_printer_t* p) {
  assert(p->indent > 0);
  p->indent--;
  append_line(p, "}");
}

// ---- names

const char* qn__kprint_temp(qn__gpu_printer_t* p) {
  return qn__kprint_text(p, "t%" PRIu32, p->temp_count++);
}

const char* qn__kprint_use(qn__gpu_printer_t* p, const char* name) {
  int helper = qn__gpu_prelude_find(name);
  if (helper >= 0) {
    assert(helper < QN__GPU_PRELUDE_MAX);
    p->use.is_used[helper] = true;
  } else {
    qn__kprint_fail_status(
        p, qn_status_make(QN_STATUS_INTERNAL, "the prelude has no helper '%s'", name));
  }
  if (p->dialect->is_glsl && !p->options->has_int64 && !qn__gpu_prelude_is_without_int64(name)) {
    qn__kprint_unsupported(p, "'%s' needs 64-bit integers, which this target has not (option %s)",
                           strncmp(name, "qn_", 3) == 0 ? name + 3 : name, "supports_int64");
  }
  return name;
}

const char* qn__kprint_call(qn__gpu_printer_t* p, const char* helper, const char* args) {
  return qn__kprint_text(p, "%s(%s)", qn__kprint_use(p, helper), args);
}

const char* qn__kprint_convert(qn__gpu_printer_t* p, qn_dtype_t to, qn_dtype_t from,
                               const char* value) {
  const char* helper = qn__kprint_text(p, "qn_%s_from_%s", qn_dtype_text(to), qn_dtype_text(from));
  return qn__kprint_call(p, helper, value);
}

// Returns whether the text is an identifier or a plain number.
static bool is_atom(const char* text) {
  for (const char* c = text; *c; ++c) {
    bool is_part = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                   (*c >= '0' && *c <= '9') || *c == '_' || *c == '.';
    if (!is_part) return false;
  }
  return true;
}

const char* qn__kprint_name(qn__gpu_printer_t* p, const char* type, const char* text) {
  if (is_atom(text)) return text;
  const char* name = qn__kprint_temp(p);
  qn__kprint_line(p, "const %s %s = %s;", type, name, qn__kprint_bare(p, text));
  return name;
}

const char* qn__kprint_var(qn__gpu_printer_t* p, const qn__ir_var_t* var) {
  if (QN_NEVER(var->id >= p->var_count)) return "v";
  const char** name = &p->var_names[var->id];
  if (!*name) *name = qn__kprint_text(p, "v%" PRIu32, p->name_count++);
  return *name;
}

const char* qn__kprint_buffer(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer) {
  if (QN_NEVER(buffer->id >= p->buffer_count)) return "b";
  const char** name = &p->buffer_names[buffer->id];
  if (!*name) *name = qn__kprint_text(p, "b%" PRIu32, p->name_count++);
  return *name;
}

// ---- types

qn_dtype_t qn__kprint_compute(qn_dtype_t dtype, bool is_narrow) {
  return is_narrow && dtype == QN_DTYPE_I64 ? QN_DTYPE_I32 : qn__gpu_compute_dtype(dtype);
}

const char* qn__kprint_type(qn_dtype_t dtype, bool is_narrow) {
  return qn__gpu_type_text(qn__kprint_compute(dtype, is_narrow));
}

const char* qn__kprint_index_type(const qn__gpu_printer_t* p) {
  return p->kernel->is_narrow ? "int" : "qn_i64";
}

bool qn__kprint_is_narrow_var(const qn__gpu_printer_t* p, const qn__ir_var_t* var) {
  return var->dtype == QN_DTYPE_I64 && qn__gpu_is_narrow_var(p->kernel->widths, var);
}

bool qn__kprint_is_narrow(const qn__gpu_printer_t* p, const qn__ir_expr_t* expr) {
  return expr->dtype == QN_DTYPE_I64 && qn__gpu_is_narrow_expr(p->kernel->widths, expr);
}

uint32_t qn__kprint_site(qn__gpu_printer_t* p, qn_artifact_site_t site) {
  uint32_t index = qn__gpu_site(p->program, p->kernel->owner, site);
  if (index == QN__GPU_NO_SITE) qn__kprint_no_memory(p);
  return index;
}

// ---- literals

const char* qn__kprint_int(qn__gpu_printer_t* p, qn_dtype_t dtype, bool is_narrow, int64_t value) {
  const char* suffix = p->dialect->is_glsl ? "l" : "ll";
  switch (dtype) {
    case QN_DTYPE_BOOL:
      return value ? "true" : "false";
    case QN_DTYPE_U8:
    case QN_DTYPE_U16:
    case QN_DTYPE_U32:
      return qn__kprint_text(p, "%" PRIu32 "u", (uint32_t)value);
    case QN_DTYPE_U64:
      return qn__kprint_text(p, "%" PRIu64 "u%s", (uint64_t)value, suffix);
    case QN_DTYPE_I64:
      if (is_narrow) break;
      if (value == INT64_MIN) {
        return qn__kprint_text(p, "(-%" PRId64 "%s - 1%s)", INT64_MAX, suffix, suffix);
      }
      return qn__kprint_text(p, value < 0 ? "(%" PRId64 "%s)" : "%" PRId64 "%s", value, suffix);
    default:
      break;
  }
  int32_t narrow = (int32_t)qn__wrap_int(QN_DTYPE_I32, value);
  if (narrow == INT32_MIN) return "(-2147483647 - 1)";
  return qn__kprint_text(p, narrow < 0 ? "(%" PRId32 ")" : "%" PRId32, narrow);
}

const char* qn__kprint_float(qn__gpu_printer_t* p, qn_dtype_t dtype, double value) {
  bool is_double = dtype == QN_DTYPE_F64;
  qn__ir_scalar_t scalar = {.f = value};
  // Values that a compiler might read or round differently are written as their bits.
  double least = is_double ? 0x1p-1022 : 0x1p-126;
  if (!isfinite(value) || (value != 0 && fabs(value) < least)) {
    if (is_double) {
      uint64_t bits = qn__scalar_to_bits(QN_DTYPE_F64, scalar);
      if (p->dialect->is_glsl && !p->options->has_int64) {
        return qn__kprint_text(p, "QN_F64_JOIN(0x%08" PRIx32 "u, 0x%08" PRIx32 "u)",
                               (uint32_t)(bits >> 32), (uint32_t)bits);
      }
      return qn__kprint_text(p, "QN_F64_FROM(%s)",
                             qn__kprint_int(p, QN_DTYPE_U64, false, (int64_t)bits));
    }
    return qn__kprint_text(p, "QN_F32_FROM(0x%08" PRIx32 "u)",
                           (uint32_t)qn__scalar_to_bits(QN_DTYPE_F32, scalar));
  }
  qn__buffer_t text;
  qn__buffer_init(&text, p->arena->allocator);
  qn__decimal_print(is_double ? QN_DTYPE_F64 : QN_DTYPE_F32, value, &text);
  qn__buffer_char(&text, '\0');
  const char* digits = text.has_failed ? "0.0" : (const char*)text.data;
  if (text.has_failed) qn__kprint_no_memory(p);
  const char* suffix = !is_double ? "f" : p->dialect->is_glsl ? "lf" : "";
  const char* result = qn__kprint_text(p, signbit(value) ? "(%s%s)" : "%s%s", digits, suffix);
  qn__buffer_deinit(&text);
  return result;
}

const char* qn__kprint_literal(qn__gpu_printer_t* p, qn_dtype_t dtype, bool is_narrow,
                               qn__ir_scalar_t value) {
  if (qn__dtype_is_stored(dtype)) {
    return qn__kprint_int(p, QN_DTYPE_U32, false, (int64_t)qn__scalar_to_bits(dtype, value));
  }
  return qn__dtype_is_float(dtype) ? qn__kprint_float(p, dtype, value.f)
                                   : qn__kprint_int(p, dtype, is_narrow, value.i);
}
