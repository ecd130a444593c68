// SPDX-License-Identifier: Apache-2.0
// warm/list.h: the keys of a warm-up, and the parts that read them from text.
#ifndef QUERN_WARM_LIST_H_
#define QUERN_WARM_LIST_H_

#include "quern/ir.h"
#include "quern/target.h"
#include "quern/warm.h"
#include "warm/bytes.h"

// One key of a list. Module and target are retained.
typedef struct qn__warm_entry {
  qn_module_t* module;
  qn_target_t* target;
  qn_tier_t tier;
  bool is_checked;
} qn__warm_entry_t;

struct qn_warm_list {
  qn_allocator_t allocator;
  qn__warm_entry_t* entries;
  size_t capacity;
  size_t count;
  // Open addressing: an index into the entries and one more; 0: empty. A power of two, or 0.
  size_t* slots;
  size_t slot_count;
};

// Adds a key once for each of `options`' targets, or for its own where `options` has none or is
// NULL.
qn_status_t qn__warm_list_put(qn_warm_list_t* list, const qn__warm_entry_t* entry,
                              const qn_warm_read_options_t* options);

// ---- lines (lines.c)

// Reads a line FILE.qn [options]; `out_entry` is empty for a line of comments. Module and target
// are owned by the caller. Errors: SYNTAX and those of the file, the module and the target.
qn_status_t qn__warm_line_read(qn__warm_span_t line, const char* directory,
                               qn__warm_entry_t* out_entry);

// ---- recorded lines (recorded.c)

typedef struct qn__warm_recorded {
  char key[33];  // of the process that recorded
  char* name;
  char* target_json;
  qn_tier_t tier;
  bool is_checked;
  uint8_t* module;
  size_t module_size;
} qn__warm_recorded_t;
// Parses a line that QUERN_RECORD wrote, without its newline. Any bytes are safe; the module's are
// not checked. Owned: qn__warm_recorded_deinit. Errors: SYNTAX with the expectation (a torn
// line is no JSON), OUT_OF_MEMORY.
qn_status_t qn__warm_recorded_parse(qn__warm_span_t line, qn__warm_recorded_t* out_recorded);
void qn__warm_recorded_deinit(qn__warm_recorded_t* recorded);
// Parses such a line and decodes its module and target, which the caller then owns.
qn_status_t qn__warm_recorded_read(qn__warm_span_t line, qn__warm_entry_t* out_entry);

#endif  // QUERN_WARM_LIST_H_
