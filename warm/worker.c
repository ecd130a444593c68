// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE  // prctl
// warm/worker.c: qn_warm_worker: a worker process: reads its options, then makes key after key.
//
// It trusts the coordinator with options and modules as much as the library trusts any caller:
// modules are decoded and verified, targets parsed, and bytes that are no message end the process.
// One key at a time: a crash then has one cause.
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "quern/quern.h"
#include "warm/list.h"
#include "warm/message.h"
#include "warm/process.h"

static qn_status_t send_message(int fd, const qn__warm_message_t* message) {
  qn__warm_bytes_t frame = {.allocator = qn_allocator_default()};
  qn__warm_message_encode(message, &frame);
  qn_status_t status = frame.has_failed ? qn__warm_no_memory("a message") : QN_OK;
  for (size_t at = 0; at < frame.size && qn_ok(status);) {
    ssize_t sent = qn__warm_process_send(fd, frame.data + at, frame.size - at);
    if (sent < 0) status = qn_status_make(QN_STATUS_IO, "the coordinator of the warm-up is gone");
    if (sent > 0) at += (size_t)sent;
    if (sent == 0) {
      struct pollfd wanted = {.fd = fd, .events = POLLOUT};
      (void)poll(&wanted, 1, -1);
    }
  }
  qn__warm_bytes_deinit(&frame);
  return status;
}

// Reads all of `size` bytes. False when the coordinator has closed the socket.
static bool receive(int fd, char* data, size_t size) {
  while (size > 0) {
    ssize_t got = qn__warm_process_receive(fd, data, size);
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

// Reads the next message, which is borrowed from `frame`. `*out_is_end`: the coordinator has closed
// the socket.
static qn_status_t next_message(int fd, qn__warm_bytes_t* frame, qn__warm_message_t* out_message,
                                bool* out_is_end) {
  char length[QN__WARM_LENGTH_BYTES];
  size_t size;
  *out_is_end = !receive(fd, length, sizeof length);
  if (*out_is_end) return QN_OK;
  if (qn__warm_message_length(length, &size)) {
    qn__warm_bytes_clear(frame);
    char* body = qn__warm_bytes_extend(frame, size);
    if (!body) return qn__warm_no_memory("a message");
    *out_is_end = !receive(fd, body, size);
    if (*out_is_end || qn__warm_message_decode((qn__warm_span_t){body, size}, out_message)) {
      return QN_OK;
    }
  }
  return qn_status_make(QN_STATUS_DATA_LOSS, "the coordinator sent bytes that are no message");
}

// ------------------------------------------------------------------------------------ the engine

// Copies the settings into one terminated text, which they then point into.
static qn_status_t copy_settings(const qn__warm_message_t* hello, qn__warm_bytes_t* text,
                                 qn_setting_t settings[QN__WARM_MAX_SETTINGS]) {
  static const qn__warm_span_t end = {"", 1};
  qn__warm_span_t rest = hello->settings, name, value;
  while (qn__warm_next_setting(&rest, &name, &value)) {
    qn__warm_put(text, name);
    qn__warm_put(text, end);
    qn__warm_put(text, value);
    qn__warm_put(text, end);
  }
  if (text->has_failed) return qn__warm_no_memory("the options of a worker");
  const char* at = text->data;
  for (size_t i = 0; i < hello->setting_count; i++) {
    settings[i].name = at;
    settings[i].value = at + strlen(at) + 1;
    at = settings[i].value + strlen(settings[i].value) + 1;
  }
  return QN_OK;
}

typedef struct worker {
  qn_engine_t* engine;
  bool is_refreshing;  // every key is compiled again
} worker_t;

static qn_status_t make_engine(const qn__warm_message_t* hello, worker_t* worker) {
  const char* version = qn_version();
  if (hello->kind != QN__WARM_HELLO || hello->protocol != QN__WARM_PROTOCOL ||
      hello->version.size != strlen(version) ||
      memcmp(hello->version.data, version, hello->version.size) != 0) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "the worker is quern %s (protocol %u), the coordinator is not", version,
                          QN__WARM_PROTOCOL);
  }
  qn_setting_t settings[QN__WARM_MAX_SETTINGS];
  qn__warm_bytes_t text = {.allocator = qn_allocator_default()};
  qn_status_t status = copy_settings(hello, &text, settings);
  if (qn_ok(status)) {
    for (size_t i = 0; i < hello->setting_count; i++) {
      worker->is_refreshing |=
          strcmp(settings[i].name, "cache_mode") == 0 && strcmp(settings[i].value, "refresh") == 0;
    }
    qn_engine_options_t options = {.struct_size = sizeof options,
                                   .ignores_environment = true,
                                   .settings = settings,
                                   .setting_count = hello->setting_count};
    status = qn_engine_create(&options, &worker->engine);
  }
  qn__warm_bytes_deinit(&text);
  return status;
}

// ------------------------------------------------------------------------------------ tasks

// Whether this machine's processor runs code for the target.
static bool suits_host(const qn_target_t* target) {
  for (size_t i = 0; i < qn_target_kind_count(); i++) {
    const qn_target_kind_info_t* kind = qn_target_kind_at(i);
    if (strcmp(kind->name, qn_target_kind(target)) != 0) continue;
    return kind->device_type == QN_DEVICE_CPU &&
           qn_status_consume(qn_target_check_host(target)) == QN_STATUS_OK;
  }
  return false;
}

// Looks a key up and loads it once, which asks the remote tier too and proves that the code loads.
static qn_status_t load_once(worker_t* worker, const qn__warm_entry_t* entry,
                             const qn_lookup_options_t* options, qn_lookup_info_t* out_info) {
  qn_executable_t* executable;
  qn_status_t status = qn_engine_executable(worker->engine, entry->module, entry->target, options,
                                            out_info, &executable);
  if (!qn_ok(status)) return status;
  qn_executable_release(executable);
  (void)qn_engine_unload(worker->engine, entry->module, entry->target, options);
  return QN_OK;
}

static qn_status_t make(worker_t* worker, const qn__warm_message_t* task,
                        qn__warm_message_t* result) {
  qn__warm_entry_t entry = {.tier = task->tier, .is_checked = task->is_checked};
  char* json = strndup(task->target_json.data, task->target_json.size);
  if (!json) return qn__warm_no_memory("a target");
  qn_status_t status = qn_target_parse(json, &entry.target);
  free(json);
  if (qn_ok(status)) {
    status = qn_module_decode(task->module.data, task->module.size, NULL, &entry.module);
  }
  qn_lookup_options_t options = {
      .struct_size = sizeof options, .tier = entry.tier, .is_checked = entry.is_checked};
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_lookup_info_t stored = {.struct_size = sizeof stored};
  if (qn_ok(status) && !worker->is_refreshing && suits_host(entry.target)) {
    status = load_once(worker, &entry, &options, &info);
  }
  if (qn_ok(status)) {
    // Waits until the entry is in the directory, and compiles it if it is missing.
    status = qn_engine_compile(worker->engine, entry.module, entry.target, &options, &stored);
    if (info.source != QN_SOURCE_COMPILED) info = stored;
  }
  if (qn_ok(status)) {
    result->outcome = info.source == QN_SOURCE_COMPILED ? QN_WARM_COMPILED : QN_WARM_CACHED;
  }
  result->compile_ns = info.compile_ns;
  memcpy(result->key, info.key.hex, sizeof result->key);
  qn_module_release(entry.module);
  qn_target_release(entry.target);
  return status;
}

static qn_status_t serve(int fd, worker_t* worker, qn__warm_bytes_t* frame) {
  qn_status_t status = QN_OK;
  while (qn_ok(status)) {
    qn__warm_message_t message;
    bool is_end;
    status = next_message(fd, frame, &message, &is_end);
    if (!qn_ok(status) || is_end) return status;
    if (message.kind != QN__WARM_TASK) {
      return qn_status_make(QN_STATUS_DATA_LOSS, "the coordinator sent no task");
    }
    qn__warm_message_t result = {
        .kind = QN__WARM_RESULT, .id = message.id, .outcome = QN_WARM_FAILED};
    qn_status_t made = make(worker, &message, &result);
    result.code = qn_status_code(made);
    result.text = qn__warm_span(qn_status_message(made));
    status = send_message(fd, &result);
    qn_status_free(made);
  }
  return status;
}

qn_status_t qn_warm_worker(int fd) {
  // A busy worker does not read its socket, so the system ends it when the coordinator has ended. A
  // coordinator that ended before this call has closed the socket, which the next read sees.
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  qn__warm_bytes_t frame = {.allocator = qn_allocator_default()};
  worker_t worker = {0};
  qn__warm_message_t message;
  bool is_end;
  qn_status_t status = next_message(fd, &frame, &message, &is_end);
  if (qn_ok(status) && !is_end) {
    status = make_engine(&message, &worker);
    qn__warm_message_t answer = {
        .kind = qn_ok(status) ? QN__WARM_READY : QN__WARM_BROKEN,
        .protocol = QN__WARM_PROTOCOL,
        .version = qn__warm_span(qn_version()),
        .code = qn_status_code(status),
        .text = qn__warm_span(qn_status_message(status)),
    };
    qn_status_t sent = send_message(fd, &answer);
    if (qn_ok(status)) {
      status = sent;
    } else {
      qn_status_free(sent);
    }
    if (qn_ok(status)) status = serve(fd, &worker, &frame);
  }
  qn_engine_destroy(worker.engine);
  qn__warm_bytes_deinit(&frame);
  return status;
}
