// SPDX-License-Identifier: Apache-2.0
// jit/codegen/generator.c: finds and opens code generators.
//
// A hit must not map a compiler (promise 1), yet the key names the compiler that made the bytes. So
// the identity is predicted from the GNU build ids in the files of the generator and of the library
// that it links (jit/identity/identity.h). When a miss opens the generator, the prediction is
// replaced by the identity of the mapped objects.
//
// A generator is never closed: libLLVM does not survive being unloaded. `mutex` guards the list and
// `opening` serialises opens. Neither is held while a generator compiles.
#include "jit/codegen/generator.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "base/buffer.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/plugin.h"
#include "base/struct_size.h"
#include "jit/codegen/generator_info.h"
#include "jit/identity/identity.h"

static const qn_codegen_t* builtin_table(const char* name) {
  if (strcmp(name, qn__interp_codegen.name) == 0) return &qn__interp_codegen;
  if (strcmp(name, qn__null_codegen.name) == 0) return &qn__null_codegen;
  return NULL;
}

// --------------------------------------------------------------------------------- registered ones

enum { REGISTERED_LIMIT = 8 };

// Generators are added and never removed. An element is complete before the count includes it.
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;
static struct {
  qn_codegen_t table;
  char identity[256];
} registered[REGISTERED_LIMIT];
static _Atomic size_t registered_count;

// Returns a built-in or registered table by name, with its identity ("" for one that a plugin
// describes); NULL if there is none.
static const qn_codegen_t* known_table(const char* name, const char** out_identity) {
  const qn_codegen_t* table = builtin_table(name);
  if (table) {
    *out_identity = table->identity(NULL);
    return table;
  }
  size_t count = atomic_load_explicit(&registered_count, memory_order_acquire);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(registered[i].table.name, name) != 0) continue;
    *out_identity = registered[i].identity;
    return &registered[i].table;
  }
  return NULL;
}

static qn_status_t no_build_id(const char* name) {
  return qn_status_make(QN_STATUS_NOT_FOUND,
                        "the object of code generator '%s' has no build id; link it with "
                        "-Wl,--build-id",
                        name);
}

qn_status_t qn_codegen_identity(const char* name, const void* address,
                                char out_identity[QN_IDENTITY_BYTES]) {
  QN_REQUIRE(out_identity);
  out_identity[0] = '\0';
  QN_REQUIRE(name, address);
  QN_TRY(qn__generator_check_name(name));
  char id[QN__BUILD_ID_HEX_BYTES];
  if (!qn__mapped_build_id(address, id)) return no_build_id(name);
  qn__generator_identity(name, id, NULL, out_identity);
  return QN_OK;
}

static qn_status_t create_nothing(void** out_self) {
  *out_self = NULL;
  return QN_OK;
}
static void destroy_nothing(void* self) {
  (void)self;
}

// Copies a generator's table, which may be of another version of the header, and checks that the
// required functions are there.
static qn_status_t read_table(const qn_codegen_t* given, qn_codegen_t* out) {
  if (given->abi_version != QN_CODEGEN_ABI_VERSION) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "a generator's table of ABI version %u is expected, not %u",
                          QN_CODEGEN_ABI_VERSION, given->abi_version);
  }
  QN_STRUCT_READ(qn_codegen_t, given, table);
  *out = table;
  if (!out->create) out->create = create_nothing;
  if (!out->destroy) out->destroy = destroy_nothing;
  const qn__required_t required[] = {QN_REQUIRED(out, name), QN_REQUIRED(out, compile),
                                     QN_REQUIRED(out, identity)};
  const bool is_described = out->name && qn__generator_info_find(out->name);
  return qn__require_members("qn_codegen_t", out->name, required,
                             QN_COUNT_OF(required) - (is_described ? 1 : 0));
}

static qn_status_t ask_identity(const qn_codegen_t* table, char out_identity[QN_IDENTITY_BYTES]) {
  void* self = NULL;
  QN_TRY(table->create(&self));
  const char* text = table->identity(self);
  bool is_good = text && text[0] && strlen(text) < QN_IDENTITY_BYTES;
  if (is_good) (void)snprintf(out_identity, QN_IDENTITY_BYTES, "%s", text);
  table->destroy(self);
  if (is_good) return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                        "code generator '%s' gives no identity of at most %d characters",
                        table->name, QN_IDENTITY_BYTES - 1);
}

qn_status_t qn_codegen_register(const qn_codegen_t* table) {
  QN_REQUIRE(table);
  qn_codegen_t copy;
  QN_TRY(read_table(table, &copy));
  table = &copy;
  QN_TRY(qn__generator_check_name(table->name));
  char identity[QN_IDENTITY_BYTES] = "";  // of a described generator: the engine makes it
  if (!qn__generator_info_find(table->name)) QN_TRY(ask_identity(table, identity));
  qn_status_t status = QN_OK;
  const char* taken;
  (void)pthread_mutex_lock(&registering);
  size_t count = atomic_load_explicit(&registered_count, memory_order_relaxed);
  if (known_table(table->name, &taken)) {
    status = qn_status_make(QN_STATUS_FAILED_PRECONDITION, "there is a code generator '%s' already",
                            table->name);
  } else if (count == REGISTERED_LIMIT) {
    status = qn_status_make(QN_STATUS_FAILED_PRECONDITION,
                            "code generator '%s': %d have been registered, no more can be",
                            table->name, REGISTERED_LIMIT);
  } else {
    assert(!registered[count].table.name);  // readers see only the first `count`
    registered[count].table = copy;
    memcpy(registered[count].identity, identity, sizeof identity);
    atomic_store_explicit(&registered_count, count + 1, memory_order_release);
  }
  (void)pthread_mutex_unlock(&registering);
  return status;
}

// --------------------------------------------------------------------------------------- finding

// Finds the shared object of a generator.
static bool find_object(const char* directories, const char* name, char out[PATH_MAX]) {
  const qn__generator_info_t* info = qn__generator_info_find(name);
  if (!info || !info->object[0]) return qn__plugin_find(directories, name, out);
  memcpy(out, info->object, sizeof info->object);
  return access(out, R_OK) == 0;
}

static bool mapped_id(const qn_codegen_t* table, char out[QN__BUILD_ID_HEX_BYTES]) {
  const void* address;
  memcpy(&address, &table->compile, sizeof address);
  return qn__mapped_build_id(address, out);
}

// More generators that call each other than anybody needs: ends a cycle.
enum { USE_LIMIT = 4 };

static void predict_identity(const char* directories, const char* name, unsigned depth,
                             char identity[QN_IDENTITY_BYTES], char prefix[QN_IDENTITY_BYTES]);

// Hashes what a described generator depends on. Returns what is missing; NULL: nothing.
static const char* hash_parts(const char* directories, const qn__generator_info_t* info,
                              unsigned depth, char out[QN__BUILD_ID_HEX_BYTES]) {
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  const char* missing = qn__generator_info_put_files(info, &text);
  for (size_t i = 0; i < info->given.used_count && !missing; i++) {
    char identity[QN_IDENTITY_BYTES], prefix[QN_IDENTITY_BYTES] = "";
    if (depth < USE_LIMIT) {
      predict_identity(directories, info->given.used[i], depth + 1, identity, prefix);
      qn__buffer_format(&text, "%s\n", identity);
    }
    if (depth == USE_LIMIT || prefix[0]) missing = info->given.used[i];
  }
  if (!missing && !qn__buffer_check(&text)) missing = "memory";
  if (!missing) qn__hash128_hex(qn__xxh128(qn__buffer_as_span(&text), 0), out);
  qn__buffer_deinit(&text);
  return missing;
}

// Predicts, from its files, the identity that a generator will have when it is opened. If the files
// of generator or library cannot be read, also sets the prefix of the identities that are tried
// from bundles. The identity "NAME (not found)" is one that no opened generator has.
static void predict_identity(const char* directories, const char* name, unsigned depth,
                             char identity[QN_IDENTITY_BYTES], char prefix[QN_IDENTITY_BYTES]) {
  char path[PATH_MAX];
  char id[QN__BUILD_ID_HEX_BYTES];
  char library_id[QN__BUILD_ID_HEX_BYTES];
  const char* known = "";
  const qn_codegen_t* table = known_table(name, &known);
  if (known[0]) {
    (void)snprintf(identity, QN_IDENTITY_BYTES, "%s", known);
    return;
  }
  if (table ? !mapped_id(table, id)
            : !find_object(directories, name, path) || !qn__elf_build_id(path, id)) {
    (void)snprintf(identity, QN_IDENTITY_BYTES, "%s (not found)", name);
    (void)snprintf(prefix, QN_IDENTITY_BYTES, "%s ", name);
    return;
  }
  const qn__generator_info_t* info = qn__generator_info_find(name);
  bool is_expected = info != NULL;
  bool has_library = info ? !hash_parts(directories, info, depth, library_id)
                          : qn__compiler_library_id(name, library_id, &is_expected);
  qn__generator_identity(name, id, has_library ? library_id : NULL, identity);
  if (has_library || !is_expected) return;
  // Only the compiler library is missing: accept bundles made by the same build of the generator.
  qn__generator_identity(name, id, "", prefix);
}

// A fork takes both locks, so it waits for a generator that is being opened, and the child gets it
// complete. Therefore code under these locks must not register a fork handler of base/fork.h.
static void fork_prepare(void* self) {
  qn__generators_t* generators = self;
  qn__mutex_lock(&generators->opening);
  qn__mutex_lock(&generators->mutex);
}
static void fork_parent(void* self) {
  qn__generators_t* generators = self;
  qn__mutex_unlock(&generators->mutex);
  qn__mutex_unlock(&generators->opening);
}
static void fork_child(void* self) {
  qn__generators_t* generators = self;
  qn_status_free(qn__mutex_init(&generators->opening));
  qn_status_free(qn__mutex_init(&generators->mutex));
}

qn_status_t qn__generators_init(qn__generators_t* generators, const char* directories) {
  memset(generators, 0, sizeof *generators);
  generators->directories = directories;
  QN_TRY(qn__mutex_init(&generators->opening));
  QN_TRY(qn__mutex_init(&generators->mutex));
  generators->fork_node = (qn__fork_node_t){
      .self = generators, .prepare = fork_prepare, .parent = fork_parent, .child = fork_child};
  if (!qn__fork_register(&generators->fork_node)) return qn__out_of_memory("a fork handler");
  return QN_OK;
}

void qn__generators_deinit(qn__generators_t* generators) {
  if (generators->fork_node.self) qn__fork_unregister(&generators->fork_node);
  for (uint32_t i = 0; i < generators->count; i++) {
    qn__generator_t* item = &generators->items[i];
    if (item->table) item->table->destroy(item->self);
  }
  qn__mutex_deinit(&generators->mutex);
  qn__mutex_deinit(&generators->opening);
}

void qn__generators_use_bundles(qn__generators_t* generators, const qn__bundle_t* const* bundles,
                                size_t count) {
  qn__mutex_lock(&generators->mutex);
  generators->bundles = bundles;
  generators->bundle_count = count;
  qn__mutex_unlock(&generators->mutex);
}

// Returns the n-th distinct identity with the prefix that the bundles name; NULL beyond the last.
static const char* bundle_identity(const qn__generators_t* generators, const char* prefix,
                                   uint32_t n) {
  size_t size = strlen(prefix);
  for (size_t i = 0; i < generators->bundle_count; i++) {
    uint32_t count = qn__bundle_identity_count(generators->bundles[i]);
    for (uint32_t k = 0; k < count; k++) {
      const char* identity = qn__bundle_identity(generators->bundles[i], k);
      if (strncmp(identity, prefix, size) != 0) continue;
      bool is_new = true;
      for (size_t j = 0; j < i && is_new; j++) {
        uint32_t other_count = qn__bundle_identity_count(generators->bundles[j]);
        for (uint32_t l = 0; l < other_count && is_new; l++) {
          is_new = strcmp(qn__bundle_identity(generators->bundles[j], l), identity) != 0;
        }
      }
      if (is_new && n-- == 0) return identity;
    }
  }
  return NULL;
}

static bool alternative_locked(const qn__generators_t* generators, const qn__generator_t* item,
                               uint32_t n, char out_identity[256]) {
  const char* identity = NULL;
  if (item->prefix[0] && !item->table) identity = bundle_identity(generators, item->prefix, n);
  if (!identity && n == 0) identity = item->identity;
  if (!identity) return false;
  (void)snprintf(out_identity, 256, "%s", identity);
  return true;
}

bool qn__generators_alternative(qn__generators_t* generators, uint32_t index, uint32_t n,
                                char out_identity[256]) {
  qn__mutex_lock(&generators->mutex);
  bool is_there = alternative_locked(generators, &generators->items[index], n, out_identity);
  qn__mutex_unlock(&generators->mutex);
  return is_there;
}

bool qn__generators_is_installed(qn__generators_t* generators, uint32_t index) {
  qn__mutex_lock(&generators->mutex);
  const qn__generator_t* item = &generators->items[index];
  bool is_installed = item->table || item->prefix[0] == '\0';
  qn__mutex_unlock(&generators->mutex);
  return is_installed;
}

qn_status_t qn__generators_find(qn__generators_t* generators, const char* name, uint32_t* out_index,
                                char out_identity[256]) {
  qn_status_t status = QN_OK;
  qn__mutex_lock(&generators->mutex);
  uint32_t index = 0;
  while (index < generators->count && strcmp(generators->items[index].name, name) != 0) index++;
  qn__generator_t* item = &generators->items[index];
  if (index == generators->count) {
    if (index == QN__MAX_GENERATORS || strlen(name) >= sizeof item->name) {
      status = qn_status_make(QN_STATUS_UNSUPPORTED,
                              "code generator '%s': an engine knows at most %u, with short names",
                              name, QN__MAX_GENERATORS);
    } else {
      (void)snprintf(item->name, sizeof item->name, "%s", name);
      predict_identity(generators->directories, name, 0, item->identity, item->prefix);
      generators->count++;
    }
  }
  if (qn_ok(status)) {
    *out_index = index;
    (void)alternative_locked(generators, item, 0, out_identity);
  }
  qn__mutex_unlock(&generators->mutex);
  return status;
}

// Opens the shared object of a generator and copies its table into the item.
static qn_status_t open_library(const char* directories, qn__generator_t* item) {
  char path[PATH_MAX];
  if (!find_object(directories, item->name, path)) {
    const qn__generator_info_t* info = qn__generator_info_find(item->name);
    const char* remedy =
        info && info->object[0] ? "it belongs beside its plugin" : qn__plugin_remedy(item->name);
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "code generator '%s' is not installed: no %s; %s, or use --target interp",
                          item->name, path, remedy ? remedy : "set QUERN_GENERATOR_DIR");
  }
  void* symbol;
  QN_TRY(qn__plugin_open_file(item->name, path, QN_CODEGEN_ENTRY_SYMBOL, &symbol));
  qn_codegen_entry_fn_t entry;
  memcpy(&entry, &symbol, sizeof entry);
  const qn_codegen_t* table = entry(QN_CODEGEN_ABI_VERSION);
  if (!table) {
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "%s does not serve version %u of the generator's table", path,
                          QN_CODEGEN_ABI_VERSION);
  }
  qn_status_t status = read_table(table, &item->opened);
  if (qn_ok(status)) return QN_OK;
  qn_status_t unavailable =
      qn_status_make(QN_STATUS_UNAVAILABLE, "%s: %s", path, qn_status_message(status));
  qn_status_free(status);
  return unavailable;
}

// Gives the identity of a generator that is open.
static qn_status_t own_identity(const char* directories, const char* name,
                                const qn_codegen_t* table, void* self,
                                char out[QN_IDENTITY_BYTES]) {
  const qn__generator_info_t* info = qn__generator_info_find(name);
  if (!info) {
    const char* identity = table->identity(self);
    if (identity && strlen(identity) < QN_IDENTITY_BYTES) {
      memcpy(out, identity, strlen(identity) + 1);
      return QN_OK;
    }
    // Truncated, it could match another build, and both would share keys.
    return qn_status_make(QN_STATUS_UNAVAILABLE,
                          "code generator '%s' gives no identity of at most %d characters", name,
                          QN_IDENTITY_BYTES - 1);
  }
  char id[QN__BUILD_ID_HEX_BYTES], library_id[QN__BUILD_ID_HEX_BYTES];
  if (!mapped_id(table, id)) return no_build_id(name);
  const char* missing = hash_parts(directories, info, 0, library_id);
  if (missing) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "code generator '%s' needs '%.200s': not found",
                          name, missing);
  }
  qn__generator_identity(name, id, library_id, out);
  return QN_OK;
}

// Opens a generator without holding `mutex`, so that a slow load does not delay lookups of other
// keys. That is safe because only one thread opens at a time (`opening`), and the members read here
// change only when a generator opens.
static qn_status_t open_generator(const char* directories, qn__generator_t* item,
                                  const qn_codegen_t** out_table, void** out_self,
                                  char out_identity[QN_IDENTITY_BYTES]) {
  const char* known;
  const qn_codegen_t* table = known_table(item->name, &known);
  if (!table) {
    QN_TRY(open_library(directories, item));
    table = &item->opened;
  }
  QN_TRY(table->create(out_self));
  qn_status_t status = own_identity(directories, item->name, table, *out_self, out_identity);
  if (!qn_ok(status)) {
    table->destroy(*out_self);
    return status;
  }
  if (strcmp(out_identity, item->identity) != 0) {
    qn__log(QN_LOG_INFO, "code generator '%s' is '%s'; from its files '%s' was expected",
            item->name, out_identity, item->identity);
  }
  if (!builtin_table(item->name)) qn__fork_watch_exit();
  *out_table = table;
  return QN_OK;
}

static bool take_open(qn__generators_t* generators, uint32_t index, const qn_codegen_t** out_table,
                      void** out_self, char out_identity[256]) {
  qn__mutex_lock(&generators->mutex);
  const qn__generator_t* item = &generators->items[index];
  bool is_open = item->table != NULL;
  assert(index < generators->count);
  if (is_open) {
    *out_table = item->table;
    *out_self = item->self;
    memcpy(out_identity, item->identity, sizeof item->identity);
  }
  qn__mutex_unlock(&generators->mutex);
  return is_open;
}

qn_status_t qn__generators_open(qn__generators_t* generators, uint32_t index,
                                const qn_codegen_t** out_table, void** out_self,
                                char out_identity[256]) {
  if (take_open(generators, index, out_table, out_self, out_identity)) return QN_OK;
  qn__generator_t* item = &generators->items[index];
  qn_status_t status = QN_OK;
  qn__mutex_lock(&generators->opening);
  if (!take_open(generators, index, out_table, out_self, out_identity)) {
    const qn_codegen_t* table = NULL;
    void* self = NULL;
    char identity[QN_IDENTITY_BYTES];
    status = open_generator(generators->directories, item, &table, &self, identity);
    if (qn_ok(status)) {
      qn__mutex_lock(&generators->mutex);
      assert(!item->table);  // `opening` admits one thread
      memcpy(item->identity, identity, sizeof identity);
      item->self = self;
      item->table = table;
      qn__mutex_unlock(&generators->mutex);
      (void)take_open(generators, index, out_table, out_self, out_identity);
    }
  }
  qn__mutex_unlock(&generators->opening);
  return status;
}

bool qn__generators_begin_work(qn__generators_t* generators, uint32_t index) {
  qn__generator_t* item = &generators->items[index];
  bool is_first = !builtin_table(item->name) && !atomic_load(&item->has_worked);
  if (is_first) qn__exit_hold();
  return is_first;
}

void qn__generators_end_work(qn__generators_t* generators, uint32_t index, bool is_first) {
  if (!is_first) return;
  qn__mutex_lock(&generators->mutex);
  bool is_open = generators->items[index].table != NULL;
  qn__mutex_unlock(&generators->mutex);
  if (is_open) atomic_store(&generators->items[index].has_worked, true);
  qn__exit_release();
}
