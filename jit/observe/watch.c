// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // pthread_getname_np, SYS_gettid
// jit/observe/watch.c: records stages: durations in histograms, spans in a ring.
//
// Requirements on the ring of spans:
//  1. A writer takes no lock and never waits. It takes the next number, which gives its slot. If
//     a writer that is a whole round behind still holds the slot, the span is dropped.
//  2. A slot's sequence is odd while the slot is written (a sequence lock). A reader skips a slot
//     whose sequence is odd or changes during the copy. Fields are atomics, stored with release
//     and loaded with acquire, so a reader that loads a new field also loads the new sequence.
//     (Fences need fewer instructions, but ThreadSanitizer does not support them.)
//  3. Without a trace there is no ring. The end of a stage then costs one read of the clock and
//     three accesses to a histogram.
// A child of fork continues with the inherited histograms and spans.
#include "jit/observe/watch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"

#define NAME_WORDS (QN__SPAN_NAME_BYTES / 8u)
#define THREAD_WORDS (QN__SPAN_THREAD_BYTES / 8u)

typedef struct slot {
  _Atomic uint64_t sequence;  // 0: never used; odd: being written
  _Atomic uint64_t who;       // process and thread
  _Atomic uint64_t stage;
  _Atomic uint64_t start_ns;
  _Atomic uint64_t duration_ns;
  _Atomic uint64_t thread_name[THREAD_WORDS];
  _Atomic uint64_t name[NAME_WORDS];
} slot_t;

struct qn__watch {
  qn_allocator_t allocator;
  qn__histogram_t stages[QN__STAGE_COUNT];
  pid_t process;
  slot_t* slots;  // NULL: no trace
  _Atomic uint64_t next;
};

static const struct {
  const char* name;
  const char* doc;
} stage_table[QN__STAGE_COUNT] = {
#define QN_STAGE(name, doc) {#name, doc},
#include "jit/observe/stages.inc"
#undef QN_STAGE
};

const char* qn__stage_name(qn__stage_t stage) {
  return stage_table[stage].name;
}

const char* qn__stage_doc(qn__stage_t stage) {
  return stage_table[stage].doc;
}

qn_status_t qn__watch_create(qn_allocator_t allocator, bool has_trace, qn__watch_t** out_watch) {
  *out_watch = NULL;
  qn__watch_t* watch = qn__alloc_zero(allocator, 1, sizeof *watch);
  if (!watch) return qn__out_of_memory("the histograms of an engine");
  watch->allocator = allocator;
  watch->process = getpid();
  if (has_trace) {
    watch->slots = qn__alloc_zero(allocator, QN__SPAN_COUNT, sizeof *watch->slots);
    if (!watch->slots) {
      qn__watch_destroy(watch);
      return qn__out_of_memory("the spans of an engine");
    }
  }
  *out_watch = watch;
  return QN_OK;
}

void qn__watch_destroy(qn__watch_t* watch) {
  if (!watch) return;
  if (watch->slots) {
    qn__free(watch->allocator, watch->slots, QN__SPAN_COUNT * sizeof *watch->slots);
  }
  qn__free(watch->allocator, watch, sizeof *watch);
}

// ---------------------------------------------------------------------------------- spans

static void put(_Atomic uint64_t* word, uint64_t value) {
  atomic_store_explicit(word, value, memory_order_release);
}

static uint64_t take(const _Atomic uint64_t* word) {
  return atomic_load_explicit(word, memory_order_acquire);
}

static void put_text(_Atomic uint64_t* words, size_t word_count, const char* text) {
  char bytes[QN__SPAN_NAME_BYTES] = {0};
  size_t size = strlen(text), limit = word_count * 8 - 1;
  memcpy(bytes, text, size < limit ? size : limit);
  for (size_t i = 0; i < word_count; i++) {
    uint64_t word;
    memcpy(&word, bytes + 8 * i, sizeof word);
    put(&words[i], word);
  }
}

static void take_text(const _Atomic uint64_t* words, size_t word_count, char* out) {
  for (size_t i = 0; i < word_count; i++) {
    uint64_t word = take(&words[i]);
    memcpy(out + 8 * i, &word, sizeof word);
  }
  out[word_count * 8 - 1] = '\0';
}

static void add_span(qn__watch_t* watch, qn__stage_t stage, int64_t start_ns, int64_t duration_ns,
                     const char* name) {
  uint64_t number = atomic_fetch_add_explicit(&watch->next, 1, memory_order_relaxed);
  slot_t* slot = &watch->slots[number % QN__SPAN_COUNT];
  uint64_t sequence = take(&slot->sequence);
  if (sequence & 1 || sequence > 2 * number) return;
  if (!atomic_compare_exchange_strong_explicit(&slot->sequence, &sequence, 2 * number + 1,
                                               memory_order_acq_rel, memory_order_relaxed)) {
    return;
  }
  char thread_name[QN__SPAN_THREAD_BYTES] = "";
  (void)pthread_getname_np(pthread_self(), thread_name, sizeof thread_name);
  put(&slot->who, (uint64_t)(uint32_t)getpid() << 32 | (uint32_t)syscall(SYS_gettid));
  put(&slot->stage, (uint64_t)stage);
  put(&slot->start_ns, (uint64_t)start_ns);
  put(&slot->duration_ns, (uint64_t)duration_ns);
  put_text(slot->thread_name, THREAD_WORDS, thread_name);
  put_text(slot->name, NAME_WORDS, name ? name : "");
  put(&slot->sequence, 2 * number + 2);
}

static bool read_slot(const slot_t* slot, uint64_t number, qn__span_t* out_span) {
  uint64_t sequence = take(&slot->sequence);
  if (sequence != 2 * number + 2) return false;
  uint64_t who = take(&slot->who);
  out_span->process = (uint32_t)(who >> 32);
  out_span->thread = (uint32_t)who;
  out_span->stage = (qn__stage_t)take(&slot->stage);
  out_span->start_ns = (int64_t)take(&slot->start_ns);
  out_span->duration_ns = (int64_t)take(&slot->duration_ns);
  take_text(slot->thread_name, THREAD_WORDS, out_span->thread_name);
  take_text(slot->name, NAME_WORDS, out_span->name);
  return take(&slot->sequence) == sequence;
}

bool qn__watch_has_trace(const qn__watch_t* watch) {
  return watch && watch->slots;
}

uint64_t qn__watch_span_count(const qn__watch_t* watch) {
  return atomic_load_explicit(&watch->next, memory_order_relaxed);
}

uint64_t qn__watch_lost(const qn__watch_t* watch) {
  uint64_t count = qn__watch_span_count(watch);
  return count > QN__SPAN_COUNT ? count - QN__SPAN_COUNT : 0;
}

bool qn__watch_is_of_this_process(const qn__watch_t* watch) {
  return watch->process == getpid();
}

void qn__watch_spans(const qn__watch_t* watch, void (*on_span)(void* self, const qn__span_t* span),
                     void* self) {
  if (!qn__watch_has_trace(watch)) return;
  uint64_t end = atomic_load_explicit(&watch->next, memory_order_acquire);
  uint64_t begin = end > QN__SPAN_COUNT ? end - QN__SPAN_COUNT : 0;
  for (uint64_t number = begin; number < end; number++) {
    qn__span_t span;
    if (read_slot(&watch->slots[number % QN__SPAN_COUNT], number, &span)) on_span(self, &span);
  }
}

// ---------------------------------------------------------------------------------- recording

int64_t qn__watch_end(qn__watch_t* watch, qn__stage_t stage, int64_t start_ns, const char* name) {
  assert(stage < QN__STAGE_COUNT);
  int64_t duration_ns = qn__now_ns() - start_ns;
  if (!watch) return duration_ns;
  qn__histogram_add(&watch->stages[stage], duration_ns);
  if (watch->slots) add_span(watch, stage, start_ns, duration_ns, name);
  return duration_ns;
}

void qn__watch_read(const qn__watch_t* watch, qn__stage_t stage,
                    qn__histogram_snapshot_t* out_snapshot) {
  qn__histogram_read(&watch->stages[stage], out_snapshot);
}
