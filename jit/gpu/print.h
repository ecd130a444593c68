// jit/gpu/print.h: kernels as text of a C-like language. One printer walks the IR; a dialect says
// what differs between CUDA C and GLSL.
//
// The common ground: expressions, statements, loops and integer helpers are spelled alike in both,
// with type names and built-in functions from the dialect, and helper functions from the prelude
// (prelude.h), of which only those that are used are written. f16 and bf16 are loaded as their
// bits, computed as f32 and rounded to their bits when stored and after each operation. Thread
// rule: one thread per printer. Read next: print.c, then cuda.c and glsl.c.
#ifndef QUERN_JIT_GPU_PRINT_H_
#define QUERN_JIT_GPU_PRINT_H_

#include "base/buffer.h"
#include "jit/gpu/prelude.h"
#include "jit/gpu/program.h"

typedef struct qn__printer qn__printer_t;

// What differs. Members that write append to printer->body (see print_inner.h) and never fail by
// themselves.
typedef struct qn__dialect {
  const char* name;  // "cuda", "glsl"
  bool is_glsl;
  // The kernel's head (parameters, bindings, shared memory, constants of the launch) and its foot.
  void (*kernel_begin)(qn__printer_t* printer);
  void (*kernel_end)(qn__printer_t* printer);
  // Element `index_text` of a buffer as a value of the compute type, and a store of one.
  void (*load)(qn__printer_t* printer, const qn__buf_t* buffer, const char* index_text);
  void (*store)(qn__printer_t* printer, const qn__buf_t* buffer, const char* index_text,
                const char* value_text);
  // An atomic statement; `old` NULL when the old value is not used. False: the target cannot; the
  // printer makes the status.
  bool (*atomic)(qn__printer_t* printer, const qn__stmt_t* stmt, const char* index_text,
                 const char* operand, const char* operand2, const char* old);
  // LANE and WARP_* operators on a value of the compute type.
  bool (*exchange)(qn__printer_t* printer, qn_op_t op, qn_dtype_t dtype, const char* value,
                   const char* lane, const char* result);
  void (*barrier)(qn__printer_t* printer);
} qn__dialect_t;

extern const qn__dialect_t qn__dialect_cuda;
extern const qn__dialect_t qn__dialect_glsl;

typedef struct qn__print_options {
  const qn__dialect_t* dialect;
  qn__gpu_program_t* program;
  // What the target has beyond the least: the GLSL dialect writes its extensions by these.
  const qn_target_t* target;
  bool has_native_fma;  // fma() is fused
  bool is_fast_tier;
} qn__print_options_t;

// A whole text that compiles: prelude, then the kernels [first, first + count). CUDA prints all
// kernels of a program in one text, GLSL one a text. Also fills `shared_bytes` and
// `dynamic_shared_bytes` of their plans. `out_lines`: for each line of the text the line of the
// mapped module's text (--emit ir) that it comes from, 0 where none; may be NULL. Errors:
// UNSUPPORTED, OUT_OF_MEMORY.
qn_status_t qn__print_kernels(const qn__print_options_t* options, uint32_t first, uint32_t count,
                              qn__buffer_t* out, qn__buffer_t* out_lines);

#endif  // QUERN_JIT_GPU_PRINT_H_
