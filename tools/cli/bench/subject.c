// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/subject.c: opens files and targets.
#include "tools/cli/bench/subject.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quern/device.h"
#include "tools/cli/memory.h"
#include "tools/cli/session.h"

static qn_status_t find_function(subject_t* subject, const char* name) {
  size_t count = qn_module_function_count(subject->module);
  if (count == 0)
    return qn_status_make(QN_STATUS_NOT_FOUND, "'%s' has no functions", subject->file);
  if (!name && count > 1) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "'%s' has %zu functions; choose one as %s:%s",
                          subject->file, count, subject->file,
                          qn_module_function_name(subject->module, 0));
  }
  suggestion_t near = {""};
  for (size_t i = 0; i < count; i++) {
    const char* candidate = qn_module_function_name(subject->module, i);
    subject->index = i;
    subject->function = candidate;
    if (!name || strcmp(candidate, name) == 0) return QN_OK;
    if (!near.text[0]) near = suggest(name, &candidate, sizeof candidate, 1);
  }
  return qn_status_make(QN_STATUS_NOT_FOUND, "no function '%s' in '%s'%s", name, subject->file,
                        near.text);
}

qn_status_t subject_open(const args_t* args, const char* text, subject_t* out) {
  *out = (subject_t){.file = memory_text(text)};
  const char* name = NULL;
  char* colon = strrchr(out->file, ':');
  // A file whose own name has a colon is meant.
  if (colon && access(text, F_OK) != 0) {
    *colon = '\0';
    name = colon + 1;
  }
  if (strcmp(out->file, "-") == 0) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "standard input can be read once, and bench reads its file in several "
                          "processes; give a file");
  }
  qn_status_t status = session_module(args, out->file, NULL, NULL, &out->module);
  return qn_ok(status) ? find_function(out, name) : status;
}

void subject_close(subject_t* subject) {
  free(subject->file);
  qn_module_release(subject->module);
  *subject = (subject_t){NULL, NULL, 0, NULL};
}

qn_status_t place_open(const char* text, bench_place_t* out) {
  *out = (bench_place_t){.text = text};
  qn_status_t status = qn_target_parse(text, &out->target);
  if (!qn_ok(status)) return status;
  const char* name = qn_target_kind(out->target);
  const qn_target_kind_info_t* kind = session_kind(name);
  out->device = (qn_device_t){kind ? kind->device_type : QN_DEVICE_CPU, 0};
  out->is_interpreter = strcmp(name, "interp") == 0;
  out->is_cpu = strcmp(name, "cpu") == 0;
  if (!qn_target_get_int(out->target, "warp_size", &out->warp_size)) out->warp_size = 0;
  status = session_device_here(out->device);
  if (qn_ok(status) && out->is_cpu) status = qn_target_check_host(out->target);
  return status;
}

void place_close(bench_place_t* place) {
  qn_target_release(place->target);
  place->target = NULL;
}
