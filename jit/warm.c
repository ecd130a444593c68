// jit/warm.c: the coordinator of a warm-up: first asks the cache itself, then has workers make what
// is missing.
//
// Requirements:
//  1. A worker that dies or hangs costs its own key at most. The key is tried once more by another
//     worker, after all others; a key that hangs is not, since it would hang again.
//  2. An outcome is what happened on disk: a worker answers when the entry is in the directory.
//  3. The call returns when all is done; what it waits for has a deadline: a start, a key, an end.
//  4. A command that cannot work (another version, no library) ends the call after a few starts
//     instead of failing key by key.
//  5. No worker is left when the call returns.
// One thread and one poll loop. Not here: processes (warm_process.c), frames (warm_message.c), how
// a key is made (warm_make.c). Thread rule: one call per list. Read next: warm_worker.c.
#include "jit/warm.h"

#include <poll.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "jit/warm_message.h"
#include "jit/warm_process.h"
#include "quern/quern.h"

#define DEFAULT_TIMEOUT_NS 60000000000
#define START_TIMEOUT_NS 30000000000
// After the end of the conversation a worker waits for its publishes.
#define END_GRACE_NS 6000000000
// A worker that closed its socket is about to end.
#define DEATH_GRACE_NS 1000000000
// Starts that may fail one after the other.
#define MAX_FAILED_STARTS 3u
#define RESTART_PAUSE_NS 1000000000
#define MAX_ATTEMPTS 2u
#define MAX_JOBS 256u
#define TICK_NS 100000000
// What is kept of what a worker said on its standard error.
#define TAIL_BYTES 512u
#define NO_JOB SIZE_MAX

typedef enum worker_state { OFF, STARTING, IDLE, BUSY } worker_state_t;

typedef struct worker {
  worker_state_t state;
  qn__process_t process;
  size_t job;           // of the list; NO_JOB
  int64_t deadline_ns;  // STARTING, BUSY
  qn__buffer_t in;      // what was received and is no whole frame yet
  qn__buffer_t out;     // what is to be sent, from out_at on
  size_t out_at;
  char tail[TAIL_BYTES + 1];
  size_t tail_size;
} worker_t;

typedef struct key_state {
  uint8_t attempt_count;
  bool is_done;
} key_state_t;

typedef struct warmer {
  qn_engine_t* engine;
  const qn_warm_list_t* list;
  const qn_warm_options_t* options;
  qn_warm_result_t* result;
  int64_t start_ns;
  int64_t work_start_ns;
  size_t made_count;  // keys that workers ended
  qn__buffer_t preimage;
  qn__buffer_t hello;
  char command[PATH_MAX];
  // Keys to be made, each at most MAX_ATTEMPTS times; [head, tail) wait.
  size_t* queue;
  size_t queue_capacity;
  size_t head;
  size_t tail;
  size_t busy_count;
  key_state_t* keys;  // of the list
  worker_t* workers;
  struct pollfd* fds;  // two per worker
  size_t worker_count;
  uint32_t failed_starts;  // since the last that worked
  int64_t restart_ns;      // not before
  qn_status_t start_status;
} warmer_t;

const char* qn_warm_outcome_text(qn_warm_outcome_t outcome) {
  static const char* const texts[QN_WARM_OUTCOME_COUNT] = {
      "none", "compiled", "cached", "failed", "crashed", "timed_out", "skipped"};
  return (unsigned)outcome < QN_WARM_OUTCOME_COUNT ? texts[outcome] : texts[0];
}

// ------------------------------------------------------------------------------------ telling

static void update_progress(warmer_t* w) {
  qn_warm_progress_t* progress = &w->result->progress;
  int64_t now_ns = qn__now_ns();
  progress->elapsed_ns = now_ns - w->start_ns;
  progress->eta_ns = progress->done == progress->total ? 0 : -1;
  int64_t work_ns = now_ns - w->work_start_ns;
  if (w->made_count == 0 || work_ns <= 0) return;
  progress->rate_per_s = (double)w->made_count * 1e9 / (double)work_ns;
  double left_ns =
      (double)(progress->total - progress->done) * (double)work_ns / (double)w->made_count;
  if (left_ns < 9e18) progress->eta_ns = (int64_t)left_ns;
}

static void tell(warmer_t* w, const qn_warm_item_t* item) {
  update_progress(w);
  if (!w->options->on_progress) return;
  if (!w->options->on_progress(w->options->on_progress_self, &w->result->progress, item)) {
    w->result->is_cancelled = true;
  }
}

// What is known of a key when its outcome is.
typedef struct verdict {
  qn_warm_outcome_t outcome;
  const char* key;  // as the worker says; "" or NULL: as predicted
  int64_t compile_ns;
  int signal;
  qn_status_code_t code;
  const char* error;
} verdict_t;

static void finish_key(warmer_t* w, size_t job, const verdict_t* verdict) {
  const qn__warm_entry_t* entry = &w->list->entries[job];
  qn__warm_name_t name;
  if (!qn_ok(qn__warm_name(w->engine, entry, &w->preimage, &name))) {
    name = (qn__warm_name_t){.text = "module"};
  }
  if (verdict->key && verdict->key[0] && strcmp(verdict->key, name.hex) != 0) {
    (void)snprintf(name.hex, sizeof name.hex, "%s", verdict->key);
    char* at = strrchr(name.text, '@');
    if (at) (void)snprintf(at + 1, 13, "%.12s", name.hex);
  }
  qn_warm_item_t item = {
      .name = name.text,
      .key = name.hex,
      .target_json = qn_target_json(entry->target),
      .tier = entry->tier,
      .is_checked = entry->is_checked,
      .outcome = verdict->outcome,
      .compile_ns = verdict->compile_ns,
      .attempt_count = w->keys[job].attempt_count,
      .signal = verdict->signal,
      .code = verdict->code,
      .error = verdict->error ? verdict->error : "",
  };
  qn_warm_progress_t* progress = &w->result->progress;
  w->keys[job].is_done = true;
  progress->done++;
  progress->counts[item.outcome]++;
  tell(w, &item);
}

// ------------------------------------------------------------------------------------ asking first

// Sorts the keys into those that are cached and those that go to workers.
static void ask_cache(warmer_t* w) {
  bool is_dry = w->options->is_dry_run;
  int64_t told_ns = qn__now_ns();
  for (size_t i = 0; i < w->list->count && !w->result->is_cancelled; i++) {
    qn__warm_name_t name;
    qn_status_t status = qn__warm_name(w->engine, &w->list->entries[i], &w->preimage, &name);
    verdict_t verdict = {.outcome = QN_WARM_CACHED};
    if (!qn_ok(status)) {
      verdict = (verdict_t){.outcome = QN_WARM_FAILED,
                            .code = qn_status_code(status),
                            .error = qn_status_message(status)};
      finish_key(w, i, &verdict);
      qn_status_free(status);
    } else if (qn__warm_is_cached(w->engine, name.key, qn__buffer_as_span(&w->preimage))) {
      finish_key(w, i, &verdict);
    } else if (is_dry) {
      verdict = (verdict_t){.outcome = QN_WARM_SKIPPED, .error = "it would be compiled"};
      finish_key(w, i, &verdict);
    } else {
      w->queue[w->tail++] = i;
    }
    if (qn__now_ns() - told_ns < TICK_NS) continue;
    told_ns = qn__now_ns();
    tell(w, NULL);
  }
}

static void skip_rest(warmer_t* w, const char* why) {
  verdict_t verdict = {.outcome = QN_WARM_SKIPPED, .error = why};
  for (size_t i = 0; i < w->list->count; i++) {
    if (!w->keys[i].is_done) finish_key(w, i, &verdict);
  }
}

// ------------------------------------------------------------------------------------ workers

// Reads what the worker said on its standard error, and keeps the end of it.
static void read_errors(worker_t* worker) {
  char data[TAIL_BYTES];
  for (;;) {
    ssize_t got = qn__process_receive(worker->process.errors, data, sizeof data);
    if (got < 0) return;
    if (got == 0) {
      // Nobody writes there any more: the poll need not look.
      (void)qn__fs()->close(worker->process.errors);
      worker->process.errors = -1;
      return;
    }
    size_t size = (size_t)got;
    size_t kept = worker->tail_size + size > TAIL_BYTES ? TAIL_BYTES - size : worker->tail_size;
    memmove(worker->tail, worker->tail + worker->tail_size - kept, kept);
    memcpy(worker->tail + kept, data, size);
    worker->tail_size = kept + size;
  }
}

// The tail as one line of text, for a message.
static const char* tail_text(worker_t* worker) {
  size_t size = 0;
  for (size_t i = 0; i < worker->tail_size; i++) {
    char c = worker->tail[i];
    worker->tail[size++] = (unsigned char)c < ' ' ? ' ' : c;
  }
  while (size > 0 && worker->tail[size - 1] == ' ') size--;
  worker->tail[size] = '\0';
  return worker->tail;
}

static void begin_send(worker_t* worker) {
  ssize_t sent = 0;
  while (worker->out_at < worker->out.size) {
    sent = qn__process_send(worker->process.socket, worker->out.data + worker->out_at,
                            worker->out.size - worker->out_at);
    if (sent <= 0) break;  // later, or the end is read soon
    worker->out_at += (size_t)sent;
  }
  if (sent < 0 || worker->out_at == worker->out.size) {
    qn__buffer_clear(&worker->out);
    worker->out_at = 0;
  }
}

static qn_status_t start_worker(warmer_t* w, worker_t* worker) {
  QN_TRY(qn__process_start(w->command, &worker->process));
  w->result->worker_count++;
  worker->state = STARTING;
  worker->job = NO_JOB;
  worker->deadline_ns = qn__now_ns() + START_TIMEOUT_NS;
  worker->tail_size = 0;
  worker->out_at = 0;
  qn__buffer_clear(&worker->in);
  qn__buffer_clear(&worker->out);
  qn__buffer_str(&worker->out, qn__buffer_as_str(&w->hello));
  QN_TRY(qn__buffer_status(&worker->out, "a message"));
  begin_send(worker);
  return QN_OK;
}

static void note_failed_start(warmer_t* w, qn_status_t status) {
  qn_status_free(w->start_status);
  w->start_status = status;
  w->failed_starts++;
  w->restart_ns = qn__now_ns() + RESTART_PAUSE_NS;
}

static void end_process(worker_t* worker, int64_t grace_ns, qn__process_end_t* out_end) {
  (void)qn__process_finish(&worker->process, grace_ns, out_end);
  worker->state = OFF;
  worker->job = NO_JOB;
}

static void describe_end(const qn__process_end_t* end, char out[96]) {
  char signal_text[32];
  if (!end->is_known) {
    (void)snprintf(out, 96, "is gone");
  } else if (end->signal) {
    (void)snprintf(out, 96, "died of %s", qn__signal_text(end->signal, signal_text));
  } else {
    (void)snprintf(out, 96, "exited with code %d", end->code);
  }
}

// The worker has ended, or (`is_noise`) says what no worker says.
static void lose_worker(warmer_t* w, worker_t* worker, bool is_noise) {
  worker_state_t state = worker->state;
  size_t job = worker->job;
  qn__process_end_t end;
  if (worker->process.errors >= 0) read_errors(worker);
  end_process(worker, is_noise ? 0 : DEATH_GRACE_NS, &end);
  char how[96];
  if (is_noise) {
    (void)snprintf(how, sizeof how, "sent what no worker sends");
  } else {
    describe_end(&end, how);
  }
  const char* tail = tail_text(worker);
  if (state == STARTING) {
    note_failed_start(
        w, qn_status_make(QN_STATUS_UNAVAILABLE, "'%s warm --worker' does not work: it %s%s%s",
                          w->command, how, tail[0] ? "; it said: " : "", tail));
  }
  if (state != BUSY) return;
  w->busy_count--;
  if (w->keys[job].attempt_count < MAX_ATTEMPTS && !w->result->is_cancelled) {
    w->queue[w->tail++] = job;
    return;
  }
  char message[TAIL_BYTES + 256];
  (void)snprintf(message, sizeof message, "%u workers did not survive it, the last %s%s%s",
                 (unsigned)w->keys[job].attempt_count, how, tail[0] ? "; it said: " : "", tail);
  verdict_t verdict = {.outcome = QN_WARM_CRASHED,
                       .signal = end.signal,
                       .code = QN_STATUS_INTERNAL,
                       .error = message};
  w->made_count++;
  finish_key(w, job, &verdict);
}

// What takes longer than it may is killed.
static void time_out(warmer_t* w, worker_t* worker) {
  worker_state_t state = worker->state;
  size_t job = worker->job;
  qn__process_end_t end;
  qn__process_kill(&worker->process);
  end_process(worker, 0, &end);
  if (state == STARTING) {
    note_failed_start(
        w, qn_status_make(QN_STATUS_UNAVAILABLE, "'%s warm --worker' said nothing for %d seconds",
                          w->command, (int)(START_TIMEOUT_NS / 1000000000)));
  }
  if (state != BUSY) return;
  char message[96];
  double seconds =
      (double)(w->options->timeout_ns ? w->options->timeout_ns : DEFAULT_TIMEOUT_NS) / 1e9;
  (void)snprintf(message, sizeof message, "its worker was killed after %g s", seconds);
  verdict_t verdict = {
      .outcome = QN_WARM_TIMED_OUT, .code = QN_STATUS_DEADLINE_EXCEEDED, .error = message};
  w->busy_count--;
  w->made_count++;
  finish_key(w, job, &verdict);
}

// ------------------------------------------------------------------------------------ messages

static bool take_result(warmer_t* w, worker_t* worker, const qn__warm_message_t* message) {
  if (worker->state != BUSY || message->id != worker->job) return false;
  size_t job = worker->job;
  worker->state = IDLE;
  worker->job = NO_JOB;
  w->busy_count--;
  w->made_count++;
  char* text = qn__copy_cstr(w->engine->allocator, message->text);
  verdict_t verdict = {.outcome = message->outcome,
                       .key = message->key,
                       .compile_ns = message->outcome == QN_WARM_COMPILED ? message->compile_ns : 0,
                       .code = message->code,
                       .error = text};
  finish_key(w, job, &verdict);
  qn__free_cstr(w->engine->allocator, text);
  return true;
}

// False for what a worker does not say.
static bool take_message(warmer_t* w, worker_t* worker, const qn__warm_message_t* message) {
  switch (message->kind) {
    case QN__WARM_READY:
      if (worker->state != STARTING || message->protocol != QN__WARM_PROTOCOL) return false;
      worker->state = IDLE;
      w->failed_starts = 0;
      return true;
    case QN__WARM_BROKEN:
      if (worker->state != STARTING) return false;
      note_failed_start(
          w, qn_status_make(message->code == QN_STATUS_OK ? QN_STATUS_UNAVAILABLE : message->code,
                            "a worker cannot work: %.*s", QN_STR_ARG(message->text)));
      worker->state = IDLE;  // it has told why, and ends
      w->failed_starts = MAX_FAILED_STARTS;
      return false;
    case QN__WARM_RESULT:
      return take_result(w, worker, message);
    case QN__WARM_HELLO:
    case QN__WARM_JOB:
      break;
  }
  return false;
}

// Takes whole frames from the front of what has come. False when it is none.
static bool take_frames(warmer_t* w, worker_t* worker) {
  size_t at = 0;
  bool is_good = true;
  while (is_good && worker->in.size - at >= QN__WARM_LENGTH_BYTES) {
    size_t size;
    is_good = qn__warm_message_length(worker->in.data + at, &size);
    if (!is_good || worker->in.size - at - QN__WARM_LENGTH_BYTES < size) break;
    qn__warm_message_t message;
    is_good = qn__warm_message_decode(
                  (qn_span_t){worker->in.data + at + QN__WARM_LENGTH_BYTES, size}, &message) &&
              take_message(w, worker, &message);
    at += QN__WARM_LENGTH_BYTES + size;
  }
  size_t left = worker->in.size - at;
  if (at > 0) {
    memmove(worker->in.data, worker->in.data + at, left);
    worker->in.size = left;
  }
  return is_good;
}

static void hear_worker(warmer_t* w, worker_t* worker) {
  uint8_t data[4096];
  for (;;) {
    ssize_t got = qn__process_receive(worker->process.socket, data, sizeof data);
    if (got < 0) return;
    if (got > 0) {
      qn__buffer_bytes(&worker->in, data, (size_t)got);
      if (!worker->in.has_failed && take_frames(w, worker)) continue;
    }
    lose_worker(w, worker, got > 0);
    return;
  }
}

static void give_job(warmer_t* w, worker_t* worker) {
  size_t job = w->queue[w->head++];
  const qn__warm_entry_t* entry = &w->list->entries[job];
  qn__warm_message_t message = {
      .kind = QN__WARM_JOB,
      .id = job,
      .tier = entry->tier,
      .is_checked = entry->is_checked,
      .target_json = qn__str(qn_target_json(entry->target)),
      .module = {entry->module->bytes, entry->module->byte_count},
  };
  w->keys[job].attempt_count++;
  qn__warm_message_encode(&message, &worker->out);
  if (worker->out.has_failed) {
    qn__buffer_clear(&worker->out);
    verdict_t verdict = {.outcome = QN_WARM_FAILED,
                         .code = QN_STATUS_OUT_OF_MEMORY,
                         .error = "no memory to hand the module to a worker, or it is too large"};
    finish_key(w, job, &verdict);
    return;
  }
  worker->state = BUSY;
  worker->job = job;
  worker->deadline_ns =
      qn__now_ns() + (w->options->timeout_ns ? w->options->timeout_ns : DEFAULT_TIMEOUT_NS);
  w->busy_count++;
  begin_send(worker);
}

// ------------------------------------------------------------------------------------ the loop

static size_t waiting_count(const warmer_t* w) {
  return w->tail - w->head;
}

static size_t count_workers(const warmer_t* w, worker_state_t state) {
  size_t count = 0;
  for (size_t i = 0; i < w->worker_count; i++) count += w->workers[i].state == state;
  return count;
}

// Hands keys to idle workers and starts more while keys wait. Errors: no worker can be had.
static qn_status_t staff(warmer_t* w) {
  for (size_t i = 0; i < w->worker_count && waiting_count(w) > 0; i++) {
    if (w->workers[i].state == IDLE) give_job(w, &w->workers[i]);
  }
  size_t coming = count_workers(w, STARTING);
  bool has_any = coming + count_workers(w, BUSY) + count_workers(w, IDLE) > 0;
  if (w->failed_starts >= MAX_FAILED_STARTS && !has_any && waiting_count(w) > 0) {
    qn_status_t status = w->start_status;
    w->start_status = QN_OK;
    return status;
  }
  // After a failure one start at a time tells whether the next one works.
  if (w->failed_starts > 0 && (coming > 0 || (has_any && qn__now_ns() < w->restart_ns))) {
    return QN_OK;
  }
  for (size_t i = 0; i < w->worker_count && coming < waiting_count(w); i++) {
    if (w->workers[i].state != OFF) continue;
    qn_status_t status = start_worker(w, &w->workers[i]);
    if (!qn_ok(status)) {
      note_failed_start(w, status);
      break;
    }
    coming++;
    if (w->failed_starts > 0) break;
  }
  return QN_OK;
}

static void wait_for_workers(warmer_t* w) {
  int64_t now_ns = qn__now_ns();
  int64_t wake_ns = now_ns + TICK_NS;
  for (size_t i = 0; i < w->worker_count; i++) {
    const worker_t* worker = &w->workers[i];
    struct pollfd* fds = &w->fds[2 * i];
    fds[0] = (struct pollfd){.fd = -1};
    fds[1] = (struct pollfd){.fd = -1};
    if (worker->state == OFF) continue;
    fds[0].fd = worker->process.socket;
    fds[0].events = (short)(worker->out.size ? POLLIN | POLLOUT : POLLIN);
    fds[1].fd = worker->process.errors;
    fds[1].events = POLLIN;
    if (worker->state != IDLE && worker->deadline_ns < wake_ns) wake_ns = worker->deadline_ns;
  }
  int64_t left_ns = wake_ns - now_ns;
  int left_ms = left_ns <= 0 ? 0 : (int)(left_ns / 1000000) + 1;
  // An interrupt by a signal is a tick that comes early.
  if (poll(w->fds, (nfds_t)(2 * w->worker_count), left_ms) < 0) {
    for (size_t i = 0; i < 2 * w->worker_count; i++) w->fds[i].revents = 0;
  }
}

static void serve_workers(warmer_t* w) {
  int64_t now_ns = qn__now_ns();
  for (size_t i = 0; i < w->worker_count; i++) {
    worker_t* worker = &w->workers[i];
    const struct pollfd* fds = &w->fds[2 * i];
    if (worker->state == OFF) continue;
    if (fds[1].fd >= 0 && fds[1].revents) read_errors(worker);
    if (fds[0].fd >= 0 && (fds[0].revents & POLLOUT)) begin_send(worker);
    if (fds[0].fd >= 0 && (fds[0].revents & ~POLLOUT)) hear_worker(w, worker);
    if ((worker->state == BUSY || worker->state == STARTING) && now_ns >= worker->deadline_ns) {
      time_out(w, worker);
    }
  }
}

static qn_status_t work(warmer_t* w) {
  int64_t told_ns = 0;
  w->work_start_ns = qn__now_ns();
  while (waiting_count(w) + w->busy_count > 0 && !w->result->is_cancelled) {
    QN_TRY(staff(w));
    wait_for_workers(w);
    serve_workers(w);
    if (qn__now_ns() - told_ns < TICK_NS) continue;
    told_ns = qn__now_ns();
    tell(w, NULL);
  }
  return QN_OK;
}

// Those who work are killed: nobody waits for their keys any more. The others have nothing left but
// to close their engines.
static void dismiss(warmer_t* w) {
  qn__process_end_t end;
  for (size_t i = 0; i < w->worker_count; i++) {
    worker_t* worker = &w->workers[i];
    if (worker->state == BUSY || worker->state == STARTING) qn__process_kill(&worker->process);
    if (worker->state != OFF) qn__process_hang_up(&worker->process);
  }
  int64_t deadline_ns = qn__now_ns() + END_GRACE_NS;
  for (size_t i = 0; i < w->worker_count; i++) {
    worker_t* worker = &w->workers[i];
    int64_t left_ns = deadline_ns - qn__now_ns();
    if (worker->state != OFF) end_process(worker, left_ns > 0 ? left_ns : 0, &end);
  }
}

// ------------------------------------------------------------------------------------ preparing

static const char* const setting_names[QN__SETTING_COUNT] = {
#define QN_OPTION(name, environment, type, default_text, doc) #name,
#include "quern/options.inc"
#undef QN_OPTION
};

// The engine's options, as a worker is to have them.
static const char* worker_setting(const qn_engine_t* engine, qn__setting_t setting) {
  switch (setting) {
    case QN__SETTING_cache_dir:
      return qn__disk_root(engine->disk);
    case QN__SETTING_jit:
      return "allow";
    case QN__SETTING_compile_threads:
      return "1";
    case QN__SETTING_record:
    case QN__SETTING_trace:
      return "";
    default:
      return qn__config_get(&engine->config, setting);
  }
}

static qn_status_t make_hello(warmer_t* w) {
  qn__buffer_t settings;
  qn__buffer_init(&settings, w->engine->allocator);
  for (qn__setting_t i = 0; i < QN__SETTING_COUNT; i++) {
    qn__warm_put_setting(&settings, setting_names[i], worker_setting(w->engine, i));
  }
  qn_status_t status = qn__buffer_status(&settings, "the options of workers");
  if (qn_ok(status)) {
    qn__warm_message_t message = {.kind = QN__WARM_HELLO,
                                  .protocol = QN__WARM_PROTOCOL,
                                  .version = qn__str(qn_version()),
                                  .setting_count = QN__SETTING_COUNT,
                                  .settings = qn__buffer_as_span(&settings)};
    qn__warm_message_encode(&message, &w->hello);
    status = qn__buffer_status(&w->hello, "the options of workers");
  }
  qn__buffer_deinit(&settings);
  return status;
}

static qn_status_t find_command(warmer_t* w) {
  const char* command = w->options->command;
  if (command && strlen(command) >= sizeof w->command) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the path of the command is too long");
  }
  if (command) {
    memcpy(w->command, command, strlen(command) + 1);
  } else if (!qn__process_find_command(w->command)) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "the command 'quern', which works for a warm-up, is neither beside the "
                          "library nor in PATH; name it in qn_warm_options_t.command");
  }
  return QN_OK;
}

static qn_status_t hire(warmer_t* w) {
  QN_TRY(find_command(w));
  QN_TRY(make_hello(w));
  size_t count = w->options->jobs ? w->options->jobs : (size_t)qn__available_cores();
  if (count > MAX_JOBS) count = MAX_JOBS;
  if (count > w->tail) count = w->tail;
  qn_allocator_t allocator = w->engine->allocator;
  w->workers = qn__alloc_zero(allocator, count, sizeof *w->workers);
  w->fds = qn__alloc_zero(allocator, 2 * count, sizeof *w->fds);
  w->worker_count = count;
  if (!w->workers || !w->fds) return qn__out_of_memory("the workers of a warm-up");
  for (size_t i = 0; i < count; i++) {
    w->workers[i].job = NO_JOB;
    qn__buffer_init(&w->workers[i].in, allocator);
    qn__buffer_init(&w->workers[i].out, allocator);
  }
  return QN_OK;
}

static void release(warmer_t* w) {
  qn_allocator_t allocator = w->engine->allocator;
  for (size_t i = 0; i < w->worker_count && w->workers; i++) {
    qn__buffer_deinit(&w->workers[i].in);
    qn__buffer_deinit(&w->workers[i].out);
  }
  qn__free(allocator, w->workers, w->worker_count * sizeof *w->workers);
  qn__free(allocator, w->fds, 2 * w->worker_count * sizeof *w->fds);
  qn__free(allocator, w->keys, (w->list->count + 1) * sizeof *w->keys);
  qn__free(allocator, w->queue, w->queue_capacity * sizeof *w->queue);
  qn__buffer_deinit(&w->hello);
  qn__buffer_deinit(&w->preimage);
  qn_status_free(w->start_status);
}

static qn_status_t check(const qn_engine_t* engine, const qn_warm_list_t* list,
                         const qn_warm_options_t* options) {
  if (!engine || !list) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "a warm-up needs %s, got null",
                          engine ? "a list" : "an engine");
  }
  if (options->struct_size != sizeof *options) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "qn_warm_options_t: struct_size is %zu, expected %zu",
                          options->struct_size, sizeof *options);
  }
  if (options->timeout_ns < 0) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "timeout_ns: expected at least 0, got %lld",
                          (long long)options->timeout_ns);
  }
  if (options->is_dry_run) return QN_OK;
  if (!engine->disk) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "a warm-up needs a cache directory: the engine has none, or it could not "
                          "be used; set QUERN_CACHE_DIR, and QUERN_CACHE to rw");
  }
  if (engine->config.cache_mode == QN_CACHE_RO) {
    return qn_status_make(
        QN_STATUS_FAILED_PRECONDITION,
        "a warm-up writes the cache directory, and the engine may only read '%s'; "
        "set QUERN_CACHE to rw",
        qn__disk_root(engine->disk));
  }
  return QN_OK;
}

static qn_status_t run(warmer_t* w) {
  size_t count = w->list->count;
  qn_allocator_t allocator = w->engine->allocator;
  if (!qn__size_mul(count + 1, MAX_ATTEMPTS, &w->queue_capacity)) {
    return qn__out_of_memory("the keys of a warm-up");
  }
  w->keys = qn__alloc_zero(allocator, count + 1, sizeof *w->keys);
  w->queue = qn__alloc_zero(allocator, w->queue_capacity, sizeof *w->queue);
  if (!w->keys || !w->queue) return qn__out_of_memory("the keys of a warm-up");
  ask_cache(w);
  qn_status_t status = QN_OK;
  if (w->tail > 0 && !w->result->is_cancelled) {
    status = hire(w);
    if (qn_ok(status)) status = work(w);
    dismiss(w);
  }
  skip_rest(w, qn_ok(status) ? "the warm-up was cancelled" : qn_status_message(status));
  return status;
}

qn_status_t qn_warm(qn_engine_t* engine, const qn_warm_list_t* list,
                    const qn_warm_options_t* options, qn_warm_result_t* out_result) {
  static const qn_warm_options_t defaults = {.struct_size = sizeof defaults};
  qn_warm_result_t result;
  memset(&result, 0, sizeof result);
  if (out_result) *out_result = result;
  if (!options) options = &defaults;
  QN_TRY(check(engine, list, options));
  warmer_t warmer;
  memset(&warmer, 0, sizeof warmer);
  warmer.engine = engine;
  warmer.list = list;
  warmer.options = options;
  warmer.result = &result;
  warmer.start_ns = warmer.work_start_ns = qn__now_ns();
  result.progress.total = list->count;
  qn__buffer_init(&warmer.preimage, engine->allocator);
  qn__buffer_init(&warmer.hello, engine->allocator);
  qn_status_t status = run(&warmer);
  update_progress(&warmer);
  result.is_warm = qn_ok(status) && result.progress.counts[QN_WARM_COMPILED] +
                                            result.progress.counts[QN_WARM_CACHED] ==
                                        list->count;
  release(&warmer);
  if (out_result) *out_result = result;
  return status;
}
