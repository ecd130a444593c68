// SPDX-License-Identifier: Apache-2.0
// tests/unit/target/test_docs.c: the tables in docs/targets.md are those of the .inc files.
//
// `target_test_docs --update` rewrites them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>

#include "base/buffer.h"
#include "base/fs.h"
#include "target/target.h"

static const char doc_path[] = QN_SOURCE_DIR "/docs/targets.md";
static const char begin_mark[] = "<!-- tables: made by target_test_docs -->\n";
static const char end_mark[] = "<!-- end of tables -->\n";

static const char* type_text(qn_option_type_t type) {
  static const char* const texts[] = {"", "bool", "int", "string", "list"};
  return texts[type];
}

static const char* class_text(qn__target_option_class_t option_class) {
  static const char* const texts[] = {"isa", "tuning", "request"};
  return texts[option_class];
}

static void write_kinds(qn__buffer_t* out) {
  for (size_t k = 0; k < qn_target_kind_count(); ++k) {
    const qn__target_kind_t* kind = qn__target_kind_at(k);
    qn__buffer_format(out, "\n### `%s`\n\n%s. Code generator `%s`, device type %d.\n\n",
                      kind->info->name, kind->info->doc, kind->info->codegen,
                      (int)kind->info->device_type);
    qn__buffer_cstr(out, "| option | type | default | class | meaning |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < kind->info->option_count; ++i) {
      const qn_option_info_t* info = &kind->info->options[i];
      const char* text = info->default_text[0] ? info->default_text : "(see below)";
      qn__buffer_format(out, "| `%s` | %s | %s | %s | %s |\n", info->name, type_text(info->type),
                        text, class_text(kind->options[i].option_class), info->doc);
    }
  }
}

static void write_tags(qn__buffer_t* out) {
  qn__buffer_cstr(out, "\n### Tags\n\n| tag | stands for |\n|---|---|\n");
  const char *name, *json;
  for (size_t i = 0; qn_target_tag_at(i, &name, &json); ++i) {
    qn__buffer_format(out, "| `%s` | `%s` |\n", name, json);
  }
}

static void write_arches(qn__buffer_t* out) {
  const qn__target_arch_t* arch;
  for (size_t a = 0; (arch = qn__arch_at(a)) != NULL; ++a) {
    qn__buffer_format(out,
                      "\n### Extensions of %s\n\n| extension | needs | meaning |\n|---|---|---|\n",
                      arch->name);
    for (size_t i = 0; i < arch->feature_count; ++i) {
      const qn__target_feature_t* info = &arch->features[i];
      qn__buffer_format(out, "| `%s` | %s | %s |\n", info->name, info->implied, info->doc);
    }
    qn__buffer_format(out, "\n### Processors of %s\n\n| name | as | and |\n|---|---|---|\n",
                      arch->name);
    for (size_t i = 0; i < arch->cpu_count; ++i) {
      const qn__target_cpu_t* cpu = &arch->cpus[i];
      qn__buffer_format(out, "| `%s` | %s | %s |\n", cpu->name, cpu->base, cpu->extra);
    }
  }
  qn__buffer_char(out, '\n');
}

// The document with fresh tables; `out_old` is the document as it is.
static void renew(qn__buffer_t* old, qn__buffer_t* fresh) {
  uint8_t* data = NULL;
  size_t size = 0;
  qn_status_t status = qn__fs_read_file(qn_allocator_default(), doc_path, 1 << 20, &data, &size);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  qn__buffer_bytes(old, data, size);
  qn__free(qn_allocator_default(), data, size + 1);
  const char* text = (const char*)old->data;
  const char* begin = strstr(text, begin_mark);
  const char* end = strstr(text, end_mark);
  assert_true(begin && end && begin < end);
  begin += sizeof begin_mark - 1;
  qn__buffer_bytes(fresh, text, (size_t)(begin - text));
  write_kinds(fresh);
  write_tags(fresh);
  write_arches(fresh);
  qn__buffer_cstr(fresh, end);
  assert_false(fresh->has_failed);
}

static void test_tables_are_fresh(void** state) {
  (void)state;
  qn__buffer_t old, fresh;
  qn__buffer_init(&old, qn_allocator_default());
  qn__buffer_init(&fresh, qn_allocator_default());
  renew(&old, &fresh);
  if (strcmp((const char*)old.data, (const char*)fresh.data) != 0) {
    fail_msg("docs/targets.md is stale; run target_test_docs --update");
  }
  qn__buffer_deinit(&old);
  qn__buffer_deinit(&fresh);
}

static void update(void** state) {
  (void)state;
  qn__buffer_t old, fresh;
  qn__buffer_init(&old, qn_allocator_default());
  qn__buffer_init(&fresh, qn_allocator_default());
  renew(&old, &fresh);
  FILE* file = fopen(doc_path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(fresh.data, 1, fresh.size, file), fresh.size);
  assert_int_equal(fclose(file), 0);
  qn__buffer_deinit(&old);
  qn__buffer_deinit(&fresh);
}

int main(int argc, char** argv) {
  bool is_update = argc > 1 && strcmp(argv[1], "--update") == 0;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables_are_fresh)};
  const struct CMUnitTest updates[] = {cmocka_unit_test(update)};
  return is_update ? cmocka_run_group_tests(updates, NULL, NULL)
                   : cmocka_run_group_tests(tests, NULL, NULL);
}
