// SPDX-License-Identifier: Apache-2.0
// jit/shaderc/controls.c: see controls.h.
//
// A SPIR-V module has its instructions in fixed sections; execution modes follow the entry point.
// An instruction is one word with its length and opcode, then its operands.
#include "jit/shaderc/controls.h"

#include "base/base.h"

enum {
  HEADER_WORDS = 5,
  OP_ENTRY_POINT = 15,
  OP_EXECUTION_MODE = 16,
  OP_CAPABILITY = 17,
  CAPABILITY_FLOAT64 = 10,
  WIDTH = 64,
};

// The modes that jit/gpu/glsl.c requests in the text.
static const struct {
  const char* option;
  uint32_t mode;
} controls[QN__SHADERC_MAX_MODES] = {
    {"supports_denorm_preserve_float64", 4459},
    {"supports_signed_zero_inf_nan_preserve_float64", 4461},
    {"supports_rounding_rte_float64", 4462},
};

qn__shaderc_modes_t qn__shaderc_modes_of_f64(const qn_target_t* target) {
  qn__shaderc_modes_t modes = {.count = 0};
  bool has = false;
  if (!qn_target_get_bool(target, "supports_float64", &has) || !has) return modes;
  for (size_t i = 0; i < QN_COUNT_OF(controls); ++i) {
    if (!qn_target_get_bool(target, controls[i].option, &has) || !has) continue;
    modes.numbers[modes.count++] = controls[i].mode;
  }
  return modes;
}

typedef struct module {
  const uint8_t* bytes;
  size_t count;  // of words
} module_t;

static uint32_t word(const module_t* module, size_t at) {
  uint32_t value;
  memcpy(&value, module->bytes + 4 * at, sizeof value);
  return value;
}

typedef struct control_place {
  size_t end;  // the word after the last mode or entry point; 0: none
  uint32_t entry;
  bool has_f64;
} control_place_t;

// Finds the place for modes, and removes from `missing` the modes that the module has.
static control_place_t find_place(const module_t* module, qn__shaderc_modes_t* missing) {
  control_place_t place = {0, 0, false};
  for (size_t at = HEADER_WORDS; at < module->count;) {
    uint32_t length = word(module, at) >> 16, op = word(module, at) & 0xFFFF;
    if (length == 0 || length > module->count - at) return (control_place_t){0, 0, false};
    if (op == OP_CAPABILITY && length == 2) {
      place.has_f64 |= word(module, at + 1) == CAPABILITY_FLOAT64;
    }
    if ((op == OP_ENTRY_POINT || op == OP_EXECUTION_MODE) && length > 2) {
      place.end = at + length;
      if (op == OP_ENTRY_POINT) place.entry = word(module, at + 2);
    }
    bool is_of_f64 = op == OP_EXECUTION_MODE && length == 4 && word(module, at + 3) == WIDTH;
    for (uint32_t i = 0; is_of_f64 && i < missing->count; ++i) {
      if (missing->numbers[i] == word(module, at + 2)) {
        missing->numbers[i--] = missing->numbers[--missing->count];
      }
    }
    at += length;
  }
  return place;
}

void qn__shaderc_modes_append(qn_span_t words, const qn__shaderc_modes_t* modes,
                              qn__buffer_t* out) {
  module_t module = {words.data, words.size % 4 == 0 ? words.size / 4 : 0};
  qn__shaderc_modes_t missing = *modes;
  control_place_t place = find_place(&module, &missing);
  if (!place.has_f64 || place.end == 0) missing.count = 0;
  size_t head = missing.count == 0 ? words.size : 4 * place.end;
  qn__buffer_bytes(out, module.bytes, head);
  for (uint32_t i = 0; i < missing.count; ++i) {
    const uint32_t mode[] = {4u << 16 | OP_EXECUTION_MODE, place.entry, missing.numbers[i], WIDTH};
    qn__buffer_bytes(out, mode, sizeof mode);
  }
  qn__buffer_bytes(out, module.bytes + head, words.size - head);
}
