// SPDX-License-Identifier: Apache-2.0
// decode.c: token ids to text, as the decoders of `tokenizers`.
#include <string.h>

#include "serve/tokenizer_parts.h"

// The clean-up of WordPiece, in this order, within one token and the space before it.
static const struct {
  const char* from;
  const char* to;
} replacements[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                    {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                    {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

// Replaces `from` by the shorter `to` wherever it is, from left to right.
static void replace(serve_bytes_t* text, const char* from, const char* to) {
  const size_t from_size = strlen(from);
  const size_t to_size = strlen(to);
  size_t written = 0;
  for (size_t at = 0; at < text->size;) {
    if (text->size - at >= from_size && memcmp(text->data + at, from, from_size) == 0) {
      memcpy(text->data + written, to, to_size);
      written += to_size;
      at += from_size;
    } else {
      text->data[written++] = text->data[at++];
    }
  }
  text->size = written;
}

static bool starts_with(const char* text, size_t size, const serve_bytes_t* prefix) {
  return size >= prefix->size &&
         (prefix->size == 0 || memcmp(text, prefix->data, prefix->size) == 0);
}

// Returns whether a token is left out: its text is that of a special token.
static bool is_special(const serve_tokenizer_t* tokenizer, const char* text, size_t size) {
  const serve_added_token_t* token = serve_added_tokens_find(&tokenizer->added, text, size);
  return token && token->special;
}

static bool decode_token(const serve_tokenizer_t* tokenizer, const char* text, size_t size,
                         bool is_first, serve_bytes_t* out) {
  const qn_allocator_t* allocator = &tokenizer->allocator;
  const serve_bytes_t* prefix = &tokenizer->decoder_prefix;
  out->size = 0;
  if (!is_first) {
    if (tokenizer->decodes_wordpiece && starts_with(text, size, prefix)) {
      text += prefix->size;
      size -= prefix->size;
    } else if (!serve_bytes_append(allocator, out, " ", 1)) {
      return false;
    }
  }
  if (!serve_bytes_append(allocator, out, text, size)) return false;
  if (tokenizer->cleans_up) {
    for (size_t i = 0; i < sizeof replacements / sizeof replacements[0]; i++) {
      replace(out, replacements[i].from, replacements[i].to);
    }
  }
  return true;
}

qn_status_t serve_decode(const serve_tokenizer_t* tokenizer, serve_scratch_t* scratch,
                         const int32_t* ids, size_t count, bool skips_special,
                         const qn_sink_t* sink) {
  bool is_first = true;
  for (size_t i = 0; i < count; i++) {
    size_t size;
    const char* text = serve_token_text(tokenizer, ids[i], &size);
    if (text == NULL || (skips_special && is_special(tokenizer, text, size))) continue;
    if (!decode_token(tokenizer, text, size, is_first, &scratch->text)) {
      return serve_no_memory("decoded text");
    }
    is_first = false;
    qn_status_t status = sink->write(sink->self, scratch->text.data, scratch->text.size);
    if (!qn_ok(status)) return status;
  }
  return QN_OK;
}
