// SPDX-License-Identifier: Apache-2.0
// ir/shapes.h: the shapes of a call's buffers, of which some do not exist yet (infer_shapes.c), and
// the message about an argument that is wrong.
#ifndef QUERN_IR_SHAPES_H_
#define QUERN_IR_SHAPES_H_

#include "ir/ir.h"

// Returns whether a stride of a tensor says where elements are: it has several along the dimension.
static inline bool qn__stride_counts(const qn_tensor_t* tensor, uint32_t d) {
  for (int32_t i = 0; i < tensor->ndim; i++) {
    if (tensor->shape[i] == 0) return false;
  }
  return tensor->shape[d] != 1;
}

// Returns a status of `code` that begins with "saxpy(...): argument 1 'x': ".
qn_status_t qn__wrong_argument(const qn__ir_func_t* function, uint32_t index, qn_status_code_t code,
                               const char* format, ...) QN_PRINTF(4, 5);

// Does what qn_module_infer_shapes says. `allocator` is for the call.
qn_status_t qn__infer_shapes(const qn__ir_func_t* function, qn_allocator_t allocator,
                             const qn_value_t* args, size_t count, int64_t* const* out_shapes,
                             int64_t* const* out_strides);

#endif  // QUERN_IR_SHAPES_H_
