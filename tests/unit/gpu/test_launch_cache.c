// SPDX-License-Identifier: Apache-2.0
// tests/unit/gpu/test_launch_cache.c: tests that cached launch steps give the same results as
// evaluating them, also between threads.
// ctest-labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <pthread.h>

#include "devices/gpu/launch_cache.h"
#include "devices/gpu/plan.h"
#include "tests/unit/gpu/expr.h"

// ceil(n * m / 8) blocks of k threads; 32-bit indices up to n * m = 5000.
EXPR(blocks, WORD(1), WORD(2), APPLY(MUL), CONST(8), APPLY(CEILDIV));
EXPR(threads, WORD(3));
EXPR(guard, WORD(1), WORD(2), APPLY(MUL), CONST(5000), APPLY(LE));
EXPR(positive, WORD(3), CONST(0), APPLY(GT));
EXPR(local, LOCAL(0), CONST(1), APPLY(ADD), CONST(1), APPLY(ADD));
EXPR(many, WORD(0), WORD(1), APPLY(ADD), WORD(2), APPLY(ADD), WORD(3), APPLY(ADD), WORD(4),
     APPLY(ADD), WORD(5), APPLY(ADD));
EXPR(constant, CONST(1), CONST(2), APPLY(ADD), CONST(3), APPLY(ADD));

static const qn_gpu_arg_t args[] = {
    {.kind = QN_GPU_ARG_BUFFER, .index = 0, .size_bytes = 4, .is_written = true},
    {.kind = QN_GPU_ARG_WORD, .index = 2, .size_bytes = 8},
};
static const qn__gpu_kernel_t kernels[] = {
    {.name = "narrow", .arg_count = 2, .args = args},
    {.name = "wide", .thread_count = 64, .arg_count = 2, .args = args},
};

enum { WORDS = 4, MAX_THREADS = 256 };

static void decode(const qn__gpu_step_t* steps, uint32_t count, qn__arena_t* arena,
                   qn__gpu_plan_t* out_plan) {
  qn__gpu_function_t function = {
      .word_count = 6, .param_count = 1, .local_count = 1, .step_count = count, .steps = steps};
  qn__gpu_plan_t plan = {
      .function_count = 1, .functions = &function, .kernel_count = 2, .kernels = kernels};
  qn__buffer_t bytes;
  qn__buffer_init(&bytes, qn_allocator_default());
  qn__gpu_plan_encode(&plan, &bytes);
  assert_true(qn_ok(qn__gpu_plan_decode((qn_span_t){bytes.data, bytes.size}, 0, arena, out_plan)));
  qn__buffer_deinit(&bytes);
}

static void decode_step(uint32_t wide_kernel, qn__arena_t* arena, qn__gpu_plan_t* out_plan) {
  qn__gpu_step_t step = {.kind = QN__GPU_STEP_LAUNCH,
                         .a = blocks,
                         .b = threads,
                         .guard = guard,
                         .kernel = 0,
                         .wide_kernel = wide_kernel};
  decode(&step, 1, arena, out_plan);
  assert_non_null(out_plan->functions[0].steps[0].cache);
}

// ---- a backend that checks each launch against the words of its call

typedef struct checker {
  const uint64_t* words;
  int launches;
  int mistakes;
} checker_t;

static qn_status_t launch_it(void* self, const qn_gpu_launch_t* launch) {
  checker_t* checker = self;
  const uint64_t* words = checker->words;
  uint64_t size = words[1] * words[2];
  bool is_narrow = size <= 5000;
  bool is_right =
      launch->block_count == (int64_t)((size + 7) / 8) && launch->kernel == (is_narrow ? 0 : 1) &&
      launch->thread_count == (is_narrow ? words[3] : 64) && launch->values[0] == words[0] &&
      launch->ends[0] == words[0] + 1 && launch->values[1] == words[2];
  checker->launches++;
  checker->mistakes += !is_right;
  return QN_OK;
}

static qn_status_t run(const qn__gpu_plan_t* plan, checker_t* checker, uint64_t n, uint64_t m,
                       uint64_t k) {
  uint64_t words[6] = {n * 1000 + m, n, m, k, 0, 0}, ends[1] = {words[0] + 1};
  checker->words = words;
  qn_launch_t launch = {.words = words, .word_count = 6, .ends = ends};
  const qn_gpu_plan_t loaded = {
      .decoded = *plan, .runner = {.launch = launch_it}, .max_threads = MAX_THREADS};
  return qn_gpu_plan_run(&loaded, 0, &launch, checker);
}

static void which_steps_remember(void** state) {
  (void)state;
  const struct {
    const qn__gpu_expr_t* a;
    const qn__gpu_expr_t* b;
    bool has_memo;
    uint32_t word_count;
  } cases[] = {
      {&blocks, &threads, true, 3},                                    // each word once
      {&constant, &threads, true, 1}, {&threads, &threads, false, 0},  // as short as a look
      {&many, &threads, false, 0},                                     // more words than a line has
      {&local, &threads, false, 0},                                    // a local is not of the call
      {&blocks, &local, false, 0},
  };
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  for (size_t i = 0; i < QN_COUNT_OF(cases); i++) {
    qn__gpu_step_t step = {.kind = QN__GPU_STEP_LAUNCH, .a = *cases[i].a, .b = *cases[i].b};
    const qn__gpu_launch_cache_t* cache = qn__gpu_launch_cache_make(&step, &arena);
    assert_int_equal(cache != NULL, cases[i].has_memo);
    if (!cache) continue;
    assert_int_equal(cache->word_count, cases[i].word_count);
    assert_int_equal((uintptr_t)cache->lines % sizeof *cache->lines, 0);
  }
  qn__arena_deinit(&arena);
}

static void what_is_remembered_is_right(void** state) {
  (void)state;
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  qn__gpu_plan_t plan;
  decode_step(1, &arena, &plan);
  checker_t checker = {.launches = 0};
  uint64_t random = 1;
  for (int i = 0; i < 20000; i++) {
    random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    uint64_t n = 40 + (random >> 33) % 6 * 30, m = 1 + (random >> 43) % 40,
             k = 1 + (random >> 53) % 3;
    assert_true(qn_ok(run(&plan, &checker, n, m, k)));
    assert_true(qn_ok(run(&plan, &checker, n, m, k)));
  }
  assert_int_equal(checker.launches, 40000);
  assert_int_equal(checker.mistakes, 0);
  // Nothing to launch stays nothing.
  assert_true(qn_ok(run(&plan, &checker, 0, 7, 1)));
  assert_true(qn_ok(run(&plan, &checker, 0, 7, 1)));
  assert_true(qn_ok(run(&plan, &checker, 7, 7, 0)));
  assert_true(qn_ok(run(&plan, &checker, 7, 7, 0)));
  assert_int_equal(checker.launches, 40000);
  qn__arena_deinit(&arena);
}

// An arm is chosen from memory, too.
static void choices_remember(void** state) {
  (void)state;
  const qn__gpu_step_t steps[] = {
      {.kind = QN__GPU_STEP_IF, .a = positive, .guard = guard, .body_count = 1, .else_count = 1},
      {.kind = QN__GPU_STEP_LAUNCH,
       .a = blocks,
       .b = threads,
       .kernel = 0,
       .wide_kernel = QN__GPU_NO_KERNEL},
      {.kind = QN__GPU_STEP_LAUNCH, .a = blocks, .kernel = 1, .wide_kernel = QN__GPU_NO_KERNEL},
  };
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  qn__gpu_plan_t plan;
  decode(steps, QN_COUNT_OF(steps), &arena, &plan);
  const qn__gpu_launch_cache_t* cache = plan.functions[0].steps[0].cache;
  assert_non_null(cache);
  assert_int_equal(cache->word_count, 3);
  checker_t checker = {.launches = 0};
  uint64_t random = 1;
  for (int i = 0; i < 20000; i++) {
    random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    uint64_t n = 40 + (random >> 33) % 6 * 30, m = 1 + (random >> 43) % 40;
    assert_true(qn_ok(run(&plan, &checker, n, m, 1 + (uint64_t)i % 2)));
    assert_true(qn_ok(run(&plan, &checker, n, m, 1 + (uint64_t)i % 2)));
  }
  assert_int_equal(checker.launches, 40000);
  assert_int_equal(checker.mistakes, 0);
  qn__arena_deinit(&arena);
}

static void it_answers_for_the_same_words_alone(void** state) {
  (void)state;
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  qn__gpu_plan_t plan;
  decode_step(1, &arena, &plan);
  qn__gpu_launch_cache_t* cache = plan.functions[0].steps[0].cache;
  uint64_t words[6] = {0, 10, 20, 30, 0, 0};
  qn__gpu_grid_t grid;
  assert_false(qn__gpu_launch_cache_find(cache, words, &grid));
  // Nobody has written a line of noughts.
  assert_false(qn__gpu_launch_cache_find(cache, (uint64_t[6]){0}, &grid));
  qn__gpu_launch_cache_note(cache, words, &(qn__gpu_grid_t){INT64_C(1) << 40, 1, UINT32_MAX});
  assert_true(qn__gpu_launch_cache_find(cache, words, &grid));
  assert_true(grid.block_count == INT64_C(1) << 40 && grid.kernel == 1);
  assert_true(grid.thread_count == UINT32_MAX);
  // Words that no expression reads do not count; each of the others does.
  words[0] = 5;
  words[4] = 6;
  assert_true(qn__gpu_launch_cache_find(cache, words, &grid));
  for (size_t i = 1; i < WORDS; i++) {
    words[i] ^= UINT64_C(1) << 63;
    assert_false(qn__gpu_launch_cache_find(cache, words, &grid));
    words[i] ^= UINT64_C(1) << 63;
  }
  // A line that is being written is not read, and its writer is not waited for.
  for (size_t i = 0; i < QN__GPU_LAUNCH_CACHE_LINES; i++)
    atomic_fetch_add(&cache->lines[i].sequence, 1);
  assert_false(qn__gpu_launch_cache_find(cache, words, &grid));
  qn__gpu_launch_cache_note(cache, words, &(qn__gpu_grid_t){1, 0, 1});
  for (size_t i = 0; i < QN__GPU_LAUNCH_CACHE_LINES; i++)
    atomic_fetch_sub(&cache->lines[i].sequence, 1);
  assert_true(qn__gpu_launch_cache_find(cache, words, &grid));
  assert_true(grid.block_count == INT64_C(1) << 40);
  qn__arena_deinit(&arena);
}

static void refusals_are_not_remembered(void** state) {
  (void)state;
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  qn__gpu_plan_t plan;
  decode_step(QN__GPU_NO_KERNEL, &arena, &plan);
  checker_t checker = {.launches = 0};
  for (int i = 0; i < 3; i++) {
    const uint64_t bad[][3] = {
        {100, 100, 1}, {1, 1, MAX_THREADS + 1}, {UINT64_C(1) << 40, 1 << 30, 1}};
    for (size_t b = 0; b < QN_COUNT_OF(bad); b++) {
      qn_status_t status = run(&plan, &checker, bad[b][0], bad[b][1], bad[b][2]);
      assert_int_equal(qn_status_code(status), QN_STATUS_VALUE_ERROR);
      qn_status_free(status);
    }
    assert_true(qn_ok(run(&plan, &checker, 50, 100, 7)));
  }
  assert_int_equal(checker.launches, 3);
  assert_int_equal(checker.mistakes, 0);
  qn__arena_deinit(&arena);
}

// ---- threads that alternate between shapes, some the same, some not

typedef struct job {
  const qn__gpu_plan_t* plan;
  uint64_t seed;
  checker_t checker;
  bool has_failed;
} job_t;

static void* alternate(void* arg) {
  job_t* job = arg;
  for (uint64_t i = 0; i < 20000; i++) {
    uint64_t n = 40 + (i + job->seed) % 3 * 50, m = 30 + (i / 7) % 2, k = 1 + job->seed % 2;
    qn_status_t status = run(job->plan, &job->checker, n, m, k);
    job->has_failed |= !qn_ok(status);
    qn_status_free(status);
  }
  return NULL;
}

static void threads_alternate_between_shapes(void** state) {
  (void)state;
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  qn__gpu_plan_t plan;
  decode_step(1, &arena, &plan);
  enum { THREADS = 4 };
  pthread_t threads_of[THREADS];
  job_t jobs[THREADS];
  for (uint64_t i = 0; i < THREADS; i++) {
    jobs[i] = (job_t){.plan = &plan, .seed = i};
    assert_int_equal(pthread_create(&threads_of[i], NULL, alternate, &jobs[i]), 0);
  }
  for (size_t i = 0; i < THREADS; i++) {
    assert_int_equal(pthread_join(threads_of[i], NULL), 0);
    assert_false(jobs[i].has_failed);
    assert_int_equal(jobs[i].checker.launches, 20000);
    assert_int_equal(jobs[i].checker.mistakes, 0);
  }
  qn__arena_deinit(&arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(which_steps_remember),
      cmocka_unit_test(what_is_remembered_is_right),
      cmocka_unit_test(choices_remember),
      cmocka_unit_test(it_answers_for_the_same_words_alone),
      cmocka_unit_test(refusals_are_not_remembered),
      cmocka_unit_test(threads_alternate_between_shapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
