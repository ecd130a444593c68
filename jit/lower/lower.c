// SPDX-License-Identifier: Apache-2.0
// jit/lower/lower.c: qn_module_lower: runs passes on the bytes of a module and makes a module of
// the result.
//
// The passes start from the canonical bytes, as those of generators do. So places and buffers are
// named as in artifacts, and the result depends on the bytes alone.
//
// Some passes write what only quern's generators have (matrix units, dot products of bytes,
// prepared kernels). The options of a qn_machine_t ask for none of it; the end checks that.
#include "jit/lower/lower.h"
#include "base/argument.h"
#include "base/struct_size.h"
#include "ir/encode.h"
#include "ir/passes/rewrite.h"
#include "ir/verify.h"

// A pipeline or a pass that runs alone.
typedef struct lower_item {
  const qn__pipeline_t* pipeline;  // NULL: a pass
  const qn__pass_t* pass;
} lower_item_t;

enum { MAX_ITEMS = 32 };

typedef struct lower_plan {
  uint32_t count;
  lower_item_t items[MAX_ITEMS];
  uint32_t last_pass_count;  // of the last item's pipeline; 0: all
  bool is_gpu;               // it has a pipeline for GPUs
  bool is_mapped;            // all of that pipeline runs, and no other one
} lower_plan_t;

// ------------------------------------------------------------------------------------ names

static qn_status_t unknown_name(qn_str_t name) {
  qn__buffer_t names;
  qn__buffer_init(&names, qn_allocator_default());
  for (size_t i = 0; qn__pipeline_at(i); ++i) {
    qn__buffer_format(&names, "%s%s", i ? ", " : "", qn__pipeline_at(i)->name);
  }
  qn__buffer_cstr(&names, "; passes:");
  const char* comma = " ";
  const qn__pass_t* pass;
  for (size_t i = 0; (pass = qn__pass_at(i)) != NULL; ++i) {
    if (!pass->is_alone) continue;
    qn__buffer_format(&names, "%s%s", comma, pass->name);
    comma = ", ";
  }
  qn_status_t status = qn__buffer_status(&names, "a message");
  if (qn_ok(status)) {
    status =
        qn_status_make(QN_STATUS_NOT_FOUND, "no pipeline or pass '%.*s'; pipelines: %s",
                       (int)(name.size < 48 ? name.size : 48), name.data, (const char*)names.data);
  }
  qn__buffer_deinit(&names);
  return status;
}

static qn_status_t find_item(qn_str_t name, lower_item_t* out_item) {
  *out_item = (lower_item_t){NULL, NULL};
  for (size_t i = 0; qn__pipeline_at(i); ++i) {
    out_item->pipeline = qn__pipeline_at(i);
    if (qn__str_equal(qn__str(out_item->pipeline->name), name)) return QN_OK;
  }
  out_item->pipeline = NULL;
  for (size_t i = 0; (out_item->pass = qn__pass_at(i)) != NULL; ++i) {
    if (!qn__str_equal(qn__str(out_item->pass->name), name)) continue;
    if (out_item->pass->is_alone) return QN_OK;
    return qn_status_make(QN_STATUS_NOT_FOUND,
                          "pass '%s' runs in pipelines alone; name one, and the pass as `until`",
                          out_item->pass->name);
  }
  return unknown_name(name);
}

// Cuts the plan off behind the run of a pass.
static qn_status_t cut(lower_plan_t* plan, const char* until) {
  qn__until_t parsed;
  bool is_run = qn__until_parse(until, &parsed);
  for (uint32_t i = 0; i < plan->count && is_run; ++i) {
    const lower_item_t* item = &plan->items[i];
    size_t found = item->pipeline
                       ? qn__until_find(&parsed, item->pipeline->passes, item->pipeline->pass_count)
                       : qn__until_find(&parsed, &item->pass, 1);
    if (found == 0) continue;
    plan->count = i + 1;
    plan->last_pass_count = (uint32_t)found;
    return QN_OK;
  }
  const qn__pipeline_t* pipeline = NULL;
  for (uint32_t i = 0; i < plan->count && !pipeline; ++i) pipeline = plan->items[i].pipeline;
  return qn__until_missing(until, pipeline ? pipeline : &qn__pipeline_first);
}

static qn_status_t make_plan(const char* passes, const char* until, lower_plan_t* out_plan) {
  *out_plan = (lower_plan_t){.count = 0};
  for (const char* name = passes;;) {
    size_t size = strcspn(name, ",");
    if (out_plan->count == MAX_ITEMS - 1) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "passes: more than %d names",
                            MAX_ITEMS - 1);
    }
    lower_item_t item;
    QN_TRY(find_item((qn_str_t){name, size}, &item));
    if (out_plan->count == 0 && !item.pipeline) {
      out_plan->items[out_plan->count++].pipeline = &qn__pipeline_first;
    }
    out_plan->items[out_plan->count++] = item;
    out_plan->is_gpu = out_plan->is_gpu || (item.pipeline && item.pipeline->is_gpu);
    if (name[size] == '\0') break;
    name += size + 1;
  }
  uint32_t pipeline_count = 0;
  for (uint32_t i = 0; i < out_plan->count; ++i) {
    const qn__pipeline_t* pipeline = out_plan->items[i].pipeline;
    pipeline_count += pipeline && pipeline != &qn__pipeline_first;
  }
  out_plan->is_mapped = out_plan->is_gpu && pipeline_count == 1 && !until;
  return until ? cut(out_plan, until) : QN_OK;
}

// ------------------------------------------------------------------------------------ options

static qn_status_t read_options(const qn_lower_options_t* given, qn_lower_options_t* out,
                                qn_machine_t* out_machine) {
  QN_TRY(qn__struct_read("qn_lower_options_t", 0, given, out, sizeof *out));
  QN_TRY(qn__struct_read("qn_machine_t", 0, out->machine, out_machine, sizeof *out_machine));
  if (out->tier != 0 && out->tier != QN_TIER_FULL && out->tier != QN_TIER_FAST) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "tier is %d; there are QN_TIER_FULL and QN_TIER_FAST", (int)out->tier);
  }
  uint32_t bytes = out_machine->vector_bytes;
  if (bytes != 0 && bytes != 16 && bytes != 32 && bytes != 64) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "vector_bytes is %" PRIu32 "; vectors have 16, 32 or 64 bytes", bytes);
  }
  uint32_t warp = out_machine->warp_size;
  if (warp > 128 || (warp & (warp - 1)) != 0) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "warp_size is %" PRIu32 "; it is a power of two, at most 128", warp);
  }
  return QN_OK;
}

// ------------------------------------------------------------------------------------ the result

static bool is_tensor(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_TENSOR;
}

static bool is_inner_expr(const qn__ir_expr_t* expr) {
  if (expr->kind == QN__EXPR_LOAD) return expr->dtype != expr->load.buffer->dtype;
  return expr->kind == QN__EXPR_OP && qn__op_is_dot(expr->op);
}

// Drops the hints of what may be fetched, which no text has.
static bool drop_ahead(void* self, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_LOAD) (*slot)->load.ahead = 0;
  return qn__expr_each_child(*slot, drop_ahead, self);
}

// Makes a walk and the bytes show all of the body but marks of lanes, or fails.
static qn_status_t make_public(qn__ir_body_t* body) {
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    bool is_inner = qn__block_any(&function->body, is_tensor) ||
                    qn__block_any_expr(&function->body, is_inner_expr);
    (void)qn__block_each_expr(&function->body, drop_ahead, NULL);
    if (!QN_NEVER(is_inner)) continue;
    return qn_status_make(QN_STATUS_INTERNAL, "passes left what no module has in '%s'",
                          function->name);
  }
  return QN_OK;
}

static qn_status_t run(const lower_plan_t* plan, const qn__pass_options_t* options,
                       qn__ir_body_t* body) {
  for (uint32_t i = 0; i < plan->count; ++i) {
    const lower_item_t* item = &plan->items[i];
    qn__pass_options_t own = *options;
    // Code for a GPU has functions without integers of 64 bits, and no lanes.
    if (item->pass == &qn__pass_lower_math && plan->is_gpu) own.vector_bytes = 0;
    if (i + 1 == plan->count) own.pass_count = plan->last_pass_count;
    QN_TRY(item->pipeline ? qn__pipeline_run(item->pipeline, body, &own)
                          : qn__passes_run(body, &own, &item->pass, 1));
  }
  return make_public(body);
}

qn_status_t qn_module_lower(const qn_module_t* module, const char* passes,
                            const qn_lower_options_t* options, qn_module_t** out_module) {
  QN_REQUIRE(out_module);
  *out_module = NULL;
  QN_REQUIRE(module, passes);
  qn_lower_options_t given;
  qn_machine_t machine;
  QN_TRY(read_options(options, &given, &machine));
  lower_plan_t plan;
  QN_TRY(make_plan(passes, given.until, &plan));
  qn__pass_options_t own = qn__lower_pass_options(&machine, given.tier, given.is_checked);
  qn__ir_body_t body;
  qn_span_t bytes = {module->bytes, module->byte_count};
  QN_TRY(qn__body_decode(bytes, module->allocator, &body));
  qn_status_t status = run(&plan, &own, &body);
  if (!qn_ok(status)) {
    qn__body_deinit(&body);
    return status;
  }
  QN_TRY(qn__module_finish_lowered(&body, out_module));
  (*out_module)->is_mapped = plan.is_mapped;
  return QN_OK;
}
