// quern/ir.h: reading modules, and building them without text. docs/ir.md describes the language.
#ifndef QUERN_IR_H_
#define QUERN_IR_H_

#include "quern/quern.h"

#ifdef __cplusplus
extern "C" {
#endif

// "f32"; "none" for values that are no dtype. Static storage.
QN_API const char* qn_dtype_text(qn_dtype_t dtype);
// Bytes of one element in memory (bool: 1); 0 for none.
QN_API size_t qn_dtype_size_bytes(qn_dtype_t dtype);
// QN_DTYPE_NONE when `text` (terminated) names no dtype.
QN_API qn_dtype_t qn_dtype_parse(const char* text);

typedef enum qn_op {
  QN_OP_NONE = 0,
#define QN_OP(name, value, text, arity, rule, syntax, doc) QN_OP_##name = value,
#include "quern/ops.inc"
#undef QN_OP
  QN_OP_COUNT
} qn_op_t;

// ------------------------------------------------------------------------------------ modules

// Reads a module from its canonical bytes (which are copied). Errors: DATA_LOSS for bytes that are
// not canonical, INVALID_MODULE, OUT_OF_MEMORY. Any bytes are safe to pass.
QN_API QN_MUST_USE qn_status_t qn_module_decode(const void* data, size_t size,
                                                const qn_parse_options_t* options,
                                                qn_module_t** out_module);

// The canonical text, terminated. Owned by the caller: qn_text_free. Errors: OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_module_print(const qn_module_t* module, char** out_text,
                                               size_t* out_size);
// Frees a text of qn_module_print or qn_text_format.
QN_API void qn_text_free(char* text);

// The same text in canonical layout, terminated: comments, names, parentheses and the spelling of
// literals stay. The text must parse but need not be valid. Formatting twice changes nothing more.
// Owned by the caller: qn_text_free. `options` as for qn_module_parse; may be NULL. Errors: SYNTAX
// with the rendered diagnostics, OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_text_format(const char* text, size_t size,
                                              const qn_parse_options_t* options, char** out_text,
                                              size_t* out_size);

// The canonical bytes: versioned, little-endian; equal for modules that differ only in layout,
// comments and names of locals. Borrowed until the module is released.
QN_API const void* qn_module_bytes(const qn_module_t* module, size_t* out_size);
// XXH3-128 of the canonical bytes, 16 bytes. Borrowed until the module is released.
QN_API const uint8_t* qn_module_digest(const qn_module_t* module);

// Functions in the order of the text.
QN_API size_t qn_module_function_count(const qn_module_t* module);
// Borrowed until the module is released; NULL beyond the count.
QN_API const char* qn_module_function_name(const qn_module_t* module, size_t index);
// "softmax(x: f32[n, m], out y: f32[n, m])". Borrowed; NULL beyond the count.
QN_API const char* qn_module_function_signature(const qn_module_t* module, size_t index);
// Returns how many parameters a function has; 0 beyond the count of functions.
QN_API size_t qn_module_function_param_count(const qn_module_t* module, size_t index);

typedef enum qn_access {
  QN_ACCESS_NONE = 0,
  QN_ACCESS_IN = 1,
  QN_ACCESS_OUT = 2,
  QN_ACCESS_INOUT = 3,
} qn_access_t;

// What a caller must pass for one parameter.
typedef struct qn_param_info {
  const char* name;  // borrowed from the module
  bool is_buffer;    // else a scalar
  qn_dtype_t dtype;
  qn_access_t access;    // buffers
  uint32_t rank;         // buffers
  uint32_t align_bytes;  // buffers; at least the dtype's size
} qn_param_info_t;
// Errors: INVALID_ARGUMENT beyond the counts.
QN_API QN_MUST_USE qn_status_t qn_module_param_info(const qn_module_t* module,
                                                    size_t function_index, size_t param_index,
                                                    qn_param_info_t* out_info);

// ------------------------------------------------------------------------------------ builder
//
// Builds one module. Calls never fail one by one: the first mistake sticks, later calls do nothing
// and return NULL, and qn_builder_finish reports it. One thread at a time. Expressions, variables
// and buffers are borrowed from the builder until it is finished or destroyed, and may be used many
// times.

typedef struct qn_builder qn_builder_t;
typedef struct qn_expr qn_expr_t;
typedef struct qn_buffer qn_buffer_t;

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
typedef enum qn_scope {
  QN_SCOPE_LOCAL = 1,
  QN_SCOPE_SHARED = 2,
  QN_SCOPE_GLOBAL = 3,
} qn_scope_t;
typedef enum qn_reduce_kind {
  QN_REDUCE_SUM = 1,
  QN_REDUCE_PROD = 2,
  QN_REDUCE_MIN = 3,
  QN_REDUCE_MAX = 4,
} qn_reduce_kind_t;
typedef enum qn_atomic_op {
  QN_ATOMIC_ADD = 1,
  QN_ATOMIC_MIN = 2,
  QN_ATOMIC_MAX = 3,
  QN_ATOMIC_AND = 4,
  QN_ATOMIC_OR = 5,
  QN_ATOMIC_XOR = 6,
  QN_ATOMIC_EXCHANGE = 7,
  QN_ATOMIC_CAS = 8,
} qn_atomic_op_t;

// `allocator` zero-initialised: the default.
QN_API QN_MUST_USE qn_status_t qn_builder_create(qn_allocator_t allocator,
                                                 qn_builder_t** out_builder);
// Consumes the builder, also on failure. Errors: the first mistake of any call (INVALID_ARGUMENT),
// what the verifier finds (INVALID_MODULE), OUT_OF_MEMORY.
QN_API QN_MUST_USE qn_status_t qn_builder_finish(qn_builder_t* builder, qn_module_t** out_module);
// Drops an unfinished builder. NULL is fine.
QN_API void qn_builder_destroy(qn_builder_t* builder);

// Opens a function; parameters follow, then the body, then qn_build_end closes it.
QN_API void qn_build_function(qn_builder_t* builder, const char* name);
// Lets floats of this function be reassociated and contracted (docs/ir.md, "fast").
QN_API void qn_build_fast(qn_builder_t* builder);
// A symbol for shapes: an i64 bound from the first argument that shows it. Asking twice for one
// name gives the same symbol.
QN_API qn_expr_t* qn_build_symbol(qn_builder_t* builder, const char* name);
// Adds a scalar parameter and returns its value.
QN_API qn_expr_t* qn_build_scalar_param(qn_builder_t* builder, const char* name, qn_dtype_t dtype);
// Adds a buffer parameter. `strides` in elements, or NULL for row-major; `align_bytes` 0 for the
// dtype's own.
QN_API qn_buffer_t* qn_build_buffer_param(qn_builder_t* builder, const char* name,
                                          qn_access_t access, qn_dtype_t dtype, size_t rank,
                                          qn_expr_t* const* shape, qn_expr_t* const* strides,
                                          uint32_t align_bytes);

// Statements. Those that open a block return after it is open; qn_build_end closes the innermost
// one.

// Opens a loop over [begin, end) and returns its variable (i64). `name` may be NULL.
QN_API qn_expr_t* qn_build_loop(qn_builder_t* builder, qn_loop_kind_t kind, const char* name,
                                qn_expr_t* begin, qn_expr_t* end);
// Opens a loop that runs while the condition (bool) holds.
QN_API void qn_build_while(qn_builder_t* builder, qn_expr_t* condition);
// Opens a block that runs if the condition (bool) holds.
QN_API void qn_build_if(qn_builder_t* builder, qn_expr_t* condition);
// Ends the block of the innermost if, and opens the other one.
QN_API void qn_build_else(qn_builder_t* builder);
// Closes the innermost block, or the function.
QN_API void qn_build_end(qn_builder_t* builder);
// Names a value that is computed here, once, and returns it. `name` may be NULL.
QN_API qn_expr_t* qn_build_let(qn_builder_t* builder, const char* name, qn_expr_t* value);
// Stores a value of the buffer's dtype; one i64 index per dimension.
QN_API void qn_build_store(qn_builder_t* builder, qn_buffer_t* buffer, size_t rank,
                           qn_expr_t* const* indices, qn_expr_t* value);
// Returns the old value. `operand2` only for CAS (the new value; `operand` is the expected one).
QN_API qn_expr_t* qn_build_atomic(qn_builder_t* builder, qn_atomic_op_t op, qn_buffer_t* buffer,
                                  size_t rank, qn_expr_t* const* indices, qn_expr_t* operand,
                                  qn_expr_t* operand2);
// Allocates a buffer, row-major and not zeroed, until the end of the block.
QN_API qn_buffer_t* qn_build_alloc(qn_builder_t* builder, const char* name, qn_scope_t scope,
                                   qn_dtype_t dtype, size_t rank, qn_expr_t* const* shape);
// A read-only table; `elements` are literals (qn_build_int, qn_build_float, qn_build_bool),
// row-major.
QN_API qn_buffer_t* qn_build_const(qn_builder_t* builder, const char* name, qn_dtype_t dtype,
                                   size_t rank, const int64_t* shape, size_t element_count,
                                   qn_expr_t* const* elements);
// A view of `base` that starts at its element `indices` and has its own shape and strides (NULL for
// row-major).
QN_API qn_buffer_t* qn_build_view(qn_builder_t* builder, const char* name, qn_buffer_t* base,
                                  size_t base_rank, qn_expr_t* const* indices, size_t rank,
                                  qn_expr_t* const* shape, qn_expr_t* const* strides);
// Synchronises the threads of a block.
QN_API void qn_build_barrier(qn_builder_t* builder);
// Stops the function with ASSERTION and the message if the condition (bool) does not hold.
QN_API void qn_build_assert(qn_builder_t* builder, qn_expr_t* condition, const char* message);

// Expressions.

// An integer literal, which must fit the dtype.
QN_API qn_expr_t* qn_build_int(qn_builder_t* builder, qn_dtype_t dtype, int64_t value);
// A float literal, rounded to the dtype.
QN_API qn_expr_t* qn_build_float(qn_builder_t* builder, qn_dtype_t dtype, double value);
// A bool literal.
QN_API qn_expr_t* qn_build_bool(qn_builder_t* builder, bool value);
// Loads an element; one i64 index per dimension.
QN_API qn_expr_t* qn_build_load(qn_builder_t* builder, qn_buffer_t* buffer, size_t rank,
                                qn_expr_t* const* indices);
// Any operator of ops.inc; NULL for operands beyond its arity (all three for warp_size).
QN_API qn_expr_t* qn_build_op(qn_builder_t* builder, qn_op_t op, qn_expr_t* a, qn_expr_t* b,
                              qn_expr_t* c);
// Value conversion. Float to integer truncates and saturates, NaN gives 0; integer to narrower
// integer wraps; to bool is `!= 0`.
QN_API qn_expr_t* qn_build_cast(qn_builder_t* builder, qn_dtype_t dtype, qn_expr_t* value);
// Same bits, dtype of the same size.
QN_API qn_expr_t* qn_build_bitcast(qn_builder_t* builder, qn_dtype_t dtype, qn_expr_t* value);
// `condition ? a : b`, of which only one is evaluated.
QN_API qn_expr_t* qn_build_cond(qn_builder_t* builder, qn_expr_t* condition, qn_expr_t* a,
                                qn_expr_t* b);
// A reduction is opened, returns its variable, and is closed with the value that is reduced; lets
// in between belong to it. The order is unspecified. It may be used in one place.
QN_API qn_expr_t* qn_build_reduce(qn_builder_t* builder, qn_reduce_kind_t kind, const char* name,
                                  qn_expr_t* begin, qn_expr_t* end);
// Closes the innermost reduction with the value that is reduced, and returns the result.
QN_API qn_expr_t* qn_build_reduce_end(qn_builder_t* builder, qn_expr_t* value);

#ifdef __cplusplus
}
#endif

#endif  // QUERN_IR_H_
