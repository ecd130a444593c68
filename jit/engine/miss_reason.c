// SPDX-License-Identifier: Apache-2.0
// jit/engine/miss_reason.c: says why a key has to be compiled, from what the tiers answered.
#include <stdio.h>

#include "jit/engine/engine.h"

// What a result means for a lookup.
static const struct {
  qn_miss_reason_t reason;
  const char* text;  // NULL: the answer has more to say
} result_table[] = {
    [QN__GET_HIT] = {QN_MISSED_ABSENT, "no entry"},
    [QN__GET_ABSENT] = {QN_MISSED_ABSENT, "no entry"},
    [QN__GET_BAD] = {QN_MISSED_DAMAGED, NULL},
    [QN__GET_ERROR] = {QN_MISSED_UNREADABLE, NULL},
    [QN__GET_UNTRUSTED] = {QN_MISSED_DAMAGED, "an entry that is not trusted"},
    [QN__GET_NO_MEMORY] = {QN_MISSED_UNREADABLE, "no memory to read it"},
    [QN__GET_TIMEOUT] = {QN_MISSED_UNREADABLE, "no answer in time"},
    [QN__GET_OFF] = {QN_MISSED_UNREADABLE, "switched off for a while"},
};

static void add_answer(const char* tier, const qn__answer_t* answer, char out[512]) {
  if (!answer->was_asked) return;
  const char* text = result_table[answer->result].text;
  char error[64];
  if (answer->was_rejected) {
    text = "an entry that was not accepted";
  } else if (answer->result == QN__GET_BAD) {
    text = qn__reason_text(answer->reason);
  } else if (answer->result == QN__GET_ERROR) {
    (void)snprintf(error, sizeof error, "cannot be read, error %d of the operating system",
                   answer->error);
    text = error;
  }
  assert(text);
  size_t size = strlen(out);
  (void)snprintf(out + size, 512 - size, "%s%s: %s", size ? "; " : "", tier, text);
}

static qn_miss_reason_t class_of(const qn__answer_t* answer) {
  if (!answer->was_asked) return QN_MISSED_NO_CACHE;
  return answer->was_rejected ? QN_MISSED_REJECTED : result_table[answer->result].reason;
}

qn_miss_reason_t qn__miss_reason(const qn__lookup_task_t* task, char out[512]) {
  const qn_engine_t* engine = task->engine;
  out[0] = '\0';
  if (engine->config.cache_mode == QN_CACHE_REFRESH) {
    (void)snprintf(out, 512, "the cache mode is refresh");
    return QN_MISSED_REFRESH;
  }
  // The most telling answer: an entry that was there says more than one that was not.
  static const qn_miss_reason_t order[] = {QN_MISSED_REJECTED, QN_MISSED_DAMAGED,
                                           QN_MISSED_UNREADABLE, QN_MISSED_ABSENT};
  qn_miss_reason_t reason = QN_MISSED_NO_CACHE;
  for (size_t i = QN_COUNT_OF(order); i-- > 0;) {
    for (size_t k = 0; k < QN__TIER_COUNT; k++) {
      if (class_of(&task->answers[k]) == order[i]) reason = order[i];
    }
  }
  for (size_t k = 0; k < QN__TIER_COUNT; k++) {
    const qn__tier_table_t* table = engine->tiers[k].table;
    if (table) add_answer(table->name, &task->answers[k], out);
  }
  if (reason == QN_MISSED_NO_CACHE) {
    (void)snprintf(out, 512, "there is neither a directory nor a bundle nor a remote tier");
  }
  return reason;
}

const char* qn_miss_reason_text(qn_miss_reason_t reason) {
  static const char* const texts[] = {
      [QN_MISSED_ABSENT] = "absent",         [QN_MISSED_DAMAGED] = "damaged",
      [QN_MISSED_UNREADABLE] = "unreadable", [QN_MISSED_REJECTED] = "rejected",
      [QN_MISSED_NO_CACHE] = "no cache",     [QN_MISSED_REFRESH] = "refresh",
  };
  return (size_t)reason < QN_COUNT_OF(texts) && texts[reason] ? texts[reason] : "unknown";
}
