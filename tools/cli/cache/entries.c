// SPDX-License-Identifier: Apache-2.0
// tools/cli/cache/entries.c: `quern cache ls` and `quern cache show`.
#include <stdlib.h>
#include <string.h>

#include "tools/cli/cache/actions.h"
#include "tools/cli/memory.h"

typedef struct entry_listing {
  qn_cache_entry_info_t* entries;
  size_t count;
  size_t capacity;
} entry_listing_t;

static bool take_entry(void* self, const qn_cache_entry_info_t* info) {
  entry_listing_t* listing = self;
  listing->entries =
      memory_room(listing->entries, &listing->capacity, listing->count, sizeof *info);
  listing->entries[listing->count++] = *info;
  return true;
}

// Orders entries by time, the latest first, then by key.
static int compare_entries(const void* a, const void* b) {
  const qn_cache_entry_info_t *x = a, *y = b;
  if (x->created_s != y->created_s) return x->created_s < y->created_s ? 1 : -1;
  return strcmp(x->key.hex, y->key.hex);
}

static json_t* info_json(const qn_cache_entry_info_t* info) {
  return json_record("key:s size_bytes:i created_s:i used_s:i", info->key.hex, info->size_bytes,
                     info->created_s, info->used_s);
}

static void add_generator(void* self, const char* identity) {
  json_array_append_new(self, json_text(identity));
}

json_t* cache_place_json(const cache_t* cache) {
  if (!cache->bundle) return json_record("directory:s", cache->path);
  qn_cache_bundle_info_t info = {.struct_size = sizeof info};
  qn_status_free(qn_cache_bundle_info(cache->bundle, &info));
  json_t* generators = json_array();
  qn_cache_bundle_generators(cache->bundle, add_generator, generators);
  return json_record("bundle:s size_bytes:i is_truncated:b is_verified:b signer:S generators:o",
                     cache->path, info.size_bytes, info.is_truncated, info.is_verified, info.signer,
                     generators);
}

static void print_generator(void* self, const char* identity) {
  (void)self;
  print(stdout, "made by %s\n", identity);
}

static void print_bundle(const cache_t* cache) {
  qn_cache_bundle_info_t info = {.struct_size = sizeof info};
  qn_status_free(qn_cache_bundle_info(cache->bundle, &info));
  qn_cache_bundle_generators(cache->bundle, print_generator, NULL);
  if (info.signer[0]) {
    print(stdout, "%s by %s\n", info.is_verified ? "signed" : "signed (not checked)", info.signer);
  }
  if (info.is_truncated) print(stdout, "its tail is missing: these entries are whole\n");
}

static void print_listing(const cache_t* cache, const entry_listing_t* listing) {
  json_t* list = json_array();
  for (size_t i = 0; i < listing->count; i++) {
    json_array_append_new(list, info_json(&listing->entries[i]));
  }
  if (!cache->args->is_json) {
    print_table(list, "key=key:s size=size_bytes:z created=created_s:t used=used_s:t");
    if (cache->bundle) print_bundle(cache);
  }
  json_t* result = cache_place_json(cache);
  json_object_set_new(result, "entries", list);
  report_json(cache->args, result);
}

static qn_status_t list_entries(const cache_t* cache, entry_listing_t* listing) {
  if (cache->bundle) return qn_cache_bundle_list(cache->bundle, take_entry, listing);
  return cache->dir ? qn_cache_dir_list(cache->dir, take_entry, listing) : QN_OK;
}

static qn_status_t run_ls(const cache_t* cache, int* out_code) {
  (void)out_code;
  entry_listing_t listing = {0};
  qn_status_t status = list_entries(cache, &listing);
  if (qn_ok(status)) {
    if (listing.count)
      qsort(listing.entries, listing.count, sizeof *listing.entries, compare_entries);
    print_listing(cache, &listing);
  }
  free(listing.entries);
  return status;
}

static json_t* section_json(const qn_cache_section_t* section) {
  json_t* entry = json_record("name:s size_bytes:i", section->name, (uint64_t)section->size_bytes);
  if (section->text) json_object_set_new(entry, "text", json_text(section->text));
  return entry;
}

static void print_entry(const qn_cache_entry_t* entry) {
  const style_t* style = style_of(stdout);
  char text[32];
  print(stdout, "%skey%s        %s\n", style->bold, style->plain, entry->info->key.hex);
  print(stdout, "size       %s\n", format_size(entry->info->size_bytes, text));
  print(stdout, "created    %s\n", format_time(entry->info->created_s, text));
  print(stdout, "used       %s\n", format_time(entry->info->used_s, text));
  print(stdout, "compiled   in %s\n", format_ns((int64_t)entry->compile_ns, text));
  for (size_t i = 0; i < entry->section_count; i++) {
    const qn_cache_section_t* section = &entry->sections[i];
    print(stdout, "%s%-10s%s ", style->bold, section->name, style->plain);
    if (section->text) {
      print(stdout, "%s\n", section->text);
    } else {
      print(stdout, "%s\n", format_size(section->size_bytes, text));
    }
  }
}

static qn_status_t run_show(const cache_t* cache, int* out_code) {
  (void)out_code;
  const char* key = cache_operand(cache, 0);
  if (!cache->dir && !cache->bundle) {
    return qn_status_make(QN_STATUS_NOT_FOUND, "no entry '%s': there is no cache at '%s' yet", key,
                          cache->path);
  }
  qn_cache_entry_t* entry = NULL;
  qn_status_t status = cache->bundle ? qn_cache_bundle_read(cache->bundle, key, &entry)
                                     : qn_cache_dir_read(cache->dir, key, &entry);
  if (!qn_ok(status)) return status;
  if (cache->args->is_json) {
    json_t* sections = json_array();
    for (size_t i = 0; i < entry->section_count; i++) {
      json_array_append_new(sections, section_json(&entry->sections[i]));
    }
    json_t* result = info_json(entry->info);
    json_object_set_new(result, "compile_ns", json_integer((json_int_t)entry->compile_ns));
    json_object_set_new(result, "sections", sections);
    print_json(result);
  } else {
    print_entry(entry);
  }
  qn_cache_entry_free(entry);
  return QN_OK;
}

const cache_action_t cache_action_ls = {
    .name = "ls",
    .options = "dir bundle signed-by ",
    .run = run_ls,
};

const cache_action_t cache_action_show = {
    .name = "show",
    .operands = "KEY",
    .min_operands = 1,
    .max_operands = 1,
    .options = "dir bundle signed-by ",
    .run = run_show,
};
