// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/barriers.c: the pass `barriers` separates accesses of different threads to one
// buffer.
//
//   row[t] = x[t]; y[t] = row[t + 1];   becomes   row[t] = x[t]; barrier; y[t] = row[t + 1];
//
// 1. For each buffer that several threads may access, the pass records reads and writes since the
//    last barrier: those of all threads, and those of the first thread alone.
// 2. An access gets a barrier before it if it conflicts with an earlier access of another thread:
//    both are to one buffer, and at least one is a write. Two accesses of the first thread alone
//    never conflict.
// 3. After an `if` the state is the union of both branches. The body of a loop that writes ends
//    with a barrier, so that no thread starts the next iteration before all have finished this one.
// 4. A statement that the threads divide (`role` DIVIDE) counts as one access. Either not all
//    threads would reach a barrier inside it, or the program has its own barriers there.
// 5. Launches of warps need no barriers: `distribute` chooses them only if no buffer is both read
//    and written.
//
// Postcondition: every launch is finished, and no `role` is left.
#include "ir/passes/accesses.h"
#include "ir/passes/gpu/launch.h"

// Accesses since the last barrier.
typedef struct barrier_state {
  qn__ir_accesses_t by_all;
  qn__ir_accesses_t by_first;
} barrier_state_t;

typedef struct placer {
  qn__pass_builder_t* pb;
  barrier_state_t state;
} placer_t;

static void add_barrier(placer_t* self, qn__ir_block_t* out) {
  qn__pb_barrier(self->pb, out);
  self->state = (barrier_state_t){{NULL, NULL}, {NULL, NULL}};
}

// Records accesses after the end of `out`, and adds a barrier first if they need one.
static void touch(placer_t* self, qn__ir_block_t* out, qn__ir_accesses_t accesses, bool is_first) {
  if (qn__accesses_conflict(self->state.by_all, accesses) ||
      (!is_first && qn__accesses_conflict(self->state.by_first, accesses))) {
    add_barrier(self, out);
  }
  qn__ir_accesses_t* mine = is_first ? &self->state.by_first : &self->state.by_all;
  *mine = qn__accesses_join(self->pb->arena, *mine, accesses);
}

static barrier_state_t join(placer_t* self, barrier_state_t a, barrier_state_t b) {
  return (barrier_state_t){qn__accesses_join(self->pb->arena, a.by_all, b.by_all),
                           qn__accesses_join(self->pb->arena, a.by_first, b.by_first)};
}

static bool has_role(const qn__ir_stmt_t* stmt) {
  return stmt->role != QN__ROLE_ANY || stmt->kind == QN__STMT_BARRIER;
}

// Returns true if a barrier may be needed between statements inside `stmt`.
static bool is_divisible(qn__ir_stmt_t* stmt) {
  QN__EACH_BLOCK(stmt, inner) {
    if (qn__block_any(inner, has_role) || qn__block_synchronizes(inner)) return true;
  }
  return false;
}

static void place_in_block(placer_t* self, qn__ir_block_t* block);

static void place_in_if(placer_t* self, qn__ir_stmt_t* stmt) {
  barrier_state_t before = self->state;
  place_in_block(self, &stmt->if_.then_block);
  barrier_state_t after = self->state;
  self->state = before;
  place_in_block(self, &stmt->if_.else_block);
  self->state = join(self, after, self->state);
}

static void place_in_rounds(placer_t* self, qn__ir_stmt_t* stmt, qn__ir_block_t* body) {
  barrier_state_t before = self->state;
  bool has_writes = qn__accesses_of_block(self->pb->arena, body).writes != NULL;
  place_in_block(self, body);
  if (has_writes) {
    add_barrier(self, body);
    // All threads evaluate the condition once more.
    if (stmt->kind == QN__STMT_WHILE) {
      self->state.by_all = qn__accesses_of_own(self->pb->arena, stmt);
    }
  }
  self->state = join(self, before, self->state);
}

static void place_before(placer_t* self, qn__ir_stmt_t* stmt, qn__ir_block_t* out) {
  qn__arena_t* arena = self->pb->arena;
  if (stmt->kind == QN__STMT_BARRIER) {
    self->state = (barrier_state_t){{NULL, NULL}, {NULL, NULL}};
  } else if (stmt->role == QN__ROLE_FIRST) {
    touch(self, out, qn__accesses_of_stmt(arena, stmt), true);
  } else if (stmt->role == QN__ROLE_DIVIDE || !is_divisible(stmt)) {
    touch(self, out, qn__accesses_of_stmt(arena, stmt), false);
  } else {
    touch(self, out, qn__accesses_of_own(arena, stmt), false);
    assert(qn__stmt_next_block(stmt, NULL));  // is_divisible
    if (stmt->kind == QN__STMT_IF) {
      place_in_if(self, stmt);
    } else {
      bool is_loop = stmt->kind == QN__STMT_LOOP;
      place_in_rounds(self, stmt, is_loop ? &stmt->loop.body : &stmt->while_.body);
    }
  }
}

static void place_in_block(placer_t* self, qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) != NULL;) {
    place_before(self, stmt, block);
    qn__block_append(block, stmt);
  }
}

// Removes marks that only the GPU mapping passes read.
static void clear_marks(qn__ir_block_t* block) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) != NULL;) {
    QN__EACH_BLOCK(stmt, inner) clear_marks(inner);
    if (stmt->kind == QN__STMT_ALLOC) stmt->alloc.buffer->row_lanes = 0;
    bool is_wrapper = stmt->role == QN__ROLE_DIVIDE && stmt->kind == QN__STMT_IF &&
                      stmt->if_.condition->kind == QN__EXPR_INT;
    stmt->role = QN__ROLE_ANY;
    if (is_wrapper) {
      assert(stmt->if_.condition->int_value == 1);
      qn__block_splice(block, &stmt->if_.then_block);
    } else {
      qn__block_append(block, stmt);
    }
  }
}

static void place_in_launch(qn__pass_builder_t* pb, qn__ir_stmt_t* launch) {
  qn__ir_stmt_t* threads = qn__launch_threads(launch);
  assert(!qn__block_any(&threads->loop.body, qn__is_cooperative_loop));  // cooperative
  if (!launch->loop.launch->is_warps) {
    placer_t self = {.pb = pb};
    place_in_block(&self, &threads->loop.body);
  }
  clear_marks(&threads->loop.body);
  launch->loop.launch = NULL;
}

static void place_in_function(qn__pass_builder_t* pb) {
  qn__launch_each(pb, place_in_launch);
}

static bool is_left(const qn__ir_stmt_t* stmt) {
  return stmt->role != QN__ROLE_ANY || (stmt->kind == QN__STMT_LOOP && stmt->loop.launch);
}

static const char* check(qn__ir_func_t* function) {
  return qn__block_any(&function->body, is_left) ? "a role or an unfinished launch" : NULL;
}

const qn__pass_t qn__pass_barriers = {
    .name = "barriers",
    .doc = "separates accesses of different threads to one buffer",
    .run = place_in_function,
    .post = "every launch is finished",
    .check = check,
};
