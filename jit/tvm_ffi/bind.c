// SPDX-License-Identifier: Apache-2.0
// jit/tvm_ffi/bind.c: finds tvm-ffi in the process.
//
// It is never loaded from here: a second copy would have a table of functions and errors of its
// own. Python loads it where dlsym(RTLD_DEFAULT) does not look, so dlopen tries its name first. A
// program that links it statically exports its symbols.
#include "jit/tvm_ffi/bind.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

// The versions whose ABI is the one of bind.h. tvm-ffi promises it for all of 0.1.
#define KNOWN_MAJOR 0u
#define KNOWN_MINOR 1u

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static qn__tvm_ffi_t bound;   // written once, with the mutex
static atomic_bool is_bound;  // set after it

static qn_status_t find_symbol(void* library, const char* symbol, void* out_function) {
  void* address = dlsym(library, symbol);
  if (!address) {
    return qn_status_make(QN_STATUS_INCOMPATIBLE,
                          "tvm-ffi of this process lacks the function %s: quern needs tvm-ffi "
                          "%u.%u",
                          symbol, KNOWN_MAJOR, KNOWN_MINOR);
  }
  memcpy(out_function, &address, sizeof address);
  return QN_OK;
}

static qn_status_t bind(qn__tvm_ffi_t* out) {
  void* library = dlopen("libtvm_ffi.so", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  if (!library) {
    (void)dlerror();
    library = dlopen(NULL, RTLD_LAZY);  // the program and what it links
    if (!library || !dlsym(library, "TVMFFIGetVersion")) {
      (void)dlerror();
      return qn_status_make(QN_STATUS_UNAVAILABLE,
                            "tvm-ffi is not in this process; load it first (Python: import "
                            "tvm_ffi)");
    }
  }
#define QN__TVM_FIND(member, symbol, result, parameters) \
  QN_TRY(find_symbol(library, #symbol, &out->member));
  QN__TVM_SYMBOLS(QN__TVM_FIND)
#undef QN__TVM_FIND
  qn__tvm_version_t version = {0, 0, 0};
  out->get_version(&version);
  if (version.major != KNOWN_MAJOR || version.minor != KNOWN_MINOR) {
    return qn_status_make(QN_STATUS_INCOMPATIBLE,
                          "tvm-ffi of this process has version %u.%u.%u; quern knows %u.%u",
                          version.major, version.minor, version.patch, KNOWN_MAJOR, KNOWN_MINOR);
  }
  return QN_OK;
}

qn_status_t qn__tvm_bind(const qn__tvm_ffi_t** out_ffi) {
  *out_ffi = &bound;
  if (atomic_load_explicit(&is_bound, memory_order_acquire)) return QN_OK;
  qn__tvm_ffi_t found;
  QN_TRY(bind(&found));
  (void)pthread_mutex_lock(&mutex);
  if (!atomic_load_explicit(&is_bound, memory_order_relaxed)) {
    bound = found;
    atomic_store_explicit(&is_bound, true, memory_order_release);
  }
  (void)pthread_mutex_unlock(&mutex);
  return QN_OK;
}
