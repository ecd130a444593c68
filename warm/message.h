// SPDX-License-Identifier: Apache-2.0
// warm/message.h: the messages between coordinator and worker processes: frames of a length (u32,
// little-endian) and a body. A body that is short, long or of an unknown kind ends the
// conversation. docs/warm.md has the layout.
#ifndef QUERN_WARM_MESSAGE_H_
#define QUERN_WARM_MESSAGE_H_

#include "quern/warm.h"
#include "warm/bytes.h"

#define QN__WARM_PROTOCOL 2u
#define QN__WARM_LENGTH_BYTES 4u
// A module of the largest size and its target fit.
#define QN__WARM_MAX_BODY_BYTES ((size_t)32 << 20)
// More options than options.inc has.
#define QN__WARM_MAX_SETTINGS 128u

typedef enum qn__warm_kind {
  QN__WARM_HELLO = 1,   // to a worker, first: the version, and the options of its engine
  QN__WARM_READY = 2,   // from a worker: its version
  QN__WARM_BROKEN = 3,  // from a worker, instead: why it cannot work
  QN__WARM_TASK = 4,    // to a worker: one key
  QN__WARM_RESULT = 5,  // from a worker: the outcome of that key
} qn__warm_kind_t;

// Spans are borrowed from the body that was decoded.
typedef struct qn__warm_message {
  qn__warm_kind_t kind;
  // HELLO, READY
  uint32_t protocol;
  qn__warm_span_t version;
  // HELLO: names and values alternate, read with qn__warm_next_setting
  uint32_t setting_count;
  qn__warm_span_t settings;
  // TASK, RESULT
  uint64_t id;
  // TASK
  qn_tier_t tier;
  bool is_checked;
  qn__warm_span_t target_json;
  qn__warm_span_t module;
  // RESULT
  qn_warm_outcome_t outcome;
  int64_t compile_ns;
  char key[33];  // "" when the worker did not come that far
  // RESULT, BROKEN
  qn_status_code_t code;
  qn__warm_span_t text;
} qn__warm_message_t;

// Appends the frame. Sets the flag of `bytes` when it is longer than a frame may be.
void qn__warm_message_encode(const qn__warm_message_t* message, qn__warm_bytes_t* bytes);
// Reads the length of a body; false beyond QN__WARM_MAX_BODY_BYTES.
bool qn__warm_message_length(const char length[QN__WARM_LENGTH_BYTES], size_t* out_size);
// Decodes a body. False for anything but a whole message. Any bytes are safe.
bool qn__warm_message_decode(qn__warm_span_t body, qn__warm_message_t* out_message);

// Appends one setting to the bytes that become `settings`.
void qn__warm_put_setting(qn__warm_bytes_t* settings, const char* name, const char* value);
// Takes the next setting from the front of `*inout_settings`; false at the end and for bytes that
// are none. Name and value are not terminated.
bool qn__warm_next_setting(qn__warm_span_t* inout_settings, qn__warm_span_t* out_name,
                           qn__warm_span_t* out_value);

#endif  // QUERN_WARM_MESSAGE_H_
