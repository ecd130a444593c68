// SPDX-License-Identifier: Apache-2.0
// conformance/program.c: see program.h.
#include "conformance/program.h"

#include "quern/ir.h"
#include "quern/observe.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void name_of(const char* text, char out_name[96]) {
  const char* func = strstr(text, "func ");
  const char* begin = func ? func + 5 : text;
  (void)snprintf(out_name, 96, "%.*s", (int)strcspn(begin, "( "), begin);
}

static bool find_function(conf_t* c, const qn_module_t* module, const char* name,
                          size_t* out_index) {
  for (size_t i = 0; i < qn_module_function_count(module); i++) {
    *out_index = i;
    if (strcmp(qn_module_function_name(module, i), name) == 0) return true;
  }
  conf_fail(c, "the suite has no function '%s'", name);
  return false;
}

// --------------------------------------------------------------------------------------- one call

// The packed values of a call.
typedef struct packed {
  qn_value_t values[CONF_MAX_ARGS];
  qn_tensor_t tensors[CONF_MAX_ARGS];
} packed_t;

// Packs arguments whose arrays are in `memory` of `device`. Borrows both.
static void pack(const conf_t* c, conf_args_t* args, qn_device_t device,
                 void* const memory[CONF_MAX_ARGS], packed_t* out) {
  for (size_t i = 0; i < args->count; i++) {
    out->values[i] = args->scalars[i];
    if (!args->is_array[i]) continue;
    conf_array_t* array = &args->arrays[i];
    out->tensors[i] = conf_tensor(c, memory[i], array->dtype, array->rank, array->shape);
    out->tensors[i].device = device;
    out->tensors[i].strides = array->has_strides ? array->strides : NULL;
    out->tensors[i].byte_offset = array->offset_bytes;
    out->values[i] = qn_value_tensor(&out->tensors[i]);
  }
}

// Calls a function on the target. `out_memory` gets the contents of each array afterwards,
// `out_status` the error of the call or of the sync. False when the suite's own work failed.
static bool call_target(conf_t* c, qn_function_t* function, conf_args_t* args,
                        uint8_t* out_memory[CONF_MAX_ARGS], qn_status_t* out_status) {
  void* memory[CONF_MAX_ARGS] = {NULL};
  for (size_t i = 0; i < args->count; i++) {
    if (!args->is_array[i]) continue;
    const conf_array_t* array = &args->arrays[i];
    memory[i] = conf_device_memory(c, array->size_bytes);
    out_memory[i] = conf_host_memory(c, array->size_bytes);
    if (!memory[i] || !out_memory[i] ||
        !conf_upload(c, memory[i], 0, array->host, array->size_bytes)) {
      return false;
    }
  }
  packed_t packed;
  pack(c, args, c->device, memory, &packed);
  *out_status = conf_call(c, function, packed.values, args->count);
  bool is_good = true;
  for (size_t i = 0; i < args->count && is_good; i++) {
    if (!args->is_array[i]) continue;
    is_good = conf_download(c, out_memory[i], memory[i], 0, args->arrays[i].size_bytes);
    conf_drop(c, memory[i]);
  }
  if (!is_good) qn_status_free(*out_status);
  return is_good;
}

// Checks that the interpreter, which is the oracle, succeeds.
static bool oracle_ok(conf_t* c, qn_status_t status) {
  if (qn_ok(status)) return true;
  conf_fail(c, "the interpreter: %s: %s", qn_status_code_text(qn_status_code(status)),
            qn_status_message(status));
  qn_status_free(status);
  return false;
}

// Runs the interpreter on the arrays of `args`.
static bool call_oracle(conf_t* c, qn_function_t* function, conf_args_t* args) {
  void* memory[CONF_MAX_ARGS];
  for (size_t i = 0; i < args->count; i++) memory[i] = args->arrays[i].host;
  packed_t packed;
  pack(c, args, conf_cpu(), memory, &packed);
  return oracle_ok(c, qn_function_call_on(function, NULL, packed.values, args->count, NULL));
}

static qn_function_t* make_oracle(conf_t* c, qn_module_t* module, const char* name) {
  qn_function_t* function = NULL;
  qn_status_t status =
      qn_engine_function(c->engine, module, c->oracle, name, NULL, NULL, &function);
  if (!oracle_ok(c, status)) return NULL;
  conf_keep(c, CONF_KEPT_FUNCTION, function, conf_cpu());
  return function;
}

static bool compare_run(conf_t* c, qn_module_t* module, size_t index, qn_function_t* oracle,
                        qn_function_t* function, const char* run, double tolerance) {
  conf_args_t args;
  uint8_t* got[CONF_MAX_ARGS] = {NULL};
  qn_status_t status = QN_OK;
  if (!conf_args_make(c, module, index, run, &args)) return false;
  if (!call_target(c, function, &args, got, &status) || !conf_ok(c, status)) return false;
  if (!call_oracle(c, oracle, &args)) return false;
  for (size_t i = 0; i < args.count; i++) {
    if (!args.is_array[i]) continue;
    qn_param_info_t info = {.struct_size = sizeof info};
    if (!conf_ok(c, qn_module_param_info(module, index, i, &info))) return false;
    char what[160];
    (void)snprintf(what, sizeof what, "(%.*s) '%s'", (int)strcspn(run, ";"), run, info.name);
    if (!conf_array_compare(c, what, &args.arrays[i], got[i], tolerance)) return false;
  }
  return true;
}

// Runs `args` (all its runs) on both and compares.
static void compare(conf_t* c, qn_module_t* module, const char* name, qn_function_t* function,
                    const char* args, double tolerance) {
  size_t index;
  qn_function_t* oracle = make_oracle(c, module, name);
  if (!oracle || !find_function(c, module, name, &index)) return;
  for (const char* run = args; run; run = strchr(run, ';')) {
    run += *run == ';';
    if (!compare_run(c, module, index, oracle, function, run, tolerance)) return;
  }
}

// ------------------------------------------------------------------------------------------ tables

static qn_status_t count_bytes(void* self, const void* data, size_t size_bytes) {
  (void)data;
  *(size_t*)self += size_bytes;
  return QN_OK;
}

// Compiles a text to the form of conf_options_t, in place of a run.
static qn_status_t emit(conf_t* c, const char* text, bool is_checked) {
  size_t size = 0;
  qn_module_t* module = NULL;
  qn_lookup_options_t options = {
      .struct_size = sizeof options, .tier = c->options.tier, .is_checked = is_checked};
  qn_status_t status = qn_module_parse(text, strlen(text), NULL, &module);
  if (qn_ok(status)) {
    status = qn_engine_emit(c->engine, module, c->target, &options, c->options.form,
                            (qn_sink_t){&size, count_bytes});
  }
  qn_module_release(module);
  if (qn_ok(status) && size == 0) {
    return qn_status_make(QN_STATUS_INTERNAL, "the form '%s' is empty", c->options.form);
  }
  return status;
}

// The result of compiling the wanted rows of one kind together.
typedef struct together {
  qn_executable_t* executable;  // NULL: the rows are compiled one by one
  qn_module_t* module;
  bool is_emitted;
} together_t;

static void compile_text(conf_t* c, const char* text, bool is_checked, together_t* out) {
  qn_status_t status;
  if (c->options.form) {
    status = emit(c, text, is_checked);
    out->is_emitted = qn_ok(status);
  } else {
    qn_lookup_options_t options = {
        .struct_size = sizeof options, .tier = c->options.tier, .is_checked = is_checked};
    status = qn_module_parse(text, strlen(text), NULL, &out->module);
    if (qn_ok(status)) {
      status =
          qn_engine_executable(c->engine, out->module, c->target, &options, NULL, &out->executable);
    }
  }
  // The rows, each compiled alone, report the error.
  qn_status_free(status);
}

static void compile_together(conf_t* c, const conf_program_t* programs, size_t count,
                             bool is_checked, together_t* out) {
  size_t size = 1, wanted_count = 0;
  for (size_t i = 0; i < count; i++) size += strlen(programs[i].text) + 1;
  char* text = malloc(size);
  if (!text) return;
  text[0] = '\0';
  char* end = text;
  for (size_t i = 0; i < count; i++) {
    const conf_program_t* program = &programs[i];
    if (program->is_checked != is_checked) continue;
    if (!conf_wants(c, program->feature, program->variant)) continue;
    wanted_count++;
    end += sprintf(end, "%s\n", program->text);
  }
  if (wanted_count > 1) compile_text(c, text, is_checked, out);
  free(text);
}

static void run_program(conf_t* c, const conf_program_t* program, const together_t* together) {
  if (c->options.form) {
    if (!together->is_emitted) conf_ok(c, emit(c, program->text, program->is_checked));
    return;
  }
  char name[96];
  name_of(program->text, name);
  qn_function_t* function = NULL;
  qn_module_t* module = together->module;
  if (together->executable) {
    if (!conf_ok(c, qn_executable_function(together->executable, module, name, &function))) return;
    conf_keep(c, CONF_KEPT_FUNCTION, function, c->device);
  } else {
    module = conf_module(c, program->text);
    if (!module) return;
    function = conf_function(c, program->text, name, program->is_checked);
    if (!function) return;
  }
  if (program->judge) {
    program->judge(c, program, function);
    return;
  }
  if (program->code == QN_STATUS_OK) {
    compare(c, module, name, function, program->args, program->tolerance);
    return;
  }
  size_t index;
  conf_args_t args;
  uint8_t* got[CONF_MAX_ARGS];
  qn_status_t status = QN_OK;
  if (!find_function(c, module, name, &index) ||
      !conf_args_make(c, module, index, program->args, &args) ||
      !call_target(c, function, &args, got, &status)) {
    return;
  }
  if (!conf_expect(c, status, program->code, program->parts)) return;
  // A sync returns the error once; the stream then works as before.
  conf_ok(c, qn_stream_sync(c->device, NULL));
}

void conf_programs(conf_t* c, const conf_program_t* programs, size_t count) {
  together_t together[2] = {{NULL, NULL, false}, {NULL, NULL, false}};
  for (int k = 0; k < 2 && !conf_is_listing(c); k++) {
    compile_together(c, programs, count, k == 1, &together[k]);
  }
  for (size_t i = 0; i < count; i++) {
    if (!conf_begin(c, programs[i].feature, programs[i].variant)) continue;
    run_program(c, &programs[i], &together[programs[i].is_checked ? 1 : 0]);
    conf_end(c);
  }
  for (int k = 0; k < 2; k++) {
    qn_executable_release(together[k].executable);
    qn_module_release(together[k].module);
  }
}

const char* conf_rows_text(conf_rows_t* rows, const char* format, ...) {
  char* text = rows->texts + rows->used_bytes;
  size_t room = sizeof rows->texts - rows->used_bytes;
  va_list args;
  va_start(args, format);
  size_t size = (size_t)vsnprintf(text, room, format, args) + 1;
  va_end(args);
  assert(size <= room && "the suite's own tables fit");
  rows->used_bytes += size;
  return text;
}

conf_program_t* conf_rows_add(conf_rows_t* rows, const char* feature, const char* variant,
                              const char* text, const char* args) {
  assert(rows->count < CONF_COUNT_OF(rows->programs) && "the suite's own tables fit");
  conf_program_t* row = &rows->programs[rows->count++];
  *row = (conf_program_t){.feature = feature, .variant = variant, .text = text, .args = args};
  return row;
}

void conf_rows_run(conf_t* c, conf_rows_t* rows) {
  conf_programs(c, rows->programs, rows->count);
  rows->count = 0;
  rows->used_bytes = 0;
}
