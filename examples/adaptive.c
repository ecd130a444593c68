// SPDX-License-Identifier: Apache-2.0
// examples/adaptive.c: one function that specialises itself for the shapes that it is called with.
//
//   ./example_adaptive [CACHE_DIR [TARGET]]
//
// The kernel multiplies a few rows by a matrix. The program calls one handle with rows of 1 to 12
// and leaves the rest to the engine: generic code serves at first, and variants for frequent
// numbers of rows (1 to 8 only) when they have proved faster. It compares every result with plain
// C, and prints at the end what became of each number of rows. docs/specialize.md has the rules.
#include <math.h>
#include <quern/adaptive.h>
#include <quern/quern.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ROWS = 12, INNER = 256, COLUMNS = 256, CALLS = 200000 };

static const char text[] =
    "func product(x: f32[rows, k], w: f32[k, n], out y: f32[rows, n]) {\n"
    "  parallel i in 0..rows {\n"
    "    for j in 0..n { y[i, j] = sum c in 0..k { x[i, c] * w[c, j] }; }\n"
    "  }\n"
    "}\n";

static float x[MAX_ROWS * INNER], w[INNER * COLUMNS], y[MAX_ROWS * COLUMNS];

static int fail(qn_status_t status) {
  (void)fprintf(stderr, "%s\n", qn_status_message(status));
  qn_status_free(status);
  return 1;
}

static qn_status_t call(qn_function_t* function, int64_t rows) {
  qn_device_t cpu = {QN_DEVICE_CPU, 0};
  qn_dl_dtype_t f32 = qn_dtype_to_dl(QN_DTYPE_F32);
  int64_t shapes[3][2] = {{rows, INNER}, {INNER, COLUMNS}, {rows, COLUMNS}};
  qn_tensor_t tensors[3] = {{x, cpu, 2, f32, shapes[0], NULL, 0},
                            {w, cpu, 2, f32, shapes[1], NULL, 0},
                            {y, cpu, 2, f32, shapes[2], NULL, 0}};
  qn_value_t args[3];
  for (int i = 0; i < 3; i++) args[i] = qn_value_tensor(&tensors[i]);
  return qn_function_call(function, args, 3, NULL);
}

// Compares one element, another one at each call.
static bool is_right(int64_t rows, int number) {
  int64_t i = number % rows, j = number * 7 % COLUMNS;
  double wanted = 0;
  for (int64_t c = 0; c < INNER; c++) {
    wanted += (double)x[i * INNER + c] * (double)w[c * COLUMNS + j];
  }
  return fabs((double)y[i * COLUMNS + j] - wanted) <= 1e-4;
}

static void on_variant(void* self, const qn_variant_info_t* variant) {
  (void)self;
  printf("%-8s %-7s %s\n", variant->values, qn_variant_state_text(variant->state), variant->reason);
}

int main(int argc, char** argv) {
  for (int i = 0; i < MAX_ROWS * INNER; i++) x[i] = (float)(i % 13) / 13.0f - 0.5f;
  for (int i = 0; i < INNER * COLUMNS; i++) w[i] = (float)(i % 17) / 17.0f - 0.5f;
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  qn_function_t* function;
  qn_engine_options_t engine_options = {.struct_size = sizeof engine_options,
                                        .cache_dir = argc > 1 ? argv[1] : NULL};
  qn_status_t status = qn_engine_create(&engine_options, &engine);
  if (!qn_ok(status)) return fail(status);
  status = qn_module_parse(text, strlen(text), NULL, &module);
  if (!qn_ok(status)) return fail(status);
  status = qn_target_parse(argc > 2 ? argv[2] : "cpu", &target);
  if (!qn_ok(status)) return fail(status);

  qn_adaptive_name_t rows = {.name = "rows", .min_value = 1, .max_value = 8};
  qn_adaptive_options_t options = {.struct_size = sizeof options, .names = &rows, .name_count = 1};
  status =
      qn_engine_adaptive_function(engine, module, target, "product", &options, NULL, &function);
  if (!qn_ok(status)) return fail(status);

  for (int number = 0; number < CALLS; number++) {
    // Mostly one row, sometimes more.
    int64_t count = number % 4 ? 1 : 1 + number / 4 % MAX_ROWS;
    status = call(function, count);
    if (!qn_ok(status)) return fail(status);
    if (!is_right(count, number)) {
      printf("FAILED: wrong result with %d rows\n", (int)count);
      return 1;
    }
  }
  status = qn_engine_variants(engine, function, on_variant, NULL);
  if (!qn_ok(status)) return fail(status);
  qn_function_release(function);
  qn_target_release(target);
  qn_module_release(module);
  qn_engine_destroy(engine);
  printf("all results right\n");
  return 0;
}
