// SPDX-License-Identifier: Apache-2.0
// tests/serve/support_folder.c: writes the files as other programs would.
#include "tests/serve/support_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/batch.h"
#include "tests/support/must.h"
#include "tests/support/tempdir.h"

enum { PATH_BYTES = QN_TEST_PATH_SIZE + 128, HEADER_BYTES = 1 << 16, NAME_BYTES = 160 };

const bert_config_t folder_config = {.layers = 2,
                                     .width = 32,
                                     .heads = 2,
                                     .inner_width = 48,
                                     .vocabulary = 16,
                                     .positions = 40,
                                     .token_types = 2,
                                     .norm_epsilon = 1e-12,
                                     .max_tokens = 24};

void folder_write_file(const char* folder, const char* name, const char* text) {
  char path[PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s/%s", folder, name);
  char* slash = strrchr(path, '/');
  *slash = '\0';
  (void)mkdir(path, 0700);
  *slash = '/';
  assert_true(qn_test_write_file(path, text, strlen(text)));
}

void folder_remove_file(const char* folder, const char* name) {
  char path[PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s/%s", folder, name);
  assert_int_equal(unlink(path), 0);
}

static void write_settings(const char* folder, const bert_config_t* config) {
  static const char* const activations[] = {"gelu", "gelu_new", "relu"};
  char text[1024];
  (void)snprintf(
      text, sizeof text,
      "{\"model_type\": \"bert\", \"num_hidden_layers\": %lld, \"hidden_size\": %lld, "
      "\"num_attention_heads\": %lld, \"intermediate_size\": %lld, \"vocab_size\": %lld, "
      "\"max_position_embeddings\": %lld, \"type_vocab_size\": %lld, "
      "\"layer_norm_eps\": %g, \"hidden_act\": \"%s\"}",
      (long long)config->layers, (long long)config->width, (long long)config->heads,
      (long long)config->inner_width, (long long)config->vocabulary, (long long)config->positions,
      (long long)config->token_types, config->norm_epsilon, activations[config->activation]);
  folder_write_file(folder, "config.json", text);
  folder_write_file(
      folder, "modules.json",
      "[{\"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"}, "
      "{\"path\": \"1_Pooling\", \"type\": \"sentence_transformers.models.Pooling\"}, "
      "{\"path\": \"2\", \"type\": \"sentence_transformers.models.Normalize\"}]");
  const bool is_cls = config->pooling == BERT_POOLING_CLS;
  (void)snprintf(text, sizeof text,
                 "{\"word_embedding_dimension\": %lld, \"pooling_mode_cls_token\": %s, "
                 "\"pooling_mode_mean_tokens\": %s}",
                 (long long)config->width, is_cls ? "true" : "false", is_cls ? "false" : "true");
  folder_write_file(folder, "1_Pooling/config.json", text);
  (void)snprintf(text, sizeof text, "{\"max_seq_length\": %lld}", (long long)config->max_tokens);
  folder_write_file(folder, "sentence_bert_config.json", text);
  folder_write_file(folder, "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\n##d\n");
}

// ------------------------------------------------------------------------------------ weights

// Cuts an f32 to its upper half, towards zero.
static uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

// The same for f16. Numbers of magnitude 2^-14 to 2 are enough here; smaller ones become zero.
static uint16_t to_f16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const uint32_t exponent = bits >> 23 & 255u;
  const uint32_t sign = bits >> 16 & 0x8000u;
  if (exponent < 113) return (uint16_t)sign;
  return (uint16_t)(sign | (exponent - 112) << 10 | (bits >> 13 & 1023u));
}

static void rename_norm(char name[NAME_BYTES]) {
  char* end = strstr(name, "LayerNorm.");
  if (!end) return;
  end += strlen("LayerNorm.");
  (void)snprintf(end, (size_t)(name + NAME_BYTES - end), "%s",
                 strcmp(end, "weight") == 0 ? "gamma" : "beta");
}

typedef struct writer {
  char* header;
  size_t header_size;
  char* data;
  size_t data_size;
} writer_t;

static void append_tensor(writer_t* writer, const bert_tensor_t* tensor, const char* own_name,
                          const folder_changes_t* changes) {
  static const char* const dtypes[] = {"F32", "F16", "BF16", "I32"};
  char name[NAME_BYTES];
  (void)snprintf(name, sizeof name, "%s%s", changes->prefix ? changes->prefix : "", own_name);
  if (changes->has_old_names) rename_norm(name);
  const size_t count = (size_t)tensor->shape[0] * (tensor->rank > 1 ? (size_t)tensor->shape[1] : 1);
  const bool is_wide = changes->dtype == FOLDER_F32 || changes->dtype == FOLDER_I32;
  const size_t begin = writer->data_size;
  for (size_t i = 0; i < count; ++i) {
    const float value = (*tensor->data)[i];
    const uint16_t half = changes->dtype == FOLDER_F16 ? to_f16(value) : to_bf16(value);
    memcpy(writer->data + writer->data_size, is_wide ? (const void*)&value : (const void*)&half,
           is_wide ? 4 : 2);
    writer->data_size += is_wide ? 4 : 2;
  }
  const bool is_turned = changes->turned && strcmp(changes->turned, own_name) == 0;
  char shape[64];
  if (tensor->rank == 1) {
    (void)snprintf(shape, sizeof shape, "[%lld]", (long long)tensor->shape[0]);
  } else {
    (void)snprintf(shape, sizeof shape, "[%lld, %lld]", (long long)tensor->shape[is_turned],
                   (long long)tensor->shape[!is_turned]);
  }
  writer->header_size +=
      (size_t)snprintf(writer->header + writer->header_size, HEADER_BYTES - writer->header_size,
                       ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", name,
                       dtypes[changes->dtype], shape, begin, writer->data_size);
  assert_true(writer->header_size < HEADER_BYTES);
}

static void write_weights(const char* folder, bert_weights_t* weights,
                          const folder_changes_t* changes) {
  writer_t writer = {.header = malloc(HEADER_BYTES + 8), .data = malloc(1 << 20)};
  assert_true(writer.header && writer.data);
  writer.header_size =
      (size_t)snprintf(writer.header, HEADER_BYTES, "{\"__metadata__\":{\"format\":\"pt\"}");
  char name[96];
  bert_tensor_t tensor;
  for (size_t i = 0; bert_weights_tensor(weights, i, name, &tensor); ++i) {
    if (changes->left_out && strcmp(changes->left_out, name) == 0) continue;
    append_tensor(&writer, &tensor, name, changes);
  }
  writer.header[writer.header_size++] = '}';
  while (writer.header_size % 8 != (changes->is_unaligned ? 1 : 0)) {
    writer.header[writer.header_size++] = ' ';
  }
  const size_t size = 8 + writer.header_size + writer.data_size - changes->cut_bytes;
  char* file = malloc(8 + writer.header_size + writer.data_size);
  assert_non_null(file);
  for (int i = 0; i < 8; ++i) file[i] = (char)(writer.header_size >> (8 * i) & 255u);
  memcpy(file + 8, writer.header, writer.header_size);
  memcpy(file + 8 + writer.header_size, writer.data, writer.data_size);
  char path[PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
  assert_true(qn_test_write_file(path, file, size));
  free(file);
  free(writer.header);
  free(writer.data);
}

void folder_write(const char* folder, const bert_config_t* config, uint64_t seed,
                  const folder_changes_t* changes) {
  static const folder_changes_t none = {.dtype = FOLDER_F32};
  bert_weights_t weights;
  must(bert_weights_seed(config, seed, &weights));
  write_settings(folder, config);
  write_weights(folder, &weights, changes ? changes : &none);
  bert_weights_free(&weights);
}

serve_batch_t* folder_batch(const bert_config_t* config, const size_t* lengths, size_t count,
                            uint64_t seed) {
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) total += lengths[i];
  serve_batch_t* batch = NULL;
  must(serve_batch_create(total, count, (size_t)config->width, &batch));
  for (size_t i = 0; i < count; ++i) {
    for (size_t k = 0; k < lengths[i]; ++k, ++batch->token_count) {
      seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      batch->ids[batch->token_count] = (int64_t)((seed >> 33) % (uint64_t)config->vocabulary);
      batch->positions[batch->token_count] = (int64_t)k;
    }
    batch->offsets[++batch->sequence_count] = (int64_t)batch->token_count;
    if (lengths[i] > batch->longest) batch->longest = lengths[i];
  }
  batch->has_pooled = true;
  return batch;
}
