// SPDX-License-Identifier: Apache-2.0
// ir/verify_place.c: checks the places of loops, allocations and barriers, and their sizes.
//
// Not here: control flow that divides threads (verify_uniform.c).
#include <assert.h>
#include <stdio.h>

#include "ir/verifier.h"

enum {
  LARGEST_VECTOR = 1024,  // lanes
  LARGEST_UNROLL = 4096,  // copies
  LARGEST_LOCAL_BYTES = 64 * 1024,
  LARGEST_SHARED_BYTES = 256 * 1024,
  // In a lowered body, shared memory is local. So are the arrays over threads that hold values used
  // on both sides of a barrier.
  LARGEST_LOWERED_BYTES = 256 * 1024 * 1024,
};

static bool is_loop(const qn__verify_place_t* place) {
  return place->stmt && place->stmt->kind == QN__STMT_LOOP;
}

static bool is_scan(const qn__verify_place_t* place) {
  return place->stmt && place->stmt->kind == QN__STMT_REDUCE;
}

// Returns whether it is a loop of a kind for which `matches` is true. A scan counts as a parallel
// loop.
static bool is_loop_of(const qn__verify_place_t* place, bool (*matches)(qn_loop_kind_t kind)) {
  return is_scan(place) ? matches(QN_LOOP_PARALLEL)
                        : is_loop(place) && matches(place->stmt->loop.kind);
}

// Returns the word that begins the loop.
static const char* text_of(const qn__verify_place_t* place) {
  if (is_loop(place)) return qn__loop_kind_text(place->stmt->loop.kind);
  return is_scan(place) ? qn__several_text(place->stmt->several->kind) : "while";
}

static qn__ir_loc_t loc_of(const qn__verify_place_t* place) {
  return place->stmt ? place->stmt->loc : (qn__ir_loc_t){0, 0};
}

// Returns the innermost enclosing loop for which `matches` is true, or NULL.
static qn__verify_place_t* find_loop(const qn__verifier_t* v,
                                     bool (*matches)(qn_loop_kind_t kind)) {
  qn__verify_place_t* place = v->place;
  while (place && !is_loop_of(place, matches)) place = place->outer;
  return place;
}

bool qn__verify_has_loop(const qn__verifier_t* v, qn_loop_kind_t kind) {
  const qn__verify_place_t* place = v->place;
  while (place && !(is_loop(place) && place->stmt->loop.kind == kind)) place = place->outer;
  return place != NULL;
}

static bool is_vector(qn_loop_kind_t kind) {
  return kind == QN_LOOP_VECTOR;
}
// Returns whether the loop's iterations have no order and cannot wait for each other.
static bool is_free(qn_loop_kind_t kind) {
  return kind == QN_LOOP_VECTOR || kind == QN_LOOP_PARALLEL;
}

// ------------------------------------------------------------------------------------ loops

static void check_axis(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  const char* text = qn__loop_kind_text(stmt->loop.kind);
  for (qn__verify_place_t* place = v->place; place; place = place->outer) {
    if (!is_loop(place) || place->stmt->loop.kind != stmt->loop.kind) continue;
    (void)qn__verify_error(v, QN__VERIFY_LOOP_PLACE, stmt->loc,
                           "each of x, y and z may be used once", "'%s' inside another '%s'", text,
                           text);
    qn__verify_note(v, loc_of(place), "the outer one is here");
    return;
  }
}

static void refuse_grid_extent(qn__verifier_t* v, const qn__ir_stmt_t* stmt,
                               const qn__ir_expr_t* bound) {
  (void)qn__verify_error(v, QN__VERIFY_GRID, bound->loc,
                         "use a bound of symbols, scalars and literals, and an 'if' inside",
                         "the extent of '%s' is not known before the launch",
                         qn__loop_kind_text(stmt->loop.kind));
}

// Checks that the host knows the extents of the grid and the block, which are fixed at the launch.
static void check_grid_extent(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  for (int i = 0; i < 2; i++) {
    const qn__ir_expr_t* bound = i == 0 ? stmt->loop.begin : stmt->loop.end;
    if (!qn__verify_is_host(v, bound)) {
      refuse_grid_extent(v, stmt, bound);
      return;
    }
    qn__verify_place_t* place = qn__verify_loop_of(v, bound);
    for (; place && place->stmt; place = place->outer) {
      if (place->bound) continue;
      place->bound = bound;
      place->bound_of = stmt;
    }
  }
}

// Returns whether the host can run the loop itself, if no other loop is around it.
static bool is_of_host(const qn__verifier_t* v, const qn__verify_place_t* place) {
  if (!is_loop(place)) return false;
  const qn__ir_stmt_t* loop = place->stmt;
  if (loop->loop.kind != QN_LOOP_SERIAL && loop->loop.kind != QN_LOOP_UNROLL) return false;
  return qn__verify_is_host(v, loop->loop.begin) && qn__verify_is_host(v, loop->loop.end);
}

bool qn__verify_is_host_loop(const qn__verifier_t* v, const qn__verify_place_t* place) {
  while (is_of_host(v, place)) place = place->outer;
  return !place->stmt;
}

static void refuse_block_place(qn__verifier_t* v, const qn__ir_stmt_t* stmt,
                               const qn__verify_place_t* place, const char* why) {
  const char* text = text_of(place);
  (void)qn__verify_error(v, QN__VERIFY_LOOP_PLACE, stmt->loc,
                         "block loops are outermost, inside other block loops, or inside loops "
                         "whose bounds are symbols, scalars and literals",
                         "'%s' inside of '%s'%s", qn__loop_kind_text(stmt->loop.kind), text, why);
  qn__verify_note(v, loc_of(place), "'%s' is here", text);
}

static void check_block_place(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  for (qn__verify_place_t* place = v->place; place->stmt; place = place->outer) {
    if (is_loop(place) && qn__loop_is_block(place->stmt->loop.kind)) continue;
    if (is_of_host(v, place)) {
      if (!place->launch) place->launch = stmt;
      continue;
    }
    bool is_serial = is_loop(place) && place->stmt->loop.kind == QN_LOOP_SERIAL;
    refuse_block_place(v, stmt, place,
                       is_serial ? " whose bounds are not known before the launch" : "");
    return;
  }
}

// The symbols and integer scalars without which an expression would be constant.
typedef struct unknowns {
  const qn__ir_var_t* vars[8];  // there may be more
  size_t count;
} unknowns_t;

// Stops at anything else that is not known.
static bool note_unknown(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  unknowns_t* unknowns = walker->self;
  if (expr->kind == QN__EXPR_LOAD || expr->kind == QN__EXPR_REDUCE) return false;
  if (expr->kind == QN__EXPR_OP) return qn__op_info(expr->op)->rule < QN__RULE_LANE;
  if (expr->kind != QN__EXPR_VAR) return true;
  const qn__ir_var_t* var = expr->var;
  bool is_scalar = var->kind == QN__VAR_SCALAR && qn__dtype_is_int(var->dtype);
  if (var->kind != QN__VAR_SYMBOL && !is_scalar) return false;
  size_t i = 0;
  while (i < unknowns->count && unknowns->vars[i] != var) i++;
  if (i < QN_COUNT_OF(unknowns->vars) && i == unknowns->count) {
    unknowns->vars[unknowns->count++] = var;
  }
  return true;
}

enum { NEEDS_BYTES = 200 };

// Writes "must be constant: set n and d" where these names are all that is missing, or "must be
// constant".
static void write_needs(qn__ir_expr_t* expr, char out[NEEDS_BYTES]) {
  unknowns_t unknowns = {.count = 0};
  qn__ir_walker_t walker = {.on_expr = note_unknown, .self = &unknowns};
  bool is_settable = qn__walk_expr(&walker, expr);
  size_t size = (size_t)snprintf(out, NEEDS_BYTES, "must be constant");
  for (size_t i = 0; is_settable && i < unknowns.count && size < NEEDS_BYTES - 1; i++) {
    const char* between = i == 0 ? ": set " : i + 1 < unknowns.count ? ", " : " and ";
    size +=
        (size_t)snprintf(out + size, NEEDS_BYTES - size, "%s%s", between, unknowns.vars[i]->name);
  }
}

static void check_constant_extent(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  const char* text = qn__loop_kind_text(stmt->loop.kind);
  int64_t limit = stmt->loop.kind == QN_LOOP_VECTOR ? LARGEST_VECTOR : LARGEST_UNROLL;
  qn__ir_scalar_t begin;
  qn__ir_scalar_t end;
  bool has_begin = qn__expr_fold(stmt->loop.begin, &begin);
  if (!has_begin || !qn__expr_fold(stmt->loop.end, &end)) {
    qn__ir_expr_t* bound = has_begin ? stmt->loop.end : stmt->loop.begin;
    char needs[NEEDS_BYTES];
    write_needs(bound, needs);
    (void)qn__verify_error(v, QN__VERIFY_EXTENT, bound->loc,
                           "use literals or --set; a loop of any length is a 'for' around it",
                           "a bound of '%s' %s", text, needs);
    return;
  }
  int64_t extent;
  if (__builtin_sub_overflow(end.i, begin.i, &extent) || extent > limit) {
    (void)qn__verify_error(v, QN__VERIFY_EXTENT, stmt->loop.end->loc, NULL,
                           "'%s' has more than %" PRId64 " iterations", text, limit);
  }
}

static void check_no_scan(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  const qn__verify_place_t* place = v->place;
  while (place && !is_scan(place)) place = place->outer;
  if (!place) return;
  (void)qn__verify_error(v, QN__VERIFY_LOOP_PLACE, stmt->loc, "put the scan inside, or use a 'for'",
                         "'%s' inside of '%s'", qn__loop_kind_text(stmt->loop.kind),
                         text_of(place));
  qn__verify_note(v, loc_of(place), "'%s' is here", text_of(place));
}

void qn__verify_loop_place(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  qn_loop_kind_t kind = stmt->loop.kind;
  bool is_grid = qn__loop_is_block(kind) || qn__loop_is_thread(kind);
  if (is_grid) {
    check_axis(v, stmt);
    check_grid_extent(v, stmt);
  }
  if (qn__loop_is_block(kind)) check_block_place(v, stmt);
  if (qn__loop_is_thread(kind)) check_no_scan(v, stmt);
  qn__verify_place_t* vector = qn__loop_is_thread(kind) ? find_loop(v, is_vector) : NULL;
  if (vector) {
    (void)qn__verify_error(v, QN__VERIFY_LOOP_PLACE, stmt->loc, "put the vector loop inside",
                           "'%s' inside of 'vector'", qn__loop_kind_text(kind));
    qn__verify_note(v, loc_of(vector), "'vector' is here");
  }
  if (kind == QN_LOOP_VECTOR || kind == QN_LOOP_UNROLL) check_constant_extent(v, stmt);
  for (qn__verify_place_t* place = v->place; is_grid && place; place = place->outer) {
    place->has_inner_thread |= qn__loop_is_thread(kind);
    place->has_inner_block |= qn__loop_is_block(kind);
  }
}

// Checks the body of a block loop. Nested block loops are one grid, so each block would repeat the
// statements beside the inner loop.
static void check_grid_body(qn__verifier_t* v, const qn__ir_stmt_t* loop) {
  uint32_t loop_count = 0;
  for (const qn__ir_stmt_t* stmt = loop->loop.body.first; stmt; stmt = stmt->next) {
    bool is_inner = stmt->kind == QN__STMT_LOOP && qn__loop_is_block(stmt->loop.kind);
    bool is_harmless =
        stmt->kind == QN__STMT_LET || stmt->kind == QN__STMT_ASSERT ||
        (stmt->kind == QN__STMT_ALLOC && (stmt->alloc.buffer->scope == QN__SCOPE_CONST ||
                                          stmt->alloc.buffer->scope == QN__SCOPE_VIEW));
    if (is_harmless || (is_inner && loop_count++ == 0)) continue;
    (void)qn__verify_error(v, QN__VERIFY_LOOP_PLACE, stmt->loc,
                           "move it into the inner block loop, or make it a launch of its own",
                           "a block loop that holds another one may hold only lets beside it");
    return;
  }
}

void qn__verify_leave_loop(qn__verifier_t* v, const qn__verify_place_t* place) {
  assert(is_loop(place));
  qn_loop_kind_t kind = place->stmt->loop.kind;
  if (qn__loop_is_block(kind) && place->has_inner_block) check_grid_body(v, place->stmt);
  if (qn__loop_is_thread(kind) && place->has_inner_thread && place->has_sync) {
    (void)qn__verify_error(
        v, QN__VERIFY_BARRIER, place->sync_loc,
        "move it into the inner thread loop, or remove it: threads synchronize at its end",
        "threads cannot synchronize here: there is another thread loop beside it");
  }
  // A loop that ends early becomes a 'while' (passes/lower_leaves.c), which the host does not run.
  if (!place->is_left) return;
  if (place->launch) {
    refuse_block_place(v, place->launch, place, " that a 'break', 'continue' or 'return' leaves");
  } else if (place->bound) {
    refuse_grid_extent(v, place->bound_of, place->bound);
  }
}

// ------------------------------------------------------------------------------------
// synchronization

void qn__verify_sync(qn__verifier_t* v, qn__ir_loc_t loc) {
  qn__verify_place_t* thread = find_loop(v, qn__loop_is_thread);
  qn__verify_place_t* unordered = find_loop(v, is_free);
  if (QN_NEVER(!thread)) return;
  for (qn__verify_place_t* place = unordered; place; place = place->outer) {
    if (place != thread) continue;
    (void)qn__verify_error(v, QN__VERIFY_BARRIER, loc,
                           is_scan(unordered) ? "use a 'for' loop" : "make that loop a 'for'",
                           "threads cannot synchronize inside of '%s'", text_of(unordered));
    qn__verify_note(v, loc_of(unordered), "'%s' is here", text_of(unordered));
    break;
  }
  thread->has_sync = true;
  thread->sync_loc = loc;
}

void qn__verify_barrier_place(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  if (v->lane_depth == 0) {
    (void)qn__verify_error(
        v, QN__VERIFY_BARRIER, stmt->loc,
        "a barrier stands inside thread.x, thread.y or thread.z; launches are in order "
        "without one",
        "a barrier outside of every thread loop");
    return;
  }
  qn__verify_sync(v, stmt->loc);
}

void qn__verify_order_place(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  if (v->lane_depth == 0) {
    if (v->is_lowered) return;  // processors without thread loops have other loops instead
    (void)qn__verify_error(
        v, QN__VERIFY_ORDER, stmt->loc, "put it into a loop over thread.x, thread.y or thread.z",
        "%s outside of every thread loop",
        stmt->kind == QN__STMT_FENCE ? "a fence" : qn__atomic_text(stmt->atomic.op));
    return;
  }
  qn__verify_sync(v, stmt->loc);
}

// ------------------------------------------------------------------------------------ allocations

// Computes the number of elements of a constant shape of positive extents. Returns false after a
// report.
static bool constant_count(qn__verifier_t* v, const qn__ir_buffer_t* buffer, uint64_t* out_count) {
  uint64_t count = 1;
  for (uint32_t i = 0; i < buffer->rank; i++) {
    qn__ir_scalar_t extent;
    if (!qn__expr_fold(buffer->shape[i], &extent)) {
      char needs[NEEDS_BYTES];
      write_needs(buffer->shape[i], needs);
      return qn__verify_error(
          v, QN__VERIFY_ALLOC_SHAPE, buffer->shape[i]->loc,
          "use literals or --set, or allocate it in global at the top of the function",
          "the shape of '%s' in %s %s", buffer->name, qn__scope_text(buffer->scope), needs);
    }
    if (extent.i <= 0 || __builtin_mul_overflow(count, (uint64_t)extent.i, &count)) {
      return qn__verify_error(v, QN__VERIFY_ALLOC_SIZE, buffer->shape[i]->loc, NULL,
                              "extent %" PRIu32 " of '%s' is %" PRId64 "%s", i, buffer->name,
                              extent.i,
                              extent.i <= 0 ? ", expected at least 1" : ": too many elements");
    }
  }
  *out_count = count;
  return true;
}

// Computes the bytes of a constant shape, and checks the limit. Returns false after a report.
static bool bounded_bytes(qn__verifier_t* v, const qn__ir_buffer_t* buffer, uint64_t used,
                          uint64_t limit, const char* whose, uint64_t* out_bytes) {
  uint64_t count;
  uint64_t bytes;
  if (!constant_count(v, buffer, &count)) return false;
  if (!__builtin_mul_overflow(count, (uint64_t)qn_dtype_size_bytes(buffer->dtype), &bytes) &&
      bytes <= limit && used <= limit - bytes) {
    *out_bytes = bytes;
    return true;
  }
  return qn__verify_error(v, QN__VERIFY_ALLOC_SIZE, buffer->loc,
                          "use smaller tiles, or global memory",
                          "'%s' in %s exceeds the limit of %" PRIu64 " bytes %s", buffer->name,
                          qn__scope_text(buffer->scope), limit, whose);
}

static void check_shared(qn__verifier_t* v, const qn__ir_buffer_t* buffer) {
  const char* problem = NULL;
  if (!find_loop(v, qn__loop_is_block) && !v->is_lowered) {
    problem = "outside of every block loop";
  } else if (find_loop(v, qn__loop_is_thread)) {
    problem = "inside of a thread loop";
  } else if (find_loop(v, v->is_lowered ? is_vector : is_free)) {
    problem = "inside of a loop whose iterations are concurrent";
  }
  if (problem) {
    (void)qn__verify_error(
        v, QN__VERIFY_ALLOC_PLACE, buffer->loc,
        "shared memory is allocated inside the block loops and outside of the thread "
        "loops",
        "'%s' is allocated in shared %s", buffer->name, problem);
    return;
  }
  uint64_t bytes;
  (void)bounded_bytes(v, buffer, 0, LARGEST_SHARED_BYTES, "per block", &bytes);
}

static void check_global(qn__verifier_t* v, const qn__ir_buffer_t* buffer) {
  // The body itself is the first level.
  if (v->depth != 1) {
    (void)qn__verify_error(
        v, QN__VERIFY_ALLOC_PLACE, buffer->loc,
        "move it to the top of the function; give it one more dimension for the loop",
        "'%s' is allocated in global inside of another statement", buffer->name);
    return;
  }
  for (uint32_t i = 0; i < buffer->rank; i++) {
    if (qn__verify_is_host(v, buffer->shape[i])) continue;
    (void)qn__verify_error(v, QN__VERIFY_ALLOC_SHAPE, buffer->shape[i]->loc,
                           "use symbols, scalars and literals",
                           "the shape of '%s' is not known before the launch", buffer->name);
  }
}

static void check_table(qn__verifier_t* v, const qn__ir_buffer_t* buffer) {
  uint64_t count;
  if (!constant_count(v, buffer, &count)) return;
  if (count != buffer->element_count || !buffer->elements) {
    (void)qn__verify_error(v, QN__VERIFY_TABLE, buffer->loc, NULL,
                           "table '%s' has %zu elements, its shape has %" PRIu64, buffer->name,
                           buffer->element_count, count);
    return;
  }
  for (size_t i = 0; i < buffer->element_count && !qn__verify_stopped(v); i++) {
    const qn__ir_expr_t* element = buffer->elements[i];
    if (!element || !qn__verify_literal(v, element)) return;
    if (element->dtype == buffer->dtype) continue;
    (void)qn__verify_error(v, QN__VERIFY_TABLE, element->loc, NULL,
                           "element %zu of '%s' is %s, not %s", i, buffer->name,
                           qn_dtype_text(element->dtype), qn_dtype_text(buffer->dtype));
    return;
  }
}

static bool is_constant_shape(const qn__ir_buffer_t* buffer) {
  qn__ir_scalar_t extent;
  for (uint32_t i = 0; i < buffer->rank; i++) {
    if (!qn__expr_fold(buffer->shape[i], &extent)) return false;
  }
  return true;
}

void qn__verify_alloc_place(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  const qn__ir_buffer_t* buffer = stmt->alloc.buffer;
  assert(buffer->scope == QN__SCOPE_VIEW || !buffer->strides);
  uint64_t bytes = 0;
  switch (buffer->scope) {
    case QN__SCOPE_LOCAL:
      // An array over threads whose number only the call knows: its allocation may fail.
      if (v->is_lowered && !is_constant_shape(buffer)) return;
      (void)bounded_bytes(v, buffer, v->local_bytes,
                          v->is_lowered ? LARGEST_LOWERED_BYTES : LARGEST_LOCAL_BYTES, "per thread",
                          &bytes);
      v->local_bytes += bytes;
      return;
    case QN__SCOPE_SHARED:
      check_shared(v, buffer);
      return;
    case QN__SCOPE_GLOBAL:
      check_global(v, buffer);
      return;
    case QN__SCOPE_CONST:
      check_table(v, buffer);
      return;
    case QN__SCOPE_PARAM:
    case QN__SCOPE_VIEW:
      return;
  }
}

// ------------------------------------------------------------------------------------ leaving

// Returns why a statement cannot leave a loop, or its iteration; NULL: it can. `*out_help` says
// what does instead.
static const char* leave_problem(qn_leave_t kind, qn_loop_kind_t loop, const char** out_help) {
  if (loop == QN_LOOP_SERIAL) return NULL;
  if (qn__loop_is_block(loop) || qn__loop_is_thread(loop)) {
    *out_help = "put the rest of the body into an 'if'";
    return "all blocks and threads of a launch run";
  }
  if (kind == QN_LEAVE_CONTINUE) return NULL;
  *out_help = kind == QN_LEAVE_BREAK ? "use 'continue' to end this iteration, or a 'for' loop"
                                     : "use 'continue' to end this iteration";
  if (loop == QN_LOOP_UNROLL) return "all of its copies run";
  return "its iterations have no order: others may have run, or run at once";
}

void qn__verify_leave_place(qn__verifier_t* v, const qn__ir_stmt_t* stmt) {
  const char* text = qn__leave_text(stmt->leave);
  if (!text) {
    (void)qn__verify_error(v, QN__VERIFY_MALFORMED, stmt->loc, NULL, "a leave of kind %d",
                           (int)stmt->leave);
    return;
  }
  bool is_return = stmt->leave == QN_LEAVE_RETURN;
  if (!v->place->stmt && !is_return) {
    (void)qn__verify_error(v, QN__VERIFY_LEAVE, stmt->loc, "'return' ends the function",
                           "'%s' outside of a loop", text);
    return;
  }
  for (qn__verify_place_t* place = v->place; place->stmt; place = place->outer) {
    place->is_left = true;
    const char* help = NULL;
    const char* problem = NULL;
    if (is_loop(place)) problem = leave_problem(stmt->leave, place->stmt->loop.kind, &help);
    if (is_scan(place) && stmt->leave != QN_LEAVE_CONTINUE) {
      help = "use 'continue' to end this iteration, or a 'for' loop";
      problem = "later iterations may have run, or run at once";
    }
    if (problem) {
      (void)qn__verify_error(v, QN__VERIFY_LEAVE, stmt->loc, help, "'%s' in the loop '%s': %s",
                             text, text_of(place), problem);
      qn__verify_note(v, place->stmt->loc, "the loop is here");
    }
    if (problem) return;
    if (!is_return) break;
  }
  if (!stmt->next) return;
  (void)qn__verify_error(v, QN__VERIFY_LEAVE, stmt->next->loc, "remove it",
                         "nothing runs after '%s'", text);
  qn__verify_note(v, stmt->loc, "'%s' is here", text);
}
