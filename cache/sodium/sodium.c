// SPDX-License-Identifier: Apache-2.0
// cache/sodium/sodium.c: libquern-sodium.so: the table of crypto.h over libsodium.
#include <sodium.h>

#include "cache/crypto.h"

_Static_assert(QN__MAC_KEY_BYTES >= crypto_generichash_KEYBYTES_MIN &&
                   QN__MAC_KEY_BYTES <= crypto_generichash_KEYBYTES_MAX,
               "length of a MAC key");
_Static_assert(QN__PUBLIC_KEY_BYTES == crypto_sign_PUBLICKEYBYTES, "length of a public key");
_Static_assert(QN__SECRET_KEY_BYTES == crypto_sign_SECRETKEYBYTES, "length of a secret key");
_Static_assert(QN__SIGNATURE_BYTES == crypto_sign_BYTES, "length of a signature");

QN_API const qn__crypto_t* qn_crypto_entry(uint32_t abi_version);

// These calls cannot fail: all sizes are constants within libsodium's limits.
static void mac(const uint8_t key[QN__MAC_KEY_BYTES], const qn_span_t* spans, size_t count,
                uint8_t out[QN__MAC_BYTES]) {
  crypto_generichash_state state;
  (void)crypto_generichash_init(&state, key, QN__MAC_KEY_BYTES, QN__MAC_BYTES);
  for (size_t i = 0; i < count; i++) {
    (void)crypto_generichash_update(&state, spans[i].data, spans[i].size);
  }
  (void)crypto_generichash_final(&state, out, QN__MAC_BYTES);
  sodium_memzero(&state, sizeof state);
}

static bool equal(const uint8_t* a, const uint8_t* b, size_t size) {
  return sodium_memcmp(a, b, size) == 0;
}

static void hash(qn_span_t bytes, uint8_t out[QN__SECURE_HASH_BYTES]) {
  (void)crypto_generichash(out, QN__SECURE_HASH_BYTES, bytes.data, bytes.size, NULL, 0);
}

static void make_keys(uint8_t out_public[QN__PUBLIC_KEY_BYTES],
                      uint8_t out_secret[QN__SECRET_KEY_BYTES]) {
  (void)crypto_sign_keypair(out_public, out_secret);
}

static void sign(const uint8_t secret[QN__SECRET_KEY_BYTES], qn_span_t bytes,
                 uint8_t out[QN__SIGNATURE_BYTES]) {
  (void)crypto_sign_detached(out, NULL, bytes.data, bytes.size, secret);
}

static bool verify(const uint8_t public_key[QN__PUBLIC_KEY_BYTES], qn_span_t bytes,
                   const uint8_t signature[QN__SIGNATURE_BYTES]) {
  return crypto_sign_verify_detached(signature, bytes.data, bytes.size, public_key) == 0;
}

static void random_bytes(uint8_t* out, size_t size) {
  randombytes_buf(out, size);
}

static void wipe(void* data, size_t size) {
  sodium_memzero(data, size);
}

static const qn__crypto_t table = {
    .abi_version = QN__CRYPTO_ABI_VERSION,
    .struct_size = sizeof table,
    .mac = mac,
    .equal = equal,
    .hash = hash,
    .make_keys = make_keys,
    .sign = sign,
    .verify = verify,
    .random = random_bytes,
    .wipe = wipe,
};

const qn__crypto_t* qn_crypto_entry(uint32_t abi_version) {
  // 1 means that libsodium was initialised before.
  if (abi_version != QN__CRYPTO_ABI_VERSION || sodium_init() < 0) return NULL;
  return &table;
}
