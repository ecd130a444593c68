// SPDX-License-Identifier: Apache-2.0
// target/value.c: parses an option's value; errors name the option and its type.
//
// Not here: JSON values (parse.c), the meaning of values (resolve.c).
#include "target/target.h"

static qn_status_t wrong_value(const qn__target_kind_t* kind, size_t option, qn_str_t text) {
  return qn_status_make(
      QN_STATUS_INVALID_ARGUMENT, "option '%s' of target kind '%s' takes %s, not '%.*s'",
      kind->options[option].name, kind->info->name,
      qn__target_option_type_text(kind->options[option].type), QN_STR_ARG(qn__excerpt(text)));
}

bool qn__int_parse(qn_str_t text, int64_t* out_number) {
  size_t i = text.size > 0 && text.data[0] == '-';
  if (i == text.size) return false;
  int64_t number = 0;
  for (; i < text.size; ++i) {
    int digit = text.data[i] - '0';
    if (digit < 0 || digit > 9 || __builtin_mul_overflow(number, 10, &number) ||
        __builtin_sub_overflow(number, digit, &number)) {
      return false;
    }
  }
  // Counts downwards, so that the least number fits.
  if (text.data[0] != '-' && __builtin_sub_overflow(0, number, &number)) return false;
  *out_number = number;
  return true;
}

qn_status_t qn__target_value_check_range(const qn__target_kind_t* kind, size_t option,
                                         int64_t number) {
  const qn__target_option_t* info = &kind->options[option];
  if (info->minimum <= number && number <= info->maximum) return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                        "option '%s' of target kind '%s' takes %" PRId64 " to %" PRId64
                        ", not %" PRId64,
                        info->name, kind->info->name, info->minimum, info->maximum, number);
}

static qn_status_t parse_list(qn__arena_t* arena, const qn__target_kind_t* kind, size_t option,
                              qn_str_t text, qn__target_value_t* out) {
  size_t count = text.size > 0;
  for (size_t i = 0; i < text.size; ++i) count += text.data[i] == ',';
  out->items = qn__arena_alloc_array(arena, count, sizeof *out->items);
  if (count && !out->items) return qn__out_of_memory("a list of a target");
  const char* item = text.data;
  const char* end = text.data + text.size;
  for (size_t i = 0; i < count; ++i) {
    const char* comma = memchr(item, ',', (size_t)(end - item));
    size_t size = (size_t)((comma ? comma : end) - item);
    if (size == 0) return wrong_value(kind, option, text);
    out->items[i] = qn__arena_cstr(arena, (qn_str_t){item, size});
    if (!out->items[i]) return qn__out_of_memory("a list of a target");
    item += size + 1;
  }
  out->item_count = count;
  return QN_OK;
}

qn_status_t qn__target_value_parse(qn__arena_t* arena, const qn__target_kind_t* kind, size_t option,
                                   qn_str_t text, qn__target_value_t* out) {
  assert(option < kind->info->option_count);
  switch (kind->options[option].type) {
    case QN_OPTION_BOOL:
      out->number = qn__str_equal(text, QN_STR("true")) || qn__str_equal(text, QN_STR("1"));
      if (out->number || qn__str_equal(text, QN_STR("false")) || qn__str_equal(text, QN_STR("0"))) {
        return QN_OK;
      }
      return wrong_value(kind, option, text);
    case QN_OPTION_INT:
      if (!qn__int_parse(text, &out->number)) return wrong_value(kind, option, text);
      return qn__target_value_check_range(kind, option, out->number);
    case QN_OPTION_STRING:
      out->text = qn__arena_cstr(arena, text);
      return out->text ? QN_OK : qn__out_of_memory("a string of a target");
    case QN_OPTION_STRING_LIST:
      return parse_list(arena, kind, option, text, out);
  }
  return wrong_value(kind, option, text);
}
