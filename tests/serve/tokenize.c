// SPDX-License-Identifier: Apache-2.0
// tests/serve/tokenize.c: the tokenizer as a command, for tools/dev/prove-tokenizer.
//
//   serve_tokenize FOLDER [--bytes] [--omit-special] [--max N] [--left]   texts to tokens
//   serve_tokenize FOLDER --decode [--skip-special]                       ids to texts
//   serve_tokenize --words CLEAN CHINESE STRIP LOWER [--bytes]            texts to words
//
// Standard input is frames, a size of four bytes and the data; each gives a frame of output. Tokens
// are an id, a start and a stop each; words a start, a stop, a size, and their text. All integers
// have four bytes, in the order of the machine.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/memory.h"
#include "serve/words.h"

typedef struct frame {
  qn_allocator_t allocator;
  serve_bytes_t in;
  serve_bytes_t out;
} frame_t;

static void give_up(const char* what) {
  fprintf(stderr, "serve_tokenize: %s\n", what);
  exit(2);
}

static void must(qn_status_t status) {
  if (!qn_ok(status)) give_up(qn_status_message(status));
}

static void add(frame_t* frame, const void* data, size_t size) {
  if (!serve_bytes_append(&frame->allocator, &frame->out, data, size)) give_up("no memory");
}

static void add_number(frame_t* frame, uint32_t number) {
  add(frame, &number, sizeof number);
}

static bool read_frame(frame_t* frame) {
  uint32_t size;
  frame->out.size = 0;
  if (fread(&size, sizeof size, 1, stdin) != 1) return false;
  void* data = frame->in.data;
  if (!serve_grow(&frame->allocator, &data, &frame->in.capacity, size, 1)) give_up("no memory");
  frame->in.data = data;
  frame->in.size = size;
  if (size > 0 && fread(data, 1, size, stdin) != size) give_up("half a frame");
  return true;
}

static void write_frame(const frame_t* frame) {
  const uint32_t size = (uint32_t)frame->out.size;
  const bool is_ok = fwrite(&size, sizeof size, 1, stdout) == 1 &&
                     (size == 0 || fwrite(frame->out.data, 1, size, stdout) == size) &&
                     fflush(stdout) == 0;
  if (!is_ok) give_up("cannot write");
}

static bool on_word(void* self, const serve_word_t* word) {
  frame_t* frame = self;
  add_number(frame, word->span.start);
  add_number(frame, word->span.stop);
  add_number(frame, word->size);
  add(frame, word->text, word->size);
  return true;
}

static void run_words(frame_t* frame, char* const* on, bool counts_chars) {
  serve_normalizer_t normalizer = {.clean_text = on[0][0] == '1',
                                   .handle_chinese_chars = on[1][0] == '1',
                                   .strip_accents = on[2][0] == '1',
                                   .lowercase = on[3][0] == '1'};
  serve_words_t words;
  serve_normalizer_init(&normalizer);
  serve_words_init(&words, &frame->allocator, &normalizer, 1 << 20, on_word, frame);
  while (read_frame(frame)) {
    serve_words_begin(&words, counts_chars);
    serve_words_scan(&words, (const uint8_t*)frame->in.data, frame->in.size);
    write_frame(frame);
  }
  serve_words_deinit(&words);
}

static void run_encode(frame_t* frame, const serve_tokenizer_t* tokenizer, serve_scratch_t* scratch,
                       const serve_encode_options_t* options) {
  serve_encoding_t encoding = {.allocator = &frame->allocator};
  while (read_frame(frame)) {
    must(serve_encode(tokenizer, scratch, frame->in.data, frame->in.size, options, &encoding));
    for (size_t i = 0; i < encoding.count; i++) {
      add_number(frame, (uint32_t)encoding.ids[i]);
      add(frame, &encoding.spans[i], sizeof encoding.spans[i]);
    }
    write_frame(frame);
  }
  serve_encoding_free(&encoding);
}

static qn_status_t append(void* self, const void* data, size_t size) {
  add(self, data, size);
  return QN_OK;
}

static void run_decode(frame_t* frame, const serve_tokenizer_t* tokenizer, serve_scratch_t* scratch,
                       bool skips_special) {
  const qn_sink_t sink = {frame, append};
  while (read_frame(frame)) {
    const int32_t* ids = (const int32_t*)(const void*)frame->in.data;
    must(serve_decode(tokenizer, scratch, ids, frame->in.size / sizeof *ids, skips_special, &sink));
    write_frame(frame);
  }
}

int main(int argc, char** argv) {
  frame_t frame = {.allocator = qn_allocator_default()};
  serve_encode_options_t options = {.offsets = SERVE_OFFSETS_CHARS};
  bool decodes = false;
  bool skips_special = false;
  if (argc < 2) give_up("which folder?");
  for (int i = 2; i < argc; i++) {
    if (strcmp(argv[i], "--bytes") == 0) options.offsets = SERVE_OFFSETS_BYTES;
    if (strcmp(argv[i], "--omit-special") == 0) options.omits_special = true;
    if (strcmp(argv[i], "--left") == 0) options.truncation = SERVE_TRUNCATE_LEFT;
    if (strcmp(argv[i], "--decode") == 0) decodes = true;
    if (strcmp(argv[i], "--skip-special") == 0) skips_special = true;
    if (strcmp(argv[i], "--max") == 0 && i + 1 < argc)
      options.max_tokens = (uint32_t)atoi(argv[++i]);
  }
  if (strcmp(argv[1], "--words") == 0) {
    if (argc < 6) give_up("--words takes four options of the normaliser");
    run_words(&frame, argv + 2, options.offsets == SERVE_OFFSETS_CHARS);
  } else {
    serve_tokenizer_t* tokenizer;
    serve_scratch_t* scratch;
    must(serve_tokenizer_open(argv[1], NULL, &tokenizer));
    must(serve_scratch_create(tokenizer, &scratch));
    if (decodes) {
      run_decode(&frame, tokenizer, scratch, skips_special);
    } else {
      run_encode(&frame, tokenizer, scratch, &options);
    }
    serve_scratch_free(scratch);
    serve_tokenizer_close(tokenizer);
  }
  serve_bytes_free(&frame.allocator, &frame.in);
  serve_bytes_free(&frame.allocator, &frame.out);
  return 0;
}
