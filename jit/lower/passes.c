// SPDX-License-Identifier: Apache-2.0
// jit/lower/passes.c: lists the passes and pipelines of ir/passes, and finds one by its name.
#include <stdlib.h>
#include <string.h>

#include "base/argument.h"
#include "base/struct_size.h"
#include "jit/lower/lower.h"

// ------------------------------------------------------------------------------------ lists

size_t qn_pass_count(void) {
  size_t count = 0;
  while (qn__pass_at(count)) ++count;
  return count;
}

qn_status_t qn_pass_info(size_t index, qn_pass_info_t* out_info) {
  QN_REQUIRE(out_info);
  QN_STRUCT_CLEAR(qn_pass_info_t, out_info);
  const qn__pass_t* pass = qn__pass_at(index);
  if (!pass) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "pass %zu of %zu", index, qn_pass_count());
  }
  qn_pass_info_t info = {.name = pass->name,
                         .doc = pass->doc,
                         .post = pass->post ? pass->post : "",
                         .is_alone = pass->is_alone};
  QN_STRUCT_WRITE(out_info, info);
  return QN_OK;
}

size_t qn_pipeline_count(void) {
  size_t count = 0;
  while (qn__pipeline_at(count)) ++count;
  return count;
}

qn_status_t qn_pipeline_info(size_t index, qn_pipeline_info_t* out_info) {
  QN_REQUIRE(out_info);
  QN_STRUCT_CLEAR(qn_pipeline_info_t, out_info);
  const qn__pipeline_t* pipeline = qn__pipeline_at(index);
  if (!pipeline) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "pipeline %zu of %zu", index,
                          qn_pipeline_count());
  }
  qn_pipeline_info_t info = {.name = pipeline->name,
                             .doc = pipeline->doc,
                             .pass_count = pipeline->pass_count,
                             .full_begin = pipeline->blocks_begin,
                             .full_end = pipeline->blocks_end};
  QN_STRUCT_WRITE(out_info, info);
  return QN_OK;
}

const char* qn_pipeline_pass(size_t pipeline_index, size_t index) {
  const qn__pipeline_t* pipeline = qn__pipeline_at(pipeline_index);
  if (!pipeline || index >= pipeline->pass_count) return NULL;
  return pipeline->passes[index]->name;
}

// ------------------------------------------------------------------------------------ names

bool qn__until_parse(const char* until, qn__until_t* out_until) {
  size_t size = strcspn(until, ":");
  *out_until = (qn__until_t){.name = {until, size}, .run = 1};
  if (until[size] == '\0') return size > 0;
  const char* digit = until + size + 1;
  out_until->run = (uint32_t)(*digit - '0');
  return size > 0 && *digit >= '1' && *digit <= '9' && digit[1] == '\0';
}

size_t qn__until_find(qn__until_t* until, const qn__pass_t* const* passes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (qn__str_equal(qn__str(passes[i]->name), until->name) && --until->run == 0) return i + 1;
  }
  return 0;
}

static void write_names(const qn__pipeline_t* pipeline, qn__buffer_t* out) {
  for (size_t i = 0; i < pipeline->pass_count; ++i) {
    qn__buffer_format(out, "%s%s", i ? ", " : "", pipeline->passes[i]->name);
  }
}

qn_status_t qn__until_missing(const char* until, const qn__pipeline_t* pipeline) {
  qn__buffer_t names;
  qn__buffer_init(&names, qn_allocator_default());
  write_names(pipeline, &names);
  qn_status_t status = qn__buffer_status(&names, "a message");
  if (qn_ok(status)) {
    status = qn_status_make(QN_STATUS_NOT_FOUND, "no pass '%.48s' runs; pipeline '%s' has %s",
                            until, pipeline->name, (const char*)names.data);
  }
  qn__buffer_deinit(&names);
  return status;
}

qn_status_t qn__pipeline_until(const qn__pipeline_t* pipeline, const char* until,
                               uint32_t* out_pass_count) {
  *out_pass_count = 0;
  if (!until) return QN_OK;
  qn__until_t parsed;
  if (qn__until_parse(until, &parsed)) {
    *out_pass_count = (uint32_t)qn__until_find(&parsed, pipeline->passes, pipeline->pass_count);
  }
  return *out_pass_count ? QN_OK : qn__until_missing(until, pipeline);
}

bool qn__form_is_ir(const char* form, const char** out_until) {
  *out_until = NULL;
  if (strncmp(form, "ir", 2) != 0 || (form[2] != '\0' && form[2] != ':')) return false;
  if (form[2] == ':') *out_until = form + 3;
  return true;
}
