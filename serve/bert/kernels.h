// SPDX-License-Identifier: Apache-2.0
// serve/bert/kernels.h: the functions that a model calls, looked up in an engine, and the time they
// take.
//
// The texts are kernels/*.qn, which the build puts into the program; they are generic in all sizes.
// One thread at a time, because of the counts of time.
// Read next: kernels/*.qn (the programs), model.c (the calls).
#ifndef SERVE_BERT_KERNELS_H_
#define SERVE_BERT_KERNELS_H_

#include "serve/bert/config.h"

// What a kernel is for. The activation and the pooling of a model choose among several texts.
typedef enum bert_kernel_id {
  BERT_KERNEL_ENTRANCE,
  BERT_KERNEL_QUERY_KEY_VALUE,
  BERT_KERNEL_ATTENTION,
  BERT_KERNEL_RESIDUAL_NORM,
  BERT_KERNEL_ACTIVATION,
  BERT_KERNEL_POOL,
  BERT_KERNEL_COUNT
} bert_kernel_id_t;

typedef struct bert_kernel {
  const char* name;         // of the function and its text
  qn_function_t* function;  // owned
  qn_lookup_info_t info;    // where the code came from
  int64_t parse_ns;
  int64_t call_count;
  int64_t call_ns;         // 0 where calls return before the work is done
  double operation_count;  // floating-point operations that the caller reported
} bert_kernel_t;

typedef struct bert_kernels {
  bool is_timed;  // calls are done when they return
  bert_kernel_t all[BERT_KERNEL_COUNT];
} bert_kernels_t;

// Looks up the kernels of a model, some at once. `options` may be NULL. With `is_adaptive`,
// products and attention are adaptive functions (quern/adaptive.h), special for small numbers of
// tokens. Errors: those of qn_engine_function, with the kernel's name. Owned: bert_kernels_unload.
QN_MUST_USE qn_status_t bert_kernels_load(qn_engine_t* engine, qn_target_t* target,
                                          const qn_lookup_options_t* options, bool is_adaptive,
                                          const bert_config_t* config, bert_kernels_t* out_kernels);
// Also unloads zeroed kernels.
void bert_kernels_unload(bert_kernels_t* kernels);

// Calls one kernel. `operation_count` is the number of operations of the call; 0: not counted.
QN_MUST_USE qn_status_t bert_kernels_call(bert_kernels_t* kernels, bert_kernel_id_t id,
                                          const qn_value_t* args, size_t count,
                                          double operation_count);
// Sets all counts of time and calls to zero.
void bert_kernels_reset_counts(bert_kernels_t* kernels);

#endif  // SERVE_BERT_KERNELS_H_
