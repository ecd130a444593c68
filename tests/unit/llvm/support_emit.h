// SPDX-License-Identifier: Apache-2.0
// tests/unit/llvm/support_emit.h: programs from text, compiled by the emitter for a named processor
// and run in this process against a table of our own.
//
// The object is linked by LLJIT without any symbols of the process: a reference to anything
// outside, such as a libcall, makes the build fail. Thread rule: one thread.
#ifndef QUERN_TESTS_UNIT_LLVM_SUPPORT_EMIT_H_
#define QUERN_TESTS_UNIT_LLVM_SUPPORT_EMIT_H_

#include "jit/llvm/emit.h"

typedef struct build {
  // "x86-64", "x86-64-v3", "x86-64-v4", "cascadelake" (with VNNI), "cooperlake" (and BF16),
  // "native"
  const char* cpu;
  bool is_fast;
  bool is_scalar;
  bool is_checked;
  bool is_raw;            // without the passes of the IR
  uint32_t vector_bytes;  // 0: as wide as the processor has them
  uint32_t l1_bytes;      // of caches, for blocks; 0: unknown
  uint32_t l2_bytes;
} build_t;

// Can this machine run code for `cpu`?
bool build_can_run(const char* cpu);

typedef struct kernels {
  qn__arena_t arena;
  qn__llvm_emit_result_t result;
  void* jit;
  qn_cpu_kernel_t entries[16];
  char* llvm_text;  // after the passes; only when asked for
  double emit_ms, passes_ms, codegen_ms;
} kernels_t;

// Parses `text`; stops the program with the message when it is wrong.
qn_module_t* parse_or_die(const char* text);
// Compiles a module. Returns NULL and sets `*out_error` (owned) when it is refused.
kernels_t* kernels_create(const qn_module_t* module, build_t build, bool keeps_text,
                          qn_status_t* out_error);
// Only emits, with an arena that has no more than `room_bytes`. The module is verified and dropped.
qn_status_t emit_only(const qn_module_t* module, build_t build, size_t room_bytes);
void kernels_destroy(kernels_t* kernels);
// Returns the full tier's assembly for a target, which may be another machine. The caller frees it.
char* assembly_of(const char* program, const char* target);

// What the last run reported through the table.
typedef struct run_report {
  int32_t result;
  uint32_t fail_count;
  uint32_t site;
  int64_t index;
  int64_t extent;
  uint32_t parallel_calls;
  int64_t held_workspaces;
  uint32_t allocations;
} run_report_t;

// `pieces`: in how many ranges a parallel loop is run; 0: it must not be split. A workspace beyond
// `allocation_limit` allocations is refused.
run_report_t kernels_run(const kernels_t* kernels, size_t function, const uint64_t* words,
                         uint32_t pieces, uint32_t allocation_limit);

#endif  // QUERN_TESTS_UNIT_LLVM_SUPPORT_EMIT_H_
