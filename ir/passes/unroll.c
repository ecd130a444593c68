// ir/passes/unroll.c: unrolls `unroll` loops.
//
// A loop whose extent is a constant of at most `max_extent` becomes that many copies of its body
// with the variable replaced by its value, inner loops first. A function grows to at most
// `max_weight`. Other loops become serial.
#include "ir/passes/passes.h"
#include "ir/passes/rewrite.h"

enum { max_extent = 64, max_weight = 16000 };

typedef struct unroll {
  qn__arena_t* arena;
  size_t weight;  // of the function so far
} unroll_t;

static bool unroll_block(unroll_t* self, qn__ir_block_t* block);

// Appends the copies of the loop to `out`. Returns false without memory.
static bool write_out(unroll_t* self, qn__ir_stmt_t* loop, int64_t begin, int64_t end,
                      qn__ir_block_t* out) {
  for (int64_t i = begin; i < end; ++i) {
    qn__ir_expr_t* value = qn__expr_int(self->arena, QN_DTYPE_I64, i);
    qn__ir_block_t copy = {NULL, NULL};
    if (!value || !qn__block_replace(self->arena, &loop->loop.body, loop->loop.var, value, &copy)) {
      return false;
    }
    qn__block_splice(out, &copy);
  }
  return true;
}

static bool unroll_block(unroll_t* self, qn__ir_block_t* block) {
  qn__ir_block_t result = {NULL, NULL};
  for (qn__ir_stmt_t* stmt = block->first; stmt;) {
    qn__ir_stmt_t* next = stmt->next;
    stmt->next = NULL;
    QN__EACH_BLOCK(stmt, inner) {
      if (!unroll_block(self, inner)) return false;
    }
    bool is_written_out = false;
    if (stmt->kind == QN__STMT_LOOP && stmt->loop.kind == QN_LOOP_UNROLL) {
      int64_t begin, end, extent;
      if (qn__expr_const_int(stmt->loop.begin, &begin) &&
          qn__expr_const_int(stmt->loop.end, &end) &&
          !__builtin_sub_overflow(end, begin, &extent) && extent <= max_extent) {
        size_t growth = (extent > 0 ? (size_t)extent : 0) * qn__block_weight(&stmt->loop.body);
        if (self->weight + growth <= max_weight) {
          self->weight += growth;
          is_written_out = true;
          if (!write_out(self, stmt, begin, end, &result)) return false;
        }
      }
      if (!is_written_out) stmt->loop.kind = QN_LOOP_SERIAL;
    }
    if (!is_written_out) qn__block_append(&result, stmt);
    stmt = next;
  }
  *block = result;
  return true;
}

static qn_status_t run(qn__ir_body_t* body, const qn__pass_options_t* options) {
  (void)options;
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    unroll_t self = {&body->arena, qn__block_weight(&function->body)};
    if (!unroll_block(&self, &function->body)) return qn__out_of_memory("unrolling");
  }
  return qn__pass_status(body, "unrolling");
}

const qn__pass_t qn__pass_unroll = {
    .name = "unroll", .doc = "writes unroll loops of small constant extent out", .run = run};
