// SPDX-License-Identifier: Apache-2.0
// devices/gpu/plan.c: encodes and decodes launch plans.
//
// The bytes: a version, the kernels, the functions with their steps; strings as runs, numbers as
// varints, in the order of plan.h. Decoding checks all bytes. A decoded plan is safe to run:
//  1. every count is bounded by the bytes that are left, so that no count allocates more than a
//     small multiple of the input;
//  2. an expression leaves one value, never pops an empty stack and stays within
//     QN__GPU_MAX_EXPR_DEPTH;
//  3. bodies of loops and branches lie within the steps around them and nest at most
//     QN__GPU_MAX_STEP_DEPTH deep;
//  4. locals and workspaces are read only after a step of the same or an enclosing body that sets
//     them;
//  5. the kernels of a launch exist, and so do their words, locals and workspaces.
// Sites are checked where a failure is described, because the artifact has them.
//
// Thread rule: pure. Read next: eval.c, run.c.
#include "devices/gpu/plan.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "devices/gpu/launch_cache.h"

// ---------------------------------------------------------------------------------------- writing

static void put_expr(qn__buffer_t* out, const qn__gpu_expr_t* expr) {
  qn__buffer_varint(out, expr->op_count);
  for (uint32_t i = 0; i < expr->op_count; i++) {
    const qn__gpu_op_t* op = &expr->ops[i];
    qn__buffer_u8(out, (uint8_t)op->kind);
    switch (op->kind) {
      case QN__GPU_CONST:
        qn__buffer_svarint(out, op->value);
        break;
      case QN__GPU_WORD:
        qn__buffer_u8(out, (uint8_t)op->dtype);
        qn__buffer_varint(out, (uint64_t)op->value);
        break;
      case QN__GPU_LOCAL:
        qn__buffer_varint(out, (uint64_t)op->value);
        break;
      case QN__GPU_APPLY:
        qn__buffer_varint(out, (uint64_t)op->op);
        break;
      case QN__GPU_WRAP:
        qn__buffer_u8(out, (uint8_t)op->dtype);
        break;
    }
  }
}

static void put_kernel(qn__buffer_t* out, const qn__gpu_kernel_t* kernel) {
  qn_str_t name = qn__str(kernel->name);
  qn__buffer_run(out, (qn_span_t){(const uint8_t*)name.data, name.size});
  qn__buffer_varint(out, kernel->code_offset);
  qn__buffer_varint(out, kernel->code_size_bytes);
  qn__buffer_varint(out, kernel->thread_count);
  qn__buffer_varint(out, kernel->shared_bytes);
  qn__buffer_varint(out, kernel->dynamic_shared_bytes);
  qn__buffer_u8(out, kernel->has_record);
  qn__buffer_varint(out, kernel->arg_count);
  for (uint32_t i = 0; i < kernel->arg_count; i++) {
    const qn_gpu_arg_t* arg = &kernel->args[i];
    qn__buffer_u8(out, (uint8_t)arg->kind);
    qn__buffer_varint(out, arg->index);
    qn__buffer_varint(out, arg->size_bytes);
    qn__buffer_u8(out, arg->is_written);
  }
}

// What a step of each kind stores after its slot, a and b: two numbers at most, then the guard.
typedef struct step_number {
  const char* what;  // NULL: none
  size_t offset;
} step_number_t;
#define NUMBER(name, what) {what, offsetof(qn__gpu_step_t, name)}
typedef struct step_layout {
  step_number_t numbers[2];
  bool has_guard;
} step_layout_t;

// Returns NULL for a number that is no kind.
static const step_layout_t* layout_of(qn__gpu_step_kind_t kind) {
  static const step_layout_t kinds[] = {
      [QN__GPU_STEP_LET] = {.has_guard = false},
      [QN__GPU_STEP_WORKSPACE] = {{NUMBER(site, "a site"), NUMBER(memory_site, "a site")}, false},
      [QN__GPU_STEP_LOOP] = {{NUMBER(body_count, "a count of steps")}, false},
      [QN__GPU_STEP_IF] = {{NUMBER(body_count, "a count of steps"),
                            NUMBER(else_count, "a count of steps")},
                           true},
      [QN__GPU_STEP_LAUNCH] = {{NUMBER(kernel, "a kernel's index"),
                                NUMBER(wide_kernel, "a kernel's index")},
                               true},
      [QN__GPU_STEP_ASSERT] = {{NUMBER(site, "a site")}, false},
  };
  return kind >= QN__GPU_STEP_LET && (size_t)kind < QN_COUNT_OF(kinds) ? &kinds[kind] : NULL;
}
#undef NUMBER

static void put_step(qn__buffer_t* out, const qn__gpu_step_t* step) {
  qn__buffer_u8(out, (uint8_t)step->kind);
  qn__buffer_varint(out, step->slot);
  put_expr(out, &step->a);
  put_expr(out, &step->b);
  const step_layout_t* layout = layout_of(step->kind);
  for (size_t i = 0; layout && i < 2 && layout->numbers[i].what; i++) {
    uint32_t value;
    memcpy(&value, (const char*)step + layout->numbers[i].offset, sizeof value);
    qn__buffer_varint(out, value);
  }
  if (layout && layout->has_guard) put_expr(out, &step->guard);
}

void qn__gpu_plan_encode(const qn__gpu_plan_t* plan, qn__buffer_t* out) {
  qn__buffer_u8(out, QN__GPU_PLAN_VERSION);
  qn__buffer_varint(out, plan->kernel_count);
  for (uint32_t i = 0; i < plan->kernel_count; i++) put_kernel(out, &plan->kernels[i]);
  qn__buffer_varint(out, plan->function_count);
  for (uint32_t i = 0; i < plan->function_count; i++) {
    const qn__gpu_function_t* function = &plan->functions[i];
    qn__buffer_varint(out, function->word_count);
    qn__buffer_varint(out, function->param_count);
    qn__buffer_varint(out, function->local_count);
    qn__buffer_varint(out, function->workspace_count);
    qn__buffer_varint(out, function->step_count);
    for (uint32_t s = 0; s < function->step_count; s++) put_step(out, &function->steps[s]);
  }
}

// ---------------------------------------------------------------------------------------- reading

typedef struct state {
  qn__reader_t reader;
  qn__arena_t* arena;
  size_t payload_size;
  const qn__gpu_plan_t* plan;
  qn__gpu_kernel_t* kernels;  // the plan's
  bool has_record;            // a kernel of the function has
  const char* fault;          // the first error; NULL: none
} state_t;

static bool wrong(state_t* state, const char* what) {
  if (!state->fault) state->fault = what;
  return false;
}

static uint32_t get_u32(state_t* state, const char* what) {
  uint64_t value = qn__read_varint(&state->reader);
  if (value > UINT32_MAX) wrong(state, what);
  return (uint32_t)value;
}

static bool get_bool(state_t* state) {
  uint8_t value = qn__read_u8(&state->reader);
  if (value > 1) wrong(state, "a truth value");
  return value != 0;
}

// Reads a count of items of at least `least_bytes_each` bytes; 0 if fewer bytes are left.
static uint32_t get_count(state_t* state, size_t least_bytes_each, const char* what) {
  uint64_t count = qn__read_varint(&state->reader);
  if (count > qn__reader_left(&state->reader) / least_bytes_each || count > UINT32_MAX) {
    wrong(state, what);
    return 0;
  }
  return (uint32_t)count;
}

static bool is_integer_or_bool(qn_dtype_t dtype) {
  return qn__dtype_is_int(dtype) || dtype == QN_DTYPE_BOOL;
}

static bool is_scalar_size(uint32_t size) {
  return size == 1 || size == 2 || size == 4 || size == 8;
}

// The slots that may be read at the decoder's position, one bit for each.
typedef struct known {
  uint64_t locals[QN__GPU_MAX_LOCALS / 64];
  uint64_t workspaces;
} known_t;

static void know_local(known_t* known, uint32_t slot) {
  known->locals[slot / 64] |= UINT64_C(1) << (slot % 64);
}
static bool knows_local(const known_t* known, uint64_t slot) {
  return slot < QN__GPU_MAX_LOCALS && (known->locals[slot / 64] >> (slot % 64) & 1) != 0;
}
static bool knows_workspace(const known_t* known, uint32_t slot) {
  return slot < QN__GPU_MAX_WORKSPACES && (known->workspaces >> slot & 1) != 0;
}

static bool get_op(state_t* state, const qn__gpu_function_t* function, const known_t* known,
                   qn__gpu_op_t* out, uint32_t* depth) {
  uint32_t taken = 0;
  out->kind = (qn__gpu_op_kind_t)qn__read_u8(&state->reader);
  switch (out->kind) {
    case QN__GPU_CONST:
      out->value = qn__read_svarint(&state->reader);
      break;
    case QN__GPU_WORD:
      out->dtype = (qn_dtype_t)qn__read_u8(&state->reader);
      out->value = get_u32(state, "a word's index");
      if (out->value >= function->word_count) return wrong(state, "a word's index");
      if (!is_integer_or_bool(out->dtype)) return wrong(state, "a word's type");
      break;
    case QN__GPU_LOCAL:
      out->value = get_u32(state, "a local's index");
      if (!knows_local(known, (uint64_t)out->value)) return wrong(state, "a local that is not set");
      break;
    case QN__GPU_APPLY:
      out->op = (qn_op_t)get_u32(state, "an operator");
      taken = qn__gpu_op_arity(out->op);
      if (taken == 0) return wrong(state, "an operator");
      break;
    case QN__GPU_WRAP:
      out->dtype = (qn_dtype_t)qn__read_u8(&state->reader);
      if (!is_integer_or_bool(out->dtype)) return wrong(state, "a type");
      taken = 1;
      break;
    default:
      return wrong(state, "the kind of an expression's part");
  }
  if (*depth < taken) return wrong(state, "an expression that takes what is not there");
  *depth = *depth - taken + 1;
  return *depth <= QN__GPU_MAX_EXPR_DEPTH || wrong(state, "an expression that is too deep");
}

static bool get_expr(state_t* state, const qn__gpu_function_t* function, const known_t* known,
                     qn__gpu_expr_t* out) {
  uint32_t count = get_count(state, 2, "an expression's length");
  if (count == 0) return !state->fault;
  qn__gpu_op_t* ops = qn__arena_alloc_array(state->arena, count, sizeof *ops);
  if (!ops) return false;
  uint32_t depth = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (!get_op(state, function, known, &ops[i], &depth)) return false;
  }
  *out = (qn__gpu_expr_t){count, ops};
  return depth == 1 || wrong(state, "an expression that leaves more than one value");
}

static bool get_args(state_t* state, qn__gpu_kernel_t* kernel) {
  kernel->arg_count = get_count(state, 4, "a count of arguments");
  if (kernel->arg_count > QN_GPU_MAX_ARGS) return wrong(state, "a count of arguments");
  qn_gpu_arg_t* args = qn__arena_alloc_array(state->arena, kernel->arg_count + 1, sizeof *args);
  if (!args) return false;
  bool has_scalar = false;
  kernel->takes_words_only = true;
  for (uint32_t i = 0; i < kernel->arg_count; i++) {
    qn_gpu_arg_t* arg = &args[i];
    arg->kind = (qn_gpu_arg_kind_t)qn__read_u8(&state->reader);
    arg->index = get_u32(state, "an argument's index");
    arg->size_bytes = get_u32(state, "an argument's size");
    arg->is_written = get_bool(state);
    bool is_buffer = arg->kind == QN_GPU_ARG_BUFFER || arg->kind == QN_GPU_ARG_WORKSPACE;
    if (arg->kind < QN_GPU_ARG_BUFFER || arg->kind > QN_GPU_ARG_LOCAL) {
      return wrong(state, "the kind of an argument");
    }
    if (is_buffer && has_scalar) return wrong(state, "a buffer behind a scalar");
    if (!is_buffer && arg->is_written) return wrong(state, "a written scalar");
    if (!is_scalar_size(arg->size_bytes)) return wrong(state, "an argument's size");
    has_scalar |= !is_buffer;
    kernel->buffer_count += is_buffer;
    kernel->takes_words_only &= arg->kind == QN_GPU_ARG_BUFFER || arg->kind == QN_GPU_ARG_WORD;
  }
  kernel->args = args;
  return !state->fault;
}

static bool get_kernel(state_t* state, qn__gpu_kernel_t* out) {
  qn_span_t name = qn__read_run(&state->reader);
  if (name.size == 0 || memchr(name.data, 0, name.size)) return wrong(state, "a kernel's name");
  out->name = qn__arena_cstr(state->arena, (qn_str_t){(const char*)name.data, name.size});
  out->code_offset = qn__read_varint(&state->reader);
  out->code_size_bytes = qn__read_varint(&state->reader);
  out->thread_count = get_u32(state, "a count of threads");
  out->shared_bytes = get_u32(state, "a size of shared memory");
  out->dynamic_shared_bytes = get_u32(state, "a size of shared memory");
  out->has_record = get_bool(state);
  if (out->code_offset > state->payload_size ||
      out->code_size_bytes > state->payload_size - out->code_offset) {
    return wrong(state, "code outside of the payload");
  }
  return out->name && get_args(state, out);
}

// Checks that everything that the kernel's arguments name is set here.
static bool check_kernel(state_t* state, const qn__gpu_function_t* function, const known_t* known,
                         uint32_t index) {
  if (index >= state->plan->kernel_count) return wrong(state, "a kernel's index");
  const qn__gpu_kernel_t* kernel = &state->plan->kernels[index];
  for (uint32_t i = 0; i < kernel->arg_count; i++) {
    const qn_gpu_arg_t* arg = &kernel->args[i];
    bool is_there = false;
    switch (arg->kind) {
      case QN_GPU_ARG_BUFFER:
        is_there = arg->index < function->param_count;
        break;
      case QN_GPU_ARG_WORKSPACE:
        is_there = knows_workspace(known, arg->index);
        break;
      case QN_GPU_ARG_WORD:
        is_there = arg->index < function->word_count;
        break;
      case QN_GPU_ARG_LOCAL:
        is_there = knows_local(known, arg->index);
        break;
    }
    if (!is_there) return wrong(state, "an argument that the launch lacks");
  }
  state->has_record |= kernel->has_record;
  return true;
}

static bool check_launch(state_t* state, const qn__gpu_function_t* function, const known_t* known,
                         const qn__gpu_step_t* step) {
  if (!check_kernel(state, function, known, step->kernel)) return false;
  state->kernels[step->kernel].is_first_choice = true;
  bool needs_threads = state->kernels[step->kernel].thread_count == 0;
  if (step->wide_kernel != QN__GPU_NO_KERNEL) {
    if (step->guard.op_count == 0) return wrong(state, "a wide kernel without a guard");
    if (!check_kernel(state, function, known, step->wide_kernel)) return false;
    needs_threads |= state->kernels[step->wide_kernel].thread_count == 0;
  }
  if (needs_threads && step->b.op_count == 0) return wrong(state, "a launch without threads");
  return true;
}

static bool get_step(state_t* state, const qn__gpu_function_t* function, known_t* known,
                     qn__gpu_step_t* step) {
  step->site = step->memory_site = QN__GPU_NO_SITE;
  step->kernel = step->wide_kernel = QN__GPU_NO_KERNEL;
  step->kind = (qn__gpu_step_kind_t)qn__read_u8(&state->reader);
  step->slot = get_u32(state, "a slot");
  if (!get_expr(state, function, known, &step->a) || !get_expr(state, function, known, &step->b)) {
    return false;
  }
  if (step->a.op_count == 0) return wrong(state, "a step without an expression");
  const step_layout_t* layout = layout_of(step->kind);
  if (!layout) return wrong(state, "the kind of a step");
  for (size_t i = 0; i < 2 && layout->numbers[i].what; i++) {
    const uint32_t value = get_u32(state, layout->numbers[i].what);
    memcpy((char*)step + layout->numbers[i].offset, &value, sizeof value);
  }
  if (layout->has_guard) {
    if (!get_expr(state, function, known, &step->guard)) return false;
    step->cache = qn__gpu_launch_cache_make(step, state->arena);
  }
  switch (step->kind) {
    case QN__GPU_STEP_LET:
      if (step->slot >= function->local_count) return wrong(state, "a local's index");
      know_local(known, step->slot);
      break;
    case QN__GPU_STEP_WORKSPACE:
      if (step->slot >= function->workspace_count) return wrong(state, "a workspace's index");
      known->workspaces |= UINT64_C(1) << step->slot;
      break;
    case QN__GPU_STEP_LOOP:
      if (step->slot >= function->local_count) return wrong(state, "a local's index");
      if (step->b.op_count == 0) return wrong(state, "a loop without an end");
      break;
    case QN__GPU_STEP_LAUNCH:
      return check_launch(state, function, known, step) && !state->fault;
    case QN__GPU_STEP_IF:
    case QN__GPU_STEP_ASSERT:
      break;
  }
  return !state->fault;
}

// Checks steps [begin, end). Slots that a body sets are not readable after it.
static bool get_steps(state_t* state, const qn__gpu_function_t* function, qn__gpu_step_t* steps,
                      uint32_t begin, uint32_t end, uint32_t depth, known_t known) {
  if (depth > QN__GPU_MAX_STEP_DEPTH) return wrong(state, "steps that nest too deep");
  for (uint32_t i = begin; i < end;) {
    qn__gpu_step_t* step = &steps[i++];
    if (!get_step(state, function, &known, step)) return false;
    if (step->kind != QN__GPU_STEP_LOOP && step->kind != QN__GPU_STEP_IF) continue;
    if (step->body_count > end - i || step->else_count > end - i - step->body_count) {
      return wrong(state, "a body that is longer than what is around it");
    }
    known_t inner = known;
    if (step->kind == QN__GPU_STEP_LOOP) know_local(&inner, step->slot);
    uint32_t middle = i + step->body_count, behind = middle + step->else_count;
    if (!get_steps(state, function, steps, i, middle, depth + 1, inner) ||
        !get_steps(state, function, steps, middle, behind, depth + 1, inner)) {
      return false;
    }
    i = behind;
  }
  return true;
}

static bool get_function(state_t* state, qn__gpu_function_t* out) {
  out->word_count = get_u32(state, "a count of words");
  out->param_count = get_u32(state, "a count of parameters");
  out->local_count = get_u32(state, "a count of locals");
  out->workspace_count = get_u32(state, "a count of workspaces");
  out->step_count = get_count(state, 4, "a count of steps");
  if (out->param_count > out->word_count) return wrong(state, "more parameters than words");
  if (out->local_count > QN__GPU_MAX_LOCALS) return wrong(state, "a count of locals");
  if (out->workspace_count > QN__GPU_MAX_WORKSPACES) return wrong(state, "a count of workspaces");
  qn__gpu_step_t* steps = qn__arena_alloc_array(state->arena, out->step_count + 1, sizeof *steps);
  if (!steps) return false;
  out->steps = steps;
  state->has_record = false;
  bool is_good = get_steps(state, out, steps, 0, out->step_count, 0, (known_t){{0}, 0});
  out->has_record = state->has_record;
  return is_good;
}

static bool get_plan(state_t* state, qn__gpu_plan_t* plan) {
  if (qn__read_u8(&state->reader) != QN__GPU_PLAN_VERSION) return wrong(state, "its version");
  plan->kernel_count = get_count(state, 9, "a count of kernels");
  qn__gpu_kernel_t* kernels =
      qn__arena_alloc_array(state->arena, plan->kernel_count + 1, sizeof *kernels);
  if (!kernels) return false;
  plan->kernels = state->kernels = kernels;
  for (uint32_t i = 0; i < plan->kernel_count; i++) {
    if (!get_kernel(state, &kernels[i])) return false;
  }
  plan->function_count = get_count(state, 5, "a count of functions");
  qn__gpu_function_t* functions =
      qn__arena_alloc_array(state->arena, plan->function_count + 1, sizeof *functions);
  if (!functions) return false;
  plan->functions = functions;
  for (uint32_t i = 0; i < plan->function_count; i++) {
    if (!get_function(state, &functions[i])) return false;
  }
  if (qn__reader_left(&state->reader) != 0) return wrong(state, "bytes behind its end");
  return !state->fault;
}

qn_status_t qn__gpu_plan_decode(qn_span_t bytes, size_t payload_size, qn__arena_t* arena,
                                qn__gpu_plan_t* out_plan) {
  memset(out_plan, 0, sizeof *out_plan);
  qn__gpu_plan_t plan = {0};
  state_t state = {.reader = qn__reader_make(bytes),
                   .arena = arena,
                   .payload_size = payload_size,
                   .plan = &plan};
  bool is_good = get_plan(&state, &plan) && !state.reader.has_overrun;
  if (arena->is_exhausted) return qn__out_of_memory("a launch plan");
  if (!is_good) {
    return qn_status_make(QN_STATUS_DATA_LOSS, "a launch plan is malformed: %s",
                          state.reader.has_overrun || !state.fault ? "it ends early" : state.fault);
  }
  *out_plan = plan;
  return QN_OK;
}
