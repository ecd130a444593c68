// SPDX-License-Identifier: Apache-2.0
// tests/serve/test_bert.c: the encoder of made-up models against plain C, and folders that are
// wrong.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/bert/encoder.h"
#include "serve/bert/reference.h"
#include "tests/serve/support_folder.h"
#include "tests/support/must.h"
#include "tests/support/tempdir.h"

static char folder[QN_TEST_PATH_SIZE];
static qn_engine_t* engine;

static int set_up(void** state) {
  (void)state;
  const qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_dir = "", .generator_dir = QN_BINARY_DIR "/lib"};
  must(qn_engine_create(&options, &engine));
  assert_true(qn_test_tempdir_make(folder));
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  qn_engine_destroy(engine);
  qn_test_tempdir_remove(folder);
  return 0;
}

static bert_model_options_t options_of(const char* target, size_t max_tokens) {
  return (bert_model_options_t){
      .engine = engine, .target = target, .max_tokens = max_tokens, .max_sequences = 8};
}

// ------------------------------------------------------------------------------------ results

// Compares the encoder of the folder with plain C on the same weights.
static void check_results(const char* target, const bert_config_t* config) {
  static const size_t lengths[] = {1, 5, 24, 2, 11};
  enum { COUNT = sizeof lengths / sizeof lengths[0] };
  const bert_model_options_t options = options_of(target, 64);
  serve_encoder_t encoder;
  bert_origins_t origins;
  must(bert_encoder_open(&options, folder, &encoder, &origins));
  assert_int_equal(encoder.width, config->width);
  assert_int_equal(encoder.max_tokens, config->max_tokens);
  assert_int_equal(encoder.vocabulary, config->vocabulary);
  bert_config_t read;
  bert_weights_t weights;
  must(bert_config_read(folder, &read));
  must(bert_weights_load(folder, &read, &weights));
  serve_batch_t* batch = folder_batch(config, lengths, COUNT, 7);
  batch->has_tokens = true;
  must(encoder.run(encoder.self, batch));
  const size_t width = (size_t)config->width;
  float expected[64];
  for (size_t i = 0; i < COUNT; ++i) {
    must(bert_reference(&weights, (int64_t)lengths[i], batch->ids + batch->offsets[i], expected));
    double mean = 0;
    for (size_t k = 0; k < width; ++k) {
      const float pooled = batch->pooled[i * width + k];
      if (!(fabsf(pooled - expected[k]) < 2e-5f)) {
        fail_msg("%s: sentence %zu, number %zu: %g instead of %g", target, i, k, (double)pooled,
                 (double)expected[k]);
      }
      mean += (double)fabsf(pooled) / (double)width;
    }
    assert_true(mean > 0.1);  // rows of zeros would agree with much
    // The first token's row is what [CLS] pooling gives.
    const float* row = batch->tokens + (size_t)batch->offsets[i] * width;
    const bool is_first = config->pooling == BERT_POOLING_CLS || lengths[i] == 1;
    for (size_t k = 0; is_first && k < width; ++k) {
      assert_true(fabsf(row[k] - batch->pooled[i * width + k]) < 1e-6f);
    }
  }
  serve_batch_destroy(batch);
  encoder.destroy(encoder.self);
  bert_weights_free(&weights);
}

static bool has_target(const char* target) {
  bert_weights_t weights;
  bert_model_t model;
  must(bert_weights_seed(&folder_config, 1, &weights));
  const bert_model_options_t options = options_of(target, 8);
  qn_status_t status = bert_model_open(&options, &weights, &model);
  const bool is_here = qn_ok(status);
  if (!is_here) assert_int_equal(qn_status_code(status), QN_STATUS_UNAVAILABLE);
  qn_status_free(status);
  if (is_here) bert_model_close(&model);
  bert_weights_free(&weights);
  return is_here;
}

// Sizes that share no factor with vectors, each activation and pooling.
static void test_results(void** state) {
  (void)state;
  bert_config_t odd = folder_config;
  odd.layers = 1;
  odd.width = 21;
  odd.heads = 3;
  odd.inner_width = 37;
  odd.vocabulary = 11;
  odd.activation = BERT_RELU;
  odd.pooling = BERT_POOLING_CLS;
  odd.norm_epsilon = 1e-5;
  bert_config_t single = folder_config;
  single.layers = 3;
  single.width = 16;
  single.heads = 1;
  single.inner_width = 8;
  single.token_types = 1;
  single.activation = BERT_GELU_TANH;
  const bert_config_t configs[] = {folder_config, odd, single};
  static const char* const targets[] = {"interp", "cpu"};
  for (size_t t = 0; t < 2; ++t) {
    if (!has_target(targets[t])) continue;
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; ++i) {
      folder_write(folder, &configs[i], 100 + i, NULL);
      check_results(targets[t], &configs[i]);
    }
  }
}

// Weights of other dtypes, names and places in the file give the same results as plain C on them.
static void test_weights(void** state) {
  (void)state;
  static const folder_changes_t changes[] = {
      {.dtype = FOLDER_F16},
      {.dtype = FOLDER_BF16},
      {.prefix = "bert."},
      {.prefix = "model.encoder.text."},
      {.has_old_names = true},
      {.is_unaligned = true},
      {.dtype = FOLDER_F16, .is_unaligned = true, .prefix = "bert."},
  };
  bert_weights_t whole;
  must(bert_weights_seed(&folder_config, 5, &whole));
  for (size_t i = 0; i < sizeof changes / sizeof changes[0]; ++i) {
    folder_write(folder, &folder_config, 5, &changes[i]);
    bert_weights_t loaded;
    must(bert_weights_load(folder, &folder_config, &loaded));
    // The largest error of cutting a number below 2 to the fraction of its dtype.
    const float bound = changes[i].dtype == FOLDER_F16    ? 1.0f / 1024
                        : changes[i].dtype == FOLDER_BF16 ? 1.0f / 128
                                                          : 0.0f;
    bert_tensor_t tensor;
    bert_tensor_t other;
    char name[96];
    for (size_t k = 0; bert_weights_tensor(&whole, k, name, &tensor); ++k) {
      assert_true(bert_weights_tensor(&loaded, k, name, &other));
      const size_t count =
          (size_t)tensor.shape[0] * (tensor.rank > 1 ? (size_t)tensor.shape[1] : 1);
      for (size_t at = 0; at < count; ++at) {
        const float difference = fabsf((*tensor.data)[at] - (*other.data)[at]);
        if (!(difference <= bound)) fail_msg("%s[%zu]: off by %g", name, at, (double)difference);
      }
    }
    bert_weights_free(&loaded);
    if (i == 0) check_results("interp", &folder_config);
  }
  bert_weights_free(&whole);
}

// A model that is loaded is as it was, whatever becomes of its files.
static void test_cut_file(void** state) {
  (void)state;
  folder_write(folder, &folder_config, 9, NULL);
  const bert_model_options_t options = options_of("interp", 64);
  serve_encoder_t encoder;
  bert_origins_t origins;
  must(bert_encoder_open(&options, folder, &encoder, &origins));
  serve_batch_t* batch = folder_batch(&folder_config, (size_t[]){5, 3}, 2, 1);
  must(encoder.run(encoder.self, batch));
  const size_t size = batch->sequence_count * encoder.width * sizeof(float);
  float* before = malloc(size);
  assert_non_null(before);
  memcpy(before, batch->pooled, size);
  char path[QN_TEST_PATH_SIZE + 64];
  (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
  assert_int_equal(truncate(path, 0), 0);
  must(encoder.run(encoder.self, batch));
  assert_memory_equal(batch->pooled, before, size);
  free(before);
  serve_batch_destroy(batch);
  encoder.destroy(encoder.self);
}

// ------------------------------------------------------------------------------------ mistakes

static void must_refuse(qn_status_code_t code, const char* part) {
  const bert_model_options_t options = options_of("interp", 64);
  serve_encoder_t encoder;
  bert_origins_t origins;
  must_fail(bert_encoder_open(&options, folder, &encoder, &origins), code, part);
}

static void test_wrong_weights(void** state) {
  (void)state;
  static const struct {
    folder_changes_t changes;
    qn_status_code_t code;
    const char* part;
  } cases[] = {
      {{.left_out = "encoder.layer.1.output.dense.weight"},
       QN_STATUS_NOT_FOUND,
       "no tensor \"encoder.layer.1.output.dense.weight\"; expected one of shape [32, 48]"},
      {{.left_out = "embeddings.LayerNorm.bias", .prefix = "bert."},
       QN_STATUS_NOT_FOUND,
       "no tensor \"bert.embeddings.LayerNorm.bias\"; expected one of shape [32]"},
      {{.left_out = "embeddings.word_embeddings.weight"},
       QN_STATUS_NOT_FOUND,
       "no tensor \"embeddings.word_embeddings.weight\"; expected one of shape [16, 32]"},
      {{.turned = "encoder.layer.0.intermediate.dense.weight"},
       QN_STATUS_VALUE_ERROR,
       "\"encoder.layer.0.intermediate.dense.weight\" has shape [32, 48], expected [48, 32]"},
      {{.dtype = FOLDER_I32}, QN_STATUS_UNSUPPORTED, "has dtype I32, expected F32, F16 or BF16"},
      {{.cut_bytes = 4}, QN_STATUS_DATA_LOSS, "data beyond the end of the file; is it cut short?"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    folder_write(folder, &folder_config, 1, &cases[i].changes);
    must_refuse(cases[i].code, cases[i].part);
  }
  folder_write(folder, &folder_config, 1, NULL);
  folder_remove_file(folder, "model.safetensors");
  must_refuse(QN_STATUS_NOT_FOUND, "model.safetensors: No such file");
  folder_write_file(folder, "model.safetensors", "");
  must_refuse(QN_STATUS_DATA_LOSS, "0 bytes are too few for safetensors");
}

#define SIZES                                                                         \
  "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"intermediate_size\": 48, " \
  "\"vocab_size\": 16, \"max_position_embeddings\": 40, \"hidden_size\": 32"

static void test_wrong_files(void** state) {
  (void)state;
  static const struct {
    const char* name;
    const char* text;
    qn_status_code_t code;
    const char* part;
  } cases[] = {
      {"config.json", "{", QN_STATUS_SYNTAX, "config.json: line 1: "},
      {"config.json", "[]", QN_STATUS_SYNTAX, "config.json: expected an object"},
      {"config.json", "{}", QN_STATUS_VALUE_ERROR,
       "num_hidden_layers is missing, expected an integer from 1 to 1024"},
      {"config.json", "{\"num_hidden_layers\": 0}", QN_STATUS_VALUE_ERROR,
       "num_hidden_layers is 0, expected"},
      {"config.json", "{\"num_hidden_layers\": \"6\"}", QN_STATUS_VALUE_ERROR,
       "num_hidden_layers is \"6\", expected"},
      {"config.json", "{\"num_hidden_layers\": 99999999999}", QN_STATUS_VALUE_ERROR,
       "num_hidden_layers is 99999999999, expected"},
      {"config.json",
       "{\"num_hidden_layers\": 2, \"hidden_size\": 32, \"num_attention_heads\": 3, "
       "\"intermediate_size\": 48, \"vocab_size\": 16, \"max_position_embeddings\": 40}",
       QN_STATUS_VALUE_ERROR, "hidden_size is 32, expected a multiple of num_attention_heads"},
      {"config.json", "{" SIZES ", \"model_type\": \"roberta\"}", QN_STATUS_UNSUPPORTED,
       "model_type 'roberta' is not supported; 'bert' is"},
      {"config.json", "{" SIZES ", \"position_embedding_type\": \"relative_key\"}",
       QN_STATUS_UNSUPPORTED, "position_embedding_type 'relative_key' is not supported"},
      {"config.json", "{" SIZES ", \"hidden_act\": \"silu\"}", QN_STATUS_UNSUPPORTED,
       "hidden_act 'silu' is not supported; gelu, gelu_new"},
      {"config.json", "{" SIZES ", \"hidden_act\": 3}", QN_STATUS_VALUE_ERROR,
       "hidden_act is 3, expected a text"},
      {"config.json", "{" SIZES ", \"layer_norm_eps\": 0}", QN_STATUS_VALUE_ERROR,
       "layer_norm_eps is 0, expected a number between 0 and 1"},
      {"config.json", "{" SIZES ", \"is_decoder\": true}", QN_STATUS_UNSUPPORTED,
       "only encoders are supported"},
      {"modules.json", "{}", QN_STATUS_SYNTAX, "modules.json: expected an array"},
      {"modules.json", "[{\"type\": \"a.Transformer\"}]", QN_STATUS_VALUE_ERROR,
       "expected a list of objects with type and path"},
      {"modules.json", "[{\"type\": \"a.Dense\", \"path\": \"2\"}]", QN_STATUS_UNSUPPORTED,
       "module 'a.Dense' is not supported; Transformer, Pooling and Normalize are"},
      {"modules.json", "[{\"type\": \"a.Transformer\", \"path\": \"0\"}]", QN_STATUS_UNSUPPORTED,
       "the Transformer is in '0'"},
      {"modules.json", "[{\"type\": \"a.Transformer\", \"path\": \"\"}]", QN_STATUS_UNSUPPORTED,
       "there is no Pooling"},
      {"modules.json", "[{\"type\": \"a.Pooling\", \"path\": \"../x\"}]", QN_STATUS_VALUE_ERROR,
       "path '../x', expected a folder inside"},
      {"modules.json", "[{\"type\": \"a.Pooling\", \"path\": \"7_Pooling\"}]", QN_STATUS_NOT_FOUND,
       "7_Pooling/config.json"},
      {"1_Pooling/config.json", "{\"pooling_mode_max_tokens\": true}", QN_STATUS_UNSUPPORTED,
       "pooling_mode_max_tokens is not supported; pooling_mode_mean_tokens and"},
      {"1_Pooling/config.json",
       "{\"pooling_mode_mean_tokens\": true, \"pooling_mode_cls_token\": true}",
       QN_STATUS_UNSUPPORTED, "2 modes are true, expected one"},
      {"1_Pooling/config.json", "{}", QN_STATUS_UNSUPPORTED, "0 modes are true, expected one"},
      {"1_Pooling/config.json", "{\"word_embedding_dimension\": 31}", QN_STATUS_VALUE_ERROR,
       "word_embedding_dimension is 31, expected hidden_size, which is 32"},
      {"sentence_bert_config.json", "{\"max_seq_length\": -1}", QN_STATUS_VALUE_ERROR,
       "max_seq_length is -1, expected an integer from 1"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    folder_write(folder, &folder_config, 1, NULL);
    folder_write_file(folder, cases[i].name, cases[i].text);
    must_refuse(cases[i].code, cases[i].part);
  }
  folder_write(folder, &folder_config, 1, NULL);
  folder_remove_file(folder, "config.json");
  must_refuse(QN_STATUS_NOT_FOUND, "config.json");
}

// What sentence-transformers adds may be missing.
static void test_bare_folder(void** state) {
  (void)state;
  folder_write(folder, &folder_config, 1, NULL);
  folder_write_file(folder, "sentence_bert_config.json", "{\"max_seq_length\": 9000}");
  bert_config_t config;
  must(bert_config_read(folder, &config));
  assert_int_equal(config.max_tokens, 40);
  folder_write_file(folder, "sentence_bert_config.json", "{\"max_seq_length\": null}");
  must(bert_config_read(folder, &config));
  assert_int_equal(config.max_tokens, 40);
  folder_remove_file(folder, "sentence_bert_config.json");
  folder_remove_file(folder, "1_Pooling/config.json");
  must_fail(bert_config_read(folder, &config), QN_STATUS_NOT_FOUND, "1_Pooling/config.json");
  folder_remove_file(folder, "modules.json");
  must(bert_config_read(folder, &config));
  assert_int_equal(config.pooling, BERT_POOLING_MEAN);
  assert_int_equal(config.max_tokens, 40);
  folder_write_file(folder, "config.json", "{" SIZES "}");
  must(bert_config_read(folder, &config));
  assert_int_equal(config.token_types, 2);
  assert_int_equal(config.activation, BERT_GELU);
  assert_true(config.norm_epsilon == 1e-12);
}

static void test_large_batch(void** state) {
  (void)state;
  folder_write(folder, &folder_config, 1, NULL);
  const bert_model_options_t options = options_of("interp", 8);  // raised to a sentence of 24
  serve_encoder_t encoder;
  bert_origins_t origins;
  must(bert_encoder_open(&options, folder, &encoder, &origins));
  serve_batch_t* batch = folder_batch(&folder_config, (size_t[]){24}, 1, 1);
  must(encoder.run(encoder.self, batch));
  serve_batch_destroy(batch);
  batch = folder_batch(&folder_config, (size_t[]){24, 1}, 2, 1);
  must_fail(encoder.run(encoder.self, batch), QN_STATUS_INVALID_ARGUMENT,
            "a batch of 25 tokens and 2 sentences, the model has buffers for 24 and 8");
  serve_batch_destroy(batch);
  encoder.destroy(encoder.self);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_results),     cmocka_unit_test(test_weights),
      cmocka_unit_test(test_cut_file),    cmocka_unit_test(test_wrong_weights),
      cmocka_unit_test(test_wrong_files), cmocka_unit_test(test_bare_folder),
      cmocka_unit_test(test_large_batch),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
