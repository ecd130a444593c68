// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/compare.c: pairs rows and words verdicts.
//
// The ratio of medians comes with a 95 % interval from resampled rounds. A verdict needs an
// interval that excludes 1 and a difference of at least two percent: layout and alignment of code
// and data alone move a median by that much, and no interval of one process shows it.
#include "tools/cli/bench/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/bench/rows.h"
#include "tools/cli/memory.h"
#include "tools/cli/output.h"

// Fewer samples than this make no interval.
enum { MIN_SAMPLES = 5 };
#define MIN_DIFFERENCE 0.02

static bool is_alike(const json_t* a, const json_t* b, compare_by_t by) {
  static const struct {
    const char* member;
    compare_by_t free;
  } members[] = {{"what", COMPARE_RUN},  {"function", COMPARE_FILE}, {"target", COMPARE_TARGET},
                 {"tier", COMPARE_TIER}, {"sizes", COMPARE_FILE},    {"threads", COMPARE_RUN}};
  for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
    if (members[i].free == by && by != COMPARE_RUN) continue;
    const json_t *x = json_object_get(a, members[i].member),
                 *y = json_object_get(b, members[i].member);
    // Devices of two targets have threads or not.
    if (by == COMPARE_TARGET && strcmp(members[i].member, "threads") == 0 &&
        (json_is_null(x) || json_is_null(y))) {
      continue;
    }
    if (!x || !y || !json_equal(x, y)) return false;
  }
  return true;
}

static const char* verdict_of(const ratio_t* ratio) {
  if (ratio->high < 1 && ratio->ratio <= 1 - MIN_DIFFERENCE) return "faster";
  if (ratio->low > 1 && ratio->ratio >= 1 + MIN_DIFFERENCE) return "slower";
  return "no difference shown";
}

static void describe(const json_t* record, char out[256]) {
  const char* words[] = {"what", "target", "tier", "sizes"};
  size_t used = 0;
  out[0] = '\0';
  for (size_t i = 0; i < 4 && used < 200; i++) {
    const char* text = json_string_value(json_object_get(record, words[i]));
    if (!text || !text[0]) continue;
    used += (size_t)snprintf(out + used, 256 - used, "%s%.60s", used ? ", " : "", text);
  }
}

static const char* base_of(const json_t* other, compare_by_t by) {
  const char* member = by == COMPARE_TARGET ? "target" : by == COMPARE_TIER ? "tier" : "file";
  return json_string_value(json_object_get(other, member));
}

static void compare_pair(const json_t* row, const json_t* other, compare_by_t by, json_t* list,
                         json_t* not_measured) {
  samples_t a = {.round_count = 0}, b = {.round_count = 0};
  bool has_both = row_read_samples(row, &a) && row_read_samples(other, &b);
  char text[256];
  describe(row, text);
  if (!has_both || samples_count(&a) < MIN_SAMPLES || samples_count(&b) < MIN_SAMPLES) {
    char what[300];
    (void)snprintf(what, sizeof what, "comparison of %s", text);
    json_array_append_new(
        not_measured,
        json_record("what:s why:s", what, "fewer than 5 samples; give more time with --time"));
  } else {
    ratio_t ratio = samples_ratio(&a, &b);
    json_t* record = json_record("verdict:s base:s", verdict_of(&ratio), base_of(other, by));
    static const char* const copied[] = {"what", "file",    "function", "target",
                                         "tier", "threads", "sizes",    "median_ns"};
    for (size_t i = 0; i < sizeof copied / sizeof copied[0]; i++) {
      json_object_set(record, copied[i], json_object_get(row, copied[i]));
    }
    json_object_set(record, "base_ns", json_object_get(other, "median_ns"));
    json_object_set_new(record, "ratio", json_real(ratio.ratio));
    json_object_set_new(record, "low", json_real(ratio.low));
    json_object_set_new(record, "high", json_real(ratio.high));
    json_array_append_new(list, record);
  }
  samples_free(&a);
  samples_free(&b);
}

json_t* compare_rows(const json_t* rows, const json_t* others, compare_by_t by,
                     json_t* not_measured) {
  json_t* list = json_array();
  // Sets of sizes of two files are paired in their order.
  bool* is_used = memory_zeroed(json_array_size(others), sizeof *is_used);
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t* row = json_array_get(rows, i);
    const json_t* other = NULL;
    for (size_t k = 0; k < json_array_size(others) && !other; k++) {
      const json_t* candidate = json_array_get(others, k);
      if (is_used[k] || !json_is_object(candidate) || !is_alike(row, candidate, by)) continue;
      other = candidate;
      is_used[k] = true;
    }
    if (other) {
      compare_pair(row, other, by, list, not_measured);
      continue;
    }
    char text[256], what[300];
    describe(row, text);
    (void)snprintf(what, sizeof what, "comparison of %s", text);
    json_array_append_new(not_measured,
                          json_record("what:s why:s", what, "the other side has no such row"));
  }
  free(is_used);
  return list;
}
