// quern/target.h: what code is generated for: an immutable table of properties with a canonical
// form.
//
// Four written forms: a tag ("nvidia/h200"), a bare kind ("cpu"), a command line
// ("cpu -mcpu=znver3 -vector_width=256") and JSON ({"kind": "cpu", "mcpu": "znver3"}). A target
// never looks at a device while code is generated: `native` and `from_device=N` are resolved when
// it is made. A kind of GPU alone, without any option ("cuda"), is device 0 of this machine where
// there is one. Any thread may use one target; handles are reference counted.
#ifndef QUERN_TARGET_H_
#define QUERN_TARGET_H_

#include "quern/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_target qn_target_t;

// Any of the four forms, terminated. Owned: qn_target_release. Errors: SYNTAX (malformed JSON or
// command line, with line and column), NOT_FOUND (unknown kind or tag, with the nearest one),
// INVALID_ARGUMENT (unknown option with the nearest name, wrong type, value out of range),
// UNAVAILABLE (from_device without such a device), OUT_OF_MEMORY. An ISA feature beyond this
// machine is no error here: only when code is loaded.
QN_API QN_MUST_USE qn_status_t qn_target_parse(const char* text, qn_target_t** out_target);
QN_API void qn_target_retain(qn_target_t* target);
// NULL is fine.
QN_API void qn_target_release(qn_target_t* target);

// Sorted JSON with every default resolved. Equal targets give equal text. Borrowed from the target.
QN_API const char* qn_target_json(const qn_target_t* target);
// "cpu", "interp", ... Borrowed from the target.
QN_API const char* qn_target_kind(const qn_target_t* target);
// XXH3-128 of the canonical JSON, 16 bytes. Borrowed from the target.
QN_API const uint8_t* qn_target_digest(const qn_target_t* target);
// Options by name. False when the target has no option of that name and type.
QN_API bool qn_target_get_int(const qn_target_t* target, const char* name, int64_t* out_value);
QN_API bool qn_target_get_bool(const qn_target_t* target, const char* name, bool* out_value);
// Borrowed from the target.
QN_API bool qn_target_get_string(const qn_target_t* target, const char* name,
                                 const char** out_value);
// The host target, or NULL. Borrowed from the target.
QN_API const qn_target_t* qn_target_host(const qn_target_t* target);

// Does this machine (of a GPU kind: one of its devices) have every ISA option that the target
// needs? Errors: INCOMPATIBLE, naming the first that is missing; UNAVAILABLE when no device of the
// kind is here. Tuning options never matter.
QN_API QN_MUST_USE qn_status_t qn_target_check_host(const qn_target_t* target);

// The same for what code says of itself (qn_artifact_t's `isa`) and one device, by its
// `target_property`: for a device's `load`. Errors: INCOMPATIBLE, naming the first option that is
// missing, or a text that cannot be read; UNAVAILABLE when no kind is for devices of that type.
QN_API QN_MUST_USE qn_status_t qn_target_check_isa(const char* isa_json, int32_t device_type,
                                                   int32_t device_id);

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
// Adds a kind of target: how it is written, which code generator it wants and which devices run it.
// The table is copied, its texts are borrowed for the life of the process. Options may be in any
// order; `from_device`, and the load of code where a device asks for it, hold a device's answers
// against them by type: a BOOL that is true must be there, an INT is a most, texts are equal, a
// list is contained. Any thread; before the first target of the kind. Errors: INVALID_ARGUMENT
// (names, defaults), FAILED_PRECONDITION (the name is taken, too many kinds).
QN_API QN_MUST_USE qn_status_t qn_target_kind_register(const qn_target_kind_info_t* info);
// Kinds and their options, registered ones last. Static storage; NULL beyond the count.
QN_API size_t qn_target_kind_count(void);
QN_API const qn_target_kind_info_t* qn_target_kind_at(size_t index);
// Tags: name and the JSON that it stands for. False beyond the count.
QN_API bool qn_target_tag_at(size_t index, const char** out_name, const char** out_json);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_TARGET_H_
