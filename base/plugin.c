// base/plugin.c: finding and opening modules of quern.
//
// A module is named, never searched for along the loader's paths: a library of that name in the
// working directory or in LD_LIBRARY_PATH is not ours. It is never closed: neither libLLVM nor
// libsodium survives being unloaded. The loader itself knows what is open already, so nothing is
// remembered here.
//
// Not here: what a module's symbol means (jit/generator.c, cache/crypto.c, cache/remote.c). Thread
// rule: any thread; the loader has its own lock. Read next: elf.h.
#define _GNU_SOURCE  // dladdr
#include "base/plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fs.h"

// Something of this library whose address can be asked for.
static const char anchor = 0;

// In a program that was linked statically the loader knows only what the program was called as,
// perhaps without a path.
bool qn__library_folder(char out[PATH_MAX]) {
  Dl_info info;
  if (!dladdr(&anchor, &info) || !info.dli_fname) return false;
  if (strchr(info.dli_fname, '/')) {
    if (strlen(info.dli_fname) >= PATH_MAX) return false;
    memcpy(out, info.dli_fname, strlen(info.dli_fname) + 1);
  } else {
    ssize_t size = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (size <= 0) return false;
    out[size] = '\0';
  }
  char* slash = strrchr(out, '/');
  if (!slash) return false;
  *slash = '\0';
  return true;
}

bool qn__plugin_find(const char* directory, const char* name, char out[PATH_MAX]) {
  static const char* const places[] = {"", "/quern", "/../lib", "/../lib/quern"};
  char whole[PATH_MAX];
  char folder[PATH_MAX - 96];
  size_t place_count = QN_COUNT_OF(places);
  (void)snprintf(out, PATH_MAX, "libquern-%.64s.so", name);
  if (strlen(name) > 64) return false;
  if (directory[0] != '\0') {
    place_count = 1;
    (void)snprintf(whole, sizeof whole, "%s", directory);
  } else if (!qn__library_folder(whole)) {
    return false;
  }
  if (strlen(whole) >= sizeof folder) return false;
  memcpy(folder, whole, strlen(whole) + 1);
  for (size_t i = 0; i < place_count; i++) {
    (void)snprintf(out, PATH_MAX, "%s%s/libquern-%s.so", folder, places[i], name);
    struct stat info;
    if (qn__fs()->lstat(out, &info) == 0) return true;
  }
  (void)snprintf(out, PATH_MAX, "%s/libquern-%s.so", folder, name);
  return false;
}

qn_status_t qn__plugin_open(const char* directory, const char* name, const char* symbol,
                            void** out_symbol) {
  *out_symbol = NULL;
  char path[PATH_MAX];
  if (!qn__plugin_find(directory, name, path)) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "module '%s' is not installed: no %s", name, path);
  }
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) {
    const char* why = dlerror();
    return qn_status_make(QN_STATUS_UNAVAILABLE, "module '%s' cannot be loaded: %s", name,
                          why ? why : path);
  }
  *out_symbol = dlsym(library, symbol);
  if (!*out_symbol) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "%s is not a module of this kind: it has no %s",
                          path, symbol);
  }
  return QN_OK;
}
