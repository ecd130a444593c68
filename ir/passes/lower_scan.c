// ir/passes/lower_scan.c: replaces scans by loops over local variables.
//
//   scan i in begin..end { x } from (p) with (a), (b) { ... } as (s) { body }   becomes
//   so_far[] = p;
//   for i in begin..end {
//     so_far[] = what the combiner makes of so_far[] and x;
//     let s = so_far[];
//     body
//   }
//
// Threads of a GPU share it in tiles, in which each has `run` neighbours:
// 1. Each thread combines its values. The first one begins with those of the tiles before.
// 2. Steps of 1, 2, 4 and so on combine the result of each thread with those before it.
// 3. Each thread runs its iterations, beginning with the result of the thread before.
// A scan that has the device for itself is three launches, in which blocks have slices of the
// range: they combine the values of each slice, one block scans the results of slices, and each
// slice is scanned from there on.
//
// Combinations keep the order of the range, and the initial values are combined once, before all
// others: so the combiner needs to be associative only. Threads beyond the end have the last value
// of the range, for results that nothing uses: a combiner sees no other values than those of the
// program.
#include "ir/passes/several.h"

enum {
  run = 4,           // neighbours of a thread
  short_tiles = 64,  // of a scan up to which few blocks share it
  few = 16,          // blocks then
  many = 1024,       // blocks of a longer one
};

// ---- one iteration

static void give_results(qn__pass_builder_t* pb, const qn__ir_several_t* several,
                         qn__ir_buffer_t* const* totals, qn__ir_block_t* out) {
  for (uint32_t i = 0; i < several->count; ++i) {
    qn__pb_let_var(pb, out, several->results[i], qn__pb_load(pb, totals[i], NULL, NULL));
  }
}

// Appends the values of iteration `at`, combines them into `totals`, and appends the body, which is
// consumed. The body may store what the values load, so it comes last.
static void append_iteration(qn__pass_builder_t* pb, qn__ir_several_t* several, qn__ir_var_t* at,
                             qn__ir_buffer_t* const* totals, qn__ir_block_t* out) {
  bool is_exclusive = several->kind == QN__SEVERAL_EXCLUSIVE_SCAN;
  qn__several_vars_t values;
  qn__several_exprs_t uses;
  if (!qn__several_values(pb, several, qn__pb_use(pb, at), out, values)) return;
  qn__several_use(pb, values, several->count, uses);
  if (is_exclusive) give_results(pb, several, totals, out);
  qn__several_merge(pb, several, totals, NULL, uses, out);
  if (!is_exclusive) give_results(pb, several, totals, out);
  qn__pb_let_var(pb, out, several->var, qn__pb_use(pb, at));
  qn__block_splice(out, &several->body);
}

static void append_serial(qn__pass_builder_t* pb, qn__ir_several_t* several, qn__ir_block_t* out) {
  qn__several_buffers_t totals;
  if (!qn__several_declare(pb, several, -1, out, totals)) return;
  qn__several_set_initial(pb, several, totals, out);
  qn__ir_var_t* i = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, several->var->name);
  qn__ir_stmt_t* loop = qn__pb_loop(pb, QN_LOOP_SERIAL, i, several->begin, several->end);
  if (!loop) return;
  append_iteration(pb, several, i, totals, &loop->loop.body);
  qn__block_append(out, loop);
}

// ---- tiles

typedef struct tiles {
  qn__pass_builder_t* pb;
  qn__ir_several_t* several;
  int64_t threads;
  qn__ir_var_t *begin, *end;      // of the range, which is not empty where a tile runs
  qn__several_buffers_t carried;  // the result of the tiles before
  qn__several_buffers_t partial[2];
  bool has_initial;  // which `carried` has before the first tile; else it has nothing
} tiles_t;

static void copy_elements(const tiles_t* tiles, qn__ir_buffer_t* const* to, qn__ir_expr_t* to_at,
                          qn__ir_buffer_t* const* from, qn__ir_expr_t* from_at,
                          qn__ir_block_t* out) {
  uint32_t count = tiles->several->count;
  qn__several_exprs_t loads;
  qn__several_load(tiles->pb, from, count, from_at, loads);
  qn__several_store(tiles->pb, to, count, to_at, loads, out);
}

// Appends `if condition { then } else { other }`.
static void append_choice(qn__pass_builder_t* pb, qn__ir_expr_t* condition, qn__ir_block_t then,
                          qn__ir_block_t other, qn__ir_block_t* out) {
  qn__ir_stmt_t* choice = qn__pb_if(pb, condition, then);
  if (choice) choice->if_.else_block = other;
  qn__pb_append(out, choice);
}

// Appends `parallel part in 0..threads` with the index of the thread's first value, and returns its
// body.
static qn__ir_block_t* append_parts(const tiles_t* tiles, qn__ir_var_t* base, qn__ir_block_t* out,
                                    qn__ir_var_t** out_part, qn__ir_var_t** out_first) {
  qn__pass_builder_t* pb = tiles->pb;
  qn__ir_expr_t* count = qn__pb_int(pb, tiles->threads);
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "part", count);
  if (!loop) return NULL;
  qn__block_append(out, loop);
  *out_part = loop->loop.var;
  qn__ir_expr_t* offset = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), run);
  *out_first = qn__pb_let(pb, &loop->loop.body, "first",
                          qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, base), offset));
  return *out_first ? &loop->loop.body : NULL;
}

// Appends the iterations `from` to `run` after `first`, each with an index below the end, and
// returns the body of the last one.
static qn__ir_block_t* append_run(const tiles_t* tiles, int64_t from, qn__ir_var_t* first,
                                  qn__ir_block_t* out, qn__ir_var_t** out_at) {
  qn__pass_builder_t* pb = tiles->pb;
  qn__ir_var_t* step = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, "step");
  qn__ir_stmt_t* loop =
      qn__pb_loop(pb, QN_LOOP_SERIAL, step, qn__pb_int(pb, from), qn__pb_int(pb, run));
  if (!loop) return NULL;
  *out_at = qn__pb_let(pb, &loop->loop.body, "at",
                       qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, first), qn__pb_use(pb, step)));
  if (!*out_at) return NULL;
  qn__ir_expr_t* is_inside =
      qn__pb_op(pb, QN_OP_LT, qn__pb_use(pb, *out_at), qn__pb_use(pb, tiles->end));
  qn__ir_stmt_t* guard = qn__pb_if(pb, is_inside, (qn__ir_block_t){NULL, NULL});
  if (!guard) return NULL;
  qn__block_append(&loop->loop.body, guard);
  qn__block_append(out, loop);
  return &guard->if_.then_block;
}

// Appends step 1.
static void combine_parts(const tiles_t* tiles, qn__ir_var_t* base, qn__ir_expr_t* is_begun,
                          qn__ir_block_t* out) {
  qn__pass_builder_t* pb = tiles->pb;
  qn__ir_several_t* several = tiles->several;
  qn__ir_var_t *part, *first, *at;
  qn__several_buffers_t totals;
  qn__several_vars_t values, begun;
  qn__several_exprs_t carried, uses;
  qn__ir_block_t* body = append_parts(tiles, base, out, &part, &first);
  if (!body || !qn__several_declare(pb, several, -1, body, totals)) return;
  qn__ir_expr_t* last = qn__pb_op_int(pb, QN_OP_SUB, qn__pb_use(pb, tiles->end), 1);
  qn__ir_expr_t* index = qn__pb_op(pb, QN_OP_MIN, qn__pb_use(pb, first), last);
  if (!qn__several_values(pb, several, index, body, values)) return;
  qn__ir_block_t then = {NULL, NULL}, other = {NULL, NULL};
  qn__several_load(pb, tiles->carried, several->count, NULL, carried);
  qn__several_use(pb, values, several->count, uses);
  if (!qn__several_combine(pb, several, carried, uses, &then, begun)) return;
  qn__several_use(pb, begun, several->count, uses);
  qn__several_store(pb, totals, several->count, NULL, uses, &then);
  qn__several_use(pb, values, several->count, uses);
  qn__several_store(pb, totals, several->count, NULL, uses, &other);
  qn__ir_expr_t* is_first = qn__pb_op_int(pb, QN_OP_EQ, qn__pb_use(pb, part), 0);
  append_choice(pb, qn__pb_both(pb, is_first, is_begun), then, other, body);
  qn__ir_block_t* step = append_run(tiles, 1, first, body, &at);
  if (!step || !qn__several_values(pb, several, qn__pb_use(pb, at), step, values)) return;
  qn__several_use(pb, values, several->count, uses);
  qn__several_merge(pb, several, totals, NULL, uses, step);
  copy_elements(tiles, tiles->partial[0], qn__pb_use(pb, part), totals, NULL, body);
}

// Appends step 2, and returns where the results are.
static qn__ir_buffer_t* const* combine_steps(const tiles_t* tiles, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = tiles->pb;
  const qn__ir_several_t* several = tiles->several;
  uint32_t from = 0;
  for (int64_t step = 1; step < tiles->threads; step *= 2, from ^= 1) {
    qn__ir_buffer_t* const* with = tiles->partial[from];
    qn__ir_buffer_t* const* to = tiles->partial[from ^ 1];
    qn__ir_stmt_t* loop =
        qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "part", qn__pb_int(pb, tiles->threads));
    if (!loop) return NULL;
    qn__ir_var_t* part = loop->loop.var;
    qn__ir_block_t then = {NULL, NULL}, other = {NULL, NULL};
    qn__several_exprs_t left, right, uses;
    qn__several_vars_t merged;
    qn__ir_expr_t* before = qn__pb_op_int(pb, QN_OP_SUB, qn__pb_use(pb, part), step);
    qn__several_load(pb, with, several->count, before, left);
    qn__several_load(pb, with, several->count, qn__pb_use(pb, part), right);
    if (!qn__several_combine(pb, several, left, right, &then, merged)) return NULL;
    qn__several_use(pb, merged, several->count, uses);
    qn__several_store(pb, to, several->count, qn__pb_use(pb, part), uses, &then);
    copy_elements(tiles, to, qn__pb_use(pb, part), with, qn__pb_use(pb, part), &other);
    qn__ir_expr_t* has_left = qn__pb_op_int(pb, QN_OP_GE, qn__pb_use(pb, part), step);
    append_choice(pb, has_left, then, other, &loop->loop.body);
    qn__block_append(out, loop);
  }
  return tiles->partial[from];
}

// Appends step 3.
static void run_parts(const tiles_t* tiles, qn__ir_var_t* base, qn__ir_buffer_t* const* results,
                      qn__ir_block_t* out) {
  qn__pass_builder_t* pb = tiles->pb;
  qn__ir_var_t *part, *first, *at;
  qn__several_buffers_t totals;
  qn__ir_block_t* body = append_parts(tiles, base, out, &part, &first);
  if (!body || !qn__several_declare(pb, tiles->several, -1, body, totals)) return;
  qn__ir_block_t then = {NULL, NULL}, other = {NULL, NULL};
  copy_elements(tiles, totals, NULL, tiles->carried, NULL, &then);
  copy_elements(tiles, totals, NULL, results, qn__pb_op_int(pb, QN_OP_SUB, qn__pb_use(pb, part), 1),
                &other);
  append_choice(pb, qn__pb_op_int(pb, QN_OP_EQ, qn__pb_use(pb, part), 0), then, other, body);
  qn__ir_block_t* step = append_run(tiles, 0, first, body, &at);
  if (step) append_iteration(pb, tiles->several, at, totals, step);
}

// Appends a loop over the tiles of the range, which leaves what all of its values make in
// `carried`. Runs the body only if there are initial values.
static void append_tiles(tiles_t* tiles, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = tiles->pb;
  for (uint32_t i = 0; i < 2; ++i) {
    if (!qn__several_declare(pb, tiles->several, tiles->threads, out, tiles->partial[i])) return;
  }
  int64_t size = tiles->threads * run;
  qn__ir_expr_t* extent =
      qn__pb_range(pb, qn__pb_use(pb, tiles->begin), qn__pb_use(pb, tiles->end));
  qn__ir_stmt_t* loop =
      qn__pb_count_loop(pb, QN_LOOP_SERIAL, "tile", qn__pb_op_int(pb, QN_OP_CEILDIV, extent, size));
  if (!loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  qn__ir_var_t* tile = loop->loop.var;
  qn__ir_expr_t* offset = qn__pb_op_int(pb, QN_OP_MUL, qn__pb_use(pb, tile), size);
  qn__ir_var_t* base =
      qn__pb_let(pb, body, "base", qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, tiles->begin), offset));
  qn__ir_expr_t* is_begun = tiles->has_initial
                                ? qn__expr_int(pb->arena, QN_DTYPE_BOOL, 1)
                                : qn__pb_op_int(pb, QN_OP_GT, qn__pb_use(pb, tile), 0);
  if (!base) return;
  combine_parts(tiles, base, is_begun, body);
  qn__ir_buffer_t* const* results = combine_steps(tiles, body);
  if (!results) return;
  if (tiles->has_initial) run_parts(tiles, base, results, body);
  copy_elements(tiles, tiles->carried, NULL, results, qn__pb_int(pb, tiles->threads - 1), body);
  qn__block_append(out, loop);
}

// Appends a scan by the threads of a block.
static void append_block(qn__pass_builder_t* pb, qn__ir_several_t* several, int64_t threads,
                         qn__ir_var_t* begin, qn__ir_var_t* end, qn__ir_block_t* out) {
  tiles_t tiles = {.pb = pb,
                   .several = several,
                   .threads = threads,
                   .begin = begin,
                   .end = end,
                   .has_initial = true};
  if (!qn__several_declare(pb, several, -1, out, tiles.carried)) return;
  qn__several_set_initial(pb, several, tiles.carried, out);
  append_tiles(&tiles, out);
}

// ---- slices

typedef struct slices {
  qn__pass_builder_t* pb;
  qn__ir_several_t* several;
  int64_t threads;
  int64_t count;
  qn__ir_var_t *begin, *end;
  qn__ir_var_t* size;                // of a slice: whole tiles
  qn__several_buffers_t sums;        // of each slice that is not the last one
  qn__several_buffers_t beginnings;  // what a slice begins with
} slices_t;

// Appends `parallel slice in 0..count` with the range of the slice, and returns its body.
static qn__ir_block_t* append_slices(const slices_t* slices, qn__ir_block_t* out,
                                     qn__ir_var_t** out_slice, qn__ir_var_t** out_begin,
                                     qn__ir_var_t** out_end) {
  qn__pass_builder_t* pb = slices->pb;
  qn__ir_stmt_t* loop =
      qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "slice", qn__pb_int(pb, slices->count));
  if (!loop) return NULL;
  qn__block_append(out, loop);
  qn__ir_block_t* body = &loop->loop.body;
  *out_slice = loop->loop.var;
  qn__ir_expr_t* offset =
      qn__pb_op(pb, QN_OP_MUL, qn__pb_use(pb, loop->loop.var), qn__pb_use(pb, slices->size));
  *out_begin =
      qn__pb_let(pb, body, "from", qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, slices->begin), offset));
  if (!*out_begin) return NULL;
  qn__ir_expr_t* next =
      qn__pb_op(pb, QN_OP_ADD, qn__pb_use(pb, *out_begin), qn__pb_use(pb, slices->size));
  *out_end =
      qn__pb_let(pb, body, "to", qn__pb_op(pb, QN_OP_MIN, next, qn__pb_use(pb, slices->end)));
  return *out_end ? body : NULL;
}

// Appends the launch that combines the values of each slice.
static void append_sums(const slices_t* slices, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = slices->pb;
  qn__ir_several_t* several = slices->several;
  tiles_t tiles = {.pb = pb, .several = several, .threads = slices->threads};
  qn__ir_var_t* slice;
  qn__ir_block_t* body = append_slices(slices, out, &slice, &tiles.begin, &tiles.end);
  if (!body || !qn__several_declare(pb, several, -1, body, tiles.carried)) return;
  append_tiles(&tiles, body);
  copy_elements(&tiles, slices->sums, qn__pb_use(pb, slice), tiles.carried, NULL, body);
}

// Appends the launch of one block that scans the results of slices.
static void append_beginnings(const slices_t* slices, qn__ir_expr_t* used, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = slices->pb;
  qn__ir_several_t scan = *slices->several;
  scan.kind = QN__SEVERAL_EXCLUSIVE_SCAN;
  scan.lets = scan.body = (qn__ir_block_t){NULL, NULL};
  scan.var = qn__pb_var(pb, QN__VAR_REDUCE, QN_DTYPE_I64, "slice");
  qn__ir_stmt_t* loop = qn__pb_count_loop(pb, QN_LOOP_PARALLEL, "group", qn__pb_int(pb, 1));
  if (!loop || !scan.var) return;
  qn__several_exprs_t results;
  for (uint32_t i = 0; i < scan.count; ++i) {
    scan.results[i] = qn__pb_var(pb, QN__VAR_LET, scan.values[i]->dtype, "beginning");
    if (!scan.results[i]) return;
  }
  qn__several_load(pb, slices->sums, scan.count, qn__pb_use(pb, scan.var), scan.values);
  qn__several_use(pb, scan.results, scan.count, results);
  qn__several_store(pb, slices->beginnings, scan.count, qn__pb_use(pb, scan.var), results,
                    &scan.body);
  qn__ir_var_t* begin = qn__pb_let(pb, &loop->loop.body, "begin", qn__pb_int(pb, 0));
  qn__ir_var_t* end = qn__pb_let(pb, &loop->loop.body, "end", used);
  if (!begin || !end || qn__pb_stopped(pb)) return;
  append_block(pb, &scan, slices->threads, begin, end, &loop->loop.body);
  qn__block_append(out, loop);
}

// Appends a scan that has the device for itself.
static void append_launches(slices_t* slices, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = slices->pb;
  qn__ir_several_t* several = slices->several;
  int64_t tile = slices->threads * run;
  if (!qn__several_declare(pb, several, slices->count, out, slices->sums) ||
      !qn__several_declare(pb, several, slices->count, out, slices->beginnings)) {
    return;
  }
  qn__ir_var_t* extent =
      qn__pb_let(pb, out, "extent",
                 qn__pb_range(pb, qn__pb_use(pb, slices->begin), qn__pb_use(pb, slices->end)));
  if (!extent) return;
  qn__ir_expr_t* share =
      qn__pb_op_int(pb, QN_OP_CEILDIV, qn__pb_use(pb, extent), tile * slices->count);
  share = qn__pb_op(pb, QN_OP_MAX, share, qn__pb_int(pb, 1));
  slices->size = qn__pb_let(pb, out, "size", qn__pb_op_int(pb, QN_OP_MUL, share, tile));
  if (!slices->size) return;
  append_sums(slices, out);
  append_beginnings(
      slices, qn__pb_op(pb, QN_OP_CEILDIV, qn__pb_use(pb, extent), qn__pb_use(pb, slices->size)),
      out);
  qn__ir_var_t *slice, *begin, *end;
  qn__ir_block_t* body = append_slices(slices, out, &slice, &begin, &end);
  if (!body) return;
  qn__ir_several_t scan = *several;
  qn__several_load(pb, slices->beginnings, scan.count, qn__pb_use(pb, slice), scan.initial);
  if (!qn__pb_stopped(pb)) append_block(pb, &scan, slices->threads, begin, end, body);
}

void qn__lower_scan(qn__pass_builder_t* pb, const qn__ir_stmt_t* stmt, qn__several_place_t place,
                    qn__ir_block_t* out) {
  qn__ir_several_t* several = stmt->several;
  int64_t threads = qn__several_threads(pb, stmt, place);
  if (threads == 0) {
    append_serial(pb, several, out);
    return;
  }
  qn__ir_var_t* begin = qn__pb_let(pb, out, "begin", several->begin);
  qn__ir_var_t* end = qn__pb_let(pb, out, "end", several->end);
  if (!begin || !end) return;
  if (!place.is_at_top) {
    append_block(pb, several, threads, begin, end, out);
    return;
  }
  int64_t trips = qn__const_trips(several->begin, several->end);
  bool is_short = trips >= 0 && trips <= short_tiles * threads * run;
  slices_t slices = {.pb = pb,
                     .several = several,
                     .threads = threads,
                     .count = is_short ? few : many,
                     .begin = begin,
                     .end = end};
  append_launches(&slices, out);
}
