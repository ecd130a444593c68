// ir/passes/map_gpu.h: what the files of the mapping to a GPU share.
//
// 1. map_gpu.c cuts a function into what the host does and *units*, each a launch to be.
// 2. map_gpu_import.c brings values of the device from the unit that computes them to those that
//    use them.
// 3. map_gpu_launch.c gives each unit its blocks and threads: flat (map_gpu_flat.c), by tiles
//    (map_gpu_tile.h), or by a *team*: the threads of a block that work on one iteration together
//    (map_gpu_team.h). map_gpu_choose.c decides.
//
// Thread rule: one thread per body. Read next: map_gpu.c.
#ifndef QUERN_IR_PASSES_MAP_GPU_H_
#define QUERN_IR_PASSES_MAP_GPU_H_

#include "ir/passes/lanes.h"
#include "ir/passes/passes.h"
#include "ir/passes/rewrite.h"

typedef struct qn__gmap_unit qn__gmap_unit_t;

// A condition that only the device knows, around launches: each launch tests it.
typedef struct qn__gmap_guard qn__gmap_guard_t;
struct qn__gmap_guard {
  qn__ir_var_t* var;  // bool, of an entity
  bool is_negated;
  const qn__gmap_guard_t* outer;
};

// Replacement, inside one unit, of what another one or the host's level declares.
typedef struct qn__gmap_alias qn__gmap_alias_t;
struct qn__gmap_alias {
  const void* from;
  void* to;
  qn__gmap_alias_t* next;
};

typedef enum qn__gmap_unit_kind {
  QN__GMAP_GROUP,     // statements of one thread, or of one team
  QN__GMAP_FREE,      // one loop over independent iterations
  QN__GMAP_EXPLICIT,  // one nest of block loops, or of thread loops
} qn__gmap_unit_kind_t;

struct qn__gmap_unit {
  qn__gmap_unit_kind_t kind;
  const qn__ir_block_t* home;  // the host's list that the anchor is in
  qn__ir_stmt_t* anchor;       // becomes the outermost block loop
  qn__ir_block_t stmts;
  qn__ir_block_t prologue;  // lets and views at the block level, made by the import
  const qn__gmap_guard_t* guards;
  qn__gmap_alias_t* aliases;
  qn__gmap_unit_t* next;
};

// Behind `user` of a variable or buffer that stands at the host's level but has its value on the
// device.
typedef struct qn__gmap_entity {
  bool is_sunk;           // computed again in each unit; else computed in `unit`
  qn__gmap_unit_t* unit;  // LET, ATOMIC that is not sunk; LOCAL: the only one that uses it
  const qn__ir_block_t* home;
  qn__ir_stmt_t* stmt;       // LET, ATOMIC or ALLOC
  qn__ir_buffer_t* carrier;  // one element in global memory, once another unit asked for it
  bool is_wide;              // LOCAL: used by more than one unit
} qn__gmap_entity_t;

typedef struct qn__map {
  qn__arena_t* arena;
  const qn__pass_options_t* options;
  qn__ir_func_t* function;
  qn__ir_block_t globals;  // allocations for the top of the function
  qn__gmap_unit_t* first;
  qn__gmap_unit_t* last;
  qn_status_t status;  // the first thing that cannot be mapped
  uint32_t warp_size;
  uint32_t threads;  // of a block, preferred
  uint32_t max_threads;
  // Ids of what the mapping declares go on behind those of the function.
  uint32_t var_count;
  uint32_t buffer_count;
  qn__lanes_t lanes;  // qn__gmap_lanes
} qn__gmap_t;

static inline bool qn__gmap_stopped(const qn__gmap_t* map) {
  return map->arena->is_exhausted || !qn_ok(map->status);
}

// ---- nodes (map_gpu_kit.c). NULL operands give NULL; the arena remembers that it ran out.

qn__ir_expr_t* qn__gmap_int(qn__gmap_t* map, int64_t value);
qn__ir_expr_t* qn__gmap_use(qn__gmap_t* map, qn__ir_var_t* var);
qn__ir_expr_t* qn__gmap_copy(qn__gmap_t* map, const qn__ir_expr_t* expr);
// Constants are folded, zeros and ones dropped.
qn__ir_expr_t* qn__gmap_op(qn__gmap_t* map, qn_op_t op, qn__ir_expr_t* a, qn__ir_expr_t* b);
qn__ir_var_t* qn__gmap_var(qn__gmap_t* map, qn__ir_var_kind_t kind, qn_dtype_t dtype,
                           const char* name);
qn__ir_buffer_t* qn__gmap_buffer(qn__gmap_t* map, qn__ir_scope_t scope, qn_dtype_t dtype,
                                 const char* name, uint32_t rank);
// Appends `let var = value` for a fresh variable, which it returns.
qn__ir_var_t* qn__gmap_let(qn__gmap_t* map, qn__ir_block_t* block, const char* name,
                           qn__ir_expr_t* value);
// Appends a let of a variable that exists; it becomes a LET variable.
void qn__gmap_let_var(qn__gmap_t* map, qn__ir_block_t* block, qn__ir_var_t* var,
                      qn__ir_expr_t* value);
qn__ir_stmt_t* qn__gmap_loop(qn__gmap_t* map, qn_loop_kind_t kind, qn__ir_var_t* var,
                             qn__ir_expr_t* begin, qn__ir_expr_t* end);
qn__ir_stmt_t* qn__gmap_if(qn__gmap_t* map, qn__ir_expr_t* condition);
qn__ir_stmt_t* qn__gmap_store(qn__gmap_t* map, qn__ir_buffer_t* buffer,
                              qn__ir_expr_t* value);                     // rank 0
qn__ir_expr_t* qn__gmap_load(qn__gmap_t* map, qn__ir_buffer_t* buffer);  // rank 0
// Declares a buffer of one element in `block`.
qn__ir_buffer_t* qn__gmap_cell(qn__gmap_t* map, qn__ir_block_t* block, qn__ir_scope_t scope,
                               qn_dtype_t dtype, const char* name);
void qn__gmap_append(qn__ir_block_t* block, qn__ir_stmt_t* stmt);
void qn__gmap_refuse(qn__gmap_t* map, const char* format, ...) QN_PRINTF(2, 3);

// How often the loop goes round: 0 for any that is empty, whatever its bounds are.
qn__ir_expr_t* qn__gmap_extent(qn__gmap_t* map, const qn__ir_stmt_t* loop);
qn__ir_expr_t* qn__gmap_range(qn__gmap_t* map, const qn__ir_expr_t* begin,
                              const qn__ir_expr_t* end);
// The same of a reduction; less than 0 where that does no harm.
qn__ir_expr_t* qn__gmap_reduce_extent(qn__gmap_t* map, const qn__ir_expr_t* reduce);
// A constant count of iterations; -1: unknown.
int64_t qn__gmap_trips(const qn__ir_expr_t* begin, const qn__ir_expr_t* end);

// ---- questions (map_gpu_kit.c)

// A statement that stops the walk: true.
bool qn__gmap_any_stmt(qn__ir_block_t* block, bool (*is_it)(const qn__ir_stmt_t* stmt));
bool qn__gmap_is_concurrent(const qn__ir_stmt_t* stmt);  // a parallel, block or thread loop
bool qn__gmap_meets(qn__ir_block_t* block);              // has a barrier or an exchange
bool qn__gmap_uses_var(qn__ir_expr_t* expr, const qn__ir_var_t* var);
// Pure arithmetic, so that it may be computed anywhere and more than once.
bool qn__gmap_is_pure(const qn__gmap_t* map, qn__ir_expr_t* expr);
// Marks the loops whose iterations may run in any order, at once, by their kind or because it is
// proven: their `lane_count` is 1 until the end of the mapping.
void qn__gmap_mark_free(qn__gmap_t* map, qn__ir_block_t* block);
static inline bool qn__gmap_is_free(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && stmt->loop.lane_count != 0;
}
static inline bool qn__gmap_is_thread(const qn__ir_stmt_t* stmt) {
  return stmt->kind == QN__STMT_LOOP && qn__loop_is_thread(stmt->loop.kind);
}
// A thread loop whose threads meet.
static inline bool qn__gmap_is_exact(const qn__ir_stmt_t* stmt) {
  return qn__gmap_is_thread(stmt) && !qn__gmap_is_free(stmt);
}
// Facts about one loop, for all that is declared so far. NULL without memory.
qn__lanes_t* qn__gmap_lanes(qn__gmap_t* map);
// What the passes before might have left in a thread's own code becomes serial.
void qn__gmap_serialise(qn__ir_block_t* block);

// Does the host know its value at the launch? (map_gpu.c)
bool qn__gmap_is_host(qn__ir_expr_t* expr);

// ---- import (map_gpu_import.c)

// Ends the import of all units: carriers, local buffers at the host's level.
void qn__gmap_import(qn__gmap_t* map);

// ---- long reductions (map_gpu_long.c)

// Is it a reduction that is worth a launch of its own?
bool qn__gmap_is_long(const qn__ir_expr_t* reduce);
// Returns a parallel loop that computes partial results; the slot becomes what joins them.
qn__ir_stmt_t* qn__gmap_split_long(qn__gmap_t* map, qn__ir_expr_t** slot);

// ---- nests (map_gpu_nest.c)

enum { qn__gmap_max_nest = 8 };
// Loops that are one index space: `index` counts it.
typedef struct qn__gmap_nest {
  uint32_t count;
  qn__ir_stmt_t* loops[qn__gmap_max_nest];  // outermost first
  uint32_t order[qn__gmap_max_nest];        // slowest first: places in `loops`
  qn__ir_block_t lets;                      // of all levels, pure, in order
  qn__ir_block_t body;                      // of the innermost
} qn__gmap_nest_t;

// Takes apart the largest perfect nest of independent loops at `loop`. Its loops are only read
// later; `lets` and `body` are moved out of it.
void qn__gmap_nest_open(qn__gmap_t* map, qn__ir_stmt_t* loop, qn__gmap_nest_t* out);
// Iterations, as an expression.
qn__ir_expr_t* qn__gmap_nest_extent(qn__gmap_t* map, const qn__gmap_nest_t* nest);
// Appends lets of the loops' variables for position `index` (a cheap expression, copied), then the
// nest's own lets.
void qn__gmap_nest_place(qn__gmap_t* map, qn__gmap_nest_t* nest, const qn__ir_expr_t* index,
                         qn__ir_block_t* out);

// ---- launches

void qn__gmap_launch(qn__gmap_t* map, qn__gmap_unit_t* unit);  // map_gpu_launch.c
// One iteration for each thread, or a few; `nest` is consumed. (map_gpu_flat.c)
void qn__gmap_flat(qn__gmap_t* map, qn__gmap_unit_t* unit, qn__gmap_nest_t* nest);

// A product written as a sum: blocks that each have a tile of the result. False: it is none, or
// does not pay; then nothing has changed. `nest` is consumed. (map_gpu_tile.c)
bool qn__gmap_tile(qn__gmap_t* map, qn__gmap_unit_t* unit, qn__gmap_nest_t* nest);
// Lanes: consecutive iterations of the fastest dimension that one thread has at once, so that its
// accesses can be wide; 1: none. `extent`: iterations of the nest, -1 where they are not constant;
// `cost` of one. (map_gpu_wide.c)
int64_t qn__gmap_lane_count(qn__gmap_t* map, qn__gmap_nest_t* nest, int64_t extent, double cost);
// What thread `position` of all does: `count` lanes. `out_condition`: NULL, or what must hold for
// that, the same for all threads; `nest` is consumed only where it is NULL.
qn__ir_block_t qn__gmap_lanes_body(qn__gmap_t* map, qn__gmap_nest_t* nest, qn__ir_var_t* position,
                                   const qn__ir_expr_t* extent, int64_t threads, int64_t count,
                                   qn__ir_expr_t** out_condition);
// The same for a nest, or a reduction, that `threads` share.
int64_t qn__gmap_team_lane_count(qn__gmap_t* map, qn__gmap_nest_t* nest,
                                 const qn__ir_expr_t* threads);
int64_t qn__gmap_reduce_lane_count(qn__gmap_t* map, qn__ir_expr_t* reduce,
                                   const qn__ir_expr_t* threads);
// vector k in 0..count { lets and body }: the lanes of position `at`; `nest` is only read.
qn__ir_stmt_t* qn__gmap_lanes_loop(qn__gmap_t* map, qn__gmap_nest_t* nest, qn__ir_var_t* at,
                                   int64_t count);
// Is a row made of whole groups of lanes? NULL: it has a constant length.
qn__ir_expr_t* qn__gmap_is_whole(qn__gmap_t* map, const qn__ir_expr_t* length, int64_t count);
// reduce k in 0..? { reduce lane in 0..count { ... } } at `position`, which uses `k`; `reduce` is
// only read. The end is the caller's.
qn__ir_expr_t* qn__gmap_lanes_reduce(qn__gmap_t* map, const qn__ir_expr_t* reduce, qn__ir_var_t* k,
                                     const qn__ir_expr_t* position, int64_t count);
// Threads that keep the device busy.
int64_t qn__gmap_busy_threads(const qn__gmap_t* map);

// Puts guards around the body of `threads` (a nest of thread loops around `innermost`), prologue,
// `level` (may be NULL) and a block loop around it, and fills in the anchor. `block_extent` counts
// from 0.
void qn__gmap_finish(qn__gmap_t* map, qn__gmap_unit_t* unit, qn__ir_var_t* block_var,
                     qn__ir_expr_t* block_extent, qn__ir_block_t* level, qn__ir_stmt_t* threads);
// `thread.x t in 0..count` around `body`.
qn__ir_stmt_t* qn__gmap_threads(qn__gmap_t* map, qn__ir_var_t* t, int64_t count,
                                qn__ir_block_t* body);
// Blocks of a grid whose threads or teams step through an extent that only the device knows.
int64_t qn__gmap_fixed_grid(const qn__gmap_t* map);
// Does the host know all bounds of the nest?
bool qn__gmap_nest_is_host(const qn__gmap_nest_t* nest);

#endif  // QUERN_IR_PASSES_MAP_GPU_H_
