// SPDX-License-Identifier: Apache-2.0
// base/plugin.c: finds and opens modules of quern.
//
// A module is opened by its path and never searched on the loader's paths: a library of that name
// in the working directory or in LD_LIBRARY_PATH is not ours. It is never closed, because neither
// libLLVM nor libsodium survives unloading. The loader remembers open modules, so this file does
// not.
//
// Not here: the meaning of the symbol (jit/codegen/generator.c, cache/crypto.c,
// cache/remote_open.c).
#define _GNU_SOURCE  // dladdr1
#include "base/plugin.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
#include "quern/config.h"

#define REBUILD "quern was built without it: build it with "

// The modules of this build. CMakeLists.txt defines those that quern/config.h does not name.
static const struct {
  const char* name;
  bool is_built;
  const char* remedy;
} modules[] = {
    {"llvm", QN_HAVE_LLVM, REBUILD "QUERN_LLVM=ON (needs llvm-19-dev)"},
    {"nvrtc", QN_HAVE_CUDA, REBUILD "QUERN_CUDA=ON"},
    {"shaderc", QN_HAVE_SHADERC,
     REBUILD "QUERN_VULKAN=ON (needs libvulkan-dev, libshaderc-dev, glslang-dev, spirv-tools)"},
    {"redis", QN_HAVE_REDIS, REBUILD "QUERN_REMOTE=ON (needs libhiredis-dev)"},
    {"sodium", QN_HAVE_SODIUM, REBUILD "QUERN_REMOTE=ON (needs libsodium-dev)"},
};

// An object of this library whose address can be looked up.
static const char anchor = 0;

static bool copy_path(const char* path, char out[PATH_MAX]) {
  return qn__str_copy(qn__str(path), out, PATH_MAX);
}

// Parses a line of /proc/self/maps: "55d0a000-55d0c000 r-xp 00002000 08:01 4711
// /usr/lib/libquern.so".
static bool is_mapping_of(const char* line, uintptr_t address) {
  char* at;
  uintptr_t begin = (uintptr_t)strtoull(line, &at, 16);
  if (*at != '-') return false;
  return address >= begin && address < (uintptr_t)strtoull(at + 1, NULL, 16);
}

bool qn__mapped_path(const void* address, char out[PATH_MAX]) {
  const qn__fs_t* fs = qn__fs();
  int fd = fs->open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return false;
  char text[2 * PATH_MAX];
  const char* found = NULL;
  size_t size = 0;
  ssize_t got;
  while (!found && (got = fs->read(fd, text + size, sizeof text - 1 - size)) > 0) {
    size += (size_t)got;
    text[size] = '\0';
    char *line = text, *end;
    for (; !found && (end = strchr(line, '\n')); line = end + 1) {
      *end = '\0';
      if (is_mapping_of(line, (uintptr_t)address)) found = line;
    }
    if (found) break;
    size = (size_t)(text + size - line);
    memmove(text, line, size);
  }
  (void)fs->close(fd);
  const char* path = found ? strchr(found, '/') : NULL;
  return path && copy_path(path, out);
}

// Returns the file that this library is in, and whether that is the program. The loader's answer
// counts only if it is an absolute path: a relative one is wrong after the program changed its
// working directory, and for a statically linked program it is argv[0], which may be anything.
static bool own_path(char out[PATH_MAX], bool* out_is_program) {
  Dl_info info;
  struct link_map* map = NULL;
  *out_is_program = false;
  if (!dladdr1(&anchor, &info, (void**)&map, RTLD_DL_LINKMAP) || !map || !map->l_name) return false;
  if (map->l_name[0] == '/') return copy_path(map->l_name, out);
  if (map->l_name[0] != '\0') return qn__mapped_path(&anchor, out);
  *out_is_program = true;
  ssize_t size = readlink("/proc/self/exe", out, PATH_MAX - 1);
  if (size <= 0) return false;
  out[size] = '\0';
  return true;
}

static bool own_folder(char out[PATH_MAX], bool* out_is_program) {
  if (!own_path(out, out_is_program)) return false;
  char* slash = strrchr(out, '/');
  if (!slash) return false;
  *slash = '\0';
  return true;
}

bool qn__library_folder(char out[PATH_MAX]) {
  bool is_program;
  return own_folder(out, &is_program);
}

typedef struct module_search {
  const char* name;
  char* out;  // the module; as long as there is none, the first place
  bool has_tried;
} module_search_t;

// Room for what is put behind a folder.
enum { NAME_ROOM = 96 };

static bool is_there(module_search_t* search, const char* folder, const char* inner) {
  char path[PATH_MAX];
  struct stat info;
  (void)snprintf(path, sizeof path, "%.*s%.16s/libquern-%.64s.so", PATH_MAX - NAME_ROOM, folder,
                 inner, search->name);
  const bool is_found = qn__fs()->lstat(path, &info) == 0;
  if (is_found || !search->has_tried) memcpy(search->out, path, sizeof path);
  search->has_tried = true;
  return is_found;
}

// Searches the places of quern's own modules.
static bool find_beside(module_search_t* search) {
  char folder[PATH_MAX];
  bool is_program;
  if (!own_folder(folder, &is_program) || strlen(folder) >= PATH_MAX - NAME_ROOM) return false;
  if (is_there(search, folder, "") || is_there(search, folder, "/quern")) return true;
  if (!is_program) return false;
  return is_there(search, folder, "/../lib") || is_there(search, folder, "/../lib/quern") ||
         is_there(search, QN_MODULE_FOLDER, "");
}

bool qn__plugin_find(const char* directories, const char* name, char out[PATH_MAX]) {
  module_search_t search = {.name = name, .out = out};
  (void)snprintf(out, PATH_MAX, "libquern-%.64s.so", name);
  if (strlen(name) > 64) return false;
  qn_str_t part;
  while (qn__list_next(&directories, ':', &part)) {
    char folder[PATH_MAX - NAME_ROOM];
    if (qn__str_equal(part, QN_STR("none"))) return false;
    if (qn__str_copy(part, folder, sizeof folder) && is_there(&search, folder, "")) return true;
  }
  return find_beside(&search);
}

const char* qn__plugin_remedy(const char* name) {
  for (size_t i = 0; i < QN_COUNT_OF(modules); i++) {
    if (strcmp(name, modules[i].name) == 0) {
      return modules[i].is_built ? NULL : modules[i].remedy;
    }
  }
  return NULL;
}

qn_status_t qn__plugin_open_file(const char* name, const char* path, const char* symbol,
                                 void** out_symbol) {
  *out_symbol = NULL;
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

qn_status_t qn__plugin_open(const char* directories, const char* name, const char* symbol,
                            void** out_symbol) {
  *out_symbol = NULL;
  char path[PATH_MAX];
  if (qn__plugin_find(directories, name, path)) {
    return qn__plugin_open_file(name, path, symbol, out_symbol);
  }
  const char* remedy = qn__plugin_remedy(name);
  return qn_status_make(QN_STATUS_UNAVAILABLE, "module '%s' is not installed: no %s%s%s", name,
                        path, remedy ? "; " : "", remedy ? remedy : "");
}
