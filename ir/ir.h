// SPDX-License-Identifier: Apache-2.0
// ir/ir.h: the data structures of a module: a tree of statements and expressions in one arena.
// Parser and builder make it, the verifier checks it, passes rewrite it; printer, encoder,
// interpreter and code generators read it.
//
// Not here: how it is made (text.h, builder.h), checked (verify.h), written (text.h, encode.h) or
// run (interpret.h). Thread rule: one thread writes a body; a sealed `qn_module_t` is only read.
// Read next: verify.h.
#ifndef QUERN_IR_IR_H_
#define QUERN_IR_IR_H_

#include "base/alloc.h"
#include "base/arena.h"
#include "base/digest.h"
#include "base/integer.h"
#include "quern/read.h"

typedef enum qn__ir_access_kind {
#define QN_ACCESS(name, value, text) QN__ACCESS_##name = value,
#include "ir/tables.inc"
#undef QN_ACCESS
} qn__ir_access_kind_t;  // same values as qn_access_t; the printer's table

typedef enum qn__ir_scope {
#define QN_SCOPE(name, value, text, doc) QN__SCOPE_##name = value,
#include "ir/tables.inc"
#undef QN_SCOPE
} qn__ir_scope_t;  // same values as qn_scope_t

// Limits that the verifier and the decoder enforce, so that readers may recurse and use fixed
// arrays. A block or an expression counts one level.
enum {
  QN__LARGEST_RANK = QN_MAX_RANK,
  QN__LARGEST_NESTING = QN_MAX_NESTING,
  QN__LARGEST_VALUES = QN_MAX_VALUES,
};

// A place in the source text: byte range [begin, begin + size). size 0: no place. In a body of
// qn__body_decode, a place in the canonical bytes, which copies and passes keep (place.h). Nodes of
// an expanded call have a number for `begin` (call_place.h).
typedef struct qn__ir_loc {
  uint32_t begin;
  uint32_t size;
} qn__ir_loc_t;

// A call that was expanded.
typedef struct qn__ir_call {
  const char* name;  // of the called function
  qn__ir_loc_t loc;
} qn__ir_call_t;

// A place in the text of a called function.
typedef struct qn__ir_place {
  qn__ir_loc_t text;
  uint32_t call;  // the one whose expansion it is in
} qn__ir_place_t;

// The places of a module's expanded calls (call_place.h). All in the arena of the body.
typedef struct qn__ir_places {
  qn__ir_place_t* items;
  uint32_t count;
  uint32_t capacity;
  qn__ir_call_t* calls;
  uint32_t call_count;
  uint32_t call_capacity;
} qn__ir_places_t;

typedef struct qn__ir_func qn__ir_func_t;
// The public handle is the node.
typedef qn_stmt_t qn__ir_stmt_t;
typedef qn_var_t qn__ir_var_t;
typedef qn_expr_t qn__ir_expr_t;
typedef qn_buffer_t qn__ir_buffer_t;

typedef enum qn__ir_var_kind {
  QN__VAR_SYMBOL,  // i64, bound from shapes at the call
  QN__VAR_SCALAR,  // a scalar parameter
  QN__VAR_LOOP,    // i64
  QN__VAR_REDUCE,  // i64, the variable of a reduction
  QN__VAR_LET,
  QN__VAR_ATOMIC,  // the old value that an atomic statement gives
} qn__ir_var_kind_t;

struct qn_var {
  const char* name;
  qn__ir_var_kind_t kind;
  qn_dtype_t dtype;
  // SCALAR: each call must pass `fixed_value`, an integer below 2^63. Literals stand for it in the
  // function, which does not mention the variable (specialize.c).
  bool is_fixed;
  int64_t fixed_value;
  uint32_t id;  // dense within the function, by qn__function_number
  qn__ir_loc_t loc;
  void* user;  // scratch of the pass or reader at work
};

// A parameter, allocation, constant table or view.
struct qn_buffer {
  const char* name;
  qn__ir_scope_t scope;
  qn_dtype_t dtype;
  qn_access_t access;  // parameters
  uint32_t rank;
  uint32_t align_bytes;  // parameters: what is asked for, at least the dtype's size
  uint32_t id;           // dense within the function (parameters first), by qn__function_number
  uint32_t origin_id;  // the id in the canonical bytes, kept by passes; UINT32_MAX: not from there
  qn__ir_expr_t** shape;    // rank expressions of dtype i64
  qn__ir_expr_t** strides;  // rank expressions of dtype i64 in elements, or NULL: row-major
  // QN__SCOPE_CONST: row-major elements, each an INT or FLOAT literal.
  qn__ir_expr_t** elements;
  size_t element_count;
  // QN__SCOPE_VIEW: the buffer underneath and the element of it where the view starts.
  qn__ir_buffer_t* base;
  qn__ir_expr_t** base_indices;
  // Not 0 between the passes `reuse` and `barriers`: a row that the threads of a block share, each
  // of them having so many neighbours at a time.
  uint32_t row_lanes;
  bool is_filled;  // passes: every element is stored before it is loaded
  qn__ir_loc_t loc;
  void* user;  // scratch of the pass or reader at work
};

typedef enum qn__ir_expr_kind {
  QN__EXPR_INT = 1,  // literal of an integer dtype or bool
  QN__EXPR_FLOAT,    // literal of a float dtype
  QN__EXPR_VAR,
  QN__EXPR_LOAD,
  QN__EXPR_OP,       // ops.inc
  QN__EXPR_CAST,     // args[0] to dtype
  QN__EXPR_BITCAST,  // args[0] to dtype
  QN__EXPR_COND,     // args[0] ? args[1] : args[2], lazily
  QN__EXPR_REDUCE,
} qn__ir_expr_kind_t;

typedef struct qn__ir_block {
  qn__ir_stmt_t* first;
  qn__ir_stmt_t* last;
} qn__ir_block_t;

// The nearest cache that memory is fetched to.
typedef enum qn__fetch {
  QN__FETCH_FIRST,
  QN__FETCH_SECOND,
} qn__fetch_t;

// Expressions are a tree: a node has one parent. Share by qn__expr_clone. (The builder clones what
// its user uses twice.)
struct qn_expr {
  qn__ir_expr_kind_t kind;
  qn_dtype_t dtype;
  qn__ir_loc_t loc;
  union {
    int64_t int_value;  // INT: the value, sign- or zero-extended from dtype; u64 as its bit pattern
    double float_value;  // FLOAT: exactly representable in dtype
    qn__ir_var_t* var;
    struct {
      qn__ir_buffer_t* buffer;
      qn__ir_expr_t** indices;  // buffer->rank expressions of any integer dtype
      // Made by passes alone: the loops come to the element that is so many on in that dimension
      // soon, so the memory may be fetched now. 0: none.
      uint32_t ahead;
      uint16_t ahead_dim;
      uint16_t ahead_cache;  // qn__fetch_t
    } load;                  // of the buffer's dtype, or a word (qn__load_is_word)
    struct {
      qn_op_t op;  // OP only
      qn__ir_expr_t* args[3];
    };
    struct {
      qn_reduce_kind_t reduce_kind;
      qn__ir_var_t* reduce_var;
      qn__ir_expr_t* begin;  // i64
      qn__ir_expr_t* end;    // i64, exclusive
      qn__ir_block_t lets;   // only LET statements
      qn__ir_expr_t* value;
      uint32_t lane_count;  // set by the vectorise pass: accumulate in that many lanes; 0: scalar
      bool is_cooperative;  // the threads of a block share its range (see loop.is_cooperative)
    } reduce;
  };
};

typedef enum qn__ir_stmt_kind {
  QN__STMT_LET = 1,
  QN__STMT_STORE,
  QN__STMT_ATOMIC,
  QN__STMT_IF,
  QN__STMT_LOOP,
  QN__STMT_WHILE,
  QN__STMT_ALLOC,  // declares `buffer` (local, shared, global, const or view) for the rest of the
                   // block
  QN__STMT_BARRIER,
  QN__STMT_ASSERT,
  QN__STMT_TENSOR,  // made by passes alone: it has no text that can be parsed, and no encoding
  QN__STMT_REDUCE,  // a reduction of several values or a scan, which the first passes replace
  QN__STMT_LEAVE,   // the last of its block; the first pass replaces it
  QN__STMT_FENCE,
} qn__ir_stmt_kind_t;

// What the threads of a warp do together with a matrix unit (see ir/tensor.h for the layouts), and
// what a CPU does by a kernel that is compiled already.
typedef enum qn__ir_tensor_kind {
  // Copies the first `operand` of `count` neighbours, which are 16 bytes, from refs[1] in memory to
  // refs[0] in shared memory, and stores zeros for the others. The copy is complete for the thread
  // after a WAIT, and for other threads after a barrier after that.
  QN__TENSOR_COPY = 1,
  // Ends a group of the thread's copies. Waits until at most `count` groups are incomplete.
  QN__TENSOR_WAIT,
  // Adds products of `depth` steps to the thread's sums, refs[0]: of tiles[0] * 16 rows, whose
  // operand begins at refs[1], by tiles[1] * 8 columns at refs[2]. `operand` is the thread's lane.
  // If it `is_warpgroup`, four warps have 16 rows each, of 64 from refs[1] on, `operand` is the
  // thread's index among the four, and the sums are complete after a FINISH.
  QN__TENSOR_MULTIPLY,
  // Waits for the multiplications of the warpgroup, whose sums are refs[0].
  QN__TENSOR_FINISH,
  // Computes all sums of a product by the kernel of form `operand` that is prepared for the target
  // (ir/prepared.h). `extents` are its rows, columns and steps: sum [row, column] from
  // refs[0] on is that of element [row, step] from refs[1] on times [step, column] from refs[2] on,
  // or [column, step] there unless is_across[1]. The second index counts along the last dimension
  // of a buffer, the first one along dimension dims[i].
  QN__TENSOR_PRODUCT,
  // Adds up products of packed numbers in tile registers (ir/tiles.h).
  QN__TENSOR_TILES,
} qn__ir_tensor_kind_t;

typedef struct qn__ir_tensor_ref {
  qn__ir_buffer_t* buffer;
  qn__ir_expr_t** indices;
} qn__ir_tensor_ref_t;

enum { QN__TENSOR_REFS = 3 };

typedef struct qn__ir_tensor {
  qn__ir_tensor_kind_t kind;
  uint32_t ref_count;
  qn__ir_tensor_ref_t refs[QN__TENSOR_REFS];  // the first one is written
  qn__ir_expr_t* operand;                     // i64, or NULL
  uint32_t count;
  uint32_t tiles[2];
  uint32_t depth;
  bool is_across[2];  // the lines of an operand are adjacent in memory, not its steps
  bool is_warpgroup;
  qn__ir_expr_t* extents[QN__TENSOR_REFS];  // PRODUCT, TILES: i64; else NULL
  uint32_t dims[QN__TENSOR_REFS];
  int dot;            // TILES: an operator of dots.inc
  bool takes_column;  // whose first word is the column's
} qn__ir_tensor_t;

// Returns the number of the statement's extents.
static inline uint32_t qn__tensor_extents(const qn__ir_tensor_t* tensor) {
  return tensor->kind >= QN__TENSOR_PRODUCT ? QN__TENSOR_REFS : 0;
}

// How a reduction of several values combines them.
typedef enum qn__ir_several_kind {
#define QN_SEVERAL(name, value, text, doc) QN__SEVERAL_##name = value,
#include "ir/tables.inc"
#undef QN_SEVERAL
} qn__ir_several_kind_t;

// A reduction of several values: `let a, b = reduce i in begin..end { lets values } from (initial)
// with (left), (right) { merge_lets merged };`. ARGMAX and ARGMIN have one value, two results (the
// value and its index), and nothing from `initial` on. A scan has its results in each iteration:
// `scan i in begin..end { lets values } from (initial) with (left), (right) { merge_lets merged }
// as (results) { body }`.
typedef struct qn__ir_several {
  qn__ir_several_kind_t kind;
  uint32_t count;         // of values
  uint32_t merged_count;  // of initial, left, right and merged: `count`, or 0 without a combiner
  uint32_t result_count;
  qn__ir_var_t* var;     // i64, of kind REDUCE
  qn__ir_expr_t* begin;  // i64
  qn__ir_expr_t* end;    // i64, exclusive
  qn__ir_block_t lets;   // only LET statements
  qn__ir_expr_t* values[QN__LARGEST_VALUES];
  // Of a reduction: neutral, so that combined with any value, they give it.
  qn__ir_expr_t* initial[QN__LARGEST_VALUES];
  qn__ir_var_t* left[QN__LARGEST_VALUES];  // the operands of the combiner, of kind LET
  qn__ir_var_t* right[QN__LARGEST_VALUES];
  qn__ir_block_t merge_lets;  // only LET statements
  qn__ir_expr_t* merged[QN__LARGEST_VALUES];
  qn__ir_var_t* results[QN__LARGEST_VALUES];  // of kind LET
  qn__ir_block_t body;                        // of a scan; else empty
} qn__ir_several_t;

static inline bool qn__several_is_scan(qn__ir_several_kind_t kind) {
  return kind == QN__SEVERAL_SCAN || kind == QN__SEVERAL_EXCLUSIVE_SCAN;
}
static inline bool qn__several_has_combiner(qn__ir_several_kind_t kind) {
  return kind == QN__SEVERAL_COMBINE || qn__several_is_scan(kind);
}

static inline qn_dtype_t qn__several_result_dtype(const qn__ir_several_t* several, uint32_t i) {
  return i < several->count ? several->values[i]->dtype : QN_DTYPE_I64;
}

// What the threads of a block do with a statement: set by the pass `cooperative`, read by the pass
// `barriers`, and ANY everywhere else.
typedef enum qn__ir_stmt_role {
  QN__ROLE_ANY,     // all threads run it alike
  QN__ROLE_FIRST,   // an `if` that only the first thread enters
  QN__ROLE_DIVIDE,  // each thread does its own part, and waits for no other inside of it
} qn__ir_stmt_role_t;

struct qn_stmt {
  qn__ir_stmt_kind_t kind;
  qn__ir_stmt_role_t role;
  qn__ir_loc_t loc;
  qn__ir_stmt_t* next;
  union {
    struct {
      qn__ir_var_t* var;
      qn__ir_expr_t* value;
    } let;
    struct {
      qn__ir_buffer_t* buffer;
      qn__ir_expr_t** indices;
      qn__ir_expr_t* value;
    } store;
    struct {
      qn_atomic_op_t op;
      qn__ir_buffer_t* buffer;
      qn__ir_expr_t** indices;
      qn__ir_expr_t* operand;   // NULL for LOAD
      qn__ir_expr_t* operand2;  // CAS, else NULL
      qn__ir_var_t* result;     // NULL when the old value is not used
    } atomic;
    struct {
      qn__ir_expr_t* condition;
      qn__ir_block_t then_block;
      qn__ir_block_t else_block;  // empty: none
      // Both arms compute the same, the first one faster where the condition holds. Set by the pass
      // `tile` around launches. The second arm is right for every call.
      bool is_choice;
    } if_;
    struct {
      qn_loop_kind_t kind;
      qn__ir_var_t* var;
      qn__ir_expr_t* begin;  // i64
      qn__ir_expr_t* end;    // i64, exclusive; an empty range runs nothing
      qn__ir_block_t body;
      // Set by the vectorise pass on a SERIAL or PARALLEL loop that it proved safe: the code
      // generator runs it in that many lanes, with a masked or scalar tail. 0: scalar.
      uint32_t lane_count;
      // Set by passes for CPUs on a loop of a few iterations whose body is lets and a VECTOR loop
      // of as many, whose body is lets and a store. Neighbours of this loop are stored next to each
      // other, neighbours of the inner one are not: the code generator transposes their vectors.
      bool is_transposed;
      bool is_rare;  // set by passes for CPUs: few iterations run here, so code is short, not fast
      // Marks of the mapping to a GPU (passes/gpu/launch.h), which holds them between its passes
      // only. They are neither encoded nor compared.
      // Set by the lowering of scans: the threads of a block share its iterations, and a thread
      // alone has none of the loops around it.
      bool is_of_block;
      bool is_independent;        // its iterations may run in any order and at once
      bool is_cooperative;        // the threads of a block share its iterations
      struct qn__launch* launch;  // the outermost block loop of a launch that is not finished
    } loop;
    struct {
      qn__ir_expr_t* condition;
      qn__ir_block_t body;
    } while_;
    struct {
      qn__ir_buffer_t* buffer;
    } alloc;
    struct {
      qn__ir_expr_t* condition;
      const char* message;  // "": none
    } assert_;
    qn__ir_tensor_t* tensor;
    qn__ir_several_t* several;
    qn_leave_t leave;
  };
};

// A parameter is either a buffer or a scalar.
typedef struct qn__ir_param {
  qn__ir_buffer_t* buffer;
  qn__ir_var_t* scalar;
} qn__ir_param_t;

static inline const char* qn__param_name(const qn__ir_param_t* param) {
  return param->scalar ? param->scalar->name : param->buffer->name;
}

struct qn__ir_func {
  const char* name;
  const char* signature;  // made by qn__module_finish
  qn__ir_loc_t loc;
  bool is_fast;
  bool has_tiles;  // a pass wrote tiles of products: only a hint for generators, not encoded
  size_t param_count;
  qn__ir_param_t* params;
  size_t symbol_count;
  qn__ir_var_t** symbols;  // in the order of first appearance in the parameters
  qn__ir_block_t body;
  // Counts of dense ids, by qn__function_number.
  uint32_t var_count;
  uint32_t buffer_count;
  qn__ir_func_t* next;
};

// A module under construction or being rewritten.
typedef struct qn__ir_body {
  qn__arena_t arena;
  qn__ir_func_t* first;
  qn__ir_func_t* last;
  size_t function_count;
  qn__ir_places_t places;
} qn__ir_body_t;

// The sealed, shared module.
struct qn_module {
  _Atomic uint32_t reference_count;
  qn_allocator_t allocator;
  qn__ir_body_t body;
  qn__ir_func_t** functions;  // array of body's list
  uint8_t* bytes;             // canonical bytes
  size_t byte_count;
  size_t byte_capacity;
  qn_hash128_t digest;         // XXH3-128 of the canonical bytes
  qn__sha256_t second_digest;  // SHA-256 of the canonical bytes
  // The places of the body are offsets in canonical bytes: `bytes`, or those of the module that
  // this one was lowered from. Then the `origin_id` of buffers counts, too.
  bool has_places;
  bool is_mapped;  // lowered to launches of blocks and threads, by all of the pipeline for GPUs
  // The text that the places of the body are in, for messages; empty: none. In the body's arena.
  qn_str_t source;
  const char* source_name;
};

// ---- sealing (module.c)

void qn__body_init(qn__ir_body_t* body, qn_allocator_t allocator);
void qn__body_deinit(qn__ir_body_t* body);
// Links a function at the end of the list.
void qn__body_append(qn__ir_body_t* body, qn__ir_func_t* function);

// ---- nodes (node.c). All return NULL when the arena is exhausted.

qn__ir_expr_t* qn__expr_new(qn__arena_t* arena, qn__ir_expr_kind_t kind, qn_dtype_t dtype,
                            qn__ir_loc_t loc);
qn__ir_expr_t* qn__expr_int(qn__arena_t* arena, qn_dtype_t dtype, int64_t value);
qn__ir_expr_t* qn__expr_float(qn__arena_t* arena, qn_dtype_t dtype, double value);
qn__ir_expr_t* qn__expr_var(qn__arena_t* arena, qn__ir_var_t* var);
// The dtype follows from the table's rule; operands must already satisfy it.
qn__ir_expr_t* qn__expr_op(qn__arena_t* arena, qn_op_t op, qn__ir_expr_t* a, qn__ir_expr_t* b,
                           qn__ir_expr_t* c);
qn__ir_stmt_t* qn__stmt_new(qn__arena_t* arena, qn__ir_stmt_kind_t kind, qn__ir_loc_t loc);
qn__ir_var_t* qn__var_new(qn__arena_t* arena, qn__ir_var_kind_t kind, qn_dtype_t dtype,
                          const char* name);
qn__ir_buffer_t* qn__buf_new(qn__arena_t* arena, qn__ir_scope_t scope, qn_dtype_t dtype,
                             const char* name, uint32_t rank);
// Returns the buffer that owns the memory of `buffer`, which may be a view of a view.
static inline const qn__ir_buffer_t* qn__buf_root(const qn__ir_buffer_t* buffer) {
  while (buffer->scope == QN__SCOPE_VIEW) buffer = buffer->base;
  return buffer;
}
void qn__block_append(qn__ir_block_t* block, qn__ir_stmt_t* stmt);

// Deep copies. Variables and buffers that the copied piece itself declares are fresh; others are
// replaced through `subst` or shared.
typedef struct qn__ir_subst qn__ir_subst_t;
struct qn__ir_subst {
  // Called for each reference; returns the replacement expression (to be cloned by the caller of
  // the callback) or NULL to keep the variable. May be NULL.
  qn__ir_expr_t* (*on_var)(qn__ir_subst_t* subst, qn__ir_var_t* var);
  // Returns the replacement or the buffer itself. May be NULL.
  qn__ir_buffer_t* (*on_buffer)(qn__ir_subst_t* subst, qn__ir_buffer_t* buffer);
  qn__arena_t* arena;
  void* self;
};
qn__ir_expr_t* qn__expr_clone(qn__ir_subst_t* subst, const qn__ir_expr_t* expr);
bool qn__block_clone(qn__ir_subst_t* subst, const qn__ir_block_t* block, qn__ir_block_t* out_block);

// A deep copy of all functions into a fresh body (initialised by the callee), for passes to
// rewrite.
qn_status_t qn__body_clone(const qn__ir_body_t* from, qn_allocator_t allocator,
                           qn__ir_body_t* out_body);

// Assigns dense var and buffer ids in program order and fills the counts.
void qn__function_number(qn__ir_func_t* function);

// ---- walking (walk.c)

// Calls back for every statement and expression of a function or block in program order, parents
// first. A callback returns false to stop; then the walk returns false. Callbacks may be NULL.
typedef struct qn__ir_walker qn__ir_walker_t;
struct qn__ir_walker {
  bool (*on_stmt)(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt);
  bool (*on_expr)(qn__ir_walker_t* walker, qn__ir_expr_t* expr);
  void* self;
};
bool qn__walk_block(qn__ir_walker_t* walker, qn__ir_block_t* block);
bool qn__walk_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr);
// The operands that an expression has in an array: indices of a LOAD, operands of an operator, a
// conversion or a COND. A REDUCE has none: its parts have names and an order.
typedef struct qn__ir_operands {
  qn__ir_expr_t* const* items;
  size_t count;
} qn__ir_operands_t;
qn__ir_operands_t qn__expr_operands(const qn__ir_expr_t* expr);
// Returns whether the statement may end the iteration, loop or function that holds it: it is a
// LEAVE, or its arms have one, or a loop in it has a RETURN.
bool qn__stmt_leaves(const qn__ir_stmt_t* stmt);
bool qn__block_leaves(const qn__ir_block_t* block);
// Returns whether the block has a LEAVE of the kind that is not of a loop inside; RETURN: at any
// depth.
bool qn__block_has_leave(const qn__ir_block_t* block, qn_leave_t kind);
// Walks shapes and strides of the parameters.
bool qn__walk_extents(qn__ir_walker_t* walker, const qn__ir_func_t* function);
// Lists the symbols of the parameters in `symbols`, in the order of their first appearance. Their
// `user` must be NULL. Returns false if there are more than `room`.
bool qn__function_list_symbols(qn__ir_func_t* function, size_t room);
// Returns whether it holds a TARGET operator, such as warp_size().
bool qn__expr_has_target(qn__ir_expr_t* expr);

// Returns true for a load of a word: i32 from a buffer of smaller integers or of bf16, with the
// bits of the element and its neighbours in memory. Only passes write such loads, for operators of
// dots.inc. Targets are little-endian.
static inline bool qn__load_is_word(const qn__ir_expr_t* load) {
  const qn__ir_buffer_t* buffer = load->load.buffer;
  bool is_small = qn__dtype_is_int(buffer->dtype) && qn__dtype_bits(buffer->dtype) >= 8 &&
                  qn__dtype_bits(buffer->dtype) < 32;
  return load->dtype == QN_DTYPE_I32 && (is_small || buffer->dtype == QN_DTYPE_BF16);
}

// Returns whether two trees are equal. Variables and buffers are compared by identity, except those
// that the trees declare themselves. Locations are ignored.
bool qn__expr_equal(const qn__ir_expr_t* a, const qn__ir_expr_t* b);

// ---- tables (tables.c)

// Operators of passes (dots.inc), values of qn_op_t.
enum {
#define QN_DOT(name, value, text, rule, doc) QN__OP_##name = value,
#include "ir/dots.inc"
#undef QN_DOT
  QN__OP_DOT_FIRST = QN__OP_DOT_SS,
  QN__OP_DOT_LAST = QN__OP_LEAST,
};
static inline bool qn__op_is_dot(qn_op_t op) {
  return (int)op >= QN__OP_DOT_FIRST && (int)op <= QN__OP_DOT_LAST;
}
// Returns the operator's bit in a set of such operators.
static inline uint32_t qn__dot_bit(int op) {
  return UINT32_C(1) << (op - QN__OP_DOT_FIRST);
}

// The rules of ops.inc and dots.inc. Operators of those from LANE on need the threads or the target
// to be known: they are never folded.
typedef enum qn__ir_op_rule {
  QN__RULE_NUMERIC,
  QN__RULE_INTEGER,
  QN__RULE_FLOAT,
  QN__RULE_BITWISE,
  QN__RULE_SHIFT,
  QN__RULE_COMPARE,
  QN__RULE_LOGIC,
  QN__RULE_TEST,
  QN__RULE_SELECT,
  QN__RULE_SCALE,
  QN__RULE_DOT_INT,    // of dots.inc
  QN__RULE_DOT_FLOAT,  // likewise
  QN__RULE_LANE,
  QN__RULE_GROUP,
  QN__RULE_AXES,
  QN__RULE_TARGET,
} qn__ir_op_rule_t;
typedef enum qn__ir_op_syntax {
  QN__SYNTAX_INFIX,
  QN__SYNTAX_PREFIX,
  QN__SYNTAX_CALL
} qn__ir_op_syntax_t;
typedef struct qn__ir_op_info {
  const char* text;
  uint32_t arity;
  qn__ir_op_rule_t rule;
  qn__ir_op_syntax_t syntax;
  const char* doc;
} qn__ir_op_info_t;
// Never NULL for values of ops.inc and dots.inc; NULL otherwise.
const qn__ir_op_info_t* qn__op_info(qn_op_t op);
// Returns the dtype of operand `i` of a rule that prescribes it, NONE for operands of the common
// dtype T.
static inline qn_dtype_t qn__op_own_dtype(qn__ir_op_rule_t rule, uint32_t i) {
  if (rule == QN__RULE_SELECT && i == 0) return QN_DTYPE_BOOL;
  if (rule == QN__RULE_SCALE && i == 1) return QN_DTYPE_I32;
  if ((rule == QN__RULE_DOT_INT || rule == QN__RULE_DOT_FLOAT) && i > 0) return QN_DTYPE_I32;
  bool is_i64 = (rule == QN__RULE_LANE || rule == QN__RULE_AXES) && i == 1;
  return is_i64 ? QN_DTYPE_I64 : QN_DTYPE_NONE;
}
// Returns whether operand `i` has the common dtype T of the rule.
static inline bool qn__op_is_common(qn__ir_op_rule_t rule, uint32_t i) {
  return qn__op_own_dtype(rule, i) == QN_DTYPE_NONE;
}
static inline bool qn__rule_gives_bool(qn__ir_op_rule_t rule) {
  return rule == QN__RULE_COMPARE || rule == QN__RULE_TEST || rule == QN__RULE_LOGIC;
}
// Returns the common dtype T of an operator's operands.
static inline qn_dtype_t qn__expr_operand_dtype(const qn__ir_expr_t* expr) {
  return expr->args[qn__op_info(expr->op)->rule == QN__RULE_SELECT ? 1 : 0]->dtype;
}
// Quotients and remainders of integers.
static inline bool qn__op_is_division(qn_op_t op) {
  return op >= QN_OP_FLOORDIV && op <= QN_OP_CEILDIV;
}
// Returns whether it exchanges values among the threads of a warp or block.
static inline bool qn__expr_is_exchange(const qn__ir_expr_t* expr) {
  if (expr->kind != QN__EXPR_OP) return false;
  qn__ir_op_rule_t rule = qn__op_info(expr->op)->rule;
  return rule == QN__RULE_LANE || rule == QN__RULE_GROUP || rule == QN__RULE_AXES;
}
// Returns whether an AXES operator is over thread axis `axis`: 0 to 2 for x, y, z.
static inline bool qn__expr_has_axis(const qn__ir_expr_t* expr, uint32_t axis) {
  return (expr->args[1]->int_value >> axis & 1) != 0;
}
// The bounds of a LANE operator's second operand: at least this, less than the warp size. (The lane
// that shuffle_xor makes of it must be in the warp too.)
static inline int64_t qn__lane_least(qn_op_t op, int64_t warp_size) {
  return op == QN_OP_SHUFFLE_UP || op == QN_OP_SHUFFLE_DOWN ? 1 - warp_size : 0;
}
// Writes what an assert says where a LANE operator leaves these bounds.
enum { QN__LANE_MESSAGE_BYTES = 80 };
void qn__lane_message(qn_op_t op, int64_t warp_size, char out_text[QN__LANE_MESSAGE_BYTES]);
// The dtypes that T may be (op_rules.c).
typedef struct qn__ir_rule_info {
  bool (*accepts)(qn_dtype_t dtype);
  const char* one;   // "an integer"
  const char* many;  // "integers"
} qn__ir_rule_info_t;
const qn__ir_rule_info_t* qn__rule_info(qn__ir_op_rule_t rule);
// Returns the dtype of `op` (of ops.inc) for operands of these dtypes, as many as its arity. NONE
// if it does not take them; then the outputs say which operand is wrong and what it should be
// (op_rules.c).
qn_dtype_t qn__op_result(qn_op_t op, const qn_dtype_t dtypes[3], uint32_t* out_index,
                         const char** out_expected);
// The texts of the enumerations of tables.inc, whose values count from 1. NULL for other values.
typedef const char* (*qn__ir_text_fn_t)(uint32_t value);
const char* qn__loop_kind_text(uint32_t kind);  // "block.x"
const char* qn__scope_text(uint32_t scope);
const char* qn__access_text(uint32_t access);
const char* qn__reduce_text(uint32_t kind);
const char* qn__several_text(uint32_t kind);
const char* qn__leave_text(uint32_t kind);
const char* qn__atomic_text(uint32_t op);
// Compares a word with a text of a table. The first letter differs for most of them.
static inline bool qn__word_is(qn_str_t word, const char* text) {
  return word.size > 0 && word.data[0] == text[0] && qn__str_equal(word, qn__str(text));
}
// Returns the value with the text `word`; 0 for none.
uint32_t qn__word_find(qn__ir_text_fn_t text_of, qn_str_t word);
uint32_t qn__atomic_operand_count(qn_atomic_op_t op);
// Returns whether the operation exists for elements of the dtype.
bool qn__atomic_takes(qn_atomic_op_t op, qn_dtype_t dtype);
// Returns whether the statement orders accesses of its thread to memory that blocks share: a fence,
// an atomic load or store.
static inline bool qn__stmt_orders_memory(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_FENCE ||
         (stmt->kind == QN__STMT_ATOMIC &&
          (stmt->atomic.op == QN_ATOMIC_LOAD || stmt->atomic.op == QN_ATOMIC_STORE));
}
static inline bool qn__loop_is_block(qn_loop_kind_t kind) {
  return kind >= QN_LOOP_BLOCK_X && kind <= QN_LOOP_BLOCK_Z;
}
static inline bool qn__loop_is_thread(qn_loop_kind_t kind) {
  return kind >= QN_LOOP_THREAD_X && kind <= QN_LOOP_THREAD_Z;
}

// ---- arithmetic shared by constant folding and the interpreter, so that they cannot disagree
// (arith.c)

// A value of one dtype: integers and bools sign- or zero-extended in `i`; floats as the exact value
// in `f` (rounded to dtype after every operation).
typedef union qn__ir_scalar {
  int64_t i;
  double f;
} qn__ir_scalar_t;
// Rounds to the nearest value of a float dtype, ties to even.
double qn__round_float(qn_dtype_t dtype, double value);
// Bit pattern of a value in memory, zero-extended, and back.
uint64_t qn__scalar_to_bits(qn_dtype_t dtype, qn__ir_scalar_t value);
qn__ir_scalar_t qn__scalar_from_bits(qn_dtype_t dtype, uint64_t bits);
// Conversion between dtypes with the language's rules (saturating float to int, wrapping int to
// int).
qn__ir_scalar_t qn__scalar_cast(qn_dtype_t from, qn__ir_scalar_t value, qn_dtype_t to);
// Applies an operator that is not LANE or GROUP; `dtype` is the operands' common dtype (of a and b
// for SELECT). False for an integer division by zero (out is then 0).
bool qn__scalar_op(qn_op_t op, qn_dtype_t dtype, const qn__ir_scalar_t* args, qn__ir_scalar_t* out);
// The value of an expression of literals alone; false when it has other parts or divides by zero.
bool qn__expr_fold(const qn__ir_expr_t* expr, qn__ir_scalar_t* out);
// One step of a reduction, and its neutral element.
qn__ir_scalar_t qn__reduce_step(qn_reduce_kind_t kind, qn_dtype_t dtype, qn__ir_scalar_t a,
                                qn__ir_scalar_t b);
qn__ir_scalar_t qn__reduce_neutral(qn_reduce_kind_t kind, qn_dtype_t dtype);

#endif  // QUERN_IR_IR_H_
