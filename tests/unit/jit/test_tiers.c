// SPDX-License-Identifier: Apache-2.0
// Tests the tiers below the memory table: their order, bundles without a directory, unreadable
// files, modes that switch tiers off, a shared remote store, and its claims.
// ctest-labels: tsan
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "cache/crypto.h"
#include "cache/remote.h"
#include "cache/store.h"
#include "quern/cache.h"
#include "tests/unit/jit/support_gate.h"

static qn_lookup_info_t look_up(gated_t* gated, qn_module_t* module,
                                const qn_lookup_options_t* options, int value) {
  qn_lookup_info_t info = {.struct_size = sizeof info};
  qn_function_t* function;
  must(qn_engine_function(gated->engine, module, gated->target, "f", options, &info, &function));
  assert_int_equal(call(function), value);
  qn_function_release(function);
  return info;
}

// ------------------------------------------------------------------------------------- bundles

// A bundle of one module's entry, in a directory of its own.
static void make_bundle(const char* path, qn_module_t* module, int value) {
  gated_t maker;
  gated_begin(&maker, NULL);
  gate_set(&maker.gate, true);
  (void)look_up(&maker, module, NULL, value);
  assert_true(qn_engine_flush(maker.engine, 3600 * SECOND));
  qn_cache_dir_t* dir;
  must(qn_cache_dir_open(maker.directory, &dir));
  must(qn_cache_bundle_write(path, dir, NULL, 0, NULL, NULL));
  qn_cache_dir_close(dir);
  gated_end(&maker);
}

typedef struct bundles {
  char directory[QN_TEST_PATH_SIZE];
  char first[QN_TEST_PATH_SIZE + 16], second[QN_TEST_PATH_SIZE + 16];
  char list[4 * QN_TEST_PATH_SIZE];
  qn_module_t* modules[3];  // in the first, in the second, in none
} bundles_t;

static void bundles_begin(bundles_t* bundles) {
  assert_true(qn_test_tempdir_make(bundles->directory));
  for (int i = 0; i < 3; i++) bundles->modules[i] = module_of("f", i);
  (void)snprintf(bundles->first, sizeof bundles->first, "%s/a.qnb", bundles->directory);
  (void)snprintf(bundles->second, sizeof bundles->second, "%s/b.qnb", bundles->directory);
  make_bundle(bundles->first, bundles->modules[0], 0);
  make_bundle(bundles->second, bundles->modules[1], 1);
  (void)snprintf(bundles->list, sizeof bundles->list, "%s::%s/missing.qnb:%s", bundles->first,
                 bundles->directory, bundles->second);
}
static void bundles_end(bundles_t* bundles) {
  for (int i = 0; i < 3; i++) qn_module_release(bundles->modules[i]);
  qn_test_tempdir_remove(bundles->directory);
}

static void test_bundles_alone(void** state) {
  (void)state;
  bundles_t bundles;
  bundles_begin(&bundles);
  const qn_setting_t settings[] = {{"bundles", bundles.list}};
  qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_dir = "", .settings = settings, .setting_count = 1};
  gated_t gated;
  gated_begin(&gated, &options);
  assert_null(qn__engine_disk(gated.engine));
  assert_int_equal(counter_of(gated.engine, "bundles_unusable"), 1);
  qn_lookup_options_t soon = {.struct_size = sizeof soon, .time_limit_ns = 3600 * SECOND};
  qn_lookup_options_t fail = {.struct_size = sizeof fail, .miss = QN_MISS_FAIL};
  assert_int_equal(look_up(&gated, bundles.modules[0], &fail, 0).source, QN_SOURCE_BUNDLE);
  qn_lookup_info_t info = look_up(&gated, bundles.modules[1], &soon, 1);
  assert_int_equal(info.source, QN_SOURCE_BUNDLE);
  assert_true(info.load_ns > 0 && info.compile_ns == 0);
  assert_int_equal(counter_of(gated.engine, "bundle_hits"), 2);
  assert_int_equal(gate_started(&gated.gate), 0);
  gate_set(&gated.gate, true);
  assert_int_equal(look_up(&gated, bundles.modules[2], NULL, 2).source, QN_SOURCE_COMPILED);
  gated_end(&gated);
  bundles_end(&bundles);
}

static void test_order_and_modes(void** state) {
  (void)state;
  bundles_t bundles;
  bundles_begin(&bundles);
  const qn_setting_t settings[] = {{"bundles", bundles.list}};
  static const qn_cache_mode_t modes[] = {QN_CACHE_RO, QN_CACHE_OFF, QN_CACHE_REFRESH, QN_CACHE_RW};
  static const qn_source_t sources[] = {QN_SOURCE_BUNDLE, QN_SOURCE_COMPILED, QN_SOURCE_COMPILED,
                                        QN_SOURCE_DISK};
  char directory[QN_TEST_PATH_SIZE];
  assert_true(qn_test_tempdir_make(directory));
  for (int i = 0; i < 4; i++) {
    qn_engine_options_t options = {.struct_size = sizeof options,
                                   .cache_dir = directory,
                                   .cache_mode = modes[i],
                                   .settings = settings,
                                   .setting_count = 1};
    gated_t gated;
    gated_begin(&gated, &options);
    gate_set(&gated.gate, true);
    // The one that refreshes puts it into the directory, which comes first from then on.
    assert_int_equal(look_up(&gated, bundles.modules[0], NULL, 0).source, sources[i]);
    gated_end(&gated);  // which waits until it is written
  }
  qn_test_tempdir_remove(directory);
  bundles_end(&bundles);
}

// --------------------------------------------------------------------------------------- remote

// A store in memory. Claims are values of their own.
enum { store_slots = 16 };
static struct {
  pthread_mutex_t mutex;
  struct {
    char name[256];
    uint8_t* data;
    size_t size;
  } slots[store_slots];
  bool has_foreign_claim;  // another machine holds whatever is claimed
  bool hangs;
  _Atomic int claim_count, get_count;
} store = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void store_reset(void) {
  for (int i = 0; i < store_slots; i++) {
    free(store.slots[i].data);
    memset(&store.slots[i], 0, sizeof store.slots[i]);
  }
  store.has_foreign_claim = store.hangs = false;
  store.claim_count = store.get_count = 0;
}
static int slot_of(qn_str_t key) {
  for (int i = 0; i < store_slots; i++) {
    if (strlen(store.slots[i].name) == key.size &&
        memcmp(store.slots[i].name, key.data, key.size) == 0) {
      return i;
    }
  }
  return -1;
}
static qn_status_t store_create(qn_allocator_t allocator, const qn__net_t* net, const char* url,
                                void** out_connection) {
  (void)net;
  (void)url;
  *out_connection = qn__alloc_zero(allocator, 1, sizeof(qn_allocator_t));
  if (!*out_connection) return qn__out_of_memory("a connection");
  *(qn_allocator_t*)*out_connection = allocator;
  return QN_OK;
}
static void store_destroy(void* self) {
  qn__free(*(qn_allocator_t*)self, self, sizeof(qn_allocator_t));
}
static qn__store_result_t store_connect(void* self, int64_t deadline_ns) {
  (void)self;
  (void)deadline_ns;
  return QN__STORE_OK;
}
static bool store_is_connected(const void* self) {
  (void)self;
  return true;
}
static qn__store_result_t store_get(void* self, qn_str_t key, size_t limit, int64_t deadline_ns,
                                    uint8_t** out_value, size_t* out_size) {
  (void)deadline_ns;
  store.get_count++;
  (void)pthread_mutex_lock(&store.mutex);
  while (store.hangs) {
    (void)pthread_mutex_unlock(&store.mutex);
    usleep(1000);
    (void)pthread_mutex_lock(&store.mutex);
  }
  int slot = slot_of(key);
  qn__store_result_t result = slot < 0 ? QN__STORE_ABSENT : QN__STORE_OK;
  if (slot >= 0 && store.slots[slot].size <= limit) {
    *out_size = store.slots[slot].size;
    *out_value = qn__alloc(*(qn_allocator_t*)self, *out_size);
    if (*out_value) memcpy(*out_value, store.slots[slot].data, *out_size);
  }
  (void)pthread_mutex_unlock(&store.mutex);
  return result;
}
static qn__store_result_t store_put(void* self, qn_str_t key, qn_span_t value, int64_t ttl_ms,
                                    int64_t deadline_ns) {
  (void)self;
  (void)ttl_ms;
  (void)deadline_ns;
  (void)pthread_mutex_lock(&store.mutex);
  int slot = slot_of(key);
  for (int i = 0; i < store_slots && slot < 0; i++) {
    if (!store.slots[i].name[0]) slot = i;
  }
  memcpy(store.slots[slot].name, key.data, key.size);
  free(store.slots[slot].data);
  store.slots[slot].data = malloc(value.size);
  if (store.slots[slot].data) memcpy(store.slots[slot].data, value.data, value.size);
  store.slots[slot].size = value.size;
  (void)pthread_mutex_unlock(&store.mutex);
  return QN__STORE_OK;
}
static qn__store_result_t store_claim(void* self, qn_str_t key, qn_str_t owner, int64_t ttl_ms,
                                      int64_t deadline_ns) {
  (void)self;
  (void)key;
  (void)owner;
  (void)ttl_ms;
  (void)deadline_ns;
  store.claim_count++;
  (void)pthread_mutex_lock(&store.mutex);
  bool is_foreign = store.has_foreign_claim;
  (void)pthread_mutex_unlock(&store.mutex);
  return is_foreign ? QN__STORE_ABSENT : QN__STORE_OK;
}
static qn__store_result_t store_unclaim(void* self, qn_str_t key, qn_str_t owner,
                                        int64_t deadline_ns) {
  (void)self;
  (void)key;
  (void)owner;
  (void)deadline_ns;
  return QN__STORE_OK;
}
static void store_disconnect(void* self) {
  (void)self;
}
static const char* store_message(const void* self) {
  (void)self;
  return "";
}
static const qn__store_t memory_store = {
    .abi_version = QN__STORE_ABI_VERSION,
    .struct_size = sizeof(qn__store_t),
    .scheme = "test",
    .create = store_create,
    .destroy = store_destroy,
    .connect = store_connect,
    .is_connected = store_is_connected,
    .get = store_get,
    .put = store_put,
    .claim = store_claim,
    .unclaim = store_unclaim,
    .disconnect = store_disconnect,
    .forget = store_disconnect,
    .message = store_message,
};

static void hash_spans(const uint8_t* key, const qn_span_t* spans, size_t count, uint8_t* out) {
  memset(out, 0, QN__MAC_BYTES);
  uint64_t seed = key ? key[0] : 0;
  for (size_t i = 0; i < count; i++) {
    qn_hash128_t hash = qn__xxh128(spans[i], seed);
    for (size_t k = 0; k < 16; k++) out[k] = (uint8_t)(out[k] * 31 + hash.bytes[k]);
  }
}
static void crypto_mac(const uint8_t key[QN__MAC_KEY_BYTES], const qn_span_t* spans, size_t count,
                       uint8_t out[QN__MAC_BYTES]) {
  hash_spans(key, spans, count, out);
}
static bool crypto_equal(const uint8_t* a, const uint8_t* b, size_t size) {
  return memcmp(a, b, size) == 0;
}
static void crypto_hash(qn_span_t bytes, uint8_t out[QN__SECURE_HASH_BYTES]) {
  hash_spans(NULL, &bytes, 1, out);
}
static void crypto_random(uint8_t* out, size_t size) {
  memset(out, 7, size);
}
static void crypto_wipe(void* data, size_t size) {
  memset(data, 0, size);
}
static const qn__crypto_t weak_crypto = {
    .abi_version = QN__CRYPTO_ABI_VERSION,
    .struct_size = sizeof(qn__crypto_t),
    .mac = crypto_mac,
    .equal = crypto_equal,
    .hash = crypto_hash,
    .random = crypto_random,
    .wipe = crypto_wipe,
};

// A machine of the fleet: a cache directory of its own and the common store.
static void machine_begin(gated_t* gated, const char* role, int64_t timeout_ns) {
  const qn_setting_t settings[] = {
      {"compile_threads", "1"}, {"remote_role", role}, {"lock_timeout", "3600s"}};
  qn_engine_options_t options = {
      .struct_size = sizeof options, .settings = settings, .setting_count = 3};
  gated_begin(gated, &options);
  static const uint8_t key[QN__MAC_KEY_BYTES] = {1, 2, 3};
  qn__remote_options_t remote = {.url = "test://",
                                 .trust_domain = "",
                                 .may_write = strcmp(role, "write") == 0,
                                 .timeout_ns = timeout_ns,
                                 .plugin_directory = "",
                                 .store = &memory_store,
                                 .crypto = &weak_crypto,
                                 .key = key};
  qn__remote_t* created;
  must(qn__remote_create(&remote, &created));
  qn__tier_t* tier = &gated->engine->tiers[QN__TIER_remote];
  tier->self = created;
  tier->part_count = 1;
}

static void test_remote(void** state) {
  (void)state;
  store_reset();
  qn_module_t* module = module_of("f", 4);
  gated_t writer, reader;
  machine_begin(&writer, "write", 3600 * SECOND);
  machine_begin(&reader, "read", 3600 * SECOND);
  gate_set(&writer.gate, true);
  qn_lookup_options_t fail = {.struct_size = sizeof fail, .miss = QN_MISS_FAIL};
  qn_executable_t* executable;
  must_fail(qn_engine_executable(reader.engine, module, reader.target, &fail, NULL, &executable),
            QN_STATUS_COMPILE_FORBIDDEN, "f@");
  assert_int_equal(look_up(&writer, module, NULL, 4).source, QN_SOURCE_COMPILED);
  assert_int_equal(store.claim_count, 1);
  assert_true(qn_engine_flush(writer.engine, 3600 * SECOND));
  // Another machine finds it, even where nothing may be compiled; and keeps it.
  assert_int_equal(look_up(&reader, module, &fail, 4).source, QN_SOURCE_REMOTE);
  assert_int_equal(counter_of(reader.engine, "remote_hits"), 1);
  assert_true(qn_engine_flush(reader.engine, 3600 * SECOND));
  assert_true(qn_engine_flush(reader.engine, INT64_MIN));  // nothing is left to wait for
  assert_true(qn_engine_unload(reader.engine, module, reader.target, NULL));
  // So it does for one that would take less, where nothing may be compiled.
  gated_t forbidden;
  machine_begin(&forbidden, "read", 3600 * SECOND);
  forbidden.engine->is_forbidden = true;
  qn_lookup_options_t fallback = {.struct_size = sizeof fallback, .miss = QN_MISS_FALLBACK};
  for (int i = 0; i < 2; i++) {
    fallback.time_limit_ns = i * 3600 * SECOND;
    qn_lookup_info_t info = look_up(&forbidden, module, &fallback, 4);
    assert_true(!info.is_fallback && info.source == (i ? QN_SOURCE_MEMORY : QN_SOURCE_REMOTE));
  }
  gated_end(&forbidden);
  int gets = store.get_count;
  assert_int_equal(look_up(&reader, module, NULL, 4).source, QN_SOURCE_DISK);
  assert_int_equal(store.get_count, gets);  // never on a local hit
  gated_end(&writer);
  gated_end(&reader);
  qn_module_release(module);
  store_reset();
}

// Another machine says that it makes the key: its entry is waited for, and not made again.
static void test_fleet(void** state) {
  (void)state;
  store_reset();
  qn_module_t* module = module_of("f", 4);
  gated_t maker, waiter;
  machine_begin(&maker, "write", 3600 * SECOND);
  machine_begin(&waiter, "write", 3600 * SECOND);
  gate_set(&maker.gate, true);
  gate_set(&waiter.gate, true);
  (void)pthread_mutex_lock(&store.mutex);
  store.has_foreign_claim = true;
  (void)pthread_mutex_unlock(&store.mutex);
  seeker_t seeker;
  seeker_start(&seeker, &waiter, module, "f", NULL);
  while (store.claim_count < 2) usleep(100);
  // What it waits for appears in the store.
  (void)pthread_mutex_lock(&store.mutex);
  store.has_foreign_claim = false;
  (void)pthread_mutex_unlock(&store.mutex);
  seeker_t other;
  seeker_start(&other, &maker, module, "f", NULL);
  seeker_join_value(&other, 4);
  seeker_join_value(&seeker, 4);
  // Either the claim was seen to be free first, or the entry: both are right.
  assert_true(gate_started(&waiter.gate) <= 1);
  if (gate_started(&waiter.gate) == 0) assert_int_equal(seeker.info.source, QN_SOURCE_REMOTE);
  gated_end(&maker);
  gated_end(&waiter);
  qn_module_release(module);
  store_reset();
}

static void compile_beside_store(gated_t* gated, const qn_lookup_options_t* options, int value) {
  qn_module_t* module = module_of("f", value);
  assert_int_equal(look_up(gated, module, options, value).source, QN_SOURCE_COMPILED);
  qn_module_release(module);
}

// A store that hangs costs a lookup its time once.
static void test_hanging_store(void** state) {
  (void)state;
  store_reset();
  gated_t gated;
  machine_begin(&gated, "read", 5000000);
  gate_set(&gated.gate, true);
  (void)pthread_mutex_lock(&store.mutex);
  store.hangs = true;
  (void)pthread_mutex_unlock(&store.mutex);
  // The first one, unless the machine is so busy that its time is over before the store is asked.
  int value = 0;
  while (qn__remote_breaker(gated.engine->tiers[QN__TIER_remote].self, NULL) ==
         QN__BREAKER_CLOSED) {
    compile_beside_store(&gated, NULL, ++value);
  }
  while (store.get_count == 0) usleep(100);
  compile_beside_store(&gated, NULL, ++value);
  qn_lookup_options_t fallback = {.struct_size = sizeof fallback, .miss = QN_MISS_FALLBACK};
  compile_beside_store(&gated, &fallback, ++value);
  assert_int_equal(store.get_count, 1);
  (void)pthread_mutex_lock(&store.mutex);
  store.hangs = false;
  (void)pthread_mutex_unlock(&store.mutex);
  gated_end(&gated);
  store_reset();
}

// A compile that waits for another process when the engine ends has not begun, and never does.
static void test_end_while_waiting(void** state) {
  (void)state;
  gated_t maker, waiter;
  const qn_setting_t settings[] = {{"lock_timeout", "3600s"}};
  gated_begin(&maker, NULL);
  qn_engine_options_t options = {.struct_size = sizeof options,
                                 .cache_dir = maker.directory,
                                 .settings = settings,
                                 .setting_count = 1};
  gated_begin(&waiter, &options);
  gate_set(&waiter.gate, true);
  qn_module_t* module = module_of("f", 4);
  seeker_t seeker;
  seeker_start(&seeker, &maker, module, "f", NULL);
  gate_await_started(&maker.gate, 1);
  qn_future_t* future;
  must(qn_engine_request(waiter.engine, module, waiter.target, "f", NULL, &future));
  while (counter_of(waiter.engine, "claim_busy") == 0) usleep(100);
  qn_engine_destroy(waiter.engine);
  waiter.engine = NULL;
  qn_function_t* function;
  must_fail(qn_future_wait(future, -1, NULL, &function), QN_STATUS_CANCELLED, "is being destroyed");
  qn_future_release(future);
  assert_int_equal(gate_started(&waiter.gate), 0);
  gate_set(&maker.gate, true);
  seeker_join_value(&seeker, 4);
  gated_end(&waiter);
  gated_end(&maker);
  qn_module_release(module);
}

static void test_unusable_remote(void** state) {
  (void)state;
  const qn_setting_t settings[] = {{"remote", "nonsense://somewhere"}};
  qn_engine_options_t options = {
      .struct_size = sizeof options, .settings = settings, .setting_count = 1};
  gated_t gated;
  gated_begin(&gated, &options);
  assert_int_equal(counter_of(gated.engine, "remote_unusable"), 1);
  gate_set(&gated.gate, true);
  qn_module_t* module = module_of("f", 1);
  assert_int_equal(look_up(&gated, module, NULL, 1).source, QN_SOURCE_COMPILED);
  qn_module_release(module);
  gated_end(&gated);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bundles_alone),
      cmocka_unit_test(test_order_and_modes),
      cmocka_unit_test(test_remote),
      cmocka_unit_test(test_fleet),
      cmocka_unit_test(test_hanging_store),
      cmocka_unit_test(test_unusable_remote),
      cmocka_unit_test(test_end_while_waiting),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
