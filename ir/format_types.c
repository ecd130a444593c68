// SPDX-License-Identifier: Apache-2.0
// ir/format_types.c: writes the dtypes of lets into a text that has none there.
//
// The parser finds them. The text changes nowhere else, so comments and spellings stay.
#include <stdlib.h>

#include "ir/diag.h"
#include "ir/text.h"

static int compare_ends(const void* a, const void* b) {
  uint32_t first = ((const qn__untyped_name_t*)a)->end;
  uint32_t second = ((const qn__untyped_name_t*)b)->end;
  return (first > second) - (first < second);
}

bool qn__text_write_dtypes(qn_str_t text, qn_allocator_t allocator, qn__diag_t* diag,
                           qn__buffer_t* out) {
  qn__ir_body_t body;
  qn__untyped_t untyped = {0};
  bool is_good = qn__text_parse_untyped(text, allocator, diag, &body, &untyped);
  qn__body_deinit(&body);
  // Functions with a value were parsed before those that call them.
  if (untyped.count > 1) {
    qsort(untyped.items, untyped.count, sizeof *untyped.items, compare_ends);
  }
  size_t begin = 0;
  for (size_t i = 0; i < untyped.count && is_good; i++) {
    size_t end = untyped.items[i].end;
    qn__buffer_str(out, (qn_str_t){text.data + begin, end - begin});
    qn__buffer_format(out, ": %s", qn_dtype_text(untyped.items[i].dtype));
    begin = end;
  }
  qn__buffer_str(out, (qn_str_t){text.data + begin, text.size - begin});
  qn__free(allocator, untyped.items, untyped.capacity * sizeof *untyped.items);
  return is_good && !out->has_failed;
}
