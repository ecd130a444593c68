// SPDX-License-Identifier: Apache-2.0
// conformance/random/generate_order.c: random launches whose blocks share memory that fences,
// atomic loads and atomic stores order.
//
// What a block sees of others depends on their order, its results do not: either all blocks have
// counted, or a value that may not be there yet is computed again, or the block waits for it.
// Shared values are integers, so that a missing or torn one shows. Thread rule: one thread per
// generator.
#include "conformance/random/generator.h"

typedef struct order {
  gen_buffer_t* target;
  qn_dtype_t dtype;    // of what blocks share
  const char* blocks;  // their number
  uint32_t threads;    // of a block
  const char *b, *t;   // the block and the thread
  const char* at;      // the element of the thread
} order_t;

static const char* fresh(gen_t* g, const char* prefix) {
  return gen_text(g, "%s%u", prefix, g->name_count++);
}

// Declares memory that blocks share: an element for each, or one.
static const char* declare(gen_t* g, const order_t* order, qn_dtype_t dtype, bool is_one) {
  const char* name = fresh(g, "g");
  gen_line(g, "alloc %s: %s[%s] in global;", name, qn_dtype_text(dtype),
           is_one ? "" : order->blocks);
  return name;
}

static void open_block(gen_t* g, order_t* order) {
  order->b = fresh(g, "b");
  gen_open(g, gen_text(g, "block.x %s in 0..%s", order->b, order->blocks));
}

static void open_threads(gen_t* g, order_t* order, const char* block) {
  order->t = fresh(g, "t");
  gen_open(g, gen_text(g, "thread.x %s in 0..%u", order->t, order->threads));
  if (!block) return;
  order->at = gen_text(g, "%s", gen_add_scalar(g, "ix", QN_DTYPE_I64, 0, 0)->name);
  gen_line(g, "let %s = %s * %u + %s;", order->at, block, order->threads, order->t);
}

// An integer that is a function of `block` alone, the same in all blocks.
static const char* value_of(gen_t* g, const order_t* order, const char* block, uint32_t factor) {
  return gen_text(g, "%s((%s * %u + 3) %% 101)", qn_dtype_text(order->dtype), block, factor);
}

// Stores what `shared`, a value that blocks shared, and an expression make.
static void store(gen_t* g, const order_t* order, const char* where, const char* shared) {
  gen_buffer_t* target = order->target;
  const char* name = qn_dtype_text(target->dtype);
  gen_value_t value = gen_tame(g, gen_expr(g, target->dtype, 2));
  if (gen_is_float(target->dtype)) {
    double mag = value.mag + 128;
    value.text = gen_text(g, "%s(%s %% 128) + %s", name, shared, value.text);
    value.err += 2 * mag * gen_eps(target->dtype);
    value.mag = mag;
  } else {
    value.text = gen_text(g, "%s(%s) ^ %s", name, shared, value.text);
  }
  gen_open(g, gen_text(g, "if %s < %s", where, target->shape[0].text));
  if (gen_chance(g, 40)) {
    gen_line(g, "atomic_store(%s[%s], %s);", target->name, where, value.text);
  } else {
    gen_line(g, "%s[%s] = %s;", target->name, where, value.text);
  }
  gen_close(g);
  gen_absorb(target, value);
}

// The block that counts last adds up what all have stored, and writes the target.
static void last_block(gen_t* g, order_t* order) {
  const char* parts = declare(g, order, order->dtype, false);
  const char* done = declare(g, order, QN_DTYPE_U32, true);
  gen_line(g, "%s[] = 0;", done);
  open_block(g, order);
  const char *is_last = fresh(g, "s"), *before = fresh(g, "v"), *all = fresh(g, "v");
  gen_line(g, "alloc %s: bool[] in shared;", is_last);
  open_threads(g, order, order->b);
  const char* part = fresh(g, "v");
  gen_line(g, "let %s = block_sum(%s);", part, value_of(g, order, order->at, 1 + gen_below(g, 9)));
  gen_open(g, gen_text(g, "if %s == 0", order->t));
  gen_line(g, "%s[%s] = %s;", parts, order->b, part);
  gen_line(g, "fence;");
  gen_line(g, "let %s = atomic_add(%s[], 1);", before, done);
  gen_line(g, "fence;");
  gen_line(g, "%s[] = i64(%s) == %s - 1;", is_last, before, order->blocks);
  gen_close(g);
  gen_line(g, "barrier;");
  gen_open(g, gen_text(g, "if %s[]", is_last));
  const char *p = fresh(g, "p"), *k = fresh(g, "k");
  gen_line(g, "let %s = sum %s in 0..%s { %s[%s] };", all, p, order->blocks, parts, p);
  gen_open(g, gen_text(g, "for %s in 0..%s", k, order->blocks));
  const char* j = gen_text(g, "%s", gen_add_scalar(g, "jx", QN_DTYPE_I64, 0, 0)->name);
  gen_line(g, "let %s = %s * %u + %s;", j, k, order->threads, order->t);
  store(g, order, j, all);
  gen_close(g);
  gen_close(g);
  gen_close(g);
  gen_close(g);
}

// Blocks look at what another has stored. What is not there yet they compute themselves.
static void look_across(gen_t* g, order_t* order) {
  const char* data = declare(g, order, order->dtype, false);
  const char* flag = declare(g, order, QN_DTYPE_U32, false);
  const char* z = fresh(g, "z");
  uint32_t factor = 1 + gen_below(g, 30);
  gen_open(g, gen_text(g, "parallel %s in 0..%s", z, order->blocks));
  gen_line(g, "%s[%s] = 0;", flag, z);
  gen_close(g);
  open_block(g, order);
  open_threads(g, order, order->b);
  gen_open(g, gen_text(g, "if %s == %u", order->t, gen_below(g, order->threads)));
  gen_line(g, "%s[%s] = %s;", data, order->b, value_of(g, order, order->b, factor));
  if (gen_chance(g, 50)) {
    gen_line(g, "atomic_store(%s[%s], 1);", flag, order->b);
  } else {
    gen_line(g, "fence;");
    gen_line(g, "let %s = atomic_exchange(%s[%s], 1);", fresh(g, "o"), flag, order->b);
  }
  gen_close(g);
  const char *p = fresh(g, "p"), *seen = fresh(g, "v"), *got = fresh(g, "v");
  gen_line(g, "let %s = (%s * %u + %u) %% %s;", p, order->b, 1 + gen_below(g, 3), gen_below(g, 5),
           order->blocks);
  if (gen_chance(g, 50)) {
    gen_line(g, "let %s = atomic_load(%s[%s]);", seen, flag, p);
  } else {
    gen_line(g, "let %s = atomic_add(%s[%s], 0);", seen, flag, p);
    gen_line(g, "fence;");
  }
  gen_line(g, "let %s = %s == 1 ? %s[%s] : %s;", got, seen, data, p, value_of(g, order, p, factor));
  store(g, order, order->at, got);
  gen_close(g);
  gen_close(g);
}

// Sums of all blocks before: a block waits for the one that began before it.
static void look_back(gen_t* g, order_t* order) {
  const char* name = qn_dtype_text(order->dtype);
  const char* next = declare(g, order, QN_DTYPE_U32, true);
  const char* known = declare(g, order, QN_DTYPE_U32, false);
  const char* sums = declare(g, order, order->dtype, false);
  const char* z = fresh(g, "z");
  gen_line(g, "%s[] = 0;", next);
  gen_open(g, gen_text(g, "parallel %s in 0..%s", z, order->blocks));
  gen_line(g, "%s[%s] = 0;", known, z);
  gen_close(g);
  open_block(g, order);
  const char *ticket = fresh(g, "s"), *before = fresh(g, "s"), *old = fresh(g, "o");
  const char *b = fresh(g, "b"), *part = fresh(g, "v"), *seen = fresh(g, "l"), *s = fresh(g, "v");
  gen_line(g, "alloc %s: i64[] in shared;", ticket);
  gen_line(g, "alloc %s: %s[] in shared;", before, name);
  open_threads(g, order, NULL);
  gen_open(g, gen_text(g, "if %s == 0", order->t));
  gen_line(g, "let %s = atomic_add(%s[], 1);", old, next);
  gen_line(g, "%s[] = i64(%s);", ticket, old);
  gen_close(g);
  gen_line(g, "barrier;");
  gen_line(g, "let %s = %s[];", b, ticket);
  order->at = gen_text(g, "%s", gen_add_scalar(g, "ix", QN_DTYPE_I64, 0, 0)->name);
  gen_line(g, "let %s = %s * %u + %s;", order->at, b, order->threads, order->t);
  gen_line(g, "let %s = block_sum(%s);", part, value_of(g, order, order->at, 1 + gen_below(g, 9)));
  gen_open(g, gen_text(g, "if %s == 0", order->t));
  gen_line(g, "%s[] = 0;", before);
  gen_open(g, gen_text(g, "if %s > 0", b));
  gen_line(g, "alloc %s: u32[] in local;", seen);
  gen_line(g, "%s[] = 0;", seen);
  gen_open(g, gen_text(g, "while %s[] == 0", seen));
  gen_line(g, "let %s = atomic_load(%s[%s - 1]);", s, known, b);
  gen_line(g, "%s[] = %s;", seen, s);
  gen_close(g);
  gen_line(g, "%s[] = %s[%s - 1];", before, sums, b);
  gen_close(g);
  gen_line(g, "%s[%s] = %s[] + %s;", sums, b, before, part);
  gen_line(g, "atomic_store(%s[%s], 1);", known, b);
  gen_close(g);
  gen_line(g, "barrier;");
  store(g, order, order->at, gen_text(g, "%s[]", before));
  gen_close(g);
  gen_close(g);
}

void gen_order_launch(gen_t* g, gen_buffer_t* target, bool allows_waits) {
  static const uint32_t sizes[] = {1, 2, 4, 8, 32};
  static const qn_dtype_t dtypes[] = {QN_DTYPE_I32, QN_DTYPE_U32, QN_DTYPE_I64, QN_DTYPE_U64};
  size_t scalar_count = g->scalar_count, buffer_count = g->buffer_count;
  order_t order = {.target = target,
                   .dtype = dtypes[gen_below(g, GEN_COUNT_OF(dtypes))],
                   .threads = sizes[gen_below(g, GEN_COUNT_OF(sizes))]};
  order.blocks = gen_text(g, "ceildiv(%s, %u)", target->shape[0].text, order.threads);
  target->is_readable = false;
  switch (gen_below(g, allows_waits ? 3 : 2)) {
    case 0:
      last_block(g, &order);
      break;
    case 1:
      look_across(g, &order);
      break;
    default:
      look_back(g, &order);
      break;
  }
  target->is_readable = true;
  g->scalar_count = scalar_count;
  g->buffer_count = buffer_count;
  g->result->has_threads = true;
}
