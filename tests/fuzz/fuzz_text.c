// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/fuzz_text.c: reads arbitrary bytes as the text of a module.
//
// A module that parses must print, and its text must parse to the same canonical bytes and print
// the same text. Formatting must be idempotent and keep the module, or the lack of one, and so must
// writing the dtypes of lets. So must a module of which symbols and scalars are fixed. A failure to
// parse must give a message with a place.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quern/ir.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void require(bool is_true) {
  if (!is_true) abort();
}

static qn_module_t* parse(const char* text, size_t size) {
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(text, size, NULL, &module);
  if (!qn_ok(status)) {
    require(!module && qn_status_message(status)[0] != '\0');
    qn_status_free(status);
  }
  return module;
}

static void require_same(const qn_module_t* a, const qn_module_t* b) {
  size_t a_size;
  size_t b_size;
  const void* a_bytes = qn_module_bytes(a, &a_size);
  const void* b_bytes = qn_module_bytes(b, &b_size);
  require(a_size == b_size && memcmp(a_bytes, b_bytes, a_size) == 0);
}

static char* print(const qn_module_t* module, size_t* out_size) {
  char* text = NULL;
  require(qn_status_consume(qn_module_print(module, &text, out_size)) == QN_STATUS_OK);
  return text;
}

// Prints, parses, prints. The formatter agrees with the printer.
static void check_print(const qn_module_t* module) {
  size_t size;
  char* text = print(module, &size);
  qn_module_t* again = parse(text, size);
  require(again != NULL);
  require_same(module, again);
  size_t again_size;
  char* again_text = print(again, &again_size);
  char* formatted = NULL;
  require(size == again_size && memcmp(text, again_text, size) == 0);
  require(qn_ok(qn_text_format(text, size, NULL, &formatted, &again_size)));
  require(size == again_size && memcmp(text, formatted, size) == 0);
  qn_text_free(formatted);
  qn_text_free(again_text);
  qn_text_free(text);
  qn_module_release(again);
}

// `module` is NULL for a text that is no module. It is formatted if it follows the grammar.
static void check_format(const qn_module_t* module, const char* text, size_t size) {
  char* formatted = NULL;
  size_t formatted_size;
  qn_status_t status = qn_text_format(text, size, NULL, &formatted, &formatted_size);
  if (!module && qn_status_code(status) == QN_STATUS_SYNTAX) {
    require(!formatted);
    qn_status_free(status);
    return;
  }
  require(qn_ok(status));
  qn_module_t* again = parse(formatted, formatted_size);
  require((again == NULL) == (module == NULL));
  if (module) require_same(module, again);
  char* twice = NULL;
  size_t twice_size;
  status = qn_text_format(formatted, formatted_size, NULL, &twice, &twice_size);
  require(qn_ok(status));
  require(twice_size == formatted_size && memcmp(twice, formatted, twice_size) == 0);
  qn_text_free(twice);
  qn_text_free(formatted);
  qn_module_release(again);
}

// Dtypes of lets are no part of the module, and are written once.
static void check_types(const qn_module_t* module, const char* text, size_t size) {
  char* typed = NULL;
  char* twice = NULL;
  size_t typed_size, twice_size;
  require(qn_ok(qn_text_format_types(text, size, NULL, &typed, &typed_size)));
  qn_module_t* again = parse(typed, typed_size);
  require(again != NULL);
  require_same(module, again);
  require(qn_ok(qn_text_format_types(typed, typed_size, NULL, &twice, &twice_size)));
  require(typed_size == twice_size && memcmp(typed, twice, typed_size) == 0);
  qn_module_release(again);
  qn_text_free(twice);
  qn_text_free(typed);
}

// The module as it comes out of a cache or a file: its locals have made-up names.
static void check_decoded(const qn_module_t* module) {
  size_t size;
  const void* bytes = qn_module_bytes(module, &size);
  qn_module_t* decoded = NULL;
  require(qn_ok(qn_module_decode(bytes, size, NULL, &decoded)));
  require_same(module, decoded);
  check_print(decoded);
  qn_module_release(decoded);
}

// Fixes the symbols and integer scalars of the first function. The result may break a rule, such as
// the limit of local memory, but none that only the library could break (QN0200).
static void check_special(const qn_module_t* module) {
  enum { MAX_NAMES = 8 };
  const char* names[MAX_NAMES];
  int64_t values[MAX_NAMES];
  size_t count = 0;
  const char* name;
  for (size_t i = 0; count < MAX_NAMES && (name = qn_module_symbol_name(module, 0, i)); i++) {
    names[count] = name;
    values[count] = (int64_t)(3 * count + 2);
    count++;
  }
  for (size_t i = 0; count < MAX_NAMES && i < qn_module_function_param_count(module, 0); i++) {
    qn_param_info_t info = {.struct_size = sizeof info};
    require(qn_ok(qn_module_param_info(module, 0, i, &info)));
    bool is_int = !info.is_buffer && info.dtype >= QN_DTYPE_I8 && info.dtype <= QN_DTYPE_U64;
    if (!is_int) continue;
    names[count] = info.name;
    values[count] = info.is_fixed ? info.fixed_value : (int64_t)count;
    count++;
  }
  qn_module_t* special = NULL;
  qn_status_t status = qn_module_specialize(module, names, values, count, &special);
  if (!qn_ok(status)) {
    require(!special && !strstr(qn_status_message(status), "QN0200"));
    qn_status_free(status);
    return;
  }
  check_print(special);
  check_decoded(special);
  qn_module_release(special);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const char* text = (const char*)data;
  qn_module_t* module = parse(text, size);
  check_format(module, text, size);
  if (!module) return 0;
  check_types(module, text, size);
  check_print(module);
  check_decoded(module);
  check_special(module);
  qn_module_release(module);
  return 0;
}
