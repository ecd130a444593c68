// SPDX-License-Identifier: Apache-2.0
// examples/plugin/grid.c: a GPU of another maker, which brings a printer and a device, and no
// planner: gpu.h makes the launch plan and runs it. The GPU is emulated: a thread of a block is a
// thread of the host, shared memory is memory, and a barrier is one. It runs a block at a time,
// which is allowed: kernels stride over their blocks. GNU C, by the C compiler of the machine.
//
// It has no f16 and bf16, no atomics, and no checked builds: the printer refuses them by name.
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Before the headers that make `bool` a macro.
#define TEXT_OF(...) #__VA_ARGS__ "\n",
#define TEXT(...) TEXT_OF(__VA_ARGS__)
static const char* const prelude[] = {
#include "c/prelude.inc"
};

#include "quern/gpu.h"

enum { DEVICE_GRID = 44, MAX_THREADS = 32, MAX_SHARED_BYTES = 16384 };

// ---- the barrier of a block: threads that have left no longer count

typedef struct hall {
  pthread_mutex_t mutex;
  pthread_cond_t is_open;
  uint32_t live, waiting, turn;
} hall_t;

static void let_go(hall_t* hall) {
  if (hall->waiting != hall->live) return;
  hall->waiting = 0, hall->turn++;
  (void)pthread_cond_broadcast(&hall->is_open);
}

static void wait_for_all(void* self) {
  hall_t* hall = self;
  (void)pthread_mutex_lock(&hall->mutex);
  uint32_t turn = hall->turn;
  hall->waiting++;
  let_go(hall);
  while (hall->turn == turn) (void)pthread_cond_wait(&hall->is_open, &hall->mutex);
  (void)pthread_mutex_unlock(&hall->mutex);
}

static void leave(hall_t* hall, uint32_t count) {
  (void)pthread_mutex_lock(&hall->mutex);
  hall->live -= count;
  let_go(hall);
  (void)pthread_mutex_unlock(&hall->mutex);
}

// ---- the device: memory of the host, and one stream whose work is done at once

// What a kernel gets besides its arguments; the text has the same struct.
typedef struct team {
  uint32_t thread, threads, tag;
  qn_gpu_record_t* record;
  char* shared;
  void (*wait)(void* hall);
  hall_t* hall;
} team_t;
static const char team_text[] =
    "typedef struct { uint32_t tag, site; int64_t index, extent; } record;\n"
    "typedef struct { uint32_t thread, threads, tag; record* record; char* shared;\n"
    "  void (*wait)(void*); void* hall; } team;\n"
    "static void fail(const team* t, uint32_t site) { uint32_t none = 0;\n"
    "  if (__atomic_compare_exchange_n(&t->record->tag, &none, t->tag, 0, 5, 5))\n"
    "    t->record->site = site; }\n";

typedef void (*kernel_fn_t)(const uint64_t* values, const team_t* team);
typedef struct executable {
  void* object;
  qn_gpu_plan_t* plan;
  kernel_fn_t* kernels;  // in the order of the plan
  uint32_t* shared_bytes;
} executable_t;
typedef struct call {
  const executable_t* executable;
  const qn_launch_t* launch;
} call_t;
typedef struct thread {
  kernel_fn_t kernel;
  const uint64_t* values;
  team_t team;
  pthread_t id;
} thread_t;

static void* run_thread(void* self) {
  thread_t* thread = self;
  thread->kernel(thread->values, &thread->team);
  leave(thread->team.hall, 1);
  return NULL;
}

static qn_status_t launch_kernel(void* self, const qn_gpu_launch_t* launch) {
  const call_t* call = self;
  thread_t threads[MAX_THREADS];
  hall_t hall = {.live = launch->thread_count};
  qn_gpu_record_t record = {0};
  char* shared = malloc(call->executable->shared_bytes[launch->kernel] + 1);
  if (!shared) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "grid: no shared memory");
  (void)pthread_mutex_init(&hall.mutex, NULL), (void)pthread_cond_init(&hall.is_open, NULL);
  uint32_t count = 0;
  for (; count < launch->thread_count; count++) {
    threads[count] =
        (thread_t){.kernel = call->executable->kernels[launch->kernel],
                   .values = launch->values,
                   .team = {count, launch->thread_count, 1, &record, shared, wait_for_all, &hall}};
    if (pthread_create(&threads[count].id, NULL, run_thread, &threads[count]) != 0) break;
  }
  bool is_whole = count == launch->thread_count;
  if (!is_whole) leave(&hall, launch->thread_count - count);
  while (count > 0) (void)pthread_join(threads[--count].id, NULL);
  (void)pthread_cond_destroy(&hall.is_open), (void)pthread_mutex_destroy(&hall.mutex);
  free(shared);
  if (!is_whole) return qn_status_make(QN_STATUS_INTERNAL, "grid: no threads");
  if (record.tag == 0) return QN_OK;
  const qn_kernel_failure_t failure = {record.site, record.index, record.extent};
  return call->launch->describe(call->launch->owner, &failure);
}

static qn_status_t allocate(int32_t id, size_t size_bytes, size_t alignment_bytes, void** out) {
  (void)id;
  size_t alignment = alignment_bytes > 64 ? alignment_bytes : 64;
  if (posix_memalign(out, alignment, size_bytes | 1) == 0) return QN_OK;
  return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "grid: no memory for %zu bytes", size_bytes);
}

static qn_status_t release(int32_t id, void* pointer) {
  (void)id, free(pointer);
  return QN_OK;
}

static qn_status_t take_workspace(void* self, uint64_t size_bytes, uint64_t* out_address) {
  (void)self;
  void* pointer = NULL;
  qn_status_t status = allocate(0, size_bytes, 64, &pointer);
  *out_address = (uintptr_t)pointer;
  return status;
}

static void give_workspace(void* self, uint64_t address) {
  (void)self, free((void*)(uintptr_t)address);
}

static const qn_gpu_runner_t runner = {QN_GPU_ABI_VERSION, sizeof runner, take_workspace,
                                       give_workspace, launch_kernel};

static qn_status_t copy(int32_t id, void* stream, const qn_copy_t* copy) {
  (void)id, (void)stream;
  memcpy((char*)copy->to + copy->to_offset_bytes, (const char*)copy->from + copy->from_offset_bytes,
         copy->size_bytes);
  return QN_OK;
}

static bool accepts(const char* format) {
  return strcmp(format, "grid-1") == 0;
}

static void unload(int32_t id, void* self) {
  (void)id;
  executable_t* executable = self;
  qn_gpu_plan_destroy(executable->plan);
  if (executable->object) (void)dlclose(executable->object);
  free(executable->kernels), free(executable->shared_bytes), free(executable);
}

static qn_status_t open_object(const qn_artifact_t* artifact, executable_t* executable) {
  char path[] = "/tmp/grid-XXXXXX";
  int file = mkstemp(path);
  ssize_t size = file < 0 ? -1 : write(file, artifact->payload, artifact->payload_size);
  if (size == (ssize_t)artifact->payload_size) executable->object = dlopen(path, RTLD_NOW);
  if (file >= 0) (void)close(file), (void)unlink(path);
  return executable->object
             ? QN_OK
             : qn_status_make(QN_STATUS_DATA_LOSS, "grid: no shared object, or /tmp is full");
}

static qn_status_t load_into(const qn_artifact_t* artifact, executable_t* executable) {
  qn_status_t status = qn_gpu_plan_load(artifact, &runner, MAX_THREADS, &executable->plan);
  if (qn_ok(status)) status = open_object(artifact, executable);
  if (!qn_ok(status)) return status;
  uint32_t count = qn_gpu_plan_kernel_count(executable->plan);
  executable->kernels = calloc(count + 1, sizeof *executable->kernels);
  executable->shared_bytes = calloc(count + 1, sizeof *executable->shared_bytes);
  if (!executable->kernels || !executable->shared_bytes) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "grid: no memory");
  }
  for (uint32_t i = 0; i < count; i++) {
    qn_gpu_kernel_info_t info = {.struct_size = sizeof info};
    status = qn_gpu_plan_kernel(executable->plan, i, &info);
    if (!qn_ok(status)) return status;
    void* symbol = dlsym(executable->object, info.name);
    if (!symbol || info.shared_bytes > MAX_SHARED_BYTES) {
      return qn_status_make(QN_STATUS_DATA_LOSS, "grid: no kernel '%s'", info.name);
    }
    memcpy(&executable->kernels[i], &symbol, sizeof symbol);
    executable->shared_bytes[i] = info.shared_bytes;
  }
  return QN_OK;
}

static qn_status_t load(int32_t id, const qn_artifact_t* artifact, const qn_load_options_t* options,
                        void** out_executable) {
  (void)options;
  *out_executable = NULL;
  executable_t* executable = calloc(1, sizeof *executable);
  if (!executable) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "grid: no memory");
  qn_status_t status = load_into(artifact, executable);
  if (qn_ok(status)) *out_executable = executable;
  if (!qn_ok(status)) unload(id, executable);
  return status;
}

static qn_status_t launch(int32_t id, void* executable, uint32_t index, void* stream,
                          const qn_launch_t* launch) {
  (void)id, (void)stream;
  call_t call = {executable, launch};
  return qn_gpu_plan_run(call.executable->plan, index, launch, &call);
}

// ---- the printer: from a kernel to C

typedef struct writer {
  const qn_module_t* module;
  qn_gpu_program_t* program;
  uint32_t kernel;
  uint32_t shared_bytes;
  bool* is_declared;  // buffers of the function, by id
  FILE* out;
  qn_status_t status;  // the first error
} writer_t;

static bool is_ok(writer_t* w, qn_status_t status) {
  if (qn_ok(w->status)) w->status = status, status = QN_OK;
  qn_status_free(status);
  return qn_ok(w->status);
}

static void refuse(writer_t* w, const char* what, const char* name) {
  (void)is_ok(w, qn_status_make(QN_STATUS_UNSUPPORTED, "grid: %s %s", what, name));
}

static qn_expr_info_t expr_of(writer_t* w, const qn_expr_t* expr) {
  qn_expr_info_t e = {.struct_size = sizeof e};
  (void)is_ok(w, qn_module_expr_info(w->module, expr, &e));
  return e;
}

// Returns the name of a dtype, which the prelude makes a type.
static const char* type_of(writer_t* w, qn_dtype_t dtype) {
  bool is_half = dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16;
  if (is_half || dtype > QN_DTYPE_F64) refuse(w, "dtype", qn_dtype_text(dtype));
  return qn_dtype_text(dtype);
}

static void put_expr(writer_t* w, const qn_expr_t* expr);

// Writes text: %e an expression, %v a variable, %d a dtype, %u a number, %s a text, %% itself.
static void put(writer_t* w, const char* format, ...) {
  va_list list;
  va_start(list, format);
  for (const char* at = format; *at; at++) {
    char kind = *at == '%' ? *++at : '\0';
    qn_var_info_t v = {.struct_size = sizeof v};
    if (!kind || kind == '%') fputc(*at, w->out);
    if (kind == 'e') put_expr(w, va_arg(list, const qn_expr_t*));
    if (kind == 'd') fputs(type_of(w, (qn_dtype_t)va_arg(list, int)), w->out);
    if (kind == 's') fputs(va_arg(list, const char*), w->out);
    if (kind == 'u') fprintf(w->out, "%llu", (unsigned long long)va_arg(list, uint64_t));
    if (kind == 'v' && is_ok(w, qn_module_var_info(w->module, va_arg(list, const qn_var_t*), &v))) {
      fprintf(w->out, "v%u", (unsigned)v.id);
    }
  }
  va_end(list);
}

// Views and tables at the top of the function are declared nowhere: they are written where they
// are used. Their expressions hold only symbols and lets of the host.
static void put_element(writer_t* w, const qn_buffer_t* buffer, const qn_expr_t* const* indices) {
  qn_buffer_info_t b = {.struct_size = sizeof b};
  if (!is_ok(w, qn_module_buffer_info(w->module, buffer, &b))) return;
  if (w->is_declared[b.id]) {
    put(w, "b%u[", (uint64_t)b.id);
  } else if (b.scope == QN_SCOPE_VIEW) {
    put(w, "((%d*)&", b.dtype);
    put_element(w, b.base, b.base_indices);
    put(w, ")[");
  } else {
    put(w, "((const %d[]){", b.dtype);
    for (size_t i = 0; i < b.element_count; i++) put(w, "%e, ", b.elements[i]);
    put(w, "})[");
  }
  for (uint32_t d = 0; d < b.rank; d++) put(w, "(");
  put(w, "0");
  for (uint32_t d = 0; d < b.rank; d++) {
    if (d > 0 && !b.strides) put(w, " * (%e)", b.shape[d]);
    put(w, b.strides ? " + (%e) * (%e))" : " + (%e))", indices[d], b.strides ? b.strides[d] : NULL);
  }
  put(w, "]");
}

static void put_op(writer_t* w, const qn_expr_info_t* e) {
  static const struct {
    const char *name, *text;
    bool is_call;
  } ops[QN_OP_COUNT] = {
#define INFIX 0
#define PREFIX 0
#define CALL 1
#define QN_OP(name, value, text, arity, rule, syntax, doc) [QN_OP_##name] = {#name, text, syntax},
#include "quern/ops.inc"
#undef QN_OP
  };
  qn_dtype_t dtype = expr_of(w, e->args[e->op == QN_OP_SELECT ? 1 : 0]).dtype;
  bool divides = e->op >= QN_OP_FLOORDIV && e->op <= QN_OP_CEILDIV;
  bool is_call = ops[e->op].is_call || divides || e->op == QN_OP_SHL || e->op == QN_OP_SHR;
  const char* text = is_call ? ops[e->op].name : ops[e->op].text;
  if (e->op == QN_OP_NOT && dtype == QN_DTYPE_BOOL) text = "!";
  put(w, "((%d)", e->dtype);
  if (is_call) put(w, "%s_%d", text, dtype);
  put(w, "(");
  for (uint32_t i = 0; i < e->arg_count; i++) {
    if (i > 0) put(w, is_call ? ", " : " %s ", text);
    if (e->arg_count == 1 && !is_call) put(w, "%s", text);
    put(w, "(%e)", e->args[i]);
  }
  put(w, "))");
}

static void put_cast(writer_t* w, const qn_expr_info_t* e) {
  qn_dtype_t from = expr_of(w, e->args[0]).dtype;
  const char* kind = from == QN_DTYPE_F64 ? "d" : from >= QN_DTYPE_F16 ? "f" : "i";
  put(w, "cast_%s_%d(%e)", kind, e->dtype, e->args[0]);
}

static void put_block(writer_t* w, const qn_stmt_t* first);

static void put_reduce(writer_t* w, const qn_expr_info_t* e) {
  static const char* const starts[] = {NULL, "0", "1", "TOP", "LOW"};
  static const char* const signs[] = {NULL, "+", "*", "MIN", "MAX"};
  bool is_call = e->reduce_kind >= QN_REDUCE_MIN;
  put(w, is_call ? "({ %d r_%v = %s_%d" : "({ %d r_%v = %s", e->dtype, e->var,
      starts[e->reduce_kind], e->dtype);
  put(w, "; const int64_t e_%v = %e;\nfor (int64_t %v = %e; %v < e_%v; %v++) {\n", e->var, e->end,
      e->var, e->begin, e->var, e->var, e->var);
  put_block(w, e->lets);
  if (is_call) {
    put(w, "r_%v = %s_%d(r_%v, %e);\n", e->var, signs[e->reduce_kind], e->dtype, e->var, e->value);
  } else {
    put(w, "r_%v = (%d)(r_%v %s (%e));\n", e->var, e->dtype, e->var, signs[e->reduce_kind],
        e->value);
  }
  put(w, "} r_%v; })", e->var);
}

static void put_expr(writer_t* w, const qn_expr_t* expr) {
  qn_expr_info_t e = expr_of(w, expr);
  if (!qn_ok(w->status)) return;
  (void)type_of(w, e.dtype);
  if (e.kind == QN_EXPR_INT) {
    put(w, "((%d)%uu)", e.dtype, e.bits);
  } else if (e.kind == QN_EXPR_FLOAT) {
    put(w, "bits_%d(%uu)", e.dtype, e.bits);
  } else if (e.kind == QN_EXPR_VAR) {
    put(w, "%v", e.var);
  } else if (e.kind == QN_EXPR_LOAD) {
    put_element(w, e.buffer, e.args);
  } else if (e.kind == QN_EXPR_OP) {
    put_op(w, &e);
  } else if (e.kind == QN_EXPR_CAST) {
    put_cast(w, &e);
  } else if (e.kind == QN_EXPR_BITCAST) {
    put(w, "bits_%d(value_%d(%e))", e.dtype, expr_of(w, e.args[0]).dtype, e.args[0]);
  } else if (e.kind == QN_EXPR_COND) {
    put(w, "((%e) ? (%e) : (%e))", e.args[0], e.args[1], e.args[2]);
  } else if (e.kind == QN_EXPR_REDUCE) {
    put_reduce(w, &e);
  } else {
    refuse(w, "an expression", "of a newer library");
  }
}

static void put_buffer(writer_t* w, const qn_stmt_info_t* s) {
  qn_buffer_info_t b = {.struct_size = sizeof b};
  if (!is_ok(w, qn_module_buffer_info(w->module, s->buffer, &b))) return;
  uint64_t id = b.id, size = qn_dtype_size_bytes(b.dtype);
  if (b.scope == QN_SCOPE_CONST) return;  // written where it is used
  for (uint32_t d = 0; d < b.rank && b.scope != QN_SCOPE_VIEW; d++) {
    size *= (uint64_t)expr_of(w, b.shape[d]).int_value;
  }
  if (b.scope == QN_SCOPE_VIEW) {
    put(w, "%d* b%u = (%d*)&", b.dtype, id, b.dtype);
    put_element(w, b.base, b.base_indices);
    put(w, ";\n");
  } else if (b.scope == QN_SCOPE_SHARED) {
    put(w, "%d* b%u = (%d*)(t->shared + %u);\n", b.dtype, id, b.dtype, (uint64_t)w->shared_bytes);
    if (size > MAX_SHARED_BYTES - w->shared_bytes)
      refuse(w, "shared memory beyond 16 KiB of", b.name);
    if (qn_ok(w->status)) w->shared_bytes += (uint32_t)(size + 63) / 64 * 64;
  } else {
    put(w, "_Alignas(64) char c%u[%u];\n%d* b%u = (%d*)c%u;\n", id, size | 1, b.dtype, id, b.dtype,
        id);
  }
  w->is_declared[b.id] = true;
}

// A thread counts the iterations of the nest of THREAD loops, and runs every threads-th. All
// threads run all blocks; shared memory is free for the next block when all are there.
static void put_loop(writer_t* w, const qn_stmt_info_t* s) {
  qn_stmt_info_t inner = {.struct_size = sizeof inner};
  if (s->body && !is_ok(w, qn_module_stmt_info(w->module, s->body, &inner))) return;
  bool is_nest = inner.kind == QN_STMT_LOOP && !inner.next;
  bool is_thread = s->loop_kind >= QN_LOOP_THREAD_X;
  bool is_block = s->loop_kind >= QN_LOOP_BLOCK_X && !is_thread;
  put(w, "{ const int64_t e_%v = %e;\nfor (int64_t %v = %e; %v < e_%v; %v++) {\n", s->var, s->end,
      s->var, s->begin, s->var, s->var, s->var);
  if (is_thread && !(is_nest && inner.loop_kind >= QN_LOOP_THREAD_X)) {
    put(w, "if (n++ %% t->threads != t->thread) continue;\n");
  }
  if (is_block &&
      !(is_nest && inner.loop_kind >= QN_LOOP_BLOCK_X && inner.loop_kind < QN_LOOP_THREAD_X)) {
    put(w, "uint64_t n = 0;\n");
    put_block(w, s->body);
    put(w, w->shared_bytes ? "t->wait(t->hall);\n}}\n" : "}}\n");
    return;
  }
  put_block(w, s->body);
  put(w, "}}\n");
}

static void put_assert(writer_t* w, const qn_stmt_info_t* s) {
  const qn_artifact_site_t site = {
      .kind = QN_SITE_ASSERT, .buffer_id = UINT32_MAX, .place = s->place, .message = s->message};
  uint32_t number;
  if (!is_ok(w, qn_gpu_program_add_site(w->program, w->kernel, &site, &number))) return;
  put(w, "if (!(%e)) { fail(t, %u); return; }\n", s->condition, (uint64_t)number);
}

static void put_stmt(writer_t* w, const qn_stmt_info_t* s) {
  if (s->kind == QN_STMT_LET) {
    put(w, "const %d %v = %e;\n", expr_of(w, s->value).dtype, s->var, s->value);
  } else if (s->kind == QN_STMT_STORE) {
    put_element(w, s->buffer, s->indices);
    put(w, " = %e;\n", s->value);
  } else if (s->kind == QN_STMT_IF) {
    put(w, "if (%e) {\n", s->condition);
    put_block(w, s->body);
    put(w, "} else {\n");
    put_block(w, s->other_body);
    put(w, "}\n");
  } else if (s->kind == QN_STMT_LOOP) {
    put_loop(w, s);
  } else if (s->kind == QN_STMT_WHILE) {
    put(w, "while (%e) {\n", s->condition);
    put_block(w, s->body);
    put(w, "}\n");
  } else if (s->kind == QN_STMT_ALLOC) {
    put_buffer(w, s);
  } else if (s->kind == QN_STMT_BARRIER) {
    put(w, "t->wait(t->hall);\n");
  } else if (s->kind == QN_STMT_ASSERT) {
    put_assert(w, s);
  } else if (s->kind == QN_STMT_FENCE) {
    put(w, "__atomic_thread_fence(5);\n");
  } else {
    refuse(w, "statements", s->kind == QN_STMT_ATOMIC ? "that are atomic" : "of a newer library");
  }
}

static void put_block(writer_t* w, const qn_stmt_t* first) {
  qn_stmt_info_t s = {.struct_size = sizeof s};
  for (const qn_stmt_t* at = first; at; at = s.next) {
    if (is_ok(w, qn_module_stmt_info(w->module, at, &s))) put_stmt(w, &s);
    if (!qn_ok(w->status)) return;
  }
}

static void put_kernel(writer_t* w, const qn_gpu_kernel_source_t* kernel) {
  put(w, "void %s(const uint64_t* a, const team* t) {\n", kernel->name);
  for (uint64_t i = 0; i < kernel->arg_count; i++) {
    const qn_gpu_operand_t* operand = &kernel->operands[i];
    qn_buffer_info_t b = {.struct_size = sizeof b};
    qn_var_info_t v = {.struct_size = sizeof v};
    if (operand->buffer && is_ok(w, qn_module_buffer_info(w->module, operand->buffer, &b))) {
      put(w, "%d* b%u = (%d*)a[%u];\n", b.dtype, (uint64_t)b.id, b.dtype, i);
      w->is_declared[b.id] = true;
    } else if (operand->var && is_ok(w, qn_module_var_info(w->module, operand->var, &v))) {
      put(w, "const %d %v = bits_%d(a[%u]);\n", v.dtype, operand->var, v.dtype, i);
    }
  }
  qn_stmt_info_t root = {.struct_size = sizeof root};
  if (is_ok(w, qn_module_stmt_info(w->module, kernel->root, &root))) put_loop(w, &root);
  put(w, "}\n");
}

// ---- the code generator: the compiler of the machine makes one object of all kernels

static void put_program(writer_t* w) {
  for (size_t i = 0; i < sizeof prelude / sizeof *prelude; i++) fputs(prelude[i], w->out);
  fputs(team_text, w->out);
  for (; w->kernel < qn_gpu_program_kernel_count(w->program); w->kernel++) {
    qn_gpu_kernel_source_t kernel = {.struct_size = sizeof kernel};
    qn_function_info_t f = {.struct_size = sizeof f};
    if (!is_ok(w, qn_gpu_program_kernel(w->program, w->kernel, &kernel)) ||
        !is_ok(w, qn_module_function_info(w->module, kernel.function_index, &f))) {
      return;
    }
    w->shared_bytes = 0;
    w->is_declared = calloc(f.buffer_count + 1, sizeof *w->is_declared);
    if (w->is_declared) put_kernel(w, &kernel);
    if (!w->is_declared) (void)is_ok(w, qn_status_make(QN_STATUS_OUT_OF_MEMORY, "grid: no memory"));
    free(w->is_declared);
    const qn_gpu_code_t code = {.struct_size = sizeof code, .shared_bytes = w->shared_bytes};
    if (!is_ok(w, qn_gpu_program_set_code(w->program, w->kernel, &code))) return;
  }
}

// Lowers a module, splits it, and writes the C of its kernels. The caller frees the text, and
// releases what is in the writer.
static qn_status_t write_text(writer_t* w, const qn_compile_request_t* request, char** out_text) {
  const qn_machine_t machine = {.struct_size = sizeof machine,
                                .has_fma = true,
                                .max_threads = MAX_THREADS,
                                .max_shared_bytes = MAX_SHARED_BYTES};
  const qn_lower_options_t options = {
      .struct_size = sizeof options, .machine = &machine, .tier = request->tier};
  const qn_gpu_program_options_t split = {
      .struct_size = sizeof split, .machine = &machine, .index_bits = 64};
  qn_module_t *module = NULL, *lowered = NULL;
  if (request->is_checked) refuse(w, "checked builds are", "not for it");
  if (qn_ok(w->status) &&
      is_ok(w, qn_module_decode(request->module_bytes, request->module_size, NULL, &module)) &&
      is_ok(w, qn_module_lower(module, "gpu,lower_math", &options, &lowered))) {
    (void)is_ok(w, qn_gpu_program_create(lowered, &split, &w->program));
  }
  qn_module_release(module);
  w->module = lowered;
  size_t size;
  w->out = qn_ok(w->status) ? open_memstream(out_text, &size) : NULL;
  if (w->out) put_program(w);
  bool is_whole = w->out && fclose(w->out) == 0;
  if (qn_ok(w->status) && !is_whole) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "grid: no memory");
  }
  return w->status;
}

static void release_writer(writer_t* w) {
  qn_gpu_program_destroy(w->program);
  qn_module_release((qn_module_t*)(uintptr_t)w->module);
}

static qn_status_t run_compiler(writer_t* w, const char* text, qn_artifact_t** out) {
  char path[] = "/tmp/grid-XXXXXX", command[200];
  static const size_t room = 16 << 20;
  int file = mkstemp(path);
  (void)snprintf(command, sizeof command,
                 "LD_PRELOAD= cc -std=gnu11 -O1 -fwrapv -fno-strict-aliasing -ffp-contract=off -w "
                 "-shared -fPIC -x c -o %s - 2>/dev/null || { cat >/dev/null; false; }",
                 path);  // cat reads what a compiler that fails leaves: no SIGPIPE
  FILE* pipe = file < 0 ? NULL : popen(command, "w");
  if (pipe) fputs(text, pipe);
  bool is_made = pipe && pclose(pipe) == 0;
  if (file >= 0) (void)close(file);  // another one than the linker's
  FILE* object = is_made ? fopen(path, "rb") : NULL;
  void* payload = malloc(room);
  size_t size = object && payload ? fread(payload, 1, room, object) : 0;
  if (object) (void)fclose(object);
  (void)unlink(path);
  qn_status_t status = size == 0 || size == room
                           ? qn_status_make(QN_STATUS_INTERNAL,
                                            "grid: cc fails, or makes an object of 16 MiB; "
                                            "--emit c shows the text")
                           : qn_gpu_program_artifact(w->program, "grid-1", "{\"kind\":\"grid\"}",
                                                     payload, size, out);
  free(payload);
  return status;
}

static qn_status_t compile(void* self, const qn_compile_request_t* request, qn_artifact_t** out) {
  (void)self;
  *out = NULL;
  writer_t w = {.program = NULL};
  char* text = NULL;
  qn_status_t status = write_text(&w, request, &text);
  if (qn_ok(status)) status = run_compiler(&w, text, out);
  free(text), release_writer(&w);
  return status;
}

static qn_status_t emit(void* self, const qn_compile_request_t* request, const char* form,
                        qn_sink_t sink) {
  (void)self;
  if (strcmp(form, "c") != 0) {
    return qn_status_make(QN_STATUS_NOT_FOUND, "grid: no form '%.32s'; there is c", form);
  }
  writer_t w = {.program = NULL};
  char* text = NULL;
  qn_status_t status = write_text(&w, request, &text);
  if (qn_ok(status)) status = sink.write(sink.self, text, strlen(text));
  free(text), release_writer(&w);
  return status;
}

static const qn_device_table_t device = {.abi_version = QN_DEVICE_ABI_VERSION,
                                         .struct_size = sizeof device,
                                         .type = DEVICE_GRID,
                                         .name = "grid",
                                         .allocate = allocate,
                                         .free = release,
                                         .copy = copy,
                                         .accepts = accepts,
                                         .load = load,
                                         .unload = unload,
                                         .launch = launch};
static const qn_codegen_t generator = {QN_CODEGEN_ABI_VERSION, sizeof generator, "grid",
                                       .compile = compile, .emit = emit};
static const qn_target_kind_info_t kind = {
    sizeof kind, "grid", "blocks of threads, emulated", "grid", DEVICE_GRID, 0, NULL};
// The engine makes the generator's identity, of this object's build id and of the compiler's.
static const char* const files[] = {"cc"};
static const qn_generator_info_t info = {sizeof info, "grid", .file_count = 1, .files = files};
QN_API const qn_plugin_t* qn_plugin_entry(uint32_t abi_version);
QN_API const qn_plugin_t* qn_plugin_entry(uint32_t abi_version) {
  static const qn_device_table_t* const devices[] = {&device};
  static const qn_codegen_t* const generators[] = {&generator};
  static const qn_target_kind_info_t* const kinds[] = {&kind};
  static const qn_generator_info_t* const infos[] = {&info};
  static const qn_plugin_t plugin = {
      QN_PLUGIN_ABI_VERSION, sizeof plugin, "grid", 1, devices, 1, generators, 1, kinds, 1, infos};
  return abi_version == QN_PLUGIN_ABI_VERSION ? &plugin : NULL;
}
