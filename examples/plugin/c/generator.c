// SPDX-License-Identifier: Apache-2.0
// examples/plugin/c/generator.c: a code generator that writes C. The passes of quern lower a module
// to loops, arithmetic and plain buffers (lower.h); the C compiler of the machine makes a shared
// object of it. GNU C: statements within expressions, and pragmas of OpenMP for lanes.
#define _POSIX_C_SOURCE 200809L
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quern/backend.h"
#include "quern/lower.h"

#define TEXT_OF(...) #__VA_ARGS__ "\n",
#define TEXT(...) TEXT_OF(__VA_ARGS__)
static const char* const prelude[] = {
#include "prelude.inc"
};

typedef struct writer {
  const qn_module_t* module;
  FILE* out;
  bool is_checked;
  bool can_fail;              // since it was cleared, a place that may fail was written
  uint64_t reads, writes;     // since then: bit id % 64 of each buffer; of views, all bits
  qn_artifact_site_t* sites;  // of the function
  uint32_t site_count;
  qn_status_t status;  // the first error
} writer_t;

static bool is_ok(writer_t* w, qn_status_t status) {
  if (qn_ok(w->status)) w->status = status, status = QN_OK;
  qn_status_free(status);
  return qn_ok(w->status);
}

static void refuse(writer_t* w, const char* what, const char* name) {
  (void)is_ok(w, qn_status_make(QN_STATUS_UNSUPPORTED, "c: %s %s", what, name));
}

static qn_expr_info_t expr_of(writer_t* w, const qn_expr_t* expr) {
  qn_expr_info_t e = {.struct_size = sizeof e};
  (void)is_ok(w, qn_module_expr_info(w->module, expr, &e));
  return e;
}

static qn_buffer_info_t buffer_of(writer_t* w, const qn_buffer_t* buffer) {
  qn_buffer_info_t b = {.struct_size = sizeof b};
  (void)is_ok(w, qn_module_buffer_info(w->module, buffer, &b));
  return b;
}

// f16 and bf16 are float in registers and uint16_t in memory: ld_ and st_ convert.
static bool is_half(qn_dtype_t dtype) {
  return dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16;
}

static const char* type_of(writer_t* w, qn_dtype_t dtype, bool is_memory) {
  static const char* const types[] = {NULL,       "uint8_t",  "int8_t",   "int16_t",  "int32_t",
                                      "int64_t",  "uint8_t",  "uint16_t", "uint32_t", "uint64_t",
                                      "uint16_t", "uint16_t", "float",    "double"};
  if (dtype > QN_DTYPE_F64) refuse(w, "dtype", qn_dtype_text(dtype));
  if (dtype > QN_DTYPE_F64) return "void";
  return is_half(dtype) && !is_memory ? "float" : types[dtype];
}

static uint32_t add_site(writer_t* w, qn_site_kind_t kind, uint32_t buffer_id, uint32_t dim,
                         uint32_t place, const char* message) {
  qn_artifact_site_t* grown = realloc(w->sites, (w->site_count + 1) * sizeof *grown);
  w->can_fail = true;
  if (!grown) (void)is_ok(w, qn_status_make(QN_STATUS_OUT_OF_MEMORY, "c: no memory"));
  if (!grown) return 0;
  w->sites = grown;
  grown[w->site_count] = (qn_artifact_site_t){kind, buffer_id, dim, place, message};
  return w->site_count++;
}

// An element: a buffer and its indices.
typedef struct element {
  const qn_buffer_t* buffer;
  const qn_expr_t* const* indices;
  uint32_t place;
} element_t;

static void put_expr(writer_t* w, const qn_expr_t* expr);
static void put_element(writer_t* w, const element_t* element);

// `bool` is a macro.
static void put_dtype(writer_t* w, qn_dtype_t dtype) {
  if (dtype > QN_DTYPE_F64) refuse(w, "dtype", qn_dtype_text(dtype));
  fputs(dtype == QN_DTYPE_BOOL ? "b8" : qn_dtype_text(dtype), w->out);
}

// Writes text: %e an expression, %x an element, %v a variable, %t a dtype's type in registers, %m
// in memory, %d its name, %u a number, %s a text.
static void put(writer_t* w, const char* format, ...) {
  va_list list;
  va_start(list, format);
  for (const char* at = format; *at; at++) {
    char kind = *at == '%' ? *++at : '\0';
    qn_var_info_t v = {.struct_size = sizeof v};
    if (!kind) fputc(*at, w->out);
    if (kind == 'e') put_expr(w, va_arg(list, const qn_expr_t*));
    if (kind == 'x') put_element(w, va_arg(list, const element_t*));
    if (kind == 'd') put_dtype(w, (qn_dtype_t)va_arg(list, int));
    if (kind == 't') fputs(type_of(w, (qn_dtype_t)va_arg(list, int), false), w->out);
    if (kind == 'm') fputs(type_of(w, (qn_dtype_t)va_arg(list, int), true), w->out);
    if (kind == 's') fputs(va_arg(list, const char*), w->out);
    if (kind == 'u') fprintf(w->out, "%llu", (unsigned long long)va_arg(list, uint64_t));
    if (kind == 'v' && is_ok(w, qn_module_var_info(w->module, va_arg(list, const qn_var_t*), &v))) {
      fprintf(w->out, "v%u", (unsigned)v.id);
    }
  }
  va_end(list);
}

static uint64_t bit_of(const qn_buffer_info_t* b) {
  return b->scope == QN_SCOPE_VIEW ? UINT64_MAX : (uint64_t)1 << b->id % 64;
}

static void put_element(writer_t* w, const element_t* element) {
  qn_buffer_info_t b = buffer_of(w, element->buffer);
  w->reads |= bit_of(&b);
  put(w, "b%u[0", (uint64_t)b.id);
  for (uint64_t d = 0; d < b.rank; d++) {
    if (w->is_checked) {
      uint64_t site = add_site(w, QN_SITE_BOUNDS, b.origin_id, (uint32_t)d, element->place, NULL);
      put(w, " + AT(%e, s%u_%u, %u) * t%u_%u", element->indices[d], (uint64_t)b.id, d, site,
          (uint64_t)b.id, d);
    } else {
      put(w, " + (%e) * t%u_%u", element->indices[d], (uint64_t)b.id, d);
    }
  }
  put(w, "]");
}

// ---- expressions

static void put_op(writer_t* w, const qn_expr_info_t* e) {
  static const struct {
    const char *text, *rule;
    bool is_call;
  } ops[QN_OP_COUNT] = {
#define INFIX 0
#define PREFIX 0
#define CALL 1
#define QN_OP(name, value, text, arity, rule, syntax, doc) [QN_OP_##name] = {text, #rule, syntax},
#include "quern/ops.inc"
#undef QN_OP
  };
  qn_dtype_t dtype = expr_of(w, e->args[e->op == QN_OP_SELECT ? 1 : 0]).dtype;
  const char* text = ops[e->op].text;
  bool divides = e->op >= QN_OP_FLOORDIV && e->op <= QN_OP_CEILDIV;
  bool is_call = ops[e->op].is_call || divides || e->op == QN_OP_SHL || e->op == QN_OP_SHR;
  if (e->op == QN_OP_FLOORDIV) text = "floordiv";
  if (e->op == QN_OP_FLOORMOD) text = "floormod";
  if (e->op == QN_OP_SHL) text = "shl";
  if (e->op == QN_OP_SHR) text = "shr";
  if (e->op == QN_OP_NOT && dtype == QN_DTYPE_BOOL) text = "!";
  if (is_half(e->dtype))
    put(w, "rnd_%d(", e->dtype);
  else
    put(w, "((%t)(", e->dtype);
  if (is_call) put(w, "%s_%d(", text, is_half(dtype) ? QN_DTYPE_F32 : dtype);
  for (uint32_t i = 0; i < e->arg_count; i++) {
    if (i > 0) put(w, is_call ? ", " : " %s ", text);
    if (i == 0 && e->arg_count == 1 && !is_call) put(w, "%s", text);
    if (i == 1 && divides && w->is_checked) {
      put(w, "NONZERO(%e, %u)", e->args[i],
          (uint64_t)add_site(w, QN_SITE_DIVISION, UINT32_MAX, 0, e->place, NULL));
    } else {
      put(w, "(%e)", e->args[i]);
    }
  }
  put(w, is_call ? "))" : ")");
  if (!is_half(e->dtype)) put(w, ")");
}

static void put_cast(writer_t* w, const qn_expr_info_t* e) {
  qn_dtype_t from = expr_of(w, e->args[0]).dtype;
  bool is_float = from >= QN_DTYPE_F16;
  if (e->dtype == QN_DTYPE_BOOL)
    put(w, "((uint8_t)((%e) != 0))", e->args[0]);
  else if (is_half(e->dtype))
    put(w, is_half(from) || from == QN_DTYPE_F32 ? "rnd_%d(%e)" : "wide_%d(%e)", e->dtype,
        e->args[0]);
  else if (is_float && e->dtype < QN_DTYPE_F16)
    put(w, "to_%d(%e)", e->dtype, e->args[0]);
  else
    put(w, "((%t)(%e))", e->dtype, e->args[0]);
}

static void put_block(writer_t* w, const qn_stmt_t* first, const qn_stmt_t* end);

static void put_reduce(writer_t* w, const qn_expr_info_t* e) {
  static const char* const starts[] = {NULL, "0", "1", "TOP", "LOW"};
  static const char* const signs[] = {NULL, "+", "*", "min", "max"};
  bool is_call = e->reduce_kind >= QN_REDUCE_MIN;
  qn_dtype_t as = is_half(e->dtype) ? QN_DTYPE_F32 : e->dtype;
  put(w, "({ %t r_%v = ", e->dtype, e->var);
  if (is_call)
    put(w, "%s_%d", starts[e->reduce_kind], as);
  else
    put(w, "%s", starts[e->reduce_kind]);
  put(w, "; const int64_t e_%v = %e;\n", e->var, e->end);
  if (e->lane_count && !is_call && !w->is_checked && !is_half(e->dtype)) {
    put(w, "_Pragma(\"omp simd reduction(%s: r_%v)\")\n", signs[e->reduce_kind], e->var);
  }
  put(w, "for (int64_t %v = %e; %v < e_%v; %v++) {\n", e->var, e->begin, e->var, e->var, e->var);
  put_block(w, e->lets, NULL);
  put(w, "r_%v = ", e->var);
  if (is_half(e->dtype)) put(w, "rnd_%d(", e->dtype);
  if (is_call)
    put(w, "%s_%d(r_%v, %e)", signs[e->reduce_kind], as, e->var, e->value);
  else
    put(w, "(%t)(r_%v %s (%e))", e->dtype, e->var, signs[e->reduce_kind], e->value);
  put(w, is_half(e->dtype) ? ");\n} r_%v; })" : ";\n} r_%v; })", e->var);
}

static void put_expr(writer_t* w, const qn_expr_t* expr) {
  qn_expr_info_t e = expr_of(w, expr);
  if (!qn_ok(w->status)) return;
  element_t element = {e.buffer, e.args, e.place};
  if (e.kind == QN_EXPR_INT)
    put(w, "((%t)%uu)", e.dtype, e.bits);
  else if (e.kind == QN_EXPR_FLOAT)
    put(w, "bits_%d(%uu)", e.dtype, e.bits);
  else if (e.kind == QN_EXPR_VAR)
    put(w, "%v", e.var);
  else if (e.kind == QN_EXPR_LOAD)
    put(w, "ld_%d(%x)", e.dtype, &element);
  else if (e.kind == QN_EXPR_OP)
    put_op(w, &e);
  else if (e.kind == QN_EXPR_CAST)
    put_cast(w, &e);
  else if (e.kind == QN_EXPR_BITCAST)
    put(w, "bits_%d(value_%d(%e))", e.dtype, expr_of(w, e.args[0]).dtype, e.args[0]);
  else if (e.kind == QN_EXPR_COND)
    put(w, "((%e) ? (%e) : (%e))", e.args[0], e.args[1], e.args[2]);
  else if (e.kind == QN_EXPR_REDUCE)
    put_reduce(w, &e);
  else
    refuse(w, "an expression", "of a newer library");
}

// ---- statements

// Declares extents and strides.
static void put_shape(writer_t* w, const qn_buffer_info_t* b) {
  for (uint64_t id = b->id, d = b->rank; d-- > 0;) {
    put(w, "const int64_t s%u_%u = %e, t%u_%u = ", id, d, b->shape[d], id, d);
    if (b->strides)
      put(w, "%e;\n", b->strides[d]);
    else if (d + 1 == b->rank)
      put(w, "1;\n");
    else
      put(w, "s%u_%u * t%u_%u;\n", id, d + 1, id, d + 1);
  }
}

static void put_buffer(writer_t* w, const qn_stmt_info_t* s) {
  qn_buffer_info_t b = buffer_of(w, s->buffer);
  uint64_t id = b.id;
  put_shape(w, &b);
  if (b.scope == QN_SCOPE_VIEW) {
    element_t first = {b.base, b.base_indices, s->place};
    bool is_checked = w->is_checked;
    w->is_checked = false;  // a view without elements may start anywhere
    put(w, "%m* b%u = (%m*)&%x;\n", b.dtype, id, b.dtype, &first);
    w->is_checked = is_checked;
  } else if (b.scope == QN_SCOPE_CONST) {
    put(w, "static const uint%u_t c%u[] = {", (uint64_t)qn_dtype_size_bytes(b.dtype) * 8, id);
    for (size_t i = 0; i < b.element_count; i++) put(w, "%uu, ", expr_of(w, b.elements[i]).bits);
    put(w, "};\nconst %m* b%u = (const %m*)c%u;\n", b.dtype, id, b.dtype, id);
  } else if (b.scope == QN_SCOPE_GLOBAL) {
    uint64_t site = add_site(w, QN_SITE_MEMORY, b.origin_id, 0, s->place, NULL);
    put(w, "size_t z%u = sizeof(%m);\n", id, b.dtype);
    for (uint64_t d = 0; d < b.rank; d++) {
      uint64_t extent = add_site(w, QN_SITE_EXTENT, b.origin_id, (uint32_t)d, s->place, NULL);
      put(w, "if (s%u_%u < 0) FAIL(%u, 0, s%u_%u);\n", id, d, extent, id, d);
      put(w, "if (__builtin_mul_overflow(z%u, s%u_%u, &z%u)) z%u = SIZE_MAX / 2;\n", id, id, d, id,
          id);
    }
    put(w, "%m* b%u __attribute__((cleanup(free_at))) = malloc(z%u + 1);\n", b.dtype, id, id);
    put(w, "if (!b%u) FAIL(%u, 0, (int64_t)z%u);\n", id, site, id);
  } else {
    put(w, "_Alignas(64) %m c%u[1", b.dtype, id);
    for (uint32_t d = 0; d < b.rank; d++) put(w, " * %e", b.shape[d]);
    put(w, "];\n%m* restrict b%u = c%u;\n", b.dtype, id, id);
  }
}

static void put_atomic(writer_t* w, const qn_stmt_info_t* s) {
  static const char* const values[] = {NULL,
                                       "o + x",
                                       "min_%d(o, x)",
                                       "max_%d(o, x)",
                                       "o & x",
                                       "o | x",
                                       "o ^ x",
                                       "x",
                                       "o == x ? y : o",
                                       "o",
                                       "x"};
  element_t element = {s->buffer, s->indices, s->place};
  qn_dtype_t t = buffer_of(w, s->buffer).dtype, as = is_half(t) ? QN_DTYPE_F32 : t;
  if (s->var) put(w, "%t %v;\n", t, s->var);
  put(w, "{ %m *p = &%x, c, n; %t o", t, &element, t);
  if (s->value) put(w, ", x = %e", s->value);
  if (s->value2) put(w, ", y = %e", s->value2);
  put(w, ";\n__atomic_load(p, &c, 5);\ndo { o = ld_%d(c); n = st_%d(", t, t);
  put(w, values[s->atomic_op], as);
  put(w, "); } while (!__atomic_compare_exchange(p, &c, &n, 0, 5, 5));\n");
  if (s->var) put(w, "%v = o;\n", s->var);
  put(w, "}\n");
}

// Returns the text of statements, for `free`.
static char* text_of(writer_t* w, const qn_stmt_t* first, const qn_stmt_t* end) {
  char* text = NULL;
  size_t size = 0;
  FILE* out = w->out;
  w->out = open_memstream(&text, &size);
  if (w->out) put_block(w, first, end);
  if (!w->out || fclose(w->out) != 0)
    (void)is_ok(w, qn_status_make(QN_STATUS_OUT_OF_MEMORY, "c: no memory"));
  w->out = out;
  return text;
}

static void put_for(writer_t* w, const qn_stmt_info_t* s, bool has_lanes, const char* lets,
                    const char* body) {
  put(w, "{ const int64_t e_%v = %e;\n%s", s->var, s->end, has_lanes ? "#pragma omp simd\n" : "");
  put(w, "for (int64_t %v = %e; %v < e_%v; %v++) {\n%s%s}}\n", s->var, s->begin, s->var, s->var,
      s->var, lets ? lets : "", body ? body : "");
}

// A loop whose iterations may run in lanes says so, unless it can be left. A short one of lets and
// stores, such as the innermost loop of a product, becomes one for each store: in one loop,
// compilers do all stores for the first vector before the second one, and hold the operands of each
// of them in registers meanwhile. What a let reads must be the same for all stores.
static void put_loop(writer_t* w, const qn_stmt_info_t* s) {
  qn_stmt_info_t one = {.struct_size = sizeof one};
  qn_expr_info_t end = expr_of(w, s->end);
  const qn_stmt_t* rest = s->body;
  while (rest && is_ok(w, qn_module_stmt_info(w->module, rest, &one)) && one.kind == QN_STMT_LET) {
    rest = one.next;
  }
  bool could_fail = w->can_fail;
  w->can_fail = false, w->reads = 0;
  char* lets = text_of(w, s->body, rest);
  uint64_t reads = w->reads;
  w->writes = 0;
  char* body = text_of(w, rest, NULL);
  bool has_lanes = (s->lane_count || s->loop_kind == QN_LOOP_VECTOR) && !w->can_fail;
  bool is_split = has_lanes && end.kind == QN_EXPR_INT && end.int_value <= 64;
  for (const qn_stmt_t* at = rest; at && is_split; at = one.next) {
    is_split = is_ok(w, qn_module_stmt_info(w->module, at, &one)) && one.kind == QN_STMT_STORE;
  }
  if (!is_split || (reads & w->writes)) put_for(w, s, has_lanes, lets, body), rest = NULL;
  for (const qn_stmt_t* at = rest; at && qn_ok(w->status); at = one.next) {
    free(body);
    (void)is_ok(w, qn_module_stmt_info(w->module, at, &one));
    put_for(w, s, true, lets, body = text_of(w, at, one.next));
  }
  w->can_fail |= could_fail;
  free(lets), free(body);
}

// Writes statements until `end`, NULL for all that follow.
static void put_block(writer_t* w, const qn_stmt_t* first, const qn_stmt_t* end) {
  qn_stmt_info_t s = {.struct_size = sizeof s};
  for (const qn_stmt_t* at = first; at != end; at = s.next) {
    if (!is_ok(w, qn_module_stmt_info(w->module, at, &s))) return;
    element_t element = {s.buffer, s.indices, s.place};
    if (s.kind == QN_STMT_LET) {
      put(w, "const %t %v = %e;\n", expr_of(w, s.value).dtype, s.var, s.value);
    } else if (s.kind == QN_STMT_STORE) {
      qn_buffer_info_t b = buffer_of(w, s.buffer);
      put(w, "%x = st_%d(%e);\n", &element, b.dtype, s.value);
      w->writes |= bit_of(&b);
    } else if (s.kind == QN_STMT_ATOMIC) {
      put_atomic(w, &s);
    } else if (s.kind == QN_STMT_IF) {
      put(w, "if (%e) {\n", s.condition);
      put_block(w, s.body, NULL);
      put(w, "} else {\n");
      put_block(w, s.other_body, NULL);
      put(w, "}\n");
    } else if (s.kind == QN_STMT_LOOP) {
      put_loop(w, &s);
    } else if (s.kind == QN_STMT_WHILE) {
      put(w, "while (%e) {\n", s.condition);
      put_block(w, s.body, NULL);
      put(w, "}\n");
    } else if (s.kind == QN_STMT_ALLOC) {
      put_buffer(w, &s);
    } else if (s.kind == QN_STMT_ASSERT) {
      uint64_t site = add_site(w, QN_SITE_ASSERT, UINT32_MAX, 0, s.place, s.message);
      put(w, "if (!(%e)) FAIL(%u, 0, 0);\n", s.condition, site);
    } else if (s.kind == QN_STMT_FENCE) {
      put(w, "__atomic_thread_fence(5);\n");
    } else {
      refuse(w, "a statement", "that qn_module_lower should have replaced");
    }
  }
}

static void put_function(writer_t* w, size_t index) {
  qn_function_info_t f = {.struct_size = sizeof f};
  qn_param_info_t p = {.struct_size = sizeof p};
  if (!is_ok(w, qn_module_function_info(w->module, index, &f))) return;
  put(w, "const char p%u[] = \"", (uint64_t)index);
  for (size_t i = 0; i < f.param_count && is_ok(w, qn_module_param_info(w->module, index, i, &p));
       i++) {
    put(w, p.is_buffer ? "b" : "s");
  }
  put(w, "\";\nint32_t f%u(const uint64_t* w, failure* q) {\n", (uint64_t)index);
  for (size_t i = 0; i < f.symbol_count; i++) {
    put(w, "const int64_t %v = (int64_t)w[%u];\n", f.symbols[i], (uint64_t)(f.param_count + i));
  }
  for (int pass = 0; pass < 2; pass++) {  // shapes may use any scalar
    for (size_t i = 0; i < f.param_count && is_ok(w, qn_module_param_info(w->module, index, i, &p));
         i++) {
      if (pass == 0 && !p.is_buffer)
        put(w, "const %t %v = bits_%d(w[%u]);\n", p.dtype, p.scalar, p.dtype, (uint64_t)i);
      if (pass == 0 || !p.is_buffer) continue;
      qn_buffer_info_t b = buffer_of(w, p.buffer);
      put(w, "%m* restrict b%u = (%m*)w[%u];\n", b.dtype, (uint64_t)b.id, b.dtype, (uint64_t)i);
      put_shape(w, &b);
    }
  }
  put_block(w, f.body, NULL);
  put(w, "return 0;\n}\n");
}

// ---- the code generator

typedef struct made {
  qn_artifact_t artifact;         // first: release gets this pointer back
  qn_module_t *module, *lowered;  // names, messages
  qn_artifact_function_t functions[];
} made_t;

static void release_artifact(qn_artifact_t* artifact) {
  made_t* made = (made_t*)(void*)artifact;
  for (size_t i = 0; i < artifact->function_count; i++)
    free((void*)(uintptr_t)made->functions[i].sites);
  free((void*)(uintptr_t)artifact->payload);
  qn_module_release(made->lowered);
  qn_module_release(made->module);
  free(made);
}

// Pipes text into the compiler and reads what it makes. Nothing of the process but PATH reaches it.
static void run_compiler(writer_t* w, const char* text, int level, bool is_fast,
                         qn_artifact_t* out) {
  char folder[] = "/tmp/quern-c-XXXXXX", command[400], log[400], arch[32] = "", path[64];
  if (!mkdtemp(folder))
    (void)is_ok(w, qn_status_make(QN_STATUS_UNAVAILABLE, "c: no folder in /tmp"));
  if (!qn_ok(w->status)) return;
  if (level > 0)
    (void)snprintf(arch, sizeof arch, level > 1 ? "-march=x86-64-v%d" : "-march=x86-64", level);
  (void)snprintf(
      command, sizeof command,
      "cd %s && env -i PATH=\"$PATH\" cc -std=gnu11 %s %s -w -Werror=implicit-function-declaration "
      "-shared -fPIC -fwrapv -fno-strict-aliasing "
      "-ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp-simd -x c -o out - -lm 2>log",
      folder, is_fast ? "-O1" : "-O3", arch);
  FILE* compiler = popen(command, "w");
  for (size_t i = 0; compiler && i < sizeof prelude / sizeof prelude[0]; i++) {
    (void)fputs(prelude[i], compiler);
  }
  bool is_made = compiler && fputs(text, compiler) >= 0;
  if (compiler && pclose(compiler) != 0) is_made = false;
  (void)snprintf(path, sizeof path, "%s/%s", folder, is_made ? "out" : "log");
  FILE* file = fopen(path, "rb");
  size_t size = 0;
  char* bytes = NULL;
  if (file && fseek(file, 0, SEEK_END) == 0) bytes = malloc((size = (size_t)ftell(file)) + 1);
  if (file) rewind(file);
  if (!bytes || fread(bytes, 1, size, file) != size) is_made = false;
  if (file) (void)fclose(file);
  if (!is_made) {
    (void)snprintf(log, sizeof log, "%.*s", (int)size, bytes ? bytes : "no file");
    (void)is_ok(w, qn_status_make(QN_STATUS_INTERNAL, "c: cc fails: %s", log));
  }
  static const char* const names[] = {"out", "log"};
  for (int i = 0; i < 2; i++)
    (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]), (void)unlink(path);
  (void)rmdir(folder);
  out->payload = bytes;
  out->payload_size = size;
}

static int64_t level_of(const char* target_json) {
  qn_target_t* target = NULL;
  int64_t level = 0;
  qn_status_free(qn_target_parse(target_json, &target));
  if (target) (void)qn_target_get_int(target, "level", &level);
  qn_target_release(target);
  return level;
}

static qn_status_t make(const qn_compile_request_t* request, qn_sink_t* text_sink,
                        qn_artifact_t** out) {
  writer_t w = {.is_checked = request->is_checked, .status = QN_OK};
  qn_module_t *module = NULL, *lowered = NULL;
  int64_t level = level_of(request->target_json);
  qn_machine_t machine = {
      .struct_size = sizeof machine, .has_fma = level >= 3, .vector_bytes = level >= 3 ? 32 : 16};
  qn_lower_options_t options = {.struct_size = sizeof options,
                                .machine = &machine,
                                .tier = request->tier,
                                .is_checked = request->is_checked};
  if (!is_ok(&w, qn_module_decode(request->module_bytes, request->module_size, NULL, &module)))
    return w.status;
  (void)is_ok(&w, qn_module_lower(module, "cpu,lower_math", &options, &lowered));
  size_t count = lowered ? qn_module_function_count(lowered) : 0, size = 0;
  made_t* made = calloc(1, sizeof *made + count * sizeof made->functions[0]);
  char* text = NULL;
  w.out = open_memstream(&text, &size);
  if (!made || !w.out) (void)is_ok(&w, qn_status_make(QN_STATUS_OUT_OF_MEMORY, "c: no memory"));
  w.module = lowered;
  for (size_t i = 0; i < count && qn_ok(w.status); i++) {
    w.sites = NULL, w.site_count = 0;
    put_function(&w, i);
    qn_function_info_t f = {.struct_size = sizeof f};
    (void)is_ok(&w, qn_module_function_info(lowered, i, &f));
    made->functions[i] = (qn_artifact_function_t){
        .name = f.name, .launch_count = 1, .site_count = w.site_count, .sites = w.sites};
  }
  if (w.out) (void)fclose(w.out);
  if (!made) {
    qn_module_release(lowered), qn_module_release(module), free(text);
    return w.status;
  }
  static char isa[4][24] = {"{\"kind\":\"c\",\"level\":0}", "{\"kind\":\"c\",\"level\":1}",
                            "{\"kind\":\"c\",\"level\":2}", "{\"kind\":\"c\",\"level\":3}"};
  made->artifact = (qn_artifact_t){.struct_size = sizeof(qn_artifact_t),
                                   .format = "c-1",
                                   .isa = isa[level & 3],
                                   .function_count = count,
                                   .functions = made->functions,
                                   .release = release_artifact};
  made->module = module, made->lowered = lowered;
  if (text_sink && qn_ok(w.status)) (void)is_ok(&w, text_sink->write(text_sink->self, text, size));
  if (!text_sink && qn_ok(w.status))
    run_compiler(&w, text, (int)level, request->tier == QN_TIER_FAST, &made->artifact);
  free(text);
  if (out && qn_ok(w.status))
    *out = &made->artifact;
  else
    release_artifact(&made->artifact);
  return w.status;
}

static qn_status_t compile(void* self, const qn_compile_request_t* request, qn_artifact_t** out) {
  (void)self;
  *out = NULL;
  return make(request, NULL, out);
}

static qn_status_t emit(void* self, const qn_compile_request_t* request, const char* form,
                        qn_sink_t sink) {
  (void)self;
  if (strcmp(form, "c") == 0) return make(request, &sink, NULL);
  return qn_status_make(QN_STATUS_NOT_FOUND, "c has the form c, not '%s'", form);
}

QN_API const qn_codegen_t* qn_codegen_entry(uint32_t abi_version);
QN_API const qn_codegen_t* qn_codegen_entry(uint32_t abi_version) {
  static const qn_codegen_t table = {.abi_version = QN_CODEGEN_ABI_VERSION,
                                     .struct_size = sizeof table,
                                     .name = "c",
                                     .compile = compile,
                                     .emit = emit};
  return abi_version == QN_CODEGEN_ABI_VERSION ? &table : NULL;
}
