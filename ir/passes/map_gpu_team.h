// ir/passes/map_gpu_team.h: the threads of a block (or of a warp) that run one piece of the program
// together.
//
// The piece is written for one thread. In a team
//   - loops over independent iterations and long reductions are *spread* over the threads;
//   - values, conditions and stores to local buffers are computed by all threads alike;
//   - stores to other memory and atomics are done by the *leader*, thread 0;
//   - a local buffer that spread code writes to becomes shared;
//   - a barrier stands between two accesses to one buffer that different threads make, if one of
//     them is a store (map_gpu_sync.c);
//   - thread loops whose threads meet (*exact* ones) decide how many threads there are; all such of
//     one block agree. Where such a nest may be empty there is one thread all the same, for the
//     rest of the block level. Other thread loops are spread.
//
// map_gpu_team_plan.c marks what is spread, map_gpu_team_axes.c gives the team its threads,
// map_gpu_team.c rewrites, with map_gpu_spread.c for what is spread and map_gpu_sync.c for
// barriers. Thread rule: one thread per body. Read next: map_gpu_team.c.
#ifndef QUERN_IR_PASSES_MAP_GPU_TEAM_H_
#define QUERN_IR_PASSES_MAP_GPU_TEAM_H_

#include "ir/passes/map_gpu.h"

// `lane_count` of a loop or reduction that is spread.
enum { QN__GMAP_SPREAD = 2 };

// Buffers, as a list that is never changed, so that states may share it.
typedef struct qn__gmap_roots qn__gmap_roots_t;
struct qn__gmap_roots {
  const qn__ir_buffer_t* root;
  const qn__gmap_roots_t* next;
};
typedef struct qn__gmap_access {
  const qn__gmap_roots_t* reads;
  const qn__gmap_roots_t* writes;
} qn__gmap_access_t;
// Since the last barrier.
typedef struct qn__gmap_sync {
  qn__gmap_access_t by_all;
  qn__gmap_access_t by_leader;
} qn__gmap_sync_t;

// Rows 0..end whose elements stay with their threads (map_gpu_keep.c).
enum { QN__GMAP_MAX_KEPT = 2 };
typedef struct qn__gmap_row {
  const qn__ir_expr_t* end;
  int64_t lanes;   // neighbours that a thread has in each round; 0: nothing is kept
  int64_t rounds;  // of the longest row
  int64_t threads;
  const qn__ir_buffer_t* kept[QN__GMAP_MAX_KEPT];  // a thread's own: rounds * lanes elements
  uint32_t kept_count;
} qn__gmap_row_t;

typedef struct qn__gmap_team {
  qn__gmap_t* map;
  bool is_warp;
  const qn__ir_stmt_t* axes[3];  // exact thread loops, x, y, z; NULL: one axis of `count` threads
  qn__ir_var_t* axis_vars[3];
  qn__ir_expr_t* count;   // threads; copied for each use
  qn__ir_var_t* thread;   // the number of the thread in the team
  qn__ir_var_t* is_used;  // warps only: false in warps without an iteration; or NULL
  qn__ir_block_t level;   // for the block level: lets that thread extents use, shared buffers
  qn__gmap_sync_t sync;
  qn__gmap_row_t row;
} qn__gmap_team_t;

// ---- map_gpu_team.c

// Rewrites `block` (consumed) for the team, behind what is in `out`.
void qn__gmap_team_run(qn__gmap_team_t* team, qn__ir_block_t* block, qn__ir_block_t* out);

// ---- map_gpu_team_plan.c

// Marks what is to be spread; returns whether there is anything. `is_warp`: exchanges only where
// nothing divides the warps of a block.
bool qn__gmap_plan(qn__gmap_t* map, qn__ir_block_t* block, bool is_warp);

// ---- map_gpu_team_axes.c

// Finds the exact thread loops, if any, and gives the team its threads: theirs, else `threads`.
// False: refused.
bool qn__gmap_team_init(qn__gmap_team_t* team, qn__gmap_t* map, qn__ir_block_t* block,
                        int64_t threads);
// The team's thread loops around `body`.
qn__ir_stmt_t* qn__gmap_team_loops(qn__gmap_team_t* team, qn__ir_block_t* body);
// Computes the number of the thread, unless that has been done: x counts fastest.
void qn__gmap_team_number(qn__gmap_team_t* team, qn__ir_block_t* out);
bool qn__gmap_is_never_empty(const qn__ir_stmt_t* loop);

// ---- map_gpu_spread.c

// Spreads the marked reductions of an expression: what they need is appended to `out`.
bool qn__gmap_spread_expr(qn__gmap_team_t* team, qn__ir_block_t* out, qn__ir_expr_t** slot);
// Spreads a nest of independent loops.
void qn__gmap_spread_loop(qn__gmap_team_t* team, qn__ir_block_t* out, qn__ir_stmt_t* loop);

// ---- map_gpu_keep.c

// Makes a copy of `block` in which values of rows are kept, and fills in the team's row. The
// condition: where it holds the copy is right; NULL: it always is. False: nothing is worth it.
bool qn__gmap_keep(qn__gmap_team_t* team, qn__ir_block_t* block, qn__ir_block_t* out_kept,
                   qn__ir_expr_t** out_condition);
// Does the body of a loop, or else the reduction, use what is kept? Then it is over the row.
bool qn__gmap_is_kept(qn__gmap_team_t* team, qn__ir_block_t* body, qn__ir_expr_t* reduce);
// A thread's part of such a reduction, and of a loop; both are only read.
qn__ir_expr_t* qn__gmap_kept_reduce(qn__gmap_team_t* team, const qn__ir_expr_t* reduce);
void qn__gmap_kept_loop(qn__gmap_team_t* team, qn__ir_block_t* out, qn__gmap_nest_t* nest);

// ---- map_gpu_sync.c

qn__gmap_access_t qn__gmap_access_of_stmt(qn__gmap_t* map, qn__ir_stmt_t* stmt);  // alone
qn__gmap_access_t qn__gmap_access_of_block(qn__gmap_t* map, qn__ir_block_t* block);
qn__gmap_access_t qn__gmap_access_of_own(qn__gmap_t* map, qn__ir_stmt_t* stmt);  // not its blocks
// What follows makes these accesses: appends a barrier to `out` if they need one.
void qn__gmap_sync(qn__gmap_team_t* team, qn__ir_block_t* out, qn__gmap_access_t access,
                   bool is_leader);
void qn__gmap_barrier(qn__gmap_team_t* team, qn__ir_block_t* out);
qn__gmap_sync_t qn__gmap_sync_join(qn__gmap_t* map, qn__gmap_sync_t a, qn__gmap_sync_t b);

// ---- map_gpu_threads.c

// Makes a perfect nest of thread loops of it and returns the innermost one. NULL: something beside
// an inner loop cannot move into it; then nothing is changed, or the mapping has stopped.
qn__ir_stmt_t* qn__gmap_straighten_threads(qn__gmap_t* map, qn__ir_stmt_t* outermost);

// ---- map_gpu_choose.c

typedef enum qn__gmap_way { QN__GMAP_FLAT, QN__GMAP_BLOCK, QN__GMAP_WARP } qn__gmap_way_t;
typedef struct qn__gmap_choice {
  qn__gmap_way_t way;
  int64_t threads;  // of a block; WARP: several warps
} qn__gmap_choice_t;
// For the iterations of a nest.
qn__gmap_choice_t qn__gmap_choose(qn__gmap_t* map, qn__gmap_nest_t* nest);

#endif  // QUERN_IR_PASSES_MAP_GPU_TEAM_H_
