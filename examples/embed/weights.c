// weights.c: names and shapes of the model's tensors. Read next: model.c, which computes with them.
#include "weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"

enum { NAME_BYTES = 96, MAX_TENSORS = 128 };

typedef struct storage {
  safetensors_t* file;  // NULL for seeded weights
  uint64_t seed;
  float* made[MAX_TENSORS];  // seeded tensors
  size_t made_count;
} storage_t;

// splitmix64: any seed gives a good stream, and it is the same on every machine.
static float next_uniform(uint64_t* seed) {
  uint64_t z = *seed += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return (float)(z >> 40) / (float)(1u << 23) - 1.0f;
}

// Makes numbers of about the size that training gives: scales of a normalisation near 1, others
// near 0.
static qn_status_t make_seeded(storage_t* storage, const char* name, size_t count,
                               const float** out_data) {
  float* data = malloc(count * sizeof *data);
  if (data == NULL || storage->made_count == MAX_TENSORS) {
    free(data);
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for seeded weights");
  }
  storage->made[storage->made_count++] = data;
  const bool is_scale = strstr(name, "LayerNorm.weight") != NULL;
  for (size_t i = 0; i < count; ++i) {
    data[i] = (is_scale ? 1.0f : 0.0f) + 0.08f * next_uniform(&storage->seed);
  }
  *out_data = data;
  return QN_OK;
}

// Reads the tensor "PREFIXNAME"; `rows` is 0 for a vector.
static qn_status_t take(storage_t* storage, const char* prefix, const char* name, int64_t rows,
                        int64_t columns, const float** out_data) {
  char full[NAME_BYTES];
  snprintf(full, sizeof full, "%s%s", prefix, name);
  const int64_t shape[2] = {rows, columns};
  if (storage->file == NULL) {
    return make_seeded(storage, full, (size_t)((rows > 0 ? rows : 1) * columns), out_data);
  }
  return rows > 0 ? safetensors_f32(storage->file, full, 2, shape, out_data)
                  : safetensors_f32(storage->file, full, 1, shape + 1, out_data);
}

static qn_status_t take_norm(storage_t* storage, const char* prefix, norm_t* out_norm) {
  TRY(take(storage, prefix, "LayerNorm.weight", 0, WIDTH, &out_norm->gamma));
  return take(storage, prefix, "LayerNorm.bias", 0, WIDTH, &out_norm->beta);
}

static qn_status_t take_matrix(storage_t* storage, const char* prefix, const char* name,
                               int64_t outputs, int64_t inputs, matrix_t* out_matrix) {
  char full[NAME_BYTES];
  *out_matrix = (matrix_t){.inputs = inputs, .outputs = outputs};
  snprintf(full, sizeof full, "%s.weight", name);
  TRY(take(storage, prefix, full, outputs, inputs, &out_matrix->weight));
  snprintf(full, sizeof full, "%s.bias", name);
  return take(storage, prefix, full, 0, outputs, &out_matrix->bias);
}

static qn_status_t take_layer(storage_t* storage, int index, layer_t* out_layer) {
  char prefix[NAME_BYTES];
  snprintf(prefix, sizeof prefix, "encoder.layer.%d.", index);
  TRY(take_matrix(storage, prefix, "attention.self.query", WIDTH, WIDTH, &out_layer->query));
  TRY(take_matrix(storage, prefix, "attention.self.key", WIDTH, WIDTH, &out_layer->key));
  TRY(take_matrix(storage, prefix, "attention.self.value", WIDTH, WIDTH, &out_layer->value));
  TRY(take_matrix(storage, prefix, "attention.output.dense", WIDTH, WIDTH,
                  &out_layer->attention_output));
  TRY(take_matrix(storage, prefix, "intermediate.dense", INNER_WIDTH, WIDTH, &out_layer->inner));
  TRY(take_matrix(storage, prefix, "output.dense", WIDTH, INNER_WIDTH, &out_layer->outer));
  snprintf(prefix, sizeof prefix, "encoder.layer.%d.attention.output.", index);
  TRY(take_norm(storage, prefix, &out_layer->attention_norm));
  snprintf(prefix, sizeof prefix, "encoder.layer.%d.output.", index);
  return take_norm(storage, prefix, &out_layer->output_norm);
}

static qn_status_t take_all(storage_t* storage, weights_t* weights) {
  const char* prefix = "embeddings.";
  TRY(take(storage, prefix, "word_embeddings.weight", VOCABULARY, WIDTH, &weights->words));
  TRY(take(storage, prefix, "position_embeddings.weight", POSITIONS, WIDTH, &weights->positions));
  TRY(take(storage, prefix, "token_type_embeddings.weight", TOKEN_TYPES, WIDTH, &weights->types));
  TRY(take_norm(storage, prefix, &weights->norm));
  for (int i = 0; i < LAYERS; ++i) {
    TRY(take_layer(storage, i, &weights->layers[i]));
  }
  return QN_OK;
}

qn_status_t weights_load(const char* directory, weights_t* out_weights) {
  memset(out_weights, 0, sizeof *out_weights);
  storage_t* storage = calloc(1, sizeof *storage);
  if (storage == NULL) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the weights");
  }
  out_weights->storage = storage;
  storage->seed = 20240229;
  qn_status_t status = QN_OK;
  if (directory != NULL) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/model.safetensors", directory) >= (int)sizeof path) {
      status = qn_status_make(QN_STATUS_INVALID_ARGUMENT, "the path of the weights is too long");
    } else {
      status = safetensors_open(path, &storage->file);
    }
  }
  if (qn_ok(status)) {
    status = take_all(storage, out_weights);
  }
  if (!qn_ok(status)) {
    weights_free(out_weights);
  }
  return status;
}

void weights_free(weights_t* weights) {
  storage_t* storage = weights->storage;
  if (storage != NULL) {
    for (size_t i = 0; i < storage->made_count; ++i) {
      free(storage->made[i]);
    }
    safetensors_close(storage->file);
    free(storage);
  }
  memset(weights, 0, sizeof *weights);
}

static qn_status_t import(place_t* place, int64_t count, const float** inout_data) {
  const void* memory = NULL;
  TRY(place_import(place, *inout_data, (size_t)count * sizeof(float), &memory));
  *inout_data = memory;
  return QN_OK;
}

static qn_status_t import_norm(place_t* place, norm_t* norm) {
  TRY(import(place, WIDTH, &norm->gamma));
  return import(place, WIDTH, &norm->beta);
}

static qn_status_t import_matrix(place_t* place, matrix_t* matrix) {
  TRY(import(place, matrix->inputs * matrix->outputs, &matrix->weight));
  return import(place, matrix->outputs, &matrix->bias);
}

qn_status_t weights_import(const weights_t* from, place_t* place, weights_t* out_weights) {
  *out_weights = *from;
  out_weights->storage = NULL;
  TRY(import(place, (int64_t)VOCABULARY * WIDTH, &out_weights->words));
  TRY(import(place, (int64_t)POSITIONS * WIDTH, &out_weights->positions));
  TRY(import(place, (int64_t)TOKEN_TYPES * WIDTH, &out_weights->types));
  TRY(import_norm(place, &out_weights->norm));
  for (int i = 0; i < LAYERS; ++i) {
    layer_t* layer = &out_weights->layers[i];
    TRY(import_matrix(place, &layer->query));
    TRY(import_matrix(place, &layer->key));
    TRY(import_matrix(place, &layer->value));
    TRY(import_matrix(place, &layer->attention_output));
    TRY(import_norm(place, &layer->attention_norm));
    TRY(import_matrix(place, &layer->inner));
    TRY(import_matrix(place, &layer->outer));
    TRY(import_norm(place, &layer->output_norm));
  }
  return QN_OK;
}
