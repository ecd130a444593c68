// SPDX-License-Identifier: Apache-2.0
// jit/engine/variants.c: makes adaptive functions, and says what became of the values of their
// calls.
//
// Read next: jit/call/dispatch.h, background.h, adaptive.h.
#include "base/alloc.h"
#include "base/argument.h"
#include "base/buffer.h"
#include "base/dtype.h"
#include "base/struct_size.h"
#include "jit/engine/adaptive.h"
#include "jit/engine/engine.h"

#define DEFAULT_MAX_VARIANTS 4u
#define DEFAULT_MIN_CALLS 32u

// ---------------------------------------------------------------------------------------- names

static qn_status_t copy_family(const qn_adaptive_name_t* given, qn_allocator_t allocator,
                               qn__adaptive_name_t* out) {
  bool is_open = given->min_value == 0 && given->max_value == 0;
  if (given->values) {
    if (given->value_count == 0 || !is_open) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "'%s': expected at least one value and no bounds beside values",
                            given->name);
    }
    size_t size = 0;
    if (!__builtin_mul_overflow(given->value_count, sizeof *given->values, &size)) {
      out->values = qn__alloc(allocator, size);
    }
    if (!out->values) return qn__out_of_memory("the values of an adaptive function");
    memcpy(out->values, given->values, size);
    out->value_count = given->value_count;
    return QN_OK;
  }
  if (given->min_value > given->max_value) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "'%s': the bounds %" PRId64 " to %" PRId64 " hold no value", given->name,
                          given->min_value, given->max_value);
  }
  out->min_value = is_open ? INT64_MIN : given->min_value;
  out->max_value = is_open ? INT64_MAX : given->max_value;
  return QN_OK;
}

// Finds the word of a call that has the name's value.
static qn_status_t find_word(const qn__ir_func_t* ir, const char* name, uint32_t* out_word,
                             qn_dtype_t* out_dtype) {
  for (uint32_t i = 0; i < ir->symbol_count; i++) {
    if (strcmp(ir->symbols[i]->name, name) != 0) continue;
    *out_word = (uint32_t)ir->param_count + i;
    *out_dtype = ir->symbols[i]->dtype;
    return QN_OK;
  }
  for (uint32_t i = 0; i < ir->param_count; i++) {
    const qn__ir_var_t* scalar = ir->params[i].scalar;
    if (!scalar || strcmp(scalar->name, name) != 0) continue;
    if (!qn__dtype_is_int(scalar->dtype) || scalar->is_fixed) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                            "'%s' of '%s' cannot be special: it is %s, and only symbols and "
                            "integer scalars that are not fixed can be",
                            name, ir->signature,
                            scalar->is_fixed ? "fixed" : qn_dtype_text(scalar->dtype));
    }
    *out_word = i;
    *out_dtype = scalar->dtype;
    return QN_OK;
  }
  return qn_status_make(QN_STATUS_NOT_FOUND, "'%s' is neither a symbol nor a scalar of '%s'", name,
                        ir->signature);
}

static qn_status_t add_name(qn__adaptive_t* adaptive, const qn__ir_func_t* ir,
                            const qn_adaptive_name_t* given, uint32_t* out_word) {
  qn_allocator_t allocator = adaptive->engine->allocator;
  if (!given->name) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "name %u of an adaptive function is null",
                          adaptive->name_count);
  }
  for (uint32_t i = 0; i < adaptive->name_count; i++) {
    if (strcmp(adaptive->names[i].name, given->name) == 0) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "'%s' is given twice", given->name);
    }
  }
  qn__adaptive_name_t* name = &adaptive->names[adaptive->name_count];
  QN_TRY(find_word(ir, given->name, out_word, &name->dtype));
  QN_TRY(copy_family(given, allocator, name));
  qn__buffer_t qualified;
  qn__buffer_init(&qualified, allocator);
  qn__buffer_format(&qualified, "%s.%s", ir->name, given->name);
  qn_str_t text = {(const char*)qualified.data, qualified.size};
  if (!qualified.has_failed) name->qualified = qn__copy_cstr(allocator, text);
  qn__buffer_deinit(&qualified);
  name->name = qn__copy_cstr(allocator, qn__str(given->name));
  if (!name->name || !name->qualified) return qn__out_of_memory("the names of variants");
  adaptive->name_count++;
  return QN_OK;
}

// ------------------------------------------------------------------------------------ the function

static qn_status_t check_options(const qn_adaptive_options_t* options) {
  if (options->name_count == 0 || options->name_count > QN__DISPATCH_MAX_NAMES || !options->names) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "an adaptive function needs 1 to %u names, got %zu",
                          QN__DISPATCH_MAX_NAMES, options->names ? options->name_count : 0);
  }
  if (options->max_variants > QN__DISPATCH_MAX_CASES) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "max_variants is %u; at most %u",
                          options->max_variants, QN__DISPATCH_MAX_CASES);
  }
  return QN_OK;
}

static qn_status_t fill(qn__adaptive_t* adaptive, const qn_adaptive_options_t* options,
                        qn_function_t* generic) {
  uint32_t words[QN__DISPATCH_MAX_NAMES];
  for (size_t i = 0; i < options->name_count; i++) {
    QN_TRY(add_name(adaptive, generic->ir, &options->names[i], &words[i]));
  }
  adaptive->max_variants = options->max_variants ? options->max_variants : DEFAULT_MAX_VARIANTS;
  adaptive->min_calls = options->min_calls ? options->min_calls : DEFAULT_MIN_CALLS;
  adaptive->keeps_unmeasured = options->keeps_unmeasured;
  adaptive->name = qn__copy_cstr(adaptive->engine->allocator, qn__str(generic->ir->name));
  if (!adaptive->name) return qn__out_of_memory("an adaptive function");
  return qn__dispatch_create(generic, words, adaptive->name_count, &adaptive->dispatch);
}

// Makes the function's record, without a thread yet. Retains module and target.
static qn_status_t make_adaptive(qn_engine_t* engine, const qn__request_t* request,
                                 const qn_adaptive_options_t* options, qn_function_t* generic,
                                 qn__adaptive_t** out_adaptive) {
  qn__adaptive_t* adaptive = qn__alloc_zero(engine->allocator, 1, sizeof *adaptive);
  if (!adaptive) return qn__out_of_memory("an adaptive function");
  adaptive->engine = engine;
  adaptive->request = *request;
  adaptive->request.is_background = true;
  adaptive->request.generic = NULL;
  adaptive->request.timeout_ns = 0;
  adaptive->request.device = generic->device;
  qn_module_retain(request->module);
  qn_target_retain(request->target);
  qn_status_t status = fill(adaptive, options, generic);
  if (!qn_ok(status)) {
    qn__adaptive_destroy(adaptive);
    return status;
  }
  *out_adaptive = adaptive;
  return QN_OK;
}

qn_status_t qn_engine_adaptive_function(qn_engine_t* engine, qn_module_t* module,
                                        qn_target_t* target, const char* name,
                                        const qn_adaptive_options_t* options,
                                        qn_lookup_info_t* out_info, qn_function_t** out_function) {
  QN_REQUIRE(out_function);
  *out_function = NULL;
  QN_STRUCT_CLEAR(qn_lookup_info_t, out_info);
  QN_REQUIRE(engine, module, target, name, options);
  QN_STRUCT_READ(qn_adaptive_options_t, options, given);
  QN_TRY(check_options(&given));
  qn__request_t request;
  QN_TRY(qn__request_init(engine, module, target, given.lookup, &request));
  request.tier = QN_TIER_FULL;
  qn_function_t* generic = NULL;
  QN_TRY(qn_engine_function(engine, module, target, name, given.lookup, out_info, &generic));
  qn__adaptive_t* adaptive = NULL;
  qn_function_t* function = NULL;
  qn_status_t status = make_adaptive(engine, &request, &given, generic, &adaptive);
  qn_function_release(generic);
  if (qn_ok(status)) {
    qn__dispatch_retain(adaptive->dispatch);  // of the function
    status = qn__function_create_adaptive(adaptive->dispatch, &function);
  }
  if (qn_ok(status)) status = qn__background_add(&engine->background, adaptive);
  if (!qn_ok(status)) {
    qn_function_release(function);
    qn__adaptive_destroy(adaptive);
    return status;
  }
  *out_function = function;
  return QN_OK;
}

// ------------------------------------------------------------------------------------------ report

const char* qn_variant_state_text(qn_variant_state_t state) {
  static const char* const texts[] = {
      [QN_VARIANT_SEEN] = "seen",
      [QN_VARIANT_TRIAL] = "trial",
      [QN_VARIANT_KEPT] = "kept",
      [QN_VARIANT_BANNED] = "banned",
  };
  return (size_t)state < QN_COUNT_OF(texts) && texts[state] ? texts[state] : "unknown";
}

static qn_status_t report(const qn__adaptive_t* adaptive, const qn__tuple_t* tuple,
                          void (*on_variant)(void* self, const qn_variant_info_t* variant),
                          void* self) {
  qn__buffer_t values;
  qn__buffer_init(&values, adaptive->engine->allocator);
  for (uint32_t n = 0; n < adaptive->name_count; n++) {
    qn__buffer_format(&values, "%s%s=%" PRId64, n ? "," : "", adaptive->names[n].name,
                      tuple->values[n]);
  }
  qn__buffer_char(&values, '\0');
  qn_status_t status = qn__buffer_status(&values, "the values of a variant");
  if (qn_ok(status)) {
    qn_variant_info_t info = {
        .struct_size = sizeof info,
        .values = (const char*)values.data,
        .state = tuple->state,
        .reason = tuple->reason,
        .key = tuple->key,
        .call_count = tuple->state == QN_VARIANT_SEEN ? tuple->call_count : tuple->served_count,
        .generic_ns = tuple->generic_ns,
        .special_ns = tuple->special_ns,
    };
    on_variant(self, &info);
  }
  qn__buffer_deinit(&values);
  return status;
}

qn_status_t qn_engine_variants(qn_engine_t* engine, const qn_function_t* function,
                               void (*on_variant)(void* self, const qn_variant_info_t* variant),
                               void* self) {
  QN_REQUIRE(engine, function, on_variant);
  qn__background_t* background = &engine->background;
  const qn__dispatch_t* dispatch = qn__function_dispatch(function);
  qn__mutex_lock(&background->mutex);
  const qn__adaptive_t* adaptive = background->first;
  while (adaptive && adaptive->dispatch != dispatch) adaptive = adaptive->next;
  qn_status_t status = QN_OK;
  for (size_t i = 0; adaptive && qn_ok(status) && i < adaptive->tuple_count; i++) {
    status = report(adaptive, adaptive->tuples[i], on_variant, self);
  }
  qn__mutex_unlock(&background->mutex);
  if (adaptive) return status;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "'%s' is no adaptive function of this engine",
                        function->ir->signature);
}
