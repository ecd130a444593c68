// SPDX-License-Identifier: Apache-2.0
// jit/lower/machine.c: what passes must know of a machine, from its target.
#include <stddef.h>
#include <string.h>

#include "base/argument.h"
#include "base/struct_size.h"
#include "jit/lower/lower.h"
#include "target/target.h"

static uint32_t number_of(const qn_target_t* target, const char* option) {
  int64_t value = 0;
  (void)qn_target_get_int(target, option, &value);
  return value > 0 && value <= UINT32_MAX ? (uint32_t)value : 0;
}

static bool has(const qn_target_t* target, const char* option) {
  bool value = false;
  return qn_target_get_bool(target, option, &value) && value;
}

static void read_cpu(const qn_target_t* target, qn_machine_t* out) {
  out->has_fma = qn__target_has_fma(target);
  out->vector_bytes = qn__target_vector_bytes(target);
  out->has_masked_memory = qn__target_has_masked_memory(target);
  out->has_masked_words = qn__target_has_masked_words(target);
  out->wide_multiplies = qn__target_wide_multiplies(target);
}

static void read_cuda(qn_machine_t* out) {
  out->has_fma = out->has_shuffles = out->has_block_reductions = true;
  out->access_bytes = 16;
}

static void read_vulkan(const qn_target_t* target, qn_machine_t* out) {
  uint32_t wide = number_of(target, "max_block_size_x");
  if (wide < out->max_threads) out->max_threads = wide;
  out->has_fma = has(target, "supports_fused_multiply_add");
  out->has_shuffles = has(target, "supports_subgroup_shuffle");
}

// Takes the options that have the name of a member.
static void read_other(const qn_target_t* target, qn_machine_t* out) {
  out->has_fma = has(target, "has_fma");
  out->vector_bytes = number_of(target, "vector_bytes");
  out->has_masked_memory = has(target, "has_masked_memory");
  out->has_masked_words = has(target, "has_masked_words");
  out->wide_multiplies = number_of(target, "wide_multiplies");
  out->access_bytes = number_of(target, "access_bytes");
  out->has_shuffles = has(target, "has_shuffles");
  out->has_block_reductions = has(target, "has_block_reductions");
}

void qn__lower_machine(const qn_target_t* target, qn_machine_t* out) {
  *out = (qn_machine_t){
      .struct_size = sizeof *out,
      .l1_cache_bytes = number_of(target, "l1_cache_bytes"),
      .l2_cache_bytes = number_of(target, "l2_cache_bytes"),
      .warp_size = number_of(target, "warp_size"),
      .max_threads = number_of(target, "max_threads_per_block"),
      .max_shared_bytes = number_of(target, "max_shared_memory_per_block"),
      .multiprocessors = number_of(target, "multiprocessors"),
  };
  switch (target->kind->id) {
    case QN__KIND_CPU:
      read_cpu(target, out);
      break;
    case QN__KIND_CUDA:
      read_cuda(out);
      break;
    case QN__KIND_VULKAN:
      read_vulkan(target, out);
      break;
    default:
      read_other(target, out);
  }
}

qn_status_t qn_target_machine(const qn_target_t* target, qn_machine_t* out_machine) {
  QN_REQUIRE(out_machine);
  QN_STRUCT_CLEAR(qn_machine_t, out_machine);
  QN_REQUIRE(target);
  qn_machine_t machine;
  qn__lower_machine(target, &machine);
  QN_STRUCT_WRITE(out_machine, machine);
  return QN_OK;
}

// Returns the largest power of two that is at most 256 and at most the threads of a block.
static uint32_t preferred_threads(uint32_t max_threads) {
  uint32_t threads = 1;
  while (threads < 256 && threads * 2 <= max_threads) threads *= 2;
  return threads;
}

qn__pass_options_t qn__lower_pass_options(const qn_machine_t* machine, qn_tier_t tier,
                                          bool is_checked) {
  return (qn__pass_options_t){
      .vector_bytes = machine->vector_bytes ? machine->vector_bytes : 16,
      .has_masked_memory = machine->has_masked_memory,
      .has_masked_words = machine->has_masked_words,
      .is_checked = is_checked,
      .has_blocks = tier != QN_TIER_FAST,
      .l1_bytes = machine->l1_cache_bytes,
      .l2_bytes = machine->l2_cache_bytes,
      .has_fma = machine->has_fma,
      .wide_multiplies = machine->wide_multiplies,
      .warp_size = machine->warp_size,
      .max_threads = machine->max_threads,
      .preferred_threads = machine->max_threads ? preferred_threads(machine->max_threads) : 0,
      .max_shared_bytes = machine->max_shared_bytes,
      .access_bytes = machine->access_bytes,
      .multiprocessors = machine->multiprocessors,
      .has_shuffles = machine->has_shuffles,
      .has_block_reductions = machine->has_block_reductions,
  };
}
