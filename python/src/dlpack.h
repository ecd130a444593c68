// SPDX-License-Identifier: Apache-2.0
// python/src/dlpack.h: the structs of DLPack 1.x that Python objects hand over, by their ABI.
//
// qn_tensor_t has the layout of DLTensor. Names follow DLPack's.
#ifndef QUERN_PYTHON_DLPACK_H_
#define QUERN_PYTHON_DLPACK_H_

#include "quern/quern.h"

// Bits of qn__dl_versioned_t.flags.
#define QN__DL_READ_ONLY (UINT64_C(1) << 0)
#define QN__DL_IS_COPIED (UINT64_C(1) << 1)
#define QN__DL_SUBBYTE_PADDED (UINT64_C(1) << 2)

// DLPackVersion.
typedef struct qn__dl_version {
  uint32_t major;
  uint32_t minor;
} qn__dl_version_t;

// DLManagedTensor: what a capsule "dltensor" holds.
typedef struct qn__dl_managed {
  qn_tensor_t tensor;
  void* manager_ctx;
  void (*deleter)(struct qn__dl_managed* self);
} qn__dl_managed_t;

// DLManagedTensorVersioned: what a capsule "dltensor_versioned" holds.
typedef struct qn__dl_versioned {
  qn__dl_version_t version;
  void* manager_ctx;
  void (*deleter)(struct qn__dl_versioned* self);
  uint64_t flags;
  qn_tensor_t tensor;
} qn__dl_versioned_t;

// DLPackExchangeAPI: what the capsule "dlpack_exchange_api" of a type holds. It lives as long as
// the process. Functions return 0, or -1 with a Python exception.
typedef struct qn__dl_exchange {
  qn__dl_version_t version;
  struct qn__dl_exchange* previous;
  int (*allocate)(qn_tensor_t* prototype, qn__dl_versioned_t** out, void* error_self,
                  void (*set_error)(void* error_self, const char* kind, const char* message));
  int (*managed_from_object)(void* object, qn__dl_versioned_t** out);
  int (*managed_to_object)(qn__dl_versioned_t* tensor, void** out_object);
  int (*borrow_from_object)(void* object, qn_tensor_t* out);  // may be NULL
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out_stream);
} qn__dl_exchange_t;

#endif  // QUERN_PYTHON_DLPACK_H_
