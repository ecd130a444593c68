// SPDX-License-Identifier: Apache-2.0
// jit/identity/nvrtc_place.c: searches a list of folders for libnvrtc and for CUDA programs.
//
// In a folder with several versions the newest is used, by the list of names. A driver loads code
// of an NVRTC of its own major version or an older one. So on a machine with a driver, a newer
// NVRTC is used only if there is no other. The dynamic loader is not used for the search, because
// that would load the library. Not here: opening it (jit/nvrtc/library.c).
#include "jit/identity/nvrtc_place.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/fs.h"

#if defined(__aarch64__)
#define QN_TOOLKIT_TARGET "targets/sbsa-linux/lib"
#define QN_SYSTEM_TRIPLE "aarch64-linux-gnu"
#else
#define QN_TOOLKIT_TARGET "targets/x86_64-linux/lib"
#define QN_SYSTEM_TRIPLE "x86_64-linux-gnu"
#endif

static const struct {
  const char* text;
  int major;  // 0: unknown
} nvrtc_names[] = {
    {"libnvrtc.so.14", 14}, {"libnvrtc.so.13", 13}, {"libnvrtc.so.12", 12}, {"libnvrtc.so", 0}};
// The first driver branch that supports each major version of CUDA.
static const struct {
  long branch;
  int major;
} driver_branches[] = {{580, 13}, {525, 12}, {450, 11}};
static const char* const toolkit_folders[] = {"lib64", QN_TOOLKIT_TARGET, "lib"};
static const char* const system_folders[] = {"/usr/lib/" QN_SYSTEM_TRIPLE, "/usr/lib64", "/usr/lib",
                                             "/lib/" QN_SYSTEM_TRIPLE};
// The folders of the packages nvidia-cuda-nvrtc and nvidia-cuda-nvrtc-cu12.
static const char* const package_folders[] = {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"};

typedef struct place_search {
  char* out;
  qn__buffer_t* tried;  // the list of folders searched; may be NULL
  int most;             // the newest major version that is accepted; 0: any
} place_search_t;

static bool join(char out[PATH_MAX], const char* folder, const char* name) {
  int size = snprintf(out, PATH_MAX, "%s/%s", folder, name);
  return size > 0 && size < PATH_MAX;
}

static bool is_file(const char* path) {
  int fd = qn__fs()->open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  if (fd < 0) return false;
  struct stat info;
  bool is_regular = qn__fs()->fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  (void)qn__fs()->close(fd);
  return is_regular;
}

static void note(const place_search_t* search, const char* place) {
  if (!search->tried) return;
  if (search->tried->size > 0) qn__buffer_cstr(search->tried, ", ");
  qn__buffer_cstr(search->tried, place);
}

static bool try_folder(const place_search_t* search, const char* folder) {
  // A relative folder would depend on the working directory.
  if (folder[0] != '/') return false;
  note(search, folder);
  for (size_t i = 0; i < QN_COUNT_OF(nvrtc_names); i++) {
    const int major = nvrtc_names[i].major;
    if (search->most > 0 && (major == 0 || major > search->most)) continue;
    if (join(search->out, folder, nvrtc_names[i].text) && is_file(search->out)) return true;
  }
  return false;
}

static bool try_folders(const place_search_t* search, const char* root, const char* const* folders,
                        size_t count) {
  char folder[PATH_MAX];
  for (size_t i = 0; i < count; i++) {
    if (join(folder, root, folders[i]) && try_folder(search, folder)) return true;
  }
  return false;
}

// ------------------------------------------------------------------------------------ versions

// Returns the version in a name such as "cuda-12.6" or "python3.11", as one number that orders
// them; -1 if the name is not of this form.
static int64_t version_of(const char* name, const char* prefix) {
  size_t size = strlen(prefix);
  if (strncmp(name, prefix, size) != 0 || name[size] < '0' || name[size] > '9') return -1;
  char* end;
  int64_t major = strtoll(name + size, &end, 10);
  int64_t minor = *end == '.' ? strtoll(end + 1, NULL, 10) : 0;
  if (major > 10000 || minor > 10000 || minor < 0) return -1;
  return major * 100000 + minor;
}

// Finds the entry PREFIX* of a folder with the highest version below `below`. Returns the version,
// -1 if there is none.
static int64_t next_version(const char* folder, const char* prefix, int64_t below,
                            char out[PATH_MAX]) {
  const qn__fs_t* fs = qn__fs();
  DIR* dir = fs->opendir(folder);
  if (!dir) return -1;
  int64_t best = -1;
  const struct dirent* entry;
  while ((entry = fs->readdir(dir))) {
    int64_t version = version_of(entry->d_name, prefix);
    char path[PATH_MAX];
    if (version <= best || version >= below || !join(path, folder, entry->d_name)) continue;
    best = version;
    memcpy(out, path, strlen(path) + 1);
  }
  (void)fs->closedir(dir);
  return best;
}

// ------------------------------------------------------------------------------------ toolkits

// Calls back with each possible root of a toolkit, until the callback returns true.
static bool each_toolkit(bool (*visit)(void* self, const char* root), void* self) {
  static const char* const variables[] = {"CUDA_HOME", "CUDA_PATH"};
  for (size_t i = 0; i < QN_COUNT_OF(variables); i++) {
    const char* root = qn__env_get(variables[i]);
    if (root && root[0] == '/' && visit(self, root)) return true;
  }
  if (visit(self, "/usr/local/cuda")) return true;
  char root[PATH_MAX];
  for (int64_t version = INT64_MAX;;) {
    version = next_version("/usr/local", "cuda-", version, root);
    if (version < 0) return false;
    if (visit(self, root)) return true;
  }
}

static bool try_toolkit(void* self, const char* root) {
  const place_search_t* search = self;
  return try_folders(search, root, toolkit_folders, QN_COUNT_OF(toolkit_folders));
}

// ------------------------------------------------------------------------------------ packages

// Searches PREFIX/lib/python3.*/FOLDER/nvidia/...
static bool try_python(const place_search_t* search, const char* prefix, const char* folder) {
  char lib[PATH_MAX], python[PATH_MAX], packages[PATH_MAX];
  if (!join(lib, prefix, "lib")) return false;
  for (int64_t version = INT64_MAX;;) {
    version = next_version(lib, "python", version, python);
    if (version < 0) return false;
    if (join(packages, python, folder) &&
        try_folders(search, packages, package_folders, QN_COUNT_OF(package_folders))) {
      return true;
    }
  }
}

static bool try_packages(const place_search_t* search) {
  const char* environment = qn__env_get("VIRTUAL_ENV");
  if (environment && environment[0] == '/' && try_python(search, environment, "site-packages")) {
    return true;
  }
  const char* home = qn__env_get("HOME");
  char user[PATH_MAX];
  if (home && home[0] == '/' && join(user, home, ".local") &&
      try_python(search, user, "site-packages")) {
    return true;
  }
  if (try_python(search, "/usr/local", "dist-packages")) return true;
  if (try_python(search, "/usr/local", "site-packages")) return true;
  return try_folders(search, "/usr/lib/python3/dist-packages", package_folders,
                     QN_COUNT_OF(package_folders));
}

// ------------------------------------------------------------------------------------ the library

// Calls back with each folder of a colon-separated list, until the callback returns true.
static bool each_folder(const char* list, bool (*visit)(void* self, const char* folder),
                        void* self) {
  qn_str_t part;
  while (qn__list_next(&list, ':', &part)) {
    char folder[PATH_MAX];
    if (qn__str_copy(part, folder, sizeof folder) && visit(self, folder)) return true;
  }
  return false;
}

static bool try_listed(void* self, const char* folder) {
  return try_folder(self, folder);
}

// Returns the major version of CUDA that the machine's driver supports, from the version of its
// kernel module ("570.86.15"). 0 if there is no driver, its version is unknown, or its branch is
// that of the newest listed version or later, which accepts any NVRTC.
static int driver_major(void) {
  const qn_allocator_t allocator = qn_allocator_default();
  uint8_t* text;
  size_t size;
  qn_status_t status = qn__fs_read_file(allocator, QN__NVIDIA_VERSION_FILE, 4096, &text, &size);
  if (!qn_ok(status)) {
    qn_status_free(status);
    return 0;
  }
  const long branch = strtol((const char*)text, NULL, 10);
  qn__free(allocator, text, size + 1);
  for (size_t i = 0; i < QN_COUNT_OF(driver_branches); i++) {
    // Branches from the newest listed one on may support versions that are not listed.
    if (branch >= driver_branches[i].branch) return i == 0 ? 0 : driver_branches[i].major;
  }
  return 0;
}

static bool find_library(place_search_t* search) {
  bool is_found = each_toolkit(try_toolkit, search);
  for (size_t i = 0; i < QN_COUNT_OF(system_folders) && !is_found; i++) {
    is_found = try_folder(search, system_folders[i]);
  }
  return is_found || try_packages(search) ||
         each_folder(qn__env_get("LD_LIBRARY_PATH"), try_listed, search);
}

bool qn__nvrtc_find(char out[PATH_MAX], qn__buffer_t* tried) {
  place_search_t search = {.out = out, .tried = tried};
  out[0] = '\0';
  const char* named = qn__env_get("QUERN_NVRTC_LIBRARY");
  if (named) {
    note(&search, named);
    bool fits = strlen(named) < PATH_MAX;
    if (fits) memcpy(out, named, strlen(named) + 1);
    if (fits && named[0] == '/' && is_file(out)) return true;
    out[0] = '\0';
    return false;
  }
  place_search_t fitting = {.out = out, .most = driver_major()};
  const bool is_found = (fitting.most > 0 && find_library(&fitting)) || find_library(&search);
  if (!is_found) out[0] = '\0';
  return is_found;
}

// ------------------------------------------------------------------------------------ programs

typedef struct program_search {
  const char* name;
  char* out;
} program_search_t;

static bool try_bin(void* self, const char* folder) {
  const program_search_t* search = self;
  return folder[0] == '/' && join(search->out, folder, search->name) && is_file(search->out);
}

static bool try_program(void* self, const char* root) {
  char folder[PATH_MAX];
  return join(folder, root, "bin") && try_bin(self, folder);
}

// Searches beside the folder of the library, as in the package nvidia-cuda-nvdisasm:
// nvidia/cu13/{lib,bin}.
static bool try_beside_library(program_search_t* search) {
  char library[PATH_MAX];
  if (!qn__nvrtc_find(library, NULL)) return false;
  for (int i = 0; i < 2; i++) {
    char* slash = strrchr(library, '/');
    if (!slash) return false;
    *slash = '\0';
  }
  return try_program(search, library);
}

bool qn__cuda_program_find(const char* name, char out[PATH_MAX]) {
  program_search_t search = {name, out};
  bool is_found = each_folder(qn__env_get("PATH"), try_bin, &search) ||
                  each_toolkit(try_program, &search) || try_beside_library(&search);
  if (!is_found) out[0] = '\0';
  return is_found;
}
