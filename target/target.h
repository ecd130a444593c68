// SPDX-License-Identifier: Apache-2.0
// target/target.h: targets inside the library: tables, values, and questions of code generators and
// devices.
//
// A target is created in three steps: parse.c reads the written form into values, resolve.c fills
// in the missing ones and checks them per kind, target.c writes the canonical form. Then it never
// changes. Read next: parse.c.
#ifndef QUERN_TARGET_TARGET_H_
#define QUERN_TARGET_TARGET_H_

#include <stdatomic.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/digest.h"
#include "quern/backend.h"
#include "target/features.h"
#include "target/host.h"

// ---- tables (kinds.c)

typedef enum qn__target_option_class {
  QN__OPTION_ISA,
  QN__OPTION_TUNING,
  QN__OPTION_REQUEST,  // used while the target is created, then dropped
} qn__target_option_class_t;

// How a device's answer is compared with an ISA option (options.inc).
typedef enum qn__target_option_rule {
  QN__RULE_BY_TYPE,
  QN__RULE_EQUAL,
  QN__RULE_SUBGROUP,
  QN__RULE_VERSION,
  QN__RULE_ARCH,
} qn__target_option_rule_t;

typedef struct qn__target_option {
  const char* name;
  qn_option_type_t type;
  const char* default_text;
  int64_t minimum;  // INT
  int64_t maximum;
  qn__target_option_class_t option_class;
  qn__target_option_rule_t rule;
} qn__target_option_t;

typedef enum qn__target_kind_id {
#define QN_TARGET_KIND(id, name, codegen, device_type, doc) QN__KIND_##id,
#include "target/kinds.inc"
#undef QN_TARGET_KIND
  QN__KIND_COUNT  // also the id of every registered kind
} qn__target_kind_id_t;

typedef struct qn__target_kind {
  qn__target_kind_id_t id;
  const qn_target_kind_info_t* info;
  const qn__target_option_t* options;  // as many as info->option_count, sorted by name
} qn__target_kind_t;

// Finds a kind, also a registered one; NULL when there is none.
const qn__target_kind_t* qn__target_kind_find(qn_str_t name);
const qn__target_kind_t* qn__target_kind_at(size_t index);
int qn__target_option_find(const qn__target_kind_t* kind, qn_str_t name);
// Returns the JSON of a tag; NULL when there is none.
const char* qn__target_tag_find(qn_str_t name);
const char* qn__target_option_type_text(qn_option_type_t type);
// Finds the name nearest to a wrong one, for "did you mean".
typedef struct qn__target_nearest {
  qn_str_t wanted;
  size_t best_distance;
  const char* best;  // NULL: no name is near
} qn__target_nearest_t;
qn__target_nearest_t qn__nearest_make(qn_str_t wanted);
void qn__nearest_offer(qn__target_nearest_t* nearest, const char* name);
// Makes a status with the message, and "; did you mean 'NAME'?" where a name is near.
qn_status_t qn__nearest_status(const qn__target_nearest_t* nearest, qn_status_code_t code,
                               const char* format, ...) QN_PRINTF(3, 4);

// ---- devices (devices.c)

// The devices that targets can ask. devices/registry.c defines the only source. The copy of this
// component in a code generator, and tests without devices, have none; its address is NULL there.
typedef qn_status_t (*qn__target_property_fn_t)(int32_t id, const char* name,
                                                qn_attribute_value_t* out_value);
typedef struct qn__target_device_source {
  int32_t (*count)(int32_t device_type);
  // Returns option `name` of device `id`; none when the device has no answer.
  qn_status_t (*property)(int32_t device_type, int32_t id, const char* name,
                          qn_attribute_value_t* out_value);
  // Returns why there is no device of a type, or NULL.
  const char* (*absence)(int32_t device_type);
} qn__target_device_source_t;
extern const qn__target_device_source_t qn__device_source
    __attribute__((weak, visibility("hidden")));

// ---- values

typedef enum qn__target_layer {
  QN__LAYER_NONE,
  QN__LAYER_DEFAULT,
  QN__LAYER_DEVICE,
  QN__LAYER_TAG,
  QN__LAYER_USER,
} qn__target_layer_t;

typedef struct qn__target_value {
  qn__target_layer_t layer;  // where the value came from
  int64_t number;            // BOOL and INT
  const char* text;          // STRING
  size_t item_count;         // STRING_LIST
  const char** items;
} qn__target_value_t;

struct qn_target {
  _Atomic uint32_t reference_count;
  qn_allocator_t allocator;
  qn__arena_t arena;  // holds everything below
  const qn__target_kind_t* kind;
  qn__target_value_t* values;  // one per option of the kind
  qn__target_value_t from_device;
  qn_target_t* host;               // owned
  const qn__target_arch_t* arch;   // kind cpu
  qn__target_features_t features;  // kind cpu
  const char* json;
  const char* isa_json;
  qn_hash128_t digest;
};

// A target in a message: kind and processor, such as "cpu znver4", "cuda sm_90a" or "vulkan". The
// canonical form is too long to read there.
typedef struct qn__target_brief {
  char text[96];
} qn__target_brief_t;
qn__target_brief_t qn__target_brief(const qn_target_t* target);

// ---- creation (parse.c, resolve.c, resolve_cpu.c)

qn_status_t qn__target_parse(qn_str_t text, qn_allocator_t allocator, qn_target_t** out_target);
// Parses a value of `option`, as on a command line. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY.
qn_status_t qn__target_value_parse(qn__arena_t* arena, const qn__target_kind_t* kind, size_t option,
                                   qn_str_t text, qn__target_value_t* out_value);
// Parses a decimal number; false when it does not fit or is none.
bool qn__int_parse(qn_str_t text, int64_t* out_number);
// Returns the start of a text from outside, for messages.
static inline qn_str_t qn__excerpt(qn_str_t text) {
  return (qn_str_t){text.data, text.size > 64 ? 64 : text.size};
}
// Checks that an INT is within the option's range.
qn_status_t qn__target_value_check_range(const qn__target_kind_t* kind, size_t option,
                                         int64_t number);
qn_status_t qn__target_resolve(qn_target_t* target);
qn_status_t qn__target_resolve_cpu(qn_target_t* target);
// Takes from device `id` the values that the user has not given. Errors: UNAVAILABLE,
// INVALID_ARGUMENT.
qn_status_t qn__target_read_device(qn_target_t* target, int32_t id);
// True when a bare kind means a device of this machine: the kind has devices that can be asked.
bool qn__target_kind_has_devices(const qn__target_kind_t* kind);
// Writes the canonical forms and the digest; the last step.
qn_status_t qn__target_seal(qn_target_t* target);
// Tests that a sealed target is complete: every value has an origin, the extensions are consistent,
// and digest and canonical form agree. For tests and for debug builds.
bool qn__target_check(const qn_target_t* target);
// Returns the value of an option that the kind has.
qn__target_value_t* qn__target_value(const qn_target_t* target, const char* name);

// ---- questions (target.c, isa.c)

// Returns the bytes of the vectors that code should use: 16, 32 or 64.
uint32_t qn__target_vector_bytes(const qn_target_t* target);
// Returns how many multiplications of 512 bits the processor that code is scheduled for begins in a
// cycle; 0: unknown.
uint32_t qn__target_wide_multiplies(const qn_target_t* target);
// Returns true if dot products of bf16 are slower than multiplications of f32 on the processor that
// code is scheduled for.
bool qn__target_has_slow_bf16(const qn_target_t* target);
// True when masked loads and stores of every element size are single instructions.
bool qn__target_has_masked_memory(const qn_target_t* target);
// True when those of 4 and 8 bytes are.
bool qn__target_has_masked_words(const qn_target_t* target);
// True when fused multiply-add is an instruction.
bool qn__target_has_fma(const qn_target_t* target);
// Returns the ISA options in canonical JSON: what an artifact needs.
const char* qn__target_isa_json(const qn_target_t* target);
// Checks that this machine has what `isa_json` (from qn__target_isa_json) names. Costs about a
// microsecond and allocates nothing. Errors: INCOMPATIBLE, naming the first missing item, also for
// text of another form.
qn_status_t qn__isa_json_check(const char* isa_json);
// Checks the same for a given machine.
qn_status_t qn__isa_json_check_against(const char* isa_json, const qn__target_host_cpu_t* host);
// Checks the same for device `id`, whose table answers by `property` (target_property of
// qn_device_table_t; no answer means that it lacks the item). `kind` is the device's name in
// targets. Allocates only for an error.
qn_status_t qn__isa_json_check_device(const char* isa_json, const char* kind, int32_t id,
                                      qn__target_property_fn_t property);

#endif  // QUERN_TARGET_TARGET_H_
