// SPDX-License-Identifier: Apache-2.0
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
// Threads of a GPU share it in tiles, in which each has a run of neighbours:
// 1. The threads compute the values, of which adjacent threads have adjacent ones.
// 2. Each thread combines its run, and keeps what each value makes with those before it.
// 3. A thread for each group of runs combines these.
// 4. Such a thread combines the groups before its own, and tells each run what it begins with.
// 5. The threads run the body, again with adjacent iterations.
// A scan that has the device for itself is three launches, in which blocks have slices of the
// range: they combine the values of each slice, one block scans the results of slices, and each
// slice is scanned from there on.
//
// Combinations keep the order of the range, and the initial values are combined once, before all
// others: so the combiner needs to be associative only. A tile beyond the end has the last value of
// the range there, for results that nothing uses: a combiner sees no other values than those of
// the program.
#include "ir/passes/scan_tiles.h"

enum {
  short_range = 512,  // values for each thread up to which few blocks share it
  few = 16,           // blocks then
  many = 1024,        // blocks of a longer one
};

// ---- one iteration after another

// The body may store what the values load, so it comes last.
static void append_serial(qn__pass_builder_t* pb, qn__ir_several_t* several, qn__ir_block_t* out) {
  bool is_exclusive = several->kind == QN__SEVERAL_EXCLUSIVE_SCAN;
  qn__several_buffers_t totals;
  qn__several_vars_t values;
  qn__several_exprs_t uses;
  if (!qn__several_declare(pb, several, -1, out, totals)) return;
  qn__several_set_initial(pb, several, totals, NULL, out);
  qn__ir_var_t* i = qn__pb_var(pb, QN__VAR_LOOP, QN_DTYPE_I64, several->var->name);
  qn__ir_stmt_t* loop = qn__pb_loop(pb, QN_LOOP_SERIAL, i, several->begin, several->end);
  if (!loop) return;
  qn__ir_block_t* body = &loop->loop.body;
  if (!qn__several_values(pb, several, qn__pb_use(pb, i), body, values)) return;
  qn__several_use(pb, values, several->count, uses);
  if (is_exclusive) qn__several_give_results(pb, several, totals, body);
  qn__several_merge(pb, several, totals, NULL, uses, body);
  if (!is_exclusive) qn__several_give_results(pb, several, totals, body);
  qn__scan_append_body(pb, several, i, body);
  qn__block_append(out, loop);
}

// Appends a scan of `trips` values, -1: unknown, by the threads of a block.
static void append_block(qn__pass_builder_t* pb, qn__ir_several_t* several, int64_t scan_count,
                         int64_t threads, int64_t trips, qn__ir_var_t* begin, qn__ir_var_t* end,
                         qn__ir_block_t* out) {
  qn__scan_tiles_t tiles = {.pb = pb,
                            .several = several,
                            .scan_count = scan_count,
                            .threads = threads,
                            .begin = begin,
                            .end = end,
                            .has_body = true};
  qn__scan_choose_size(&tiles, trips);
  if (!qn__several_declare(pb, several, -1, out, tiles.carried)) return;
  qn__several_set_initial(pb, several, tiles.carried, NULL, out);
  qn__scan_append_tiles(&tiles, out);
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
  qn__scan_tiles_t tiles = {
      .pb = pb, .several = several, .scan_count = 1, .threads = slices->threads};
  qn__scan_choose_size(&tiles, -1);
  qn__ir_var_t* slice;
  qn__ir_block_t* body = append_slices(slices, out, &slice, &tiles.begin, &tiles.end);
  if (!body || !qn__several_declare(pb, several, -1, body, tiles.carried)) return;
  qn__scan_append_tiles(&tiles, body);
  qn__several_copy(pb, several->count, slices->sums, qn__pb_use(pb, slice), tiles.carried, NULL,
                   body);
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
  append_block(pb, &scan, 1, slices->threads, slices->count, begin, end, &loop->loop.body);
  qn__block_append(out, loop);
}

// Appends a scan that has the device for itself.
static void append_launches(slices_t* slices, qn__ir_block_t* out) {
  qn__pass_builder_t* pb = slices->pb;
  qn__ir_several_t* several = slices->several;
  qn__scan_tiles_t tiles = {
      .pb = pb, .several = several, .scan_count = 1, .threads = slices->threads};
  qn__scan_choose_size(&tiles, -1);
  int64_t tile = tiles.threads * tiles.run;
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
  if (!qn__pb_stopped(pb)) append_block(pb, &scan, 1, slices->threads, -1, begin, end, body);
}

void qn__lower_scan(qn__pass_builder_t* pb, const qn__ir_stmt_t* stmt, qn__several_place_t place,
                    qn__ir_block_t* out) {
  qn__ir_several_t* several = stmt->several;
  int64_t threads = qn__several_threads(pb, stmt, place);
  int64_t trips = qn__const_trips(several->begin, several->end);
  if (threads == 0) {
    append_serial(pb, several, out);
    return;
  }
  qn__ir_var_t* begin = qn__pb_let(pb, out, "begin", several->begin);
  qn__ir_var_t* end = qn__pb_let(pb, out, "end", several->end);
  if (!begin || !end) return;
  if (!place.is_at_top) {
    append_block(pb, several, place.scan_count, threads, trips, begin, end, out);
    return;
  }
  bool is_short = trips >= 0 && trips <= short_range * threads;
  slices_t slices = {.pb = pb,
                     .several = several,
                     .threads = threads,
                     .count = is_short ? few : many,
                     .begin = begin,
                     .end = end};
  append_launches(&slices, out);
}
