// SPDX-License-Identifier: Apache-2.0
// An external program, built against an installed quern by CMake and by pkg-config, as C and C++.
#include <quern/quern.h>
#include <stdio.h>
#include <string.h>

static int fail(qn_status_t status) {
  fprintf(stderr, "%s: %s\n", qn_status_code_text(qn_status_code(status)),
          qn_status_message(status));
  qn_status_free(status);
  return 1;
}

int main(int argc, char** argv) {
  static const char text[] =
      "func saxpy(a: f32, x: f32[n], inout y: f32[n]) {\n"
      "  parallel i in 0..n {\n"
      "    y[i] = a * x[i] + y[i];\n"
      "  }\n"
      "}\n";
  const char* kind = argc > 1 ? argv[1] : "interp";
  qn_engine_t* engine;
  qn_module_t* module;
  qn_target_t* target;
  qn_function_t* saxpy;
  qn_status_t status = qn_engine_create(NULL, &engine);
  if (!qn_ok(status)) return fail(status);
  status = qn_module_parse(text, strlen(text), NULL, &module);
  if (!qn_ok(status)) return fail(status);
  status = qn_target_parse(kind, &target);
  if (!qn_ok(status)) return fail(status);
  status = qn_engine_function(engine, module, target, "saxpy", NULL, NULL, &saxpy);
  if (!qn_ok(status)) return fail(status);

  float x_data[] = {1, 2, 3}, y_data[] = {10, 20, 30};
  int64_t shape[] = {3};
  qn_tensor_t x = {x_data, {QN_DEVICE_CPU, 0}, 1, qn_dtype_to_dl(QN_DTYPE_F32), shape, NULL, 0};
  qn_tensor_t y = {y_data, {QN_DEVICE_CPU, 0}, 1, qn_dtype_to_dl(QN_DTYPE_F32), shape, NULL, 0};
  qn_value_t args[] = {qn_value_float(2.0), qn_value_tensor(&x), qn_value_tensor(&y)};
  status = qn_function_call(saxpy, args, 3, NULL);
  if (!qn_ok(status)) return fail(status);
  qn_function_release(saxpy);
  qn_target_release(target);
  qn_module_release(module);
  qn_engine_destroy(engine);
  printf("%g %g %g, quern %s\n", y_data[0], y_data[1], y_data[2], qn_version());
  return y_data[0] == 12 && y_data[1] == 24 && y_data[2] == 36 ? 0 : 1;
}
