// jit/warm/warm_message.c: frames between coordinator and worker.
//
// Thread rule: pure functions. Read next: warm_process.c.
#include "jit/warm/warm_message.h"

#include "base/digest.h"
#include "base/reader.h"

// In place of a key that was not reached.
static const char no_key[] = "                                ";

static void put_text(qn__buffer_t* buffer, qn_str_t text) {
  qn__buffer_run(buffer, (qn_span_t){(const uint8_t*)text.data, text.size});
}

static void encode_body(const qn__warm_message_t* message, qn__buffer_t* buffer) {
  qn__buffer_u8(buffer, (uint8_t)message->kind);
  switch (message->kind) {
    case QN__WARM_HELLO:
      qn__buffer_u32(buffer, message->protocol);
      put_text(buffer, message->version);
      qn__buffer_u32(buffer, message->setting_count);
      qn__buffer_bytes(buffer, message->settings.data, message->settings.size);
      break;
    case QN__WARM_READY:
      qn__buffer_u32(buffer, message->protocol);
      put_text(buffer, message->version);
      break;
    case QN__WARM_BROKEN:
      qn__buffer_u32(buffer, (uint32_t)message->code);
      put_text(buffer, message->text);
      break;
    case QN__WARM_JOB:
      qn__buffer_u64(buffer, message->id);
      qn__buffer_u8(buffer, (uint8_t)message->tier);
      qn__buffer_u8(buffer, message->is_checked);
      put_text(buffer, message->target_json);
      qn__buffer_run(buffer, message->module);
      break;
    case QN__WARM_RESULT:
      qn__buffer_u64(buffer, message->id);
      qn__buffer_u8(buffer, (uint8_t)message->outcome);
      qn__buffer_u64(buffer, (uint64_t)message->compile_ns);
      qn__buffer_bytes(buffer, message->key[0] ? message->key : no_key, 32);
      qn__buffer_u32(buffer, (uint32_t)message->code);
      put_text(buffer, message->text);
      break;
  }
}

void qn__warm_message_encode(const qn__warm_message_t* message, qn__buffer_t* buffer) {
  size_t at = buffer->size;
  qn__buffer_u32(buffer, 0);
  encode_body(message, buffer);
  if (buffer->has_failed) return;
  size_t size = buffer->size - at - QN__WARM_LENGTH_BYTES;
  if (size > QN__WARM_MAX_BODY_BYTES) {
    buffer->has_failed = true;
    return;
  }
  for (size_t i = 0; i < QN__WARM_LENGTH_BYTES; i++) {
    buffer->data[at + i] = (uint8_t)(size >> (8 * i));
  }
}

bool qn__warm_message_length(const uint8_t length[QN__WARM_LENGTH_BYTES], size_t* out_size) {
  qn__reader_t reader = qn__reader_make((qn_span_t){length, QN__WARM_LENGTH_BYTES});
  *out_size = qn__read_u32(&reader);
  return *out_size > 0 && *out_size <= QN__WARM_MAX_BODY_BYTES;
}

static qn_str_t read_text(qn__reader_t* reader) {
  qn_span_t run = qn__read_run(reader);
  // What ends up in messages and in C strings has no zeros inside.
  if (run.size && memchr(run.data, 0, run.size)) reader->has_overrun = true;
  return (qn_str_t){(const char*)run.data, run.size};
}

static bool read_bool(qn__reader_t* reader) {
  uint8_t value = qn__read_u8(reader);
  if (value > 1) reader->has_overrun = true;
  return value == 1;
}

static qn_status_code_t read_code(qn__reader_t* reader) {
  switch (qn__read_u32(reader)) {
#define QN_STATUS_CODE(name, value, text, doc) \
  case value:                                  \
    return QN_STATUS_##name;
#include "quern/status.inc"
#undef QN_STATUS_CODE
    default:
      reader->has_overrun = true;
      return QN_STATUS_INTERNAL;
  }
}

static void read_hello(qn__reader_t* reader, qn__warm_message_t* message) {
  message->protocol = qn__read_u32(reader);
  message->version = read_text(reader);
  message->setting_count = qn__read_u32(reader);
  message->settings = qn__read_bytes(reader, qn__reader_left(reader));
  qn_span_t rest = message->settings;
  qn_str_t name, value;
  uint32_t count = 0;
  while (qn__warm_next_setting(&rest, &name, &value)) count++;
  if (rest.size || count != message->setting_count || count > QN__WARM_MAX_SETTINGS) {
    reader->has_overrun = true;
  }
}

static void read_job(qn__reader_t* reader, qn__warm_message_t* message) {
  message->id = qn__read_u64(reader);
  uint8_t tier = qn__read_u8(reader);
  message->tier = tier == QN_TIER_FAST ? QN_TIER_FAST : QN_TIER_FULL;
  if (tier != QN_TIER_FAST && tier != QN_TIER_FULL) reader->has_overrun = true;
  message->is_checked = read_bool(reader);
  message->target_json = read_text(reader);
  message->module = qn__read_run(reader);
}

static void read_result(qn__reader_t* reader, qn__warm_message_t* message) {
  message->id = qn__read_u64(reader);
  uint8_t outcome = qn__read_u8(reader);
  if (outcome < QN_WARM_COMPILED || outcome > QN_WARM_FAILED) reader->has_overrun = true;
  message->outcome = (qn_warm_outcome_t)outcome;
  uint64_t compile_ns = qn__read_u64(reader);
  if (compile_ns > INT64_MAX) reader->has_overrun = true;
  message->compile_ns = (int64_t)compile_ns;
  qn_span_t key = qn__read_bytes(reader, 32);
  qn_hash128_t hash;
  if (qn__hash128_parse((qn_str_t){(const char*)key.data, key.size}, &hash)) {
    memcpy(message->key, key.data, 32);
  } else if (key.size != 32 || memcmp(key.data, no_key, 32) != 0) {
    reader->has_overrun = true;
  }
  message->code = read_code(reader);
  message->text = read_text(reader);
}

bool qn__warm_message_decode(qn_span_t body, qn__warm_message_t* out_message) {
  memset(out_message, 0, sizeof *out_message);
  qn__reader_t reader = qn__reader_make(body);
  uint8_t kind = qn__read_u8(&reader);
  out_message->kind = (qn__warm_kind_t)kind;
  switch (kind) {
    case QN__WARM_HELLO:
      read_hello(&reader, out_message);
      break;
    case QN__WARM_READY:
      out_message->protocol = qn__read_u32(&reader);
      out_message->version = read_text(&reader);
      break;
    case QN__WARM_BROKEN:
      out_message->code = read_code(&reader);
      out_message->text = read_text(&reader);
      break;
    case QN__WARM_JOB:
      read_job(&reader, out_message);
      break;
    case QN__WARM_RESULT:
      read_result(&reader, out_message);
      break;
    default:
      return false;
  }
  return !reader.has_overrun && qn__reader_left(&reader) == 0;
}

void qn__warm_put_setting(qn__buffer_t* settings, const char* name, const char* value) {
  put_text(settings, qn__str(name));
  put_text(settings, qn__str(value));
}

bool qn__warm_next_setting(qn_span_t* inout_settings, qn_str_t* out_name, qn_str_t* out_value) {
  qn__reader_t reader = qn__reader_make(*inout_settings);
  if (inout_settings->size == 0) return false;
  *out_name = read_text(&reader);
  *out_value = read_text(&reader);
  if (reader.has_overrun) return false;
  *inout_settings =
      (qn_span_t){inout_settings->data + reader.offset, inout_settings->size - reader.offset};
  return true;
}
