// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/inputs.c: chooses sizes, and makes arguments for them.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/bench/subject.h"
#include "tools/cli/memory.h"
#include "tools/cli/run/npy.h"

// Bounds of default sizes: bytes of all arrays, those where the work cannot be counted, one size.
#define MAX_BYTES 33554432.0
#define UNKNOWN_BYTES 1048576.0
enum { LARGEST_SIZE = 1 << 20 };

// A function whose sizes are being chosen.
typedef struct plan {
  const subject_t* subject;
  size_t param_count, symbol_count;
  qn_param_info_t* params;  // owned
  const char** given;       // texts of --arg by parameter, or NULL; owned
  int64_t* scalars;         // by parameter: of --sizes, fixed, or 1; owned
  bool* has_scalar;         // owned
  int64_t* symbols;         // owned
  bool* has_symbol;         // owned
  int64_t warp_size;
} plan_t;

static void plan_free(plan_t* plan) {
  free(plan->params);
  free(plan->given);
  free(plan->scalars);
  free(plan->has_scalar);
  free(plan->symbols);
  free(plan->has_symbol);
}

static const char* symbol_name(const plan_t* plan, size_t i) {
  return qn_module_symbol_name(plan->subject->module, plan->subject->index, i);
}

static qn_status_t shape_of(const plan_t* plan, size_t param, const int64_t* symbols,
                            int64_t shape[NPY_MAX_RANK]) {
  return qn_module_param_shape(plan->subject->module, plan->subject->index, param, symbols, shape);
}

static qn_status_t begin(const args_t* args, plan_t* plan) {
  const qn_module_t* module = plan->subject->module;
  size_t index = plan->subject->index;
  size_t params = qn_module_function_param_count(module, index);
  size_t symbols = qn_module_function_symbol_count(module, index);
  plan->param_count = params;
  plan->symbol_count = symbols;
  plan->params = memory_zeroed(params, sizeof *plan->params);
  plan->given = memory_zeroed(params, sizeof *plan->given);
  plan->scalars = memory_zeroed(params, sizeof *plan->scalars);
  plan->has_scalar = memory_zeroed(params, sizeof *plan->has_scalar);
  plan->symbols = memory_zeroed(symbols, sizeof *plan->symbols);
  plan->has_symbol = memory_zeroed(symbols, sizeof *plan->has_symbol);
  qn_status_t status = QN_OK;
  for (size_t i = 0; i < params && qn_ok(status); i++) {
    plan->params[i].struct_size = sizeof plan->params[i];
    status = qn_module_param_info(module, index, i, &plan->params[i]);
    plan->scalars[i] = plan->params[i].is_fixed ? plan->params[i].fixed_value : 1;
  }
  const char* text = NULL;
  for (int at = 0; qn_ok(status) && (text = args_next(args, "arg", &at));) {
    size_t size = strcspn(text, "="), i = 0;
    while (i < params && (strlen(plan->params[i].name) != size ||
                          memcmp(plan->params[i].name, text, size) != 0)) {
      i++;
    }
    if (i < params && !plan->given[i]) {
      plan->given[i] = text;
    } else if (i < params) {
      status = qn_status_make(QN_STATUS_INVALID_ARGUMENT, "--arg %s was given twice",
                              plan->params[i].name);
    } else {
      status = qn_status_make(QN_STATUS_NOT_FOUND, "--arg '%s': no such parameter in %s", text,
                              qn_module_function_signature(module, index));
    }
  }
  return status;
}

// ------------------------------------------------------------------------------------ sizes

// Sets a size that no option has set before.
static qn_status_t set_once(int64_t value, const char* name, int64_t* out_value, bool* out_is_set) {
  if (*out_is_set) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "--sizes: '%s' was given twice", name);
  }
  *out_value = value;
  *out_is_set = true;
  return QN_OK;
}

static qn_status_t set_size(plan_t* plan, const char* name, int64_t value) {
  for (size_t i = 0; i < plan->symbol_count; i++) {
    if (strcmp(symbol_name(plan, i), name) != 0) continue;
    return set_once(value, name, &plan->symbols[i], &plan->has_symbol[i]);
  }
  const char* near = NULL;
  for (size_t i = 0; i < plan->param_count; i++) {
    const qn_param_info_t* param = &plan->params[i];
    if (param->is_buffer) continue;
    if (!near) near = nearest_name(name, &param->name, sizeof param->name, 1);
    if (strcmp(param->name, name) != 0) continue;
    bool is_set = plan->has_scalar[i] || plan->given[i];  // by --sizes, or by --arg
    plan->has_scalar[i] = true;
    return set_once(value, name, &plan->scalars[i], &is_set);
  }
  for (size_t i = 0; i < plan->symbol_count && !near; i++) {
    const char* symbol = symbol_name(plan, i);
    near = nearest_name(name, &symbol, sizeof symbol, 1);
  }
  return qn_status_make(QN_STATUS_NOT_FOUND,
                        "--sizes: '%s' is neither a symbol nor a scalar of %s%s%s%s", name,
                        qn_module_function_signature(plan->subject->module, plan->subject->index),
                        near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

// Reads "n=512,m=64".
static qn_status_t read_sizes(plan_t* plan, const char* text) {
  while (text && *text) {
    char name[64] = "", digits[32] = "";
    size_t size = strcspn(text, ","), name_size = strcspn(text, "=");
    uint64_t value = 0;
    bool is_good = name_size < size && name_size > 0 && name_size < sizeof name &&
                   size - name_size - 1 < sizeof digits;
    if (is_good) {
      memcpy(name, text, name_size);
      memcpy(digits, text + name_size + 1, size - name_size - 1);
      is_good = args_number(digits, 0, INT64_MAX, &value);
    }
    if (!is_good) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "--sizes has '%.*s', expected NAME=NUMBER, with commas between",
                            (int)size, text);
    }
    qn_status_t status = set_size(plan, name, (int64_t)value);
    if (!qn_ok(status)) return status;
    text += size + (text[size] == ',');
  }
  return QN_OK;
}

// Makes the value of an argument that was given, of which an array is a shape alone.
static qn_status_t given_value(const plan_t* plan, size_t i, qn_tensor_t* tensor,
                               int64_t shape[NPY_MAX_RANK], qn_value_t* out_value) {
  value_spec_t spec;
  const char* text = strchr(plan->given[i], '=');
  qn_status_t status = value_parse(text ? text + 1 : "", &spec);
  if (qn_ok(status) && !value_is_array(&spec)) *out_value = value_scalar(&spec);
  if (!qn_ok(status) || !value_is_array(&spec)) return status;
  if (spec.kind == VALUE_FILE) {
    npy_array_t array = {.rank = 0};
    status = npy_read(spec.path, &array);
    spec.rank = array.rank;
    memcpy(spec.shape, array.shape, sizeof array.shape);
    npy_free(&array);
  }
  memcpy(shape, spec.shape, sizeof spec.shape);
  *tensor = (qn_tensor_t){.ndim = spec.rank, .shape = shape};
  *out_value = qn_value_tensor(tensor);
  return status;
}

// Takes symbols from the arguments that were given, as a call does.
static qn_status_t read_given(plan_t* plan) {
  const size_t count = plan->param_count;
  int64_t(*shapes)[NPY_MAX_RANK] = memory_zeroed(count, sizeof *shapes);
  qn_tensor_t* tensors = memory_zeroed(count, sizeof *tensors);
  qn_value_t* values = memory_zeroed(count, sizeof *values);
  int64_t* symbols = memory_zeroed(plan->symbol_count, sizeof *symbols);
  qn_status_t status = QN_OK;
  for (size_t i = 0; i < count && qn_ok(status); i++) {
    if (plan->has_scalar[i]) values[i] = qn_value_int(plan->scalars[i]);
    if (plan->given[i]) status = given_value(plan, i, &tensors[i], shapes[i], &values[i]);
    if (!qn_ok(status)) status = qn_status_annotate(status, "--arg %s", plan->params[i].name);
  }
  if (qn_ok(status)) {
    status = qn_module_infer_symbols(plan->subject->module, plan->subject->index, values, count,
                                     symbols);
  }
  for (size_t s = 0; s < plan->symbol_count && qn_ok(status); s++) {
    if (plan->has_symbol[s] || symbols[s] < 0) continue;
    plan->symbols[s] = symbols[s];
    plan->has_symbol[s] = true;
  }
  free(shapes);
  free(tensors);
  free(values);
  free(symbols);
  return status;
}

// Computes the bytes of all buffers and the operations of a call. `*out_work` is negative where it
// cannot be counted. False where a shape cannot be computed.
static bool estimate(const plan_t* plan, double* out_bytes, double* out_work) {
  size_t count = plan->param_count;
  int64_t(*shapes)[NPY_MAX_RANK] = memory_zeroed(count, sizeof *shapes);
  qn_tensor_t* tensors = memory_zeroed(count, sizeof *tensors);
  qn_value_t* values = memory_zeroed(count, sizeof *values);
  *out_bytes = 0;
  bool is_good = true;
  for (size_t i = 0; i < count && is_good; i++) {
    const qn_param_info_t* param = &plan->params[i];
    values[i] = qn_value_int(plan->scalars[i]);
    if (!param->is_buffer) continue;
    is_good = qn_status_consume(shape_of(plan, i, plan->symbols, shapes[i])) == QN_STATUS_OK;
    double bytes = (double)qn_dtype_size_bytes(param->dtype);
    for (uint32_t d = 0; d < param->rank && is_good; d++) bytes *= (double)shapes[i][d];
    *out_bytes += bytes;
    tensors[i] = (qn_tensor_t){.ndim = (int32_t)param->rank, .shape = shapes[i]};
    values[i] = qn_value_tensor(&tensors[i]);
  }
  qn_work_t work = {.struct_size = sizeof work};
  *out_work = -1;
  // Counting may take a second, and says nothing more about sizes that are too large anyway.
  bool is_small = is_good && *out_bytes <= MAX_BYTES;
  qn_status_t status = is_small ? qn_module_work(plan->subject->module, plan->subject->index,
                                                 values, count, plan->warp_size, &work)
                                : QN_OK;
  bool is_counted = qn_status_consume(status) == QN_STATUS_OK && is_small;
  // A function such as exp takes some ten instructions.
  if (is_counted) *out_work = work.flops + work.integer_ops + 10 * work.calls;
  free(shapes);
  free(tensors);
  free(values);
  return is_good;
}

static void choose_symbols(plan_t* plan, double max_work) {
  bool is_free = false;
  for (size_t s = 0; s < plan->symbol_count; s++) is_free |= !plan->has_symbol[s];
  for (int64_t size = LARGEST_SIZE; is_free && size > 0; size /= 2) {
    for (size_t s = 0; s < plan->symbol_count; s++) {
      if (!plan->has_symbol[s]) plan->symbols[s] = size;
    }
    double bytes, work;
    if (!estimate(plan, &bytes, &work)) continue;
    if (work < 0 ? bytes <= UNKNOWN_BYTES : bytes <= MAX_BYTES && work <= max_work) return;
  }
}

// ------------------------------------------------------------------------------------ texts

static qn_status_t write_text(const plan_t* plan, size_t i, char** out_text) {
  *out_text = NULL;
  const qn_param_info_t* param = &plan->params[i];
  char text[1024];
  if (plan->given[i]) {
    *out_text = memory_text(plan->given[i]);
    return QN_OK;
  }
  if (!param->is_buffer) {
    bool is_bool = param->dtype == QN_DTYPE_BOOL;
    if (is_bool) {
      (void)snprintf(text, sizeof text, "%s=%s", param->name, plan->scalars[i] ? "true" : "false");
    } else {
      (void)snprintf(text, sizeof text, "%s=%" PRId64, param->name, plan->scalars[i]);
    }
    *out_text = memory_text(text);
    return QN_OK;
  }
  int64_t shape[NPY_MAX_RANK];
  qn_status_t status = shape_of(plan, i, plan->symbols, shape);
  if (!qn_ok(status)) return qn_status_annotate(status, "--sizes");
  bool is_out = param->access == QN_ACCESS_OUT;
  int size = snprintf(text, sizeof text, "%.100s=%s:%s[", param->name, is_out ? "zeros" : "rand",
                      qn_dtype_text(param->dtype));
  for (uint32_t d = 0; d < param->rank; d++) {
    size += snprintf(text + size, sizeof text - (size_t)size, "%s%" PRId64, d ? "," : "", shape[d]);
  }
  (void)snprintf(text + size, sizeof text - (size_t)size, is_out ? "]" : "]:%zu", i + 1);
  *out_text = memory_text(text);
  return QN_OK;
}

static void write_sizes(const plan_t* plan, char out[512]) {
  size_t used = 0;
  out[0] = '\0';
  for (size_t i = 0; i < plan->symbol_count + plan->param_count && used < 400; i++) {
    bool is_symbol = i < plan->symbol_count;
    size_t p = i - plan->symbol_count;
    if (!is_symbol && !plan->has_scalar[p]) continue;
    used += (size_t)snprintf(out + used, 512 - used, "%s%.60s=%" PRId64, used ? " " : "",
                             is_symbol ? symbol_name(plan, i) : plan->params[p].name,
                             is_symbol ? plan->symbols[i] : plan->scalars[p]);
  }
}

qn_status_t inputs_make(const args_t* args, const subject_t* subject, const char* sizes,
                        int64_t warp_size, double max_work, inputs_t* out) {
  static const option_spec_t arg = {"arg", 0, "NAME=VALUE", NULL, true};
  *out = (inputs_t){.sizes = NULL};
  plan_t plan = {.subject = subject, .warp_size = warp_size};
  qn_status_t status = begin(args, &plan);
  if (qn_ok(status)) status = read_sizes(&plan, sizes);
  if (qn_ok(status)) status = read_given(&plan);
  if (qn_ok(status)) {
    choose_symbols(&plan, max_work);
    out->texts = memory_zeroed(plan.param_count, sizeof *out->texts);
    out->args.options = memory_zeroed(plan.param_count + 1, sizeof *out->args.options);
    for (size_t i = 0; i < plan.param_count && qn_ok(status); i++) {
      status = write_text(&plan, i, &out->texts[i]);
      if (!qn_ok(status)) break;
      out->args.options[i] = (given_option_t){&arg, out->texts[i]};
      out->args.option_count = (int)i + 1;
    }
    char text[512];
    write_sizes(&plan, text);
    out->sizes = memory_text(text);
  }
  plan_free(&plan);
  return status;
}

void inputs_free(inputs_t* inputs) {
  for (int i = 0; i < inputs->args.option_count; i++) free(inputs->texts[i]);
  free(inputs->texts);
  free(inputs->sizes);
  args_free(&inputs->args);
  *inputs = (inputs_t){.sizes = NULL};
}
