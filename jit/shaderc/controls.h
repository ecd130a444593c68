// SPDX-License-Identifier: Apache-2.0
// jit/shaderc/controls.h: restores the execution modes for 64-bit floats that glslang drops.
//
// A kernel's text requests each mode of SPV_KHR_float_controls for each width. glslang keeps only
// the last width of a mode, with the capability and the extension. So a dropped mode is restored by
// adding one instruction.
#ifndef QUERN_JIT_SHADERC_CONTROLS_H_
#define QUERN_JIT_SHADERC_CONTROLS_H_

#include "base/buffer.h"
#include "quern/target.h"

enum { QN__SHADERC_MAX_MODES = 3 };

typedef struct qn__shaderc_modes {
  uint32_t numbers[QN__SHADERC_MAX_MODES];
  uint32_t count;
} qn__shaderc_modes_t;

// Returns the modes that the target supports for 64-bit floats.
qn__shaderc_modes_t qn__shaderc_modes_of_f64(const qn_target_t* target);
// Appends the module of `words` to `out` and adds the modes that it lacks. Copies it unchanged if
// it has no f64 or is not of the form that glslang writes.
void qn__shaderc_modes_append(qn_span_t words, const qn__shaderc_modes_t* modes, qn__buffer_t* out);

#endif  // QUERN_JIT_SHADERC_CONTROLS_H_
