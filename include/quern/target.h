// quern/target.h: reading targets, and listing their kinds, options and tags. quern.h makes
// targets; docs/targets.md describes them.
#ifndef QUERN_TARGET_H_
#define QUERN_TARGET_H_

#include "quern/quern.h"

#ifdef __cplusplus
extern "C" {
#endif

// Sorted JSON with every default resolved. Equal targets give equal text. Borrowed from the target.
QN_API const char* qn_target_json(const qn_target_t* target);
// "cpu", "interp", ... Borrowed from the target.
QN_API const char* qn_target_kind(const qn_target_t* target);
// XXH3-128 of the canonical JSON, 16 bytes. Borrowed from the target.
QN_API const uint8_t* qn_target_digest(const qn_target_t* target);
// Gives an integer option by name. False when the target has no option of that name and type.
QN_API bool qn_target_get_int(const qn_target_t* target, const char* name, int64_t* out_value);
// Gives a bool option. False when the target has no option of that name and type.
QN_API bool qn_target_get_bool(const qn_target_t* target, const char* name, bool* out_value);
// Gives a text option, borrowed from the target. False as above.
QN_API bool qn_target_get_string(const qn_target_t* target, const char* name,
                                 const char** out_value);
// The host target, or NULL. Borrowed from the target.
QN_API const qn_target_t* qn_target_host(const qn_target_t* target);

// Does this machine (of a GPU kind: one of its devices) have every ISA option that the target
// needs? Errors: INCOMPATIBLE, naming the first that is missing; UNAVAILABLE when no device of the
// kind is here. Tuning options never matter.
QN_API QN_MUST_USE qn_status_t qn_target_check_host(const qn_target_t* target);

// ------------------------------------------------------------------------------------ kinds

typedef enum qn_option_type {
  QN_OPTION_BOOL = 1,
  QN_OPTION_INT = 2,
  QN_OPTION_STRING = 3,
  QN_OPTION_STRING_LIST = 4,
} qn_option_type_t;
typedef struct qn_option_info {
  const char* name;
  qn_option_type_t type;
  const char* default_text;
  bool is_isa;  // else tuning: part of the key, but not checked on load
  const char* doc;
  int64_t minimum;  // INT; both 0: any number
  int64_t maximum;
} qn_option_info_t;
typedef struct qn_target_kind_info {
  const char* name;
  const char* doc;
  const char* codegen;  // the code generator's name: "llvm", "interp"
  int32_t device_type;  // DLPack's
  size_t option_count;
  const qn_option_info_t* options;
} qn_target_kind_info_t;
// Returns how many kinds of targets there are, registered ones included.
QN_API size_t qn_target_kind_count(void);
// Returns a kind and its options, registered ones last. Static storage; NULL beyond the count.
QN_API const qn_target_kind_info_t* qn_target_kind_at(size_t index);
// Tags: name and the JSON that it stands for. False beyond the count.
QN_API bool qn_target_tag_at(size_t index, const char** out_name, const char** out_json);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_TARGET_H_
