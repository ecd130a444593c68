// SPDX-License-Identifier: Apache-2.0
// bench/serve/trace.c: see trace.h.
#include "bench/serve/trace.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool fail_at(trace_t* trace, const char* path, size_t line, const char* what) {
  (void)snprintf(trace->error, sizeof trace->error, "%s:%zu: %s", path, line, what);
  return false;
}

static bool fail_file(trace_t* trace, const char* path) {
  (void)snprintf(trace->error, sizeof trace->error, "cannot read '%s': %s", path, strerror(errno));
  return false;
}

// Calls `read` with each line until it returns false.
static bool each_line(trace_t* trace, const char* path,
                      bool (*read)(trace_t* trace, const char* path, size_t number, char* line)) {
  FILE* file = fopen(path, "r");
  if (!file) return fail_file(trace, path);
  char* line = NULL;
  size_t capacity = 0;
  size_t number = 0;
  bool is_ok = true;
  while (is_ok && getline(&line, &capacity, file) >= 0) {
    line[strcspn(line, "\n")] = '\0';
    is_ok = line[0] == '\0' || read(trace, path, number + 1, line);
    number++;
  }
  if (is_ok && ferror(file)) is_ok = fail_file(trace, path);
  free(line);
  (void)fclose(file);
  return is_ok;
}

// Makes room for one more item in an array that doubles.
static bool grow(void** items, size_t count, size_t item_bytes) {
  if ((count & (count - 1)) != 0) return true;
  size_t capacity = count ? count * 2 : 1;
  void* grown = realloc(*items, capacity * item_bytes);
  if (grown) *items = grown;
  return grown != NULL;
}

// "word 2051".
static bool read_word(trace_t* trace, const char* path, size_t number, char* line) {
  char* space = strchr(line, ' ');
  char* end = space;
  unsigned long id = space ? strtoul(space + 1, &end, 10) : 0;
  if (!space || end == space + 1 || *end != '\0' || id > UINT32_MAX) {
    return fail_at(trace, path, number, "not a word and its id");
  }
  qn_str_t text = {line, (size_t)(space - line)};
  if (qn__str_equal(text, QN_STR("[CLS]"))) {
    trace->first_id = (uint32_t)id;
    return true;
  }
  if (qn__str_equal(text, QN_STR("[SEP]"))) {
    trace->last_id = (uint32_t)id;
    return true;
  }
  void* words = trace->words;
  text.data = qn__arena_cstr(&trace->arena, text);
  if (!text.data || !grow(&words, trace->word_count, sizeof *trace->words)) {
    return fail_at(trace, path, number, "no memory");
  }
  trace->words = words;
  trace->words[trace->word_count++] = (trace_word_t){text, (uint32_t)id};
  return true;
}

static const char* read_lengths(trace_t* trace, const json_t* lengths, trace_request_t* request) {
  size_t count = json_array_size(lengths);
  if (count == 0 || count > TRACE_MAX_TEXTS) return "'lengths' is not a list of 1 to 65536 numbers";
  request->text_count = (uint32_t)count;
  request->lengths = qn__arena_alloc_array(&trace->arena, count, sizeof *request->lengths);
  if (!request->lengths) return "no memory";
  request->tokens = 0;
  for (size_t i = 0; i < count; i++) {
    json_int_t length = json_integer_value(json_array_get(lengths, i));
    if (length <= TRACE_SPECIAL_TOKENS || length > TRACE_MAX_LENGTH) {
      return "a length is not a number of 3 to 65536";
    }
    request->lengths[i] = (uint32_t)length;
    request->tokens += length;
  }
  return NULL;
}

static const char* read_texts(trace_t* trace, const json_t* texts, trace_request_t* request) {
  size_t count = json_array_size(texts);
  if (count == 0 || count > TRACE_MAX_TEXTS) return "'texts' is not a list of 1 to 65536 texts";
  request->text_count = (uint32_t)count;
  request->texts = qn__arena_alloc_array(&trace->arena, count, sizeof *request->texts);
  if (!request->texts) return "no memory";
  for (size_t i = 0; i < count; i++) {
    const json_t* text = json_array_get(texts, i);
    if (!json_is_string(text)) return "a text is not a string";
    qn_str_t view = {json_string_value(text), json_string_length(text)};
    view.data = qn__arena_cstr(&trace->arena, view);
    if (!view.data) return "no memory";
    request->texts[i] = view;
  }
  return NULL;
}

static const char* read_request(trace_t* trace, const json_t* object, trace_request_t* request) {
  const json_t* at = json_object_get(object, "at_us");
  const json_t* lengths = json_object_get(object, "lengths");
  const json_t* texts = json_object_get(object, "texts");
  if (!json_is_number(at) || json_number_value(at) < 0 || json_number_value(at) > 1e12) {
    return "'at_us' is not a time";
  }
  if (!lengths == !texts) return "needs either 'lengths' or 'texts'";
  json_int_t client = json_integer_value(json_object_get(object, "client"));
  json_int_t seed = json_integer_value(json_object_get(object, "seed"));
  json_int_t tokens = json_integer_value(json_object_get(object, "tokens"));
  if (client < 0 || client > UINT32_MAX || seed < 0 || tokens < 0) return "a number is negative";
  *request = (trace_request_t){.at_ns = (int64_t)(json_number_value(at) * 1e3),
                               .tokens = tokens,
                               .seed = (uint64_t)seed,
                               .client = (uint32_t)client};
  if (trace->count > 0 && request->at_ns < trace->requests[trace->count - 1].at_ns) {
    return "times do not ascend";
  }
  return lengths ? read_lengths(trace, lengths, request) : read_texts(trace, texts, request);
}

static bool read_line(trace_t* trace, const char* path, size_t number, char* line) {
  json_error_t error;
  json_t* object = json_loads(line, JSON_REJECT_DUPLICATES, &error);
  if (!object) return fail_at(trace, path, number, error.text);
  const json_t* version = json_object_get(object, "trace");
  const char* wrong = NULL;
  void* requests = trace->requests;
  if (version) {
    if (json_integer_value(version) != 1) wrong = "a trace of another version";
  } else if (!grow(&requests, trace->count, sizeof *trace->requests)) {
    wrong = "no memory";
  } else {
    trace->requests = requests;
    trace_request_t* request = &trace->requests[trace->count];
    wrong = read_request(trace, object, request);
    if (!wrong) {
      request->first_text = trace->text_count;
      trace->text_count += request->text_count;
      trace->count++;
    }
  }
  json_decref(object);
  return !wrong || fail_at(trace, path, number, wrong);
}

bool trace_read(trace_t* trace, const char* words_path, const char* path, double speed) {
  *trace = (trace_t){.count = 0};
  qn__arena_init(&trace->arena, qn_allocator_default());
  if (!each_line(trace, words_path, read_word)) return false;
  if (trace->word_count == 0) return fail_at(trace, words_path, 1, "no words");
  if (!each_line(trace, path, read_line)) return false;
  if (trace->count == 0) return fail_at(trace, path, 1, "no requests");
  for (size_t i = 0; i < trace->count; i++) {
    trace->requests[i].at_ns = (int64_t)((double)trace->requests[i].at_ns / speed);
  }
  return true;
}

void trace_free(trace_t* trace) {
  free(trace->requests);
  free(trace->words);
  qn__arena_deinit(&trace->arena);
  trace->requests = NULL;
  trace->words = NULL;
}

// SplitMix64: the next of a sequence from any seed.
static uint64_t next_random(uint64_t* state) {
  uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

trace_words_t trace_words(const trace_t* trace, const trace_request_t* request, uint32_t text) {
  uint64_t state = request->seed;
  state = next_random(&state) + text;
  return (trace_words_t){.trace = trace,
                         .state = next_random(&state),
                         .left = request->lengths[text] - TRACE_SPECIAL_TOKENS};
}

const trace_word_t* trace_next_word(trace_words_t* words) {
  if (words->left == 0) return NULL;
  words->left--;
  uint64_t high = next_random(&words->state) >> 32;
  return &words->trace->words[high * words->trace->word_count >> 32];
}
