// SPDX-License-Identifier: Apache-2.0
// jit/llvm/unit.c: splits a body into units, and runs LLVM on a unit.
//
// Objects that only our code uses (arena, buffers) live in the unit, so that they are freed even if
// LLVM fails fatally in between (guard.h).
#include "jit/llvm/unit.h"

#include <llvm-c/Analysis.h>
#include <stdio.h>

#include "jit/identity/stage.h"
#include "jit/llvm/guard.h"

// ------------------------------------------------------------------------------------ the split

// The cost of a unit if there are several: some 35 ms, of which 3 ms are the unit's own, for LLVM's
// lists of passes and two links. A module of less than two is one unit.
enum { UNIT_COST = 240, FUNCTION_COST = 10, LOOP_COST = 10 };

static bool count_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  *(size_t*)walker->self += stmt->kind == QN__STMT_LOOP ? LOOP_COST : 1;
  return true;
}

static bool count_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  *(size_t*)walker->self += expr->kind == QN__EXPR_REDUCE ? LOOP_COST : 1;
  return true;
}

// Estimates the compile time of a function by its nodes.
static size_t cost_of(qn__ir_func_t* function) {
  size_t cost = FUNCTION_COST;
  qn__ir_walker_t walker = {count_stmt, count_expr, &cost};
  (void)qn__walk_block(&walker, &function->body);
  return cost;
}

size_t qn__llvm_unit_split(const qn__ir_body_t* body, qn__llvm_unit_t* units) {
  size_t total = 0;
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    total += cost_of(function);
  }
  const size_t wanted = total < UNIT_COST ? 1 : total / UNIT_COST;
  // The share at which the next unit begins, of `wanted` equal ones.
  size_t count = 0, cost = 0, share = 0;
  for (qn__ir_func_t* function = body->first; function; function = function->next) {
    if (cost * wanted >= share * total) {
      units[count++].first = function;
      share = cost * wanted / total + 1;
    }
    units[count - 1].function_count++;
    cost += cost_of(function);
  }
  return count ? count : 1;
}

// ------------------------------------------------------------------------------------ the stages

static void end_stage(qn__llvm_unit_t* unit, qn_compile_stage_t stage) {
  qn__stage_end(unit->options->request, stage, &unit->stage_start_ns);
}

static void on_diagnostic(LLVMDiagnosticInfoRef info, void* self) {
  qn__llvm_unit_t* unit = self;
  if (LLVMGetDiagInfoSeverity(info) != LLVMDSError || unit->diagnostic[0]) return;
  char* text = LLVMGetDiagInfoDescription(info);
  (void)snprintf(unit->diagnostic, sizeof unit->diagnostic, "%s", text);
  LLVMDisposeMessage(text);
}

static qn_status_t check_diagnostic(const qn__llvm_unit_t* unit) {
  if (!unit->diagnostic[0]) return QN_OK;
  return qn_status_make(QN_STATUS_UNSUPPORTED, "LLVM cannot make code: %s", unit->diagnostic);
}

static bool has_feature(const qn_target_t* target, const char* name) {
  return qn__features_has(target->arch, target->features, name);
}

static qn_status_t make_module(qn__llvm_unit_t* unit) {
  const qn_target_t* target = unit->options->target;
  const qn_compile_request_t* request = unit->options->request;
  bool is_x86 = strcmp(target->arch->name, "x86_64") == 0;
  const char* tune = "";
  (void)qn_target_get_string(target, "tune", &tune);
  qn__llvm_emit_options_t options = {
      .context = unit->context,
      .machine = unit->machine,
      .tune = tune,
      .vector_bytes = qn__target_vector_bytes(target),
      .has_fma = qn__target_has_fma(target),
      .has_round = !is_x86 || has_feature(target, "sse4.1"),
      .has_f16c = !is_x86 || has_feature(target, "f16c"),
      .has_avx2 = is_x86 && has_feature(target, "avx2"),
      .dot_rows = qn__emit_dot_rows(target),
      .has_tiles = qn__emit_tile_ops(target) != 0,
      .has_avx512 = is_x86 && has_feature(target, "avx512bw") && has_feature(target, "avx512dq") &&
                    has_feature(target, "avx512vl"),
      .prepared = qn__llvm_prepared_find(target),
      .is_checked = request->is_checked,
      .is_fast_tier = request->tier == QN_TIER_FAST,
  };
  QN_TRY(
      qn__emit_module(unit->first, unit->function_count, &options, &unit->arena, &unit->emitted));
#ifndef NDEBUG
  char* message = NULL;
  bool is_bad = LLVMVerifyModule(unit->emitted.module, LLVMReturnStatusAction, &message);
  qn_status_t status =
      is_bad ? qn_status_make(QN_STATUS_INTERNAL, "the emitted code is not valid: %s", message)
             : QN_OK;
  LLVMDisposeMessage(message);
  return status;
#else
  return QN_OK;
#endif
}

static qn_status_t link_image(qn__llvm_unit_t* unit) {
  size_t count = unit->emitted.function_count;
  const char** entries = qn__arena_alloc_array(&unit->arena, count + 1, sizeof *entries);
  if (!entries) return qn__out_of_memory("an image");
  for (size_t i = 0; i < count; ++i) entries[i] = unit->emitted.functions[i].name;
  qn_span_t object = {(const uint8_t*)LLVMGetBufferStart(unit->file),
                      LLVMGetBufferSize(unit->file)};
  return qn__llvm_image_link(unit->worker, object, entries, count, &unit->arena, &unit->image);
}

// Runs the stages, inside of the guard.
static qn_status_t run_llvm(void* self) {
  qn__llvm_unit_t* unit = self;
  const qn__llvm_form_t form = unit->options->form;
  const qn_tier_t tier = unit->options->request->tier;
  QN_TRY(qn__llvm_worker_machine(unit->worker, unit->options->target, tier, &unit->machine));
  unit->context = LLVMContextCreate();
  LLVMContextSetDiagnosticHandler(unit->context, on_diagnostic, unit);
  QN_TRY(make_module(unit));
  end_stage(unit, QN_COMPILE_EMIT);
  if (form == QN__LLVM_FORM_RAW) return QN_OK;
  QN_TRY(qn__llvm_optimize(unit->emitted.module, unit->machine, tier));
  QN_TRY(check_diagnostic(unit));
  end_stage(unit, QN_COMPILE_OPTIMIZE);
  if (form == QN__LLVM_FORM_LLVM) return QN_OK;
  LLVMCodeGenFileType type = form == QN__LLVM_FORM_ASM ? LLVMAssemblyFile : LLVMObjectFile;
  QN_TRY(qn__llvm_image_emit_file(unit->emitted.module, unit->machine, type, &unit->file));
  QN_TRY(check_diagnostic(unit));
  end_stage(unit, QN_COMPILE_CODEGEN);
  if (form != QN__LLVM_FORM_IMAGE) return QN_OK;
  QN_TRY(link_image(unit));
  end_stage(unit, QN_COMPILE_LINK);
  return QN_OK;
}

// Gives the worker back and frees LLVM's objects.
static void release_llvm(qn__llvm_unit_t* unit) {
  if (!unit->is_abandoned) {
    if (unit->file) LLVMDisposeMemoryBuffer(unit->file);
    if (unit->emitted.module) LLVMDisposeModule(unit->emitted.module);
    if (unit->context) LLVMContextDispose(unit->context);
  }
  unit->file = NULL;
  unit->emitted.module = NULL;
  unit->context = NULL;
  if (unit->worker) {
    qn__llvm_worker_give_back(unit->options->pool, unit->worker, unit->is_abandoned);
  }
  unit->worker = NULL;
}

qn_status_t qn__llvm_unit_run(qn__llvm_unit_t* unit, const qn__llvm_unit_options_t* options) {
  unit->options = options;
  unit->stage_start_ns = qn__now_ns();
  qn__arena_init(&unit->arena, options->allocator);
  qn__llvm_image_init(&unit->image, options->allocator);
  QN_TRY(qn__llvm_worker_take(options->pool, &unit->worker));
  qn_status_t status = qn__llvm_guard_run(run_llvm, unit, &unit->is_abandoned);
  // Of many units, all images are in memory at the end, but not all of LLVM's modules.
  if (!qn_ok(status) || options->form == QN__LLVM_FORM_IMAGE) release_llvm(unit);
  return status;
}

void qn__llvm_unit_end(qn__llvm_unit_t* unit) {
  if (!unit->options) return;
  release_llvm(unit);
  qn__llvm_image_deinit(&unit->image);
  qn__arena_deinit(&unit->arena);
}
