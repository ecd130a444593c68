// SPDX-License-Identifier: Apache-2.0
// warm/message.c: encodes and decodes frames between coordinator and worker processes.
#include "warm/message.h"

// The text in place of a key that was not reached.
static const char no_key[] = "                                ";
#define KEY_DIGITS (sizeof no_key - 1)

// Writes a message or reads one, so that one function knows what each kind consists of. A value
// that is written is given back.
typedef struct coder {
  qn__warm_bytes_t* out;  // NULL: reads
  qn__warm_reader_t in;
} coder_t;

static uint64_t code_uint(coder_t* coder, uint64_t value, size_t width) {
  if (!coder->out) return qn__warm_take_uint(&coder->in, width);
  qn__warm_put_uint(coder->out, value, width);
  return value;
}

static qn__warm_span_t code_run(coder_t* coder, qn__warm_span_t run) {
  if (!coder->out) return qn__warm_take_run(&coder->in);
  qn__warm_put_run(coder->out, run);
  return run;
}

// Codes bytes whose length the reader knows: all that are left, or fewer.
static qn__warm_span_t code_bytes(coder_t* coder, qn__warm_span_t bytes, size_t size) {
  if (!coder->out) return qn__warm_take(&coder->in, size);
  qn__warm_put(coder->out, bytes);
  return bytes;
}

static void require(coder_t* coder, bool is_right) {
  if (!coder->out && !is_right) coder->in.is_bad = true;
}

// Text ends up in messages and in C strings: it has no zeros.
static bool is_text(qn__warm_span_t run) {
  return run.size == 0 || !memchr(run.data, 0, run.size);
}

static qn__warm_span_t code_text(coder_t* coder, qn__warm_span_t text) {
  text = code_run(coder, text);
  require(coder, is_text(text));
  return text;
}

static qn_status_code_t code_status(coder_t* coder, qn_status_code_t code) {
  switch ((uint32_t)code_uint(coder, (uint64_t)code, 4)) {
#define QN_STATUS_CODE(name, value, text, doc) \
  case value:                                  \
    return QN_STATUS_##name;
#include "quern/status.inc"
#undef QN_STATUS_CODE
    default:
      require(coder, false);
      return QN_STATUS_INTERNAL;
  }
}

static bool are_settings(const qn__warm_message_t* message) {
  qn__warm_span_t rest = message->settings, name, value;
  uint32_t count = 0;
  while (qn__warm_next_setting(&rest, &name, &value)) count++;
  return rest.size == 0 && count == message->setting_count && count <= QN__WARM_MAX_SETTINGS;
}

static bool is_hex(qn__warm_span_t text) {
  for (size_t i = 0; i < text.size; i++) {
    char c = text.data[i];
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

static void code_key(coder_t* coder, char key[33]) {
  qn__warm_span_t digits = {key[0] ? key : no_key, KEY_DIGITS};
  digits = code_bytes(coder, digits, KEY_DIGITS);
  if (coder->out || digits.size != KEY_DIGITS) return;
  bool is_known = is_hex(digits);
  require(coder, is_known || memcmp(digits.data, no_key, KEY_DIGITS) == 0);
  if (is_known) memcpy(key, digits.data, KEY_DIGITS);
}

static void code_body(coder_t* coder, qn__warm_message_t* message) {
  message->kind = (qn__warm_kind_t)code_uint(coder, (uint64_t)message->kind, 1);
  switch (message->kind) {
    case QN__WARM_HELLO:
      message->protocol = (uint32_t)code_uint(coder, message->protocol, 4);
      message->version = code_text(coder, message->version);
      message->setting_count = (uint32_t)code_uint(coder, message->setting_count, 4);
      message->settings = code_bytes(coder, message->settings, coder->in.rest.size);
      require(coder, are_settings(message));
      break;
    case QN__WARM_READY:
      message->protocol = (uint32_t)code_uint(coder, message->protocol, 4);
      message->version = code_text(coder, message->version);
      break;
    case QN__WARM_BROKEN:
      message->code = code_status(coder, message->code);
      message->text = code_text(coder, message->text);
      break;
    case QN__WARM_TASK: {
      message->id = code_uint(coder, message->id, 8);
      message->tier = (qn_tier_t)code_uint(coder, (uint64_t)message->tier, 1);
      require(coder, message->tier == QN_TIER_FAST || message->tier == QN_TIER_FULL);
      uint64_t is_checked = code_uint(coder, message->is_checked, 1);
      require(coder, is_checked <= 1);
      message->is_checked = is_checked == 1;
      message->target_json = code_text(coder, message->target_json);
      message->module = code_run(coder, message->module);
      break;
    }
    case QN__WARM_RESULT:
      message->id = code_uint(coder, message->id, 8);
      message->outcome = (qn_warm_outcome_t)code_uint(coder, (uint64_t)message->outcome, 1);
      require(coder, message->outcome >= QN_WARM_COMPILED && message->outcome <= QN_WARM_FAILED);
      message->compile_ns = (int64_t)code_uint(coder, (uint64_t)message->compile_ns, 8);
      require(coder, message->compile_ns >= 0);
      code_key(coder, message->key);
      message->code = code_status(coder, message->code);
      message->text = code_text(coder, message->text);
      break;
    default:
      require(coder, false);
  }
}

void qn__warm_message_encode(const qn__warm_message_t* message, qn__warm_bytes_t* bytes) {
  size_t at = bytes->size;
  qn__warm_put_uint(bytes, 0, 4);
  coder_t coder = {.out = bytes};
  qn__warm_message_t copy = *message;
  code_body(&coder, &copy);
  if (bytes->has_failed) return;
  size_t size = bytes->size - at - QN__WARM_LENGTH_BYTES;
  if (size > QN__WARM_MAX_BODY_BYTES) {
    bytes->has_failed = true;
    return;
  }
  for (size_t i = 0; i < QN__WARM_LENGTH_BYTES; i++) {
    bytes->data[at + i] = (char)(unsigned char)(size >> (8 * i));
  }
}

bool qn__warm_message_length(const char length[QN__WARM_LENGTH_BYTES], size_t* out_size) {
  qn__warm_reader_t reader = {.rest = {length, QN__WARM_LENGTH_BYTES}};
  *out_size = (size_t)qn__warm_take_uint(&reader, 4);
  return *out_size > 0 && *out_size <= QN__WARM_MAX_BODY_BYTES;
}

bool qn__warm_message_decode(qn__warm_span_t body, qn__warm_message_t* out_message) {
  memset(out_message, 0, sizeof *out_message);
  coder_t coder = {.in = {.rest = body}};
  code_body(&coder, out_message);
  return !coder.in.is_bad && coder.in.rest.size == 0;
}

void qn__warm_put_setting(qn__warm_bytes_t* settings, const char* name, const char* value) {
  qn__warm_put_run(settings, qn__warm_span(name));
  qn__warm_put_run(settings, qn__warm_span(value));
}

bool qn__warm_next_setting(qn__warm_span_t* inout_settings, qn__warm_span_t* out_name,
                           qn__warm_span_t* out_value) {
  qn__warm_reader_t reader = {.rest = *inout_settings};
  if (inout_settings->size == 0) return false;
  *out_name = qn__warm_take_run(&reader);
  *out_value = qn__warm_take_run(&reader);
  if (reader.is_bad || !is_text(*out_name) || !is_text(*out_value)) return false;
  *inout_settings = reader.rest;
  return true;
}
