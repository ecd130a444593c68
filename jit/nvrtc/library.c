// SPDX-License-Identifier: Apache-2.0
// jit/nvrtc/library.c: opens libnvrtc and finds its functions.
#include "jit/nvrtc/library.h"

#include <dlfcn.h>
#include <stdio.h>

#include "jit/identity/nvrtc_place.h"

static qn_status_t not_found(qn_allocator_t allocator) {
  qn__buffer_t tried;
  qn__buffer_init(&tried, allocator);
  char path[PATH_MAX];
  (void)qn__nvrtc_find(path, &tried);
  qn_str_t places = qn__buffer_as_str(&tried);
  qn_status_t status = qn_status_make(
      QN_STATUS_UNAVAILABLE,
      "the nvrtc generator needs libnvrtc, which is in none of: %.*s; install a CUDA toolkit or "
      "the PyPI package nvidia-cuda-nvrtc, or set QUERN_NVRTC_LIBRARY to its absolute path",
      QN_STR_ARG(places));
  qn__buffer_deinit(&tried);
  return status;
}

static bool find_symbol(void* handle, const char* name, void* out, const char** missing) {
  void* symbol = dlsym(handle, name);
  if (symbol) {
    memcpy(out, &symbol, sizeof symbol);
    return true;
  }
  if (!*missing) *missing = name;
  return false;
}

// Opens libnvrtc-builtins beside libnvrtc. NVRTC opens it at the first compile by its bare name,
// and the loader then finds only a library in its cache. That misses the PyPI package and toolkits
// that are not in the cache. If it is open already, NVRTC uses that one. If there is none here,
// NVRTC still searches, and a compile reports the failure.
static void open_builtins(const qn__nvrtc_library_t* library) {
  const char* slash = strrchr(library->path, '/');
  if (!slash) return;
  char path[PATH_MAX + 64];
  (void)snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", (int)(slash - library->path),
                 library->path, library->major, library->minor);
  if (!dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) (void)dlerror();
}

qn_status_t qn__nvrtc_open(qn_allocator_t allocator, qn__nvrtc_library_t* out_library) {
  memset(out_library, 0, sizeof *out_library);
  if (!qn__nvrtc_find(out_library->path, NULL)) return not_found(allocator);
  void* handle = dlopen(out_library->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) {
    const char* why = dlerror();
    return qn_status_make(QN_STATUS_UNAVAILABLE, "libnvrtc cannot be loaded: %s",
                          why ? why : out_library->path);
  }
  const char* missing = NULL;
#define QN_NVRTC(result, name, parameters) \
  (void)find_symbol(handle, #name, &out_library->name, &missing);
#include "jit/nvrtc/nvrtc_symbols.inc"
#undef QN_NVRTC
  if (missing) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "%s is no libnvrtc that quern can use: it has no %s", out_library->path,
                          missing);
  }
  if (out_library->nvrtcVersion(&out_library->major, &out_library->minor) != QN__NVRTC_OK) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "%s does not tell its version", out_library->path);
  }
  open_builtins(out_library);
  return QN_OK;
}

void qn__nvrtc_identity(const qn__nvrtc_library_t* library, char out[QN_IDENTITY_BYTES]) {
  // One address inside each object: a constant of this file, and a function of NVRTC.
  static const char name[] = "nvrtc";
  const void* library_address;
  memcpy(&library_address, &library->nvrtcVersion, sizeof library_address);
  qn__mapped_identity(name, name, library_address, out);
}
