// SPDX-License-Identifier: Apache-2.0
// jit/nvrtc/compiler.c: calls NVRTC: options, results, logs.
//
// The warm-up tries the options that not every version supports. The outcome depends only on the
// version, so equal identities give equal bytes. Not here: the warm-up's thread and forks
// (jit/gpu/compiler_guard.h).
#include "jit/nvrtc/compiler.h"

#include <stdio.h>

#include "base/alloc.h"
#include "jit/gpu/compiler_guard.h"

// Options that only newer versions support. `is_fast`: used only in the fast tier.
static const struct {
  const char* text;
  bool is_fast;
} optional_options[] = {
    {"--minimal", false},   // omits built-in types, so less is parsed
    {"--no-cache", false},  // quern has a cache of its own
    // Takes a fraction of the time for most modules, but longer for long straight-line code
    // (bench/bench_nvrtc.c).
    {"--Ofast-compile=max", true},
};
enum { OPTIONAL_COUNT = sizeof optional_options / sizeof optional_options[0] };

struct qn__nvrtc_compiler {
  qn_allocator_t allocator;
  const qn__nvrtc_library_t* library;
  qn__gpu_compiler_guard_t guard;
  bool has_option[OPTIONAL_COUNT];  // written by the warm-up
};

// The text is minimal, because the time goes into NVRTC's tables of built-in functions.
static const char warm_text[] =
    "extern \"C\" __global__ void warm(float* p) { p[threadIdx.x] *= 2.0f; }\n";

// ------------------------------------------------------------------------------------ warm-up

enum { MAX_ARCHS = 64 };

// Returns the number of architectures that this version supports; 0 if the query fails.
static int known_archs(const qn__nvrtc_library_t* nvrtc, int out_archs[MAX_ARCHS]) {
  int count = 0;
  if (nvrtc->nvrtcGetNumSupportedArchs(&count) != QN__NVRTC_OK || count < 1 || count > MAX_ARCHS ||
      nvrtc->nvrtcGetSupportedArchs(out_archs) != QN__NVRTC_OK) {
    return 0;
  }
  return count;
}

// Returns the oldest architecture from 80 on that this version supports.
static int warm_arch(const qn__nvrtc_library_t* nvrtc) {
  int archs[MAX_ARCHS];
  int count = known_archs(nvrtc, archs);
  if (count == 0) return 80;
  int best = 0;
  for (int i = 0; i < count; ++i) {
    if (archs[i] >= 80 && (best == 0 || archs[i] < best)) best = archs[i];
  }
  return best ? best : archs[0];
}

// Returns whether this version accepts all of the options.
static bool knows_options(const qn__nvrtc_compiler_t* compiler, const char* const* extra,
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

static void warm(void* self) {
  qn__nvrtc_compiler_t* compiler = self;
  const char* all[OPTIONAL_COUNT];
  for (size_t i = 0; i < OPTIONAL_COUNT; ++i) all[i] = optional_options[i].text;
  bool has_all = knows_options(compiler, all, OPTIONAL_COUNT);
  for (size_t i = 0; i < OPTIONAL_COUNT; ++i) {
    compiler->has_option[i] = has_all || knows_options(compiler, &all[i], 1);
  }
}

// ------------------------------------------------------------------------------------ compiles

static void take_log(const qn__nvrtc_library_t* nvrtc, void* program, qn__buffer_t* out_log) {
  size_t size = 0;
  if (nvrtc->nvrtcGetProgramLogSize(program, &size) != QN__NVRTC_OK || size <= 1) return;
  uint8_t* at = qn__buffer_extend(out_log, size);
  if (!at) return;
  memset(at, 0, size);
  (void)nvrtc->nvrtcGetProgramLog(program, (char*)at);
  out_log->size -= 1;  // its terminator
}

// Writes the architectures that this version supports, for a message: "sm_75, sm_80".
static void list_archs(const qn__nvrtc_library_t* nvrtc, char* out, size_t size) {
  int archs[MAX_ARCHS];
  int count = known_archs(nvrtc, archs);
  out[0] = '\0';
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
                               const qn__nvrtc_options_t* options, qn__buffer_t* out) {
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

static qn_status_t compile(const qn__nvrtc_compiler_t* compiler, const qn__nvrtc_options_t* options,
                           const char* name, const char* text, qn__buffer_t* out,
                           qn__buffer_t* out_log) {
  enum { FIXED = 6 };
  const qn__nvrtc_library_t* nvrtc = compiler->library;
  char arch[64];
  (void)snprintf(arch, sizeof arch, "--gpu-architecture=%.32s", options->arch);
  // Floating-point options are explicit, so that results do not depend on NVRTC's defaults.
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

qn_status_t qn__nvrtc_compiler_compile(qn__nvrtc_compiler_t* compiler,
                                       const qn__nvrtc_options_t* options, const char* name,
                                       const char* text, qn__buffer_t* out, qn__buffer_t* out_log) {
  QN_TRY(qn__gpu_compiler_guard_begin(&compiler->guard));
  qn_status_t status = compile(compiler, options, name, text, out, out_log);
  qn__gpu_compiler_guard_end(&compiler->guard);
  return status;
}

// ------------------------------------------------------------------------------------ life

qn_status_t qn__nvrtc_compiler_create(qn_allocator_t allocator, const qn__nvrtc_library_t* library,
                                      qn__nvrtc_compiler_t** out_compiler) {
  *out_compiler = NULL;
  qn__nvrtc_compiler_t* compiler = qn__alloc_zero(allocator, 1, sizeof *compiler);
  if (!compiler) return qn__out_of_memory("a CUDA compiler");
  compiler->allocator = allocator;
  compiler->library = library;
  qn__gpu_compiler_guard_init(&compiler->guard, "NVRTC");
  qn__gpu_compiler_guard_warm(&compiler->guard, "quern-nvrtc", warm, compiler);
  *out_compiler = compiler;
  return QN_OK;
}

void qn__nvrtc_compiler_destroy(qn__nvrtc_compiler_t* compiler) {
  if (!compiler) return;
  qn__gpu_compiler_guard_deinit(&compiler->guard);
  qn__free(compiler->allocator, compiler, sizeof *compiler);
}
