// SPDX-License-Identifier: Apache-2.0
#define _XOPEN_SOURCE 700  // realpath
// jit/codegen/plugin_load.c: loads third-party plugins: shared objects that add devices, code
// generators and target kinds (docs/new-backend.md).
//
// A plugin is never closed, because its tables' functions are used for the life of the process. Not
// here: quern's own modules (base/plugin.h).
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/argument.h"
#include "base/base.h"
#include "base/env.h"
#include "base/struct_size.h"
#include "jit/codegen/generator_info.h"
#include "quern/backend.h"

// The loaded plugins, so that loading one twice succeeds: two parts of a program may load the same
// one. Plugins beyond the limit are not listed, and a second load of them fails because their names
// are taken.
enum { KNOWN_LIMIT = 32 };
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static const qn_plugin_t* known[KNOWN_LIMIT];
static size_t known_count;

static qn_status_t register_parts(const qn_plugin_t* given, const char* folder) {
  QN_STRUCT_READ(qn_plugin_t, given, plugin);
  for (size_t i = 0; i < plugin.info_count; i++) {
    QN_TRY(qn__generator_info_add(folder, plugin.infos[i]));
  }
  for (size_t i = 0; i < plugin.device_count; i++) {
    QN_TRY(qn_device_register(plugin.devices[i]));
  }
  for (size_t i = 0; i < plugin.generator_count; i++) {
    QN_TRY(qn_codegen_register(plugin.generators[i]));
  }
  for (size_t i = 0; i < plugin.kind_count; i++) {
    QN_TRY(qn_target_kind_register(plugin.kinds[i]));
  }
  return QN_OK;
}

static qn_status_t register_all(const qn_plugin_t* plugin, const char* folder) {
  bool is_known = false;
  (void)pthread_mutex_lock(&loading);
  for (size_t i = 0; i < known_count; i++) is_known |= known[i] == plugin;
  qn_status_t status = is_known ? QN_OK : register_parts(plugin, folder);
  if (qn_ok(status) && !is_known && known_count < KNOWN_LIMIT) known[known_count++] = plugin;
  (void)pthread_mutex_unlock(&loading);
  return status;
}

qn_status_t qn_plugin_load(const char* path) {
  QN_REQUIRE(path);
  if (!path[0]) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "a plugin's path is empty");
  }
  // An absolute path: without a slash the loader would search for the name.
  char local[PATH_MAX];
  if (!realpath(path, local)) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "plugin '%s': %s", path, strerror(errno));
  }
  void* library = dlopen(local, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) {
    const char* why = dlerror();
    return qn_status_make(QN_STATUS_UNAVAILABLE, "plugin '%s': %s", path, why ? why : "not opened");
  }
  void* symbol = dlsym(library, QN_PLUGIN_ENTRY_SYMBOL);
  qn_plugin_entry_fn_t entry = NULL;
  memcpy(&entry, &symbol, sizeof entry);
  const qn_plugin_t* plugin = entry ? entry(QN_PLUGIN_ABI_VERSION) : NULL;
  qn_status_t status = QN_OK;
  if (!entry) {
    status = qn_status_make(QN_STATUS_UNAVAILABLE, "it exports no %s", QN_PLUGIN_ENTRY_SYMBOL);
  } else if (!plugin || plugin->abi_version != QN_PLUGIN_ABI_VERSION) {
    status = qn_status_make(QN_STATUS_UNAVAILABLE,
                            "it does not serve version %u of the plugin's "
                            "table",
                            QN_PLUGIN_ABI_VERSION);
  } else {
    *strrchr(local, '/') = '\0';
    status = register_all(plugin, local);
  }
  (void)dlclose(library);
  return qn_status_annotate(status, "plugin '%s'", path);
}

qn_status_t qn_plugin_load_list(const char* paths) {
  if (!paths) paths = qn__env_get("QUERN_PLUGINS");
  qn_str_t part;
  while (qn__list_next(&paths, ':', &part)) {
    char path[PATH_MAX];
    if (!qn__str_copy(part, path, sizeof path)) {
      return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "a plugin's path is too long");
    }
    QN_TRY(qn_plugin_load(path));
  }
  return QN_OK;
}
