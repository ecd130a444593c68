// SPDX-License-Identifier: Apache-2.0
// cache/entry_copy.c: see entry_copy.h.
#include "cache/entry_copy.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/fs.h"
#include "base/reader.h"

// Sections that are not in the preimage: metadata, module and payload.
#define OWN_SECTIONS 3u

qn_status_t qn__get_status(qn_hash128_t key, qn__get_result_t result, const qn__hit_t* hit) {
  char hex[33];
  qn__hash128_hex(key, hex);
  switch (result) {
    case QN__GET_HIT:
      break;
    case QN__GET_ABSENT:
      return qn_status_make(QN_STATUS_NOT_FOUND, "entry %s has just gone", hex);
    case QN__GET_BAD:
      return qn_status_make(QN_STATUS_DATA_LOSS, "entry %s: %s", hex, qn__reason_text(hit->reason));
    case QN__GET_ERROR:
      return qn__fs_status(hit->error, "read entry", hex);
    case QN__GET_UNTRUSTED:
      return qn_status_make(QN_STATUS_PERMISSION_DENIED,
                            "entry %s is not a regular file of this user, or others may write it",
                            hex);
    case QN__GET_NO_MEMORY:
      return qn__out_of_memory("an entry of the cache");
    case QN__GET_TIMEOUT:
    case QN__GET_OFF:
      break;  // only other tiers
  }
  return QN_OK;
}

typedef struct entry_copy {
  qn_cache_entry_t entry;  // first: the public handle
  qn_cache_entry_info_t info;
  qn__arena_t arena;
} entry_copy_t;

static void append_hex(qn__buffer_t* text, qn_span_t bytes) {
  char* out = (char*)qn__buffer_extend(text, 2 * bytes.size);
  if (out) (void)qn__hex(out, bytes.data, bytes.size);
}

// Describes a section that is not text; NULL when there is nothing to say or no memory.
static char* describe(qn__arena_t* arena, uint32_t tag, qn_span_t bytes) {
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  qn__reader_t reader = qn__reader_make(bytes);
  if (tag == QN__SECTION_MODULE && bytes.size == 56) {
    qn__buffer_format(&text, "%" PRIu64 " bytes, xxh3 ", qn__read_u64(&reader));
    append_hex(&text, qn__read_bytes(&reader, 16));
    qn__buffer_cstr(&text, ", sha256 ");
    append_hex(&text, qn__read_bytes(&reader, 32));
  } else if (tag == QN__SECTION_SCHEMA) {
    qn__buffer_cstr(&text, "versions");
    while (qn__reader_left(&reader) >= 4)
      qn__buffer_format(&text, " %" PRIu32, qn__read_u32(&reader));
  }
  char* copy =
      text.size && !text.has_failed ? qn__arena_cstr(arena, qn__buffer_as_str(&text)) : NULL;
  qn__buffer_deinit(&text);
  return copy;
}

static qn_cache_section_t make_section(qn__arena_t* arena, const char* name, qn_span_t bytes) {
  void* copy = qn__arena_alloc(arena, bytes.size);
  if (copy && bytes.size) memcpy(copy, bytes.data, bytes.size);
  return (qn_cache_section_t){.name = name, .data = copy, .size_bytes = bytes.size};
}

// Copies all sections, because the handle outlives the directory.
static bool fill_sections(entry_copy_t* copy, const qn__entry_t* entry) {
  qn__arena_t* arena = &copy->arena;
  size_t count = OWN_SECTIONS, offset = 0;
  uint32_t tag;
  qn_span_t bytes;
  while (qn__preimage_next(entry->preimage, &offset, &tag, &bytes)) count++;
  qn_cache_section_t* sections = qn__arena_alloc_array(arena, count, sizeof *sections);
  if (!sections) return false;
  size_t i = 0;
  offset = 0;
  while (i < count - OWN_SECTIONS && qn__preimage_next(entry->preimage, &offset, &tag, &bytes)) {
    sections[i] = make_section(arena, qn__section_text(tag), bytes);
    sections[i].text = qn__section_is_text(tag)
                           ? qn__arena_cstr(arena, (qn_str_t){(const char*)bytes.data, bytes.size})
                           : describe(arena, tag, bytes);
    i++;
  }
  sections[i++] = make_section(arena, "metadata", entry->metadata);
  if (entry->module.size) sections[i++] = make_section(arena, "module bytes", entry->module);
  sections[i++] = make_section(arena, "payload", entry->payload);
  assert(i <= count);
  copy->entry.sections = sections;
  copy->entry.section_count = i;
  return !arena->is_exhausted;
}

qn_status_t qn__entry_copy(const qn__entry_t* entry, const qn_cache_entry_info_t* info,
                           qn_cache_entry_t** out_entry) {
  *out_entry = NULL;
  qn_allocator_t allocator = qn_allocator_default();
  entry_copy_t* copy = qn__alloc_zero(allocator, 1, sizeof *copy);
  if (!copy) return qn__out_of_memory("an entry of the cache");
  qn__arena_init(&copy->arena, allocator);
  copy->info = *info;
  copy->entry.struct_size = sizeof copy->entry;
  copy->entry.info = &copy->info;
  copy->entry.compile_ns = entry->compile_ns > 0 ? (uint64_t)entry->compile_ns : 0;
  if (!fill_sections(copy, entry)) {
    qn_cache_entry_free(&copy->entry);
    return qn__out_of_memory("an entry of the cache");
  }
  *out_entry = &copy->entry;
  return QN_OK;
}

void qn_cache_entry_free(qn_cache_entry_t* entry) {
  if (!entry) return;
  entry_copy_t* copy = (entry_copy_t*)entry;
  qn__arena_deinit(&copy->arena);
  qn__free(qn_allocator_default(), copy, sizeof *copy);
}
