// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_docs.c: docs/ir.md has a row for every entry of the tables, and its programs
// parse.
//
// tools/dev/ir-tables writes the rows.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/text.h"

static char page[1 << 20];

static int read_page(void** state) {
  (void)state;
  FILE* file = fopen(QN_SOURCE_DIR "/docs/ir.md", "rb");
  if (!file) return -1;
  page[fread(page, 1, sizeof page - 1, file)] = '\0';
  fclose(file);
  return 0;
}

// The row with each "|" of a cell escaped.
static void assert_row(const char* first, const char* last) {
  char row[512];
  size_t size = 0;
  const char* cells[] = {first, last};
  for (int i = 0; i < 2; i++) {
    row[size++] = '|';
    row[size++] = ' ';
    for (const char* c = cells[i]; *c && size + 8 < sizeof row; c++) {
      if (*c == '|') row[size++] = '\\';
      row[size++] = *c;
    }
    row[size++] = ' ';
  }
  row[size++] = '|';
  row[size] = '\0';
  // What stands between the first and the last cell is not compared.
  char* middle = strstr(row + 2, " | ");
  assert_non_null(middle);
  char saved = middle[2];
  middle[2] = '\0';
  for (const char* at = page; (at = strstr(at, row));) {
    const char* end = strchr(at, '\n');
    middle[2] = saved;
    const char* tail = middle + 1;
    size_t tail_size = strlen(tail);
    if (end && (size_t)(end - at) >= tail_size && memcmp(end - tail_size, tail, tail_size) == 0) {
      return;
    }
    middle[2] = '\0';
    at = end ? end : at + 1;
  }
  middle[2] = saved;
  fail_msg("docs/ir.md lacks the row '%s': run tools/dev/ir-tables", row);
}

static void test_operators(void** state) {
  (void)state;
  for (int op = 1; op < QN_OP_COUNT; op++) {
    const qn__ir_op_info_t* info = qn__op_info((qn_op_t)op);
    const char* names = info->rule == QN__RULE_SELECT  ? "cab"
                        : info->rule == QN__RULE_LANE  ? "xd"
                        : info->rule == QN__RULE_SCALE ? "xn"
                        : info->rule == QN__RULE_AXES  ? "xa"
                        : info->arity == 1             ? "x"
                                                       : "abc";
    char text[128];
    if (info->arity == 0) {
      (void)snprintf(text, sizeof text, "`%s()`", info->text);
    } else if (info->syntax == QN__SYNTAX_PREFIX) {
      (void)snprintf(text, sizeof text, "`%sa`", info->text);
    } else if (info->syntax == QN__SYNTAX_INFIX) {
      (void)snprintf(text, sizeof text, "`a %s b`", info->text);
    } else if (info->arity == 1) {
      (void)snprintf(text, sizeof text, "`%s(%c)`", info->text, names[0]);
    } else if (info->arity == 2) {
      (void)snprintf(text, sizeof text, "`%s(%c, %c)`", info->text, names[0], names[1]);
    } else {
      (void)snprintf(text, sizeof text, "`%s(%c, %c, %c)`", info->text, names[0], names[1],
                     names[2]);
    }
    assert_row(text, info->doc);
  }
}

static void test_codes(void** state) {
  (void)state;
#define QN_CODE(name, code, doc) assert_row(code, doc);
#include "ir/codes.inc"
#undef QN_CODE
#define QN_VERIFY_CODE(name, code, doc) assert_row(code, doc);
#include "ir/verify_codes.inc"
#undef QN_VERIFY_CODE
}

static void test_small_tables(void** state) {
  (void)state;
#define QN_LOOP_KIND(name, value, text, doc) assert_row("`" text "`", doc);
#include "ir/tables.inc"
#undef QN_LOOP_KIND
#define QN_REDUCE(name, value, text, doc) assert_row("`" text "`", doc);
#include "ir/tables.inc"
#undef QN_REDUCE
#define QN_SEVERAL(name, value, text, doc) assert_row("`" text "`", doc);
#include "ir/tables.inc"
#undef QN_SEVERAL
#define QN_LEAVE(name, value, text, doc) assert_row("`" text "`", doc);
#include "ir/tables.inc"
#undef QN_LEAVE
#define NUMBER "integers and floats"
#define INTEGER "integers"
#define QN_ATOMIC(name, value, text, operands, class, doc) \
  assert_non_null(strstr(page, "| `" text "` | " #operands " | " class " | " doc " |"));
#include "ir/tables.inc"
#undef QN_ATOMIC
#undef NUMBER
#undef INTEGER
  for (int dtype = 1; dtype < QN_DTYPE_COUNT; dtype++) {
    char text[32];
    (void)snprintf(text, sizeof text, "`%s`", qn_dtype_text((qn_dtype_t)dtype));
    qn__dtype_class_t c = qn__dtype_class((qn_dtype_t)dtype);
    assert_row(text, c == QN__CLASS_BOOL           ? "truth value"
                     : c == QN__CLASS_SIGNED       ? "signed integer"
                     : c == QN__CLASS_UNSIGNED     ? "unsigned integer"
                     : c == QN__CLASS_FLOAT        ? "float"
                     : c == QN__CLASS_STORED_FLOAT ? "float that is only stored"
                                                   : "integer that is only stored");
  }
}

// Every block of the language is a module, the head of a function, or statements.
static void test_programs_parse(void** state) {
  (void)state;
  static const char head[] =
      "func f(x: f32[n, m], v: f32[n], bytes: u8[m], w: f32[n, n], d: f64[n], inout count: i32[n], "
      "inout best: "
      "i32[1], inout lock: i32[], bin: i32, score: i32, inout y: f32[n, m]) {\n";
  int count = 0;
  for (const char* at = page; (at = strstr(at, "```qn\n"));) {
    at += strlen("```qn\n");
    const char* end = strstr(at, "```");
    assert_non_null(end);
    char text[8192];
    int size = (int)(end - at);
    const char* word = strstr(at, "func ");
    bool is_function = word && word < end;
    bool is_head = is_function && end[-2] == '{';
    (void)snprintf(text, sizeof text, "%s%.*s%s", is_function ? "" : head, size, at,
                   is_function && !is_head ? "" : "}\n");
    qn__diag_t diag;
    qn__ir_body_t body;
    qn__diag_init(&diag, qn_allocator_default(), NULL, "docs/ir.md", qn__str(text));
    if (!qn__text_parse(qn__str(text), qn_allocator_default(), &diag, &body)) {
      fail_msg("%s", (const char*)diag.text.data);
    }
    qn__body_deinit(&body);
    qn__diag_deinit(&diag);
    count++;
  }
  assert_true(count >= 6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_operators),
      cmocka_unit_test(test_codes),
      cmocka_unit_test(test_small_tables),
      cmocka_unit_test(test_programs_parse),
  };
  return cmocka_run_group_tests(tests, read_page, NULL);
}
