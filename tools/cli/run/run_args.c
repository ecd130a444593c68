// SPDX-License-Identifier: Apache-2.0
// tools/cli/run/run_args.c: binds the command line to the parameters of a function.
//
// The library checks dtypes, ranks and shapes at the call, so that the command shows the same
// messages as a program that calls it.
#include "tools/cli/run/run_args.h"

#include <stdlib.h>
#include <string.h>

#include "quern/device.h"
#include "tools/cli/memory.h"
#include "tools/cli/run/elements.h"

bool run_arg_is_output(const run_arg_t* arg) {
  return arg->is_array && arg->info.is_buffer &&
         (arg->info.access == QN_ACCESS_OUT || arg->info.access == QN_ACCESS_INOUT);
}

// Splits "NAME=REST" and finds the parameter.
static qn_status_t find_param(const run_args_t* run, const char* signature, const char* text,
                              run_arg_t** out_arg, const char** out_rest) {
  size_t size = strcspn(text, "=");
  *out_rest = text + size + 1;
  for (size_t i = 0; i < run->count; i++) {
    const char* name = run->args[i].info.name;
    if (strlen(name) != size || memcmp(name, text, size) != 0) continue;
    *out_arg = &run->args[i];
    return QN_OK;
  }
  char word[64] = "";
  if (size < sizeof word) memcpy(word, text, size);
  return qn_status_make(QN_STATUS_NOT_FOUND, "no parameter '%.*s' in %s%s", (int)size, text,
                        signature,
                        suggest(word, &run->args->info.name, sizeof *run->args, run->count).text);
}

static qn_status_t bind_options(const args_t* args, run_args_t* run, const char* signature) {
  for (int i = 0; i < args->option_count; i++) {
    const given_option_t* option = &args->options[i];
    bool is_arg = strcmp(option->spec->name, "arg") == 0;
    if (!is_arg && strcmp(option->spec->name, "out") != 0) continue;
    run_arg_t* arg = NULL;
    const char* rest = NULL;
    qn_status_t status = find_param(run, signature, option->value, &arg, &rest);
    if (!qn_ok(status)) return status;
    const char** slot = is_arg ? &arg->text : &arg->out_path;
    if (*slot) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "--%s %s was given twice",
                            option->spec->name, arg->info.name);
    }
    if (!is_arg && !arg->info.is_buffer) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "--out %s: the parameter is a scalar in %s",
                            arg->info.name, signature);
    }
    *slot = rest;
  }
  return QN_OK;
}

static qn_status_t missing(const run_arg_t* arg, const char* signature) {
  const char* name = arg->info.name;
  const char* dtype = qn_dtype_text(arg->info.dtype);
  if (!arg->info.is_buffer) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "parameter '%s' of %s has no value; add --arg %s=1", name, signature,
                          name);
  }
  // An example of the right rank: "zeros:f32[4,4]".
  char extents[2 * NPY_MAX_RANK + 1] = "";
  for (uint32_t d = 0; d < arg->info.rank && d < NPY_MAX_RANK; d++) {
    memcpy(extents + (d ? 2 * d - 1 : 0), d ? ",4" : "4", d ? 3 : 2);
  }
  return qn_status_make(
      QN_STATUS_INVALID_ARGUMENT, "parameter '%s' of %s has no value; add --arg %s=%s:%s[%s]%s",
      name, signature, name, arg->info.access == QN_ACCESS_IN ? "rand" : "zeros", dtype, extents,
      arg->info.access == QN_ACCESS_IN ? " or --arg with a .npy file" : "");
}

static qn_status_t make_value(run_args_t* run, size_t index) {
  run_arg_t* arg = &run->args[index];
  if (!value_is_array(&arg->spec)) {
    run->values[index] = value_scalar(&arg->spec);
    return QN_OK;
  }
  arg->is_array = true;
  arg->tensor = (qn_tensor_t){.shape = arg->array.shape};
  run->values[index] = qn_value_tensor(&arg->tensor);
  return value_make(&arg->spec, arg->info.dtype, &arg->array);
}

// ------------------------------------------------------------------------------------ layouts

// Returns false where two elements may have one place. `*out_span` is the number of elements from
// the first to one past the last; the library has checked that it does not overflow.
static bool find_span(const npy_array_t* array, const int64_t* strides, int64_t* out_span) {
  bool is_done[NPY_MAX_RANK] = {false};
  *out_span = 1;
  for (int32_t i = 0; i < array->rank; i++) {
    int32_t next = -1;  // the dimension with the least stride
    for (int32_t d = 0; d < array->rank; d++) {
      if (!is_done[d] && (next < 0 || strides[d] < strides[next])) next = d;
    }
    is_done[next] = true;
    if (array->shape[next] <= 1) continue;
    if (strides[next] < *out_span) return false;
    *out_span += strides[next] * (array->shape[next] - 1);
  }
  return true;
}

// Makes the copy with the strides of the parameter, unless they are those of the array.
static qn_status_t lay_out(run_arg_t* arg) {
  const npy_array_t* array = &arg->array;
  // The call refuses another dtype.
  if (array->dtype != arg->info.dtype || array->size_bytes == 0) return QN_OK;
  int64_t compact = 1, span;
  bool is_compact = true;
  for (int32_t d = array->rank; d-- > 0;) {
    is_compact &= arg->strides[d] == compact;
    compact *= array->shape[d];
  }
  if (is_compact) return QN_OK;
  if (!find_span(array, arg->strides, &span)) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "the strides of parameter '%s' let elements overlap; an array from the "
                          "command line cannot have them",
                          arg->info.name);
  }
  qn_status_t status = npy_make(array->dtype, 1, &span, &arg->strided);
  if (qn_ok(status)) memset(arg->strided.data, 0, arg->strided.size_bytes);
  return status;
}

static bool is_to_infer(const run_arg_t* arg) {
  return !arg->text && arg->info.is_buffer && arg->info.access == QN_ACCESS_OUT;
}

static qn_status_t has_strides(const qn_module_t* module, size_t function_index, size_t index,
                               const run_arg_t* arg, bool* out_has) {
  char* text = NULL;
  qn_status_t status = QN_OK;
  if (arg->info.is_buffer && arg->info.rank > 0) {
    status = qn_module_param_stride_text(module, function_index, index, 0, &text);
  }
  *out_has = text != NULL;
  qn_text_free(text);
  return status;
}

// Computes what the command line does not say: shapes of outputs, and strides.
static qn_status_t infer(run_args_t* run, const qn_module_t* module, size_t function_index) {
  int64_t** shapes = memory_zeroed(run->count, sizeof *shapes);
  int64_t** strides = memory_zeroed(run->count, sizeof *strides);
  bool has_outputs = false, has_layouts = false;
  qn_status_t status = QN_OK;
  for (size_t i = 0; i < run->count && qn_ok(status); i++) {
    run_arg_t* arg = &run->args[i];
    bool has = false;
    status = has_strides(module, function_index, i, arg, &has);
    if (is_to_infer(arg) && arg->info.rank > NPY_MAX_RANK && qn_ok(status)) {
      status = qn_status_make(QN_STATUS_UNSUPPORTED, "parameter '%s' has rank %u: the limit is %d",
                              arg->info.name, arg->info.rank, NPY_MAX_RANK);
    }
    has_layouts |= has;
    has_outputs |= is_to_infer(arg);
    if (is_to_infer(arg)) shapes[i] = arg->shape;
    if (has && arg->info.rank <= NPY_MAX_RANK) strides[i] = arg->strides;
    if (arg->is_array) arg->tensor.ndim = arg->array.rank;
  }
  if (qn_ok(status) && (has_outputs || has_layouts)) {
    status =
        qn_module_infer_shapes(module, function_index, run->values, run->count, shapes, strides);
    if (has_outputs) status = qn_status_annotate(status, "shapes of outputs without --arg");
  }
  for (size_t i = 0; i < run->count && qn_ok(status); i++) {
    run_arg_t* arg = &run->args[i];
    if (!is_to_infer(arg)) continue;
    arg->spec.kind = VALUE_ZEROS;
    arg->spec.dtype = arg->info.dtype;
    arg->spec.rank = (int32_t)arg->info.rank;
    memcpy(arg->spec.shape, arg->shape, sizeof arg->shape);
    status = make_value(run, i);
  }
  for (size_t i = 0; i < run->count && qn_ok(status); i++) {
    if (strides[i]) status = lay_out(&run->args[i]);
  }
  free(shapes);
  free(strides);
  return status;
}

// Returns the array whose memory has the layout of the call.
static const npy_array_t* called_array(const run_arg_t* arg) {
  return arg->strided.data ? &arg->strided : &arg->array;
}

static qn_status_t place(run_args_t* run, run_arg_t* arg, bool has_repetitions) {
  qn_status_t status = QN_OK;
  if (has_repetitions && run_arg_is_output(arg)) {
    status = npy_make(arg->array.dtype, arg->array.rank, arg->array.shape, &arg->initial);
    if (!qn_ok(status)) return status;
    memcpy(arg->initial.data, arg->array.data, arg->array.size_bytes);
  }
  const npy_array_t* called = called_array(arg);
  arg->device_data = called->data;
  if (!run->is_host_accessible) {
    arg->device_data = NULL;
    status = qn_device_allocate(run->device, called->size_bytes, 0, &arg->device_data);
    if (!qn_ok(status)) return status;
  }
  arg->tensor = (qn_tensor_t){.data = arg->device_data,
                              .device = run->device,
                              .ndim = arg->array.rank,
                              .dtype = qn_dtype_to_dl(arg->array.dtype),
                              .shape = arg->array.shape,
                              .strides = arg->strided.data ? arg->strides : NULL};
  return QN_OK;
}

qn_status_t run_args_bind(const args_t* args, const qn_module_t* module, size_t function_index,
                          qn_device_t device, bool has_repetitions, run_args_t* out) {
  *out = (run_args_t){.device = device};
  const char* signature = qn_module_function_signature(module, function_index);
  qn_attribute_value_t access = {.type = QN_ATTRIBUTE_TYPE_NONE};
  qn_status_t status = qn_device_attribute(device, QN_ATTRIBUTE_HOST_ACCESSIBLE, &access);
  if (!qn_ok(status)) return status;
  out->is_host_accessible = access.type == QN_ATTRIBUTE_TYPE_BOOL && access.int_value != 0;
  size_t count = qn_module_function_param_count(module, function_index);
  out->args = memory_zeroed(count, sizeof *out->args);
  out->values = memory_zeroed(count, sizeof *out->values);
  for (size_t i = 0; i < count && qn_ok(status); i++) {
    out->args[i].info.struct_size = sizeof out->args[i].info;
    status = qn_module_param_info(module, function_index, i, &out->args[i].info);
    out->count = i + 1;
  }
  if (qn_ok(status)) status = bind_options(args, out, signature);
  for (size_t i = 0; i < count && qn_ok(status); i++) {
    const run_arg_t* arg = &out->args[i];
    if (!arg->text && !arg->info.is_fixed && !is_to_infer(arg)) return missing(arg, signature);
  }
  for (size_t i = 0; i < count && qn_ok(status); i++) {
    run_arg_t* arg = &out->args[i];
    if (is_to_infer(arg)) continue;
    arg->spec = (value_spec_t){.kind = VALUE_INT, .int_value = arg->info.fixed_value};
    if (arg->text) status = value_parse(arg->text, &arg->spec);
    if (qn_ok(status)) status = make_value(out, i);
    if (!qn_ok(status)) status = qn_status_annotate(status, "--arg %s", out->args[i].info.name);
  }
  if (qn_ok(status)) status = infer(out, module, function_index);
  for (size_t i = 0; i < count && qn_ok(status); i++) {
    if (out->args[i].is_array) status = place(out, &out->args[i], has_repetitions);
  }
  return status;
}

static qn_status_t copy_array(const run_args_t* run, const run_arg_t* arg, bool is_upload) {
  qn_device_t host = {QN_DEVICE_CPU, 0};
  const npy_array_t* called = called_array(arg);
  qn_copy_t copy = {.struct_size = sizeof copy,
                    .from_device = is_upload ? host : run->device,
                    .from = is_upload ? called->data : arg->device_data,
                    .to_device = is_upload ? run->device : host,
                    .to = is_upload ? arg->device_data : called->data,
                    .size_bytes = called->size_bytes};
  return qn_device_copy(&copy, NULL);
}

qn_status_t run_args_upload(run_args_t* run) {
  for (size_t i = 0; i < run->count; i++) {
    run_arg_t* arg = &run->args[i];
    if (!arg->is_array) continue;
    if (arg->initial.data) memcpy(arg->array.data, arg->initial.data, arg->array.size_bytes);
    if (arg->strided.data) npy_scatter(&arg->array, arg->strides, arg->strided.data);
    if (run->is_host_accessible) continue;
    qn_status_t status = copy_array(run, arg, true);
    if (!qn_ok(status)) return status;
  }
  return QN_OK;
}

qn_status_t run_args_download(run_args_t* run) {
  for (size_t i = 0; i < run->count && !run->is_host_accessible; i++) {
    if (!run_arg_is_output(&run->args[i])) continue;
    qn_status_t status = copy_array(run, &run->args[i], false);
    if (!qn_ok(status)) return status;
  }
  qn_status_t status = run->is_host_accessible ? QN_OK : qn_stream_sync(run->device, NULL);
  for (size_t i = 0; i < run->count && qn_ok(status); i++) {
    run_arg_t* arg = &run->args[i];
    if (run_arg_is_output(arg) && arg->strided.data) {
      npy_gather(&arg->array, arg->strides, arg->strided.data);
    }
  }
  return status;
}

qn_status_t run_args_save(const run_args_t* run) {
  for (size_t i = 0; i < run->count; i++) {
    const run_arg_t* arg = &run->args[i];
    if (!arg->out_path || !arg->is_array) continue;
    qn_status_t status = npy_write(arg->out_path, arg->array.dtype, arg->array.rank,
                                   arg->array.shape, arg->array.data);
    if (!qn_ok(status)) return qn_status_annotate(status, "--out %s", arg->info.name);
  }
  return QN_OK;
}

void run_args_free(run_args_t* run) {
  for (size_t i = 0; i < run->count; i++) {
    run_arg_t* arg = &run->args[i];
    if (arg->device_data && arg->device_data != called_array(arg)->data) {
      (void)qn_status_consume(qn_device_free(run->device, arg->device_data));
    }
    npy_free(&arg->array);
    npy_free(&arg->initial);
    npy_free(&arg->strided);
  }
  free(run->args);
  free(run->values);
  *run = (run_args_t){0};
}
