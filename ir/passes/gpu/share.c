// SPDX-License-Identifier: Apache-2.0
// ir/passes/gpu/share.c: the pass `share` moves local buffers that several threads use to shared
// memory.
//
// A local buffer in the content of a launch with cooperating threads belongs to all threads if a
// cooperative loop, a synchronized thread loop or an atomic writes to it, since these divide its
// elements among the threads. A buffer declared inside such a loop stays local.
//
// Postcondition: in launches of kind BLOCKS and WARPS, shared buffers are declared in the head, and
// no statement that threads divide writes to a local buffer declared outside of it.
#include "ir/passes/gpu/launch.h"

static bool divides(const qn__ir_stmt_t* stmt) {
  return qn__is_cooperative_loop(stmt) || qn__threads_synchronize(stmt);
}

// Sets `user` of the local buffers that divided statements and atomics write to.
static void mark_written(qn__ir_block_t* block, bool is_divided) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    qn__ir_ref_t ref;
    if (qn__stmt_ref(stmt, &ref) &&
        (ref.kind == QN__REF_ATOMIC || (ref.kind == QN__REF_STORE && is_divided))) {
      qn__ir_buffer_t* buffer = qn__buf_root_mutable(*ref.buffer);
      if (buffer->scope == QN__SCOPE_LOCAL) buffer->user = buffer;
    }
    QN__EACH_BLOCK(stmt, inner) mark_written(inner, is_divided || divides(stmt));
  }
}

// Moves the declarations of shared and of marked buffers to `out`, and makes the marked ones
// shared.
static void move_shared(qn__ir_block_t* block, bool is_divided, qn__ir_block_t* out) {
  qn__ir_block_t rest = qn__block_take(block);
  for (qn__ir_stmt_t* stmt; (stmt = qn__block_pop(&rest)) != NULL;) {
    QN__EACH_BLOCK(stmt, inner) move_shared(inner, is_divided || divides(stmt), out);
    qn__ir_buffer_t* buffer = stmt->kind == QN__STMT_ALLOC ? stmt->alloc.buffer : NULL;
    if (buffer && buffer->user && !is_divided) buffer->scope = QN__SCOPE_SHARED;
    bool is_shared = buffer && buffer->scope == QN__SCOPE_SHARED;
    qn__block_append(is_shared ? out : block, stmt);
  }
}

static void share_launch(qn__pass_builder_t* pb, qn__ir_stmt_t* launch) {
  (void)pb;
  qn__ir_block_t shared = {NULL, NULL};
  qn__ir_block_t region = qn__launch_take_region(launch);
  mark_written(&region, false);
  move_shared(&region, false, &shared);
  qn__launch_put_region(launch, &region);
  qn__launch_add_head(launch, &shared);
}

static void share_function(qn__pass_builder_t* pb) {
  qn__launch_each(pb, share_launch);
}

// Returns true if a statement inside of `block` declares a shared buffer.
static bool has_inner_shared(qn__ir_block_t* block, bool is_level) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (!is_level && stmt->kind == QN__STMT_ALLOC &&
        stmt->alloc.buffer->scope == QN__SCOPE_SHARED) {
      return true;
    }
    QN__EACH_BLOCK(stmt, inner) {
      if (has_inner_shared(inner, qn__is_block_loop(stmt))) return true;
    }
  }
  return false;
}

static const char* check(qn__ir_func_t* function) {
  return has_inner_shared(&function->body, true) ? "shared memory below the block level" : NULL;
}

const qn__pass_t qn__pass_share = {
    .name = "share",
    .doc = "moves local buffers that several threads use to shared memory",
    .run = share_function,
    .post = "shared buffers are declared at the block level",
    .check = check,
};
