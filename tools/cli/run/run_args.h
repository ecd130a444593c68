// SPDX-License-Identifier: Apache-2.0
// tools/cli/run/run_args.h: the arguments of one call: from --arg and --out to packed values and
// back.
//
// Arrays live on the host, in C order. Where the parameter declares other strides, the calls get a
// copy with these. For a device with its own memory arrays are copied there before the calls, and
// back after them.
#ifndef QUERN_TOOLS_CLI_RUN_RUN_ARGS_H_
#define QUERN_TOOLS_CLI_RUN_RUN_ARGS_H_

#include "quern/ir.h"
#include "quern/quern.h"
#include "tools/cli/args.h"
#include "tools/cli/run/npy.h"
#include "tools/cli/run/values.h"

typedef struct run_arg {
  qn_param_info_t info;  // borrowed from the module
  const char* text;      // of --arg
  const char* out_path;  // of --out, or NULL
  value_spec_t spec;
  bool is_array;
  npy_array_t array;    // owned
  npy_array_t initial;  // owned: the contents before each repetition, if calls change them
  int64_t shape[NPY_MAX_RANK];
  int64_t strides[NPY_MAX_RANK];  // of the call, where they are not those of `array`
  npy_array_t strided;            // owned: the elements with these strides; else no data
  void* device_data;              // owned where it is no memory of the host's arrays
  qn_tensor_t tensor;
} run_arg_t;

typedef struct run_args {
  qn_device_t device;
  bool is_host_accessible;
  size_t count;
  run_arg_t* args;     // owned, one per parameter
  qn_value_t* values;  // owned
} run_args_t;

// Binds NAME=VALUE and NAME=FILE to the parameters of function `function_index` and reads or makes
// the arrays; `out` buffers without a value are zeros. Errors: NOT_FOUND (no such parameter),
// INVALID_ARGUMENT (missing, given twice), those of value_make and qn_module_infer_shapes.
// run_args_free either way.
qn_status_t run_args_bind(const args_t* args, const qn_module_t* module, size_t function_index,
                          qn_device_t device, bool has_repetitions, run_args_t* out);
// Restores inputs, and buffers that an earlier call has changed.
qn_status_t run_args_upload(run_args_t* run);
// Copies `out` and `inout` arrays back to the host.
qn_status_t run_args_download(run_args_t* run);
// Writes the files of --out.
qn_status_t run_args_save(const run_args_t* run);
bool run_arg_is_output(const run_arg_t* arg);
void run_args_free(run_args_t* run);

#endif  // QUERN_TOOLS_CLI_RUN_RUN_ARGS_H_
