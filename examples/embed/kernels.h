// kernels.h: the functions that the model calls, looked up in an engine, and the time they take.
//
// One thread at a time, because of the counts of time: any thread may call the functions
// themselves. Read next: kernels/*.qn (the programs), model.c (the calls).
#ifndef EMBED_KERNELS_H_
#define EMBED_KERNELS_H_

#include "place.h"

// The enumerator, and the name of both the function and its file.
// clang-format off
#define KERNELS(X)                                  \
  X(EMBED_LAYERNORM, "embed_layernorm")             \
  X(QUERY_KEY_VALUE, "query_key_value")             \
  X(ATTENTION, "attention")                         \
  X(LINEAR_RESIDUAL_NORM, "linear_residual_norm")   \
  X(LINEAR_GELU, "linear_gelu")                     \
  X(MEAN_POOL, "mean_pool")
// clang-format on

typedef enum kernel_id {
#define X(id, name) KERNEL_##id,
  KERNELS(X)
#undef X
      KERNEL_COUNT
} kernel_id_t;

typedef struct kernel {
  const char* name;
  qn_function_t* function;
  qn_lookup_info_t info;  // where the code came from
  int64_t parse_ns;
  int64_t call_count;
  int64_t call_ns;         // 0 where calls return before the work is done
  double operation_count;  // floating-point operations that the caller reported
} kernel_t;

typedef struct kernels {
  qn_engine_t* engine;
  qn_target_t* target;
  place_t place;  // where their tensors live
  kernel_t all[KERNEL_COUNT];
} kernels_t;

// Makes an engine (its cache as the environment says), and looks up every kernel of `directory` for
// the target. `options` may be NULL. Errors: IO, NOT_FOUND, those of qn_module_parse,
// qn_target_parse and qn_engine_function; UNAVAILABLE without a device of the target. Owned:
// kernels_unload.
qn_status_t kernels_load(const char* directory, const char* target,
                         const qn_lookup_options_t* options, kernels_t* out_kernels);
// Also unloads zeroed kernels.
void kernels_unload(kernels_t* kernels);

// Calls one kernel. `operation_count` is the number of operations of the call; 0: not counted.
qn_status_t kernels_call(kernels_t* kernels, kernel_id_t id, const qn_value_t* args, size_t count,
                         double operation_count);
// Sets all counts of time and calls to zero.
void kernels_reset_counts(kernels_t* kernels);

#endif  // EMBED_KERNELS_H_
