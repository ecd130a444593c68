// SPDX-License-Identifier: Apache-2.0
// tests/unit/shaderc/support_shaderc.h: modules compiled for Vulkan, and what came out.
//
// Thread rule: `compile` from any thread.
#ifndef QUERN_TESTS_UNIT_SHADERC_SUPPORT_SHADERC_H_
#define QUERN_TESTS_UNIT_SHADERC_SUPPORT_SHADERC_H_

#include "devices/gpu/plan.h"
#include "jit/shaderc/compile.h"
#include "quern/ir.h"
#include "quern/target.h"

// Targets: all features on each version of Vulkan, and the least that there is.
#define FEATURES                                                                              \
  "\"supports_atomic_int64\":true,\"supports_float64\":true,\"supports_int64\":true,"         \
  "\"supports_storage_16bit\":true,\"supports_storage_8bit\":true,\"max_threads_per_block\":" \
  "1024,\"max_block_size_x\":1024,\"max_shared_memory_per_block\":49152"
#define MORE                                                                                  \
  "\"supports_atomic_float32\":true,\"supports_subgroup_shuffle\":true,"                      \
  "\"supports_signed_zero_inf_nan_preserve_float32\":true,\"supports_rounding_rte_float32\":" \
  "true,\"supports_denorm_preserve_float32\":true,"                                           \
  "\"supports_signed_zero_inf_nan_preserve_float64\":true,\"supports_rounding_rte_float64\":" \
  "true,\"supports_denorm_preserve_float64\":true"
#define TARGET_1_1 "{\"kind\":\"vulkan\",\"api_version\":\"1.1\"," FEATURES "}"
#define TARGET_1_2 "{\"kind\":\"vulkan\"," FEATURES "," MORE "}"
#define TARGET_1_3 \
  "{\"kind\":\"vulkan\",\"api_version\":\"1.3\",\"spirv_version\":\"1.6\"," FEATURES "," MORE "}"
// 64-bit types alone: small elements live in words, floats are added by compare-and-swap.
#define TARGET_WORDS                                                                       \
  "{\"kind\":\"vulkan\",\"supports_int64\":true,\"supports_float64\":true,"                \
  "\"supports_atomic_int64\":true,\"max_threads_per_block\":256,\"max_block_size_x\":256," \
  "\"max_shared_memory_per_block\":32768}"
#define TARGET_LEAST "{\"kind\":\"vulkan\"}"

// The generator of this process; made once and never destroyed.
qn__shaderc_t* the_shaderc(void);

typedef struct request {
  const char* target;
  qn_tier_t tier;
  bool is_checked;
} request_t;

typedef struct compiled {
  qn_artifact_t* artifact;
  qn__arena_t arena;
  qn__gpu_plan_t plan;
} compiled_t;

// A module of a text; a mistake in it ends the test program.
qn_module_t* parse(const char* text);
// On failure `out` needs no release.
qn_status_t compile(const qn_module_t* module, const request_t* request, compiled_t* out);
void compiled_release(compiled_t* compiled);
// Every kernel, by the validator. NULL, or what is wrong (static storage).
const char* validate(const compiled_t* compiled, const char* target);
// An intermediate form as a terminated text, owned: free. NULL (and a line on stderr) on failure.
char* emit(const qn_module_t* module, const request_t* request, const char* form);
// Writes the form to nowhere; the caller frees the status.
qn_status_t try_emit(const qn_module_t* module, const request_t* request, const char* form);
// A whole file, terminated, owned: free. NULL when there is none.
char* read_text(const char* path);

// Compiles `text` for `target` in both tiers, unchecked and checked, and validates everything.
// NULL, or what is wrong.
const char* compile_everywhere(const char* text, const char* target, bool is_short);

#endif  // QUERN_TESTS_UNIT_SHADERC_SUPPORT_SHADERC_H_
