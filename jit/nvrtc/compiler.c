// jit/nvrtc/compiler.c: one NVRTC, its warm-up, and what a fork must wait for.
//
// NVRTC has global state behind locks of its own. A fork while one of those is held would leave a
// child that hangs at its first compile. So a fork waits until no compile is under way; that is
// registered at the first compile and not earlier, because the engine makes generators under a lock
// that its own fork handler takes. For a fork between creation and first compile the warm-up's
// state tells: a child in which it is unfinished refuses to compile.
//
// The warm-up must not run into the end of the process: the thread holds that (base/fork.h), and
// the first compile waits for the thread, so that the engine's own hold covers it too.
//
// Options that not every version knows are tried by the warm-up. What they are follows from the
// version, so equal identities give equal bytes. Thread rule: in compiler.h. Read next: compile.c.
#include "jit/nvrtc/compiler.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fork.h"
#include "base/thread.h"

// What newer versions offer. `is_fast`: for the fast tier alone.
static const struct {
  const char* text;
  bool is_fast;
} optional_options[] = {
    {"--minimal", false},           // no built-in types: less to read
    {"--no-cache", false},          // our own cache is enough, and knows what it holds
    {"--Ofast-compile=max", true},  // 12 times as fast on large kernels
};
enum { OPTIONAL_COUNT = sizeof optional_options / sizeof optional_options[0] };

struct qn__cuda_compiler {
  qn_allocator_t allocator;
  const qn__nvrtc_library_t* library;
  pid_t pid;  // of the process that started the thread
  pthread_t thread;
  bool has_thread;  // and it has not been joined; guarded by mutex
  _Atomic bool is_warm;
  bool has_option[OPTIONAL_COUNT];  // written before is_warm
  // Compiles under way, and whether a fork waits for their end.
  qn__mutex_t mutex;
  qn__cond_t cond;
  uint32_t busy_count;
  bool is_joining;
  bool is_registered;
  qn__fork_node_t fork_node;
};

// As small as can be: what takes time are the tables of built-in functions.
static const char warm_text[] =
    "extern \"C\" __global__ void warm(float* p) { p[threadIdx.x] *= 2.0f; }\n";

// ------------------------------------------------------------------------------------ warm-up

// The oldest architecture that this version knows, from 80 on.
static int warm_arch(const qn__nvrtc_library_t* nvrtc) {
  enum { MOST = 64 };
  int archs[MOST];
  int count = 0;
  if (nvrtc->nvrtcGetNumSupportedArchs(&count) != QN__NVRTC_OK || count < 1 || count > MOST ||
      nvrtc->nvrtcGetSupportedArchs(archs) != QN__NVRTC_OK) {
    return 80;
  }
  int best = 0;
  for (int i = 0; i < count; ++i) {
    if (archs[i] >= 80 && (best == 0 || archs[i] < best)) best = archs[i];
  }
  return best ? best : archs[0];
}

// Whether the options are known, all together.
static bool knows_options(const qn__cuda_compiler_t* compiler, const char* const* extra,
                          int extra_count) {
  const qn__nvrtc_library_t* nvrtc = compiler->library;
  char arch[48];
  (void)snprintf(arch, sizeof arch, "--gpu-architecture=sm_%d", warm_arch(nvrtc));
  const char* options[1 + OPTIONAL_COUNT] = {arch};
  for (int i = 0; i < extra_count; ++i) options[1 + i] = extra[i];
  void* program = NULL;
  if (nvrtc->nvrtcCreateProgram(&program, warm_text, "warm.cu", 0, NULL, NULL) != QN__NVRTC_OK) {
    return false;
  }
  int result = nvrtc->nvrtcCompileProgram(program, 1 + extra_count, options);
  (void)nvrtc->nvrtcDestroyProgram(&program);
  return result != QN__NVRTC_INVALID_OPTION;
}

static void* warm(void* self) {
  qn__cuda_compiler_t* compiler = self;
  const char* all[OPTIONAL_COUNT];
  for (size_t i = 0; i < OPTIONAL_COUNT; ++i) all[i] = optional_options[i].text;
  bool has_all = knows_options(compiler, all, OPTIONAL_COUNT);
  for (size_t i = 0; i < OPTIONAL_COUNT; ++i) {
    compiler->has_option[i] = has_all || knows_options(compiler, &all[i], 1);
  }
  atomic_store_explicit(&compiler->is_warm, true, memory_order_release);
  qn__exit_release();
  return NULL;
}

// Called with the mutex, which it lets go meanwhile; others wait for the one that joins.
static void join_locked(qn__cuda_compiler_t* compiler) {
  while (compiler->is_joining) qn__cond_wait(&compiler->cond, &compiler->mutex);
  if (!compiler->has_thread) return;
  compiler->is_joining = true;
  qn__mutex_unlock(&compiler->mutex);
  (void)pthread_join(compiler->thread, NULL);
  qn__mutex_lock(&compiler->mutex);
  compiler->has_thread = false;
  compiler->is_joining = false;
  qn__cond_broadcast(&compiler->cond);
}

// ------------------------------------------------------------------------------------ fork

static void fork_prepare(void* self) {
  qn__cuda_compiler_t* compiler = self;
  qn__mutex_lock(&compiler->mutex);
  join_locked(compiler);
  while (compiler->busy_count > 0) qn__cond_wait(&compiler->cond, &compiler->mutex);
}
static void fork_parent(void* self) {
  qn__cuda_compiler_t* compiler = self;
  qn__mutex_unlock(&compiler->mutex);
}
static void fork_child(void* self) {
  qn__cuda_compiler_t* compiler = self;
  compiler->busy_count = 0;
  compiler->is_joining = false;
  qn_status_free(qn__mutex_init(&compiler->mutex));
  qn_status_free(qn__cond_init(&compiler->cond));
}

// ------------------------------------------------------------------------------------ compiles

static qn_status_t begin(qn__cuda_compiler_t* compiler) {
  bool is_child = compiler->pid != getpid();
  if (is_child && !atomic_load_explicit(&compiler->is_warm, memory_order_acquire)) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "the process was forked while NVRTC warmed up; compile in the parent, or "
                          "fork before the first lookup");
  }
  qn_status_t status = QN_OK;
  qn__mutex_lock(&compiler->mutex);
  if (is_child) compiler->has_thread = false;  // it is the parent's
  join_locked(compiler);
  bool must_register = !compiler->is_registered;
  compiler->is_registered = true;
  qn__mutex_unlock(&compiler->mutex);
  // Not under the mutex: a fork takes it with the registry's lock held.
  if (must_register) {
    compiler->fork_node = (qn__fork_node_t){
        .self = compiler, .prepare = fork_prepare, .parent = fork_parent, .child = fork_child};
    if (!qn__fork_register(&compiler->fork_node)) status = qn__out_of_memory("a fork handler");
  }
  qn__mutex_lock(&compiler->mutex);
  if (qn_ok(status)) ++compiler->busy_count;
  if (!qn_ok(status)) compiler->is_registered = false;
  qn__mutex_unlock(&compiler->mutex);
  return status;
}

static void end(qn__cuda_compiler_t* compiler) {
  qn__mutex_lock(&compiler->mutex);
  if (--compiler->busy_count == 0) qn__cond_broadcast(&compiler->cond);
  qn__mutex_unlock(&compiler->mutex);
}

static void take_log(const qn__nvrtc_library_t* nvrtc, void* program, qn__buffer_t* out_log) {
  size_t size = 0;
  if (nvrtc->nvrtcGetProgramLogSize(program, &size) != QN__NVRTC_OK || size <= 1) return;
  uint8_t* at = qn__buffer_extend(out_log, size);
  if (!at) return;
  memset(at, 0, size);
  (void)nvrtc->nvrtcGetProgramLog(program, (char*)at);
  out_log->size -= 1;  // its terminator
}

// The architectures that this version knows, for a message: "sm_75, sm_80".
static void list_archs(const qn__nvrtc_library_t* nvrtc, char* out, size_t size) {
  enum { MOST = 64 };
  int archs[MOST];
  int count = 0;
  out[0] = '\0';
  if (nvrtc->nvrtcGetNumSupportedArchs(&count) != QN__NVRTC_OK || count < 1 || count > MOST ||
      nvrtc->nvrtcGetSupportedArchs(archs) != QN__NVRTC_OK) {
    return;
  }
  size_t used = 0;
  for (int i = 0; i < count && used < size; ++i) {
    int got = snprintf(out + used, size - used, "%ssm_%d", i ? ", " : "", archs[i]);
    if (got < 0) return;
    used += (size_t)got;
  }
}

static qn_status_t status_of(const qn__nvrtc_library_t* nvrtc, int result, const char* arch) {
  const char* text = nvrtc->nvrtcGetErrorString(result);
  if (!text) text = "?";
  switch (result) {
    case QN__NVRTC_OUT_OF_MEMORY:
      return qn__out_of_memory("NVRTC");
    case QN__NVRTC_INVALID_OPTION: {
      char archs[512];
      list_archs(nvrtc, archs, sizeof archs);
      return qn_status_make(QN_STATUS_UNSUPPORTED,
                            "NVRTC %d.%d makes no code for '%.32s'; it knows %s, some with the "
                            "suffixes a and f",
                            nvrtc->major, nvrtc->minor, arch, archs);
    }
    case QN__NVRTC_BUILTIN_OPERATION_FAILURE:
      return qn_status_make(QN_STATUS_UNAVAILABLE,
                            "NVRTC %d.%d (%.200s) does not find its own libnvrtc-builtins.so: %s",
                            nvrtc->major, nvrtc->minor, nvrtc->path, text);
    default:
      return qn_status_make(QN_STATUS_INTERNAL, "NVRTC %d.%d does not compile a kernel: %s",
                            nvrtc->major, nvrtc->minor, text);
  }
}

static qn_status_t take_result(const qn__nvrtc_library_t* nvrtc, void* program,
                               const qn__cuda_options_t* options, qn__buffer_t* out) {
  size_t size = 0;
  int result = options->wants_ptx ? nvrtc->nvrtcGetPTXSize(program, &size)
                                  : nvrtc->nvrtcGetCUBINSize(program, &size);
  if (result != QN__NVRTC_OK) return status_of(nvrtc, result, options->arch);
  if (size == 0) {
    return qn_status_make(QN_STATUS_INTERNAL, "NVRTC %d.%d made nothing for '%.32s'", nvrtc->major,
                          nvrtc->minor, options->arch);
  }
  uint8_t* at = qn__buffer_extend(out, size);
  if (!at) return qn__out_of_memory("the code of a kernel");
  result = options->wants_ptx ? nvrtc->nvrtcGetPTX(program, (char*)at)
                              : nvrtc->nvrtcGetCUBIN(program, (char*)at);
  if (result != QN__NVRTC_OK) return status_of(nvrtc, result, options->arch);
  if (options->wants_ptx) out->size -= 1;  // its terminator
  return QN_OK;
}

static qn_status_t compile(const qn__cuda_compiler_t* compiler, const qn__cuda_options_t* options,
                           const char* name, const char* text, qn__buffer_t* out,
                           qn__buffer_t* out_log) {
  enum { FIXED = 6 };
  const qn__nvrtc_library_t* nvrtc = compiler->library;
  char arch[64];
  (void)snprintf(arch, sizeof arch, "--gpu-architecture=%.32s", options->arch);
  // Explicit: what numbers come out must not hang on defaults.
  const char* list[FIXED + OPTIONAL_COUNT] = {arch,          "--std=c++17",     "--fmad=false",
                                              "--ftz=false", "--prec-div=true", "--prec-sqrt=true"};
  int count = FIXED;
  for (size_t i = 0; i < OPTIONAL_COUNT; ++i) {
    if (!compiler->has_option[i]) continue;
    if (optional_options[i].is_fast && !options->is_fast_tier) continue;
    list[count++] = optional_options[i].text;
  }
  void* program = NULL;
  int result = nvrtc->nvrtcCreateProgram(&program, text, name, 0, NULL, NULL);
  if (result != QN__NVRTC_OK) return status_of(nvrtc, result, options->arch);
  result = nvrtc->nvrtcCompileProgram(program, count, list);
  qn_status_t status = QN_OK;
  if (result == QN__NVRTC_OK) {
    status = take_result(nvrtc, program, options, out);
  } else {
    take_log(nvrtc, program, out_log);
    status = status_of(nvrtc, result, options->arch);
  }
  (void)nvrtc->nvrtcDestroyProgram(&program);
  return status;
}

qn_status_t qn__cuda_compile(qn__cuda_compiler_t* compiler, const qn__cuda_options_t* options,
                             const char* name, const char* text, qn__buffer_t* out,
                             qn__buffer_t* out_log) {
  QN_TRY(begin(compiler));
  qn_status_t status = compile(compiler, options, name, text, out, out_log);
  end(compiler);
  return status;
}

// ------------------------------------------------------------------------------------ life

qn_status_t qn__cuda_compiler_create(qn_allocator_t allocator, const qn__nvrtc_library_t* library,
                                     qn__cuda_compiler_t** out_compiler) {
  *out_compiler = NULL;
  qn__cuda_compiler_t* compiler = qn__alloc_zero(allocator, 1, sizeof *compiler);
  if (!compiler) return qn__out_of_memory("a CUDA compiler");
  compiler->allocator = allocator;
  compiler->library = library;
  compiler->pid = getpid();
  qn_status_t status = qn__mutex_init(&compiler->mutex);
  if (qn_ok(status)) status = qn__cond_init(&compiler->cond);
  if (!qn_ok(status)) {
    qn__free(allocator, compiler, sizeof *compiler);
    return status;
  }
  qn__exit_watch_caller();
  qn__exit_hold();
  qn_status_t started = qn__thread_start(&compiler->thread, "quern-nvrtc", 0, warm, compiler);
  compiler->has_thread = qn_ok(started);
  // Without a thread it is done here: slow, and right.
  if (!compiler->has_thread) {
    qn_status_free(started);
    (void)warm(compiler);
  }
  *out_compiler = compiler;
  return QN_OK;
}

void qn__cuda_compiler_destroy(qn__cuda_compiler_t* compiler) {
  if (!compiler) return;
  if (compiler->is_registered) qn__fork_unregister(&compiler->fork_node);
  if (compiler->has_thread && compiler->pid == getpid()) {
    (void)pthread_join(compiler->thread, NULL);
  }
  qn__cond_deinit(&compiler->cond);
  qn__mutex_deinit(&compiler->mutex);
  qn__free(compiler->allocator, compiler, sizeof *compiler);
}
