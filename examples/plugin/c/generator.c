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

// Before the headers that make `bool` a macro.
#define TEXT_OF(...) #__VA_ARGS__ "\n",
#define TEXT(...) TEXT_OF(__VA_ARGS__)
static const char* const prelude[] = {
#include "prelude.inc"
};

#include "quern/backend.h"
#include "quern/lower.h"

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

static qn_status_t no_memory(void) {
  return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "c: no memory");
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

static uint32_t add_site(writer_t* w, qn_site_kind_t kind, uint32_t buffer_id, uint32_t dim,
                         uint32_t place, const char* message) {
  qn_artifact_site_t* grown = realloc(w->sites, (w->site_count + 1) * sizeof *grown);
  w->can_fail = true;
  if (!grown) {
    (void)is_ok(w, no_memory());
    return 0;
  }
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

static void put_block(writer_t* w, const qn_stmt_t* first, const qn_stmt_t* end);
static void put_expr(writer_t* w, const qn_expr_t* expr);
static void put_element(writer_t* w, const element_t* element);

// f16 and bf16 are computed as f32, and rounded.
static bool is_half(qn_dtype_t dtype) {
  return dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16;
}

// Writes text: %e an expression, %x an element, %v a variable, %d a dtype, %c the dtype in which it
// is computed, %b a block, %u a number, %s a text.
static void put(writer_t* w, const char* format, ...) {
  va_list list;
  va_start(list, format);
  for (const char* at = format; *at; at++) {
    char kind = *at == '%' ? *++at : '\0';
    qn_var_info_t v = {.struct_size = sizeof v};
    if (!kind) fputc(*at, w->out);
    if (kind == 'e') put_expr(w, va_arg(list, const qn_expr_t*));
    if (kind == 'x') put_element(w, va_arg(list, const element_t*));
    if (kind == 'd' || kind == 'c') {
      qn_dtype_t dtype = (qn_dtype_t)va_arg(list, int);
      if (dtype > QN_DTYPE_F64) refuse(w, "dtype", qn_dtype_text(dtype));
      fputs(qn_dtype_text(kind == 'c' && is_half(dtype) ? QN_DTYPE_F32 : dtype), w->out);
    }
    if (kind == 'b') put_block(w, va_arg(list, const qn_stmt_t*), NULL);
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
    uint64_t site = 0, id = b.id;
    if (w->is_checked)
      site = add_site(w, QN_SITE_BOUNDS, b.origin_id, (uint32_t)d, element->place, NULL);
    put(w, " + AT%u(%e, s%u_%u, %u) * t%u_%u", (uint64_t)w->is_checked, element->indices[d], id, d,
        site, id, d);
  }
  put(w, "]");
}

// ---- expressions

static void put_op(writer_t* w, const qn_expr_info_t* e) {
  static const struct {
    const char *name, *text;
    bool is_call;
  } ops[QN_OP_COUNT] = {
#define INFIX 0
#define PREFIX 0
#define CALL 1
#define QN_OP(name, value, text, arity, rule, syntax, doc) [QN_OP_##name] = {#name, text, syntax},
#include "quern/ops.inc"
#undef QN_OP
  };
  qn_dtype_t dtype = expr_of(w, e->args[e->op == QN_OP_SELECT ? 1 : 0]).dtype;
  bool divides = e->op >= QN_OP_FLOORDIV && e->op <= QN_OP_CEILDIV;
  bool is_call = ops[e->op].is_call || divides || e->op == QN_OP_SHL || e->op == QN_OP_SHR;
  const char* text = is_call ? ops[e->op].name : ops[e->op].text;
  if (e->op == QN_OP_NOT && dtype == QN_DTYPE_BOOL) text = "!";
  put(w,
      is_call             ? "rnd_%d(%s_%c("
      : e->arg_count == 1 ? "rnd_%d(%s"
                          : "rnd_%d(",
      e->dtype, text, dtype);
  for (uint32_t i = 0; i < e->arg_count; i++) {
    if (i > 0) put(w, is_call ? ", " : " %s ", text);
    if (i == 1 && divides && w->is_checked) {
      put(w, "NONZERO(%e, %u)", e->args[i],
          (uint64_t)add_site(w, QN_SITE_DIVISION, UINT32_MAX, 0, e->place, NULL));
    } else {
      put(w, "(%e)", e->args[i]);
    }
  }
  put(w, is_call ? "))" : ")");
}

static void put_reduce(writer_t* w, const qn_expr_info_t* e) {
  static const char* const starts[] = {NULL, "0", "1", "TOP_%c", "LOW_%c"};
  static const char* const names[] = {NULL, "ADD", "MUL", "MIN", "MAX"};
  qn_reduce_kind_t kind = e->reduce_kind;
  put(w, "({ const int64_t e_%v = %e; %d r_%v = ", e->var, e->end, e->dtype, e->var);
  put(w, starts[kind], e->dtype);
  put(w, ";\n");
  if (e->lane_count && kind < QN_REDUCE_MIN && !w->is_checked && !is_half(e->dtype))
    put(w, "_Pragma(\"omp simd reduction(%s: r_%v)\")\n", kind == QN_REDUCE_SUM ? "+" : "*",
        e->var);
  put(w, "for (int64_t %v = %e; %v < e_%v; %v++) {\n%b", e->var, e->begin, e->var, e->var, e->var,
      e->lets);
  put(w, "r_%v = rnd_%d(%s_%c(r_%v, %e));\n} r_%v; })", e->var, e->dtype, names[kind], e->dtype,
      e->var, e->value, e->var);
}

static void put_expr(writer_t* w, const qn_expr_t* expr) {
  qn_expr_info_t e = expr_of(w, expr);
  if (!qn_ok(w->status)) return;
  element_t element = {e.buffer, e.args, e.place};
  qn_dtype_t from = e.arg_count > 0 ? expr_of(w, e.args[0]).dtype : e.dtype;
  if (e.kind == QN_EXPR_INT)
    put(w, "((%d)%uu)", e.dtype, e.bits);
  else if (e.kind == QN_EXPR_FLOAT)
    put(w, "bits_%d(%uu)", e.dtype, e.bits);
  else if (e.kind == QN_EXPR_VAR)
    put(w, "%v", e.var);
  else if (e.kind == QN_EXPR_LOAD)
    put(w, "ld_%d(%x)", e.dtype, &element);
  else if (e.kind == QN_EXPR_OP)
    put_op(w, &e);
  else if (e.kind == QN_EXPR_CAST)
    put(w, "cast_%s_%d(%e)",
        from == QN_DTYPE_F64   ? "d"
        : from >= QN_DTYPE_F16 ? "f"
                               : "i",
        e.dtype, e.args[0]);
  else if (e.kind == QN_EXPR_BITCAST)
    put(w, "bits_%d(value_%d(%e))", e.dtype, from, e.args[0]);
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
    put(w, "m_%d* b%u = (m_%d*)&%x;\n", b.dtype, id, b.dtype, &first);
    w->is_checked = is_checked;
  } else if (b.scope == QN_SCOPE_CONST) {
    put(w, "static const uint%u_t c%u[] = {", (uint64_t)qn_dtype_size_bytes(b.dtype) * 8, id);
    for (size_t i = 0; i < b.element_count; i++) put(w, "%uu, ", expr_of(w, b.elements[i]).bits);
    put(w, "};\nconst m_%d* b%u = (const m_%d*)c%u;\n", b.dtype, id, b.dtype, id);
  } else if (b.scope == QN_SCOPE_GLOBAL) {
    uint64_t site = add_site(w, QN_SITE_MEMORY, b.origin_id, 0, s->place, NULL);
    put(w, "size_t z%u = sizeof(m_%d);\n", id, b.dtype);
    for (uint64_t d = 0; d < b.rank; d++) {
      uint64_t extent = add_site(w, QN_SITE_EXTENT, b.origin_id, (uint32_t)d, s->place, NULL);
      put(w, "if (s%u_%u < 0) FAIL(%u, 0, s%u_%u);\n", id, d, extent, id, d);
      put(w, "if (__builtin_mul_overflow(z%u, s%u_%u, &z%u)) z%u = SIZE_MAX / 2;\n", id, id, d, id,
          id);
    }
    put(w, "m_%d* b%u __attribute__((cleanup(free_at))) = malloc(z%u + 1);\n", b.dtype, id, id);
    put(w, "if (!b%u) FAIL(%u, 0, (int64_t)z%u);\n", id, site, id);
  } else {
    put(w, "_Alignas(64) m_%d c%u[1", b.dtype, id);
    for (uint32_t d = 0; d < b.rank; d++) put(w, " * %e", b.shape[d]);
    put(w, "];\nm_%d* restrict b%u = c%u;\n", b.dtype, id, id);
  }
}

static void put_atomic(writer_t* w, const qn_stmt_info_t* s) {
  static const char* const values[] = {NULL,
                                       "o + x",
                                       "MIN_%c(o, x)",
                                       "MAX_%c(o, x)",
                                       "o & x",
                                       "o | x",
                                       "o ^ x",
                                       "x",
                                       "o == x ? y : o",
                                       "o",
                                       "x"};
  element_t element = {s->buffer, s->indices, s->place};
  qn_dtype_t t = buffer_of(w, s->buffer).dtype;
  if (s->var) put(w, "%d %v;\n", t, s->var);
  put(w, "{ m_%d *p = &%x, c, n; %d o", t, &element, t);
  if (s->value) put(w, ", x = %e", s->value);
  if (s->value2) put(w, ", y = %e", s->value2);
  put(w, ";\n__atomic_load(p, &c, 5);\ndo { o = ld_%d(c); n = st_%d(", t, t);
  put(w, values[s->atomic_op], t);
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
  if (!w->out || fclose(w->out) != 0) (void)is_ok(w, no_memory());
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
      put(w, "const %d %v = %e;\n", expr_of(w, s.value).dtype, s.var, s.value);
    } else if (s.kind == QN_STMT_STORE) {
      qn_buffer_info_t b = buffer_of(w, s.buffer);
      put(w, "%x = st_%d(%e);\n", &element, b.dtype, s.value);
      w->writes |= bit_of(&b);
    } else if (s.kind == QN_STMT_ATOMIC) {
      put_atomic(w, &s);
    } else if (s.kind == QN_STMT_IF) {
      put(w, "if (%e) {\n%b} else {\n%b}\n", s.condition, s.body, s.other_body);
    } else if (s.kind == QN_STMT_LOOP) {
      put_loop(w, &s);
    } else if (s.kind == QN_STMT_WHILE) {
      put(w, "while (%e) {\n%b}\n", s.condition, s.body);
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

static void put_function(writer_t* w, uint64_t index, const qn_function_info_t* f) {
  qn_param_info_t p = {.struct_size = sizeof p};
  put(w, "int32_t call%u(const uint64_t* w, failure* q) {\n", index);
  for (uint64_t i = 0; i < f->symbol_count; i++) {
    put(w, "const int64_t %v = (int64_t)w[%u];\n", f->symbols[i], f->param_count + i);
  }
  for (uint64_t n = 0; n < 2 * f->param_count; n++) {  // scalars first: shapes may use any
    uint64_t i = n % f->param_count;
    if (!is_ok(w, qn_module_param_info(w->module, index, i, &p))) return;
    if (p.is_buffer != (n >= f->param_count)) continue;
    if (p.is_buffer) {
      qn_buffer_info_t b = buffer_of(w, p.buffer);
      put(w, "m_%d* restrict b%u = (m_%d*)w[%u];\n", b.dtype, (uint64_t)b.id, b.dtype, i);
      put_shape(w, &b);
    } else {
      put(w, "const %d %v = bits_%d(w[%u]);\n", p.dtype, p.scalar, p.dtype, i);
    }
  }
  put(w, "%breturn 0;\n}\nconst char params%u[] = \"", f->body, index);
  for (size_t i = 0; i < f->param_count; i++) {
    if (is_ok(w, qn_module_param_info(w->module, index, i, &p))) put(w, p.is_buffer ? "b" : "s");
  }
  put(w, "\";\n");
}

// ---- the code generator

// Pipes text into the compiler and reads what it makes. Nothing of the process but PATH reaches it.
// `cat` reads what a compiler that fails leaves, as a pipe without a reader raises SIGPIPE.
static char* run_compiler(writer_t* w, const char* text, int64_t level, bool is_fast,
                          size_t* out_size) {
  static const char* const machines[] = {"", "-march=x86-64", "-march=x86-64-v2",
                                         "-march=x86-64-v3"};
  char path[] = "/tmp/quern-c-XXXXXX", command[480];
  int file = mkstemp(path);
  (void)snprintf(
      command, sizeof command,
      "env -i PATH=\"$PATH\" cc -std=gnu11 %s %s -w -Werror=implicit-function-declaration -shared "
      "-fPIC -fwrapv -fno-strict-aliasing -ffp-contract=off -fno-math-errno -fno-trapping-math "
      "-fopenmp-simd -x c -o %s - -lm 2>%s || { cat >/dev/null; false; }",
      is_fast ? "-O1" : "-O3", machines[level & 3], path, path);
  FILE* compiler = file < 0 ? NULL : popen(command, "w");
  for (size_t i = 0; compiler && i < sizeof prelude / sizeof prelude[0]; i++) {
    (void)fputs(prelude[i], compiler);
  }
  bool is_made = compiler && fputs(text, compiler) >= 0;
  if (compiler && pclose(compiler) != 0) is_made = false;
  FILE* object = fopen(path, "rb");  // or messages
  long size = object && fseek(object, 0, SEEK_END) == 0 ? ftell(object) : 0;
  char* bytes = calloc(1, (size_t)size + 1);
  if (object) rewind(object);
  *out_size = object && bytes ? fread(bytes, 1, (size_t)size, object) : 0;
  if (!is_made || *out_size == 0)
    (void)is_ok(w, qn_status_make(QN_STATUS_INTERNAL, "c: cc fails: %.400s", bytes ? bytes : ""));
  if (object) (void)fclose(object);
  if (file >= 0) (void)close(file), (void)unlink(path);
  return bytes;
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
  size_t count = lowered ? qn_module_function_count(lowered) : 0, size = 0, code_size = 0;
  qn_artifact_function_t* functions = calloc(count + 1, sizeof *functions);
  char *text = NULL, *code = NULL, isa[40];
  w.out = open_memstream(&text, &size);
  w.module = lowered;
  if (!functions || !w.out) (void)is_ok(&w, no_memory());
  for (size_t i = 0; i < count && qn_ok(w.status); i++) {
    qn_function_info_t f = {.struct_size = sizeof f};
    w.sites = NULL, w.site_count = 0;
    if (is_ok(&w, qn_module_function_info(lowered, i, &f))) put_function(&w, i, &f);
    functions[i] = (qn_artifact_function_t){
        .name = f.name, .launch_count = 1, .site_count = w.site_count, .sites = w.sites};
  }
  if (w.out && fclose(w.out) != 0) (void)is_ok(&w, no_memory());
  if (qn_ok(w.status) && text_sink)
    (void)is_ok(&w, text_sink->write(text_sink->self, text, size));
  else if (qn_ok(w.status))
    code = run_compiler(&w, text, level, request->tier == QN_TIER_FAST, &code_size);
  (void)snprintf(isa, sizeof isa, "{\"kind\":\"c\",\"level\":%d}", (int)level);
  qn_artifact_t artifact = {.struct_size = sizeof artifact,
                            .format = "c-1",
                            .isa = isa,
                            .payload = code,
                            .payload_size = code_size,
                            .function_count = count,
                            .functions = functions};
  if (qn_ok(w.status) && out) (void)is_ok(&w, qn_artifact_copy(&artifact, out));
  for (size_t i = 0; functions && i < count; i++) free((void*)(uintptr_t)functions[i].sites);
  free(functions), free(text), free(code);
  qn_module_release(lowered), qn_module_release(module);
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
