// jit/gpu/host.h: expressions that the host evaluates at a call, as postfix (devices/gpu/plan.h).
//
// What they may hold: integers and bools, symbols, scalar parameters, and lets and loop variables
// of the host's level, which have a local each. Thread rule: one thread per program. Read next:
// host.c.
#ifndef QUERN_JIT_GPU_HOST_H_
#define QUERN_JIT_GPU_HOST_H_

#include "devices/gpu/plan.h"
#include "ir/ir.h"

// A growing run of postfix.
typedef struct qn__gpu_ops {
  qn__arena_t* arena;
  qn__gpu_op_t* items;
  uint32_t count;
  uint32_t capacity;
  uint32_t depth;      // of the stack behind the last item
  uint32_t max_depth;  // ever
  bool has_failed;     // sticky: no memory
} qn__gpu_ops_t;

// Where the values of a function's variables are at a call.
typedef struct qn__gpu_host {
  qn__arena_t* arena;
  const qn__ir_func_t* function;
  const uint32_t* words;   // by var->id: the word of a symbol or scalar parameter
  const uint32_t* locals;  // by var->id: the local; QN__GPU_NO_PLACE in both: not the host's
} qn__gpu_host_t;
#define QN__GPU_NO_PLACE UINT32_MAX

void qn__gpu_put_const(qn__gpu_ops_t* ops, int64_t value);
void qn__gpu_put_apply(qn__gpu_ops_t* ops, qn_op_t op);
// A variable that the host knows.
void qn__gpu_put_var(const qn__gpu_host_t* host, qn__gpu_ops_t* ops, const qn__ir_var_t* var);
// An expression that the host knows, extended to i64.
void qn__gpu_put_expr(const qn__gpu_host_t* host, qn__gpu_ops_t* ops, const qn__ir_expr_t* expr);
// Can the host evaluate it?
bool qn__gpu_host_knows_var(const qn__gpu_host_t* host, const qn__ir_var_t* var);
bool qn__gpu_host_knows(const qn__gpu_host_t* host, const qn__ir_expr_t* expr);
// False when the run is too deep for a plan, or memory is out.
bool qn__gpu_ops_finish(const qn__gpu_ops_t* ops, qn__gpu_expr_t* out);

#endif  // QUERN_JIT_GPU_HOST_H_
