// SPDX-License-Identifier: Apache-2.0
// conformance/random.c: random programs on the target and on the interpreter. Of one that differs,
// the smallest part that still differs in the same way is reported.
//
// Not here: the programs (random/generate.h), what makes them smaller (random/reduce.h).
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/elements.h"
#include "conformance/random/generate.h"
#include "conformance/random/reduce.h"
#include "conformance/suite.h"

typedef enum outcome {
  OUTCOME_SAME,
  OUTCOME_USELESS,    // no module, or the interpreter refuses it
  OUTCOME_ERROR,      // of the target: `code`
  OUTCOME_DIFFERENT,  // in values
} outcome_t;

typedef struct trial {
  conf_t* c;
  const qn_generated_t* generated;
  qn_generated_args_t initial;  // what each call begins with
  outcome_t outcome;            // of the last program
  qn_status_code_t code;
  char message[512];
} trial_t;

// The packed values of a call.
typedef struct packed {
  qn_value_t values[qn_generated_max_params];
  qn_tensor_t tensors[qn_generated_max_params];
} packed_t;

static void pack(trial_t* t, qn_device_t device, void* const* memory, packed_t* out) {
  for (size_t i = 0; i < t->generated->param_count; i++) {
    const qn_generated_param_t* param = &t->generated->params[i];
    qn_dtype_t dtype = param->dtype;
    if (!param->is_buffer) {
      const uint64_t* bits = &param->scalar_bits;
      out->values[i] = conf_is_float(dtype)     ? qn_value_float(conf_element(dtype, bits, 0))
                       : dtype == QN_DTYPE_BOOL ? qn_value_bool(*bits != 0)
                                                : qn_value_int(conf_integer(dtype, bits, 0));
      continue;
    }
    out->tensors[i] = conf_tensor(t->c, memory[i], dtype, (int32_t)param->rank,
                                  (int64_t*)(uintptr_t)param->shape);
    out->tensors[i].device = device;
    if (param->has_strides) out->tensors[i].strides = (int64_t*)(uintptr_t)param->strides;
    out->values[i] = qn_value_tensor(&out->tensors[i]);
  }
}

static size_t size_of(const qn_generated_param_t* param) {
  return conf_size_bytes(param->dtype, param->element_count);
}

// Ends a trial with the error of a step. Consumes the status.
static bool note(trial_t* t, outcome_t outcome, const char* who, qn_status_t status) {
  if (qn_ok(status)) return true;
  t->outcome = outcome;
  t->code = qn_status_code(status);
  (void)snprintf(t->message, sizeof t->message, "%s%s", who, qn_status_message(status));
  qn_status_free(status);
  return false;
}

static bool copy_all(trial_t* t, void* const* device, const qn_generated_args_t* host, bool is_up) {
  for (size_t i = 0; i < t->generated->param_count; i++) {
    const qn_generated_param_t* param = &t->generated->params[i];
    if (!param->is_buffer) continue;
    qn_device_t from = is_up ? conf_cpu() : t->c->device, to = is_up ? t->c->device : conf_cpu();
    void* source = is_up ? host->buffers[i] : device[i];
    void* target = is_up ? device[i] : host->buffers[i];
    qn_status_t status = conf_copy(from, source, 0, to, target, 0, size_of(param), false, NULL);
    if (qn_ok(status)) status = qn_stream_sync(t->c->device, NULL);
    if (!note(t, OUTCOME_ERROR, "a copy: ", status)) return false;
  }
  return true;
}

static bool call_target(trial_t* t, qn_function_t* function, const qn_generated_args_t* actual) {
  void* memory[qn_generated_max_params] = {NULL};
  bool is_good = true;
  for (size_t i = 0; i < t->generated->param_count && is_good; i++) {
    const qn_generated_param_t* param = &t->generated->params[i];
    if (!param->is_buffer) continue;
    is_good =
        note(t, OUTCOME_ERROR,
             "an allocation: ", qn_device_allocate(t->c->device, size_of(param), 0, &memory[i]));
  }
  if (is_good && copy_all(t, memory, &t->initial, true)) {
    packed_t packed;
    pack(t, t->c->device, memory, &packed);
    is_good = note(t, OUTCOME_ERROR, "",
                   conf_call(t->c, function, packed.values, t->generated->param_count)) &&
              copy_all(t, memory, actual, false);
  } else {
    is_good = false;
  }
  for (size_t i = 0; i < t->generated->param_count; i++) {
    if (memory[i]) (void)qn_status_consume(qn_device_free(t->c->device, memory[i]));
  }
  return is_good;
}

static void compare(trial_t* t, qn_function_t* oracle, qn_function_t* function) {
  qn_generated_args_t expected, actual;
  qn_generated_args_init(t->generated, &expected);
  qn_generated_args_init(t->generated, &actual);
  packed_t packed;
  pack(t, conf_cpu(), expected.buffers, &packed);
  qn_status_t status =
      qn_function_call_on(oracle, NULL, packed.values, t->generated->param_count, NULL);
  if (note(t, OUTCOME_USELESS, "the interpreter: ", status) && call_target(t, function, &actual) &&
      !qn_generated_compare(t->generated, &expected, &actual, false, t->message,
                            sizeof t->message)) {
    t->outcome = OUTCOME_DIFFERENT;
  }
  qn_generated_args_deinit(&expected);
  qn_generated_args_deinit(&actual);
}

// Runs a program, whose signature is that of the generated one, on both.
static void run_text(trial_t* t, const char* text) {
  qn_module_t* module = NULL;
  qn_function_t *oracle = NULL, *function = NULL;
  conf_t* c = t->c;
  t->outcome = OUTCOME_SAME;
  t->code = QN_STATUS_OK;
  qn_status_t status = qn_module_parse(text, strlen(text), NULL, &module);
  if (qn_ok(status)) {
    status = qn_engine_function(c->engine, module, c->oracle, "f", NULL, NULL, &oracle);
  }
  if (note(t, OUTCOME_USELESS, "", status)) {
    qn_lookup_options_t options = {.struct_size = sizeof options, .tier = c->options.tier};
    status = qn_engine_function(c->engine, module, c->target, "f", &options, NULL, &function);
    if (note(t, OUTCOME_ERROR, "", status)) compare(t, oracle, function);
  }
  qn_function_release(function);
  qn_function_release(oracle);
  qn_module_release(module);
}

typedef struct reduction {
  trial_t* trial;
  outcome_t outcome;  // of the whole program
  qn_status_code_t code;
} reduction_t;

static bool still_fails(void* self, const char* text) {
  reduction_t* reduction = self;
  run_text(reduction->trial, text);
  return reduction->trial->outcome == reduction->outcome &&
         reduction->trial->code == reduction->code;
}

// Gives a program the canonical layout.
static void lay_out(char** program) {
  char* formatted = NULL;
  size_t size = 0;
  qn_status_t status = qn_text_format(*program, strlen(*program), NULL, &formatted, &size);
  char* copy = qn_status_consume(status) == QN_STATUS_OK ? malloc(size + 1) : NULL;
  if (copy) {
    memcpy(copy, formatted, size + 1);
    free(*program);
    *program = copy;
  }
  qn_text_free(formatted);
}

static void run_seed(conf_t* c, uint64_t seed) {
  qn_generate_options_t options = {.size = 1 + (uint32_t)(seed % 8),
                                   .allows_fast = true,
                                   .allows_threads = true,
                                   .is_form = seed % 4 == 0};
  qn_generated_t generated;
  qn_status_t error;
  bool is_made = qn_generate(seed, &options, &generated, &error);
  if (is_made) {
    trial_t trial = {.c = c, .generated = &generated};
    qn_generated_args_init(&generated, &trial.initial);
    run_text(&trial, generated.text);
    bool is_refused = trial.outcome == OUTCOME_ERROR &&
                      (trial.code == QN_STATUS_UNSUPPORTED || trial.code == QN_STATUS_UNAVAILABLE);
    if (is_refused) {
      conf_unsupported(c, "%s", trial.message);
    } else if (trial.outcome == OUTCOME_USELESS) {
      conf_fail(c, "%s", trial.message);
    } else if (trial.outcome != OUTCOME_SAME) {
      reduction_t reduction = {&trial, trial.outcome, trial.code};
      c->program = gen_reduce(generated.text, still_fails, &reduction);
      run_text(&trial, c->program);
      lay_out(&c->program);
      conf_fail(c, "%s", trial.message);
    }
    qn_generated_args_deinit(&trial.initial);
  } else {
    (void)conf_ok(c, error);
  }
  qn_generated_release(&generated);
}

static void run(conf_t* c) {
  for (uint64_t i = 0; i < c->options.random_count; i++) {
    uint64_t seed = c->options.seed + i;
    char variant[32];
    (void)snprintf(variant, sizeof variant, "%" PRIu64, seed);
    if (!conf_begin(c, "program", variant)) continue;
    run_seed(c, seed);
    conf_end(c);
  }
}

const conf_area_t conf_area_random = {.name = "random", .run = run};
