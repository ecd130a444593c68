// ir/passes/target_values.c: replaces numbers of the target by literals, and checks requirements.
//
// 1. After the pass no TARGET operator is left: warp_size() is a literal.
// 2. An assert whose condition then consists of literals is a requirement of the function. It is
//    removed if it holds; else the function does not compile, and the message names the target's
//    number. Asserts of literals alone stay: they fail at run time, as they always did.
// 3. An arm of an `if` that such a condition excludes is emptied first, so that requirements in it
//    do not count: a function may have a variant for each width.
//
// It is the first pass, so that later passes see constants.
#include "base/buffer.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewrite.h"
#include "ir/text.h"

typedef struct values {
  const qn__ir_func_t* function;
  qn__arena_t* arena;
  int64_t warp_size;
  qn_status_t status;  // the first requirement that does not hold
} values_t;

static bool replace_slot(void* self, qn__ir_expr_t** slot) {
  values_t* values = self;
  if ((*slot)->kind != QN__EXPR_OP || qn__op_info((*slot)->op)->rule != QN__RULE_TARGET) {
    return qn__expr_each_child(*slot, replace_slot, self);
  }
  (void)QN_NEVER((*slot)->op != QN_OP_WARP_SIZE);  // there is no other yet
  qn__ir_expr_t* literal = qn__expr_int(values->arena, QN_DTYPE_I64, values->warp_size);
  if (literal) *slot = literal;
  return literal != NULL;
}

static qn_status_t refuse(const values_t* values, const qn__ir_stmt_t* stmt) {
  qn__buffer_t text;
  qn__buffer_init(&text, values->arena->allocator);
  qn__text_print_expr(stmt->assert_.condition, &text);
  const char* message = stmt->assert_.message;
  bool has_message = message && message[0];
  qn_status_t status = qn_status_make(
      QN_STATUS_UNSUPPORTED,
      "function '%s' requires %.*s%s%s, but the target has warps of %" PRId64 " threads",
      values->function->name, QN_STR_ARG(qn__buffer_as_str(&text)), has_message ? ": " : "",
      has_message ? message : "", values->warp_size);
  qn__buffer_deinit(&text);
  return status;
}

// Decides a condition that contains a number of the target. Returns false if it is not constant.
static bool decide(values_t* values, const qn__ir_expr_t* condition, bool* out_holds) {
  qn__ir_expr_t* copy = qn__expr_replace(values->arena, condition, NULL, NULL);
  qn__ir_scalar_t value;
  if (!copy || !replace_slot(values, &copy) || !qn__expr_fold(copy, &value)) return false;
  *out_holds = value.i != 0;
  return true;
}

static void visit_block(values_t* values, qn__ir_block_t* block) {
  qn__ir_block_t kept = {NULL, NULL};
  qn__ir_stmt_t* next;
  for (qn__ir_stmt_t* stmt = block->first; stmt && qn_ok(values->status); stmt = next) {
    next = stmt->next;
    stmt->next = NULL;
    bool holds;
    if (stmt->kind == QN__STMT_ASSERT && qn__expr_has_target(stmt->assert_.condition) &&
        decide(values, stmt->assert_.condition, &holds)) {
      if (!holds) values->status = refuse(values, stmt);
      continue;
    }
    if (stmt->kind == QN__STMT_IF && qn__expr_has_target(stmt->if_.condition) &&
        decide(values, stmt->if_.condition, &holds)) {
      *(holds ? &stmt->if_.else_block : &stmt->if_.then_block) = (qn__ir_block_t){NULL, NULL};
    }
    if (!qn__stmt_each_expr(stmt, replace_slot, values)) return;
    QN__EACH_BLOCK(stmt, nested) visit_block(values, nested);
    qn__block_append(&kept, stmt);
  }
  if (qn_ok(values->status)) *block = kept;
}

static qn_status_t run(qn__ir_body_t* body, const qn__pass_options_t* options) {
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    values_t values = {.function = function,
                       .arena = &body->arena,
                       .warp_size = options->warp_size ? options->warp_size : 32};
    visit_block(&values, &function->body);
    QN_TRY(values.status);
    QN_TRY(qn__pass_status(body, "target values"));
  }
  return QN_OK;
}

const qn__pass_t qn__pass_target_values = {
    .name = "target_values",
    .doc = "warp_size() becomes a literal, requirements of it are decided",
    .run = run};
