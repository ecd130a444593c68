#define _GNU_SOURCE  // prctl
// jit/warm/warm_worker.c: a worker process: hears its options, then makes key after key.
//
// It trusts the coordinator with options and modules as much as any caller of the library: modules
// are decoded and verified, targets parsed, and a frame that is none ends the process. One key at a
// time: a crash must be somebody's.
//
// Thread rule: one thread. Read next: warm_make.c.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/alloc.h"
#include "jit/warm/warm.h"
#include "jit/warm/warm_message.h"
#include "jit/warm/warm_process.h"
#include "quern/ir.h"
#include "quern/quern.h"
#include "quern/warm.h"

static qn_status_t lost(void) {
  return qn_status_make(QN_STATUS_IO, "the coordinator of the warm-up is gone");
}

static qn_status_t send_message(int fd, const qn__warm_message_t* message) {
  qn__buffer_t frame;
  qn__buffer_init(&frame, qn_allocator_default());
  qn__warm_message_encode(message, &frame);
  qn_status_t status = qn__buffer_status(&frame, "a message");
  for (size_t at = 0; at < frame.size && qn_ok(status);) {
    ssize_t sent = qn__process_send(fd, frame.data + at, frame.size - at);
    if (sent < 0) status = lost();
    if (sent > 0) at += (size_t)sent;
    if (sent == 0) {
      struct pollfd wanted = {.fd = fd, .events = POLLOUT};
      (void)poll(&wanted, 1, -1);
    }
  }
  qn__buffer_deinit(&frame);
  return status;
}

// False at the end of the conversation.
static bool receive(int fd, uint8_t* data, size_t size) {
  while (size > 0) {
    ssize_t got = qn__process_receive(fd, data, size);
    if (got == 0) return false;
    if (got < 0) {
      struct pollfd wanted = {.fd = fd, .events = POLLIN};
      (void)poll(&wanted, 1, -1);
      continue;
    }
    data += got;
    size -= (size_t)got;
  }
  return true;
}

// The next message, borrowed from `frame`. `*out_is_end`: the coordinator has hung up.
static qn_status_t next_message(int fd, qn__buffer_t* frame, qn__warm_message_t* out_message,
                                bool* out_is_end) {
  uint8_t length[QN__WARM_LENGTH_BYTES];
  size_t size;
  *out_is_end = !receive(fd, length, sizeof length);
  if (*out_is_end) return QN_OK;
  if (!qn__warm_message_length(length, &size)) {
    return qn_status_make(QN_STATUS_DATA_LOSS, "the coordinator sent what is no message");
  }
  qn__buffer_clear(frame);
  uint8_t* body = qn__buffer_extend(frame, size);
  if (!body) return qn__out_of_memory("a message");
  *out_is_end = !receive(fd, body, size);
  if (*out_is_end || qn__warm_message_decode((qn_span_t){body, size}, out_message)) return QN_OK;
  return qn_status_make(QN_STATUS_DATA_LOSS, "the coordinator sent what is no message");
}

// ------------------------------------------------------------------------------------ the engine

// Terminated copies of the settings, in one piece of memory.
typedef struct options {
  qn__buffer_t text;
  qn_setting_t settings[QN__WARM_MAX_SETTINGS];
  size_t count;
} options_t;

static qn_status_t copy_settings(const qn__warm_message_t* hello, options_t* options) {
  size_t offsets[2 * QN__WARM_MAX_SETTINGS];
  qn_span_t rest = hello->settings;
  qn_str_t name, value;
  while (options->count < QN__WARM_MAX_SETTINGS && qn__warm_next_setting(&rest, &name, &value)) {
    offsets[2 * options->count] = options->text.size;
    qn__buffer_str(&options->text, name);
    qn__buffer_char(&options->text, '\0');
    offsets[2 * options->count + 1] = options->text.size;
    qn__buffer_str(&options->text, value);
    qn__buffer_char(&options->text, '\0');
    options->count++;
  }
  QN_TRY(qn__buffer_status(&options->text, "the options of a worker"));
  const char* text = (const char*)options->text.data;
  for (size_t i = 0; i < options->count; i++) {
    options->settings[i] = (qn_setting_t){text + offsets[2 * i], text + offsets[2 * i + 1]};
  }
  return QN_OK;
}

static qn_status_t make_engine(const qn__warm_message_t* hello, qn_engine_t** out_engine) {
  *out_engine = NULL;
  if (hello->kind != QN__WARM_HELLO || hello->protocol != QN__WARM_PROTOCOL ||
      !qn__str_equal(hello->version, qn__str(qn_version()))) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "the worker is quern %s (protocol %u), the coordinator is not",
                          qn_version(), QN__WARM_PROTOCOL);
  }
  options_t options = {.count = 0};
  qn__buffer_init(&options.text, qn_allocator_default());
  qn_status_t status = copy_settings(hello, &options);
  if (qn_ok(status)) {
    qn_engine_options_t wanted = {.struct_size = sizeof wanted,
                                  .ignores_environment = true,
                                  .settings = options.settings,
                                  .setting_count = options.count};
    status = qn_engine_create(&wanted, out_engine);
  }
  qn__buffer_deinit(&options.text);
  return status;
}

// ------------------------------------------------------------------------------------ jobs

static qn_status_t make(qn_engine_t* engine, const qn__warm_message_t* job,
                        qn__warm_made_t* out_made) {
  memset(out_made, 0, sizeof *out_made);
  out_made->outcome = QN_WARM_FAILED;
  qn_allocator_t allocator = qn_allocator_default();
  char* json = qn__copy_cstr(allocator, job->target_json);
  if (!json) return qn__out_of_memory("a target");
  qn__warm_entry_t entry = {.tier = job->tier, .is_checked = job->is_checked};
  qn_status_t status = qn_target_parse(json, &entry.target);
  if (qn_ok(status)) {
    status = qn_module_decode(job->module.data, job->module.size, NULL, &entry.module);
  }
  if (qn_ok(status)) status = qn__warm_make(engine, &entry, out_made);
  qn_module_release(entry.module);
  qn_target_release(entry.target);
  qn__free_cstr(allocator, json);
  return status;
}

static qn_status_t serve_job(int fd, qn_engine_t* engine, const qn__warm_message_t* job) {
  qn__warm_made_t made;
  qn_status_t status = make(engine, job, &made);
  qn__warm_message_t result = {
      .kind = QN__WARM_RESULT,
      .id = job->id,
      .outcome = made.outcome,
      .compile_ns = made.compile_ns,
      .code = qn_status_code(status),
      .text = qn__str(qn_status_message(status)),
  };
  memcpy(result.key, made.key, sizeof result.key);
  qn_status_t sent = send_message(fd, &result);
  qn_status_free(status);
  return sent;
}

static qn_status_t serve(int fd, qn_engine_t* engine, qn__buffer_t* frame) {
  for (;;) {
    qn__warm_message_t message;
    bool is_end;
    QN_TRY(next_message(fd, frame, &message, &is_end));
    if (is_end) return QN_OK;
    if (message.kind != QN__WARM_JOB) {
      return qn_status_make(QN_STATUS_DATA_LOSS, "the coordinator sent what is no job");
    }
    QN_TRY(serve_job(fd, engine, &message));
  }
}

qn_status_t qn_warm_worker(int fd) {
  // A compile that hangs would not notice that its coordinator is gone. Who was gone before this
  // call has closed the socket, which the next read sees.
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  qn__buffer_t frame;
  qn__buffer_init(&frame, qn_allocator_default());
  qn_engine_t* engine = NULL;
  qn__warm_message_t message;
  bool is_end;
  qn_status_t status = next_message(fd, &frame, &message, &is_end);
  if (qn_ok(status) && !is_end) {
    status = make_engine(&message, &engine);
    qn__warm_message_t answer = {
        .kind = qn_ok(status) ? QN__WARM_READY : QN__WARM_BROKEN,
        .protocol = QN__WARM_PROTOCOL,
        .version = qn__str(qn_version()),
        .code = qn_status_code(status),
        .text = qn__str(qn_status_message(status)),
    };
    qn_status_t sent = send_message(fd, &answer);
    if (qn_ok(status)) {
      status = sent;
    } else {
      qn_status_free(sent);
    }
    if (qn_ok(status)) status = serve(fd, engine, &frame);
  }
  qn_engine_destroy(engine);
  qn__buffer_deinit(&frame);
  return status;
}
