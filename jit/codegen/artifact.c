// SPDX-License-Identifier: Apache-2.0
// jit/codegen/artifact.c: encodes, decodes and checks artifacts.
//
// The bytes are a version, then strings as runs and numbers as varints, functions and their sites
// in order. Entries on disk hold these bytes, so a change of the format needs a new version.
#include "jit/codegen/artifact.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/reader.h"
#include "base/struct_size.h"
#include "jit/identity/artifact_make.h"

#define METADATA_VERSION 2u

static void put_text(qn__buffer_t* out, const char* text) {
  qn_str_t str = qn__str(text);
  qn__buffer_run(out, (qn_span_t){(const uint8_t*)str.data, str.size});
}

void qn__artifact_encode(const qn_artifact_t* artifact, qn__buffer_t* out) {
  qn__buffer_u8(out, METADATA_VERSION);
  put_text(out, artifact->format);
  put_text(out, artifact->isa);
  qn__buffer_run(out, (qn_span_t){artifact->metadata, artifact->metadata_size});
  qn__buffer_varint(out, artifact->function_count);
  for (size_t i = 0; i < artifact->function_count; i++) {
    const qn_artifact_function_t* function = &artifact->functions[i];
    put_text(out, function->name);
    qn__buffer_varint(out, function->code_offset);
    qn__buffer_varint(out, function->code_size_bytes);
    qn__buffer_varint(out, function->launch_count);
    qn__buffer_u8(out, function->has_32_bit_indices);
    qn__buffer_varint(out, function->site_count);
    for (uint32_t s = 0; s < function->site_count; s++) {
      const qn_artifact_site_t* site = &function->sites[s];
      qn__buffer_u8(out, (uint8_t)site->kind);
      qn__buffer_varint(out, site->buffer_id);
      qn__buffer_varint(out, site->dim);
      qn__buffer_varint(out, site->place);
      qn__buffer_u8(out, site->message != NULL);
      if (site->message) put_text(out, site->message);
    }
  }
}

// Returns a terminated copy of a run; NULL if it holds a zero byte or memory is out.
static const char* get_text(qn__reader_t* reader, qn__arena_t* arena) {
  qn_span_t run = qn__read_run(reader);
  if (run.size != 0 && memchr(run.data, 0, run.size)) return NULL;
  return qn__arena_cstr(arena, (qn_str_t){(const char*)run.data, run.size});
}

static bool get_count(qn__reader_t* reader, size_t least_bytes_each, size_t* out_count) {
  uint64_t count = qn__read_varint(reader);
  *out_count = (size_t)count;
  return !reader->has_overrun && count <= qn__reader_left(reader) / least_bytes_each;
}

static bool get_sites(qn__reader_t* reader, qn__arena_t* arena, qn_artifact_function_t* out) {
  size_t count;
  if (!get_count(reader, 5, &count)) return false;
  qn_artifact_site_t* sites = qn__arena_alloc_array(arena, count + 1, sizeof *sites);
  if (!sites) return false;
  for (size_t i = 0; i < count; i++) {
    sites[i].kind = (qn_site_kind_t)qn__read_u8(reader);
    sites[i].buffer_id = (uint32_t)qn__read_varint(reader);
    sites[i].dim = (uint32_t)qn__read_varint(reader);
    sites[i].place = (uint32_t)qn__read_varint(reader);
    if (qn__read_u8(reader) != 0) {
      sites[i].message = get_text(reader, arena);
      if (!sites[i].message) return false;
    }
  }
  out->sites = sites;
  out->site_count = (uint32_t)count;
  return !reader->has_overrun;
}

static bool get_functions(qn__reader_t* reader, qn__arena_t* arena, qn_artifact_t* out) {
  size_t count;
  if (!get_count(reader, 6, &count)) return false;
  qn_artifact_function_t* functions = qn__arena_alloc_array(arena, count + 1, sizeof *functions);
  if (!functions) return false;
  for (size_t i = 0; i < count; i++) {
    functions[i].name = get_text(reader, arena);
    functions[i].code_offset = qn__read_varint(reader);
    functions[i].code_size_bytes = qn__read_varint(reader);
    functions[i].launch_count = (uint32_t)qn__read_varint(reader);
    functions[i].has_32_bit_indices = qn__read_u8(reader) != 0;
    if (!functions[i].name || !get_sites(reader, arena, &functions[i])) return false;
  }
  out->functions = functions;
  out->function_count = count;
  return true;
}

qn_status_t qn__artifact_decode(qn_span_t metadata, qn_span_t payload, qn__arena_t* arena,
                                qn_artifact_t* out_artifact) {
  memset(out_artifact, 0, sizeof *out_artifact);
  out_artifact->struct_size = sizeof *out_artifact;
  out_artifact->payload = payload.data;
  out_artifact->payload_size = payload.size;
  qn__reader_t reader = qn__reader_make(metadata);
  bool is_good = qn__read_u8(&reader) == METADATA_VERSION;
  if (is_good) {
    out_artifact->format = get_text(&reader, arena);
    out_artifact->isa = get_text(&reader, arena);
    qn_span_t own = qn__read_run(&reader);
    out_artifact->metadata = own.data;
    out_artifact->metadata_size = own.size;
    is_good = out_artifact->format && out_artifact->isa &&
              get_functions(&reader, arena, out_artifact) && !reader.has_overrun &&
              qn__reader_left(&reader) == 0;
  }
  if (arena->is_exhausted) return qn__out_of_memory("an artifact");
  if (!is_good) return qn_status_make(QN_STATUS_DATA_LOSS, "an artifact's metadata is malformed");
  return qn__artifact_check(out_artifact);
}

qn_status_t qn__artifact_compile(const qn_codegen_t* codegen, void* self,
                                 const qn_compile_request_t* request, qn__compiled_t* out) {
  *out = (qn__compiled_t){.given = NULL};
  QN_TRY(codegen->compile(self, request, &out->given));
  qn_artifact_t* copy = &out->artifact;
  qn_status_t status = qn__struct_read("qn_artifact_t", 0, out->given, copy, sizeof *copy);
  if (qn_ok(status)) return qn__artifact_check(copy);
  // The artifact is unusable, but can still be released.
  if (out->given->struct_size >= sizeof *copy) copy->release = out->given->release;
  return status;
}

void qn__compiled_release(qn__compiled_t* compiled) {
  if (compiled->artifact.release) compiled->artifact.release(compiled->given);
  *compiled = (qn__compiled_t){.given = NULL};
}

qn_status_t qn__artifact_check(const qn_artifact_t* artifact) {
  if (!artifact->format || !artifact->isa || (artifact->function_count && !artifact->functions)) {
    return qn_status_make(QN_STATUS_DATA_LOSS, "an artifact lacks its format, isa or functions");
  }
  for (size_t i = 0; i < artifact->function_count; i++) {
    const qn_artifact_function_t* function = &artifact->functions[i];
    if (!function->name || function->name[0] == '\0') {
      return qn_status_make(QN_STATUS_DATA_LOSS, "an artifact's function %zu has no name", i);
    }
    if (function->code_offset > artifact->payload_size ||
        function->code_size_bytes > artifact->payload_size - function->code_offset) {
      return qn_status_make(QN_STATUS_DATA_LOSS,
                            "an artifact's function '%s' lies outside of its payload",
                            function->name);
    }
    if (function->site_count != 0 && !function->sites) {
      return qn_status_make(QN_STATUS_DATA_LOSS, "an artifact's function '%s' lacks its %u sites",
                            function->name, function->site_count);
    }
    for (uint32_t s = 0; s < function->site_count; s++) {
      const qn_artifact_site_t* site = &function->sites[s];
      if (site->kind < QN_SITE_ASSERT || site->kind > QN_SITE_MEMORY ||
          (site->kind == QN_SITE_ASSERT) != (site->message != NULL)) {
        return qn_status_make(QN_STATUS_DATA_LOSS, "an artifact's function '%s' has a bad site %u",
                              function->name, s);
      }
    }
  }
  return QN_OK;
}

qn_status_t qn_artifact_copy(const qn_artifact_t* from, qn_artifact_t** out_artifact) {
  QN_REQUIRE(out_artifact);
  *out_artifact = NULL;
  QN_REQUIRE(from);
  QN_STRUCT_READ(qn_artifact_t, from, artifact);
  QN_TRY(qn__artifact_check(&artifact));
  qn__buffer_t payload, metadata;
  qn__buffer_init(&payload, qn_allocator_default());
  qn__buffer_init(&metadata, qn_allocator_default());
  qn__buffer_bytes(&payload, artifact.payload, artifact.payload_size);
  qn__buffer_bytes(&metadata, artifact.metadata, artifact.metadata_size);
  qn__artifact_parts_t parts = {.format = artifact.format,
                                .isa = artifact.isa,
                                .function_count = artifact.function_count,
                                .functions = artifact.functions,
                                .payload = &payload,
                                .metadata = &metadata};
  qn_status_t status = qn__artifact_make(qn_allocator_default(), &parts, out_artifact);
  qn__buffer_deinit(&payload);
  qn__buffer_deinit(&metadata);
  return status;
}
