// tests/unit/ir/test_printer.c: print then parse gives the same module and the same text;
// formatting keeps comments and meaning; layout.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

// cmocka wants the four above first.
#include <cmocka.h>

#include "ir/text.h"
#include "tests/support/fault.h"

static const char* const examples[] = {
    "embed_layernorm", "matmul_tile", "saxpy",      "softmax",     "transpose_shared",
    "two_launches",    "histogram",   "fir_filter", "newton_sqrt", "block_norm"};

static char* read_file(const char* path) {
  FILE* file = fopen(path, "rb");
  if (!file) fail_msg("cannot open '%s'", path);
  char* text = malloc(1 << 20);
  assert_non_null(text);
  text[fread(text, 1, (1 << 20) - 1, file)] = '\0';
  fclose(file);
  return text;
}

static void parse_body(const char* text, qn__body_t* out_body) {
  qn__diag_t diag;
  qn__diag_init(&diag, qn_allocator_default(), NULL, "test", qn__str(text));
  if (!qn__text_parse(qn__str(text), qn_allocator_default(), &diag, out_body)) {
    fail_msg("%s\n%s", text, (const char*)diag.text.data);
  }
  qn__diag_deinit(&diag);
}

// Prints, parses and prints again: the second text must be the first. Owned.
static char* print_twice(const qn__body_t* body) {
  qn__buffer_t first;
  qn__buffer_t second;
  qn__buffer_init(&first, qn_allocator_default());
  qn__buffer_init(&second, qn_allocator_default());
  qn__text_print(body, &first);
  assert_false(first.has_failed);
  qn__body_t again;
  parse_body((const char*)first.data, &again);
  qn__text_print(&again, &second);
  assert_string_equal((const char*)first.data, (const char*)second.data);
  qn__body_deinit(&again);
  qn__buffer_deinit(&second);
  char* text = strdup((const char*)first.data);
  qn__buffer_deinit(&first);
  return text;
}

static char* print_text(const char* text) {
  qn__body_t body;
  parse_body(text, &body);
  char* printed = print_twice(&body);
  qn__body_deinit(&body);
  return printed;
}

static char* format(const char* text) {
  char* out = NULL;
  size_t size = 0;
  qn_status_t status = qn_text_format(text, strlen(text), NULL, &out, &size);
  if (!qn_ok(status)) fail_msg("%s\n%s", text, qn_status_message(status));
  assert_int_equal(size, strlen(out));
  char* twice = NULL;
  assert_true(qn_ok(qn_text_format(out, size, NULL, &twice, NULL)));
  assert_string_equal(out, twice);
  qn_text_free(twice);
  return out;
}

// `text` without the lines that are comments.
static void drop_comment_lines(char* text) {
  char* to = text;
  for (char* line = text; *line;) {
    char* end = strchr(line, '\n');
    size_t size = end ? (size_t)(end - line) + 1 : strlen(line);
    char* first = line + strspn(line, " ");
    if (strncmp(first, "//", 2) != 0) {
      memmove(to, line, size);
      to += size;
    }
    line += size;
  }
  *to = '\0';
}

static void assert_lines_fit(const char* text) {
  for (const char* line = text; *line;) {
    size_t size = strcspn(line, "\n");
    if (size > 100) fail_msg("a line of %zu columns:\n%.*s", size, (int)size, line);
    line += size + (line[size] == '\n');
  }
}

static void test_examples_are_canonical(void** state) {
  (void)state;
  for (size_t i = 0; i < QN_COUNT_OF(examples); i++) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/examples/ir/%s.qn", QN_SOURCE_DIR, examples[i]);
    char* text = read_file(path);
    char* formatted = format(text);
    assert_string_equal(text, formatted);
    qn_text_free(formatted);
    // Without comments the text is what the printer writes.
    char* printed = print_text(text);
    drop_comment_lines(text);
    assert_string_equal(printed, text);
    assert_lines_fit(printed);
    free(printed);
    free(text);
  }
}

// The statement is printed as `expected`.
static void assert_printed(const char* stmt, const char* expected) {
  static const char header[] =
      "func f(x: f32[n, m], out y: f32[n, m], a: f32, h: f16, d: f64, k: i32, q: i8, u: u64, o: "
      "bool) {\n";
  char text[4096];
  (void)snprintf(text, sizeof text, "%s%s\n}\n", header, stmt);
  char* printed = print_text(text);
  const char* body = strstr(printed, "{\n");
  assert_non_null(body);
  body += 2;
  size_t size = strlen(body);
  assert_true(size >= 2);
  printed[(size_t)(body - printed) + size - 3] = '\0';  // "\n}\n"
  assert_string_equal(body, expected);
  free(printed);
}

static void test_literals_are_bare_where_they_may_be(void** state) {
  (void)state;
  assert_printed("let v = i64(1);", "  let v = 1;");
  assert_printed("let v = f32(1.0);", "  let v = 1.0;");
  assert_printed("let v = i32(1);", "  let v = i32(1);");
  assert_printed("let v = i32(1) + i32(2) * k;", "  let v = 1 + 2 * k;");
  assert_printed("let v = i32(1) + i32(2);", "  let v = i32(1) + 2;");
  assert_printed("let v = i32(1) < i32(2);", "  let v = i32(1) < 2;");
  assert_printed("let v = f64(1) < f64(2) + f64(3);", "  let v = f64(1.0) < 2.0 + 3.0;");
  assert_printed("let v = i32(i64(1));", "  let v = i32(i64(1));");
  assert_printed("let v = f32(f64(1.5));", "  let v = f32(f64(1.5));");
  assert_printed("y[0, 0] = f32(1.0) + f32(2.0);", "  y[0, 0] = 1.0 + 2.0;");
  assert_printed("y[i8(0), i64(1)] = 1;", "  y[i8(0), 1] = 1.0;");
  assert_printed("let v = select(o, f16(1.0), f16(2.0));", "  let v = select(o, f16(1.0), 2.0);");
  assert_printed("let v = o ? 1 : k;", "  let v = o ? 1 : k;");
  assert_printed("let v = o ? i8(1) : i8(2);", "  let v = o ? i8(1) : 2;");
  assert_printed("let v = isnan(f64(1.0));", "  let v = isnan(f64(1.0));");
  assert_printed("let v = bitcast(i64, f64(1.0));", "  let v = bitcast(i64, f64(1.0));");
  assert_printed("let v = sum j in 0..n { i32(1) };", "  let v = sum j in 0..n { i32(1) };");
  assert_printed("let v = k * sum j in 0..n { i32(1) };", "  let v = k * (sum j in 0..n { 1 });");
  assert_printed("let v = -(i32(5));", "  let v = -(i32(5));");
  assert_printed("let v = - -5;", "  let v = -(-5);");
  assert_printed("let v = --k;", "  let v = --k;");
  assert_printed("let v = 1e30 + a;", "  let v = 1e30 + a;");
  assert_printed("let v = 0x10 + n;", "  let v = 16 + n;");
  assert_printed("let v = u + 0xffffffffffffffff;", "  let v = u + 18446744073709551615;");
}

static void test_parentheses_are_few(void** state) {
  (void)state;
  assert_printed("let v = ((1 + (2 * n)) - ((3)));", "  let v = 1 + 2 * n - 3;");
  assert_printed("let v = 1 - (2 - n);", "  let v = 1 - (2 - n);");
  assert_printed("let v = (1 + 2) * n;", "  let v = (1 + 2) * n;");
  assert_printed("let v = -(n + 1);", "  let v = -(n + 1);");
  assert_printed("let v = !(n < 1);", "  let v = !(n < 1);");
  assert_printed("let v = (n < 1) == o;", "  let v = (n < 1) == o;");
  assert_printed("let v = (o ? 1 : 2) + n;", "  let v = (o ? 1 : 2) + n;");
  assert_printed("let v = o ? (o ? 1 : 2) : n;", "  let v = o ? o ? 1 : 2 : n;");
  assert_printed("let v = (o ? o : o) ? 1 : n;", "  let v = (o ? o : o) ? 1 : n;");
  assert_printed("let v = (o && o) || o && (o || o);", "  let v = o && o || o && (o || o);");
  assert_printed("let v = n // (m // 2) % 3;", "  let v = n // (m // 2) % 3;");
}

static void test_statements(void** state) {
  (void)state;
  assert_printed("if o { } else { if o { } else { } }", "  if o {\n  } else if o {\n  }");
  assert_printed("if o { } else { if o { } let v = 1; }",
                 "  if o {\n  } else {\n    if o {\n    }\n    let v = 1;\n  }");
  assert_printed("const c:i8[2,2]=[1,-2,i8(3),127,];", "  const c: i8[2, 2] = [1, -2, 3, 127];");
  assert_printed("alloc l:f32[]in local;l[]=1;", "  alloc l: f32[] in local;\n  l[] = 1.0;");
  assert_printed("view w:f32[n]strides[2*m]=x[1,0];",
                 "  view w: f32[n] strides [2 * m] = x[1, 0];");
  assert_printed("let old=atomic_add(y[0,0],1);atomic_cas(y[0,0],0,1.5);",
                 "  let old = atomic_add(y[0, 0], 1.0);\n  atomic_cas(y[0, 0], 0.0, 1.5);");
  assert_printed("assert o,\"\\x41\\\"\";assert o,\"\";", "  assert o, \"A\\\"\";\n  assert o;");
  assert_printed("let v=sum j in 0..n{let e=x[j,0];let g=e*e;g+e};",
                 "  let v = sum j in 0..n {\n    let e = x[j, 0];\n    let g = e * e;\n    g + e\n"
                 "  };");
}

static void test_names_are_made_unambiguous(void** state) {
  (void)state;
  assert_printed("let v = 1; for i in 0..n { let v = v + i; y[i, 0] = f32(v); }",
                 "  let v = 1;\n  for i in 0..n {\n    let v_1 = v + i;\n    y[i, 0] = f32(v_1);\n"
                 "  }");
  assert_printed("for i in 0..n { } for i in 0..n { }",
                 "  for i in 0..n {\n  }\n  for i in 0..n {\n  }");
  // What a pass may leave behind: two values of one name in one block, and none at all.
  qn__body_t body;
  parse_body(
      "func f(out y: i64[4]) {\n  let a = 1;\n  let a_1 = 2;\n  let b = 3;\n  let c = 4;\n"
      "  y[0] = a + a_1 + b + c;\n}\n",
      &body);
  qn__stmt_t* stmt = body.first->body.first;
  stmt->next->next->let.var->name = "a";
  stmt->next->next->next->let.var->name = NULL;
  char* text = print_twice(&body);
  assert_string_equal(text,
                      "func f(out y: i64[4]) {\n  let a = 1;\n  let a_1 = 2;\n  let a_2 = 3;\n"
                      "  let v = 4;\n  y[0] = a + a_1 + a_2 + v;\n}\n");
  free(text);
  stmt->let.var->name = "for";  // no name that a text could have
  text = print_twice(&body);
  assert_non_null(strstr(text, "let v = 1;"));
  free(text);
  qn__body_deinit(&body);
}

static void test_lanes_are_comments(void** state) {
  (void)state;
  qn__body_t body;
  parse_body(
      "func f(x: f32[n], out y: f32[n]) {\n  for i in 0..n {\n    y[i] = 2.0 * (sum j in 0..n "
      "{ x[j] });\n  }\n}\n",
      &body);
  qn__stmt_t* loop = body.first->body.first;
  loop->loop.lane_count = 8;
  loop->loop.body.first->store.value->args[1]->reduce.lane_count = 4;
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  qn__text_print(&body, &out);
  assert_string_equal((const char*)out.data,
                      "func f(x: f32[n], out y: f32[n]) {\n"
                      "  for i in 0..n {  // 8 lanes\n"
                      "    y[i] = 2.0 * (sum j in 0..n {  // 4 lanes\n"
                      "      x[j]\n"
                      "    });\n"
                      "  }\n}\n");
  // The marks are no part of the meaning: the tree that comes back has none.
  qn__body_t again;
  parse_body((const char*)out.data, &again);
  assert_int_equal(again.first->body.first->loop.lane_count, 0);
  assert_true(
      qn__expr_equal(again.first->body.first->loop.body.first->store.value->args[1]->reduce.begin,
                     loop->loop.body.first->store.value->args[1]->reduce.begin));
  qn__body_deinit(&again);
  // The formatter leaves such a dump alone.
  char* formatted = format((const char*)out.data);
  assert_string_equal(formatted, (const char*)out.data);
  qn_text_free(formatted);
  qn__buffer_deinit(&out);
  qn__body_deinit(&body);
}

// ------------------------------------------------------------------------------------ random trees

typedef struct maker {
  qn__arena_t* arena;
  qn__function_t* function;
  uint64_t random;
  int reduce_depth;
  qn__var_t* reduce_vars[8];
} maker_t;

static uint64_t next_random(maker_t* m) {
  m->random ^= m->random << 13;
  m->random ^= m->random >> 7;
  m->random ^= m->random << 17;
  return m->random >> 11;
}

static qn__expr_t* make_expr(maker_t* m, qn_dtype_t dtype, int depth);

static qn__expr_t* make_leaf(maker_t* m, qn_dtype_t dtype) {
  uint64_t choice = next_random(m) % 4;
  if (choice == 0) {
    for (size_t i = 0; i < m->function->param_count; i++) {
      qn__var_t* scalar = m->function->params[i].scalar;
      if (scalar && scalar->dtype == dtype) return qn__expr_var(m->arena, scalar);
    }
  }
  if (choice == 1 && dtype == QN_DTYPE_I64 && m->reduce_depth > 0) {
    return qn__expr_var(m->arena, m->reduce_vars[next_random(m) % (uint64_t)m->reduce_depth]);
  }
  qn__scalar_t value =
      qn__scalar_from_bits(dtype, choice == 2 ? next_random(m) : (uint64_t)(next_random(m) % 5));
  if (!qn__dtype_is_float(dtype)) {
    int64_t i = choice == 3 ? -(int64_t)(next_random(m) % 3) : value.i;
    return qn__expr_int(m->arena, dtype, qn__wrap_int(dtype, i));
  }
  if (choice == 3) value.f = qn__round_float(dtype, (double)(next_random(m) % 100) / 10.0 - 3.0);
  return qn__expr_float(m->arena, dtype, value.f);
}

static bool takes(qn__op_rule_t rule, qn_dtype_t dtype) {
  bool is_int = qn__dtype_is_int(dtype);
  bool is_float = qn__dtype_is_float(dtype);
  switch (rule) {
    case QN__RULE_NUMERIC:
    case QN__RULE_GROUP:
      return is_int || is_float;
    case QN__RULE_INTEGER:
    case QN__RULE_SHIFT:
      return is_int;
    case QN__RULE_FLOAT:
    case QN__RULE_TEST:
      return is_float;
    case QN__RULE_BITWISE:
      return !is_float;
    case QN__RULE_LOGIC:
      return dtype == QN_DTYPE_BOOL;
    default:
      return true;
  }
}

static qn_dtype_t any_dtype(maker_t* m) {
  return (qn_dtype_t)(1 + next_random(m) % (QN_DTYPE_COUNT - 1));
}

static qn__expr_t* make_op(maker_t* m, qn_dtype_t dtype, int depth) {
  for (;;) {
    qn_op_t op = (qn_op_t)(1 + next_random(m) % (QN_OP_COUNT - 1));
    const qn__op_info_t* info = qn__op_info(op);
    bool gives_bool = info->rule == QN__RULE_COMPARE || info->rule == QN__RULE_TEST ||
                      info->rule == QN__RULE_LOGIC;
    if (gives_bool && dtype != QN_DTYPE_BOOL) continue;
    qn_dtype_t operand = gives_bool ? any_dtype(m) : dtype;
    if (!takes(info->rule, operand)) {
      if (gives_bool && info->rule == QN__RULE_TEST) continue;
      if (gives_bool && info->rule == QN__RULE_LOGIC) operand = QN_DTYPE_BOOL;
      if (!takes(info->rule, operand)) continue;
    }
    qn__expr_t* args[3] = {NULL, NULL, NULL};
    for (uint32_t i = 0; i < info->arity; i++) {
      qn_dtype_t each = operand;
      if (info->rule == QN__RULE_SELECT && i == 0) each = QN_DTYPE_BOOL;
      if (info->rule == QN__RULE_LANE && i == 1) each = QN_DTYPE_I64;
      args[i] = make_expr(m, each, depth - 1);
    }
    return qn__expr_op(m->arena, op, args[0], args[1], args[2]);
  }
}

static const qn__loc_t nowhere = {0, 0};

static qn__expr_t* make_reduction(maker_t* m, qn_dtype_t dtype, int depth) {
  qn__expr_t* expr = qn__expr_new(m->arena, QN__EXPR_REDUCE, dtype, nowhere);
  expr->reduce.reduce_kind = (qn_reduce_kind_t)(1 + next_random(m) % 4);
  expr->reduce.begin = make_expr(m, QN_DTYPE_I64, depth - 2);
  expr->reduce.end = make_expr(m, QN_DTYPE_I64, depth - 2);
  expr->reduce.reduce_var = qn__var_new(m->arena, QN__VAR_REDUCE, QN_DTYPE_I64, "j");
  m->reduce_vars[m->reduce_depth++] = expr->reduce.reduce_var;
  if (next_random(m) % 2) {
    qn__stmt_t* let = qn__stmt_new(m->arena, QN__STMT_LET, nowhere);
    qn_dtype_t kind = any_dtype(m);
    let->let.value = make_expr(m, kind, depth - 2);
    let->let.var = qn__var_new(m->arena, QN__VAR_LET, kind, "e");
    qn__block_append(&expr->reduce.lets, let);
  }
  expr->reduce.value = make_expr(m, dtype, depth - 1);
  m->reduce_depth--;
  return expr;
}

static qn__expr_t* make_expr(maker_t* m, qn_dtype_t dtype, int depth) {
  if (depth <= 0) return make_leaf(m, dtype);
  uint64_t choice = next_random(m) % 16;
  if (choice < 3) return make_leaf(m, dtype);
  if (choice == 3 || choice == 4) {
    qn__expr_t* expr = qn__expr_new(m->arena, QN__EXPR_CAST, dtype, nowhere);
    expr->args[0] = make_expr(m, any_dtype(m), depth - 1);
    return expr;
  }
  if (choice == 5) {
    qn__expr_t* expr = qn__expr_new(m->arena, QN__EXPR_COND, dtype, nowhere);
    expr->args[0] = make_expr(m, QN_DTYPE_BOOL, depth - 1);
    expr->args[1] = make_expr(m, dtype, depth - 1);
    expr->args[2] = make_expr(m, dtype, depth - 1);
    return expr;
  }
  if (choice == 6 && dtype != QN_DTYPE_BOOL && m->reduce_depth < 3) {
    return make_reduction(m, dtype, depth);
  }
  if (choice == 7) {
    qn__expr_t* expr = qn__expr_new(m->arena, QN__EXPR_BITCAST, dtype, nowhere);
    qn_dtype_t from;
    do {
      from = any_dtype(m);
    } while (qn_dtype_size_bytes(from) != qn_dtype_size_bytes(dtype));
    expr->args[0] = make_expr(m, from, depth - 1);
    return expr;
  }
  return make_op(m, dtype, depth);
}

// The parsed tree has other variables than the made one: those of equal names are taken as equal.
static bool is_same(const qn__expr_t* a, const qn__expr_t* b) {
  if (a->kind != b->kind || a->dtype != b->dtype) return false;
  switch (a->kind) {
    case QN__EXPR_INT:
      return a->int_value == b->int_value;
    case QN__EXPR_FLOAT:
      return (isnan(a->float_value) && isnan(b->float_value)) ||
             (a->float_value == b->float_value &&
              signbit(a->float_value) == signbit(b->float_value));
    case QN__EXPR_VAR:
      return a->var->kind == b->var->kind && a->var->dtype == b->var->dtype;
    case QN__EXPR_OP:
      if (a->op != b->op) return false;
      for (uint32_t i = 0; i < qn__op_info(a->op)->arity; i++) {
        if (!is_same(a->args[i], b->args[i])) return false;
      }
      return true;
    case QN__EXPR_CAST:
    case QN__EXPR_BITCAST:
      return is_same(a->args[0], b->args[0]);
    case QN__EXPR_COND:
      return is_same(a->args[0], b->args[0]) && is_same(a->args[1], b->args[1]) &&
             is_same(a->args[2], b->args[2]);
    case QN__EXPR_REDUCE: {
      const qn__stmt_t* x = a->reduce.lets.first;
      const qn__stmt_t* y = b->reduce.lets.first;
      if (!x != !y || (x && !is_same(x->let.value, y->let.value))) return false;
      return a->reduce.reduce_kind == b->reduce.reduce_kind &&
             is_same(a->reduce.begin, b->reduce.begin) && is_same(a->reduce.end, b->reduce.end) &&
             is_same(a->reduce.value, b->reduce.value);
    }
    case QN__EXPR_LOAD:
      break;
  }
  return false;
}

static void test_random_expressions_come_back(void** state) {
  (void)state;
  maker_t maker = {.random = 88172645463325252u};
  for (int i = 0; i < 4000; i++) {
    qn__body_t body;
    parse_body(
        "func f(p1: bool, p2: i8, p3: i16, p4: i32, p5: i64, p6: u8, p7: u16, p8: u32, "
        "p9: u64, p10: f16, p11: bf16, p12: f32, p13: f64) {\n  let v = 0;\n}\n",
        &body);
    maker.arena = &body.arena;
    maker.function = body.first;
    maker.reduce_depth = 0;
    qn_dtype_t dtype = any_dtype(&maker);
    qn__stmt_t* let = body.first->body.first;
    let->let.value = make_expr(&maker, dtype, 1 + i % 6);
    let->let.var->dtype = dtype;
    char* text = print_twice(&body);
    qn__body_t again;
    parse_body(text, &again);
    if (!is_same(let->let.value, again.first->body.first->let.value)) {
      fail_msg("another tree comes back from tree %d:\n%s", i, text);
    }
    qn__body_deinit(&again);
    // Laying it out again changes nothing.
    char* formatted = format(text);
    assert_string_equal(formatted, text);
    qn_text_free(formatted);
    free(text);
    qn__body_deinit(&body);
  }
}

// ------------------------------------------------------------------------------------ formatting

static void test_comments_stay(void** state) {
  (void)state;
  static const char text[] =
      "\n\n// head\n"
      "func f(x:f32[n], // the input\n"
      "  // the output\n"
      "  out y:f32[n]){// brace\n\n\n"
      "  // first  \n"
      "  let a=1; // one\n\n\n"
      "  let b = // why\n"
      "    a+// more\n"
      "    - 2\n"
      "    // after an operand\n"
      "    ;\n"
      "  if a==b{y[0]=1;}// then\n"
      "  else{y[0]=-x[(0)];}\n"
      "  y[1]=(sum j in 0..n{let d=x[j];// square\n"
      "  d*d})//2\n"
      "  *1;\n"
      "  // end\n"
      "}// tail\n"
      "func g(){}\n"
      "// last";
  static const char expected[] =
      "// head\n"
      "func f(x: f32[n],  // the input\n"
      "    // the output\n"
      "    out y: f32[n]) {  // brace\n"
      "\n"
      "  // first\n"
      "  let a = 1;  // one\n"
      "\n"
      "  let b =  // why\n"
      "      a +  // more\n"
      "      - 2\n"
      "      // after an operand\n"
      "      ;\n"
      "  if a == b {\n"
      "    y[0] = 1;\n"
      "  }  // then\n"
      "  else {\n"
      "    y[0] = -x[(0)];\n"
      "  }\n"
      "  y[1] = (sum j in 0..n {\n"
      "    let d = x[j];  // square\n"
      "    d * d\n"
      "  }) / 2 * 1;\n"
      "  // end\n"
      "}  // tail\n"
      "\n"
      "func g() {\n"
      "}\n"
      "\n"
      "// last\n";
  char* copy = strdup(text);
  // Floats do not floor-divide; what matters is that `//` behind `)` is no comment.
  char* slash = strstr(copy, ")//2");
  memmove(slash + 1, slash + 2, strlen(slash + 2) + 1);
  char* formatted = format(copy);
  assert_string_equal(formatted, expected);
  qn_text_free(formatted);
  free(copy);
}

static void append(char* text, size_t capacity, const char* piece) {
  size_t size = strlen(text);
  assert_true(size + strlen(piece) < capacity);
  memcpy(text + size, piece, strlen(piece) + 1);
}

static void test_long_lines_are_broken(void** state) {
  (void)state;
  char text[8192] = "func f(x: i64[n], out y: i64[n]) {\n  y[0] = x[0]";
  for (int i = 0; i < 60; i++) append(text, sizeof text, " + x[111] // 3");
  append(text, sizeof text, ";\n  const c: i64[50] = [");
  for (int i = 0; i < 50; i++) append(text, sizeof text, "123456, ");
  append(
      text, sizeof text,
      "];\n  y[1] = max(sum j in 0..n { x[j] + x[j] * x[j] }, sum j in 0..n { x[j] + x[j] * x[j] "
      "}) + x[n - 1];\n");
  append(text, sizeof text,
         "  assert n == 1, \"a string that is not broken, however long it is, as its blanks and "
         "commas, such as these, are its own, and + - * too\";\n}\n");
  char* printed = print_text(text);
  char* formatted = format(text);
  // Nothing needed parentheses, so the two agree but for the comma at the table's end.
  char* last = strstr(formatted, ", ];");
  if (last) memmove(last, last + 2, strlen(last + 2) + 1);
  char* ends[] = {strstr(printed, "\"a string"), strstr(formatted, "\"a string")};
  for (int i = 0; i < 2; i++) {
    assert_non_null(ends[i]);
    assert_non_null(strstr(ends[i], "such as these, are its own, and + - * too\";"));
    *ends[i] = '\0';
  }
  assert_lines_fit(printed);
  assert_lines_fit(formatted);
  assert_true(strlen(printed) > 1500);
  free(printed);
  qn_text_free(formatted);
}

static void test_format_reports_mistakes(void** state) {
  (void)state;
  char* out = (char*)1;
  size_t size = 1;
  qn_status_t status = qn_text_format("func f( {", 9, NULL, &out, &size);
  assert_int_equal(qn_status_code(status), QN_STATUS_SYNTAX);
  assert_non_null(strstr(qn_status_message(status), "QN01"));
  assert_null(out);
  assert_int_equal(size, 0);
  qn_status_free(status);
  status = qn_text_format(NULL, 3, NULL, &out, &size);
  assert_int_equal(qn_status_consume(status), QN_STATUS_INVALID_ARGUMENT);
  status = qn_text_format("", 0, NULL, &out, &size);
  assert_true(qn_ok(status));
  assert_string_equal(out, "");
  qn_text_free(out);
}

// ------------------------------------------------------------------------------------ memory

static bool print_once(qn_allocator_t allocator, void* user) {
  qn__buffer_t out;
  qn__buffer_init(&out, allocator);
  qn__text_print(user, &out);
  bool is_good = out.has_failed || strstr((const char*)out.data, "v_1") != NULL;
  qn__buffer_deinit(&out);
  return is_good;
}

static bool format_once(qn_allocator_t allocator, void* user) {
  qn__buffer_t out;
  qn__buffer_init(&out, allocator);
  qn_status_code_t code = qn_status_consume(qn__text_format(qn__str(user), allocator, &out));
  qn__buffer_deinit(&out);
  return code == QN_STATUS_OK || code == QN_STATUS_OUT_OF_MEMORY;
}

static void test_out_of_memory(void** state) {
  (void)state;
  static char text[] =
      "func f(x: f32[n, m], a_parameter_of_a_long_name: f32, another_one_that_is_long: f32, out y: "
      "f32[n, m]) {\n  let v = 1;\n  for i in 0..n { let v = v + i;\n // comment\n }\n}\n";
  qn__body_t body;
  parse_body(text, &body);
  assert_true(qn_fault_walk_alloc(print_once, &body) > 3);
  assert_true(qn_fault_walk_alloc(format_once, text) > 3);
  qn__body_deinit(&body);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_examples_are_canonical),
      cmocka_unit_test(test_literals_are_bare_where_they_may_be),
      cmocka_unit_test(test_parentheses_are_few),
      cmocka_unit_test(test_statements),
      cmocka_unit_test(test_names_are_made_unambiguous),
      cmocka_unit_test(test_lanes_are_comments),
      cmocka_unit_test(test_random_expressions_come_back),
      cmocka_unit_test(test_comments_stay),
      cmocka_unit_test(test_long_lines_are_broken),
      cmocka_unit_test(test_format_reports_mistakes),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
