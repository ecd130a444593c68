// SPDX-License-Identifier: Apache-2.0
// cache/crypto.h: the table of the module `libquern-sodium.so`: MACs, hashes and signatures for
// entries. The core library never links a cryptographic library.
//
// Every function of the table is pure. Read next: crypto.c (opens it), cache/sodium/sodium.c (the
// module).
#ifndef QUERN_CACHE_CRYPTO_H_
#define QUERN_CACHE_CRYPTO_H_

#include "base/base.h"

#define QN__CRYPTO_ABI_VERSION 1u
#define QN__CRYPTO_ENTRY_SYMBOL "qn_crypto_entry"
#define QN__MAC_KEY_BYTES 32u
#define QN__MAC_BYTES 32u
#define QN__PUBLIC_KEY_BYTES 32u
#define QN__SECRET_KEY_BYTES 64u
#define QN__SIGNATURE_BYTES 64u
#define QN__SECURE_HASH_BYTES 32u

typedef struct qn__crypto {
  uint32_t abi_version;
  size_t struct_size;
  // Keyed MAC (BLAKE2b-256) over the concatenation of the spans; compare with `equal`.
  void (*mac)(const uint8_t key[QN__MAC_KEY_BYTES], const qn_span_t* spans, size_t count,
              uint8_t out[QN__MAC_BYTES]);
  bool (*equal)(const uint8_t* a, const uint8_t* b, size_t size);  // in constant time
  // Hash that resists collisions (BLAKE2b-256).
  void (*hash)(qn_span_t bytes, uint8_t out[QN__SECURE_HASH_BYTES]);
  // Ed25519.
  void (*make_keys)(uint8_t out_public[QN__PUBLIC_KEY_BYTES],
                    uint8_t out_secret[QN__SECRET_KEY_BYTES]);
  void (*sign)(const uint8_t secret[QN__SECRET_KEY_BYTES], qn_span_t bytes,
               uint8_t out[QN__SIGNATURE_BYTES]);
  bool (*verify)(const uint8_t public_key[QN__PUBLIC_KEY_BYTES], qn_span_t bytes,
                 const uint8_t signature[QN__SIGNATURE_BYTES]);
  void (*random)(uint8_t* out, size_t size);
  void (*wipe)(void* data, size_t size);
} qn__crypto_t;

typedef const qn__crypto_t* (*qn__crypto_entry_fn_t)(uint32_t abi_version);

// Opens the module, which the loader keeps open; a second call is cheap. `directory` as for
// qn__plugin_open, NULL is "". Errors: UNAVAILABLE.
qn_status_t qn__crypto_open(const char* directory, const qn__crypto_t** out_crypto);
// Reads a key of `size` bytes from a file with hexadecimal digits and white space around them. The
// file must be a regular one, or a link to one, that others may not write; with `is_secret` it must
// belong to this user or root and be closed to others. `out` is undefined after an error. Errors:
// NOT_FOUND, PERMISSION_DENIED with the rule, SYNTAX, IO.
qn_status_t qn__key_read(const char* path, bool is_secret, uint8_t* out, size_t size);

// Writes the key as hexadecimal digits into a new file of mode 0600 (`is_secret`) or 0644. Errors:
// FAILED_PRECONDITION (there is one already), PERMISSION_DENIED, NOT_FOUND, IO.
qn_status_t qn__key_write(const char* path, bool is_secret, const uint8_t* key, size_t size);
// Clears memory that held a secret. The compiler cannot remove it.
void qn__wipe(void* data, size_t size);

#endif  // QUERN_CACHE_CRYPTO_H_
