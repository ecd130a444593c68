// SPDX-License-Identifier: Apache-2.0
// devices/cpu/announce.c: names the code of an image "qn::SYMBOL@KEY" for perf and gdb.
//
// Does nothing unless the options ask for one of them. If memory runs out, the code has no name.
#include <stdio.h>

#include "base/arena.h"
#include "base/reader.h"
#include "devices/cpu/debug.h"

typedef struct names {
  qn__arena_t arena;
  const char* suffix;  // "@KEY", or ""
  uintptr_t base;
  size_t image_size;
  qn__cpu_symbol_t* symbols;
  size_t count;
} names_t;

// Adds a symbol. Leaves out symbols outside of the image.
static void add(names_t* names, qn_str_t name, uint64_t offset, uint64_t size) {
  if (offset > names->image_size || size > names->image_size - offset) return;
  char text[256];
  (void)snprintf(text, sizeof text, "qn::%.*s%.32s", name.size < 200 ? (int)name.size : 200,
                 name.data, names->suffix);
  const char* copy = qn__arena_cstr(&names->arena, qn__str(text));
  if (!copy) return;
  names->symbols[names->count++] = (qn__cpu_symbol_t){copy, names->base + offset, size};
}

static void add_table(names_t* names, qn_span_t table) {
  qn__reader_t reader = qn__reader_make(table);
  uint64_t count = qn__read_varint(&reader);
  // A symbol takes three bytes at least.
  if (reader.has_overrun || count > qn__reader_left(&reader) / 3) return;
  names->symbols =
      qn__arena_alloc_array(&names->arena, (size_t)count + 1, sizeof(qn__cpu_symbol_t));
  for (uint64_t i = 0; i < count && names->symbols; i++) {
    uint64_t offset = qn__read_varint(&reader);
    uint64_t size = qn__read_varint(&reader);
    qn_span_t name = qn__read_run(&reader);
    if (reader.has_overrun) return;
    add(names, (qn_str_t){(const char*)name.data, name.size}, offset, size);
  }
}

static void add_entries(names_t* names, const qn_artifact_t* artifact) {
  size_t count = artifact->function_count;
  names->symbols = qn__arena_alloc_array(&names->arena, count + 1, sizeof(qn__cpu_symbol_t));
  for (size_t i = 0; i < count && names->symbols; i++) {
    const qn_artifact_function_t* function = &artifact->functions[i];
    add(names, qn__str(function->name), function->code_offset, function->code_size_bytes);
  }
}

qn__cpu_gdb_object_t* qn__cpu_announce(const qn_artifact_t* artifact,
                                       const qn_load_options_t* options, uintptr_t base) {
  if (!options || !(options->has_perf_map || options->has_gdb)) return NULL;
  const char* at = options->name ? strrchr(options->name, '@') : NULL;
  names_t names = {.suffix = at ? at : "", .base = base, .image_size = artifact->payload_size};
  qn__arena_init(&names.arena, qn_allocator_default());
  add_table(&names, (qn_span_t){artifact->metadata, artifact->metadata_size});
  if (names.count == 0) add_entries(&names, artifact);
  qn__cpu_gdb_object_t* object = NULL;
  if (names.count != 0) {
    if (options->has_perf_map) qn__perf_map_add(names.symbols, names.count);
    if (options->has_gdb) object = qn__gdb_register(names.symbols, names.count);
  }
  qn__arena_deinit(&names.arena);
  return object;
}
