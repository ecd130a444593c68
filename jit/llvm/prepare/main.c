// SPDX-License-Identifier: Apache-2.0
// jit/llvm/prepare/main.c: compiles kernels of products, when quern is built, to a C file.
//
//   prepare-kernels FILE
//
// The code is that of this generator for the functions below, once for each target of prepared.inc,
// order of columns and form (the pass `block`, option `preparing`). A form that a target has no use
// for is left out.
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "ir/passes/passes.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "jit/llvm/compile.h"
#include "jit/llvm/prepared.h"
#include "jit/llvm/unit.h"

#define KERNEL(shape, at)                                   \
  "func product(a: f32[n, k] strides [r, 1], b: f32[" shape \
  "] strides [s, 1], out c: f32[n, m] strides [t, 1]) {\n"  \
  "  parallel i in 0..n { parallel j in 0..m {\n"           \
  "    c[i, j] = sum p in 0..k { a[i, p] * b[" at "] }; } }\n}\n"
static const char* const texts[] = {KERNEL("k, m", "p, j"), KERNEL("m, k", "j, p")};
static const char* const symbols[] = {"n", "k", "r", "m", "s", "t"};

static const char* const targets[] = {
#define QN_PREPARED(text) text,
#include "jit/llvm/prepared.inc"
#undef QN_PREPARED
};

typedef struct preparation {
  qn__llvm_worker_pool_t pool;
  const qn_target_t* target;
  qn__buffer_t image;  // of the order of columns that is compiled
  uint32_t offsets[qn__product_forms];
  uint32_t forms;
  int64_t stack_bytes;
} preparation_t;

static void must(qn_status_t status, const char* what) {
  if (qn_ok(status)) return;
  (void)fprintf(stderr, "prepare-kernels: %s: %s\n", what, qn_status_message(status));
  exit(1);
}

static void check_words(const qn__ir_func_t* function) {
  bool is_right = function->param_count == QN__PREPARED_POINTERS &&
                  function->symbol_count == QN_COUNT_OF(symbols);
  for (size_t i = 0; is_right && i < QN_COUNT_OF(symbols); ++i) {
    is_right = strcmp(function->symbols[i]->name, symbols[i]) == 0;
  }
  must(is_right ? QN_OK : qn_status_make(QN_STATUS_INTERNAL, "other words than prepared.h has"),
       "the kernel");
}

static bool is_no_launch(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  (void)walker;
  return stmt->kind != QN__STMT_LOOP || stmt->loop.kind != QN_LOOP_PARALLEL;
}

// Compiles one kernel and appends it, if the target has this form.
static void compile(preparation_t* job, int order, int form) {
  const char* text = texts[order];
  qn_allocator_t allocator = qn_allocator_default();
  qn__diag_t diag;
  qn__ir_body_t body;
  qn__diag_init(&diag, allocator, NULL, "<kernel>", qn__str(text));
  if (!qn__text_parse(qn__str(text), allocator, &diag, &body)) {
    must(qn_status_make(QN_STATUS_INTERNAL, "its text does not parse"), "the kernel");
  }
  check_words(body.first);
  must(qn__body_verify_status(&body, "the kernel"), "the kernel");
  const qn_compile_request_t request = {.tier = QN_TIER_FULL};
  qn__pass_options_t options = qn__llvm_pass_options(job->target, &request);
  options.prepared = 0;
  options.preparing = 1 + form;
  qn_status_t status = qn__passes_run_cpu(&body, &options);
  if (qn_status_code(status) == QN_STATUS_UNSUPPORTED) {
    qn_status_free(status);
  } else {
    must(status, "passes");
    qn__ir_walker_t walker = {.on_stmt = is_no_launch};
    if (!qn__walk_block(&walker, &body.first->body)) {
      must(qn_status_make(QN_STATUS_INTERNAL, "it launches"), "the kernel");
    }
    qn__llvm_unit_options_t unit_options = {.allocator = allocator,
                                            .pool = &job->pool,
                                            .request = &request,
                                            .target = job->target,
                                            .form = QN__LLVM_FORM_IMAGE};
    qn__llvm_unit_t unit = {.first = body.first, .function_count = 1};
    must(qn__llvm_unit_run(&unit, &unit_options), "LLVM");
    uint64_t base = qn__llvm_image_append(&unit.image, &job->image);
    job->offsets[form] = (uint32_t)(base + unit.image.offsets[0]);
    job->forms |= 1U << form;
    int64_t stack_bytes = unit.emitted.functions[0].stack_bytes;
    if (stack_bytes > job->stack_bytes) job->stack_bytes = stack_bytes;
    qn__llvm_unit_end(&unit);
  }
  qn__body_deinit(&body);
  qn__diag_deinit(&diag);
}

static void print_bytes(FILE* out, size_t target, int order, const qn__buffer_t* bytes) {
  (void)fprintf(out, "static const uint8_t image_%zu_%d[] = {", target, order);
  for (size_t i = 0; i < bytes->size; ++i) {
    (void)fprintf(out, "%s%u,", i % 24 == 0 ? "\n" : "", bytes->data[i]);
  }
  (void)fprintf(out, "\n};\n");
}

int main(int argc, char** argv) {
  FILE* out = argc == 2 ? fopen(argv[1], "w") : NULL;
  if (!out) {
    (void)fprintf(stderr, "usage: prepare-kernels FILE\n");
    return 2;
  }
  preparation_t job = {.target = NULL};
  must(qn__llvm_worker_pool_init(&job.pool, qn_allocator_default()), "LLVM");
  qn__buffer_t rows;
  qn__buffer_init(&rows, qn_allocator_default());
  (void)fprintf(out, "// Written by jit/llvm/prepare/main.c.\n#include \"jit/llvm/prepared.h\"\n");
  for (size_t i = 0; i < QN_COUNT_OF(targets); ++i) {
    qn_target_t* target;
    must(qn_target_parse(targets[i], &target), targets[i]);
    job.target = target;
    job.stack_bytes = 0;
    qn__buffer_t images;
    qn__buffer_init(&images, qn_allocator_default());
    for (int order = 0; order < 2; ++order) {
      qn__buffer_init(&job.image, qn_allocator_default());
      job.forms = 0;
      memset(job.offsets, 0, sizeof job.offsets);
      for (int form = 0; form < qn__product_forms; ++form) compile(&job, order, form);
      print_bytes(out, i, order, &job.image);
      qn__buffer_format(&images, "{image_%zu_%d, %zu, %u, {", i, order, job.image.size, job.forms);
      for (int form = 0; form < qn__product_forms; ++form) {
        qn__buffer_format(&images, "%u,", job.offsets[form]);
      }
      qn__buffer_cstr(&images, "}},");
      qn__buffer_deinit(&job.image);
    }
    qn__buffer_format(&rows, "{0x%llx, %u, %u, %u, %lld, {%.*s}},\n",
                      (unsigned long long)target->features.bits, qn__target_vector_bytes(target),
                      qn__target_wide_multiplies(target), qn__llvm_prepared_l2(target),
                      (long long)job.stack_bytes, (int)images.size, (const char*)images.data);
    qn__buffer_deinit(&images);
    qn_target_release(target);
  }
  must(qn__buffer_status(&rows, "the table"), "the table");
  (void)fprintf(out,
                "static const qn__llvm_prepared_t rows[] = {\n%.*s{.features = 0},\n};\n"
                "const qn__llvm_prepared_t* qn__llvm_prepared_table(void) { return rows; }\n",
                (int)rows.size, (const char*)rows.data);
  qn__buffer_deinit(&rows);
  qn__llvm_worker_pool_deinit(&job.pool);
  return fclose(out) == 0 ? 0 : 1;
}
