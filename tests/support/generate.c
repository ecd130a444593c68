// tests/support/generate.c: random modules: parameters, launches, statements; and their arguments.
//
// What keeps a launch deterministic: the buffer that it stores to is not read in it but at the
// element that the iteration itself owns, and each iteration of a concurrent loop owns one element
// or row. Not here: expressions (generate_expr.c). Thread rule: one thread per generator.
#include "tests/support/generate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "tests/support/generator.h"

static void line(gen_t* g, const char* format, ...) QN_PRINTF(2, 3);
static void line(gen_t* g, const char* format, ...) {
  char text[16384];
  va_list arguments;
  va_start(arguments, format);
  int size = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (size < 0 || (size_t)size >= sizeof text) abort();
  for (int i = 0; i < g->indent; ++i) qn__buffer_cstr(&g->out, "  ");
  qn__buffer_cstr(&g->out, text);
  qn__buffer_char(&g->out, '\n');
}

static void open_block(gen_t* g, const char* head) {
  line(g, "%s {", head);
  ++g->indent;
}

static void close_block(gen_t* g) {
  --g->indent;
  line(g, "}");
}

static gen_buffer_t* add_buffer(gen_t* g, const char* prefix, qn_dtype_t dtype) {
  if (g->buffer_count == gen_max_buffers) abort();
  gen_buffer_t* buffer = &g->buffers[g->buffer_count++];
  *buffer = (gen_buffer_t){.dtype = dtype, .param = -1};
  (void)snprintf(buffer->name, sizeof buffer->name, "%s%u", prefix, g->name_count++ % 100000);
  return buffer;
}

static const char* shape_text(gen_t* g, const gen_buffer_t* buffer) {
  const char* text = gen_text(g, "%s[", qn_dtype_text(buffer->dtype));
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    text = gen_text(g, "%s%s%s", text, d > 0 ? ", " : "", buffer->shape[d].text);
  }
  return gen_text(g, "%s]", text);
}

// What a store of `value` makes of the bounds of a buffer.
static void absorb(gen_buffer_t* buffer, gen_value_t value) {
  if (value.mag > buffer->mag) buffer->mag = value.mag;
  if (value.err > buffer->err) buffer->err = value.err;
}

static gen_extent_t constant_extent(gen_t* g, uint32_t value) {
  return (gen_extent_t){gen_text(g, "%u", value), value};
}

// ---- statements of a body. What they declare is in scope until the counts are put back.

static void add_let(gen_t* g) {
  qn_dtype_t dtype = gen_dtype(g);
  gen_value_t value = gen_chance(g, 25) ? gen_reduction(g, dtype, 2) : gen_expr(g, dtype, 3);
  if (dtype == QN_DTYPE_BOOL) value = gen_condition(g, 2);
  value = gen_tame(g, value);
  const gen_scalar_t* let = gen_add_scalar(g, "v", dtype, value.mag, value.err);
  line(g, "let %s = %s;", let->name, value.text);
}

static void add_table(gen_t* g) {
  qn_dtype_t dtype = gen_dtype(g);
  uint32_t count = 1 + gen_below(g, 6);
  const char* elements = "";
  for (uint32_t i = 0; i < count; ++i) {
    const char* element;
    if (dtype == QN_DTYPE_BOOL) {
      element = gen_chance(g, 50) ? "true" : "false";
    } else if (qn__dtype_is_float(dtype)) {
      element = gen_text(g, "%.3f", (double)gen_below(g, 17) / 8);
    } else {
      element = gen_text(g, "%u", gen_below(g, 100));
    }
    elements = gen_text(g, "%s%s%s", elements, i > 0 ? ", " : "", element);
  }
  gen_buffer_t* table = add_buffer(g, "c", dtype);
  table->rank = 1;
  table->shape[0] = constant_extent(g, count);
  table->mag = 2;
  line(g, "const %s: %s = [%s];", table->name, shape_text(g, table), elements);
  table->is_readable = true;
}

// A row of a matrix, a part of a vector, or a matrix seen as a vector.
static void add_view(gen_t* g) {
  size_t count = 0;
  gen_buffer_t* base = NULL;
  for (size_t i = 0; i < g->buffer_count; ++i) {
    gen_buffer_t* buffer = &g->buffers[i];
    if (!buffer->is_readable || buffer->rank == 0) continue;
    if (gen_below(g, (uint32_t)++count) == 0) base = buffer;
  }
  if (!base) return;
  gen_buffer_t* view = add_buffer(g, "w", base->dtype);
  view->mag = base->mag;
  view->err = base->err;
  view->rank = 1;
  const char* start;
  if (base->rank == 2 && gen_chance(g, 60)) {  // a row
    view->shape[0] = base->shape[1];
    start = gen_text(g, "%s, 0", gen_index(g, base->shape[0], 1));
  } else if (base->rank == 2) {  // all of it
    view->shape[0] =
        (gen_extent_t){gen_text(g, "%s * %s", base->shape[0].text, base->shape[1].text),
                       base->shape[0].value * base->shape[1].value};
    view->shape[0].text = gen_text(g, "(%s)", view->shape[0].text);
    start = "0, 0";
  } else {  // every second element
    view->shape[0] = (gen_extent_t){gen_text(g, "((%s + 1) // 2)", base->shape[0].text),
                                    (base->shape[0].value + 1) / 2};
    line(g, "view %s: %s strides [2] = %s[0];", view->name, shape_text(g, view), base->name);
    view->is_readable = true;
    return;
  }
  line(g, "view %s: %s = %s[%s];", view->name, shape_text(g, view), base->name, start);
  view->is_readable = true;
}

static const char* const loop_words[] = {"for", "unroll", "vector"};

// A small array, written in one loop, then readable.
static void add_local_array(gen_t* g) {
  qn_dtype_t dtype = gen_dtype(g);
  gen_buffer_t* local = add_buffer(g, "l", dtype);
  local->rank = 1;
  local->shape[0] = constant_extent(g, 1 + gen_below(g, 9));
  line(g, "alloc %s: %s in local;", local->name, shape_text(g, local));
  size_t scalar_count = g->scalar_count;
  gen_scalar_t* var = gen_add_scalar(g, "ux", QN_DTYPE_I64, 0, 0);
  var->extent = local->shape[0].text;
  const char* var_name = gen_text(g, "%s", var->name);
  open_block(g, gen_text(g, "%s %s in 0..%s", loop_words[gen_below(g, 3)], var_name,
                         local->shape[0].text));
  gen_value_t value = gen_expr(g, dtype, 3);
  if (gen_chance(g, 30)) {
    gen_value_t other = gen_expr(g, dtype, 2);
    open_block(g, gen_text(g, "if %s", gen_condition(g, 1).text));
    line(g, "%s[%s] = %s;", local->name, var_name, value.text);
    --g->indent;
    line(g, "} else {");
    ++g->indent;
    line(g, "%s[%s] = %s;", local->name, var_name, other.text);
    close_block(g);
    absorb(local, other);
  } else {
    line(g, "%s[%s] = %s;", local->name, var_name, value.text);
  }
  absorb(local, value);
  close_block(g);
  g->scalar_count = scalar_count;
  local->is_readable = true;
}

// A scalar that a loop updates: acc = acc * c + e, or an integer recurrence.
static void add_accumulator(gen_t* g) {
  qn_dtype_t dtype = gen_dtype(g);
  if (dtype == QN_DTYPE_BOOL) dtype = QN_DTYPE_I32;
  gen_buffer_t* acc = add_buffer(g, "a", dtype);
  gen_value_t first = gen_expr(g, dtype, 1);
  line(g, "alloc %s: %s in local;", acc->name, shape_text(g, acc));
  line(g, "%s[] = %s;", acc->name, first.text);
  gen_extent_t extent = g->extents[gen_below(g, (uint32_t)g->extent_count)];
  size_t scalar_count = g->scalar_count;
  gen_scalar_t* var = gen_add_scalar(g, "p", QN_DTYPE_I64, 0, 0);
  var->extent = extent.text;
  open_block(g, gen_text(g, "for %s in 0..%s", var->name, extent.text));
  gen_value_t step = gen_tame(g, gen_expr(g, dtype, 2));
  if (qn__dtype_is_float(dtype)) {
    const char* name = qn_dtype_text(dtype);
    if (step.err > 8 * gen_eps(dtype)) step = gen_literal(g, dtype);
    line(g, "%s[] = %s[] * %s(0.5) + %s;", acc->name, acc->name, name, step.text);
    // The errors of the steps are halved every round: at most twice that of one.
    double mag = first.mag + 2 * step.mag;
    absorb(acc,
           (gen_value_t){NULL, dtype, mag, first.err + 2 * (step.err + 2 * mag * gen_eps(dtype))});
  } else {
    line(g, "%s[] = (%s[] %s %s);", acc->name, acc->name, gen_chance(g, 50) ? "+" : "^", step.text);
  }
  close_block(g);
  g->scalar_count = scalar_count;
  acc->is_readable = true;
}

static void add_while(gen_t* g) {
  gen_buffer_t* counter = add_buffer(g, "n", QN_DTYPE_I32);
  line(g, "alloc %s: i32[] in local;", counter->name);
  line(g, "%s[] = i32((%s) %% 7);", counter->name, gen_index(g, g->extents[0], 1));
  open_block(g, gen_text(g, "while %s[] < %u", counter->name, 3 + gen_below(g, 20)));
  line(g, "%s[] = %s[] * 2 + 1;", counter->name, counter->name);
  close_block(g);
  counter->is_readable = true;
}

static void add_statements(gen_t* g, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (g->scalar_count > gen_max_scalars - 12 || g->buffer_count > gen_max_buffers - 4) return;
    switch (gen_below(g, 12)) {
      case 0:
        add_local_array(g);
        break;
      case 1:
        add_accumulator(g);
        break;
      case 2:
        add_view(g);
        break;
      case 3:
        add_table(g);
        break;
      case 4:
        if (gen_chance(g, 50)) add_while(g);
        break;
      case 5:
        line(g, "assert %s >= 0, \"an index\";", gen_index(g, g->extents[0], 1));
        break;
      default:
        add_let(g);
        break;
    }
  }
}

// Stores to `target` at `where`, perhaps under a condition. `is_fresh`: every element must be
// written.
static void add_store(gen_t* g, gen_buffer_t* target, const char* where, bool is_fresh) {
  gen_value_t value =
      gen_chance(g, 25) ? gen_reduction(g, target->dtype, 2) : gen_expr(g, target->dtype, 4);
  if (target->dtype == QN_DTYPE_BOOL) value = gen_condition(g, 3);
  value = gen_tame(g, value);
  if (!is_fresh && gen_chance(g, 40) && target->dtype != QN_DTYPE_BOOL) {  // its own element
    const char* name = qn_dtype_text(target->dtype);
    if (qn__dtype_is_float(target->dtype)) {
      double mag = target->mag * 0.5 + value.mag;
      value.text = gen_text(g, "%s[%s] * %s(0.5) + %s", target->name, where, name, value.text);
      value.err += target->err + 2 * mag * gen_eps(target->dtype);
      value.mag = mag;
    } else {
      value.text = gen_text(g, "%s[%s] + %s", target->name, where, value.text);
    }
  }
  if (gen_chance(g, 30)) {
    open_block(g, gen_text(g, "if %s", gen_condition(g, 2).text));
    line(g, "%s[%s] = %s;", target->name, where, value.text);
    if (is_fresh || gen_chance(g, 50)) {
      --g->indent;
      line(g, "} else {");
      ++g->indent;
      gen_value_t other = gen_tame(g, gen_expr(g, target->dtype, 2));
      line(g, "%s[%s] = %s;", target->name, where, other.text);
      absorb(target, other);
    }
    close_block(g);
  } else {
    line(g, "%s[%s] = %s;", target->name, where, value.text);
  }
  absorb(target, value);
}

// ---- launches

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
    if (d > 0 && is_constant) word = loop_words[gen_below(g, 3)];
    if (d > 0 && !is_constant && gen_chance(g, 30)) word = "parallel";
    if (is_grid) word = d == 0 ? "block.y" : "block.x";
    const char* name = gen_text(g, "%s", var->name);
    where = gen_text(g, "%s%s%s", where, d > 0 ? ", " : "", name);
    open_block(g, gen_text(g, "%s %s in 0..%s", word, name, target->shape[d].text));
    if (d + 1 < target->rank && !is_grid) add_statements(g, gen_below(g, 4));
  }
  add_statements(g, gen_below(g, 4));
  add_store(g, target, where, is_fresh);
  for (uint32_t d = 0; d < target->rank; ++d) close_block(g);
  leave(g, scope);
}

// An integer scan along the last dimension: each element needs the one before.
static void scan_launch(gen_t* g, gen_buffer_t* target) {
  scope_t scope = enter(g);
  gen_extent_t rows = target->shape[0], columns = target->shape[1];
  gen_scalar_t* row = gen_add_scalar(g, "r", QN_DTYPE_I64, 0, 0);
  row->extent = rows.text;
  const char* i = gen_text(g, "%s", row->name);
  open_block(g, gen_text(g, "parallel %s in 0..%s", i, rows.text));
  line(g, "%s[%s, 0] = %s;", target->name, i, gen_expr(g, target->dtype, 2).text);
  const char* j = gen_text(g, "j%u", g->name_count++);
  open_block(g, gen_text(g, "for %s in 1..%s", j, columns.text));
  line(g, "%s[%s, %s] = %s[%s, %s - 1] + (%s);", target->name, i, j, target->name, i, j,
       gen_expr(g, target->dtype, 2).text);
  close_block(g);
  close_block(g);
  leave(g, scope);
}

// Counts into a buffer of integers that has values already; the order of additions does not matter.
static void atomic_launch(gen_t* g, gen_buffer_t* target) {
  static const char* const ops[] = {"atomic_add", "atomic_min", "atomic_max",
                                    "atomic_and", "atomic_or",  "atomic_xor"};
  scope_t scope = enter(g);
  gen_extent_t extent = g->extents[gen_below(g, (uint32_t)g->extent_count)];
  const char* op = ops[gen_below(g, 6)];
  gen_scalar_t* var = gen_add_scalar(g, "ix", QN_DTYPE_I64, 0, 0);
  var->extent = extent.text;
  open_block(g, gen_text(g, "parallel %s in 0..%s", var->name, extent.text));
  const char* where = "";
  for (uint32_t d = 0; d < target->rank; ++d) {
    where = gen_text(g, "%s%s%s", where, d > 0 ? ", " : "", gen_index(g, target->shape[d], 2));
  }
  line(g, "%s(%s[%s], %s);", op, target->name, where, gen_expr(g, target->dtype, 2).text);
  close_block(g);
  leave(g, scope);
}

// Blocks of threads over a vector: shared memory, barriers, values that live across them.
static void thread_launch(gen_t* g, gen_buffer_t* target) {
  static const uint32_t sizes[] = {2, 4, 8, 32};
  scope_t scope = enter(g);
  qn_dtype_t dtype = target->dtype;
  const char* name = qn_dtype_text(dtype);
  const char* extent = target->shape[0].text;
  uint32_t threads = sizes[gen_below(g, 4)];
  uint32_t rows = gen_chance(g, 30) ? 2 : 1;  // thread.y
  uint32_t total = threads * rows;
  const char* b = gen_text(g, "b%u", g->name_count++);
  const char* t = gen_text(g, "t%u", g->name_count++);
  const char* s = gen_text(g, "s%u", g->name_count++);
  open_block(g, gen_text(g, "block.x %s in 0..ceildiv(%s, %u)", b, extent, total));
  line(g, "alloc %s: %s[%u] in shared;", s, name, total);
  const char* y = "0";
  if (rows == 2) {
    y = gen_text(g, "y%u", g->name_count++);
    open_block(g, gen_text(g, "thread.y %s in 0..2", y));
    if (gen_chance(g, 50)) add_let(g);
  }
  open_block(g, gen_text(g, "thread.x %s in 0..%u", t, threads));
  const char* id = gen_text(g, "q%u", g->name_count++);
  line(g, "let %s = %s * %u + %s;", id, y, threads, t);
  gen_scalar_t* i = gen_add_scalar(g, "ix", QN_DTYPE_I64, 0, 0);
  const char* at = gen_text(g, "%s", i->name);
  line(g, "let %s = %s * %u + %s;", at, b, total, id);
  gen_value_t own = gen_tame(g, gen_expr(g, dtype, 3));
  const char* own_name = gen_text(g, "%s", gen_add_scalar(g, "v", dtype, own.mag, own.err)->name);
  line(g, "let %s = %s;", own_name, own.text);
  const char* local = NULL;
  if (gen_chance(g, 60)) {
    gen_value_t kept = gen_tame(g, gen_expr(g, dtype, 2));
    gen_buffer_t* buffer = add_buffer(g, "l", dtype);
    buffer->rank = 1;
    buffer->shape[0] = constant_extent(g, 3);
    line(g, "alloc %s: %s[3] in local;", buffer->name, name);
    line(g, "%s[0] = %s;", buffer->name, own_name);
    line(g, "%s[1] = %s;", buffer->name, kept.text);
    line(g, "%s[2] = %s;", buffer->name, own_name);
    absorb(buffer, own);
    absorb(buffer, kept);
    buffer->is_readable = true;
    local = buffer->name;
    if (gen_chance(g, 40)) {  // seen from its second element, or in steps
      gen_buffer_t* view = add_buffer(g, "w", dtype);
      view->rank = 1;
      view->shape[0] = constant_extent(g, 2);
      view->mag = buffer->mag;
      view->err = buffer->err;
      view->is_readable = true;
      bool has_step = gen_chance(g, 50);
      line(g, "view %s: %s[2]%s = %s[%d];", view->name, name, has_step ? " strides [2]" : "",
           buffer->name, has_step ? 0 : 1);
    }
  }
  line(g, "%s[%s] = %s;", s, id, own_name);
  line(g, "barrier;");
  gen_value_t shared = {NULL, dtype, own.mag, own.err};
  bool is_number = dtype != QN_DTYPE_BOOL;
  if (is_number && gen_chance(g, 60)) {  // a tree
    const char* k = gen_text(g, "k%u", g->name_count++);
    const char* o = gen_text(g, "o%u", g->name_count++);
    uint32_t rounds = 1 + gen_below(g, 3);
    open_block(g, gen_text(g, "for %s in 0..%u", k, rounds));
    line(g, "let %s = %s + (1 << %s) < %u ? %s[%s + (1 << %s)] : %s(0%s);", o, id, k, total, s, id,
         k, name, qn__dtype_is_float(dtype) ? ".0" : "");
    line(g, "barrier;");
    line(g, "%s[%s] = %s[%s] + %s;", s, id, s, id, o);
    line(g, "barrier;");
    close_block(g);
    double count = (double)(1U << rounds);
    shared.mag *= count;
    shared.err = shared.err * count + rounds * shared.mag * gen_eps(dtype);
  }
  if (gen_chance(g, 30)) {  // a branch that all threads take alike
    open_block(g, gen_text(g, "if %s > %u", extent, 1 + gen_below(g, 10)));
    line(g, "barrier;");
    line(g, "%s[%s] = %s;", s, id, own_name);
    line(g, "barrier;");
    close_block(g);
  }
  gen_scalar_t* seen = gen_add_scalar(g, "v", dtype, shared.mag, shared.err);
  line(g, "let %s = %s[(%s + %u) %% %u];", seen->name, s, id, gen_below(g, 40), total);
  if (local) add_statements(g, gen_below(g, 2));
  open_block(g, gen_text(g, "if %s < %s", at, extent));
  gen_value_t value = gen_tame(g, gen_expr(g, dtype, 3));
  if (value.dtype == QN_DTYPE_BOOL) value = gen_condition(g, 2);
  line(g, "%s[%s] = %s;", target->name, at, value.text);
  absorb(target, value);
  close_block(g);
  close_block(g);
  if (rows == 2) close_block(g);
  close_block(g);
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
  bool is_float = qn__dtype_is_float(dtype);
  const gen_buffer_t* buffer = NULL;
  size_t count = 0;
  for (size_t b = 0; b < g->buffer_count; ++b) {
    const gen_buffer_t* each = &g->buffers[b];
    bool is_fit = is_float ? qn__dtype_is_float(each->dtype) && each->err <= gen_eps(dtype)
                           : qn__dtype_is_int(each->dtype);
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
  const char* from = qn_dtype_text(buffer->dtype);
  if (is_float) text = gen_text(g, "min(max(%s, %s(-1.0)), %s(1.0))", text, from, from);
  if (buffer->dtype != dtype) text = gen_text(g, "%s(%s)", qn_dtype_text(dtype), text);
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
  bool is_float = qn__dtype_is_float(dtype);
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
  open_block(g, gen_text(g, "parallel %s in 0..%s", i, target->shape[0].text));
  open_block(g, gen_text(g, "%s %s in 0..%s", inner, j, target->shape[1].text));
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
    line(g, "let %s = %s;", v, sum);
    value.text = gen_text(g, "max(%s, %s)", v, other.text);
    if (is_float && other.mag > value.mag) value.mag = other.mag;
  }
  value = gen_tame(g, value);
  line(g, "%s[%s] = %s;", target->name, where, value.text);
  absorb(target, value);
  close_block(g);
  close_block(g);
  leave(g, scope);
  return true;
}

static void launch(gen_t* g, gen_buffer_t* target, const qn_generate_options_t* options) {
  bool is_fresh = !target->is_readable;
  target->is_readable = false;
  bool is_int = qn__dtype_is_int(target->dtype);
  if (options->allows_threads && target->rank == 1 && gen_chance(g, 40)) {
    thread_launch(g, target);
  } else if (is_int && target->rank == 2 && gen_chance(g, 25)) {
    scan_launch(g, target);
  } else if (is_int && !is_fresh && qn_dtype_size_bytes(target->dtype) >= 4 && gen_chance(g, 40)) {
    atomic_launch(g, target);
  } else if (target->rank != 2 || target->dtype == QN_DTYPE_BOOL || !gen_chance(g, 30) ||
             !product_launch(g, target, is_fresh)) {
    elementwise_launch(g, target, is_fresh);
  }
  target->is_readable = true;
}

// ---- the module

static void choose_shape(gen_t* g, gen_buffer_t* buffer) {
  buffer->rank = 1 + gen_below(g, 2);
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    buffer->shape[d] = g->extents[gen_below(g, (uint32_t)g->extent_count)];
  }
}

static void add_param(gen_t* g, const char* prefix, qn_access_t access) {
  qn_generated_t* result = g->result;
  gen_buffer_t* buffer = add_buffer(g, prefix, gen_dtype(g));
  choose_shape(g, buffer);
  bool has_values = access != QN_ACCESS_OUT;
  buffer->is_readable = has_values;
  buffer->is_writable = access != QN_ACCESS_IN;
  buffer->mag = has_values && qn__dtype_is_float(buffer->dtype) ? 4 : 0;
  buffer->param = (int)result->param_count;
  qn_generated_param_t* param = &result->params[result->param_count++];
  *param = (qn_generated_param_t){
      .is_buffer = true, .dtype = buffer->dtype, .access = access, .rank = buffer->rank};
  param->element_count = 1;
  for (uint32_t d = 0; d < buffer->rank; ++d) {
    param->shape[d] = buffer->shape[d].value;
    param->element_count *= (size_t)buffer->shape[d].value;
  }
}

static void add_scalar_param(gen_t* g) {
  qn_generated_t* result = g->result;
  qn_dtype_t dtype = gen_dtype(g);
  gen_scalar_t* scalar = gen_add_scalar(g, "z", dtype, 4, 0);
  qn_generated_param_t* param = &result->params[result->param_count++];
  *param = (qn_generated_param_t){.dtype = dtype};
  qn__scalar_t value = {.i = qn__wrap_int(dtype, (int64_t)gen_below(g, 1000))};
  if (dtype == QN_DTYPE_BOOL) value.i = gen_chance(g, 50);
  if (qn__dtype_is_float(dtype)) value.f = ((double)gen_below(g, 65) - 32) / 8;
  param->scalar_bits = qn__scalar_to_bits(dtype, value);
  scalar->extent = NULL;
}

static void write_signature(gen_t* g) {
  qn__buffer_cstr(&g->out, "func f(");
  size_t buffer = 0, scalar = 0;
  for (size_t i = 0; i < g->result->param_count; ++i) {
    const qn_generated_param_t* param = &g->result->params[i];
    if (i > 0) qn__buffer_cstr(&g->out, ", ");
    if (!param->is_buffer) {
      qn__buffer_format(&g->out, "%s: %s", g->scalars[scalar].name, qn_dtype_text(param->dtype));
      ++scalar;
      continue;
    }
    static const char* const words[] = {"", "", "out ", "inout "};
    const gen_buffer_t* held = &g->buffers[buffer++];
    qn__buffer_format(&g->out, "%s%s: %s", words[param->access], held->name, shape_text(g, held));
  }
  qn__buffer_format(&g->out, ")%s {\n", g->result->is_fast ? " fast" : "");
}

static void make_text(gen_t* g, const qn_generate_options_t* options) {
  qn_generated_t* result = g->result;
  uint32_t large = 1 + gen_below(g, 70), small = 1 + gen_below(g, 9);
  g->extents[g->extent_count++] = (gen_extent_t){"n", gen_chance(g, 50) ? large : small};
  g->extents[g->extent_count++] = (gen_extent_t){"m", 1 + gen_below(g, 40)};
  g->extents[g->extent_count++] = constant_extent(g, 1 + gen_below(g, 9));
  g->extents[g->extent_count++] = constant_extent(g, 8);
  result->is_fast = options->allows_fast && gen_chance(g, 15);

  // The first one shows both symbols.
  add_param(g, "x", QN_ACCESS_IN);
  gen_buffer_t* first = &g->buffers[0];
  first->rank = 2;
  first->shape[0] = g->extents[0];
  first->shape[1] = g->extents[1];
  result->params[0].rank = 2;
  result->params[0].shape[0] = g->extents[0].value;
  result->params[0].shape[1] = g->extents[1].value;
  result->params[0].element_count = (size_t)(g->extents[0].value * g->extents[1].value);
  result->symbols[0] = g->extents[0].value;
  result->symbols[1] = g->extents[1].value;
  uint32_t inputs = 1 + gen_below(g, 3), outputs = 1 + gen_below(g, 3);
  for (uint32_t i = 0; i < inputs; ++i) add_param(g, "x", QN_ACCESS_IN);
  if (gen_chance(g, 60)) add_scalar_param(g);
  for (uint32_t i = 0; i < outputs; ++i) {
    add_param(g, "y", gen_chance(g, 30) ? QN_ACCESS_INOUT : QN_ACCESS_OUT);
  }
  write_signature(g);
  g->indent = 1;
  if (gen_chance(g, 40)) {  // workspace
    gen_buffer_t* work = add_buffer(g, "g", gen_dtype(g));
    choose_shape(g, work);
    work->is_writable = true;
    line(g, "alloc %s: %s in global;", work->name, shape_text(g, work));
  }
  // Every output is written at least once, workspace first.
  size_t fixed = g->buffer_count;
  uint32_t extra = gen_below(g, options->size + 1);
  for (size_t i = fixed; i-- > 0;) {
    bool is_output = g->buffers[i].is_writable;
    if (is_output && (!g->buffers[i].is_readable || i + 1 == fixed)) {
      launch(g, &g->buffers[i], options);
    }
  }
  for (uint32_t i = 0; i < extra; ++i) {
    gen_buffer_t* target = &g->buffers[gen_below(g, (uint32_t)fixed)];
    if (target->is_writable) launch(g, target, options);
  }
  qn__buffer_cstr(&g->out, "}\n");
  for (size_t i = 0; i < fixed; ++i) {
    const gen_buffer_t* buffer = &g->buffers[i];
    if (buffer->param < 0) continue;
    result->params[buffer->param].tolerance = 4 * buffer->err;
  }
}

bool qn_generate(uint64_t seed, const qn_generate_options_t* options, qn_generated_t* out,
                 qn_status_t* out_error) {
  *out = (qn_generated_t){.seed = seed};
  *out_error = QN_OK;
  gen_t* g = calloc(1, sizeof *g);
  if (!g || !(g->pool = malloc(gen_pool_bytes))) abort();
  g->state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
  g->result = out;
  g->allows_faults = options->allows_faults;
  qn__buffer_init(&g->out, qn_allocator_default());
  make_text(g, options);
  out->text = strdup((const char*)g->out.data);
  out->text_size = g->out.size;
  qn__buffer_deinit(&g->out);
  free(g->pool);
  free(g);
  *out_error = qn_module_parse(out->text, out->text_size, NULL, &out->module);
  return qn_ok(*out_error);
}

void qn_generated_release(qn_generated_t* generated) {
  qn_module_release(generated->module);
  free(generated->text);
  *generated = (qn_generated_t){0};
}
