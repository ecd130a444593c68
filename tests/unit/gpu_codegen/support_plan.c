// SPDX-License-Identifier: Apache-2.0
// tests/unit/gpu_codegen/support_plan.c: see support_plan.h.
#include "tests/unit/gpu_codegen/support_plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "ir/encode.h"
#include "ir/verify.h"

qn__gpu_lower_options_t lower_options(void) {
  return (qn__gpu_lower_options_t){.passes = {.warp_size = 32,
                                              .max_threads = 1024,
                                              .preferred_threads = 256,
                                              .max_shared_bytes = 49152,
                                              .multiprocessors = 100,
                                              .has_shuffles = true,
                                              .has_block_reductions = true},
                                   .has_names = true};
}

qn_status_t lower_text(const char* text, const qn__gpu_lower_options_t* options,
                       qn_allocator_t allocator, lowered_t* out) {
  memset(out, 0, sizeof *out);
  QN_TRY(qn_module_parse(text, strlen(text), NULL, &out->module));
  size_t size;
  const void* bytes = qn_module_bytes(out->module, &size);
  qn_status_t status = qn__body_decode((qn_span_t){bytes, size}, allocator, &out->body);
  if (!qn_ok(status)) {
    qn_module_release(out->module);
    return status;
  }
  qn__arena_init(&out->arena, allocator);
  status = qn__gpu_lower(&out->body, options, &out->arena, &out->program);
  if (!qn_ok(status)) lowered_release(out);
  return status;
}

void lowered_release(lowered_t* lowered) {
  qn__arena_deinit(&lowered->arena);
  qn__body_deinit(&lowered->body);
  qn_module_release(lowered->module);
}

void decode_again(const lowered_t* lowered, qn__arena_t* arena, qn__gpu_plan_t* out) {
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, qn_allocator_default());
  qn__gpu_plan_encode(&lowered->program.plan, &bytes);
  qn_status_t status = qn__gpu_plan_decode(qn__buffer_as_span(&bytes), 0, arena, out);
  if (!qn_ok(status)) {
    (void)fprintf(stderr, "%s\n", qn_status_message(status));
    abort();
  }
  qn__buffer_deinit(&bytes);
}

// ---- text

static void put_expr(qn__buffer_t* out, const qn__gpu_expr_t* expr) {
  char stack[QN__GPU_MAX_EXPR_DEPTH + 1][512];
  size_t depth = 0;
  for (uint32_t i = 0; i < expr->op_count; i++) {
    const qn__gpu_op_t* op = &expr->ops[i];
    char text[512];
    uint32_t taken = op->kind == QN__GPU_APPLY  ? qn__gpu_op_arity(op->op)
                     : op->kind == QN__GPU_WRAP ? 1
                                                : 0;
    depth -= taken;
    const char* a = taken > 0 ? stack[depth] : "";
    const char* b = taken > 1 ? stack[depth + 1] : "";
    switch (op->kind) {
      case QN__GPU_CONST:
        (void)snprintf(text, sizeof text, "%" PRId64, op->value);
        break;
      case QN__GPU_WORD:
        (void)snprintf(text, sizeof text, "w%" PRId64, op->value);
        break;
      case QN__GPU_LOCAL:
        (void)snprintf(text, sizeof text, "l%" PRId64, op->value);
        break;
      case QN__GPU_WRAP:
        (void)snprintf(text, sizeof text, "%s(%.400s)", qn_dtype_text(op->dtype), a);
        break;
      case QN__GPU_APPLY: {
        const qn__ir_op_info_t* info = qn__op_info(op->op);
        if (taken == 2 && info->syntax == QN__SYNTAX_INFIX) {
          (void)snprintf(text, sizeof text, "(%.200s %s %.200s)", a, info->text, b);
        } else if (taken == 1) {
          (void)snprintf(text, sizeof text, "%s(%.200s)", info->text, a);
        } else {
          (void)snprintf(text, sizeof text, "%s(%.160s, %.160s%s%.160s)", info->text, a, b,
                         taken == 3 ? ", " : "", taken == 3 ? stack[depth + 2] : "");
        }
        break;
      }
    }
    memcpy(stack[depth++], text, sizeof text);
  }
  qn__buffer_cstr(out, expr->op_count ? stack[0] : "-");
}

static void put_kernel(qn__buffer_t* out, const qn__gpu_plan_t* plan, uint32_t index) {
  const qn__gpu_kernel_t* kernel = &plan->kernels[index];
  qn__buffer_format(out, "%s(", kernel->name);
  for (uint32_t i = 0; i < kernel->arg_count; i++) {
    static const char letters[] = "?bxwl";
    const qn__gpu_arg_t* arg = &kernel->args[i];
    qn__buffer_format(out, "%s%c%u%s", i ? " " : "", letters[arg->kind], arg->index,
                      arg->is_written ? "!" : "");
  }
  qn__buffer_format(out, ")%s", kernel->has_record ? " record" : "");
}

static void put_step(qn__buffer_t* out, const qn__gpu_plan_t* plan, const qn__gpu_step_t* step) {
  switch (step->kind) {
    case QN__GPU_STEP_LET:
      qn__buffer_format(out, "l%u = ", step->slot);
      put_expr(out, &step->a);
      break;
    case QN__GPU_STEP_WORKSPACE:
      qn__buffer_format(out, "x%u = bytes ", step->slot);
      put_expr(out, &step->a);
      break;
    case QN__GPU_STEP_LOOP:
      qn__buffer_format(out, "for l%u in ", step->slot);
      put_expr(out, &step->a);
      qn__buffer_cstr(out, "..");
      put_expr(out, &step->b);
      qn__buffer_format(out, " [%u]", step->body_count);
      break;
    case QN__GPU_STEP_IF:
      qn__buffer_cstr(out, "if ");
      put_expr(out, &step->a);
      if (step->guard.op_count != 0) {
        qn__buffer_cstr(out, " guard ");
        put_expr(out, &step->guard);
      }
      qn__buffer_format(out, " [%u, %u]", step->body_count, step->else_count);
      break;
    case QN__GPU_STEP_LAUNCH: {
      uint32_t threads = plan->kernels[step->kernel].thread_count;
      qn__buffer_cstr(out, "launch ");
      put_kernel(out, plan, step->kernel);
      qn__buffer_cstr(out, " blocks ");
      put_expr(out, &step->a);
      qn__buffer_cstr(out, " threads ");
      if (threads) {
        qn__buffer_format(out, "%u", threads);
      } else {
        put_expr(out, &step->b);
      }
      qn__buffer_cstr(out, " guard ");
      put_expr(out, &step->guard);
      if (step->wide_kernel != QN__GPU_NO_KERNEL) {
        qn__buffer_format(out, " else %s", plan->kernels[step->wide_kernel].name);
      }
      break;
    }
    case QN__GPU_STEP_ASSERT:
      qn__buffer_format(out, "assert %u ", step->site);
      put_expr(out, &step->a);
      break;
  }
  qn__buffer_char(out, '\n');
}

char* plan_text(const qn__gpu_plan_t* plan) {
  qn__buffer_t out;
  qn__buffer_init(&out, qn_allocator_default());
  qn__buffer_cstr(&out, "");
  for (uint32_t f = 0; f < plan->function_count; f++) {
    const qn__gpu_function_t* function = &plan->functions[f];
    for (uint32_t i = 0; i < function->step_count; i++) put_step(&out, plan, &function->steps[i]);
  }
  char* text = malloc(out.size + 1);
  if (!text) abort();
  if (out.size) memcpy(text, out.data, out.size);
  text[out.size] = '\0';
  qn__buffer_deinit(&out);
  return text;
}

char* read_source(const char* path) {
  char full[512];
  (void)snprintf(full, sizeof full, "%s/%s", QN_SOURCE_DIR, path);
  FILE* file = fopen(full, "rb");
  if (!file) abort();
  char* text = calloc(1, 1 << 20);
  if (!text) abort();
  size_t size = fread(text, 1, (1 << 20) - 1, file);
  text[size] = '\0';
  (void)fclose(file);
  return text;
}
