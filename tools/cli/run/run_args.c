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

static qn_status_t make_array(run_args_t* run, run_arg_t* arg, bool has_repetitions) {
  qn_status_t status = value_make(&arg->spec, arg->info.dtype, &arg->array);
  if (!qn_ok(status)) return status;
  if (has_repetitions && run_arg_is_output(arg)) {
    status = npy_make(arg->array.dtype, arg->array.rank, arg->array.shape, &arg->initial);
    if (!qn_ok(status)) return status;
    memcpy(arg->initial.data, arg->array.data, arg->array.size_bytes);
  }
  arg->device_data = arg->array.data;
  if (!run->is_host_accessible) {
    arg->device_data = NULL;
    status = qn_device_allocate(run->device, arg->array.size_bytes, 0, &arg->device_data);
    if (!qn_ok(status)) return status;
  }
  arg->tensor = (qn_tensor_t){.data = arg->device_data,
                              .device = run->device,
                              .ndim = arg->array.rank,
                              .dtype = qn_dtype_to_dl(arg->array.dtype),
                              .shape = arg->array.shape};
  return QN_OK;
}

static qn_status_t make_value(run_args_t* run, size_t index, bool has_repetitions) {
  run_arg_t* arg = &run->args[index];
  switch (arg->spec.kind) {
    case VALUE_INT:
      run->values[index] = qn_value_int(arg->spec.int_value);
      return QN_OK;
    case VALUE_UINT:
      run->values[index] = qn_value_uint((uint64_t)arg->spec.int_value);
      return QN_OK;
    case VALUE_FLOAT:
      run->values[index] = qn_value_float(arg->spec.float_value);
      return QN_OK;
    case VALUE_BOOL:
      run->values[index] = qn_value_bool(arg->spec.int_value != 0);
      return QN_OK;
    default:
      arg->is_array = true;
      run->values[index] = qn_value_tensor(&arg->tensor);
      return make_array(run, arg, has_repetitions);
  }
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
    if (!arg->text && !arg->info.is_fixed) return missing(arg, signature);
  }
  for (size_t i = 0; i < count && qn_ok(status); i++) {
    run_arg_t* arg = &out->args[i];
    arg->spec = (value_spec_t){.kind = VALUE_INT, .int_value = arg->info.fixed_value};
    if (arg->text) status = value_parse(arg->text, &arg->spec);
    if (qn_ok(status)) status = make_value(out, i, has_repetitions);
    if (!qn_ok(status)) status = qn_status_annotate(status, "--arg %s", out->args[i].info.name);
  }
  return status;
}

static qn_status_t copy_array(const run_args_t* run, const run_arg_t* arg, bool is_upload) {
  qn_device_t host = {QN_DEVICE_CPU, 0};
  qn_copy_t copy = {.struct_size = sizeof copy,
                    .from_device = is_upload ? host : run->device,
                    .from = is_upload ? arg->array.data : arg->device_data,
                    .to_device = is_upload ? run->device : host,
                    .to = is_upload ? arg->device_data : arg->array.data,
                    .size_bytes = arg->array.size_bytes};
  return qn_device_copy(&copy, NULL);
}

qn_status_t run_args_upload(run_args_t* run) {
  for (size_t i = 0; i < run->count; i++) {
    run_arg_t* arg = &run->args[i];
    if (!arg->is_array) continue;
    if (arg->initial.data) memcpy(arg->array.data, arg->initial.data, arg->array.size_bytes);
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
  return run->is_host_accessible ? QN_OK : qn_stream_sync(run->device, NULL);
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
    if (arg->device_data && arg->device_data != arg->array.data) {
      (void)qn_status_consume(qn_device_free(run->device, arg->device_data));
    }
    npy_free(&arg->array);
    npy_free(&arg->initial);
  }
  free(run->args);
  free(run->values);
  *run = (run_args_t){0};
}
