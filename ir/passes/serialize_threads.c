// ir/passes/serialize_threads.c: programs in blocks and threads become loops for a CPU.
//
// A thread loop without a barrier in it is a loop over independent iterations. One with barriers is
// cut at them (fission.c): every piece becomes a loop over all threads of its own. Block loops are
// launches; a nest of them whose extents do not depend on each other becomes one launch over all
// blocks. Shared buffers become local to the block. Thread rule: one thread per body. Read next:
// fission.h.
#include "ir/passes/fission.h"
#include "ir/passes/passes.h"

typedef struct serialize {
  qn__arena_t* arena;
  const char* function_name;
} serialize_t;

static qn_status_t no_memory(void) {
  return qn__out_of_memory("serialising threads");
}

bool qn__block_has_barrier(qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_BARRIER) return true;
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) {
      if (qn__block_has_barrier(blocks[i])) return true;
    }
  }
  return false;
}

static bool is_block_loop(const qn__ir_stmt_t* stmt) {
  return stmt && stmt->kind == QN__STMT_LOOP && qn__loop_is_block(stmt->loop.kind);
}

static bool uses_var(void* var, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_VAR && (*slot)->var == var) return false;
  return qn__expr_each_child(*slot, uses_var, var);
}

static qn__ir_expr_t* op(serialize_t* self, qn_op_t which, qn__ir_expr_t* a, qn__ir_expr_t* b) {
  if (!a || !b) return NULL;
  return qn__expr_op(self->arena, which, a, b, NULL);
}

static qn__ir_expr_t* copy(serialize_t* self, const qn__ir_expr_t* expr) {
  return qn__expr_replace(self->arena, expr, NULL, NULL);
}

// max(end, begin) - begin: the product of two empty ranges must not look like a full one.
static qn__ir_expr_t* extent_of(serialize_t* self, const qn__ir_stmt_t* loop) {
  int64_t begin, end;
  if (qn__expr_const_int(loop->loop.begin, &begin) && qn__expr_const_int(loop->loop.end, &end) &&
      end >= begin && (begin >= 0 || end <= 0)) {
    return qn__expr_int(self->arena, QN_DTYPE_I64, end - begin);
  }
  qn__ir_expr_t* most =
      op(self, QN_OP_MAX, copy(self, loop->loop.end), copy(self, loop->loop.begin));
  if (qn__expr_is_int(loop->loop.begin, 0)) return most;
  return op(self, QN_OP_SUB, most, copy(self, loop->loop.begin));
}

static qn__ir_stmt_t* let_of(serialize_t* self, qn__ir_var_t* var, qn__ir_expr_t* value) {
  qn__ir_stmt_t* let = qn__stmt_new(self->arena, QN__STMT_LET, var->loc);
  if (!let || !value) return NULL;
  var->kind = QN__VAR_LET;
  let->let.var = var;
  let->let.value = value;
  return let;
}

static qn__ir_expr_t* plus_begin(serialize_t* self, qn__ir_expr_t* value,
                                 const qn__ir_stmt_t* loop) {
  if (qn__expr_is_int(loop->loop.begin, 0)) return value;
  return op(self, QN_OP_ADD, copy(self, loop->loop.begin), value);
}

// Two perfectly nested block loops become one over the product: outer = b // n, inner = b % n.
static bool collapse(serialize_t* self, qn__ir_stmt_t* outer) {
  qn__ir_stmt_t* inner = outer->loop.body.first;
  qn__ir_expr_t* inner_extent = extent_of(self, inner);
  qn__ir_expr_t* product = op(self, QN_OP_MUL, extent_of(self, outer), inner_extent);
  qn__ir_var_t* block = qn__var_new(self->arena, QN__VAR_LOOP, QN_DTYPE_I64, "block");
  if (!product || !block) return false;
  qn__ir_expr_t* outer_value =
      op(self, QN_OP_FLOORDIV, qn__expr_var(self->arena, block), copy(self, inner_extent));
  qn__ir_expr_t* inner_value =
      op(self, QN_OP_FLOORMOD, qn__expr_var(self->arena, block), copy(self, inner_extent));
  if (!outer_value || !inner_value) return false;
  qn__ir_stmt_t* first = let_of(self, outer->loop.var, plus_begin(self, outer_value, outer));
  qn__ir_stmt_t* second = let_of(self, inner->loop.var, plus_begin(self, inner_value, inner));
  if (!first || !second) return false;
  qn__ir_block_t body = {NULL, NULL};
  qn__block_append(&body, first);
  qn__block_append(&body, second);
  qn__block_splice(&body, &inner->loop.body);
  outer->loop.var = block;
  outer->loop.begin = qn__expr_int(self->arena, QN_DTYPE_I64, 0);
  outer->loop.end = product;
  outer->loop.body = body;
  return outer->loop.begin != NULL;
}

// Innermost pairs first, so that a nest of three becomes one loop too.
static bool collapse_nest(serialize_t* self, qn__ir_stmt_t* outer) {
  qn__ir_stmt_t* inner = outer->loop.body.first;
  if (!is_block_loop(inner) || inner->next) return true;
  if (!collapse_nest(self, inner)) return false;
  if (!uses_var(outer->loop.var, &inner->loop.begin) ||
      !uses_var(outer->loop.var, &inner->loop.end)) {
    return true;
  }
  return collapse(self, outer);
}

// `is_top`: not inside any loop.
static qn_status_t serialize_block(serialize_t* self, qn__ir_block_t* block, bool is_top) {
  qn__ir_block_t result = {NULL, NULL};
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    bool is_loop = stmt->kind == QN__STMT_LOOP;
    if (is_loop && qn__loop_is_thread(stmt->loop.kind) && qn__block_has_barrier(&stmt->loop.body)) {
      qn__ir_block_t pieces = {NULL, NULL};
      QN_TRY(qn__fission(self->arena, self->function_name, stmt, &pieces));
      if (is_top) {  // one block: a launch of one iteration
        qn__ir_stmt_t* launch = qn__stmt_new(self->arena, QN__STMT_LOOP, stmt->loc);
        if (!launch) return no_memory();
        launch->loop.kind = QN_LOOP_PARALLEL;
        launch->loop.var = qn__var_new(self->arena, QN__VAR_LOOP, QN_DTYPE_I64, "block");
        launch->loop.begin = qn__expr_int(self->arena, QN_DTYPE_I64, 0);
        launch->loop.end = qn__expr_int(self->arena, QN_DTYPE_I64, 1);
        launch->loop.body = pieces;
        if (!launch->loop.var || !launch->loop.begin || !launch->loop.end) return no_memory();
        pieces = qn__block_of(launch);
      }
      qn__block_splice(&result, &pieces);
      continue;
    }
    if (is_block_loop(stmt) && !collapse_nest(self, stmt)) return no_memory();
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) {
      QN_TRY(serialize_block(self, blocks[i], is_top && !is_loop));
    }
    qn__block_append(&result, stmt);
  }
  *block = result;
  return QN_OK;
}

// What is left of blocks, threads and barriers has a plain counterpart.
static void convert(qn__ir_block_t* block, bool is_top) {
  qn__ir_block_t result = {NULL, NULL};
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    if (stmt->kind == QN__STMT_BARRIER) continue;
    bool is_loop = stmt->kind == QN__STMT_LOOP;
    if (is_loop && (qn__loop_is_block(stmt->loop.kind) || qn__loop_is_thread(stmt->loop.kind))) {
      stmt->loop.kind = QN_LOOP_PARALLEL;
    }
    if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->scope == QN__SCOPE_SHARED) {
      stmt->alloc.buffer->scope = is_top ? QN__SCOPE_GLOBAL : QN__SCOPE_LOCAL;
    }
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) convert(blocks[i], is_top && !is_loop);
    qn__block_append(&result, stmt);
  }
  *block = result;
}

static qn_status_t run(qn__ir_body_t* body, const qn__pass_options_t* options) {
  (void)options;
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    qn__function_clear_user(function);
    serialize_t self = {&body->arena, function->name};
    QN_TRY(serialize_block(&self, &function->body, true));
    convert(&function->body, true);
  }
  return qn__pass_status(body, "serialising threads");
}

const qn__pass_t qn__pass_serialize_threads = {
    "serialize_threads", "turns blocks and threads into loops, cut at barriers", run};
