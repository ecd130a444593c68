// target/target.h: targets inside the library: their values, and what code generators and devices
// ask.
//
// A target is made in three steps: parse.c reads the written form into values, resolve.c fills in
// what was not said and checks it per kind, target.c writes the canonical form. After that it never
// changes. Thread rule: a finished target is constant. Read next: parse.c.
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

typedef enum qn__option_class {
  QN__OPTION_ISA,
  QN__OPTION_TUNING,
  QN__OPTION_REQUEST,  // used up while the target is made
} qn__option_class_t;

// How a device's answer is held against an ISA option (options.inc).
typedef enum qn__option_rule {
  QN__RULE_BY_TYPE,
  QN__RULE_EQUAL,
  QN__RULE_SUBGROUP,
  QN__RULE_VERSION,
  QN__RULE_ARCH,
} qn__option_rule_t;

typedef struct qn__option {
  const char* name;
  qn_option_type_t type;
  const char* default_text;
  int64_t minimum;  // INT
  int64_t maximum;
  qn__option_class_t option_class;
  qn__option_rule_t rule;
} qn__option_t;

typedef enum qn__kind_id {
#define QN_TARGET_KIND(id, name, codegen, device_type, doc) QN__KIND_##id,
#include "target/kinds.inc"
#undef QN_TARGET_KIND
  QN__KIND_COUNT  // also the id of every kind that was registered
} qn__kind_id_t;

typedef struct qn__kind {
  qn__kind_id_t id;
  const qn_target_kind_info_t* info;
  const qn__option_t* options;  // as many as info->option_count, sorted by name
} qn__kind_t;

// Registered ones, too. NULL when there is none.
const qn__kind_t* qn__kind_find(qn_str_t name);
const qn__kind_t* qn__kind_at(size_t index);
int qn__option_find(const qn__kind_t* kind, qn_str_t name);
// NULL when there is no such tag.
const char* qn__tag_find(qn_str_t name);
const char* qn__option_type_text(qn_option_type_t type);
// Remembers the nearest of the names that it is shown: a "did you mean" in two lines.
typedef struct qn__nearest {
  qn_str_t wanted;
  size_t best_distance;
  const char* best;  // NULL: nothing is near
} qn__nearest_t;
qn__nearest_t qn__nearest_make(qn_str_t wanted);
void qn__nearest_offer(qn__nearest_t* nearest, const char* name);

// ---- devices (devices.c)

// Whom to ask about devices. devices/registry.c defines the one there is; a code generator's own
// copy of this component, and a test without devices, have none: its address is NULL then.
typedef qn_status_t (*qn__property_fn_t)(int32_t id, const char* name,
                                         qn_attribute_value_t* out_value);
typedef struct qn__device_source {
  int32_t (*count)(int32_t device_type);
  // Option `name` of device `id`; none when it has no answer.
  qn_status_t (*property)(int32_t device_type, int32_t id, const char* name,
                          qn_attribute_value_t* out_value);
  // Why there are none of a type, or NULL.
  const char* (*absence)(int32_t device_type);
} qn__device_source_t;
extern const qn__device_source_t qn__device_source __attribute__((weak, visibility("hidden")));

// ---- values

typedef enum qn__layer {
  QN__LAYER_NONE,
  QN__LAYER_DEFAULT,
  QN__LAYER_DEVICE,
  QN__LAYER_TAG,
  QN__LAYER_USER,
} qn__layer_t;

typedef struct qn__value {
  qn__layer_t layer;  // who said it
  int64_t number;     // BOOL and INT
  const char* text;   // STRING
  size_t item_count;  // STRING_LIST
  const char** items;
} qn__target_value_t;

struct qn_target {
  _Atomic uint32_t reference_count;
  qn_allocator_t allocator;
  qn__arena_t arena;  // everything below
  const qn__kind_t* kind;
  qn__target_value_t* values;  // one per option of the kind
  qn__target_value_t from_device;
  qn_target_t* host;        // owned
  const qn__arch_t* arch;   // kind cpu
  qn__features_t features;  // kind cpu
  const char* json;
  const char* isa_json;
  qn_hash128_t digest;
};

// ---- making (parse.c, resolve.c, resolve_cpu.c)

qn_status_t qn__target_parse(qn_str_t text, qn_allocator_t allocator, qn_target_t** out_target);
// A value of `option` from text, as on a command line. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY.
qn_status_t qn__value_parse(qn__arena_t* arena, const qn__kind_t* kind, size_t option,
                            qn_str_t text, qn__target_value_t* out_value);
// A decimal number that fits; false for anything else.
bool qn__int_parse(qn_str_t text, int64_t* out_number);
// What messages show of a text from outside: its beginning.
static inline qn_str_t qn__shown(qn_str_t text) {
  return (qn_str_t){text.data, text.size > 64 ? 64 : text.size};
}
// An INT that is outside of the option's range.
qn_status_t qn__value_check_range(const qn__kind_t* kind, size_t option, int64_t number);
qn_status_t qn__target_resolve(qn_target_t* target);
qn_status_t qn__target_resolve_cpu(qn_target_t* target);
// Takes from device `id` what nobody has said. Errors: UNAVAILABLE, INVALID_ARGUMENT.
qn_status_t qn__target_ask_device(qn_target_t* target, int32_t id);
// Whether a bare kind means a device of this machine: a kind of devices that can be asked.
bool qn__kind_asks_device(const qn__kind_t* kind);
// Writes the canonical forms and the digest: the last step.
qn_status_t qn__target_seal(qn_target_t* target);
// The value of an option that the kind is known to have.
qn__target_value_t* qn__target_value(const qn_target_t* target, const char* name);

// ---- asking (target.c, isa.c)

// Bytes of the vectors that code should use: 16, 32 or 64.
uint32_t qn__target_vector_bytes(const qn_target_t* target);
// Masked loads and stores of every element size are single instructions.
bool qn__target_has_masked_memory(const qn_target_t* target);
// The ISA options alone in canonical JSON: what an artifact says that it needs.
const char* qn__target_isa_json(const qn_target_t* target);
// Whether this machine has what `isa_json` (from qn__target_isa_json) names. Costs about a
// microsecond and allocates nothing. Errors: INCOMPATIBLE, naming the first that is missing, also
// for text of another form.
qn_status_t qn__isa_json_check(const char* isa_json);
// The same against a given machine.
qn_status_t qn__isa_json_check_against(const char* isa_json, const qn__host_cpu_t* host);
// The same against device `id`, whose table answers with `property` (qn_device_table_t's
// target_property; no answer counts as lacking). `kind` is the device's name in targets. Allocates
// nothing unless it refuses.
qn_status_t qn__isa_json_check_device(const char* isa_json, const char* kind, int32_t id,
                                      qn__property_fn_t property);

#endif  // QUERN_TARGET_TARGET_H_
