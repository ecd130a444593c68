// SPDX-License-Identifier: Apache-2.0
// quern/target.h: reading targets, and listing their kinds, options and tags. quern.h makes
// targets; docs/targets.md describes them.
#ifndef QUERN_TARGET_H_
#define QUERN_TARGET_H_

#include "quern/quern.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------ reading
//
// A target does not change. Its options are those of its kind, with every default resolved.

// Returns the canonical form: sorted JSON with every default resolved. Equal targets give equal
// text. Borrowed from the target.
QN_API const char* qn_target_json(const qn_target_t* target);
// Returns the name of the kind, such as "cpu". Borrowed from the target.
QN_API const char* qn_target_kind(const qn_target_t* target);
// Returns the XXH3-128 of the canonical form, 16 bytes. Borrowed from the target.
QN_API const uint8_t* qn_target_digest(const qn_target_t* target);
// Gives an integer option by name. Returns false if the target has no option of that name and type.
QN_API bool qn_target_get_int(const qn_target_t* target, const char* name, int64_t* out_value);
// Gives a bool option by name. Returns false if the target has no option of that name and type.
QN_API bool qn_target_get_bool(const qn_target_t* target, const char* name, bool* out_value);
// Gives a text option by name, borrowed from the target. Returns false if the target has no option
// of that name and type.
QN_API bool qn_target_get_string(const qn_target_t* target, const char* name,
                                 const char** out_value);
// Returns the host target of a GPU target, or NULL. Borrowed from the target.
QN_API const qn_target_t* qn_target_host(const qn_target_t* target);

// Checks that this machine (of a GPU kind: one of its devices) has every ISA option that the target
// needs. Ignores tuning options. Errors: INCOMPATIBLE (names the first option that is missing),
// UNAVAILABLE (no device of the kind is here), DEVICE_ERROR (a device does not answer).
QN_API QN_MUST_USE qn_status_t qn_target_check_host(const qn_target_t* target);

// ------------------------------------------------------------------------------------ kinds
//
// Each kind of target has a table of options. A tag is a short name for a target in JSON.

// The type of an option's value.
typedef enum qn_option_type {
  QN_OPTION_BOOL = 1,
  QN_OPTION_INT = 2,
  QN_OPTION_STRING = 3,
  QN_OPTION_STRING_LIST = 4,
} qn_option_type_t;
// One option of a kind of targets.
typedef struct qn_option_info {
  const char* name;          // as it is written: "vector_width"
  qn_option_type_t type;     // of its value
  const char* default_text;  // its value if it is not given, as it is written
  bool is_isa;               // else tuning: part of the key, but not checked on load
  const char* doc;           // one line
  int64_t minimum;           // INT; both 0: any number
  int64_t maximum;           // INT
} qn_option_info_t;
// One kind of targets.
typedef struct qn_target_kind_info {
  size_t struct_size;   // sizeof(qn_target_kind_info_t); from qn_target_kind_at the library's
  const char* name;     // "cpu"
  const char* doc;      // one line
  const char* codegen;  // the code generator's name: "llvm", "interp"
  int32_t device_type;  // of the devices that run its code (DLPack's)
  size_t option_count;  // how many options follow
  const qn_option_info_t* options;  // their table
} qn_target_kind_info_t;
// Returns how many kinds of targets there are, registered ones included.
QN_API size_t qn_target_kind_count(void);
// Returns a kind and its options, registered ones last; NULL beyond the count. Static storage.
QN_API const qn_target_kind_info_t* qn_target_kind_at(size_t index);
// Gives a tag by its position: its name and the JSON that it stands for, of static storage. Returns
// false beyond the last.
QN_API bool qn_target_tag_at(size_t index, const char** out_name, const char** out_json);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_TARGET_H_
