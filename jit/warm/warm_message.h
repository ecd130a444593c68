// jit/warm/warm_message.h: what coordinator and worker say to each other: frames of a length (u32,
// little-endian) and a body, read strictly: a body that is short, long or of an unknown kind ends
// the conversation.
//
// Thread rule: pure functions. Read next: warm_message.c, warm_worker.c.
#ifndef QUERN_JIT_WARM_MESSAGE_H_
#define QUERN_JIT_WARM_MESSAGE_H_

#include "base/buffer.h"
#include "quern/warm.h"

#define QN__WARM_PROTOCOL 1u
#define QN__WARM_LENGTH_BYTES 4u
// A module of the largest size and its target fit.
#define QN__WARM_MAX_BODY_BYTES ((size_t)32 << 20)
// More options than options.inc has.
#define QN__WARM_MAX_SETTINGS 128u

typedef enum qn__warm_kind {
  QN__WARM_HELLO = 1,   // to a worker, first: who asks, and the options of its engine
  QN__WARM_READY = 2,   // from it: who answers
  QN__WARM_BROKEN = 3,  // from it, instead: why it cannot work
  QN__WARM_JOB = 4,     // to it: one key
  QN__WARM_RESULT = 5,  // from it: what became of that key
} qn__warm_kind_t;

// All spans and texts are borrowed from what was decoded.
typedef struct qn__warm_message {
  qn__warm_kind_t kind;
  // HELLO, READY
  uint32_t protocol;
  qn_str_t version;
  // HELLO: names and values alternate, read with qn__warm_next_setting
  uint32_t setting_count;
  qn_span_t settings;
  // JOB, RESULT
  uint64_t id;
  // JOB
  qn_tier_t tier;
  bool is_checked;
  qn_str_t target_json;
  qn_span_t module;
  // RESULT
  qn_warm_outcome_t outcome;
  int64_t compile_ns;
  char key[33];
  // RESULT, BROKEN
  qn_status_code_t code;
  qn_str_t text;
} qn__warm_message_t;

// Appends the frame. The settings are appended by the caller's HELLO as they lie in the message.
void qn__warm_message_encode(const qn__warm_message_t* message, qn__buffer_t* buffer);
// The length of the body that a frame announces; false beyond QN__WARM_MAX_BODY_BYTES.
bool qn__warm_message_length(const uint8_t length[QN__WARM_LENGTH_BYTES], size_t* out_size);
// Decodes a body. False for anything but a whole message. Any bytes are safe.
bool qn__warm_message_decode(qn_span_t body, qn__warm_message_t* out_message);

// Appends one setting to the bytes that become `settings`.
void qn__warm_put_setting(qn__buffer_t* settings, const char* name, const char* value);
// Takes the next one from the front of `*inout_settings`; false at the end or for bytes that are
// none. Name and value are borrowed from the settings, and not terminated.
bool qn__warm_next_setting(qn_span_t* inout_settings, qn_str_t* out_name, qn_str_t* out_value);

#endif  // QUERN_JIT_WARM_MESSAGE_H_
