// SPDX-License-Identifier: Apache-2.0
// conformance/random/reduce.c: see reduce.h.
//
// Works on lines, of which the generator writes one for each statement, "HEAD {" or "}". The parser
// says what is a module; names and dtypes that no longer fit are refused there.
#include "conformance/random/reduce.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/random/generator.h"

enum { MAX_TRIES = 4000 };

typedef struct reducer {
  char** lines;  // each owned
  size_t count;
  bool (*fails)(void* self, const char* text);
  void* self;
  int tries;
} reducer_t;

static char* copy(const char* text, size_t size) {
  char* made = malloc(size + 1);
  if (!made) abort();
  memcpy(made, text, size);
  made[size] = '\0';
  return made;
}

static const char* skip_blanks(const char* line) {
  return line + strspn(line, " ");
}

static bool is_letter(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

// Returns where the line has the name as a whole word; NULL: nowhere.
static const char* find_word(const char* line, const char* name, size_t size) {
  for (const char* at = line; (at = strstr(at, name)) != NULL; at++) {
    bool is_begin = at == line || (!is_letter(at[-1]) && at[-1] != '.');
    if (is_begin && !is_letter(at[size])) return at;
  }
  return NULL;
}

// Returns the line after the statement or block that begins at line i; i itself: none begins there.
static size_t end_of_unit(const reducer_t* r, size_t i) {
  if (skip_blanks(r->lines[i])[0] == '}') return i;
  int depth = 0;
  for (size_t at = i; at < r->count; at++) {
    for (const char* c = r->lines[at]; *c; c++) depth += (*c == '{') - (*c == '}');
    if (depth <= 0) return at + 1;
  }
  return i;
}

static void free_lines(reducer_t* r) {
  for (size_t i = 0; i < r->count; i++) free(r->lines[i]);
  r->count = 0;
}

// Takes the lines of a text, which are at most as many as those before.
static void set_lines(reducer_t* r, const char* text) {
  free_lines(r);
  while (*text) {
    size_t size = strcspn(text, "\n");
    r->lines[r->count++] = copy(text, size);
    text += size + (text[size] == '\n');
  }
}

static char* join(const reducer_t* r, const bool* is_dropped) {
  gen_out_t out = {0};
  for (size_t i = 0; i < r->count; i++) {
    if (!is_dropped || !is_dropped[i]) gen_out_add(&out, "%s\n", r->lines[i]);
  }
  return out.data;
}

static bool still_fails(reducer_t* r, const bool* is_dropped) {
  if (r->tries++ >= MAX_TRIES) return false;
  char* text = join(r, is_dropped);
  bool fails = text && r->fails(r->self, text);
  free(text);
  return fails;
}

static void drop(reducer_t* r, const bool* is_dropped) {
  size_t kept = 0;
  for (size_t i = 0; i < r->count; i++) {
    if (is_dropped[i]) {
      free(r->lines[i]);
    } else {
      r->lines[kept++] = r->lines[i];
    }
  }
  r->count = kept;
}

// Returns whether the line declares memory or a view of it; then its name.
static bool is_declaration(const char* line, char out_name[32]) {
  return sscanf(line, " alloc %31[a-z0-9_]", out_name) == 1 ||
         sscanf(line, " view %31[a-z0-9_]", out_name) == 1;
}

static bool is_store_to(const char* line, const char* name, size_t size) {
  const char* begin = skip_blanks(line);
  return strncmp(begin, name, size) == 0 && begin[size] == '[';
}

// Returns whether memory that stays declared loses a store, or shared memory a barrier: then the
// rest could read what nothing has written.
static bool is_undefined(const reducer_t* r, const bool* is_dropped, size_t begin, size_t end) {
  for (size_t i = 0; i < r->count; i++) {
    char name[32];
    if (is_dropped[i] || !is_declaration(r->lines[i], name)) continue;
    for (size_t k = 0; k < r->count; k++) {
      if (is_dropped[k] && is_store_to(r->lines[k], name, strlen(name))) return true;
    }
  }
  if (end != begin + 1 || strcmp(skip_blanks(r->lines[begin]), "barrier;") != 0) return false;
  bool has_shared = false;
  for (size_t i = 0; i < r->count; i++) has_shared |= strstr(r->lines[i], " in shared;") != NULL;
  return has_shared;
}

// Drops what begins at line i, if the rest still fails.
static bool try_unit(reducer_t* r, size_t i, bool* is_dropped) {
  size_t end = end_of_unit(r, i);
  if (end == i) return false;
  memset(is_dropped, 0, r->count * sizeof *is_dropped);
  for (size_t k = i; k < end; k++) is_dropped[k] = true;
  if (is_undefined(r, is_dropped, i, end) || !still_fails(r, is_dropped)) return false;
  drop(r, is_dropped);
  return true;
}

// Drops the `else` at line i, if its block is empty.
static bool try_else(reducer_t* r, size_t i, bool* is_dropped) {
  bool is_empty = i + 1 < r->count && strcmp(skip_blanks(r->lines[i]), "} else {") == 0 &&
                  strcmp(skip_blanks(r->lines[i + 1]), "}") == 0;
  memset(is_dropped, 0, r->count * sizeof *is_dropped);
  is_dropped[i] = true;
  if (!is_empty || !still_fails(r, is_dropped)) return false;
  drop(r, is_dropped);
  return true;
}

// Drops the declaration at line i with all statements that name it.
static bool try_memory(reducer_t* r, size_t i, bool* is_dropped) {
  char name[32];
  if (!is_declaration(r->lines[i], name)) return false;
  memset(is_dropped, 0, r->count * sizeof *is_dropped);
  for (size_t k = i; k < r->count; k++) {
    if (is_dropped[k] || !find_word(r->lines[k], name, strlen(name))) continue;
    size_t end = end_of_unit(r, k);
    for (size_t at = k; at < end; at++) is_dropped[at] = true;
  }
  if (is_undefined(r, is_dropped, 0, 0) || !still_fails(r, is_dropped)) return false;
  drop(r, is_dropped);
  return true;
}

// Puts `literal` in place of `size` bytes at `at` of line i, if that is shorter and still fails.
static bool try_literal(reducer_t* r, size_t i, size_t at, size_t size, const char* literal) {
  if (size <= strlen(literal)) return false;
  char* line = r->lines[i];
  gen_out_t made = {0};
  gen_out_add(&made, "%.*s%s%s", (int)at, line, literal, line + at + size);
  r->lines[i] = made.data;
  if (still_fails(r, NULL)) {
    free(line);
    return true;
  }
  free(made.data);
  r->lines[i] = line;
  return false;
}

// Appends a line with `value` in place of the name.
static void add_replaced(gen_out_t* out, const char* line, const char* name, const char* value) {
  size_t size = strlen(name);
  for (const char* at; (at = find_word(line, name, size)) != NULL; line = at + size) {
    gen_out_add(out, "%.*s%s", (int)(at - line), line, value);
  }
  gen_out_add(out, "%s\n", line);
}

// Returns whether a loop's body stores to memory that is declared before it: one iteration does not
// store all of it.
static bool is_filled_by(const reducer_t* r, size_t begin, size_t end) {
  for (size_t i = 1; i < begin; i++) {
    char name[32];
    if (!is_declaration(r->lines[i], name)) continue;
    for (size_t k = begin; k < end; k++) {
      if (is_store_to(r->lines[k], name, strlen(name))) return true;
    }
  }
  return false;
}

// Drops the lines i and `last` (r->count: none), and puts `value` in place of `name` (NULL: none)
// between them, if the rest still fails.
static bool try_replaced(reducer_t* r, size_t i, size_t last, const char* name, const char* value) {
  gen_out_t text = {0};
  for (size_t k = 0; k < r->count; k++) {
    if (k == i || k == last) continue;
    if (name && k > i && k < last) {
      add_replaced(&text, r->lines[k], name, value);
    } else {
      gen_out_add(&text, "%s\n", r->lines[k]);
    }
  }
  bool fails = r->tries++ < MAX_TRIES && r->fails(r->self, text.data);
  if (fails) set_lines(r, text.data);
  free(text.data);
  return fails;
}

static bool is_loop(const char* line, char out_var[32], char out_begin[8]) {
  char kind[16];
  return sscanf(line, " %15[a-z.] %31[a-z0-9_] in %7[0-9]..", kind, out_var, out_begin) == 3;
}

// Returns whether line i begins an `if` without `else`, in a program without loops: with loops,
// several threads could then store to one element.
static bool is_lone_if(const reducer_t* r, size_t i) {
  char var[32], begin[8];
  if (strncmp(skip_blanks(r->lines[i]), "if ", 3) != 0) return false;
  for (size_t k = 1; k < r->count; k++) {
    if (is_loop(r->lines[k], var, begin) || strstr(r->lines[k], "else")) return false;
  }
  return true;
}

// Puts the first iteration in place of the loop that begins at line i, or its body in place of an
// `if`.
static bool try_body(reducer_t* r, size_t i) {
  char var[32], begin[8];
  size_t end = end_of_unit(r, i);
  bool has_var = is_loop(r->lines[i], var, begin);
  if (!has_var && !is_lone_if(r, i)) return false;
  if (end < i + 2 || is_filled_by(r, i + 1, end - 1)) return false;
  return try_replaced(r, i, end - 1, has_var ? var : NULL, begin);
}

// Puts the value of the let at line i, if it is one word, in place of its name.
static bool try_let(reducer_t* r, size_t i) {
  char name[32], value[32];
  if (sscanf(r->lines[i], " let %31[a-z0-9_] = %31[^ ;];", name, value) != 2) return false;
  if (skip_blanks(r->lines[i])[strlen(name) + strlen(value) + 7] != ';') return false;
  return try_replaced(r, i, r->count, name, value);
}

static size_t size_of_brackets(const char* text) {
  int depth = 0;
  for (size_t i = 0; text[i]; i++) {
    depth += (text[i] == '(' || text[i] == '[') - (text[i] == ')' || text[i] == ']');
    if (depth == 0) return i + 1;
  }
  return 0;
}

static const char* const plain[] = {"1", "true"};

// Puts a literal in place of a part in brackets, with the name before it, from `begin` on.
static bool try_parts(reducer_t* r, size_t i, size_t begin) {
  const char* line = r->lines[i];
  for (size_t at = begin; line[at]; at++) {
    if (line[at] != '(' && line[at] != '[') continue;
    size_t first = at;
    while (first > begin && is_letter(line[first - 1])) first--;
    size_t whole = at - first + size_of_brackets(line + at);
    for (size_t k = 0; k < GEN_COUNT_OF(plain); k++) {
      if (try_literal(r, i, first, whole, plain[k])) return true;
    }
  }
  return false;
}

// Puts literals in place of the value of a let or a store, of parts of it, or of an atomic.
static bool try_values(reducer_t* r, size_t i) {
  const char* line = r->lines[i];
  const char* equals = strstr(line, " = ");
  size_t size = strlen(line);
  if (size == 0 || line[size - 1] != ';') return false;
  if (strncmp(skip_blanks(line), "atomic_", 7) == 0) {
    return try_parts(r, i, strcspn(line, "(") + 1);
  }
  if (!equals) return false;
  bool is_let = strncmp(skip_blanks(line), "let ", 4) == 0;
  size_t begin = (size_t)(equals - line) + 3;
  for (size_t k = 0; k < GEN_COUNT_OF(plain) && !is_let; k++) {
    if (try_literal(r, i, begin, size - 1 - begin, plain[k])) return true;
  }
  for (int dtype = QN_DTYPE_BOOL; dtype < QN_DTYPE_COUNT && is_let; dtype++) {
    char typed[32];
    (void)snprintf(typed, sizeof typed, dtype == QN_DTYPE_BOOL ? "true" : "%s(1)",
                   qn_dtype_text((qn_dtype_t)dtype));
    if (try_literal(r, i, begin, size - 1 - begin, typed)) return true;
  }
  return try_parts(r, i, begin);
}

char* gen_reduce(const char* text, bool (*fails)(void* self, const char* text), void* self) {
  reducer_t r = {.fails = fails, .self = self};
  size_t capacity = 1;
  for (const char* c = text; *c; c++) capacity += *c == '\n';
  r.lines = calloc(capacity, sizeof *r.lines);
  bool* is_dropped = calloc(capacity, sizeof *is_dropped);
  if (!r.lines || !is_dropped) abort();
  set_lines(&r, text);
  bool is_smaller = true;
  while (is_smaller && r.tries < MAX_TRIES) {
    is_smaller = false;
    // Line 0 is the head of the function. Large blocks come before what is in them.
    for (size_t i = 1; i < r.count; i++) {
      while (i < r.count && (try_unit(&r, i, is_dropped) || try_memory(&r, i, is_dropped) ||
                             try_else(&r, i, is_dropped))) {
        is_smaller = true;
      }
    }
    for (size_t i = 1; i < r.count; i++) {
      while (i < r.count && (try_values(&r, i) || try_body(&r, i) || try_let(&r, i))) {
        is_smaller = true;
      }
    }
  }
  char* reduced = join(&r, NULL);
  free_lines(&r);
  free(r.lines);
  free(is_dropped);
  return reduced;
}
