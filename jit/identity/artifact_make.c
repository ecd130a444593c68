// SPDX-License-Identifier: Apache-2.0
// jit/identity/artifact_make.c: see artifact_make.h. One arena holds the copies.
#include "jit/identity/artifact_make.h"

#include "base/alloc.h"

typedef struct owned {
  qn_artifact_t base;  // first: release gets this address
  qn_allocator_t allocator;
  qn__arena_t arena;
  qn__buffer_t payload;
  qn__buffer_t metadata;
} owned_t;

static void release(qn_artifact_t* artifact) {
  owned_t* self = (owned_t*)(void*)artifact;
  qn__buffer_deinit(&self->payload);
  qn__buffer_deinit(&self->metadata);
  qn__arena_deinit(&self->arena);
  qn__free(self->allocator, self, sizeof *self);
}

static void move(qn__buffer_t* to, qn__buffer_t* from) {
  if (!from) return;
  *to = *from;
  qn__buffer_init(from, to->allocator);
}

const qn_artifact_function_t* qn__artifact_copy_functions(const qn_artifact_function_t* from,
                                                          size_t count, qn__arena_t* arena) {
  qn_artifact_function_t* functions = qn__arena_alloc_array(arena, count + 1, sizeof *functions);
  for (size_t i = 0; functions && i < count; i++) {
    size_t site_count = from[i].site_count;
    qn_artifact_site_t* sites = qn__arena_alloc_array(arena, site_count + 1, sizeof *sites);
    for (size_t k = 0; sites && k < site_count; k++) {
      sites[k] = from[i].sites[k];
      if (sites[k].message) sites[k].message = qn__arena_cstr(arena, qn__str(sites[k].message));
    }
    functions[i] = from[i];
    functions[i].name = qn__arena_cstr(arena, qn__str(from[i].name));
    functions[i].sites = sites;
  }
  return arena->is_exhausted ? NULL : functions;
}

qn_status_t qn__artifact_make(qn_allocator_t allocator, const qn__artifact_parts_t* parts,
                              qn_artifact_t** out_artifact) {
  *out_artifact = NULL;
  if (parts->payload) QN_TRY(qn__buffer_status(parts->payload, "the code of kernels"));
  if (parts->metadata) QN_TRY(qn__buffer_status(parts->metadata, "the metadata of kernels"));
  owned_t* self = qn__alloc_zero(allocator, 1, sizeof *self);
  if (!self) return qn__out_of_memory("an artifact");
  self->allocator = allocator;
  qn__arena_init(&self->arena, allocator);
  qn__buffer_init(&self->payload, allocator);
  qn__buffer_init(&self->metadata, allocator);
  self->base.struct_size = sizeof self->base;
  self->base.release = release;
  self->base.format = qn__arena_cstr(&self->arena, qn__str(parts->format));
  self->base.isa = qn__arena_cstr(&self->arena, qn__str(parts->isa));
  self->base.functions =
      qn__artifact_copy_functions(parts->functions, parts->function_count, &self->arena);
  self->base.function_count = parts->function_count;
  if (!self->base.functions) {
    release(&self->base);
    return qn__out_of_memory("an artifact");
  }
  move(&self->payload, parts->payload);
  move(&self->metadata, parts->metadata);
  self->base.payload = self->payload.data;
  self->base.payload_size = self->payload.size;
  self->base.metadata = self->metadata.data;
  self->base.metadata_size = self->metadata.size;
  *out_artifact = &self->base;
  return QN_OK;
}
