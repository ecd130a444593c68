// jit/shaderc/compiler.c: one shaderc compiler, its warm-up, and what a fork must wait for.
//
// shaderc and glslang keep global tables behind locks of their own. A fork while one of those is
// held would leave a child that hangs at its first compile. So a fork waits until no compile is
// under way; that is registered at the first compile and not earlier, because the engine makes
// generators under a lock that its own fork handler takes. For a fork between creation and first
// compile the warm-up's state tells: a child in which it is unfinished refuses to compile.
//
// glslang makes objects that live as long as the process when it is first used, and these must not
// be ended while the warm-up still runs: the thread holds the end of the process (base/fork.h), and
// the first compile waits for it, so that the engine's own hold covers it too.
//
// What shaderc throws it catches itself and calls an internal error. Thread rule: in compiler.h.
// Read next: compile.c.
#include "jit/shaderc/compiler.h"

#include <shaderc/shaderc.h>
#include <spirv-tools/libspirv.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fork.h"
#include "base/thread.h"

struct qn__spirv_compiler {
  qn_allocator_t allocator;
  shaderc_compiler_t compiler;
  pid_t pid;  // of the process that started the thread
  pthread_t thread;
  bool has_thread;  // and it has not been joined; guarded by mutex
  _Atomic bool is_warm;
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
    "#version 450\n"
    "layout(local_size_x = 1) in;\n"
    "layout(set = 0, binding = 0) buffer B { float b[]; };\n"
    "void main() { b[gl_GlobalInvocationID.x] *= 2.0; }\n";

// ------------------------------------------------------------------------------------ options

static const shaderc_env_version env_versions[] = {
    shaderc_env_version_vulkan_1_1, shaderc_env_version_vulkan_1_2, shaderc_env_version_vulkan_1_3};
static const shaderc_spirv_version spirv_versions[] = {
    shaderc_spirv_version_1_3, shaderc_spirv_version_1_4, shaderc_spirv_version_1_5,
    shaderc_spirv_version_1_6};

static shaderc_compile_options_t make_options(const qn__spirv_options_t* options) {
  if (QN_NEVER(options->vulkan_minor < 1 || options->vulkan_minor > QN_COUNT_OF(env_versions)) ||
      QN_NEVER(options->spirv_minor < 3 || options->spirv_minor - 3 >= QN_COUNT_OF(spirv_versions)))
    return NULL;
  shaderc_compile_options_t result = shaderc_compile_options_initialize();
  if (!result) return NULL;
  shaderc_compile_options_set_source_language(result, shaderc_source_language_glsl);
  shaderc_compile_options_set_target_env(result, shaderc_target_env_vulkan,
                                         (uint32_t)env_versions[options->vulkan_minor - 1]);
  shaderc_compile_options_set_target_spirv(result, spirv_versions[options->spirv_minor - 3]);
  shaderc_compile_options_set_optimization_level(
      result, options->is_optimized ? shaderc_optimization_level_performance
                                    : shaderc_optimization_level_zero);
  shaderc_compile_options_set_suppress_warnings(result);
  return result;
}

// ------------------------------------------------------------------------------------ warm-up

static void* warm(void* self) {
  qn__spirv_compiler_t* compiler = self;
  const qn__spirv_options_t options = {.vulkan_minor = 2, .spirv_minor = 5, .is_optimized = true};
  shaderc_compile_options_t made = make_options(&options);
  if (made) {
    shaderc_result_release(shaderc_compile_into_spv(compiler->compiler, warm_text,
                                                    sizeof warm_text - 1, shaderc_compute_shader,
                                                    "warm", "main", made));
    shaderc_compile_options_release(made);
  }
  atomic_store_explicit(&compiler->is_warm, true, memory_order_release);
  qn__exit_release();
  return NULL;
}

// Called with the mutex, which it lets go meanwhile; others wait for the one that joins.
static void join_locked(qn__spirv_compiler_t* compiler) {
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
  qn__spirv_compiler_t* compiler = self;
  qn__mutex_lock(&compiler->mutex);
  join_locked(compiler);
  while (compiler->busy_count > 0) qn__cond_wait(&compiler->cond, &compiler->mutex);
}
static void fork_parent(void* self) {
  qn__spirv_compiler_t* compiler = self;
  qn__mutex_unlock(&compiler->mutex);
}
static void fork_child(void* self) {
  qn__spirv_compiler_t* compiler = self;
  compiler->busy_count = 0;
  compiler->is_joining = false;
  qn_status_free(qn__mutex_init(&compiler->mutex));
  qn_status_free(qn__cond_init(&compiler->cond));
}

// ------------------------------------------------------------------------------------ compiles

static qn_status_t begin(qn__spirv_compiler_t* compiler) {
  bool is_child = compiler->pid != getpid();
  if (is_child && !atomic_load_explicit(&compiler->is_warm, memory_order_acquire)) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "the process was forked while shaderc warmed up; compile in the parent, "
                          "or fork before the first lookup");
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

static void end(qn__spirv_compiler_t* compiler) {
  qn__mutex_lock(&compiler->mutex);
  if (--compiler->busy_count == 0) qn__cond_broadcast(&compiler->cond);
  qn__mutex_unlock(&compiler->mutex);
}

static qn_status_t take_result(shaderc_compilation_result_t result, qn__buffer_t* out,
                               qn__buffer_t* out_messages) {
  if (!result) return qn__out_of_memory("shaderc's result");
  shaderc_compilation_status code = shaderc_result_get_compilation_status(result);
  if (code == shaderc_compilation_status_success) {
    qn__buffer_bytes(out, shaderc_result_get_bytes(result), shaderc_result_get_length(result));
    return qn__buffer_status(out, "the code of a kernel");
  }
  qn__buffer_cstr(out_messages, shaderc_result_get_error_message(result));
  return qn_status_make(QN_STATUS_INTERNAL, code == shaderc_compilation_status_internal_error
                                                ? "shaderc gave up"
                                                : "shaderc does not compile a kernel");
}

qn_status_t qn__spirv_compile(qn__spirv_compiler_t* compiler, const qn__spirv_options_t* options,
                              const char* name, qn_str_t text, qn__buffer_t* out,
                              qn__buffer_t* out_messages) {
  QN_TRY(begin(compiler));
  qn_status_t status = QN_OK;
  shaderc_compile_options_t made = make_options(options);
  if (!made) status = qn__out_of_memory("shaderc's options");
  if (qn_ok(status)) {
    shaderc_compilation_result_t result =
        (options->wants_assembly ? shaderc_compile_into_spv_assembly : shaderc_compile_into_spv)(
            compiler->compiler, text.data, text.size, shaderc_compute_shader, name, "main", made);
    status = take_result(result, out, out_messages);
    shaderc_result_release(result);
  }
  shaderc_compile_options_release(made);
  end(compiler);
  return status;
}

qn_status_t qn__spirv_validate(qn_span_t words, const qn__spirv_options_t* options) {
  spv_target_env env = options->vulkan_minor >= 3   ? SPV_ENV_VULKAN_1_3
                       : options->vulkan_minor == 2 ? SPV_ENV_VULKAN_1_2
                       : options->spirv_minor >= 4  ? SPV_ENV_VULKAN_1_1_SPIRV_1_4
                                                    : SPV_ENV_VULKAN_1_1;
  spv_context context = spvContextCreate(env);
  if (!context) return qn__out_of_memory("the validator");
  // Payloads are aligned to words; a copy of a test need not be.
  const void* data = words.data;
  spv_diagnostic diagnostic = NULL;
  qn_status_t status = QN_OK;
  if (words.size % 4 != 0 ||
      spvValidateBinary(context, data, words.size / 4, &diagnostic) != SPV_SUCCESS) {
    status = qn_status_make(QN_STATUS_INTERNAL, "the code of a kernel is not valid SPIR-V: %.400s",
                            diagnostic && diagnostic->error ? diagnostic->error : "not of words");
  }
  spvDiagnosticDestroy(diagnostic);
  spvContextDestroy(context);
  return status;
}

// ------------------------------------------------------------------------------------ life

qn_status_t qn__spirv_compiler_create(qn_allocator_t allocator,
                                      qn__spirv_compiler_t** out_compiler) {
  *out_compiler = NULL;
  qn__spirv_compiler_t* compiler = qn__alloc_zero(allocator, 1, sizeof *compiler);
  if (!compiler) return qn__out_of_memory("a shaderc compiler");
  compiler->allocator = allocator;
  compiler->pid = getpid();
  qn_status_t status = qn__mutex_init(&compiler->mutex);
  if (qn_ok(status)) status = qn__cond_init(&compiler->cond);
  if (qn_ok(status)) {
    compiler->compiler = shaderc_compiler_initialize();
    if (!compiler->compiler) {
      status = qn_status_make(QN_STATUS_UNAVAILABLE, "shaderc cannot be initialised");
    }
  }
  if (!qn_ok(status)) {
    qn__free(allocator, compiler, sizeof *compiler);
    return status;
  }
  qn__exit_watch_caller();
  qn__exit_hold();
  // Without a thread the first compile is slow, and right.
  qn_status_t started = qn__thread_start(&compiler->thread, "quern-shaderc", 0, warm, compiler);
  compiler->has_thread = qn_ok(started);
  if (!compiler->has_thread) {
    atomic_store(&compiler->is_warm, true);
    qn__exit_release();
    qn_status_free(started);
  }
  *out_compiler = compiler;
  return QN_OK;
}

void qn__spirv_compiler_destroy(qn__spirv_compiler_t* compiler) {
  if (!compiler) return;
  if (compiler->is_registered) qn__fork_unregister(&compiler->fork_node);
  if (compiler->has_thread && compiler->pid == getpid()) {
    (void)pthread_join(compiler->thread, NULL);
  }
  shaderc_compiler_release(compiler->compiler);
  qn__cond_deinit(&compiler->cond);
  qn__mutex_deinit(&compiler->mutex);
  qn__free(compiler->allocator, compiler, sizeof *compiler);
}
