// SPDX-License-Identifier: Apache-2.0
// jit/engine/ahead.c: qn_engine_compile: puts an entry into the cache directory without loading its
// code.
//
// The work is a lookup task that loads nothing (lookup_task.c, requirement 8).
//
// Requirements:
//  1. The target may be of another machine: nothing is loaded, and no device is used.
//  2. Success means that the entry can be read: waits for the publish, then checks the entry.
//  3. A key that a local tier has opens no compiler.
#include "base/argument.h"
#include "base/struct_size.h"
#include "jit/engine/lookup.h"
#include "quern/cache.h"

// How long a publish may take: a file system that takes longer does not serve a cache.
#define FLUSH_TIMEOUT_NS INT64_C(60000000000)

qn_status_t qn__ahead_prepare(const qn_engine_t* engine) {
  qn__disk_t* disk = qn__engine_disk(engine);
  if (!disk) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "compiling ahead needs a cache directory: the engine has none, or it "
                          "could not be used; set QUERN_CACHE_DIR, and QUERN_CACHE to rw");
  }
  if (!engine->writes_tiers) {
    return qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                          "compiling ahead writes the cache directory, and the engine may only "
                          "read '%s'; set QUERN_CACHE to rw",
                          qn__disk_root(disk));
  }
  (void)qn__disk_flush(disk, FLUSH_TIMEOUT_NS);
  return QN_OK;
}

// Waits for the writer and checks that the directory has the entry. Does not wait for the remote
// tier.
static qn_status_t confirm(const qn__lookup_task_t* task) {
  qn__disk_t* disk = qn__engine_disk(task->engine);
  if (!qn__disk_flush(disk, FLUSH_TIMEOUT_NS)) {
    return qn_status_make(QN_STATUS_DEADLINE_EXCEEDED,
                          "the entry was not written within a minute; the file system of '%s' is "
                          "too slow",
                          qn__disk_root(disk));
  }
  qn__hit_t hit;
  if (qn__disk_inspect(disk, task->key, false, &hit, NULL) != QN__GET_HIT) {
    return qn_status_make(QN_STATUS_IO,
                          "the entry could not be written to '%s', or was swept at once; "
                          "'quern cache stats' shows its bounds",
                          qn__disk_root(disk));
  }
  qn__disk_hit_release(disk, &hit);
  return QN_OK;
}

// Runs the key's task, or waits for the thread that does. A leader runs it to its end.
static qn_status_t compile(qn_engine_t* engine, const qn__request_t* request,
                           qn_lookup_info_t* info) {
  qn__ident_t ident = qn__request_ident(request);
  qn__lookup_needs_t needs = {.may_compile = !request->is_forbidden};
  qn__join_t join;
  QN_TRY(qn__in_flight_join(&engine->in_flight, request, &ident, &needs, &join));
  qn__lookup_task_t* task = join.task;
  if (join.is_leader) qn__lookup_run(task, true);
  (void)qn__in_flight_wait(task, QN__LOOKUP_DONE, INT64_MAX);
  qn_status_t status = qn__lookup_status(engine, request, task);
  assert(!qn_ok(status) || task->result.outcome == QN__OUTCOME_FOUND);
  *info = task->result.info;
  if (qn_ok(status) && info->source == QN_SOURCE_COMPILED) status = confirm(task);
  qn__lookup_task_release(task);
  return status;
}

qn_status_t qn_engine_compile(qn_engine_t* engine, qn_module_t* module, qn_target_t* target,
                              const qn_lookup_options_t* options, qn_lookup_info_t* out_info) {
  QN_STRUCT_CLEAR(qn_lookup_info_t, out_info);
  QN_REQUIRE(engine, module, target);
  qn__request_t request;
  QN_TRY(qn__request_init(engine, module, target, options, &request));
  request.is_ahead = true;
  int64_t start_ns = qn__now_ns();
  qn_lookup_info_t info = {.tier = request.tier};
  qn_status_t status = compile(engine, &request, &info);
  info.lookup_ns = qn__now_ns() - start_ns;
  QN_STRUCT_WRITE(out_info, info);
  return status;
}
