// warm/message.c: encodes and decodes frames between coordinator and worker processes.
#include "warm/message.h"

// The text in place of a key that was not reached.
static const char no_key[] = "                                ";

static void encode_body(const qn__warm_message_t* message, qn__warm_bytes_t* bytes) {
  qn__warm_put_uint(bytes, (uint64_t)message->kind, 1);
  switch (message->kind) {
    case QN__WARM_HELLO:
      qn__warm_put_uint(bytes, message->protocol, 4);
      qn__warm_put_run(bytes, message->version);
      qn__warm_put_uint(bytes, message->setting_count, 4);
      qn__warm_put(bytes, message->settings);
      break;
    case QN__WARM_READY:
      qn__warm_put_uint(bytes, message->protocol, 4);
      qn__warm_put_run(bytes, message->version);
      break;
    case QN__WARM_BROKEN:
      qn__warm_put_uint(bytes, (uint64_t)message->code, 4);
      qn__warm_put_run(bytes, message->text);
      break;
    case QN__WARM_TASK:
      qn__warm_put_uint(bytes, message->id, 8);
      qn__warm_put_uint(bytes, (uint64_t)message->tier, 1);
      qn__warm_put_uint(bytes, message->is_checked, 1);
      qn__warm_put_run(bytes, message->target_json);
      qn__warm_put_run(bytes, message->module);
      break;
    case QN__WARM_RESULT:
      qn__warm_put_uint(bytes, message->id, 8);
      qn__warm_put_uint(bytes, (uint64_t)message->outcome, 1);
      qn__warm_put_uint(bytes, (uint64_t)message->compile_ns, 8);
      qn__warm_put(bytes, (qn__warm_span_t){message->key[0] ? message->key : no_key, 32});
      qn__warm_put_uint(bytes, (uint64_t)message->code, 4);
      qn__warm_put_run(bytes, message->text);
      break;
  }
}

void qn__warm_message_encode(const qn__warm_message_t* message, qn__warm_bytes_t* bytes) {
  size_t at = bytes->size;
  qn__warm_put_uint(bytes, 0, 4);
  encode_body(message, bytes);
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

// Text ends up in messages and in C strings: it has no zeros.
static qn__warm_span_t read_text(qn__warm_reader_t* reader) {
  qn__warm_span_t run = qn__warm_take_run(reader);
  if (run.size && memchr(run.data, 0, run.size)) reader->is_bad = true;
  return run;
}

static bool read_bool(qn__warm_reader_t* reader) {
  uint8_t value = (uint8_t)qn__warm_take_uint(reader, 1);
  if (value > 1) reader->is_bad = true;
  return value == 1;
}

static qn_status_code_t read_code(qn__warm_reader_t* reader) {
  switch ((uint32_t)qn__warm_take_uint(reader, 4)) {
#define QN_STATUS_CODE(name, value, text, doc) \
  case value:                                  \
    return QN_STATUS_##name;
#include "quern/status.inc"
#undef QN_STATUS_CODE
    default:
      reader->is_bad = true;
      return QN_STATUS_INTERNAL;
  }
}

static void read_hello(qn__warm_reader_t* reader, qn__warm_message_t* message) {
  message->protocol = (uint32_t)qn__warm_take_uint(reader, 4);
  message->version = read_text(reader);
  message->setting_count = (uint32_t)qn__warm_take_uint(reader, 4);
  message->settings = qn__warm_take(reader, reader->rest.size);
  qn__warm_span_t rest = message->settings;
  qn__warm_span_t name, value;
  uint32_t count = 0;
  while (qn__warm_next_setting(&rest, &name, &value)) count++;
  if (rest.size || count != message->setting_count || count > QN__WARM_MAX_SETTINGS) {
    reader->is_bad = true;
  }
}

static void read_task(qn__warm_reader_t* reader, qn__warm_message_t* message) {
  message->id = qn__warm_take_uint(reader, 8);
  uint8_t tier = (uint8_t)qn__warm_take_uint(reader, 1);
  message->tier = tier == QN_TIER_FAST ? QN_TIER_FAST : QN_TIER_FULL;
  if (tier != QN_TIER_FAST && tier != QN_TIER_FULL) reader->is_bad = true;
  message->is_checked = read_bool(reader);
  message->target_json = read_text(reader);
  message->module = qn__warm_take_run(reader);
}

static bool is_hex(qn__warm_span_t text) {
  for (size_t i = 0; i < text.size; i++) {
    char c = text.data[i];
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

static void read_result(qn__warm_reader_t* reader, qn__warm_message_t* message) {
  message->id = qn__warm_take_uint(reader, 8);
  uint8_t outcome = (uint8_t)qn__warm_take_uint(reader, 1);
  if (outcome < QN_WARM_COMPILED || outcome > QN_WARM_FAILED) reader->is_bad = true;
  message->outcome = (qn_warm_outcome_t)outcome;
  uint64_t compile_ns = qn__warm_take_uint(reader, 8);
  if (compile_ns > INT64_MAX) reader->is_bad = true;
  message->compile_ns = (int64_t)compile_ns;
  qn__warm_span_t key = qn__warm_take(reader, 32);
  if (key.size == 32 && is_hex(key)) {
    memcpy(message->key, key.data, 32);
  } else if (key.size != 32 || memcmp(key.data, no_key, 32) != 0) {
    reader->is_bad = true;
  }
  message->code = read_code(reader);
  message->text = read_text(reader);
}

bool qn__warm_message_decode(qn__warm_span_t body, qn__warm_message_t* out_message) {
  memset(out_message, 0, sizeof *out_message);
  qn__warm_reader_t reader = {.rest = body};
  uint8_t kind = (uint8_t)qn__warm_take_uint(&reader, 1);
  out_message->kind = (qn__warm_kind_t)kind;
  switch (kind) {
    case QN__WARM_HELLO:
      read_hello(&reader, out_message);
      break;
    case QN__WARM_READY:
      out_message->protocol = (uint32_t)qn__warm_take_uint(&reader, 4);
      out_message->version = read_text(&reader);
      break;
    case QN__WARM_BROKEN:
      out_message->code = read_code(&reader);
      out_message->text = read_text(&reader);
      break;
    case QN__WARM_TASK:
      read_task(&reader, out_message);
      break;
    case QN__WARM_RESULT:
      read_result(&reader, out_message);
      break;
    default:
      return false;
  }
  return !reader.is_bad && reader.rest.size == 0;
}

void qn__warm_put_setting(qn__warm_bytes_t* settings, const char* name, const char* value) {
  qn__warm_put_run(settings, qn__warm_span(name));
  qn__warm_put_run(settings, qn__warm_span(value));
}

bool qn__warm_next_setting(qn__warm_span_t* inout_settings, qn__warm_span_t* out_name,
                           qn__warm_span_t* out_value) {
  qn__warm_reader_t reader = {.rest = *inout_settings};
  if (inout_settings->size == 0) return false;
  *out_name = read_text(&reader);
  *out_value = read_text(&reader);
  if (reader.is_bad) return false;
  *inout_settings = reader.rest;
  return true;
}
