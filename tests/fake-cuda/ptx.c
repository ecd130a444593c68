// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// tests/fake-cuda/ptx.c: see ptx.h. An instruction has one line, as jit/gpu/cuda_tensor.c writes
// it.
#include "tests/fake-cuda/ptx.h"

#include <ctype.h>
#include <string.h>

typedef struct text {
  const char* at;
  const char* end;
} text_t;

enum { MAX_EXPRS = 136 };  // of wgmma: 128 sums, descriptors, transpositions

// Finds the expressions of `"constraint"(expression)`, up to the end of the statement.
static size_t find_exprs(text_t text, text_t* exprs) {
  size_t count = 0;
  while (text.at < text.end && count < MAX_EXPRS) {
    const char* quote = memchr(text.at, '"', (size_t)(text.end - text.at));
    if (!quote) break;
    const char* close = memchr(quote + 1, '"', (size_t)(text.end - quote - 1));
    if (!close || close + 1 >= text.end) break;
    text.at = close + 1;
    if (*text.at != '(') continue;  // a clobber
    const char* begin = ++text.at;
    for (int depth = 1; text.at < text.end; text.at++) {
      depth += (*text.at == '(') - (*text.at == ')');
      if (depth == 0) break;
    }
    exprs[count++] = (text_t){begin, text.at};
  }
  return count;
}

// Writes one operand after another: "%3" by its expression, a number as it is.
static bool write_operands(FILE* out, text_t operands, const text_t* exprs, size_t count) {
  const char* comma = "";
  while (operands.at < operands.end) {
    bool is_expr = *operands.at == '%';
    if (!is_expr && !isdigit((unsigned char)*operands.at)) {
      if (!strchr(" ,{}[]", *operands.at)) return false;
      operands.at++;
      continue;
    }
    operands.at += is_expr;
    const char* begin = operands.at;
    size_t number = 0;
    while (operands.at < operands.end && isdigit((unsigned char)*operands.at)) {
      number = number * 10 + (size_t)(*operands.at++ - '0');
    }
    text_t expr = is_expr && number < count ? exprs[number] : (text_t){begin, operands.at};
    if (is_expr && number >= count) return false;
    (void)fprintf(out, "%s%.*s", comma, (int)(expr.end - expr.at), expr.at);
    comma = ", ";
  }
  return true;
}

bool fake_ptx_write(FILE* out, const char* line, size_t size) {
  static const char words[] = "asm volatile(\"";
  const char* at = memmem(line, size, words, sizeof words - 1);
  if (!at) return false;
  text_t opcode = {at + sizeof words - 1, line + size};
  text_t rest = opcode;
  text_t exprs[MAX_EXPRS];
  const char* quote = memchr(opcode.at, '"', (size_t)(opcode.end - opcode.at));
  const char* semicolon = quote ? memchr(opcode.at, ';', (size_t)(quote - opcode.at)) : NULL;
  if (!semicolon || semicolon + 1 != quote) return false;  // not one instruction
  opcode.end = opcode.at;
  while (opcode.end < semicolon && *opcode.end != ' ') opcode.end++;
  rest.at = quote + 1;
  size_t count = find_exprs(rest, exprs);
  (void)fprintf(out, "fake_ptx_");
  for (; opcode.at < opcode.end; opcode.at++) {
    (void)fputc(isalnum((unsigned char)*opcode.at) ? *opcode.at : '_', out);
  }
  (void)fputc('(', out);
  bool is_known = write_operands(out, (text_t){opcode.end, semicolon}, exprs, count);
  (void)fprintf(out, is_known ? ");\n" : ") fake_ptx_operands_unknown;\n");
  return true;
}
