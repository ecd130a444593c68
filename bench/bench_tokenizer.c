// SPDX-License-Identifier: Apache-2.0
// How fast is the server's tokenizer?
//
// It encodes sentences of 128 tokens of several kinds, and one long text, with a model's own files:
// build/embed, which examples/embed/fetch_weights fills, or the folder in QUERN_BENCH_MODEL. The
// floor of a kind is memcpy of its bytes. tools/dev/prove-tokenizer --speed prints the times of the
// Python package `tokenizers` for two of the texts.
// links: serve
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness.h"
#include "serve/tokenizer.h"

enum { SAMPLES = 101, SENTENCE_TOKENS = 128, LARGE_BYTES = 1 << 20 };

typedef struct subject {
  serve_tokenizer_t* tokenizer;
  serve_scratch_t* scratch;
  serve_encode_options_t options;
  serve_encoding_t encoding;
  const char* text;
  size_t size;
  char* copy;
} subject_t;

static void encode(void* self, int64_t iterations) {
  subject_t* subject = self;
  for (int64_t i = 0; i < iterations; i++) {
    bench_must(serve_encode(subject->tokenizer, subject->scratch, subject->text, subject->size,
                            &subject->options, &subject->encoding));
  }
}

static void copy(void* self, int64_t iterations) {
  subject_t* subject = self;
  for (int64_t i = 0; i < iterations; i++) {
    memcpy(subject->copy, subject->text, subject->size);
    bench_keep(subject->copy);
  }
}

static void open_model(void* self, int64_t iterations) {
  for (int64_t i = 0; i < iterations; i++) {
    serve_tokenizer_t* tokenizer;
    bench_must(serve_tokenizer_open(self, NULL, &tokenizer));
    serve_tokenizer_close(tokenizer);
  }
}

// Repeats a text until it has `tokens` tokens, or `size` bytes. Owned: free.
static char* repeat(subject_t* subject, const char* text, size_t tokens, size_t size) {
  const size_t unit = strlen(text);
  char* repeated = malloc(LARGE_BYTES + unit);
  if (!repeated) bench_give_up("no memory");
  subject->text = repeated;
  subject->size = 0;
  for (size_t count = 0; count < tokens && subject->size < size;) {
    memcpy(repeated + subject->size, text, unit);
    subject->size += unit;
    if (size == LARGE_BYTES) continue;
    bench_must(
        serve_count(subject->tokenizer, subject->scratch, repeated, subject->size, NULL, &count));
  }
  return repeated;
}

static void measure(bench_report_t* report, subject_t* subject, const char* name) {
  void (*const bodies[])(void*, int64_t) = {encode, copy};
  void* const selves[] = {subject, subject};
  double ns[2];
  char row[128];
  subject->copy = malloc(subject->size);
  if (!subject->copy) bench_give_up("no memory");
  bench_compare_ns(2, bodies, selves, 0, SAMPLES, ns);
  snprintf(row, sizeof row, "%s, %zu bytes, %zu tokens", name, subject->size,
           subject->encoding.count);
  bench_row(report, row, ns[0] / 1e3, "us", ns[1] / 1e3, 0);
  snprintf(row, sizeof row, "%s", name);
  bench_row(report, row, (double)subject->size * 1e3 / ns[0], "MB/s", 0, 0);
  free(subject->copy);
}

static const struct {
  const char* name;
  const char* text;
} kinds[] = {
    {"English",
     "The quick brown fox jumps over the lazy dog, while embeddings of sentences are computed on "
     "a server that has 2 cores. "},
    {"French", "Près de l'été, où les élèves rêvent déjà à la fenêtre, la leçon s'achève. "},
    {"Russian", "Съешь же ещё этих мягких французских булок, да выпей чаю. "},
    {"Chinese", "我能吞下玻璃而不伤身体。天地玄黄，宇宙洪荒。"},
    {"Korean", "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. "},
    {"code", "for (int i = 0; i < count; i++) total += values[i] * weights[i]; // sum "},
};

int main(int argc, char** argv) {
  bench_report_t report = bench_begin(
      "tokenizer", "the speed of the server's tokenizer; floor: memcpy of the text", argc, argv);
  const char* folder = getenv("QUERN_BENCH_MODEL");
  if (!folder) folder = QN_SOURCE_DIR "/build/embed";
  const qn_allocator_t allocator = qn_allocator_default();
  subject_t subject = {.encoding = {.allocator = &allocator}};
  qn_status_t status = serve_tokenizer_open(folder, NULL, &subject.tokenizer);
  if (qn_status_code(status) == QN_STATUS_NOT_FOUND) {
    fprintf(stderr, "%s; examples/embed/fetch_weights gets a model\n", qn_status_message(status));
    qn_status_free(status);
    return bench_end(&report);
  }
  bench_must(status);
  bench_must(serve_scratch_create(subject.tokenizer, &subject.scratch));
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    char* text = repeat(&subject, kinds[i].text, SENTENCE_TOKENS, LARGE_BYTES - 1);
    subject.options = (serve_encode_options_t){.max_tokens = SENTENCE_TOKENS};
    measure(&report, &subject, kinds[i].name);
    free(text);
  }
  char* text = repeat(&subject, kinds[0].text, SIZE_MAX, LARGE_BYTES);
  subject.options = (serve_encode_options_t){.max_tokens = 0};
  measure(&report, &subject, "a megabyte of English");
  subject.options.offsets = SERVE_OFFSETS_CHARS;
  measure(&report, &subject, "the same with offsets");
  subject.options.offsets = SERVE_OFFSETS_NONE;
  subject.options.max_tokens = 256;
  measure(&report, &subject, "the same, cut to 256 tokens");
  free(text);
  char path[4096];
  snprintf(path, sizeof path, "%s", folder);
  bench_row(&report, "opening the model", bench_run_ns(open_model, path, 1, 11) / 1e6, "ms", 0, 0);
  serve_encoding_free(&subject.encoding);
  serve_scratch_free(subject.scratch);
  serve_tokenizer_close(subject.tokenizer);
  return bench_end(&report);
}
