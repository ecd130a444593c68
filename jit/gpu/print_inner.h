// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print_inner.h: the state and functions shared by the files of the printer and its
// dialects.
//
// print.c makes texts, print_stmt.c walks statements, print_loop.c loops and launches,
// print_expr.c, print_int.c, print_float.c and print_cast.c expressions, print_index.c accesses.
// Texts live in the program's arena; a lack of memory sticks in p->status.
#ifndef QUERN_JIT_GPU_PRINT_INNER_H_
#define QUERN_JIT_GPU_PRINT_INNER_H_

#include "jit/gpu/print.h"
#include "jit/plan/nest.h"

// Lines of a text, and for each of them its line in the IR's text.
typedef struct qn__gpu_lines {
  qn__buffer_t text;
  qn__buffer_t lines;  // u32 each
} qn__gpu_lines_t;

// Values computed at a view's declaration, which later stores do not change. Texts of index type.
typedef struct qn__gpu_view {
  const char* shift;  // offset of the first element in the root buffer
  const char** strides;
} qn__gpu_view_t;

// A loop whose lanes move neighbouring elements together (print_wide.c).
typedef struct qn__gpu_wide qn__gpu_wide_t;

struct qn__gpu_printer {
  const qn__gpu_print_options_t* options;
  const qn__gpu_dialect_t* dialect;
  qn__gpu_program_t* program;
  qn__arena_t* arena;
  qn__gpu_prelude_use_t use;
  qn_status_t status;     // the first failure, sticky
  qn__gpu_lines_t begin;  // of the text: the lines of dialect->text_begin
  qn__gpu_lines_t outer;  // the outermost level of the text, after the prelude: tables, helpers
  qn__gpu_lines_t head;   // of the kernel
  qn__gpu_lines_t body;   // of the kernel
  // Declarations that the body needs; the dialect writes them into the head (qn__kprint_extra).
  qn__gpu_lines_t extra;
  uint32_t extra_shared_bytes;
  uint32_t shared_align;    // bytes; of each shared buffer of the kernel
  qn__gpu_lines_t kernels;  // finished kernels
  qn__gpu_lines_t* at;      // where qn__kprint_line appends
  uint32_t indent;
  const void* places;     // qn__ptrmap_t from a statement to its line in the IR's text; or NULL
  uint32_t ir_line;       // of the current statement
  uint32_t place;         // of the current statement or load, for the sites of its indices
  uint32_t table_count;   // names of tables are unique in the text
  uint64_t dialect_bits;  // features that the text uses; defined by the dialect

  // The current kernel.
  const qn__gpu_kernel_ir_t* kernel;
  uint32_t temp_count;
  uint32_t name_count;
  uint32_t var_count;         // of the function
  uint32_t buffer_count;      // of the function
  const char** var_names;     // by var->id; NULL: has none yet
  bool* is_nonnegative;       // by var->id
  const char** buffer_names;  // by buffer->id
  qn__gpu_view_t** views;     // by buffer->id; NULL: not declared in the kernel
  // Buffers in shared memory, in the order of their declaration.
  uint32_t shared_count;
  uint32_t shared_capacity;
  const qn__ir_buffer_t** shared;
  bool needs_barrier;   // the last thread nest has no barrier after it yet
  uint32_t loop_depth;  // number of serial and while loops around the current statement
  bool is_in_threads;   // inside a thread nest
  bool has_barrier;
  bool is_ordered;          // the kernel has a fence, an atomic load or store
  bool has_block_exchange;  // the body has a BLOCK_* operator
  bool has_fail;
  bool is_predicated;    // print_alive.c
  qn__gpu_wide_t* wide;  // print_wide.c: of the loop around; NULL: none
};

// ---- writing (print_text.c)

// Appends a line at the current indent.
void qn__kprint_line(qn__gpu_printer_t* p, const char* format, ...) QN_PRINTF(2, 3);
// Append "HEAD {" and indent; unindent and append "}".
void qn__kprint_open(qn__gpu_printer_t* p, const char* format, ...) QN_PRINTF(2, 3);
void qn__kprint_close(qn__gpu_printer_t* p);
// Moves the lines of p->extra to p->at.
void qn__kprint_extra(qn__gpu_printer_t* p);
// Formats a text in the arena. Out of memory: "", and the status is set.
const char* qn__kprint_text(qn__gpu_printer_t* p, const char* format, ...) QN_PRINTF(2, 3);
// Returns the text without its outermost parentheses.
const char* qn__kprint_bare(qn__gpu_printer_t* p, const char* text);
// Makes a name "t0", "t1", ... that is unique in the kernel.
const char* qn__kprint_temp(qn__gpu_printer_t* p);
// Marks a helper of the prelude as used and returns its name. An unknown helper is a bug
// (INTERNAL).
const char* qn__kprint_use(qn__gpu_printer_t* p, const char* name);
// Marks a helper as used and returns its call with the arguments: "HELPER(ARGS)".
const char* qn__kprint_call(qn__gpu_printer_t* p, const char* helper, const char* args);
// Returns a call of the helper qn_TO_from_FROM.
const char* qn__kprint_convert(qn__gpu_printer_t* p, qn_dtype_t to, qn_dtype_t from,
                               const char* value);
void qn__kprint_fail_status(qn__gpu_printer_t* p, qn_status_t status);  // consumed
void qn__kprint_no_memory(qn__gpu_printer_t* p);
// Sets the status to UNSUPPORTED "function 'f': MESSAGE".
void qn__kprint_unsupported(qn__gpu_printer_t* p, const char* format, ...) QN_PRINTF(2, 3);
bool qn__kprint_ok(const qn__gpu_printer_t* p);

// ---- names and types

// Return the name of a variable, symbol or scalar parameter ("v3"), or of a buffer ("b2") that is
// not a view.
const char* qn__kprint_var(qn__gpu_printer_t* p, const qn__ir_var_t* var);
const char* qn__kprint_buffer(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer);
// Return the dtype that computes values of `dtype`, and its type: "int", "float", ... `is_narrow`
// matters for i64 only.
qn_dtype_t qn__kprint_compute(qn_dtype_t dtype, bool is_narrow);
const char* qn__kprint_type(qn_dtype_t dtype, bool is_narrow);
// Returns the type of indices in this kernel: "int" or "qn_i64".
const char* qn__kprint_index_type(const qn__gpu_printer_t* p);
bool qn__kprint_is_narrow_var(const qn__gpu_printer_t* p, const qn__ir_var_t* var);
bool qn__kprint_is_narrow(const qn__gpu_printer_t* p, const qn__ir_expr_t* expr);
// Returns whether the value is certainly not negative. Variables are known after their declaration.
bool qn__kprint_is_nonnegative(const qn__gpu_printer_t* p, const qn__ir_expr_t* expr);
void qn__kprint_note_var(qn__gpu_printer_t* p, const qn__ir_var_t* var, const qn__ir_expr_t* least);
// Adds a site to the kernel's function (qn__gpu_site).
uint32_t qn__kprint_site(qn__gpu_printer_t* p, qn_artifact_site_t site);

// ---- literals of the compute types

const char* qn__kprint_int(qn__gpu_printer_t* p, qn_dtype_t dtype, bool is_narrow, int64_t value);
const char* qn__kprint_float(qn__gpu_printer_t* p, qn_dtype_t dtype, double value);
const char* qn__kprint_literal(qn__gpu_printer_t* p, qn_dtype_t dtype, bool is_narrow,
                               qn__ir_scalar_t value);

// ---- expressions

// Prints an expression; an i64 has the width that narrow.c found (qn__kprint_is_narrow). Statements
// that it needs, for reductions and checks, are written before it.
const char* qn__kprint_expr(qn__gpu_printer_t* p, const qn__ir_expr_t* expr);
// Prints an integer expression as an i64 of the given width.
const char* qn__kprint_i64(qn__gpu_printer_t* p, const qn__ir_expr_t* expr, bool is_narrow);
// Prints an expression of any dtype; an i64 has the given width.
const char* qn__kprint_value(qn__gpu_printer_t* p, const qn__ir_expr_t* expr, bool is_narrow);
// Returns whether printing the expression writes statements.
bool qn__kprint_needs_lines(const qn__gpu_printer_t* p, const qn__ir_expr_t* expr);
// Returns a name or literal for a value: itself if it is one, else a new constant.
const char* qn__kprint_name(qn__gpu_printer_t* p, const char* type, const char* text);
// Converts an int to qn_i64.
const char* qn__kprint_widen(qn__gpu_printer_t* p, const char* text);
// Converts an i64 between its two widths.
const char* qn__kprint_adapt(qn__gpu_printer_t* p, const char* text, bool is_narrow,
                             bool to_narrow);
// print_int.c: an integer operator.
const char* qn__kprint_int_op(qn__gpu_printer_t* p, const qn__ir_expr_t* expr);
// Prints an operator on two integers of the compute type that is neither a division nor a shift.
// The result is not cut to the width of dtype.
const char* qn__kprint_int_binary(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype,
                                  bool is_narrow, const char* a, const char* b);
// Prints an integer expression (`is_narrow`: of 32 bits) in the *ring* type, whose sums,
// differences and products wrap: uint or qn_u64, or int or qn_i64 if those wrap in the language.
// The second converts a value of the ring type to int or qn_i64.
const char* qn__kprint_ring(qn__gpu_printer_t* p, const qn__ir_expr_t* expr, bool is_narrow);
const char* qn__kprint_unring(qn__gpu_printer_t* p, const char* text, bool is_narrow);
// print_float.c: an operator on values of the compute type, rounded to dtype.
const char* qn__kprint_float_op(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype,
                                const char* const* args);
// Returns the step of a WARP_* or BLOCK_* reduction: ADD, MIN or MAX.
qn_op_t qn__kprint_group_step(qn_op_t op);
bool qn__kprint_is_block_op(qn_op_t op);
// Prints one step of a reduction on values of the compute type.
const char* qn__kprint_step(qn__gpu_printer_t* p, qn_op_t op, qn_dtype_t dtype, bool is_narrow,
                            const char* a, const char* b);
// print_cast.c
const char* qn__kprint_cast(qn__gpu_printer_t* p, qn_dtype_t from, bool is_from_narrow,
                            qn_dtype_t to, bool is_to_narrow, const char* value);
const char* qn__kprint_bitcast(qn__gpu_printer_t* p, qn_dtype_t from, bool is_from_narrow,
                               qn_dtype_t to, bool is_to_narrow, const char* value);
// Cuts a value of the compute type to the width of i8, i16, u8 or u16; rounds it to f16 or bf16.
const char* qn__kprint_wrap(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* value);
const char* qn__kprint_round(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* value);

// ---- accesses (print_index.c)

// Prints the linear index of an element in the root buffer, which is the buffer below all views. In
// checked builds writes the checks first.
const char* qn__kprint_index(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer,
                             qn__ir_expr_t* const* indices, const qn__ir_buffer_t** out_root);
const char* qn__kprint_load(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer,
                            qn__ir_expr_t* const* indices);
// Converts a linear index to an array index, which in GLSL has 32 bits only.
const char* qn__kprint_array_index(qn__gpu_printer_t* p, const char* index);
// Prints "if (!(CONDITION)) { fail; return; }".
void qn__kprint_require(qn__gpu_printer_t* p, const char* condition, uint32_t site,
                        const char* index, const char* extent, bool is_wide);
// Prints the values that the declaration of a view computes.
void qn__kprint_view(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer);
// Returns the number of elements of a buffer of constant shape (local, shared, const).
int64_t qn__kprint_element_count(const qn__ir_buffer_t* buffer);

// ---- wide accesses (print_wide.c)

// Loads the runs of a VECTOR loop or reduction; the lanes then read the arrays. Returns false if
// nothing was written. Otherwise call qn__kprint_wide_end after the loop.
bool qn__kprint_wide_loop(qn__gpu_printer_t* p, const qn__ir_stmt_t* loop);
bool qn__kprint_wide_reduce(qn__gpu_printer_t* p, const qn__ir_expr_t* expr);
void qn__kprint_wide_end(qn__gpu_printer_t* p);
// Returns the element from its run's array, as a value of the compute type; NULL if it has none.
const char* qn__kprint_wide_load(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer,
                                 qn__ir_expr_t* const* indices);
// Stores into the array of the element's run; the run is stored to memory after the last lane.
// Returns false if the element is in no run: the caller then stores it.
bool qn__kprint_wide_store(qn__gpu_printer_t* p, const qn__ir_stmt_t* store, const char* value);

// ---- failed threads (print_alive.c)

// Sets p->is_predicated: whether failed threads of the kernel continue. If so, declares qn_alive.
void qn__kprint_begin_alive(qn__gpu_printer_t* p);
// Make an index or a value zero in a failed thread. They return the text itself in kernels whose
// failed threads return.
const char* qn__kprint_alive_index(qn__gpu_printer_t* p, const char* index);
const char* qn__kprint_alive_value(qn__gpu_printer_t* p, qn_dtype_t dtype, const char* value);
// Returns whether a `while` ends for a failed thread.
bool qn__kprint_can_end_alone(const qn__gpu_printer_t* p, const qn__ir_stmt_t* loop);

// ---- atomics (print_atomic.c)

// Returns the value that an atomic stores, from the old one and the operands (NULL: none).
const char* qn__kprint_atomic_next(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt, const char* old,
                                   const char* operand, const char* operand2);
// A word that holds an element which is changed by compare-and-swap.
typedef struct qn__gpu_swap {
  const char* word_type;
  const char* word;      // the first argument of `function`
  const char* function;  // compares and swaps
  const char* first;     // loads the word
  const char* shift;     // of the element in the word; NULL: it is the whole word
  // Return the element in a word, as a value of the compute type, and the word with another one.
  const char* (*value_of)(qn__gpu_printer_t* p, const struct qn__gpu_swap* swap, const char* word);
  const char* (*word_with)(qn__gpu_printer_t* p, const struct qn__gpu_swap* swap, const char* word,
                           const char* value);
  const qn__ir_buffer_t* buffer;
} qn__gpu_swap_t;
// Prints an atomic as a loop that ends when no other thread has changed the word meanwhile.
void qn__kprint_swap_loop(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt,
                          const qn__gpu_swap_t* swap, const char* operand, const char* operand2,
                          const char* old);

// ---- statements (print_stmt.c, print_loop.c)

void qn__kprint_block(qn__gpu_printer_t* p, const qn__ir_block_t* block);
void qn__kprint_let(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt);
void qn__kprint_atomic(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt);
// Prints the table of a CONST buffer, once for each text.
void qn__kprint_table(qn__gpu_printer_t* p, const qn__ir_buffer_t* buffer);
void qn__kprint_loop(qn__gpu_printer_t* p, const qn__ir_stmt_t* stmt);
void qn__kprint_barrier(qn__gpu_printer_t* p);
// Prints the body of a kernel: the block loops and their contents.
void qn__kprint_launch(qn__gpu_printer_t* p);

#endif  // QUERN_JIT_GPU_PRINT_INNER_H_
