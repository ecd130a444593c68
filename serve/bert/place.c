// SPDX-License-Identifier: Apache-2.0
// serve/bert/place.c: allocations and copies on one device.
#include "serve/bert/place.h"

#include "quern/device.h"
#include "quern/target.h"

#include <stdlib.h>
#include <string.h>

#include "serve/bert/try.h"

static const qn_device_t host_device = {QN_DEVICE_CPU, 0};

qn_status_t bert_place_open(const qn_target_t* target, bert_place_t* out_place) {
  *out_place = (bert_place_t){.device = host_device};
  const char* kind = qn_target_kind(target);
  for (size_t i = 0; i < qn_target_kind_count(); ++i) {
    const qn_target_kind_info_t* info = qn_target_kind_at(i);
    if (strcmp(info->name, kind) == 0) {
      out_place->device.type = info->device_type;
    }
  }
  if (qn_device_count(out_place->device.type) == 0) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "target %s runs on devices of which there are none here; 'quern devices' "
                          "says why",
                          kind);
  }
  qn_attribute_value_t access = {.type = QN_ATTRIBUTE_TYPE_NONE};
  BERT_TRY(qn_device_attribute(out_place->device, QN_ATTRIBUTE_HOST_ACCESSIBLE, &access));
  out_place->is_host = access.type == QN_ATTRIBUTE_TYPE_BOOL && access.int_value != 0;
  return QN_OK;
}

void bert_place_close(bert_place_t* place) {
  for (size_t i = 0; i < place->block_count; ++i) {
    // A caller could do nothing about an error.
    qn_status_free(qn_device_free(place->device, place->blocks[i]));
  }
  free(place->blocks);
  memset(place, 0, sizeof *place);
}

static qn_status_t allocate(bert_place_t* place, size_t size_bytes, void** out_memory) {
  void** blocks = realloc(place->blocks, (place->block_count + 1) * sizeof *blocks);
  if (blocks == NULL) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the tensors");
  }
  place->blocks = blocks;
  BERT_TRY(qn_device_allocate(place->device, size_bytes, 64, out_memory));
  place->blocks[place->block_count++] = *out_memory;
  return QN_OK;
}

qn_status_t bert_place_write(const bert_place_t* place, void* to, const void* host,
                             size_t size_bytes) {
  const qn_copy_t copy = {.struct_size = sizeof copy,
                          .from_device = host_device,
                          .from = host,
                          .to_device = place->device,
                          .to = to,
                          .size_bytes = size_bytes};
  return qn_device_copy(&copy, NULL);
}

qn_status_t bert_place_read(const bert_place_t* place, void* host, const void* from,
                            size_t size_bytes) {
  const qn_copy_t copy = {.struct_size = sizeof copy,
                          .from_device = place->device,
                          .from = from,
                          .to_device = host_device,
                          .to = host,
                          .size_bytes = size_bytes};
  BERT_TRY(qn_device_copy(&copy, NULL));
  return qn_stream_sync(place->device, NULL);
}

qn_status_t bert_place_reserve(bert_place_t* place, size_t size_bytes, void** out_memory) {
  BERT_TRY(allocate(place, size_bytes, out_memory));
  if (place->is_host) {
    memset(*out_memory, 0, size_bytes);
    return QN_OK;
  }
  void* zeros = calloc(1, size_bytes);
  if (zeros == NULL) {
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for the tensors");
  }
  qn_status_t status = bert_place_write(place, *out_memory, zeros, size_bytes);
  free(zeros);
  return status;
}

qn_status_t bert_place_import(bert_place_t* place, const void* host, size_t size_bytes,
                              const void** out_memory) {
  *out_memory = host;
  if (place->is_host) {
    return QN_OK;
  }
  void* memory = NULL;
  BERT_TRY(allocate(place, size_bytes, &memory));
  *out_memory = memory;
  return bert_place_write(place, memory, host, size_bytes);
}
