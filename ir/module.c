// SPDX-License-Identifier: Apache-2.0
// ir/module.c: the life of a module: sealing a body, reference counts, the public calls that make
// and describe modules.
//
// Not here: the text (parser.c, printer.c), the rules (verify.c), the bytes (encode.c, decode.c),
// the builder (build.c). Thread rule: a sealed module is only read, except for its count.
#include <assert.h>

#include "ir/diag.h"

#include "base/argument.h"
#include "base/struct_size.h"
#include "ir/encode.h"
#include "ir/lexer.h"
#include "ir/specialize.h"
#include "ir/text.h"
#include "ir/verify.h"

// Places in a text are 32-bit numbers.
#define LARGEST_TEXT_BYTES ((size_t)256 * 1024 * 1024)

void qn__body_init(qn__ir_body_t* body, qn_allocator_t allocator) {
  *body = (qn__ir_body_t){.first = NULL};
  qn__arena_init(&body->arena, allocator);
}

void qn__body_deinit(qn__ir_body_t* body) {
  qn_allocator_t allocator = body->arena.allocator;
  qn__arena_deinit(&body->arena);
  qn__body_init(body, allocator);
}

// ------------------------------------------------------------------------------------ sealing

// Makes the array of functions, and their signatures.
static bool describe(qn_module_t* module) {
  qn__ir_body_t* body = &module->body;
  module->functions =
      qn__arena_alloc_array(&body->arena, body->function_count, sizeof *module->functions);
  if (!module->functions) return false;
  qn__buffer_t text;
  qn__buffer_init(&text, module->allocator);
  size_t count = 0;
  bool is_done = true;
  for (qn__ir_func_t* function = body->first; function && is_done; function = function->next) {
    qn__function_number(function);
    module->functions[count++] = function;
    qn__buffer_clear(&text);
    qn__text_print_signature(function, &text);
    function->signature =
        text.has_failed ? NULL : qn__arena_cstr(&body->arena, qn__buffer_as_str(&text));
    is_done = function->signature != NULL;
  }
  qn__buffer_deinit(&text);
  assert(!is_done || count == body->function_count);
  return is_done;
}

static bool encode(qn_module_t* module) {
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, module->allocator);
  qn__body_encode(&module->body, &bytes);
  if (bytes.has_failed) {
    qn__buffer_deinit(&bytes);
    return false;
  }
  module->bytes = qn__buffer_take(&bytes, &module->byte_count, &module->byte_capacity);
  qn_span_t span = {module->bytes, module->byte_count};
  module->digest = qn__xxh128(span, 0);
  module->second_digest = qn__sha256(span);
  return true;
}

// Copies the text, so that messages of running code can quote it.
static bool keep_source(qn_module_t* module, const qn__diag_t* diag) {
  qn__arena_t* arena = &module->body.arena;
  module->source_name = qn__arena_cstr(arena, qn__str(diag->source_name));
  if (diag->source.size == 0 || !module->source_name) return module->source_name != NULL;
  module->source = (qn_str_t){qn__arena_cstr(arena, diag->source), diag->source.size};
  return module->source.data != NULL;
}

// Makes a module of a verified body (consumed, also on failure): numbers it, writes signatures and
// canonical bytes, digests it.
static qn_status_t seal(qn__ir_body_t* body, const qn__diag_t* diag, qn_module_t** out_module) {
  qn_allocator_t allocator = body->arena.allocator;
  qn_module_t* module = qn__alloc_zero(allocator, 1, sizeof *module);
  if (!module) {
    qn__body_deinit(body);
    return qn__out_of_memory("a module");
  }
  module->reference_count = 1;
  module->allocator = allocator;
  module->body = *body;
  qn__body_init(body, allocator);
  if (!describe(module) || !encode(module) || !keep_source(module, diag)) {
    qn_module_release(module);
    return qn__out_of_memory("a module");
  }
  *out_module = module;
  return QN_OK;
}

qn_status_t qn__module_finish(qn__ir_body_t* body, qn__diag_t* diag, qn_module_t** out_module) {
  *out_module = NULL;
  diag->places = &body->places;
  bool is_valid = qn__body_verify(body, diag);
  qn_status_t status = qn__diag_status(diag, QN_STATUS_INVALID_MODULE);
  if (qn_ok(status) && !is_valid) status = qn__out_of_memory("checking a module");
  if (qn_ok(status)) return seal(body, diag, out_module);
  qn__body_deinit(body);
  return status;
}

qn_status_t qn__module_finish_lowered(qn__ir_body_t* body, qn_module_t** out_module) {
  *out_module = NULL;
  qn_status_t status = qn__body_verify_status(body, "the passes");
  if (!qn_ok(status)) {
    qn__body_deinit(body);
    return status;
  }
  // Without a source text, messages have no place.
  qn__diag_t diag;
  qn__diag_init(&diag, body->arena.allocator, NULL, "<lowered>", QN_STR(""));
  status = seal(body, &diag, out_module);
  qn__diag_deinit(&diag);
  if (qn_ok(status)) (*out_module)->has_places = true;
  return status;
}

void qn_module_retain(qn_module_t* module) {
  if (!module) return;
  module->reference_count++;
}

void qn_module_release(qn_module_t* module) {
  assert(!module || module->reference_count > 0);
  if (!module || --module->reference_count > 0) return;
  qn_allocator_t allocator = module->allocator;
  if (module->bytes) qn__free(allocator, module->bytes, module->byte_capacity);
  qn__body_deinit(&module->body);
  qn__free(allocator, module, sizeof *module);
}

// ------------------------------------------------------------------------------------ making

// Returns the caller's options with defaults filled in.
static qn_status_t read_options(const qn_parse_options_t* options, qn_parse_options_t* out) {
  QN_TRY(qn__struct_read("qn_parse_options_t", 0, options, out, sizeof *out));
  if (!out->source_name) out->source_name = "<text>";
  if (!out->allocator.reallocate) out->allocator = qn_allocator_default();
  return QN_OK;
}

// Fixes the symbols and scalars that `set` names, and those that the text has fixed.
static qn_status_t apply_settings(qn__ir_body_t* body, const char* set) {
  qn__constants_t constants = {0};
  qn_status_t status = qn__constants_parse(&constants, &body->arena, set);
  if (qn_ok(status)) status = qn__body_specialize(body, &constants);
  qn__constants_deinit(&constants, body->arena.allocator);
  return status;
}

qn_status_t qn_module_parse(const char* text, size_t size, const qn_parse_options_t* options,
                            qn_module_t** out_module) {
  QN_REQUIRE(out_module);
  *out_module = NULL;
  qn_parse_options_t filled;
  QN_TRY(read_options(options, &filled));
  if (!text && size > 0) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "text is NULL, its size is %zu", size);
  }
  if (size > LARGEST_TEXT_BYTES) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "text has %zu bytes, the limit is %zu", size,
                          LARGEST_TEXT_BYTES);
  }
  qn_str_t source = qn__lexer_skip_mark((qn_str_t){text ? text : "", size});
  qn__diag_t diag;
  qn__diag_init(&diag, filled.allocator, &filled, filled.source_name, source);
  qn__ir_body_t body;
  qn_status_t status;
  if (qn__text_parse(source, filled.allocator, &diag, &body)) {
    status = apply_settings(&body, filled.set);
    if (qn_ok(status)) {
      status = qn__module_finish(&body, &diag, out_module);
    } else {
      qn__body_deinit(&body);
    }
  } else {
    bool is_exhausted = body.arena.is_exhausted;
    status = is_exhausted ? QN_OK : qn__diag_status(&diag, QN_STATUS_SYNTAX);
    if (qn_ok(status)) status = qn__out_of_memory("parsing a module");
    qn__body_deinit(&body);
  }
  qn__diag_deinit(&diag);
  return status;
}

qn_status_t qn_module_decode(const void* data, size_t size, const qn_parse_options_t* options,
                             qn_module_t** out_module) {
  QN_REQUIRE(out_module);
  *out_module = NULL;
  qn_parse_options_t filled;
  QN_TRY(read_options(options, &filled));
  if (!data && size > 0) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "data is NULL, its size is %zu", size);
  }
  if (filled.set) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "set is for texts; call qn_module_specialize with the decoded module");
  }
  qn__ir_body_t body;
  QN_TRY(qn__body_decode((qn_span_t){data, size}, filled.allocator, &body));
  // Without a source text, messages have no place.
  qn__diag_t diag;
  qn__diag_init(&diag, filled.allocator, &filled, filled.source_name, QN_STR(""));
  qn_module_t* module = NULL;
  qn_status_t status = qn__module_finish(&body, &diag, &module);
  qn__diag_deinit(&diag);
  if (!qn_ok(status)) return status;
  // Canonical bytes have one form: reject bytes that the encoder would write differently.
  if (module->byte_count != size || memcmp(module->bytes, data, size) != 0) {
    qn_module_release(module);
    return qn_status_make(QN_STATUS_DATA_LOSS,
                          "module bytes are not canonical: encoding them again gives others");
  }
  module->has_places = true;
  *out_module = module;
  return QN_OK;
}

// ------------------------------------------------------------------------------------ describing

qn_status_t qn__text_give(qn__buffer_t* text, const char* what, char** out_text, size_t* out_size) {
  if (text->has_failed) {
    qn__buffer_deinit(text);
    return qn__out_of_memory(what);
  }
  size_t size;
  size_t capacity;
  *out_text = (char*)qn__buffer_take(text, &size, &capacity);
  if (out_size) *out_size = size;
  return QN_OK;
}

qn_status_t qn_module_print(const qn_module_t* module, char** out_text, size_t* out_size) {
  QN_REQUIRE(out_text);
  *out_text = NULL;
  if (out_size) *out_size = 0;
  QN_REQUIRE(module);
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  qn__buffer_cstr(&text, "");
  qn__text_print(&module->body, &text);
  return qn__text_give(&text, "the text of a module", out_text, out_size);
}

void qn_text_free(char* text) {
  qn__free_cstr(qn_allocator_default(), text);
}

const void* qn_module_bytes(const qn_module_t* module, size_t* out_size) {
  if (!module || !out_size) return NULL;
  *out_size = module->byte_count;
  return module->bytes;
}

const uint8_t* qn_module_digest(const qn_module_t* module) {
  if (!module) return NULL;
  return module->digest.bytes;
}

size_t qn_module_function_count(const qn_module_t* module) {
  if (!module) return 0;
  return module->body.function_count;
}

static const qn__ir_func_t* function_at(const qn_module_t* module, size_t index) {
  return module && index < module->body.function_count ? module->functions[index] : NULL;
}

const char* qn_module_function_name(const qn_module_t* module, size_t index) {
  const qn__ir_func_t* function = function_at(module, index);
  return function ? function->name : NULL;
}

const char* qn_module_function_signature(const qn_module_t* module, size_t index) {
  const qn__ir_func_t* function = function_at(module, index);
  return function ? function->signature : NULL;
}

size_t qn_module_function_param_count(const qn_module_t* module, size_t index) {
  const qn__ir_func_t* function = function_at(module, index);
  return function ? function->param_count : 0;
}

qn_status_t qn_module_param_info(const qn_module_t* module, size_t function_index,
                                 size_t param_index, qn_param_info_t* out_info) {
  QN_REQUIRE(out_info);
  QN_STRUCT_CLEAR(qn_param_info_t, out_info);
  QN_REQUIRE(module);
  const qn__ir_func_t* function = function_at(module, function_index);
  if (!function) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "function %zu of a module that has %zu",
                          function_index, module->body.function_count);
  }
  if (param_index >= function->param_count) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "parameter %zu of '%s', which has %zu",
                          param_index, function->name, function->param_count);
  }
  const qn__ir_param_t* param = &function->params[param_index];
  qn_param_info_t info = {0};
  if (param->buffer) {
    const qn__ir_buffer_t* buffer = param->buffer;
    info = (qn_param_info_t){.name = buffer->name,
                             .is_buffer = true,
                             .dtype = buffer->dtype,
                             .access = buffer->access,
                             .rank = buffer->rank,
                             .align_bytes = buffer->align_bytes,
                             .buffer = buffer};
  } else {
    const qn__ir_var_t* scalar = param->scalar;
    info = (qn_param_info_t){.name = scalar->name,
                             .dtype = scalar->dtype,
                             .is_fixed = scalar->is_fixed,
                             .fixed_value = scalar->fixed_value,
                             .scalar = scalar};
  }
  QN_STRUCT_WRITE(out_info, info);
  return QN_OK;
}
