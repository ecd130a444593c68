// SPDX-License-Identifier: Apache-2.0
// jit/llvm/prepared.c: chooses the compiled kernels for a target.
#include "jit/llvm/prepared.h"

#include <string.h>

enum { MIN_L1_BYTES = 32768 };  // smaller ones have shorter blocks

uint32_t qn__llvm_prepared_l2(const qn_target_t* target) {
  int64_t bytes = 0;
  if (!qn_target_get_int(target, "l2_cache_bytes", &bytes)) return 0;
  // Blocks have an eighth of it, but at most 128 KiB (ir/passes/cpu/blocks.c).
  return bytes >= 1 << 20 ? 1 << 20 : bytes == 1 << 19 ? 1 << 19 : 0;
}

const qn__llvm_prepared_t* qn__llvm_prepared_find(const qn_target_t* target) {
  int64_t l1_bytes = 0;
  if (!qn__llvm_prepared_table || strcmp(target->arch->name, "x86_64") != 0 ||
      !qn_target_get_int(target, "l1_cache_bytes", &l1_bytes) || l1_bytes < MIN_L1_BYTES) {
    return NULL;
  }
  const uint32_t vector_bytes = qn__target_vector_bytes(target);
  const uint32_t l2_bytes = qn__llvm_prepared_l2(target);
  const qn__llvm_prepared_t* row = qn__llvm_prepared_table();
  for (; row->features; ++row) {
    // With vectors of 64 bytes both kinds of processors have forms of their own.
    bool is_same = row->vector_bytes == vector_bytes && row->l2_bytes == l2_bytes &&
                   (vector_bytes < 64 ||
                    (row->wide_multiplies > 1) == (qn__target_wide_multiplies(target) > 1));
    // Without masks in registers (AVX-512) forms are others, too.
    bool has_masks = qn__target_has_masked_memory(target);
    if (is_same && !(row->features & ~target->features.bits) && has_masks == (vector_bytes >= 64)) {
      return row;
    }
  }
  return NULL;
}

uint32_t qn__llvm_prepared_set(const qn__llvm_prepared_t* prepared) {
  if (!prepared) return 0;
  return prepared->images[0].forms | prepared->images[1].forms << qn__product_forms;
}
