// SPDX-License-Identifier: Apache-2.0
// Tests the striped reference count against a plain number in one thread, and with many threads
// that retain, release, transfer, open and close at random. The object must be destroyed once, by
// the last release, and after all accesses of the holders.
// ctest-labels: tsan
#include "base/refcount.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/thread.h"

static uint32_t next_random(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

static void test_memory(void** state) {
  (void)state;
  assert_true(qn__stripe_count() >= 1 && qn__stripe_count() <= QN__MAX_STRIPES);
  assert_int_equal(qn__stripe_count() & (qn__stripe_count() - 1), 0);
  // Wherever the memory begins, the stripes lie in it, each in a line of its own.
  uint8_t* memory = malloc(qn__refcount_bytes() + 64);
  assert_non_null(memory);
  for (size_t offset = 0; offset < 64; offset += 16) {
    qn__refcount_t count;
    qn__refcount_init(&count, memory + offset);
    assert_int_equal(count.mask + 1, qn__stripe_count());
    assert_int_equal((uintptr_t)count.stripes % QN__STRIPE_BYTES, 0);
    assert_true((uint8_t*)count.stripes >= memory + offset);
    assert_true((uint8_t*)(count.stripes + qn__stripe_count()) <=
                memory + offset + qn__refcount_bytes());
    assert_true(qn__refcount_release(&count, (uint32_t)offset));
  }
  free(memory);
}

// One thread, all operations in random order, against a plain count.
static void test_against_a_number(void** state) {
  (void)state;
  void* memory = malloc(qn__refcount_bytes());
  assert_non_null(memory);
  uint64_t random = 7;
  for (int round = 0; round < 3000; round++) {
    qn__refcount_t count;
    qn__refcount_init(&count, memory);
    int64_t expected = 1;
    bool is_owned = true;  // the first reference is the owner's
    while (expected != 0) {
      uint32_t what = next_random(&random), stripe = next_random(&random);
      assert_int_equal(qn__refcount_estimate(&count), expected);
      assert_true(qn__refcount_check(&count));
      switch (what % 8) {
        case 0:
          if (is_owned) qn__refcount_open(&count);
          break;
        case 1:
          if (is_owned) qn__refcount_close(&count);
          break;
        case 2:
          if (!is_owned || what % 64 >= 16) break;
          qn__refcount_close(&count);
          is_owned = false;
          expected--;
          assert_int_equal(qn__refcount_release(&count, stripe), expected == 0);
          break;
        case 3:
        case 4:
          qn__refcount_retain(&count, stripe);
          expected++;
          break;
        default:
          if (expected == (is_owned ? 1 : 0)) break;
          expected--;
          assert_int_equal(qn__refcount_release(&count, stripe), expected == 0);
          break;
      }
    }
  }
  free(memory);
}

// ---- threads

enum { HOLDERS = 6, OBJECTS = 3000, OPERATIONS = 200 };

typedef struct object {
  qn__refcount_t count;
  _Atomic int destroyed_count;
  // Written plainly by its holder, read plainly by who destroys: a missing order is a race that
  // ThreadSanitizer sees, and a wrong sum for everybody else.
  struct {
    int64_t touched_count;
    char padding[56];
  } of_holder[HOLDERS];
  _Atomic int64_t touched_count;
  // References that nobody in particular has: a thread takes one out or puts one in.
  _Atomic int parked_count;
  void* memory;
} object_t;

typedef struct shared {
  object_t* objects;
  pthread_barrier_t barrier;
} shared_t;
typedef struct holder {
  shared_t* shared;
  int index;
} holder_t;

static void destroy(object_t* object) {
  int64_t sum = 0;
  for (int i = 0; i < HOLDERS; i++) sum += object->of_holder[i].touched_count;
  assert_int_equal(sum, object->touched_count);
  assert_int_equal(object->parked_count, 0);
  object->destroyed_count++;
}

static void give_back(object_t* object, uint32_t stripe) {
  if (qn__refcount_release(&object->count, stripe)) destroy(object);
}

static bool unpark(object_t* object) {
  int parked = object->parked_count;
  while (parked > 0) {
    if (atomic_compare_exchange_weak(&object->parked_count, &parked, parked - 1)) return true;
  }
  return false;
}

static void hold(object_t* object, int index, uint64_t* random) {
  int own = 1;  // given before the threads met
  for (int i = 0; i < OPERATIONS && own > 0; i++) {
    uint32_t what = next_random(random), stripe = next_random(random);
    assert_int_equal(object->destroyed_count, 0);
    object->of_holder[index].touched_count++;
    object->touched_count++;
    switch (what % 6) {
      case 0:
      case 1:
        qn__refcount_retain(&object->count, stripe);
        own++;
        break;
      case 2:
      case 3:
        if (own > 1 || what % 60 < 6) {
          give_back(object, stripe);
          own--;
        }
        break;
      case 4:  // hands one over, and keeps one
        qn__refcount_retain(&object->count, stripe);
        object->parked_count++;
        break;
      default:
        if (unpark(object)) own++;
        break;
    }
  }
  while (own > 0 && unpark(object)) own++;
  while (own-- > 0) give_back(object, next_random(random));
}

static void* run_holder(void* arg) {
  const holder_t* holder = arg;
  shared_t* shared = holder->shared;
  uint64_t random = (uint64_t)holder->index + 1;
  for (int i = 0; i < OBJECTS; i++) {
    (void)pthread_barrier_wait(&shared->barrier);
    hold(&shared->objects[i], holder->index, &random);
    (void)pthread_barrier_wait(&shared->barrier);
  }
  return NULL;
}

// The owner meanwhile: opens, closes, opens again, and lets go at some time.
static void own(object_t* object, uint64_t* random) {
  uint32_t turns = next_random(random) % 40;
  for (uint32_t i = 0; i < turns; i++) {
    if (next_random(random) % 2) {
      qn__refcount_close(&object->count);
    } else {
      qn__refcount_open(&object->count);
    }
    assert_int_equal(object->destroyed_count, 0);
    (void)qn__refcount_estimate(&object->count);  // any number, but no race
  }
  // What is parked and nobody takes is the owner's to give back: he is not gone before.
  while (unpark(object)) give_back(object, next_random(random));
  qn__refcount_close(&object->count);
}

static void test_threads(void** state) {
  (void)state;
  shared_t shared;
  shared.objects = calloc(OBJECTS, sizeof *shared.objects);
  assert_non_null(shared.objects);
  assert_int_equal(pthread_barrier_init(&shared.barrier, NULL, HOLDERS + 1), 0);
  uint64_t random = 99;
  for (int i = 0; i < OBJECTS; i++) {
    object_t* object = &shared.objects[i];
    object->memory = malloc(qn__refcount_bytes());
    assert_non_null(object->memory);
    qn__refcount_init(&object->count, object->memory);
    if (next_random(&random) % 4) qn__refcount_open(&object->count);
    for (uint32_t h = 0; h < HOLDERS; h++) qn__refcount_retain(&object->count, h);
  }
  pthread_t threads[HOLDERS];
  holder_t holders[HOLDERS];
  for (int h = 0; h < HOLDERS; h++) {
    holders[h] = (holder_t){&shared, h};
    qn_status_t status = qn__thread_start(&threads[h], "holder", 0, run_holder, &holders[h]);
    assert_true(qn_ok(status));
  }
  for (int i = 0; i < OBJECTS; i++) {
    object_t* object = &shared.objects[i];
    (void)pthread_barrier_wait(&shared.barrier);
    bool is_early = i % 2 == 0;
    own(object, &random);
    // Half of the owners let go while the others are at it; then the last holder destroys, unless
    // references are parked behind the owner's back: those count as his.
    if (is_early) give_back(object, 3);
    (void)pthread_barrier_wait(&shared.barrier);
    while (unpark(object)) give_back(object, next_random(&random));
    if (!is_early) {
      assert_int_equal(object->destroyed_count, 0);
      give_back(object, 5);
    }
    assert_int_equal(object->destroyed_count, 1);
  }
  for (int h = 0; h < HOLDERS; h++) assert_int_equal(pthread_join(threads[h], NULL), 0);
  for (int i = 0; i < OBJECTS; i++) free(shared.objects[i].memory);
  (void)pthread_barrier_destroy(&shared.barrier);
  free(shared.objects);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_against_a_number),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
