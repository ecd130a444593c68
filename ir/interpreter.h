// SPDX-License-Identifier: Apache-2.0
// ir/interpreter.h: the state of one run, shared by the files of the interpreter.
//
// Execution is in lock-step: each statement runs for all *active* threads before the next begins.
// Outside of thread loops there is one thread. A thread loop multiplies the threads: thread t at
// one *level* has the children t * extent + i at the next. A variable has one value for each thread
// of the level of its declaration; so has a local buffer. Read next: interpret.c.
#ifndef QUERN_IR_INTERPRETER_H_
#define QUERN_IR_INTERPRETER_H_

#include <assert.h>

#include "ir/interpret.h"

enum {
  qn__interpret_max_levels = 4,  // outside of thread loops, and the three axes
};

typedef struct qn__interpret_var {
  qn__ir_scalar_t* values;  // per thread of `level`
  uint32_t capacity;
  uint32_t level;
} qn__interpret_var_t;

// A buffer as one thread sees it.
typedef struct qn__interpret_slot {
  uint8_t* data;        // element 0; NULL: not declared by this thread
  const uint8_t* low;   // the memory that belongs to the root buffer
  const uint8_t* high;  // one past
} qn__interpret_slot_t;

typedef struct qn__interpret_buffer {
  uint32_t level;
  uint32_t count;  // threads with a slot
  qn__interpret_slot_t* slots;
  int64_t* dims;  // per thread: rank extents, then rank strides in elements
  size_t dim_count;
  uint8_t* memory;  // owned; NULL for parameters and views
  size_t memory_bytes;
} qn__interpret_buffer_t;

typedef struct qn__interpret_level {
  qn_loop_kind_t kind;
  uint32_t extent;
  uint32_t count;       // threads at this level
  uint32_t per_thread;  // threads of the current level per thread of this one
  // What each thread leaves, 0: nothing; made by the first LEAVE. A loop clears what it ends.
  uint8_t* leaves;
  uint32_t leave_count;  // of threads that leave something
} qn__interpret_level_t;

// A reduction that is being evaluated.
typedef struct qn__interpret_frame qn__interpret_frame_t;
struct qn__interpret_frame {
  const qn__ir_expr_t* reduce;
  const qn__ir_stmt_t* until;  // lets before this one have their values; NULL: all
  qn__interpret_frame_t* outer;
};

// Ascending thread numbers of the current level.
typedef struct qn__interpret_set {
  uint32_t* threads;
  uint32_t count;
} qn__interpret_set_t;

typedef struct qn__interpret_machine {
  const qn__ir_func_t* function;
  const qn__interpret_args_t* args;
  qn_allocator_t allocator;
  qn__interpret_var_t* vars;        // by id
  qn__interpret_buffer_t* buffers;  // by id
  qn__interpret_level_t levels[qn__interpret_max_levels];
  uint32_t level;
  const qn__interpret_set_t* active;
  qn__interpret_frame_t* frame;
  qn_status_t status;  // the first error; all functions then return at once
  qn__ir_node_t node;  // the innermost one that failed
} qn__interpret_machine_t;

static inline bool qn__machine_failed(const qn__interpret_machine_t* machine) {
  return machine->status != NULL;
}
// Records an error, unless there is one already: "function 'f': ...". Returns NULL.
void* qn__machine_fail(qn__interpret_machine_t* machine, qn_status_code_t code, const char* format,
                       ...) QN_PRINTF(3, 4);

// Returns the thread of `level` that `thread` of the current level descends from.
static inline uint32_t qn__machine_ancestor(const qn__interpret_machine_t* machine, uint32_t level,
                                            uint32_t thread) {
  assert(level <= machine->level && thread < machine->levels[machine->level].count);
  return thread / machine->levels[level].per_thread;
}

// ---- interpret_expr.c
// Evaluates an expression for one thread. Returns 0 after a failure.
qn__ir_scalar_t qn__machine_eval(qn__interpret_machine_t* machine, const qn__ir_expr_t* expr,
                                 uint32_t thread);
// Makes room for a variable at the current level. Returns false on failure.
bool qn__machine_declare_var(qn__interpret_machine_t* machine, const qn__ir_var_t* var);
void qn__machine_set_var(qn__interpret_machine_t* machine, const qn__ir_var_t* var, uint32_t thread,
                         qn__ir_scalar_t value);

// ---- interpret_memory.c
// Return the address of an element for one thread after all checks. NULL: a check failed. Of packed
// elements it is that of the byte, and `*out_is_high` says which half.
uint8_t* qn__machine_place(qn__interpret_machine_t* machine, const qn__ir_buffer_t* buffer,
                           qn__ir_expr_t* const* indices, uint32_t thread, bool* out_is_high);
uint8_t* qn__machine_address(qn__interpret_machine_t* machine, const qn__ir_buffer_t* buffer,
                             qn__ir_expr_t* const* indices, uint32_t thread);
// Reads a word of a local buffer (qn__load_is_word). Returns 0 after a failure.
qn__ir_scalar_t qn__machine_read_word(qn__interpret_machine_t* machine, const qn__ir_expr_t* load,
                                      uint32_t thread);
// Evaluates a load of an element. Returns 0 after a failure.
qn__ir_scalar_t qn__machine_load(qn__interpret_machine_t* machine, const qn__ir_expr_t* load,
                                 uint32_t thread);
// Read and write an element that is not packed.
qn__ir_scalar_t qn__machine_read(const qn__ir_buffer_t* buffer, const uint8_t* address);
void qn__machine_write(const qn__ir_buffer_t* buffer, uint8_t* address, qn__ir_scalar_t value);
// Binds a parameter. `address`: see qn__interpret_args_t.
void qn__machine_bind(qn__interpret_machine_t* machine, const qn__ir_buffer_t* buffer,
                      uint64_t address);
// Runs the declaration of a buffer for the active threads.
void qn__machine_alloc(qn__interpret_machine_t* machine, const qn__ir_buffer_t* buffer);
void qn__machine_free_buffers(qn__interpret_machine_t* machine);
// Returns the number of elements from `address` to the end of the buffer's memory.
int64_t qn__machine_reach(const qn__interpret_machine_t* machine, const qn__ir_buffer_t* buffer,
                          uint32_t thread, const uint8_t* address);

// ---- interpret.c
// Runs a block for a set of threads.
void qn__machine_run_block(qn__interpret_machine_t* machine, const qn__ir_block_t* block,
                           const qn__interpret_set_t* active);
// Returns whether a thread takes part in the next round of a loop, after one that it may have left.
bool qn__machine_goes_on(qn__interpret_machine_t* machine, uint32_t thread);

// ---- interpret_several.c
// Runs a REDUCE statement for the active threads.
void qn__machine_several(qn__interpret_machine_t* machine, const qn__ir_several_t* several);

// ---- interpret_tensor.c
// Runs a TENSOR statement for the active threads.
void qn__machine_tensor(qn__interpret_machine_t* machine, const qn__ir_tensor_t* tensor);

#endif  // QUERN_IR_INTERPRETER_H_
