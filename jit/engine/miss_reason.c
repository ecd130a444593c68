// jit/engine/miss_reason.c: says why a key has to be compiled, from what the tiers answered.
#include <stdio.h>

#include "jit/engine/engine.h"

static void add_answer(const char* tier, const qn__answer_t* answer, char out[512]) {
  if (!answer->was_asked) return;
  const char* text = "no entry";
  char error[64];
  if (answer->was_rejected) {
    text = "an entry that was not accepted";
  } else if (answer->result == QN__GET_BAD) {
    text = qn__reason_text(answer->reason);
  } else if (answer->result == QN__GET_ERROR) {
    (void)snprintf(error, sizeof error, "cannot be read, error %d of the operating system",
                   answer->error);
    text = error;
  } else if (answer->result == QN__GET_UNTRUSTED) {
    text = "an entry that is not trusted";
  } else if (answer->result == QN__GET_NO_MEMORY) {
    text = "no memory to read it";
  } else if (answer->result == QN__GET_TIMEOUT) {
    text = "no answer in time";
  } else if (answer->result == QN__GET_OFF) {
    text = "switched off for a while";
  }
  size_t size = strlen(out);
  (void)snprintf(out + size, 512 - size, "%s%s: %s", size ? "; " : "", tier, text);
}

static qn_miss_reason_t class_of(const qn__answer_t* answer) {
  if (!answer->was_asked) return QN_MISSED_NO_CACHE;
  if (answer->was_rejected) return QN_MISSED_REJECTED;
  switch (answer->result) {
    case QN__GET_HIT:
    case QN__GET_ABSENT:
      return QN_MISSED_ABSENT;
    case QN__GET_BAD:
    case QN__GET_UNTRUSTED:
      return QN_MISSED_DAMAGED;
    case QN__GET_ERROR:
    case QN__GET_NO_MEMORY:
    case QN__GET_TIMEOUT:
    case QN__GET_OFF:
      return QN_MISSED_UNREADABLE;
  }
  return QN_MISSED_ABSENT;
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
  switch (reason) {
    case QN_MISSED_ABSENT:
      return "absent";
    case QN_MISSED_DAMAGED:
      return "damaged";
    case QN_MISSED_UNREADABLE:
      return "unreadable";
    case QN_MISSED_REJECTED:
      return "rejected";
    case QN_MISSED_NO_CACHE:
      return "no cache";
    case QN_MISSED_REFRESH:
      return "refresh";
  }
  return "unknown";
}
