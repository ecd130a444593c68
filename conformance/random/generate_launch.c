// SPDX-License-Identifier: Apache-2.0
// conformance/random/generate_launch.c: random modules: the launches of a function: element-wise
// code, scans, atomics, blocks of threads, products. Blocks that see each other's memory:
// generate_order.c.
//
// A launch is deterministic because each iteration of a concurrent loop owns one element or row,
// and a launch reads the buffer that it stores to only at the element owned by the iteration.
// Elsewhere: loop bodies (generate_stmt.c). Thread rule: one thread per generator.
#include "conformance/random/generator.h"

typedef struct scope {
  size_t scalar_count;
  size_t buffer_count;
} scope_t;

static scope_t enter(const gen_t* g) {
  return (scope_t){g->scalar_count, g->buffer_count};
}
static void leave(gen_t* g, scope_t scope) {
  g->scalar_count = scope.scalar_count;
  g->buffer_count = scope.buffer_count;
}

// Loops over all elements of the target.
static void elementwise_launch(gen_t* g, gen_buffer_t* target, bool is_fresh) {
  static const char* const outer_words[] = {"parallel", "parallel", "for", "block.x"};
  scope_t scope = enter(g);
  const char* where = "";
  bool is_grid = target->rank == 2 && gen_chance(g, 20);
  for (uint32_t d = 0; d < target->rank; ++d) {
    gen_scalar_t* var = gen_add_scalar(g, "ix", QN_DTYPE_I64, 0, 0);
    var->extent = target->shape[d].text;
    const char* word = d == 0 ? outer_words[gen_below(g, 4)] : "for";
    bool is_constant = target->shape[d].text[0] >= '0' && target->shape[d].text[0] <= '9';
    if (d > 0 && is_constant) word = gen_loop_words[gen_below(g, 3)];
    if (d > 0 && !is_constant && gen_chance(g, 30)) word = "parallel";
    if (is_grid) word = d == 0 ? "block.y" : "block.x";
    const char* name = gen_text(g, "%s", var->name);
    where = gen_text(g, "%s%s%s", where, d > 0 ? ", " : "", name);
    gen_open(g, gen_text(g, "%s %s in 0..%s", word, name, target->shape[d].text));
    if (d + 1 < target->rank && !is_grid) gen_statements(g, gen_below(g, 4));
  }
  gen_statements(g, gen_below(g, 4));
  gen_store(g, target, where, is_fresh);
  for (uint32_t d = 0; d < target->rank; ++d) gen_close(g);
  leave(g, scope);
}

// An integer scan along the last dimension: each element needs the one before.
static void scan_launch(gen_t* g, gen_buffer_t* target) {
  scope_t scope = enter(g);
  gen_extent_t rows = target->shape[0], columns = target->shape[1];
  gen_scalar_t* row = gen_add_scalar(g, "r", QN_DTYPE_I64, 0, 0);
  row->extent = rows.text;
  const char* i = gen_text(g, "%s", row->name);
  gen_open(g, gen_text(g, "parallel %s in 0..%s", i, rows.text));
  gen_line(g, "%s[%s, 0] = %s;", target->name, i, gen_expr(g, target->dtype, 2).text);
  const char* j = gen_text(g, "j%u", g->name_count++);
  gen_open(g, gen_text(g, "for %s in 1..%s", j, columns.text));
  gen_line(g, "%s[%s, %s] = %s[%s, %s - 1] + (%s);", target->name, i, j, target->name, i, j,
           gen_expr(g, target->dtype, 2).text);
  gen_close(g);
  gen_close(g);
  leave(g, scope);
}

// Changes a buffer that has values already, in any order: floats only by minima and maxima.
static void atomic_launch(gen_t* g, gen_buffer_t* target) {
  static const char* const ops[] = {"atomic_add", "atomic_min", "atomic_max",
                                    "atomic_and", "atomic_or",  "atomic_xor"};
  scope_t scope = enter(g);
  gen_extent_t extent = g->extents[gen_below(g, (uint32_t)g->extent_count)];
  bool is_int = gen_is_int(target->dtype);
  const char* op = ops[is_int ? gen_below(g, 6) : 1 + gen_below(g, 2)];
  gen_scalar_t* var = gen_add_scalar(g, "ix", QN_DTYPE_I64, 0, 0);
  var->extent = extent.text;
  gen_open(g, gen_text(g, "parallel %s in 0..%s", var->name, extent.text));
  const char* where = "";
  for (uint32_t d = 0; d < target->rank; ++d) {
    where = gen_text(g, "%s%s%s", where, d > 0 ? ", " : "", gen_index(g, target->shape[d], 2));
  }
  gen_value_t value = gen_expr(g, target->dtype, 2);
  if (!is_int) value = gen_tame(g, value);
  gen_line(g, "%s(%s[%s], %s);", op, target->name, where, value.text);
  gen_absorb(target, value);
  gen_close(g);
  leave(g, scope);
}

// Blocks of threads over a vector: shared memory, barriers, values that live across them.
static void thread_launch(gen_t* g, gen_buffer_t* target) {
  static const uint32_t sizes[] = {2, 4, 8, 32};
  scope_t scope = enter(g);
  qn_dtype_t dtype = target->dtype;
  const char* name = qn_dtype_text(dtype);
  const char* extent = target->shape[0].text;
  uint32_t width = sizes[gen_below(g, 4)];
  uint32_t rows = gen_chance(g, 30) ? 2 : 1;  // thread.y
  uint32_t room = width * rows;
  const char *threads = gen_text(g, "%u", width), *total = gen_text(g, "%u", room);
  if (rows == 1 && gen_chance(g, 25)) {  // as many as the call says
    threads = total = g->extents[1].text;
    room = gen_max_columns;
  }
  const char* b = gen_text(g, "b%u", g->name_count++);
  const char* t = gen_text(g, "t%u", g->name_count++);
  const char* s = gen_text(g, "s%u", g->name_count++);
  gen_open(g, gen_text(g, "block.x %s in 0..ceildiv(%s, %s)", b, extent, total));
  gen_line(g, "alloc %s: %s[%u] in shared;", s, name, room);
  const char* y = "0";
  if (rows == 2) {
    y = gen_text(g, "y%u", g->name_count++);
    gen_open(g, gen_text(g, "thread.y %s in 0..2", y));
    if (gen_chance(g, 50)) gen_let(g);
  }
  gen_open(g, gen_text(g, "thread.x %s in 0..%s", t, threads));
  const char* id = gen_text(g, "q%u", g->name_count++);
  gen_line(g, "let %s = %s * %s + %s;", id, y, threads, t);
  gen_scalar_t* i = gen_add_scalar(g, "ix", QN_DTYPE_I64, 0, 0);
  const char* at = gen_text(g, "%s", i->name);
  gen_line(g, "let %s = %s * %s + %s;", at, b, total, id);
  gen_value_t own = gen_tame(g, gen_expr(g, dtype, 3));
  const char* own_name = gen_text(g, "%s", gen_add_scalar(g, "v", dtype, own.mag, own.err)->name);
  gen_line(g, "let %s = %s;", own_name, own.text);
  const char* local = NULL;
  if (gen_chance(g, 60)) {
    gen_value_t kept = gen_tame(g, gen_expr(g, dtype, 2));
    gen_buffer_t* buffer = gen_add_buffer(g, "l", dtype);
    buffer->rank = 1;
    buffer->shape[0] = gen_constant_extent(g, 3);
    gen_line(g, "alloc %s: %s[3] in local;", buffer->name, name);
    gen_line(g, "%s[0] = %s;", buffer->name, own_name);
    gen_line(g, "%s[1] = %s;", buffer->name, kept.text);
    gen_line(g, "%s[2] = %s;", buffer->name, own_name);
    gen_absorb(buffer, own);
    gen_absorb(buffer, kept);
    buffer->is_readable = true;
    local = buffer->name;
    if (gen_chance(g, 40)) {  // seen from its second element, or in steps
      gen_buffer_t* view = gen_add_buffer(g, "w", dtype);
      view->rank = 1;
      view->shape[0] = gen_constant_extent(g, 2);
      view->mag = buffer->mag;
      view->err = buffer->err;
      view->is_readable = true;
      bool has_step = gen_chance(g, 50);
      gen_line(g, "view %s: %s[2]%s = %s[%d];", view->name, name, has_step ? " strides [2]" : "",
               buffer->name, has_step ? 0 : 1);
    }
  }
  bool is_number = gen_is_int(dtype) || gen_is_float(dtype);
  bool has_atomics = is_number && gen_chance(g, 25);
  gen_line(g, has_atomics ? "atomic_store(%s[%s], %s);" : "%s[%s] = %s;", s, id, own_name);
  if (gen_chance(g, 15)) gen_line(g, "fence;");
  gen_line(g, "barrier;");
  gen_value_t shared = {NULL, dtype, own.mag, own.err};
  if (is_number && gen_chance(g, 60)) {  // a tree
    const char* k = gen_text(g, "k%u", g->name_count++);
    const char* o = gen_text(g, "o%u", g->name_count++);
    uint32_t rounds = 1 + gen_below(g, 3);
    gen_open(g, gen_text(g, "for %s in 0..%u", k, rounds));
    gen_line(g, "let %s = %s + (1 << %s) < %s ? %s[%s + (1 << %s)] : %s(0%s);", o, id, k, total, s,
             id, k, name, gen_is_float(dtype) ? ".0" : "");
    gen_line(g, "barrier;");
    gen_line(g, "%s[%s] = %s[%s] + %s;", s, id, s, id, o);
    gen_line(g, "barrier;");
    gen_close(g);
    double count = (double)(1U << rounds);
    shared.mag *= count;
    shared.err = shared.err * count + rounds * shared.mag * gen_eps(dtype);
  }
  if (gen_chance(g, 30)) {  // a branch that all threads take alike
    gen_open(g, gen_text(g, "if %s > %u", extent, 1 + gen_below(g, 10)));
    gen_line(g, "barrier;");
    gen_line(g, "%s[%s] = %s;", s, id, own_name);
    gen_line(g, "barrier;");
    gen_close(g);
  }
  gen_scalar_t* seen = gen_add_scalar(g, "v", dtype, shared.mag, shared.err);
  gen_line(
      g,
      has_atomics ? "let %s = atomic_load(%s[(%s + %u) %% %s]);" : "let %s = %s[(%s + %u) %% %s];",
      seen->name, s, id, gen_below(g, 40), total);
  if (local) gen_statements(g, gen_below(g, 2));
  gen_open(g, gen_text(g, "if %s < %s", at, extent));
  gen_value_t value = gen_tame(g, gen_expr(g, dtype, 3));
  if (value.dtype == QN_DTYPE_BOOL) value = gen_condition(g, 2);
  gen_line(g, has_atomics ? "atomic_store(%s[%s], %s);" : "%s[%s] = %s;", target->name, at,
           value.text);
  gen_absorb(target, value);
  gen_close(g);
  gen_close(g);
  if (rows == 2) gen_close(g);
  gen_close(g);
  leave(g, scope);
  g->result->has_threads = true;
}

// ---- products

// An index in 0..extent that follows `var`, which counts to `bound`.
static const char* follow(gen_t* g, const char* var, gen_extent_t bound, gen_extent_t extent) {
  if (strcmp(bound.text, extent.text) == 0) return var;
  return gen_text(g, gen_chance(g, 50) ? "%s %% %s" : "min(%s, %s - 1)", var, extent.text);
}

// An operand of a product: a buffer of the target's class at the step `p` and at `i`. Floats are
// made small, so that a sum of many products keeps a useful bound.
static bool product_operand(gen_t* g, qn_dtype_t dtype, const char* i, gen_extent_t bound,
                            const char* p, gen_extent_t steps, gen_value_t* out) {
  bool is_float = gen_is_float(dtype);
  const gen_buffer_t* buffer = NULL;
  size_t count = 0;
  for (size_t b = 0; b < g->buffer_count; ++b) {
    const gen_buffer_t* each = &g->buffers[b];
    bool is_fit = is_float ? conf_is_float(each->dtype) && each->err <= gen_eps(dtype)
                           : gen_is_int(each->dtype);
    if (!each->is_readable || each->rank == 0 || !is_fit) continue;
    if (gen_below(g, (uint32_t)++count) == 0) buffer = each;
  }
  if (!buffer) return false;
  bool is_turned = gen_chance(g, 50);
  const char* text = gen_text(g, "%s[", buffer->name);
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    bool is_step = (d == 1) != is_turned;
    const char* index =
        is_step ? follow(g, p, steps, buffer->shape[d]) : follow(g, i, bound, buffer->shape[d]);
    if (buffer->rank == 1) index = gen_text(g, "(%s + %s) %% %s", i, p, buffer->shape[d].text);
    text = gen_text(g, "%s%s%s", text, d > 0 ? ", " : "", index);
  }
  text = gen_text(g, "%s]", text);
  qn_dtype_t from_dtype = buffer->dtype;
  if (conf_is_stored(from_dtype)) {
    from_dtype = dtype;
    text = gen_text(g, "%s(%s)", qn_dtype_text(dtype), text);
  }
  const char* from = qn_dtype_text(from_dtype);
  if (is_float) text = gen_text(g, "min(max(%s, %s(-1.0)), %s(1.0))", text, from, from);
  if (from_dtype != dtype) text = gen_text(g, "%s(%s)", qn_dtype_text(dtype), text);
  if (is_float) text = gen_text(g, "%s * %s(0.125)", text, qn_dtype_text(dtype));
  double eps = gen_eps(dtype);
  *out = (gen_value_t){gen_text(g, "(%s)", text), dtype, 0.125, 0.125 * buffer->err + 0.25 * eps};
  return true;
}

// Each element is a sum of products, which a GPU may cut into tiles. False: there are no operands.
static bool product_launch(gen_t* g, gen_buffer_t* target, bool is_fresh) {
  qn_dtype_t dtype = target->dtype;
  gen_extent_t steps = g->extents[gen_below(g, (uint32_t)g->extent_count)];
  const char* i = gen_text(g, "ix%u", g->name_count++);
  const char* j = gen_text(g, "jx%u", g->name_count++);
  const char* p = gen_text(g, "px%u", g->name_count++);
  gen_value_t a, b;
  if (!product_operand(g, dtype, i, target->shape[0], p, steps, &a) ||
      !product_operand(g, dtype, j, target->shape[1], p, steps, &b)) {
    return false;
  }
  const char* name = qn_dtype_text(dtype);
  bool is_float = gen_is_float(dtype);
  double count = (double)steps.value, eps = gen_eps(dtype);
  double mag = count * a.mag * b.mag;
  double err =
      count * (a.mag * b.err + b.mag * a.err + 2 * a.mag * b.mag * eps) + count * mag * eps;
  const char* begin = gen_chance(g, 80) ? "0" : "1";
  const char* sum =
      gen_text(g, "(sum %s in %s..%s { %s * %s })", p, begin, steps.text, a.text, b.text);
  if (gen_chance(g, 40)) {
    const char* d = gen_text(g, "d%u", g->name_count++);
    sum = gen_text(g, "(sum %s in %s..%s { let %s = %s; %s * %s })", p, begin, steps.text, d,
                   a.text, d, b.text);
  }
  scope_t scope = enter(g);
  const char* inner = gen_chance(g, 60) ? "parallel" : "for";
  gen_open(g, gen_text(g, "parallel %s in 0..%s", i, target->shape[0].text));
  gen_open(g, gen_text(g, "%s %s in 0..%s", inner, j, target->shape[1].text));
  const char* where = gen_text(g, "%s, %s", i, j);
  gen_value_t value = {sum, dtype, is_float ? mag : 0, is_float ? err : 0};
  if (!is_fresh && gen_chance(g, 40)) {
    value.text = is_float ? gen_text(g, "%s[%s] * %s(0.5) + %s", target->name, where, name, sum)
                          : gen_text(g, "%s[%s] + %s", target->name, where, sum);
    if (is_float) {
      value.mag += target->mag * 0.5;
      value.err += target->err + 2 * value.mag * eps;
    }
  } else if (gen_chance(g, 40)) {
    gen_value_t other = gen_literal(g, dtype);
    const char* v = gen_text(g, "v%u", g->name_count++);
    gen_line(g, "let %s = %s;", v, sum);
    value.text = gen_text(g, "max(%s, %s)", v, other.text);
    if (is_float && other.mag > value.mag) value.mag = other.mag;
  }
  value = gen_tame(g, value);
  gen_line(g, "%s[%s] = %s;", target->name, where, value.text);
  gen_absorb(target, value);
  gen_close(g);
  gen_close(g);
  leave(g, scope);
  return true;
}

static void one_launch(gen_t* g, gen_buffer_t* target, const qn_generate_options_t* options) {
  bool is_fresh = !target->is_readable;
  target->is_readable = false;
  bool is_int = gen_is_int(target->dtype);
  if (options->allows_threads && target->rank == 1 && gen_chance(g, 40)) {
    thread_launch(g, target);
  } else if (is_int && target->rank == 2 && gen_chance(g, 25)) {
    scan_launch(g, target);
  } else if ((is_int || gen_is_float(target->dtype)) && !is_fresh && gen_chance(g, 40)) {
    atomic_launch(g, target);
  } else if (target->rank != 2 || target->dtype == QN_DTYPE_BOOL || conf_is_stored(target->dtype) ||
             !gen_chance(g, 30) || !product_launch(g, target, is_fresh)) {
    elementwise_launch(g, target, is_fresh);
  }
  target->is_readable = true;
}

// Returns the head of a loop that the host runs, with at least one round.
static const char* host_loop(gen_t* g) {
  gen_scalar_t* round = gen_add_scalar(g, "rx", QN_DTYPE_I64, 0, 0);
  if (gen_chance(g, 50)) {
    return gen_text(g, "for %s in 0..min(%s, 3)", round->name, g->extents[gen_below(g, 2)].text);
  }
  const char* word = gen_chance(g, 70) ? "for" : "unroll";
  return gen_text(g, "%s %s in 0..%u", word, round->name, 1 + gen_below(g, 3));
}

// Repeats some launches. Not those of floats, which would lose more bits in each round.
void gen_launch(gen_t* g, gen_buffer_t* target, const qn_generate_options_t* options) {
  bool is_number = gen_is_int(target->dtype) || gen_is_float(target->dtype);
  if (options->allows_threads && target->rank == 1 && is_number && gen_chance(g, 12)) {
    gen_order_launch(g, target, options->allows_waits);
    return;
  }
  bool is_exact = gen_is_int(target->dtype) || target->dtype == QN_DTYPE_BOOL;
  if (!is_exact || !gen_chance(g, 15)) {
    one_launch(g, target, options);
    return;
  }
  scope_t scope = enter(g);
  gen_open(g, host_loop(g));
  for (uint32_t i = 1 + gen_below(g, 2); i > 0; --i) one_launch(g, target, options);
  gen_close(g);
  leave(g, scope);
}
