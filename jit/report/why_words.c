// SPDX-License-Identifier: Apache-2.0
// jit/report/why_words.c: describes the difference of one section of two keys.
//
// The description depends on the form of the section:
//   target      JSON; the differing member is named as on the command line, important ones first
//   generator   an identity: parts with commas between them
//   options     NAME=VALUE pairs with blanks between them
// A section of unknown form is shown whole.
#include <jansson.h>

#include "base/reader.h"
#include "cache/preimage.h"
#include "jit/report/why.h"

// The number of items of a list that are named; the others are only counted.
#define SHOWN_ITEMS 6u

void qn__difference_init(qn__difference_t* difference, qn_allocator_t allocator) {
  qn__buffer_init(&difference->member, allocator);
  qn__buffer_init(&difference->wanted, allocator);
  qn__buffer_init(&difference->cached, allocator);
  qn__buffer_init(&difference->others, allocator);
}

void qn__difference_deinit(qn__difference_t* difference) {
  qn__buffer_deinit(&difference->member);
  qn__buffer_deinit(&difference->wanted);
  qn__buffer_deinit(&difference->cached);
  qn__buffer_deinit(&difference->others);
}

static qn_str_t as_str(qn_span_t bytes) {
  return (qn_str_t){(const char*)bytes.data, bytes.size};
}

static void put_whole(const char* member, qn_span_t wanted, qn_span_t cached,
                      qn__difference_t* out) {
  qn__buffer_cstr(&out->member, member);
  qn__buffer_str(&out->wanted, as_str(wanted));
  qn__buffer_str(&out->cached, as_str(cached));
}

// ---------------------------------------------------------------------------------- target

static void put_json(qn__buffer_t* out, const json_t* value) {
  if (!value) {
    qn__buffer_cstr(out, "none");
  } else if (json_is_string(value)) {
    qn__buffer_cstr(out, json_string_value(value)[0] ? json_string_value(value) : "none");
  } else {
    char* text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS);
    if (text) {
      qn__buffer_cstr(out, text);
    } else {
      out->has_failed = true;
    }
    free(text);
  }
}

static bool has_item(const json_t* list, const json_t* item) {
  size_t i;
  json_t* other;
  json_array_foreach(list, i, other) {
    if (json_equal(item, other)) return true;
  }
  return false;
}

// Writes the items that the other list lacks, "with avx512f, avx512bw"; "without" if there are
// none.
static void put_surplus(qn__buffer_t* out, const json_t* list, const json_t* other) {
  size_t i, count = 0;
  json_t* item;
  json_array_foreach(list, i, item) {
    if (has_item(other, item)) continue;
    if (count < SHOWN_ITEMS) {
      qn__buffer_cstr(out, count ? ", " : "with ");
      put_json(out, item);
    }
    count++;
  }
  if (count == 0) qn__buffer_cstr(out, "without");
  if (count > SHOWN_ITEMS) qn__buffer_format(out, " and %zu more", count - SHOWN_ITEMS);
}

static bool have_equal_items(const json_t* a, const json_t* b) {
  size_t i;
  json_t* item;
  json_array_foreach(a, i, item) {
    if (!has_item(b, item)) return false;
  }
  json_array_foreach(b, i, item) {
    if (!has_item(a, item)) return false;
  }
  return true;
}

// Compares one member. Writes the first difference with both values, later ones by name only.
static void take_member(const char* prefix, const char* name, const json_t* wanted,
                        const json_t* cached, qn__difference_t* out) {
  // compare_objects descends into objects itself.
  if (json_is_object(wanted) && json_is_object(cached)) return;
  if (wanted && cached && json_equal(wanted, cached)) return;
  if (out->member.size > 0) {
    qn__buffer_format(&out->others, "%s%s.%s", out->others.size ? ", " : "", prefix, name);
    return;
  }
  qn__buffer_format(&out->member, "%s.%s", prefix, name);
  // If two lists differ only in their order, both are shown whole.
  if (json_is_array(wanted) && json_is_array(cached) && !have_equal_items(wanted, cached)) {
    put_surplus(&out->wanted, wanted, cached);
    put_surplus(&out->cached, cached, wanted);
    return;
  }
  put_json(&out->wanted, wanted);
  put_json(&out->cached, cached);
}

static void compare_objects(const char* prefix, json_t* wanted, json_t* cached,
                            qn__difference_t* out) {
  // Members that determine others come first.
  static const char* const order[] = {"kind", "mtriple", "mcpu", "arch", "tune", "features"};
  for (size_t i = 0; i < QN_COUNT_OF(order); i++) {
    const json_t* a = json_object_get(wanted, order[i]);
    const json_t* b = json_object_get(cached, order[i]);
    if (a || b) take_member(prefix, order[i], a, b, out);
  }
  json_t* both = json_object();
  bool is_made = both && json_object_update(both, wanted) == 0 &&
                 json_object_update_missing(both, cached) == 0;
  if (!is_made) out->others.has_failed = true;
  const char* name;
  json_t* value;
  json_object_foreach(both, name, value) {
    bool is_done = false;
    for (size_t i = 0; i < QN_COUNT_OF(order); i++) is_done |= strcmp(name, order[i]) == 0;
    if (is_done) continue;
    json_t* a = json_object_get(wanted, name);
    json_t* b = json_object_get(cached, name);
    if (json_is_object(a) && json_is_object(b)) {
      char inner[64];
      size_t size = strlen(prefix);
      if (size + strlen(name) + 2 > sizeof inner) continue;
      memcpy(inner, prefix, size);
      inner[size] = '.';
      memcpy(inner + size + 1, name, strlen(name) + 1);
      compare_objects(inner, a, b, out);
    } else {
      take_member(prefix, name, a, b, out);
    }
  }
  json_decref(both);
}

static json_t* parse(qn_span_t bytes) {
  json_t* value = json_loadb((const char*)bytes.data, bytes.size, 0, NULL);
  if (json_is_object(value)) return value;
  json_decref(value);
  return NULL;
}

static void compare_targets(qn_span_t wanted, qn_span_t cached, qn__difference_t* out) {
  json_t* a = parse(wanted);
  json_t* b = parse(cached);
  if (a && b) compare_objects("target", a, b, out);
  json_decref(a);
  json_decref(b);
  if (out->member.size == 0) put_whole("target", wanted, cached, out);
}

// ---------------------------------------------------------------------------------- lists of parts

// Cuts off the next part. Returns false if nothing is left.
static bool next_part(qn_str_t* inout_rest, const char* separator, qn_str_t* out_part) {
  if (inout_rest->size == 0) return false;
  size_t gap = strlen(separator), at = 0;
  while (at < inout_rest->size &&
         (at + gap > inout_rest->size || memcmp(inout_rest->data + at, separator, gap) != 0)) {
    at++;
  }
  *out_part = (qn_str_t){inout_rest->data, at};
  size_t cut = at + gap < inout_rest->size ? at + gap : inout_rest->size;
  inout_rest->data += cut;
  inout_rest->size -= cut;
  return true;
}

// Writes the first differing part of two lists. With `has_head`, an equal first part (the name) is
// written before it: "llvm 19.1.4, build id ab12".
static void compare_parts(const char* member, const char* separator, bool has_head,
                          qn_span_t wanted, qn_span_t cached, qn__difference_t* out) {
  qn_str_t a = as_str(wanted), b = as_str(cached), part_a, part_b;
  qn__buffer_cstr(&out->member, member);
  for (size_t i = 0;; i++) {
    bool has_a = next_part(&a, separator, &part_a), has_b = next_part(&b, separator, &part_b);
    if (!has_a && !has_b) break;
    if (!has_a) part_a = QN_STR("nothing");
    if (!has_b) part_b = QN_STR("nothing");
    if (has_a && has_b && qn__str_equal(part_a, part_b)) {
      if (i == 0 && has_head) {
        qn__buffer_str(&out->wanted, part_a);
        qn__buffer_cstr(&out->wanted, ", ");
      }
      continue;
    }
    qn__buffer_str(&out->wanted, part_a);
    qn__buffer_str(&out->cached, part_b);
    return;
  }
  // All parts are equal, so the separators differ: show both whole.
  qn__buffer_clear(&out->wanted);
  qn__buffer_str(&out->wanted, as_str(wanted));
  qn__buffer_str(&out->cached, as_str(cached));
}

// ---------------------------------------------------------------------------------- numbers

static void compare_schemas(qn_span_t wanted, qn_span_t cached, qn__difference_t* out) {
  static const char* const names[] = {"of keys", "of kernels", "of generators"};
  qn__reader_t a = qn__reader_make(wanted), b = qn__reader_make(cached);
  qn__buffer_cstr(&out->member, "schema");
  for (size_t i = 0; i < QN_COUNT_OF(names); i++) {
    uint32_t x = qn__read_u32(&a), y = qn__read_u32(&b);
    if (x == y && !a.has_overrun && !b.has_overrun) continue;
    qn__buffer_format(&out->wanted, "version %" PRIu32 " %s", x, names[i]);
    qn__buffer_format(&out->cached, "%" PRIu32, y);
    return;
  }
  qn__buffer_cstr(&out->wanted, "another form");
  qn__buffer_cstr(&out->cached, "another form");
}

static void put_module_size(qn__buffer_t* out, qn_span_t section) {
  qn__reader_t reader = qn__reader_make(section);
  qn__buffer_format(out, "%" PRIu64 " bytes", qn__read_u64(&reader));
}

static void put_quoted(qn__buffer_t* out, qn_span_t text) {
  qn__buffer_char(out, '\'');
  qn__buffer_str(out, as_str(text));
  qn__buffer_char(out, '\'');
}

void qn__difference_make(uint32_t tag, qn_span_t wanted, qn_span_t cached,
                         qn__difference_t* out_difference) {
  switch (tag) {
    case QN__SECTION_SCHEMA:
      compare_schemas(wanted, cached, out_difference);
      break;
    case QN__SECTION_MODULE:
      qn__buffer_cstr(&out_difference->member, "module");
      put_module_size(&out_difference->wanted, wanted);
      put_module_size(&out_difference->cached, cached);
      break;
    case QN__SECTION_TARGET:
      compare_targets(wanted, cached, out_difference);
      break;
    case QN__SECTION_GENERATOR:
      compare_parts("generator", ", ", true, wanted, cached, out_difference);
      break;
    case QN__SECTION_OPTIONS:
      compare_parts("options", " ", false, wanted, cached, out_difference);
      break;
    case QN__SECTION_NAMESPACE:
      qn__buffer_cstr(&out_difference->member, "namespace");
      put_quoted(&out_difference->wanted, wanted);
      put_quoted(&out_difference->cached, cached);
      break;
    default:
      qn__buffer_cstr(&out_difference->member, qn__section_text(tag));
      qn__buffer_format(&out_difference->wanted, "%zu bytes", wanted.size);
      qn__buffer_format(&out_difference->cached, "%zu bytes", cached.size);
  }
}
