// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/fuzz_safetensors.c: reads arbitrary bytes as a safetensors file. Each tensor must lie
// in them and have the size of its shape at least.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "quern/status.h"
#include "serve/bert/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

static void check(const safetensors_tensor_t* tensor, const uint8_t* data, size_t size) {
  const uintptr_t begin = (uintptr_t)tensor->data;
  if (begin < (uintptr_t)data || begin > (uintptr_t)data + size) abort();
  if (tensor->size_bytes > (uintptr_t)data + size - begin) abort();
  if (tensor->rank > SAFETENSORS_MAX_RANK || tensor->dtype[0] == '\0') abort();
  size_t count = 1;
  for (size_t i = 0; i < tensor->rank; ++i) {
    if (tensor->shape[i] < 0) abort();
    count *= (size_t)tensor->shape[i];
  }
  if (count > tensor->size_bytes) abort();
  // Reads all of it, for the sanitizer.
  volatile uint8_t sum = 0;
  for (size_t i = 0; i < tensor->size_bytes; ++i) sum ^= ((const uint8_t*)tensor->data)[i];
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  safetensors_t* file = NULL;
  qn_status_t status = safetensors_read("f", data, size, &file);
  if (!qn_ok(status)) {
    if (file || qn_status_message(status)[0] == '\0') abort();
    qn_status_free(status);
    return 0;
  }
  for (const char* name = safetensors_next(file, NULL); name; name = safetensors_next(file, name)) {
    safetensors_tensor_t tensor;
    if (!safetensors_get(file, name, &tensor)) abort();
    check(&tensor, data, size);
  }
  safetensors_close(file);
  return 0;
}
