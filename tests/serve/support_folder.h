// SPDX-License-Identifier: Apache-2.0
// tests/serve/support_folder.h: made-up models in the layout of Hugging Face, written to a folder.
#ifndef QUERN_TESTS_SERVE_SUPPORT_FOLDER_H_
#define QUERN_TESTS_SERVE_SUPPORT_FOLDER_H_

#include "serve/bert/weights.h"

typedef enum folder_dtype { FOLDER_F32, FOLDER_F16, FOLDER_BF16, FOLDER_I32 } folder_dtype_t;

// How a file of weights differs from the usual one. Zeroed: not at all.
typedef struct folder_changes {
  folder_dtype_t dtype;
  const char* prefix;    // before each name; NULL: ""
  bool has_old_names;    // gamma and beta
  bool is_unaligned;     // the data begins at an odd byte
  const char* left_out;  // a name that is not written
  const char* turned;    // a matrix whose extents change places
  size_t cut_bytes;      // at the end of the file
} folder_changes_t;

// A model of 2 layers, width 32 and 2 heads, whose tokenizer knows a few letters.
extern const bert_config_t folder_config;

// Writes config.json, the files of sentence-transformers, vocab.txt and model.safetensors with
// weights of the seed. `changes` may be NULL. Failures fail the test.
void folder_write(const char* folder, const bert_config_t* config, uint64_t seed,
                  const folder_changes_t* changes);
// Writes one more file, or another text into one, below the folder.
void folder_write_file(const char* folder, const char* name, const char* text);
// Removes one file.
void folder_remove_file(const char* folder, const char* name);
// Makes the batch of sequences of the given lengths with ids of the seed. Owned:
// serve_batch_destroy.
struct serve_batch* folder_batch(const bert_config_t* config, const size_t* lengths, size_t count,
                                 uint64_t seed);

#endif  // QUERN_TESTS_SERVE_SUPPORT_FOLDER_H_
