// SPDX-License-Identifier: Apache-2.0
// tests/unit/ir/test_encode.c: tests canonical bytes: the properties that they depend on, refused
// input, and equality in every process. Random bytes: tests/fuzz/fuzz_bytes.c.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/digest.h"
#include "ir/encode.h"
#include "tests/support/fault.h"
#include "tests/support/must.h"
#include "tests/unit/ir/support_ir.h"

static qn_module_t* must_decode(const void* bytes, size_t size) {
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_decode(bytes, size, NULL, &module);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  return module;
}

static void check_round_trip(const qn_module_t* module) {
  size_t size;
  const void* bytes = qn_module_bytes(module, &size);
  qn_module_t* decoded = must_decode(bytes, size);
  assert_true(qn_same_bytes(module, decoded));
  assert_int_equal(qn_module_function_count(decoded), qn_module_function_count(module));
  assert_string_equal(qn_module_function_signature(decoded, 0),
                      qn_module_function_signature(module, 0));
  // The text of what was decoded has other names of locals and the same meaning.
  char* text = NULL;
  assert_true(qn_ok(qn_module_print(decoded, &text, NULL)));
  qn_module_t* printed = must_parse(text);
  assert_true(qn_same_bytes(module, printed));
  qn_text_free(text);
  qn_module_release(printed);
  qn_module_release(decoded);
}

static void bytes_come_back(void** state) {
  (void)state;
  for (size_t i = 0; i < qn_sample_count; i++) {
    size_t size;
    char* text = qn_sample_text(qn_samples[i].name, &size);
    qn_module_t* module = must_parse(text);
    check_round_trip(module);
    qn_module_release(module);
    qn_sample_text_free(text, size);
  }
  qn_module_t* module = must_parse(qn_all_constructs);
  check_round_trip(module);
  qn_module_release(module);
}

static const char base_text[] =
    "func f(x: f32[n, m], k: i32, out y: f32[n]) {\n"
    "  assert n > 0, \"none\";\n"
    "  parallel i in 0..n {\n"
    "    let t = sum j in 0..m { x[i, j] };\n"
    "    alloc a: f32[4] in local;\n"
    "    a[1] = t;\n"
    "    if t > 1.0 { y[i] = a[1] + 1.0; }\n"
    "  }\n"
    "}\n";

static void layout_and_names_of_locals_do_not_count(void** state) {
  (void)state;
  qn_module_t* a = must_parse(base_text);
  qn_module_t* b = must_parse(
      "// a comment\nfunc f(x:f32[n,m],k:i32,out y:f32[n],){assert n>0,\"none\";parallel row in "
      "0..n"
      "{let total=(sum column in 0..m{(x[row,column])});alloc space:f32[0x4] in local;"
      "space[1]=total;if(total>1.0){y[row]=space[1]+1.00;}}}");
  assert_true(qn_same_bytes(a, b));
  assert_memory_equal(qn_module_digest(a), qn_module_digest(b), 16);
  assert_memory_equal(a->second_digest.bytes, b->second_digest.bytes, 32);
  qn_module_release(a);
  qn_module_release(b);
}

// One piece of the text replaced by another: a different module each.
static const char* const changes[][2] = {
    {"func f", "func g"},
    {"x: f32", "z: f32"},  // the names of parameters are the interface (and x[ stays invalid)
    {"k: i32", "k: i64"},
    {"out y", "inout y"},
    {"f32[n]) {", "f32[n]) fast {"},
    {"f32[n]) {", "f32[n] align 64) {"},
    {"f32[n]) {", "f32[n] strides [1]) {"},
    {"n > 0", "n >= 0"},
    {"n > 0", "n > 1"},
    {"\"none\"", "\"one\""},
    {", \"none\"", ""},
    {"parallel", "for"},
    {"0..n", "1..n"},
    {"sum", "max"},
    {"x[i, j]", "x[i, 0]"},
    {"alloc a: f32[4]", "alloc a: f32[5]"},
    {"a[1] = t", "a[2] = t"},
    {"> 1.0", "> 2.0"},
    {"a[1] + 1.0", "a[1] - 1.0"},
    {"a[1] + 1.0", "1.0 + a[1]"},
    {"a[1] + 1.0", "a[1] + -1.0"},
    {"{ y[i] = a[1] + 1.0; }", "{ } else { y[i] = a[1] + 1.0; }"},
    {"f(x: f32[n, m], k: i32,", "f(k: i32, x: f32[n, m],"},
};

static void every_change_of_meaning_changes_the_bytes(void** state) {
  (void)state;
  qn_module_t* base = must_parse(base_text);
  for (size_t i = 0; i < QN_COUNT_OF(changes); i++) {
    const char* at = strstr(base_text, changes[i][0]);
    assert_non_null(at);
    qn__buffer_t text;
    qn__buffer_init(&text, qn_allocator_default());
    qn__buffer_bytes(&text, base_text, (size_t)(at - base_text));
    qn__buffer_cstr(&text, changes[i][1]);
    qn__buffer_cstr(&text, at + strlen(changes[i][0]));
    if (i == 1) {
      char* use = strstr((char*)text.data, "x[i");
      *use = 'z';
    }
    qn_module_t* changed = must_parse((const char*)text.data);
    if (qn_same_bytes(base, changed)) fail_msg("change %zu changes nothing", i);
    assert_memory_not_equal(qn_module_digest(base), qn_module_digest(changed), 16);
    qn_module_release(changed);
    qn__buffer_deinit(&text);
  }
  qn_module_release(base);
}

// The digest of a small program, written down: another process, machine or version must find the
// same.
static void the_format_is_frozen(void** state) {
  (void)state;
  qn_module_t* module = must_parse("func f(inout x: f32[n]) { for i in 0..n { x[i] = 0.5; } }");
  static const uint8_t expected[] = {
      'Q', 'N', 'I', 'R', 1,  0,  0, 0,           // magic, version, reserved
      1,                                          // functions
      'F', 36,  0,   0,   0,                      // size of the rest
      1,   'f', 0,                                // name, not fast
      1,   1,   'n',                              // symbols
      1,   2,   1,   'x', 12, 3,  1, 4,           // a buffer: f32, inout, rank 1, align 4
      3,   0,   0,                                // shape: variable 0; no strides
      5,   1,   1,   5,   0,  3,  0,              // for, from the integer 0 of i64 to variable 0
      2,   0,   3,   1,   2,  12, 0, 0, 0, 0x3F,  // store, buffer 0, variable 1, the float 0.5
      0,   0,                                     // ends of blocks
  };
  size_t size;
  const uint8_t* bytes = qn_module_bytes(module, &size);
  assert_int_equal(size, sizeof expected);
  assert_memory_equal(bytes, expected, size);
  char hex[33];
  qn__hash128_hex(module->digest, hex);
  assert_string_equal(hex, "3f1b7a454d972186c0915b176e8f3edb");
  qn_module_release(module);
}

static void two_processes_agree(void** state) {
  (void)state;
  qn_module_t* module = must_parse(qn_all_constructs);
  int fds[2];
  assert_int_equal(pipe(fds), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    // Other addresses: something was allocated before.
    void* noise = must_parse(base_text);
    qn_module_t* mine = must_parse(qn_all_constructs);
    ssize_t written = write(fds[1], qn_module_digest(mine), 16);
    _exit(written == 16 && noise ? 0 : 1);
  }
  uint8_t digest[16];
  assert_int_equal(read(fds[0], digest, 16), 16);
  int code;
  assert_int_equal(waitpid(child, &code, 0), child);
  assert_int_equal(code, 0);
  assert_memory_equal(digest, qn_module_digest(module), 16);
  (void)close(fds[0]);
  (void)close(fds[1]);
  qn_module_release(module);
}

// ------------------------------------------------------------------------------------ bad bytes

static void expect_refused(const uint8_t* bytes, size_t size, const char* part) {
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_decode(bytes, size, NULL, &module);
  assert_null(module);
  qn_status_code_t code = qn_status_code(status);
  if (code != QN_STATUS_DATA_LOSS && code != QN_STATUS_INVALID_MODULE) {
    fail_msg("%s", qn_status_code_text(code));
  }
  if (part && !strstr(qn_status_message(status), part)) {
    fail_msg("expected \"%s\" in \"%s\"", part, qn_status_message(status));
  }
  qn_status_free(status);
}

static void every_cut_is_refused(void** state) {
  (void)state;
  qn_module_t* module = must_parse(qn_all_constructs);
  size_t size;
  const uint8_t* bytes = qn_module_bytes(module, &size);
  for (size_t cut = 0; cut < size; cut++) {
    // A copy of exactly this size, so that a sanitizer sees reads past the end.
    uint8_t* copy = qn__alloc(qn_allocator_default(), cut);
    memcpy(copy, bytes, cut);
    expect_refused(copy, cut, NULL);
    qn__free(qn_allocator_default(), copy, cut);
  }
  qn_module_release(module);
}

// A changed byte is refused, or makes another module that is canonical itself.
static void every_changed_byte_is_safe(void** state) {
  (void)state;
  qn_module_t* module = must_parse(base_text);
  size_t size;
  const uint8_t* bytes = qn_module_bytes(module, &size);
  uint8_t* copy = qn__alloc(qn_allocator_default(), size);
  for (size_t at = 0; at < size; at++) {
    for (int change = 1; change < 256; change++) {
      memcpy(copy, bytes, size);
      copy[at] = (uint8_t)(copy[at] ^ change);
      qn_module_t* other = NULL;
      qn_status_t status = qn_module_decode(copy, size, NULL, &other);
      if (qn_ok(status)) assert_false(qn_same_bytes(module, other));
      qn_module_release(other);
      qn_status_code_t code = qn_status_consume(status);
      assert_true(code == QN_STATUS_OK || code == QN_STATUS_DATA_LOSS ||
                  code == QN_STATUS_INVALID_MODULE);
    }
  }
  qn__free(qn_allocator_default(), copy, size);
  qn_module_release(module);
}

static void refusals_say_why(void** state) {
  (void)state;
  expect_refused((const uint8_t*)"", 0, "end too early");
  expect_refused((const uint8_t*)"QNIX\1\0\0\0\0", 9, "no module");
  expect_refused((const uint8_t*)"QNIR\3\0\0\0\0", 9, "version 3, this library reads 1 to 2");
  expect_refused((const uint8_t*)"QNIR\1\0\0\0\0x", 10, "go on after the end");
  expect_refused((const uint8_t*)"QNIR\1\0\0\0\xFF\x7F", 10, "16383 functions in 0 bytes");
  // A varint with more bytes than it needs.
  expect_refused((const uint8_t*)"QNIR\1\0\0\0\x80\0", 10, "malformed number");
  qn_module_t* module = must_decode("QNIR\1\0\0\0\0", 9);
  assert_int_equal(qn_module_function_count(module), 0);
  qn_module_release(module);
}

// A body whose let is an operator nested `depth` deep.
static void nested_bytes(uint32_t depth, qn__buffer_t* out) {
  qn__buffer_t body;
  qn__buffer_init(&body, qn_allocator_default());
  qn__buffer_bytes(&body, "\1f\0\0\0", 5);  // name, not fast, no symbols, no parameters
  qn__buffer_u8(&body, QN__STMT_LET);
  for (uint32_t i = 1; i < depth; i++) {
    qn__buffer_u8(&body, QN__EXPR_OP);
    qn__buffer_u8(&body, QN_OP_NEG);
  }
  qn__buffer_bytes(&body, "\1\5\2\0", 4);  // the integer 1 of i64, end of the block
  qn__buffer_bytes(out, "QNIR\1\0\0\0\1F", 10);
  qn__buffer_u32(out, (uint32_t)body.size);
  qn__buffer_bytes(out, body.data, body.size);
  qn__buffer_deinit(&body);
}

static void nesting_is_bounded(void** state) {
  (void)state;
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, qn_allocator_default());
  nested_bytes(QN__LARGEST_NESTING - 1, &bytes);  // the body is a level too
  qn_module_release(must_decode(bytes.data, bytes.size));
  qn__buffer_clear(&bytes);
  nested_bytes(QN__LARGEST_NESTING, &bytes);
  expect_refused(bytes.data, bytes.size, "they nest deeper than 256 levels");
  qn__buffer_clear(&bytes);
  nested_bytes(1000000, &bytes);
  expect_refused(bytes.data, bytes.size, "they nest deeper than 256 levels");
  qn__buffer_deinit(&bytes);
}

// ------------------------------------------------------------------------------------ memory

typedef struct bytes_of {
  const void* data;
  size_t size;
} bytes_of_t;

static bool decode_all(qn_allocator_t allocator, void* user) {
  const bytes_of_t* bytes = user;
  qn_parse_options_t options = {.struct_size = sizeof options, .allocator = allocator};
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_decode(bytes->data, bytes->size, &options, &module);
  bool is_good = qn_ok(status) == (module != NULL);
  qn_module_release(module);
  qn_status_code_t code = qn_status_consume(status);
  return is_good && (code == QN_STATUS_OK || code == QN_STATUS_OUT_OF_MEMORY);
}

static bool parse_all(qn_allocator_t allocator, void* user) {
  const bytes_of_t* text = user;
  qn_parse_options_t options = {.struct_size = sizeof options, .allocator = allocator};
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_parse(text->data, text->size, &options, &module);
  bool is_good = qn_ok(status) == (module != NULL);
  qn_module_release(module);
  qn_status_code_t code = qn_status_consume(status);
  return is_good && (code == QN_STATUS_OK || code == QN_STATUS_OUT_OF_MEMORY);
}

// Decoding, verifying, sealing, encoding; then the same from the text.
static void running_out_of_memory_is_clean(void** state) {
  (void)state;
  qn_module_t* module = must_parse(qn_all_constructs);
  bytes_of_t bytes;
  bytes.data = qn_module_bytes(module, &bytes.size);
  assert_true(qn_fault_walk_alloc(decode_all, &bytes) > 10);
  bytes = (bytes_of_t){qn_all_constructs, strlen(qn_all_constructs)};
  assert_true(qn_fault_walk_alloc(parse_all, &bytes) > 10);
  qn_module_release(module);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_come_back),
      cmocka_unit_test(layout_and_names_of_locals_do_not_count),
      cmocka_unit_test(every_change_of_meaning_changes_the_bytes),
      cmocka_unit_test(the_format_is_frozen),
      cmocka_unit_test(two_processes_agree),
      cmocka_unit_test(every_cut_is_refused),
      cmocka_unit_test(every_changed_byte_is_safe),
      cmocka_unit_test(refusals_say_why),
      cmocka_unit_test(nesting_is_bounded),
      cmocka_unit_test(running_out_of_memory_is_clean),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
