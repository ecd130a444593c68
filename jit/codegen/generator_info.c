// SPDX-License-Identifier: Apache-2.0
// jit/codegen/generator_info.c: see generator_info.h.
//
// Elements are added and never removed; an element is complete before the count includes it.
#include "jit/codegen/generator_info.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/digest.h"
#include "base/elf.h"
#include "base/env.h"
#include "base/fs.h"
#include "base/struct_size.h"

enum { INFO_LIMIT = 8 };
// Larger files without a build id are not read.
#define FILE_LIMIT_BYTES (UINT64_C(1) << 30)

static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static qn__generator_info_t infos[INFO_LIMIT];
static _Atomic size_t info_count;

const qn__generator_info_t* qn__generator_info_find(const char* name) {
  size_t count = atomic_load_explicit(&info_count, memory_order_acquire);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(infos[i].given.name, name) == 0) return &infos[i];
  }
  return NULL;
}

qn_status_t qn__generator_check_name(const char* name) {
  if (name && name[0] && strlen(name) < QN__GENERATOR_NAME_BYTES) return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                        "a generator's name of at most %d characters is expected",
                        QN__GENERATOR_NAME_BYTES - 1);
}

qn_status_t qn__generator_info_add(const char* folder, const qn_generator_info_t* info) {
  QN_STRUCT_READ(qn_generator_info_t, info, given);
  QN_TRY(qn__generator_check_name(given.name));
  if (given.object && (!given.object[0] || strchr(given.object, '/') ||
                       strlen(folder) + strlen(given.object) + 2 > PATH_MAX)) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "code generator '%s': the name of a file in the plugin's folder is "
                          "expected, got '%.200s'",
                          given.name, given.object);
  }
  qn_status_t status = QN_OK;
  (void)pthread_mutex_lock(&adding);
  size_t count = atomic_load_explicit(&info_count, memory_order_relaxed);
  if (qn__generator_info_find(given.name)) {
    status = qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                            "code generator '%s' has been described already", given.name);
  } else if (count == INFO_LIMIT) {
    status = qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                            "code generator '%s': %d have been described, no more can be",
                            given.name, INFO_LIMIT);
  } else {
    infos[count].given = given;
    if (given.object) {
      (void)snprintf(infos[count].object, PATH_MAX, "%s/%s", folder, given.object);
    }
    atomic_store_explicit(&info_count, count + 1, memory_order_release);
  }
  (void)pthread_mutex_unlock(&adding);
  return status;
}

// Finds a file by its path, or by its name in the folders of PATH.
static bool find_file(const char* name, char out[PATH_MAX]) {
  if (strlen(name) >= PATH_MAX) return false;
  if (strchr(name, '/')) {
    memcpy(out, name, strlen(name) + 1);
    return true;
  }
  const char* list = qn__env_get("PATH");
  qn_str_t folder;
  while (qn__list_next(&list, ':', &folder)) {
    if (folder.size + strlen(name) + 2 > PATH_MAX) continue;
    (void)snprintf(out, PATH_MAX, "%.*s/%s", QN_STR_ARG(folder), name);
    if (access(out, X_OK) == 0) return true;
  }
  return false;
}

static bool put_file(const char* name, qn__buffer_t* text) {
  char path[PATH_MAX];
  char id[QN__BUILD_ID_HEX_BYTES];
  if (!find_file(name, path)) return false;
  if (!qn__elf_build_id(path, id)) {
    uint8_t* data = NULL;
    size_t size = 0;
    qn_status_t status =
        qn__fs_read_file(qn_allocator_default(), path, FILE_LIMIT_BYTES, &data, &size);
    const bool is_read = qn_ok(status);
    qn_status_free(status);
    if (!is_read) return false;
    qn__hash128_hex(qn__xxh128((qn_span_t){data, size}, 0), id);
    qn__free(qn_allocator_default(), data, size + 1);
  }
  qn__buffer_format(text, "%s %s\n", name, id);
  return true;
}

const char* qn__generator_info_put_files(const qn__generator_info_t* info, qn__buffer_t* text) {
  for (size_t i = 0; i < info->given.file_count; i++) {
    if (!put_file(info->given.files[i], text)) return info->given.files[i];
  }
  return NULL;
}
