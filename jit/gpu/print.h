// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print.h: prints kernels as CUDA C or GLSL. One printer walks the IR; a *dialect* is a
// table of functions for the differences between the two languages.
//
// Expressions, statements, loops and integer helpers are spelled alike in both. Types and built-in
// functions have common names, which the prelude (prelude.h) defines as macros; a text contains the
// helper functions that it uses and no others. f16 and bf16 are loaded as their bits, computed as
// f32 and rounded after each operation. Read next: print_inner.h, print.c, then cuda.c and glsl.c.
#ifndef QUERN_JIT_GPU_PRINT_H_
#define QUERN_JIT_GPU_PRINT_H_

#include "base/buffer.h"
#include "jit/gpu/prelude.h"
#include "jit/plan/program.h"

typedef struct qn__gpu_printer qn__gpu_printer_t;

// Wide accesses to buffers of elements (print_wide.c). NULL: the language has none.
typedef struct qn__gpu_dialect_wide {
  // Return the type of an element in memory, convert an element to a value of the compute type, and
  // convert such a value to an element.
  const char* (*memory_type)(qn_dtype_t dtype);
  const char* (*from_memory)(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* element);
  const char* (*to_memory)(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* value);
  // Writes a statement that copies `count` elements between an array and memory, both given by a
  // pointer to the first. `is_wide`: the memory is aligned to their total size, at most 16 bytes.
  void (*move)(qn__gpu_printer_t* p, uint32_t count, bool is_wide, bool is_store, const char* to,
               const char* from);
} qn__gpu_dialect_wide_t;

// A dialect. Its functions write lines with qn__kprint_line or return a text from qn__kprint_text
// (print_inner.h); errors stick in p->status. Names of buffers and variables come from
// qn__kprint_buffer and qn__kprint_var. Values have the *compute type* of their dtype: bool; int
// for i8, i16, i32; uint for u8, u16, u32; qn_i64, qn_u64; float for f16, bf16, f32; double. An
// index is `int` in a narrow kernel (kernel->is_narrow), else `qn_i64`.
typedef struct qn__gpu_dialect {
  const char* name;  // "cuda", "glsl"
  bool is_glsl;
  bool wraps_signed;       // int arithmetic wraps in the language; else it is printed in uint
  bool needs_all_threads;  // also failed threads must reach barriers (print_alive.c)
  const char* unroll;      // the line before a loop to unroll; NULL: none
  // Returns an expression for a + b, a - b or a * b of f32 or f64 that the compiler may neither
  // contract nor reassociate. NULL: the language's operator is right. Not used in `fast` functions.
  const char* (*arithmetic)(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype, const char* a,
                            const char* b);
  // Writes the beginning of a text, before the prelude: version, extensions, compiler options.
  void (*text_begin)(qn__gpu_printer_t* p);
  // Writes the kernel's head, including its opening brace: parameters, bindings, the buffers of
  // p->shared, a variable for each scalar argument, and these constants:
  //   const uint qn_thread, qn_threads;  // this thread's index in its block; threads of the block
  //   const INDEX qn_block_first, qn_block_step;  // uint, in a wide kernel qn_u64
  // Called after the body is printed, because the head depends on the body's uses. The head tests
  // the error record: the kernel does nothing if an earlier launch has failed, that is, if the
  // record's tag is neither 0 nor this launch's.
  void (*kernel_begin)(qn__gpu_printer_t* p);
  // Writes a constant table at the text's outermost level. `type` is the compute type, but for
  // floats uint or qn_u64 with their bits (f16, bf16: the low 16). `elements` are literals with
  // commas.
  void (*table)(qn__gpu_printer_t* p, const char* name, const char* type, size_t count,
                const char* elements);
  // Return element `index` of a PARAM, GLOBAL or SHARED buffer as a value of the compute type;
  // write a statement that stores one.
  const char* (*load)(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, const char* index);
  void (*store)(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer, const char* index,
                const char* value);
  const qn__gpu_dialect_wide_t* wide;
  // Writes an atomic statement. `old` is the name of a variable that it declares with the old
  // value; NULL: unused. The operands are NULL where the operation has none. Sets the status to
  // UNSUPPORTED if the target cannot.
  void (*atomic)(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt, const char* index,
                 const char* operand, const char* operand2, const char* old);
  // Writes statements that declare `result`, the result of a LANE, WARP_* or BLOCK_* operator on a
  // value of the compute type. `lane` (LANE only) is a qn_i64, or an int if `is_narrow_lane`. Sets
  // the status to UNSUPPORTED if the target cannot.
  void (*exchange)(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype, const char* value,
                   const char* lane, bool is_narrow_lane, const char* result);
  // Writes a TENSOR statement. NULL: the mapping makes none for the target.
  void (*tensor)(qn__gpu_printer_t* p, const qn__ir_tensor_t* tensor);
  void (*barrier)(qn__gpu_printer_t* p);
  void (*fence)(qn__gpu_printer_t* p);
  // Writes the statement that fills the error record. Index and extent are both qn_i64 (`is_wide`)
  // or int. The printer then writes the return from the kernel.
  void (*fail)(qn__gpu_printer_t* p, uint32_t site, const char* index, const char* extent,
               bool is_wide);
} qn__gpu_dialect_t;

extern const qn__gpu_dialect_t qn__gpu_dialect_cuda;
extern const qn__gpu_dialect_t qn__gpu_dialect_glsl;

typedef struct qn__gpu_print_options {
  const qn__gpu_dialect_t* dialect;
  qn__gpu_program_t* program;
  // The target, whose options decide the extensions of GLSL.
  const qn_target_t* target;
  bool has_native_fma;  // fma() is fused
  bool has_int64;
  bool has_float64;
} qn__gpu_print_options_t;

// Prints a complete text: the prelude, then the kernels [first, first + count). CUDA prints all
// kernels of a program in one text, GLSL one kernel in each text. Also fills `shared_bytes` and
// `dynamic_shared_bytes` of their plans. `out_lines` (or NULL) gets a u32 for each line of the
// text: its line in the mapped module's text (--emit ir), or 0. Errors: UNSUPPORTED, OUT_OF_MEMORY.
qn_status_t qn__print_kernels(const qn__gpu_print_options_t* options, uint32_t first,
                              uint32_t count, qn__buffer_t* out, qn__buffer_t* out_lines);

#endif  // QUERN_JIT_GPU_PRINT_H_
