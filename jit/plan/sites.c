// SPDX-License-Identifier: Apache-2.0
// jit/plan/sites.c: the list of places where a function may fail, each once.
#include "base/base.h"
#include "jit/plan/program.h"

static bool is_same(const qn_artifact_site_t* a, const qn_artifact_site_t* b) {
  return a->kind == b->kind && a->buffer_id == b->buffer_id && a->dim == b->dim &&
         a->place == b->place &&
         (a->message == b->message ||
          (a->message && b->message && strcmp(a->message, b->message) == 0));
}

uint32_t qn__gpu_site(qn__gpu_program_t* program, qn__gpu_function_ir_t* function,
                      qn_artifact_site_t site) {
  for (uint32_t i = 0; i < function->site_count; i++) {
    if (is_same(&function->sites[i], &site)) return i;
  }
  qn_artifact_site_t* sites = qn__arena_grow(program->arena, function->sites, function->site_count,
                                             &function->site_capacity, sizeof *sites);
  if (!sites) return QN__GPU_NO_SITE;
  function->sites = sites;
  function->sites[function->site_count] = site;
  return function->site_count++;
}
