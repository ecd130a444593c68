// SPDX-License-Identifier: Apache-2.0
// tests/fuzz/fuzz_embeddings.c: reads arbitrary bytes as the body of an answer with embeddings. The
// first byte chooses the protocol, the second the length of the JSON before tensors.
#include "bench/serve/protocol.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  protocol_t protocol = {.kind = (protocol_kind_t)(data[0] % 4), .model = "m"};
  if (data[0] & 64) protocol.output = "e";
  int64_t json_bytes = data[0] & 128 ? (int64_t)data[1] : -1;
  protocol_answer_t answer;
  const char* wrong = protocol_read(&protocol, 0, data + 2, size - 2, json_bytes, &answer);
  if ((wrong == NULL) != (answer.values != NULL)) abort();
  for (size_t i = 0; i < answer.count * answer.width; i++) {
    if (!isfinite(answer.values[i])) abort();
  }
  protocol_answer_free(&answer);
  return 0;
}
