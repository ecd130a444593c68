// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_inner.h: types and functions shared by the emit_*.c files.
//
// Code is scalar or in a *vector region*. In scalar code (lanes == 0) a value is an LLVM scalar and
// control flow is branches. In a vector region (lanes > 0) one copy of the code runs `lanes`
// iterations: a value is uniform, linear in the lane, or varying, and varying conditions narrow the
// mask of active lanes.
//
// Requirements:
//  1. An inactive lane neither accesses memory, nor fails, nor divides.
//  2. A value is used only in a region with the lane count that it was made in, unless it is
//     uniform.
//  3. The order of the emitted code does not depend on addresses of the compiler's own objects.
//
// Read next: emit_module.c, emit_function.c.
#ifndef QN_JIT_LLVM_EMIT_INNER_H_
#define QN_JIT_LLVM_EMIT_INNER_H_

#include "jit/llvm/build.h"
#include "jit/llvm/emit.h"

typedef enum qn__llvm_shape {
  QN__LLVM_SHAPE_UNIFORM,  // a scalar, the same in all lanes
  QN__LLVM_SHAPE_LINEAR,   // integers: lane i has v + i * stride, wrapping
  QN__LLVM_SHAPE_VARYING,  // a vector
} qn__llvm_shape_t;

// A value of the program. An f16 or bf16 is held as the equal f32, a bool as an i1.
typedef struct qn__llvm_value {
  LLVMValueRef v;
  LLVMValueRef stride;  // LINEAR: a scalar of v's type
  qn_dtype_t dtype;
  qn__llvm_shape_t shape;
} qn__llvm_value_t;

// More lanes are never emitted: their loops stay scalar.
#define QN__EMIT_MAX_LANES 256

// The LLVM functions of a kernel. A part holds statements of a long block of a kernel or a body.
typedef enum qn__llvm_function_kind {
  QN__LLVM_KERNEL,
  QN__LLVM_BODY,  // of a parallel loop
  QN__LLVM_PART,
} qn__llvm_function_kind_t;

// The deepest nest: a part of the body of a launch in a part of the kernel.
#define QN__EMIT_DEPTHS 4

// A value cached for each of the LLVM functions with these serial numbers.
typedef struct qn__llvm_cached {
  LLVMValueRef value[QN__EMIT_DEPTHS];
  uint32_t serial[QN__EMIT_DEPTHS];
} qn__llvm_cached_t;

// The `user` of a qn__ir_var_t. Symbols and scalar parameters have only the cached value, which is
// loaded from the words.
typedef struct qn__llvm_var_slot {
  qn__llvm_value_t value;
  uint32_t owner;       // serial of the LLVM function that made `value`; 0: none yet
  uint32_t word;        // index into the words; UINT32_MAX: none
  bool is_nonnegative;  // whatever the arguments are
  uint32_t mark;        // of the last marked loop that declares it (qn__emit_mark)
  qn__llvm_cached_t cached;
} qn__llvm_var_slot_t;

// A dimension of a buffer. Parameters have only the cached values.
typedef struct qn__llvm_dim {
  LLVMValueRef extent;  // as made by the function that declared the buffer
  LLVMValueRef stride;
  qn__llvm_cached_t cached_extent;
  qn__llvm_cached_t cached_stride;
} qn__llvm_dim_t;

// The `user` of a qn__ir_buffer_t.
typedef struct qn__llvm_buffer_slot {
  uint32_t word;         // parameters: index into the words; UINT32_MAX: none
  uint32_t owner;        // allocations and views: serial of the function that declared it
  LLVMValueRef pointer;  // likewise, as made there
  qn__llvm_cached_t cached_pointer;
  qn__llvm_dim_t* dims;      // rank
  LLVMValueRef scope_list;   // alias metadata: its own scope
  LLVMValueRef others_list;  // alias metadata: all other scopes
  bool is_private;           // an array of constant size on the stack
  qn__llvm_value_t shift;    // views: where it starts, in elements from the root's first
  qn__llvm_cached_t cached_shift;
  struct qn__llvm_buffer_slot* next_root;  // the next buffer that owns memory
} qn__llvm_buffer_slot_t;

typedef struct qn__llvm_workspace {
  LLVMValueRef slot;  // an alloca: the pointer until it is released, then null
  bool is_released;   // its block has ended
  struct qn__llvm_workspace* previous;
} qn__llvm_workspace_t;

// A value of the parent that a body or part uses: an 8-byte word of the closure.
typedef struct qn__llvm_capture {
  LLVMValueRef outer;  // the value in the parent
  struct qn__llvm_capture* next;
} qn__llvm_capture_t;

typedef struct qn__llvm_function qn__llvm_function_t;
struct qn__llvm_function {
  qn__llvm_function_t* parent;  // of a body or part
  qn__llvm_function_kind_t kind;
  bool can_launch;  // runs once a call: the kernel or a part of it
  uint32_t depth;   // the number of its ancestors
  uint32_t serial;  // from 1, unique in the module
  LLVMValueRef function;
  LLVMBuilderRef builder;
  LLVMBasicBlockRef entry;  // allocas and loads of parameters; terminated last
  LLVMBasicBlockRef fail;   // NULL until the first use
  LLVMValueRef env;
  LLVMValueRef words;
  LLVMValueRef closure;  // of a body or part
  qn__llvm_capture_t* captures;
  qn__llvm_capture_t** next_capture;
  uint32_t capture_count;
  qn__llvm_workspace_t* workspaces;  // newest first
  int64_t stack_bytes;               // of arrays, of the callers too
  int64_t callee_bytes;              // of arrays of the bodies and parts that it calls, at most
  // The vector region.
  uint32_t lanes;          // 0: scalar code
  LLVMValueRef mask;       // NULL: all lanes are on
  bool can_mask_be_empty;  // false: some lane is on
  uint32_t loop_depth;     // number of enclosing loops
  uint32_t single_stores;  // statements that store lanes one by one
  bool has_loop;           // has a loop of its own: not only launches
  bool has_launch;
  bool is_unchecked;  // emits no checks: shapes, which the call has checked
  // Conditions that are true here, because this copy of a loop is specialised for them.
  const qn__ir_stmt_t** known;
  uint32_t known_count;
};

typedef struct qn__llvm_emit {
  const qn__llvm_emit_options_t* options;
  qn__arena_t* arena;
  LLVMContextRef context;
  LLVMModuleRef module;
  LLVMTypeRef i1, i8, i16, i32, i64, f32, f64, pointer;
  LLVMTypeRef kernel_type, body_type, parallel_type, allocate_type, release_type, fail_type;
  const qn__ir_func_t* function;
  qn__llvm_function_t* fn;
  uint32_t serial;
  uint32_t body_count;   // of the function
  uint32_t part_count;   // likewise
  uint32_t table_count;  // constant tables of the function
  uint32_t mark_count;
  bool has_failed;  // out of memory; sticky
  uint32_t place;   // of the statement or load that is emitted, for the sites of its indices
  // The sites of the function.
  qn_artifact_site_t* sites;
  uint32_t site_count;
  uint32_t site_capacity;
  unsigned alias_scope_kind, noalias_kind, invariant_kind, range_kind;
} qn__llvm_emit_t;

// ---- emit_value.c: types, constants, moving values between shapes (see also build.h)

// The types of a dtype in registers, and in memory, where it is an integer or the float.
LLVMTypeRef qn__emit_type(const qn__llvm_emit_t* e, qn_dtype_t dtype);
LLVMTypeRef qn__emit_memory_type(const qn__llvm_emit_t* e, qn_dtype_t dtype);
// Returns the vector type of fn->lanes elements; in scalar code the element type.
LLVMTypeRef qn__emit_wide(const qn__llvm_emit_t* e, LLVMTypeRef element);
LLVMValueRef qn__emit_i64(const qn__llvm_emit_t* e, int64_t value);
bool qn__emit_const_int(LLVMValueRef value, int64_t* out);
// Returns true if both are constants less than 2^63 apart, with their distance, at least 0.
bool qn__emit_const_trips(LLVMValueRef begin, LLVMValueRef end, int64_t* out_first,
                          int64_t* out_trips);
LLVMValueRef qn__emit_splat(qn__llvm_emit_t* e, LLVMValueRef scalar, uint32_t lanes);
qn__llvm_value_t qn__emit_uniform(qn_dtype_t dtype, LLVMValueRef v);
qn__llvm_value_t qn__emit_varying(qn_dtype_t dtype, LLVMValueRef v);
qn__llvm_value_t qn__emit_linear(qn_dtype_t dtype, LLVMValueRef v, LLVMValueRef stride);
// Returns the iterations from `index` (i64) on, one for each lane.
static inline qn__llvm_value_t qn__emit_lanes_from(const qn__llvm_emit_t* e, LLVMValueRef index) {
  return qn__emit_linear(QN_DTYPE_I64, index, LLVMConstInt(e->i64, 1, false));
}
// Returns UNIFORM or VARYING.
static inline qn__llvm_value_t qn__emit_value(qn_dtype_t dtype, LLVMValueRef v, bool is_uniform) {
  return is_uniform ? qn__emit_uniform(dtype, v) : qn__emit_varying(dtype, v);
}
static inline bool qn__emit_is_uniform(qn__llvm_value_t value) {
  return value.shape == QN__LLVM_SHAPE_UNIFORM;
}
// Widens a value to a vector of fn->lanes; in scalar code returns it as it is.
LLVMValueRef qn__emit_widen(qn__llvm_emit_t* e, qn__llvm_value_t value);
LLVMValueRef qn__emit_literal(const qn__llvm_emit_t* e, const qn__ir_expr_t* expr);
LLVMValueRef qn__emit_undefined(const qn__llvm_emit_t* e, qn_dtype_t dtype);
// Returns the scalar of a uniform value that is combined with uniform ones only, else a vector.
static inline LLVMValueRef qn__emit_operand(qn__llvm_emit_t* e, qn__llvm_value_t value,
                                            bool are_all_uniform) {
  return are_all_uniform ? value.v : qn__emit_widen(e, value);
}
static inline bool qn__emit_is_narrow_float(qn_dtype_t dtype) {
  return dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16;
}

// ---- emit_mask.c: which lanes are on

// Returns whether all lanes of a vector of i1, or an i1, are true.
LLVMValueRef qn__emit_all(qn__llvm_emit_t* e, LLVMValueRef mask);
// Return the first (or last) active lane as i64. Some lane must be active.
LLVMValueRef qn__emit_first_lane(qn__llvm_emit_t* e, LLVMValueRef mask);
LLVMValueRef qn__emit_last_lane(qn__llvm_emit_t* e, LLVMValueRef mask);
// Returns the mask of the first `count` lanes (i64, from 1 to lanes).
LLVMValueRef qn__emit_prefix_mask(qn__llvm_emit_t* e, LLVMValueRef count);
// Enclose a vector region of `lanes` lanes, of which the first `count` (NULL: all) are active.
void qn__emit_region_begin(qn__llvm_emit_t* e, uint32_t lanes, LLVMValueRef count);
void qn__emit_region_end(qn__llvm_emit_t* e);
// Returns the current mask; all lanes if there is none.
LLVMValueRef qn__emit_mask(qn__llvm_emit_t* e);
typedef struct qn__llvm_mask_state {
  LLVMValueRef mask;
  bool can_be_empty;
} qn__llvm_mask_state_t;
// Deactivates the lanes where the condition (a vector) is false, until qn__emit_unmask gets the
// result.
qn__llvm_mask_state_t qn__emit_narrow(qn__llvm_emit_t* e, LLVMValueRef condition);
void qn__emit_unmask(qn__llvm_emit_t* e, qn__llvm_mask_state_t state);

// ---- emit_function.c: the current LLVM function, and values that it takes from outside

qn__llvm_function_t* qn__emit_fn_begin(qn__llvm_emit_t* e, const char* name,
                                       qn__llvm_function_kind_t kind);
// Emits `return 0` and terminates the entry block. The parent becomes the current function.
void qn__emit_fn_end(qn__llvm_emit_t* e);
LLVMBasicBlockRef qn__emit_block(qn__llvm_emit_t* e, const char* name);
void qn__emit_at(qn__llvm_emit_t* e, LLVMBasicBlockRef block);
// Emit a branch around the code between the two calls, which runs if `condition` is true. `name`
// and `name_after` are of the blocks. qn__emit_when_end gets the code's value and the one without
// it (both NULL: none) and returns the one that holds afterwards.
typedef struct qn__llvm_when {
  LLVMBasicBlockRef before;
  LLVMBasicBlockRef after;
} qn__llvm_when_t;
qn__llvm_when_t qn__emit_when_begin(qn__llvm_emit_t* e, LLVMValueRef condition, const char* name,
                                    const char* name_after);
LLVMValueRef qn__emit_when_end(qn__llvm_emit_t* e, qn__llvm_when_t when, LLVMValueRef value,
                               LLVMValueRef otherwise);
// The stack that a kernel may use, with the functions that it calls: a library cannot rely on a
// deep one.
enum { QN__EMIT_MAX_STACK_BYTES = 256 * 1024 };
// Makes a stack slot of constant size in the entry block.
LLVMValueRef qn__emit_alloca(qn__llvm_emit_t* e, LLVMTypeRef type, uint32_t align_bytes);
// Between these two calls, code goes to the entry block, as scalar code without checks.
typedef struct qn__llvm_entry_state {
  LLVMBasicBlockRef block;
  uint32_t lanes;
  qn__llvm_mask_state_t mask;
  bool is_unchecked;
} qn__llvm_entry_state_t;
qn__llvm_entry_state_t qn__emit_entry_begin(qn__llvm_emit_t* e);
void qn__emit_entry_end(qn__llvm_emit_t* e, qn__llvm_entry_state_t state);

void qn__emit_bind(qn__llvm_emit_t* e, const qn__ir_var_t* var, qn__llvm_value_t value);
// Binds the variable of a loop or reduction that starts at `begin`.
void qn__emit_bind_index(qn__llvm_emit_t* e, const qn__ir_var_t* var, const qn__ir_expr_t* begin,
                         qn__llvm_value_t index);
qn__llvm_value_t qn__emit_var(qn__llvm_emit_t* e, const qn__ir_var_t* var);
// Return the address of the first element, and extents and strides in elements (i64), as values of
// the current function.
LLVMValueRef qn__emit_pointer(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer);
LLVMValueRef qn__emit_extent(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer, uint32_t dim);
LLVMValueRef qn__emit_stride(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer, uint32_t dim);
// Returns the start of a view, in elements from the first one of its root.
qn__llvm_value_t qn__emit_view_shift(qn__llvm_emit_t* e, const qn__ir_buffer_t* view);
// Captures a value of the parent for the current body or part.
LLVMValueRef qn__emit_capture(qn__llvm_emit_t* e, LLVMValueRef outer);
// Stores the captures of a body or part, which has ended, on the stack of the current function, its
// parent.
LLVMValueRef qn__emit_closure(qn__llvm_emit_t* e, const qn__llvm_function_t* child);

// ---- emit_check.c: failures

// Returns the number of a site of the function, which is added unless there is an equal one. The
// message is copied.
uint32_t qn__emit_site(qn__llvm_emit_t* e, qn_artifact_site_t site);
// Emits a failure at `site` if `ok` is false in an active lane. Index and extent are i64 or vectors
// of it; NULL is 0.
void qn__emit_require(qn__llvm_emit_t* e, LLVMValueRef ok, uint32_t site, LLVMValueRef index,
                      LLVMValueRef extent);
// Calls a function of env. `args` come after env.
LLVMValueRef qn__emit_env_call(qn__llvm_emit_t* e, unsigned slot, LLVMTypeRef type,
                               LLVMValueRef* args, unsigned count);
LLVMBasicBlockRef qn__emit_fail_block(qn__llvm_emit_t* e);
static inline bool qn__emit_checks(const qn__llvm_emit_t* e) {
  return e->options->is_checked && !e->fn->is_unchecked;
}

// ---- emit_expr.c

qn__llvm_value_t qn__emit_expr(qn__llvm_emit_t* e, const qn__ir_expr_t* expr);
// Emits an expression that is the same in all lanes.
LLVMValueRef qn__emit_scalar(qn__llvm_emit_t* e, const qn__ir_expr_t* expr);
// Returns whether the expression is never negative, for any arguments.
bool qn__emit_is_nonnegative(const qn__ir_expr_t* expr);

// ---- emit_int.c, emit_float.c, emit_cast.c: operators on scalars or vectors of one type

LLVMValueRef qn__emit_int_op(qn__llvm_emit_t* e, const qn__ir_expr_t* expr, qn_dtype_t dtype,
                             LLVMValueRef* args);
LLVMValueRef qn__emit_int_min_max(qn__llvm_emit_t* e, qn_dtype_t dtype, bool is_min, LLVMValueRef a,
                                  LLVMValueRef b);
LLVMValueRef qn__emit_float_op(qn__llvm_emit_t* e, qn_op_t op, qn_dtype_t dtype,
                               LLVMValueRef* args);
// Rounds an f32 to the nearest value of a narrow float dtype, as an f32.
LLVMValueRef qn__emit_round(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef value);
// Convert between f32 and the bits of a narrow float (i16). Narrowing rounds.
LLVMValueRef qn__emit_narrow_bits(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef value);
LLVMValueRef qn__emit_widen_bits(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef bits);
// Convert f32 to a float of 8 or 4 bits, in an i8, and back.
LLVMValueRef qn__emit_stored_bits(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef value);
LLVMValueRef qn__emit_stored_value(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef bits);
LLVMValueRef qn__emit_cast(qn__llvm_emit_t* e, qn_dtype_t from, qn_dtype_t to, LLVMValueRef value);
LLVMValueRef qn__emit_bitcast(qn__llvm_emit_t* e, qn_dtype_t from, qn_dtype_t to,
                              LLVMValueRef value);
// Convert between the types in registers and in memory.
LLVMValueRef qn__emit_from_memory(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef bits);
LLVMValueRef qn__emit_to_memory(qn__llvm_emit_t* e, qn_dtype_t dtype, LLVMValueRef value);

// ---- emit_dot.c

// Emits an operator of ir/dots.inc on scalars or vectors.
LLVMValueRef qn__emit_dot(qn__llvm_emit_t* e, qn_op_t op, LLVMValueRef* args);

// ---- emit_address.c, emit_memory.c, emit_atomic.c

typedef struct qn__llvm_address {
  const qn__ir_buffer_t* buffer;
  LLVMValueRef pointer;  // UNIFORM, LINEAR: to the element of lane 0; VARYING: a vector of pointers
  LLVMValueRef stride;   // LINEAR: elements between lanes, i64
  qn__llvm_shape_t shape;
  bool is_harmless;  // the elements of inactive lanes exist, too
} qn__llvm_address_t;
// Evaluates the indices, and checks them in checked builds.
qn__llvm_address_t qn__emit_address(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer,
                                    qn__ir_expr_t* const* indices);
// Returns the offset in elements of a view's start from the first one of the root, checked against
// its base. An empty view may start anywhere.
qn__llvm_value_t qn__emit_start(qn__llvm_emit_t* e, const qn__ir_buffer_t* view);
qn__llvm_value_t qn__emit_load(qn__llvm_emit_t* e, const qn__ir_expr_t* expr);
void qn__emit_store(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt);
// Returns the address of one lane. The address is not UNIFORM.
LLVMValueRef qn__emit_lane_pointer(qn__llvm_emit_t* e, const qn__llvm_address_t* address,
                                   uint32_t lane);
// Stores an element, or consecutive elements.
LLVMValueRef qn__emit_plain_store(qn__llvm_emit_t* e, const qn__ir_buffer_t* buffer,
                                  LLVMValueRef value, LLVMValueRef pointer);
void qn__emit_atomic(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt);
void qn__emit_annotate(qn__llvm_emit_t* e, LLVMValueRef access, const qn__ir_buffer_t* buffer);

// ---- emit_stmt.c, emit_alloc.c, emit_loop.c, emit_special.c, emit_parallel.c, emit_cost.c

void qn__emit_block_of(qn__llvm_emit_t* e, const qn__ir_block_t* block);
void qn__emit_stmt(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt);
void qn__emit_alloc(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt);
// Releases the workspaces allocated since `until`. In the failing block, tests each slot at run
// time.
void qn__emit_release_workspace(qn__llvm_emit_t* e, const qn__llvm_workspace_t* until,
                                bool is_failing);
// Releases all workspaces of the function that are held, in its failing block.
void qn__emit_failing_release(qn__llvm_emit_t* e);
void qn__emit_loop(qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt);
// Emits the iterations [begin, end) of a loop, in lanes where that is possible.
void qn__emit_range(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop, LLVMValueRef begin,
                    LLVMValueRef end);
// Emits two copies of a loop, one for the case that its invariant conditions all hold. Returns
// false if it has none.
bool qn__emit_specialised(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop, LLVMValueRef begin,
                          LLVMValueRef end);
bool qn__emit_is_known(const qn__llvm_emit_t* e, const qn__ir_stmt_t* stmt);
// Emit a counted loop from `begin` while below `end`, in steps of `step`. The code between the two
// calls is its body. `carried` is the initial value of a loop-carried value (NULL: none).
// qn__emit_count_end gets its value for the next iteration and returns that after the loop. Set
// `can_overrun` between the calls if the last step may pass `end`, and so the largest integer.
typedef struct qn__llvm_counter {
  LLVMValueRef index;  // i64
  LLVMValueRef carried;
  LLVMValueRef start;  // initial value of `carried`
  LLVMValueRef end;
  LLVMBasicBlockRef before;
  LLVMBasicBlockRef body;
  LLVMBasicBlockRef after;
  int64_t step;
  bool can_overrun;
} qn__llvm_counter_t;
qn__llvm_counter_t qn__emit_count_begin(qn__llvm_emit_t* e, LLVMValueRef begin, LLVMValueRef end,
                                        int64_t step, LLVMValueRef carried);
LLVMValueRef qn__emit_count_end(qn__llvm_emit_t* e, const qn__llvm_counter_t* counter,
                                LLVMValueRef carried);
// Return the end of the iterations that fill all lanes, and the number of lanes from `index` on
// that are below `end`, at most `lanes`.
LLVMValueRef qn__emit_left(qn__llvm_emit_t* e, LLVMValueRef index, LLVMValueRef end,
                           uint32_t lanes);
LLVMValueRef qn__emit_main_end(qn__llvm_emit_t* e, LLVMValueRef begin, LLVMValueRef end,
                               uint32_t lanes);
void qn__emit_scalar_range(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop, LLVMValueRef begin,
                           LLVMValueRef end);

// ---- emit_align.c: loops that store whole lines of the cache

typedef struct qn__llvm_alignment {
  const qn__ir_stmt_t* store;
  uint32_t bytes;  // a power of two
  uint32_t element_bytes;
  uint32_t least;  // iterations of a range for which it pays
} qn__llvm_alignment_t;
// Returns true if a vector of iterations may be computed, and then the next one from a place before
// the end of the first one on.
bool qn__emit_can_align(const qn__llvm_emit_t* e, const qn__ir_stmt_t* loop, uint32_t lanes,
                        qn__llvm_alignment_t* out);
// Emits the first index after `begin` whose element is at a multiple of the bytes: `begin + lanes`
// at most.
LLVMValueRef qn__emit_next_aligned(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop,
                                   const qn__llvm_alignment_t* alignment, LLVMValueRef begin,
                                   uint32_t lanes);
// Emits a loop that is marked `is_transposed`. Returns false, having emitted nothing, where there
// are no lanes.
bool qn__emit_transposed(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop);
void qn__emit_parallel(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop);
// Emit a statement of kind PRODUCT, and of kind TILES.
void qn__emit_product(qn__llvm_emit_t* e, const qn__ir_tensor_t* tensor);
void qn__emit_tiles(qn__llvm_emit_t* e, const qn__ir_tensor_t* tensor);
// Estimates the nanoseconds of one iteration, as an f64 value of the kernel.
LLVMValueRef qn__emit_cost(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop);

// ---- emit_part.c: blocks that are too long for one LLVM function

bool qn__emit_is_long(const qn__llvm_emit_t* e, const qn__ir_block_t* block);
// Emits `first` and some statements after it as a function and its call, if that can be, else
// `first` alone. Returns the next statement.
const qn__ir_stmt_t* qn__emit_part(qn__llvm_emit_t* e, const qn__ir_stmt_t* first);

// ---- emit_reduce.c

qn__llvm_value_t qn__emit_reduce(qn__llvm_emit_t* e, const qn__ir_expr_t* expr);

// ---- emit_lanes.c: which code runs in lanes

// Return the lane count of a loop or reduction; 0: scalar code.
uint32_t qn__emit_loop_lanes(const qn__llvm_emit_t* e, const qn__ir_stmt_t* loop);
uint32_t qn__emit_reduce_lanes(const qn__llvm_emit_t* e, const qn__ir_expr_t* expr);
// Marks the loop's variable and all variables of its body with a new number, and returns it.
uint32_t qn__emit_mark(qn__llvm_emit_t* e, const qn__ir_stmt_t* loop);
// ---- emit_masked.c: which masked accesses the target has

// Returns whether the tail of a loop can be masked. Else it is a scalar loop.
bool qn__emit_can_mask_loop(const qn__llvm_emit_t* e, const qn__ir_block_t* body);
bool qn__emit_can_mask_reduce(const qn__llvm_emit_t* e, const qn__ir_expr_t* expr);
// Returns whether accesses under the loop's conditions can be masked. Else scalar code is better.
bool qn__emit_can_mask_conditions(const qn__llvm_emit_t* e, const qn__ir_stmt_t* loop);

#endif  // QN_JIT_LLVM_EMIT_INNER_H_
