// SPDX-License-Identifier: Apache-2.0
// bench/serve/answers.c: see answers.h.
#include "bench/serve/answers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { BLOCK_BYTES = 8 << 20 };

// Bodies one after another, each with its size before it.
struct answers_block {
  answers_block_t* next;
  size_t used;
  size_t capacity;
  uint8_t bytes[];
};

typedef struct held {
  size_t index;
  size_t size;
  int64_t json_bytes;
} held_t;

void answers_init(answers_t* answers, const protocol_t* protocol, const trace_t* trace,
                  client_run_t* run, size_t hold_bytes, bool keeps_embeddings) {
  *answers = (answers_t){.protocol = protocol,
                         .trace = trace,
                         .run = run,
                         .keeps_embeddings = keeps_embeddings,
                         .left_bytes = hold_bytes};
}

void answers_deinit(answers_t* answers) {
  while (answers->first) {
    answers_block_t* block = answers->first;
    answers->first = block->next;
    free(block);
  }
  answers->last = NULL;
}

// The first embeddings tell the width; all others must have it.
static const char* keep(answers_t* answers, size_t index, const protocol_answer_t* answer) {
  client_run_t* run = answers->run;
  const trace_request_t* request = &answers->trace->requests[index];
  if (answer->count != request->text_count) return "another number of embeddings than of texts";
  if (run->text_width == 0) {
    if (answer->width > UINT32_MAX) return "the answer is too large";
    run->text_width = (uint32_t)answer->width;
    size_t total = answers->trace->text_count * answer->width;
    if (answers->keeps_embeddings) run->embeddings = malloc(total * sizeof(float));
    for (size_t i = 0; run->embeddings && i < total; i++) run->embeddings[i] = NAN;
  }
  if (answer->width != run->text_width) return "embeddings differ in width";
  size_t row_bytes = answer->width * sizeof(float);
  run->records[index].checksum = XXH3_64bits(answer->values, answer->count * row_bytes);
  if (run->embeddings) {
    memcpy(run->embeddings + request->first_text * answer->width, answer->values,
           answer->count * row_bytes);
  }
  return NULL;
}

static void check(answers_t* answers, size_t index, qn_span_t body, int64_t json_bytes) {
  protocol_answer_t answer;
  const char* wrong =
      protocol_read(answers->protocol, index, body.data, body.size, json_bytes, &answer);
  if (!wrong) wrong = keep(answers, index, &answer);
  protocol_answer_free(&answer);
  if (!wrong) return;
  answers->run->records[index].outcome = CLIENT_BODY;
  if (!answers->run->body_error) answers->run->body_error = wrong;
}

// Returns `size` bytes of the last block or of a new one; NULL: the limit or no memory.
static uint8_t* reserve(answers_t* answers, size_t size) {
  answers_block_t* block = answers->last;
  if (size > answers->left_bytes) return NULL;
  if (!block || block->capacity - block->used < size) {
    size_t capacity = size > BLOCK_BYTES ? size : BLOCK_BYTES;
    block = malloc(sizeof *block + capacity);
    if (!block) return NULL;
    *block = (answers_block_t){.capacity = capacity};
    if (answers->last) {
      answers->last->next = block;
    } else {
      answers->first = block;
    }
    answers->last = block;
  }
  uint8_t* bytes = block->bytes + block->used;
  block->used += size;
  answers->left_bytes -= size;
  return bytes;
}

void answers_add(answers_t* answers, size_t index, qn_span_t body, int64_t json_bytes) {
  held_t held = {index, body.size, json_bytes};
  uint8_t* bytes = reserve(answers, sizeof held + body.size);
  if (!bytes) {
    check(answers, index, body, json_bytes);
    return;
  }
  memcpy(bytes, &held, sizeof held);
  if (body.size > 0) memcpy(bytes + sizeof held, body.data, body.size);
}

void answers_check(answers_t* answers) {
  for (answers_block_t* block = answers->first; block; block = block->next) {
    for (size_t at = 0; at < block->used;) {
      held_t held;
      memcpy(&held, block->bytes + at, sizeof held);
      qn_span_t body = {block->bytes + at + sizeof held, held.size};
      check(answers, held.index, body, held.json_bytes);
      at += sizeof held + held.size;
    }
  }
}
