// jit/shaderc/controls.h: execution modes of floating point for 64 bits, which glslang drops.
//
// A kernel's text asks for each mode of SPV_KHR_float_controls by width; glslang keeps one width a
// mode, the last, with its capability and the extension. What it dropped is one instruction more.
// Thread rule: pure. Read next: controls.c.
#ifndef QUERN_JIT_SHADERC_CONTROLS_H_
#define QUERN_JIT_SHADERC_CONTROLS_H_

#include "base/buffer.h"
#include "quern/target.h"

enum { QN__SHADERC_MAX_MODES = 3 };

typedef struct qn__shaderc_modes {
  uint32_t numbers[QN__SHADERC_MAX_MODES];
  uint32_t count;
} qn__shaderc_modes_t;

// The modes that the target's device has for 64 bits.
qn__shaderc_modes_t qn__shaderc_modes_of_f64(const qn_target_t* target);
// Appends the module of `words` to `out`, with the modes that it lacks. As it is, if it has no f64
// or is not as glslang writes one.
void qn__shaderc_modes_append(qn_span_t words, const qn__shaderc_modes_t* modes, qn__buffer_t* out);

#endif  // QUERN_JIT_SHADERC_CONTROLS_H_
