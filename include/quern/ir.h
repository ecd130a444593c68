// SPDX-License-Identifier: Apache-2.0
// quern/ir.h: modules as a whole, and building them without text. docs/ir.md describes the
// language, read.h has the walk over what functions compute.
#ifndef QUERN_IR_H_
#define QUERN_IR_H_

#include "quern/quern.h"

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------ dtypes
//
// A dtype is the type of an element or a scalar. An operator has a rule for its operands' dtypes.

// Returns the name of a dtype, such as "f32"; "none" for values that are no dtype. Static storage.
QN_API const char* qn_dtype_text(qn_dtype_t dtype);
// Returns the bytes that hold one element (bool: 1); 0 for values that are no dtype.
QN_API size_t qn_dtype_size_bytes(qn_dtype_t dtype);
// Returns the bits of one element in memory (bool: 8); 0 for values that are no dtype. Two elements
// of 4 bits share a byte: the one with the even index along the last dimension is in its lower
// half.
QN_API size_t qn_dtype_size_bits(qn_dtype_t dtype);
// Returns the dtype of a name; NONE if no dtype has it.
QN_API qn_dtype_t qn_dtype_parse(const char* text);

// An operator of the language.
typedef enum qn_op {
  QN_OP_NONE = 0,
#define QN_OP(name, value, text, arity, rule, syntax, doc) QN_OP_##name = value,
#include "quern/ops.inc"
#undef QN_OP
  QN_OP_COUNT
} qn_op_t;

// ------------------------------------------------------------------------------------ reading
//
// The canonical bytes of a module are versioned and little-endian. They are equal for modules that
// differ only in layout, comments and names of locals. The functions of a module have the order of
// its text.

// Reads a module from its canonical bytes, which are copied. Any bytes are safe to pass. `options`
// may be NULL. `*out_module` is owned: qn_module_release. Errors: DATA_LOSS (bytes that are not
// canonical), INVALID_MODULE (they break a rule of the language), INVALID_ARGUMENT (options),
// OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_module_decode(const void* data, size_t size,
                                                const qn_parse_options_t* options,
                                                qn_module_t** out_module);

// Makes a module in which numbers stand for `count` symbols and integer scalars, so that a compiler
// knows them. A name, such as "d", means the symbol or scalar of all functions that have it;
// "attention.d" that of one function. The numbers are i64; of u64 they end at 2^63 - 1.
//
// A symbol becomes a constant: f32[n, d] is f32[n, 128]. A scalar stays a parameter, `d: i64 =
// 128`. So the result takes the calls of `module`, and refuses those with other values. Its
// canonical bytes are those of the text with the numbers written in, except that extents of
// parameters are computed. A text that is no module without its numbers has qn_parse_options_t.set.
//
// `*out_module` is owned: qn_module_release. Errors: NOT_FOUND (a name that no function has, with
// the nearest one), INVALID_ARGUMENT (a name that is given twice, a negative symbol, a value that
// the scalar's dtype cannot hold, another value than a fixed scalar has), INVALID_MODULE (the
// result breaks a rule of the language, such as the limit of local memory), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_module_specialize(const qn_module_t* module,
                                                    const char* const* names, const int64_t* values,
                                                    size_t count, qn_module_t** out_module);

// Prints the canonical text, terminated. `*out_text` is owned: qn_text_free. `out_size` may be
// NULL. Errors: OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_module_print(const qn_module_t* module, char** out_text,
                                               size_t* out_size);
// Lays a text out in the canonical way, terminated. Comments, names, parentheses and the spelling
// of literals stay. The text must follow the grammar; its names and dtypes need not fit. Formatting
// the result again changes nothing. `options` (as for qn_module_parse) and `out_size` may be NULL.
// `*out_text` is owned: qn_text_free. Errors: SYNTAX (with the rendered diagnostics),
// INVALID_ARGUMENT (options), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_text_format(const char* text, size_t size,
                                              const qn_parse_options_t* options, char** out_text,
                                              size_t* out_size);
// As qn_text_format, and writes the dtype of each value of a let for which the text has none: `let
// v = x[0];` becomes `let v: f32 = x[0];`. The text must be one that the parser reads, of the same
// digest before and after. Errors: those of qn_text_format; SYNTAX also for mistakes of names and
// dtypes.
QN_API QN_MUST_USE qn_status_t qn_text_format_types(const char* text, size_t size,
                                                    const qn_parse_options_t* options,
                                                    char** out_text, size_t* out_size);
// Frees a text that a function of this header gave.
QN_API void qn_text_free(char* text);

// Returns the canonical bytes. Borrowed until the module is released.
QN_API const void* qn_module_bytes(const qn_module_t* module, size_t* out_size);
// Returns the XXH3-128 of the canonical bytes, 16 bytes. Borrowed until the module is released.
QN_API const uint8_t* qn_module_digest(const qn_module_t* module);

// Returns how many functions the module has.
QN_API size_t qn_module_function_count(const qn_module_t* module);
// Returns the name of a function; NULL beyond the count. Borrowed until the module is released.
QN_API const char* qn_module_function_name(const qn_module_t* module, size_t index);
// Returns the signature of a function, such as "softmax(x: f32[n, m], out y: f32[n, m])"; NULL
// beyond the count. Borrowed until the module is released.
QN_API const char* qn_module_function_signature(const qn_module_t* module, size_t index);
// Returns how many parameters a function has; 0 beyond the count of functions.
QN_API size_t qn_module_function_param_count(const qn_module_t* module, size_t index);

// What a function does with a buffer.
typedef enum qn_access {
  QN_ACCESS_NONE = 0,
  QN_ACCESS_IN = 1,
  QN_ACCESS_OUT = 2,
  QN_ACCESS_INOUT = 3,
} qn_access_t;

// A buffer: a parameter, an allocation, a table or a view. Of a builder or of a module (read.h).
typedef struct qn_buffer qn_buffer_t;
// A variable of a module (read.h).
typedef struct qn_var qn_var_t;

// What a caller must pass for one parameter.
typedef struct qn_param_info {
  size_t struct_size;         // sizeof(qn_param_info_t)
  const char* name;           // borrowed from the module
  bool is_buffer;             // else a scalar
  qn_dtype_t dtype;           // of the scalar, or of the buffer's elements
  qn_access_t access;         // buffers
  uint32_t rank;              // buffers
  uint32_t align_bytes;       // buffers; at least the dtype's size
  bool is_fixed;              // scalars: each call must pass fixed_value
  int64_t fixed_value;        // 0 unless is_fixed
  const qn_buffer_t* buffer;  // buffers: its handle (read.h), borrowed from the module; else NULL
  const qn_var_t* scalar;     // scalars: likewise
} qn_param_info_t;
// Describes one parameter of a function. Errors: INVALID_ARGUMENT (an index beyond the counts).
QN_API QN_MUST_USE qn_status_t qn_module_param_info(const qn_module_t* module,
                                                    size_t function_index, size_t param_index,
                                                    qn_param_info_t* out_info);

// Returns how many symbols the shapes and strides of a function have; 0 beyond the count of
// functions.
QN_API size_t qn_module_function_symbol_count(const qn_module_t* module, size_t index);
// Returns the name of a symbol, in the order in which the parameters show them; NULL beyond the
// counts. Borrowed until the module is released.
QN_API const char* qn_module_symbol_name(const qn_module_t* module, size_t function_index,
                                         size_t symbol_index);
// Computes the shape of a buffer parameter for values of the symbols, one for each symbol of the
// function. Shapes with scalars need qn_module_infer_shapes. `out_shape` has room for the
// parameter's rank. Errors: INVALID_ARGUMENT (no such buffer), VALUE_ERROR (an extent is negative
// or cannot be computed), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_module_param_shape(const qn_module_t* module,
                                                     size_t function_index, size_t param_index,
                                                     const int64_t* symbols, int64_t* out_shape);
// Prints the expression of one extent of a buffer parameter, such as "n + 2", terminated. `dim` is
// from 0. `*out_text` is owned: qn_text_free. Errors: INVALID_ARGUMENT (no such buffer or
// dimension), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_module_param_extent_text(const qn_module_t* module,
                                                           size_t function_index,
                                                           size_t param_index, uint32_t dim,
                                                           char** out_text);
// Prints the expression of one stride of a buffer parameter, in elements. `*out_text` is owned:
// qn_text_free. It is NULL, without an error, where the parameter declares no strides: it is
// row-major. Errors: those of qn_module_param_extent_text.
QN_API QN_MUST_USE qn_status_t qn_module_param_stride_text(const qn_module_t* module,
                                                           size_t function_index,
                                                           size_t param_index, uint32_t dim,
                                                           char** out_text);
// Computes the shapes and strides of all buffers of a call from the arguments that exist, so that a
// binding can allocate the others, such as those of `out` parameters. `args` has one value for each
// parameter:
//
//   NONE       A buffer that does not exist: its shape and strides are computed. A scalar that is
//              fixed, or that no shape needs.
//   TENSOR     A buffer that exists. Only ndim, shape and strides are read, and whether data is
//              NULL: without data and strides the tensor is a shape alone, whose strides are
//              computed.
//   INT, ...   A scalar.
//
// Where `out_shapes[i]` is not NULL, it has room for the rank of parameter i and receives its
// extents. `out_strides`, which may be NULL, receives strides in the same way, in elements. A
// stride that is a symbol without a value is chosen so that elements do not overlap:
// `strides [s, 1]` is row-major, `strides [1, s]` column-major. After an error both are unchanged.
//
// The call itself checks dtypes, devices, memory and row-major strides. Errors: INVALID_ARGUMENT
// (an index beyond the count of functions); TYPE_ERROR (count of arguments, type, rank) and
// VALUE_ERROR (extents or strides that disagree; an expression that needs a symbol or scalar that
// no argument gives, that is negative or overflows; a size in bytes that overflows), which name the
// function, the argument and the expression; OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_module_infer_shapes(const qn_module_t* module,
                                                      size_t function_index, const qn_value_t* args,
                                                      size_t arg_count, int64_t* const* out_shapes,
                                                      int64_t* const* out_strides);
// Computes the values of a function's symbols from the arguments that exist, as a call does.
// `args` is that of qn_module_infer_shapes. `out_symbols` has room for all symbols and receives -1
// for those that no argument gives; after an error it is unchanged. Errors: those of
// qn_module_infer_shapes, but none of shapes that would be computed.
QN_API QN_MUST_USE qn_status_t qn_module_infer_symbols(const qn_module_t* module,
                                                       size_t function_index,
                                                       const qn_value_t* args, size_t arg_count,
                                                       int64_t* out_symbols);

// What one call of a function does, as its text says and whatever a compiler makes of it. An
// operation is an addition, subtraction, multiplication, division, min, max, square root, bit
// operation, or one step of a reduction; fma is two. Comparisons, conversions, selections, changes
// of sign and rounding are none. Counts are exact up to 2^53.
typedef struct qn_work {
  size_t struct_size;   // sizeof(qn_work_t)
  double flops;         // operations on floats
  double integer_ops;   // operations on integers, except in indices, ranges and conditions
  double calls;         // exp, tanh and other functions that take many instructions
  double loaded_bytes;  // by all loads of parameters
  double stored_bytes;  // by all stores to parameters
  // Least bytes between memory and a cache that holds everything: of each parameter its bytes
  // loaded and stored, but each at most the size of the parameter.
  double moved_bytes;
  qn_dtype_t dtype;  // of most operations; NONE if there are none
  // False: an upper bound, because a condition depends on values that the call computes. Of its
  // arms the one with more work is counted.
  bool is_exact;
} qn_work_t;
// Counts the work of a call with these arguments, without running it. Elements of `in` tensors in
// host memory are read where they decide what runs. `warp_size` is that of the target; 0: unknown.
// Takes time in proportion to the iterations that differ from each other, a second at most. Errors:
// INVALID_ARGUMENT (an index beyond the counts, arguments that do not fit), UNSUPPORTED (how often
// a loop runs is only known at the call, or counting takes too long), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_module_work(const qn_module_t* module, size_t function_index,
                                              const qn_value_t* args, size_t arg_count,
                                              int64_t warp_size, qn_work_t* out_work);

// ------------------------------------------------------------------------------------ builder
//
// A builder makes one module. Its calls do not fail one by one: the first mistake sticks, later
// calls do nothing and return NULL, and qn_builder_finish reports it. One thread at a time uses a
// builder. Expressions and buffers are borrowed until the builder is finished or destroyed, and may
// be used many times, unless their comment says otherwise.
//
//   qn_builder_create((qn_allocator_t){0}, &builder);
//   qn_build_function(builder, "twice");
//   qn_expr_t* n = qn_build_symbol(builder, "n");
//   qn_buffer_t* x = qn_build_buffer_param(builder, "x", QN_ACCESS_INOUT, QN_DTYPE_F32, 1, &n,
//                                          NULL, 0);
//   qn_expr_t* zero = qn_build_int(builder, QN_DTYPE_I64, 0);
//   qn_expr_t* i = qn_build_loop(builder, QN_LOOP_PARALLEL, "i", zero, n);
//   qn_expr_t* value = qn_build_load(builder, x, 1, &i);
//   qn_build_store(builder, x, 1, &i, qn_build_op(builder, QN_OP_ADD, value, value, NULL));
//   qn_build_end(builder);  // the loop
//   qn_build_end(builder);  // the function
//   qn_builder_finish(builder, &module);

// Makes modules.
typedef struct qn_builder qn_builder_t;
// An expression, which has a value of one dtype. Of a builder or of a module (read.h).
typedef struct qn_expr qn_expr_t;

// How a loop runs (docs/ir.md).
typedef enum qn_loop_kind {
  QN_LOOP_SERIAL = 1,
  QN_LOOP_PARALLEL = 2,
  QN_LOOP_VECTOR = 3,
  QN_LOOP_UNROLL = 4,
  QN_LOOP_BLOCK_X = 5,
  QN_LOOP_BLOCK_Y = 6,
  QN_LOOP_BLOCK_Z = 7,
  QN_LOOP_THREAD_X = 8,
  QN_LOOP_THREAD_Y = 9,
  QN_LOOP_THREAD_Z = 10,
} qn_loop_kind_t;
// Where the elements of a buffer are.
typedef enum qn_scope {
  QN_SCOPE_PARAM = 0,   // an argument of the call
  QN_SCOPE_LOCAL = 1,   // one thread
  QN_SCOPE_SHARED = 2,  // the threads of a block
  QN_SCOPE_GLOBAL = 3,  // all threads: workspace of the call
  QN_SCOPE_CONST = 4,   // a read-only table that is part of the code
  QN_SCOPE_VIEW = 5,    // those of another buffer
} qn_scope_t;
// How a reduction combines its values.
typedef enum qn_reduce_kind {
  QN_REDUCE_SUM = 1,
  QN_REDUCE_PROD = 2,
  QN_REDUCE_MIN = 3,
  QN_REDUCE_MAX = 4,
} qn_reduce_kind_t;
// What a statement leaves early.
typedef enum qn_leave {
  QN_LEAVE_BREAK = 1,     // the innermost loop, a `for` or `while`
  QN_LEAVE_CONTINUE = 2,  // this iteration of the innermost loop
  QN_LEAVE_RETURN = 3,    // the function
} qn_leave_t;
// How an atomic operation changes an element.
typedef enum qn_atomic_op {
  QN_ATOMIC_ADD = 1,
  QN_ATOMIC_MIN = 2,
  QN_ATOMIC_MAX = 3,
  QN_ATOMIC_AND = 4,
  QN_ATOMIC_OR = 5,
  QN_ATOMIC_XOR = 6,
  QN_ATOMIC_EXCHANGE = 7,
  QN_ATOMIC_CAS = 8,
  QN_ATOMIC_LOAD = 9,
  QN_ATOMIC_STORE = 10,
} qn_atomic_op_t;

// Makes a builder. `allocator` zero: the default one. `*out_builder` is owned: qn_builder_finish or
// qn_builder_destroy. Errors: OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_builder_create(qn_allocator_t allocator,
                                                 qn_builder_t** out_builder);
// Verifies and gives the module. Consumes the builder, also after an error. `*out_module` is owned:
// qn_module_release. Errors: INVALID_ARGUMENT (the first mistake of any call, with the name of the
// call), INVALID_MODULE (the module breaks a rule of the language), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_builder_finish(qn_builder_t* builder, qn_module_t** out_module);
// Fixes a symbol or an integer scalar, as qn_module_specialize does, when the builder is finished:
// the shapes of local and shared memory may use it. `name` is copied. A function may be open.
QN_API void qn_build_set(qn_builder_t* builder, const char* name, int64_t value);
// Destroys an unfinished builder.
QN_API void qn_builder_destroy(qn_builder_t* builder);

// ------------------------------------------------------------------------------------ functions
//
// A function is opened, gets its parameters and then its body, and is closed by qn_build_end.

// Opens a function.
QN_API void qn_build_function(qn_builder_t* builder, const char* name);
// Lets floats of the open function be reassociated and contracted (docs/ir.md, "fast").
QN_API void qn_build_fast(qn_builder_t* builder);
// Returns a symbol for shapes: an i64 that a call binds from the first argument that shows it. The
// same name gives the same symbol.
QN_API qn_expr_t* qn_build_symbol(qn_builder_t* builder, const char* name);
// Adds a scalar parameter and returns its value.
QN_API qn_expr_t* qn_build_scalar_param(qn_builder_t* builder, const char* name, qn_dtype_t dtype);
// Adds a buffer parameter. `shape` has `rank` i64 extents. `strides` has as many, in elements, or
// is NULL: row-major. `align_bytes` 0: the dtype's own alignment.
QN_API qn_buffer_t* qn_build_buffer_param(qn_builder_t* builder, const char* name,
                                          qn_access_t access, qn_dtype_t dtype, size_t rank,
                                          qn_expr_t* const* shape, qn_expr_t* const* strides,
                                          uint32_t align_bytes);
// Closes the open function as one with a value, which qn_build_call calls. It has scalar parameters
// and lets only, and is no function of the module.
QN_API void qn_build_return(qn_builder_t* builder, qn_expr_t* value);
// Closes the innermost open block, or the function.
QN_API void qn_build_end(qn_builder_t* builder);

// ------------------------------------------------------------------------------------ statements
//
// A statement is added to the innermost open block. A loop, a while and an if open a block, which
// qn_build_end closes. `name` may be NULL, except for functions and parameters. Elements are
// addressed by one index of any integer dtype for each dimension.

// Opens a loop over [begin, end), both i64, and returns its variable (i64).
QN_API qn_expr_t* qn_build_loop(qn_builder_t* builder, qn_loop_kind_t kind, const char* name,
                                qn_expr_t* begin, qn_expr_t* end);
// Opens a loop that runs while the condition (bool) holds.
QN_API void qn_build_while(qn_builder_t* builder, qn_expr_t* condition);
// Opens a block that runs if the condition (bool) holds.
QN_API void qn_build_if(qn_builder_t* builder, qn_expr_t* condition);
// Closes the block of the innermost if, and opens its else block.
QN_API void qn_build_else(qn_builder_t* builder);
// Computes a value here, once, and returns it.
QN_API qn_expr_t* qn_build_let(qn_builder_t* builder, const char* name, qn_expr_t* value);
// Stores a value of the buffer's dtype.
QN_API void qn_build_store(qn_builder_t* builder, qn_buffer_t* buffer, size_t rank,
                           qn_expr_t* const* indices, qn_expr_t* value);
// Changes an element atomically and returns its old value; NULL for STORE. `operand` is NULL for
// LOAD. `operand2` is for CAS (the new value; `operand` is the expected one), and else NULL.
QN_API qn_expr_t* qn_build_atomic(qn_builder_t* builder, qn_atomic_op_t op, qn_buffer_t* buffer,
                                  size_t rank, qn_expr_t* const* indices, qn_expr_t* operand,
                                  qn_expr_t* operand2);
// Allocates a row-major buffer of scope LOCAL, SHARED or GLOBAL, not zeroed, until the end of the
// block. `shape` has `rank` i64 extents.
QN_API qn_buffer_t* qn_build_alloc(qn_builder_t* builder, const char* name, qn_scope_t scope,
                                   qn_dtype_t dtype, size_t rank, qn_expr_t* const* shape);
// Makes a read-only table. `elements` are literals of the dtype (qn_build_int, qn_build_float,
// qn_build_bool), row-major.
QN_API qn_buffer_t* qn_build_const(qn_builder_t* builder, const char* name, qn_dtype_t dtype,
                                   size_t rank, const int64_t* shape, size_t element_count,
                                   qn_expr_t* const* elements);
// Makes a view of `base` that begins at its element `indices` and has its own i64 `shape` and
// `strides` (NULL: row-major).
QN_API qn_buffer_t* qn_build_view(qn_builder_t* builder, const char* name, qn_buffer_t* base,
                                  size_t base_rank, qn_expr_t* const* indices, size_t rank,
                                  qn_expr_t* const* shape, qn_expr_t* const* strides);
// Synchronises the threads of a block.
QN_API void qn_build_barrier(qn_builder_t* builder);
// Leaves a loop, an iteration or the function. It is the last statement of its block.
QN_API void qn_build_leave(qn_builder_t* builder, qn_leave_t kind);
// Orders the thread's accesses before it before those after it, as other blocks see them.
QN_API void qn_build_fence(qn_builder_t* builder);
// Stops the function with ASSERTION and the message if the condition (bool) does not hold.
QN_API void qn_build_assert(qn_builder_t* builder, qn_expr_t* condition, const char* message);

// ------------------------------------------------------------------------------------ expressions
//
// An expression has one dtype. Operands must be expressions of the same builder.

// Makes an integer literal, which must fit the dtype. u64 takes the bits of any value.
QN_API qn_expr_t* qn_build_int(qn_builder_t* builder, qn_dtype_t dtype, int64_t value);
// Makes a float literal, rounded to the dtype, whose range it must not exceed.
QN_API qn_expr_t* qn_build_float(qn_builder_t* builder, qn_dtype_t dtype, double value);
// Makes a bool literal.
QN_API qn_expr_t* qn_build_bool(qn_builder_t* builder, bool value);
// Loads an element.
QN_API qn_expr_t* qn_build_load(qn_builder_t* builder, qn_buffer_t* buffer, size_t rank,
                                qn_expr_t* const* indices);
// Applies an operator of ops.inc. Operands beyond its arity are NULL (all three for warp_size).
QN_API qn_expr_t* qn_build_op(qn_builder_t* builder, qn_op_t op, qn_expr_t* a, qn_expr_t* b,
                              qn_expr_t* c);
// Converts a value. Float to integer truncates and saturates, and NaN gives 0. An integer wraps to
// a narrower one. To bool is `!= 0`.
QN_API qn_expr_t* qn_build_cast(qn_builder_t* builder, qn_dtype_t dtype, qn_expr_t* value);
// Takes the bits of a value as those of another dtype of the same size.
QN_API qn_expr_t* qn_build_bitcast(qn_builder_t* builder, qn_dtype_t dtype, qn_expr_t* value);
// Evaluates `condition ? a : b`: of `a` and `b`, which have one dtype, only one is evaluated.
QN_API qn_expr_t* qn_build_cond(qn_builder_t* builder, qn_expr_t* condition, qn_expr_t* a,
                                qn_expr_t* b);
// Calls a function that qn_build_return closed, with one value of the dtype of each parameter, and
// returns its value. The call is expanded here: arguments and lets are computed where qn_build_let
// would compute them, and the module is the same as one without the call.
QN_API qn_expr_t* qn_build_call(qn_builder_t* builder, const char* name, size_t count,
                                qn_expr_t* const* args);
// The axes of a reduction over threads: an i64 literal that is a sum of these is the second operand
// of QN_OP_AXIS_SUM, QN_OP_AXIS_MIN and QN_OP_AXIS_MAX.
typedef enum qn_axis {
  QN_AXIS_X = 1,
  QN_AXIS_Y = 2,
  QN_AXIS_Z = 4,
} qn_axis_t;
// Opens a reduction over [begin, end), both i64, and returns its variable (i64). Until
// qn_build_reduce_end only lets may follow, which belong to it. Its order is unspecified.
QN_API qn_expr_t* qn_build_reduce(qn_builder_t* builder, qn_reduce_kind_t kind, const char* name,
                                  qn_expr_t* begin, qn_expr_t* end);
// Closes the innermost reduction over `value` (an integer or a float), and returns the result,
// which may be used in one place.
QN_API qn_expr_t* qn_build_reduce_end(qn_builder_t* builder, qn_expr_t* value);
// Opens a reduction of several values or a scan over [begin, end), both i64, and returns its
// variable (i64).
// It is a statement. Only lets may follow until qn_build_several_values or qn_build_several_best.
QN_API qn_expr_t* qn_build_several(qn_builder_t* builder, const char* name, qn_expr_t* begin,
                                   qn_expr_t* end);
// Gives the `count` values of an iteration (1 to 8) and the initial ones, of the same dtypes, and
// opens the combiner. `out_left` and `out_right`, of `count`, receive its operands. Only lets may
// follow until qn_build_several_end or qn_build_scan. The combiner of a reduction is associative
// and commutative, and an initial value combined with another one gives that one.
QN_API void qn_build_several_values(qn_builder_t* builder, size_t count, qn_expr_t* const* values,
                                    qn_expr_t* const* initial, qn_expr_t** out_left,
                                    qn_expr_t** out_right);
// Closes the combiner and the reduction. `combined` is what the combiner makes of its operands;
// `out_results` receives the results. Both have as many elements as there are values.
QN_API void qn_build_several_end(qn_builder_t* builder, qn_expr_t* const* combined,
                                 qn_expr_t** out_results);
// Closes the combiner of a scan, which has the running values in each iteration, and opens the body
// that uses them; qn_build_end closes it. `combined` is as for qn_build_several_end. A scan needs
// an associative combiner only: it combines the initial values with those of the range from its
// begin to the iteration, or before it if the scan `is_exclusive`. `out_running` receives the
// running values, as many as there are values. Iterations are those of a parallel loop otherwise:
// none may load what another one stores.
QN_API void qn_build_scan(qn_builder_t* builder, bool is_exclusive, qn_expr_t* const* combined,
                          qn_expr_t** out_running);
// Closes a reduction to the smallest (kind MIN) or largest (MAX) `value` and its lowest index
// (i64).
QN_API void qn_build_several_best(qn_builder_t* builder, qn_reduce_kind_t kind, qn_expr_t* value,
                                  qn_expr_t** out_best, qn_expr_t** out_index);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_IR_H_
