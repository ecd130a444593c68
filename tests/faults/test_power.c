// SPDX-License-Identifier: Apache-2.0
// tests/faults/test_power.c: tests power loss between any two file calls. After it, unsynced writes
// are lost, zero or torn, and names have any of their former states.
//
// On a disk that honours fdatasync, every entry is afterwards either correct or absent, and none is
// damaged. On a disk that ignores fdatasync some entries are damaged, including ones with the right
// size and an intact header that only the checksum detects. These are misses and are replaced. The
// second test also proves that the model can produce damage. See power.h for the model.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache/bundle_write.h"
#include "tests/support/power.h"
#include "tests/unit/cache/support.h"

#define PATIENCE_NS INT64_C(60000000000)
#define SAMPLE_COUNT 6u

static sample_t samples[SAMPLE_COUNT];
static char state_root[QN_TEST_PATH_SIZE];  // holds the state after the power loss
static bool is_full;

typedef struct sums {
  unsigned long states, names_lost, files_torn;
  unsigned long hits, absent, refused, healed;
  unsigned long passable;  // refused entries with the right size and an intact head
} sums_t;

static int set_up(void** state) {
  if (cache_set_up(state) != 0 || !qn_test_tempdir_make(state_root)) return -1;
  return 0;
}

static int tear_down(void** state) {
  qn_power_remove();
  qn_power_forget();
  qn_test_tempdir_remove(state_root);
  return cache_tear_down(state);
}

static qn__disk_t* open_at(const char* root, uint64_t max_entries) {
  qn__disk_options_t options = {.root = root, .sweep_period_ns = -1, .max_entries = max_entries};
  qn__disk_t* disk;
  qn_status_t status = qn__disk_open(&options, &disk);
  if (!disk) fail_msg("%s", qn_status_message(status));
  qn_status_free(status);
  return disk;
}

// Fills a directory, reads, replaces, sweeps and partly empties it, and fills it again.
static void live(const char* root, bool is_long) {
  qn__disk_t* disk = open_at(root, SAMPLE_COUNT - 1);
  qn__hit_t hit;
  for (unsigned i = 0; i < SAMPLE_COUNT; i++) {
    assert_true(put_and_wait(disk, &samples[i]));
    assert_int_equal(qn__disk_get(disk, &samples[i].expected, &hit), QN__GET_HIT);
    qn__disk_hit_release(disk, &hit);
  }
  if (is_long) {
    assert_true(qn__disk_sweep(disk));
    assert_true(put_and_wait(disk, &samples[1]));
    (void)qn__disk_remove(disk, samples[2].entry.key);
    for (unsigned i = 0; i < SAMPLE_COUNT; i += 2) assert_true(put_and_wait(disk, &samples[i]));
  }
  qn__disk_close(disk, PATIENCE_NS);
}

static void path_of(const sample_t* sample, char out[QN_TEST_PATH_SIZE + 64]) {
  char hex[33];
  qn__hash128_hex(sample->entry.key, hex);
  (void)snprintf(out, QN_TEST_PATH_SIZE + 64, "%s/v1/%.2s/%s.k", state_root, hex, hex + 2);
}

// Returns whether a reader without checksums would accept the file: its size, header and preimage
// are right, but its bytes differ from the entry's.
static bool would_pass_without_checksum(const sample_t* sample) {
  static uint8_t found[1 << 17];
  char path[QN_TEST_PATH_SIZE + 64];
  path_of(sample, path);
  long size = qn_test_read_file(path, found, sizeof found);
  if (size <= 0 || (size_t)size != qn__entry_size(&sample->entry)) return false;
  qn__buffer_t wanted;
  qn__buffer_init(&wanted, qn_allocator_default());
  assert_true(qn__entry_encode(&sample->entry, &wanted));
  size_t head = QN__ENTRY_HEADER_BYTES + sample->preimage.size;
  bool passes =
      memcmp(found, wanted.data, head) == 0 && memcmp(found, wanted.data, wanted.size) != 0;
  qn__buffer_deinit(&wanted);
  return passes;
}

static void check_state(sums_t* sums, bool may_be_damaged) {
  qn__disk_t* disk = open_at(state_root, 0);
  for (unsigned i = 0; i < SAMPLE_COUNT; i++) {
    bool is_passable = would_pass_without_checksum(&samples[i]);
    qn__hit_t hit;
    qn__get_result_t result = qn__disk_get(disk, &samples[i].expected, &hit);
    switch (result) {
      case QN__GET_HIT:
        assert_true(sample_equals(&samples[i], &hit.entry));
        assert_false(is_passable);
        sums->hits++;
        break;
      case QN__GET_ABSENT:
        sums->absent++;
        break;
      case QN__GET_BAD:
        if (!may_be_damaged) {
          fail_msg("an entry is damaged (%s) although it was synced before it had a name",
                   qn__reason_name(hit.reason));
        }
        sums->refused++;
        sums->passable += is_passable;
        break;
      default:
        fail_msg("get gives %d", (int)result);
    }
    qn__disk_hit_release(disk, &hit);
  }
  sums->healed += qn__disk_counter(disk, "disk_healed");
  // The directory can be used again.
  for (unsigned i = 0; i < SAMPLE_COUNT; i++) {
    assert_true(put_and_wait(disk, &samples[i]));
    qn__hit_t hit;
    assert_int_equal(qn__disk_get(disk, &samples[i].expected, &hit), QN__GET_HIT);
    assert_true(sample_equals(&samples[i], &hit.entry));
    qn__disk_hit_release(disk, &hit);
  }
  qn__disk_close(disk, PATIENCE_NS);
}

// Tests several states for every cut of the record.
static void check_all_states(sums_t* sums, bool may_be_damaged, uint64_t states_per_cut) {
  qn_power_remove();
  size_t events = qn_power_event_count();
  assert_true(events > 10);
  for (size_t cut = 0; cut <= events; cut++) {
    for (uint64_t seed = 1; seed <= states_per_cut; seed++) {
      qn_power_damage_t damage;
      qn_power_materialise(state_root, cut, seed, &damage);
      sums->states++;
      sums->names_lost += damage.lost_names;
      sums->files_torn += damage.torn_files;
      check_state(sums, may_be_damaged);
    }
  }
}

static void print_sums(const char* what, const sums_t* sums) {
  (void)printf(
      "%s: %lu states of the disk, %lu names lost, %lu files torn; %lu hits, %lu absent, "
      "%lu refused (%lu of them only by the checksum), %lu healed\n",
      what, sums->states, sums->names_lost, sums->files_torn, sums->hits, sums->absent,
      sums->refused, sums->passable, sums->healed);
}

static void an_honest_disk(void** state) {
  (void)state;
  sums_t sums = {0};
  // Starts once with an empty directory, and once with durable entries.
  for (int round = 0; round < 2; round++) {
    qn_power_install(cache_root, QN_POWER_HONEST);
    live(cache_root, true);
    check_all_states(&sums, false, is_full ? 200 : 8);
  }
  print_sums("honest disk", &sums);
  assert_true(sums.names_lost > 100);
  assert_true(sums.files_torn > 10);  // temporary files
  assert_true(sums.hits > 100 && sums.absent > 100);
  assert_int_equal(sums.refused, 0);
}

static void a_disk_that_lies(void** state) {
  (void)state;
  sums_t sums = {0};
  qn_power_install(cache_root, QN_POWER_LIES);
  live(cache_root, true);
  check_all_states(&sums, true, is_full ? 200 : 20);
  print_sums("disk that lies about fdatasync", &sums);
  assert_true(sums.refused > 50);
  assert_true(sums.passable > 10);
  assert_int_equal(sums.healed, sums.refused);
  assert_true(sums.hits > 50);
}

// Loses power a second time, while the recovered directory is filled again.
static void twice(void** state) {
  (void)state;
  sums_t sums = {0};
  char first[QN_TEST_PATH_SIZE];
  assert_true(qn_test_tempdir_make(first));
  for (uint64_t seed = 1; seed <= (is_full ? 60 : 6); seed++) {
    qn_power_install(cache_root, QN_POWER_LIES);
    live(cache_root, false);
    qn_power_remove();
    qn_power_materialise(first, (size_t)(seed * 7) % qn_power_event_count(), seed, NULL);
    // Damage of the first loss is durable in the second.
    qn_power_install(first, QN_POWER_HONEST);
    live(first, false);
    check_all_states(&sums, true, 1);
  }
  print_sums("twice", &sums);
  qn_test_tempdir_remove(first);
}

// --------------------------------------------------------------------------------------- bundles

#define OLD_COUNT 2u  // entries of the bundle that is there before

static void write_bundle(const char* path, unsigned count, bool is_appending) {
  qn__bundle_write_options_t options = {.path = path, .is_appending = is_appending};
  qn__bundle_writer_t* writer;
  qn_status_t status = qn__bundle_writer_create(&options, &writer);
  for (unsigned i = is_appending ? OLD_COUNT : 0; qn_ok(status) && i < count; i++) {
    qn__buffer_t bytes;
    qn__buffer_init(&bytes, qn_allocator_default());
    assert_true(qn__entry_encode(&samples[i].entry, &bytes));
    status = qn__bundle_writer_add(writer, qn__buffer_as_span(&bytes));
    qn__buffer_deinit(&bytes);
  }
  if (qn_ok(status)) status = qn__bundle_writer_finish(writer);
  if (!qn_ok(status)) fail_msg("%s", qn_status_message(status));
  qn__bundle_writer_destroy(writer);
}

// Counts the correct entries of the recovered bundle. Returns -1 without a bundle, -2 if it does
// not open.
static int read_bundle(sums_t* sums, bool* out_is_cut) {
  char path[QN_TEST_PATH_SIZE + 16];
  (void)snprintf(path, sizeof path, "%s/bundle", state_root);
  *out_is_cut = false;
  if (access(path, F_OK) != 0) return -1;
  qn__bundle_options_t options = {.path = path};
  qn__bundle_t* bundle;
  if (qn_status_consume(qn__bundle_open(&options, &bundle)) != QN_STATUS_OK) return -2;
  int count = 0;
  for (unsigned i = 0; i < SAMPLE_COUNT; i++) {
    qn__hit_t hit;
    qn__get_result_t result = qn__bundle_get(bundle, &samples[i].expected, &hit);
    if (result == QN__GET_HIT) {
      assert_true(sample_equals(&samples[i], &hit.entry));
      count++;
    }
    sums->hits += result == QN__GET_HIT;
    sums->absent += result == QN__GET_ABSENT;
    sums->refused += result == QN__GET_BAD;
    qn__bundle_hit_release(bundle, &hit);
  }
  *out_is_cut = qn__bundle_is_truncated(bundle);
  qn__bundle_close(bundle);
  return count;
}

typedef enum bundle_case { CASE_NEW, CASE_OVER, CASE_APPEND, CASE_COUNT } bundle_case_t;

static void bundles(void** state) {
  (void)state;
  for (int disk = QN_POWER_HONEST; disk <= QN_POWER_LIES; disk++) {
    sums_t sums = {0};
    for (int which = 0; which < CASE_COUNT; which++) {
      char path[QN_TEST_PATH_SIZE + 16];
      (void)snprintf(path, sizeof path, "%s/bundle", cache_root);
      (void)unlink(path);
      if (which != CASE_NEW) write_bundle(path, OLD_COUNT, false);
      qn_power_install(cache_root, (qn_power_disk_t)disk);
      write_bundle(path, SAMPLE_COUNT, which == CASE_APPEND);
      qn_power_remove();
      size_t events = qn_power_event_count();
      assert_true(events > SAMPLE_COUNT - OLD_COUNT);
      for (size_t cut = 0; cut <= events; cut++) {
        for (uint64_t seed = 1; seed <= (is_full ? 2000 : 60); seed++) {
          bool is_cut;
          qn_power_damage_t damage;
          qn_power_materialise(state_root, cut, seed, &damage);
          sums.states++;
          sums.names_lost += damage.lost_names;
          sums.files_torn += damage.torn_files;
          int count = read_bundle(&sums, &is_cut);
          bool is_fine = true;
          if (disk == QN_POWER_HONEST) {
            // After a rename: no bundle, the old one or the new one, and always whole.
            bool is_before = which == CASE_NEW ? count == -1 : count == OLD_COUNT;
            is_fine = !is_cut && (is_before || count == SAMPLE_COUNT);
          }
          if (!is_fine) {
            fail_msg("case %d, disk %d, before call %zu, seed %d: %d entries%s", which, disk, cut,
                     (int)seed, count, is_cut ? ", cut" : "");
          }
        }
      }
    }
    print_sums(disk == QN_POWER_HONEST ? "bundles, honest disk" : "bundles, disk that lies", &sums);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(an_honest_disk),
      TEST(a_disk_that_lies),
      TEST(twice),
      TEST(bundles),
  };
  if (access("/dev/shm", W_OK) == 0) (void)setenv("TMPDIR", "/dev/shm", 0);
  is_full = getenv("QUERN_FAULTS_FULL") != NULL;
  for (unsigned i = 0; i < SAMPLE_COUNT; i++) sample_make(&samples[i], i, i * i * 700);
  int result = cmocka_run_group_tests(tests, NULL, NULL);
  for (unsigned i = 0; i < SAMPLE_COUNT; i++) sample_free(&samples[i]);
  return result;
}
