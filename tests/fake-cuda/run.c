// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// tests/fake-cuda/run.c: runs the blocks of a launch, one after another, on the thread of the
// launch's stream. See fake.h.
//
// Threads of a block run on fibers. A fiber runs one thread after another until a thread waits at a
// barrier. Then the fiber is suspended, and another fiber runs the remaining threads. A kernel
// without barriers thus needs one fiber and no switch. When no thread can run, each complete group
// at a barrier is released. Two defects are reported:
//   1. divergence: threads wait, but no group is complete;
//   2. threads of one group wait at barriers in different lines.
//
// To expose code that depends on an order, fibers resume in ascending and descending order by
// turns, and so do blocks. With FAKE_CUDA_SEED all orders are random, and in half of the launches
// each warp runs ahead of the others as far as possible. Shared memory holds garbage at the start
// of a block. A fault in a kernel becomes the error "illegal address". Built without sanitizers,
// which do not know the fibers' stacks.
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fake-cuda/fake.h"

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

enum { MAX_THREADS = 1024, WARP = 32, STACK_BYTES = 256 << 10, SIGNAL_STACK_BYTES = 64 << 10 };
enum { GARBAGE = 0xa7, MAX_COPIES = 256 };

typedef enum thread_state { READY, AT_BARRIER, AT_GATHER, DONE } thread_state_t;

typedef struct fiber {
#if defined(__x86_64__)
  void* stack_pointer;
#else
  ucontext_t context;
#endif
  unsigned char* stack;
  unsigned thread;  // the thread that it runs
  struct fiber* next_idle;
} fiber_t;

// An asynchronous copy that was not waited for.
typedef struct copy {
  unsigned char* to;
  const void* from;
  unsigned size;
  unsigned group;
} copy_t;

typedef struct lane {
  thread_state_t state;
  fiber_t* fiber;
  unsigned line;  // the barrier's source line
  unsigned mask;
  bool is_fence;
  uint64_t value;
  uint64_t* out_values;
  unsigned out_mask;
  unsigned copy_count;
  unsigned group_count;  // committed
  copy_t copies[MAX_COPIES];
} lane_t;

typedef struct runner {
#if defined(__x86_64__)
  void* stack_pointer;
#else
  ucontext_t context;
#endif
  const fake_kernel_t* kernel;
  void** params;
  unsigned block_threads;
  unsigned next_thread;
  fiber_t* current;
  fiber_t* idle;
  unsigned fiber_count;
  fiber_t fibers[MAX_THREADS];
  lane_t lanes[MAX_THREADS];
  fake_thread_t threads[MAX_THREADS];
  uint64_t random;  // 0: orders are not random
  bool is_ahead;    // warps run ahead of each other
  uint16_t order[MAX_THREADS];
  unsigned char* shared;  // static, then dynamic
  size_t shared_bytes;
  unsigned char* dynamic;
  size_t dynamic_bytes;
  fake_races_t* races;
  volatile bool is_running;
  volatile CUresult fault;
  void* jump[5];
} runner_t;

static _Thread_local runner_t* runner;

// ---------------------------------------------------------------------------------- switching

static void run_threads(void);

#if defined(__x86_64__)
// Switches stacks: saves the callee-saved registers on the old stack and restores those of the new
// one.
void fake_switch(void** save, void* load);
__asm__(
    ".text\n"
    ".globl fake_switch\n"
    ".hidden fake_switch\n"
    ".type fake_switch,@function\n"
    "fake_switch:\n"
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  ret\n"
    ".size fake_switch,.-fake_switch\n");

static void prepare(fiber_t* fiber) {
  void (*entry)(void) = run_threads;
  uint64_t* top = (uint64_t*)(void*)(fiber->stack + STACK_BYTES);
  // The switch pops seven words. At function entry the stack pointer is 8 bytes off a multiple of
  // 16.
  uint64_t* sp = top - 8;
  memset(sp, 0, 8 * sizeof *sp);
  memcpy(&sp[6], &entry, sizeof entry);
  fiber->stack_pointer = sp;
}
static void to_fiber(fiber_t* fiber) {
  fake_switch(&runner->stack_pointer, fiber->stack_pointer);
}
static void to_runner(fiber_t* fiber) {
  fake_switch(&fiber->stack_pointer, runner->stack_pointer);
}
#else
static void prepare(fiber_t* fiber) {
  (void)getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack;
  fiber->context.uc_stack.ss_size = STACK_BYTES;
  makecontext(&fiber->context, run_threads, 0);
}
static void to_fiber(fiber_t* fiber) {
  (void)swapcontext(&runner->context, &fiber->context);
}
static void to_runner(fiber_t* fiber) {
  (void)swapcontext(&fiber->context, &runner->context);
}
#endif

// The main loop of a fiber.
static void run_threads(void) {
  fiber_t* self = runner->current;
  for (;;) {
    while (runner->next_thread < runner->block_threads) {
      self->thread = runner->order[runner->next_thread++];
      runner->lanes[self->thread].copy_count = runner->lanes[self->thread].group_count = 0;
      runner->kernel->call(&runner->threads[self->thread], runner->params);
      runner->lanes[self->thread].state = DONE;
    }
    self->next_idle = runner->idle;
    runner->idle = self;
    to_runner(self);
  }
}

static fiber_t* idle_fiber(void) {
  fiber_t* fiber = runner->idle;
  if (fiber) {
    runner->idle = fiber->next_idle;
    return fiber;
  }
  if (runner->fiber_count == MAX_THREADS) return NULL;
  fiber = &runner->fibers[runner->fiber_count];
  if (!fiber->stack) {
    unsigned char* map = mmap(NULL, STACK_BYTES + 4096, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return NULL;
    (void)mprotect(map, 4096, PROT_NONE);
    fiber->stack = map + 4096;
  }
  runner->fiber_count++;
  prepare(fiber);
  return fiber;
}

static void resume(fiber_t* fiber) {
  runner->current = fiber;
  to_fiber(fiber);
}

// ---------------------------------------------------------------------------------- waiting

static lane_t* park(thread_state_t state) {
  fiber_t* fiber = runner->current;
  lane_t* lane = &runner->lanes[fiber->thread];
  lane->state = state;
  lane->fiber = fiber;
  return lane;
}

static void hook_barrier(unsigned line) {
  lane_t* lane = park(AT_BARRIER);
  lane->line = line;
  to_runner(lane->fiber);
}

static unsigned hook_gather(unsigned mask, uint64_t value, uint64_t out_values[32], int is_fence) {
  lane_t* lane = park(AT_GATHER);
  lane->mask = mask;
  lane->is_fence = is_fence != 0;
  lane->value = value;
  lane->out_values = out_values;
  to_runner(lane->fiber);
  return lane->out_mask;
}

static void hook_fence(void) {
  if (runner->races) fake_races_fence(runner->races, runner->current->thread);
}

static void hook_trap(void) {
  runner->fault = QN__CU_LAUNCH_FAILED;
  __builtin_longjmp(runner->jump, 1);
}

static bool is_inside(const void* address, const void* start, size_t size_bytes) {
  return (size_t)((const unsigned char*)address - (const unsigned char*)start) < size_bytes;
}

// Ignores accesses to a thread's own stack and to its coordinates, which kernels only read.
static void hook_access(const void* address, unsigned size, unsigned how) {
  const fiber_t* fiber = runner->current;
  if (!runner->races || is_inside(address, fiber->stack, STACK_BYTES) ||
      is_inside(address, runner, sizeof *runner)) {
    return;
  }
  const bool is_shared = is_inside(address, runner->shared, runner->shared_bytes) ||
                         is_inside(address, runner->dynamic, runner->dynamic_bytes);
  fake_races_access(runner->races, address, size, fiber->thread, how, is_shared);
}

// The instruction may write at any time before its thread waits for it: with both ends as writes, a
// race is found if another thread accesses the memory between them without a barrier.
static void hook_copy(void* to, const void* from, unsigned size) {
  lane_t* lane = &runner->lanes[runner->current->thread];
  if (lane->copy_count == MAX_COPIES) hook_trap();
  hook_access(to, size, FAKE_WRITES);
  hook_access(from, size, 0);
  memset(to, GARBAGE, size);
  lane->copies[lane->copy_count++] = (copy_t){to, from, size, lane->group_count};
}

static void hook_copy_commit(void) {
  runner->lanes[runner->current->thread].group_count++;
}

static void hook_copy_wait(unsigned count) {
  lane_t* lane = &runner->lanes[runner->current->thread];
  unsigned kept = 0;
  for (unsigned i = 0; i < lane->copy_count; i++) {
    const copy_t copy = lane->copies[i];
    if (copy.group + count >= lane->group_count) {
      lane->copies[kept++] = copy;
      continue;
    }
    hook_access(copy.to, copy.size, FAKE_WRITES);
    memcpy(copy.to, copy.from, copy.size);
  }
  lane->copy_count = kept;
}

const fake_hooks_t fake_run_hooks = {hook_barrier, hook_gather,      hook_trap,      hook_access,
                                     hook_copy,    hook_copy_commit, hook_copy_wait, hook_fence};

// ---------------------------------------------------------------------------------- orders

static unsigned below(unsigned count) {
  runner->random ^= runner->random << 13;
  runner->random ^= runner->random >> 7;
  runner->random ^= runner->random << 17;
  return (unsigned)((runner->random >> 32) % count);
}

static void shuffle(uint16_t* items, unsigned count) {
  for (unsigned i = count; i > 1; i--) {
    const unsigned k = below(i);
    const uint16_t item = items[i - 1];
    items[i - 1] = items[k];
    items[k] = item;
  }
}

// Returns the order in which a block's threads begin and resume after a barrier.
static void make_order(bool is_falling) {
  const unsigned count = runner->block_threads;
  for (unsigned i = 0; i < count; i++) {
    runner->order[i] = (uint16_t)(is_falling ? count - 1 - i : i);
  }
  if (runner->random != 0) shuffle(runner->order, count);
}

// Releases the lanes of a warp that wait for each other.
static bool resolve_warp(unsigned first) {
  const unsigned end = first + WARP < runner->block_threads ? first + WARP : runner->block_threads;
  bool is_any = false;
  for (unsigned t = first; t < end; t++) {
    if (runner->lanes[t].state != AT_GATHER) continue;
    const unsigned mask = runner->lanes[t].mask;
    unsigned came = 0;
    bool is_whole = (mask & (1u << (t - first))) != 0;
    for (unsigned u = first; u < end; u++) {
      const lane_t* lane = &runner->lanes[u];
      if (!(mask & (1u << (u - first))) || lane->state == DONE) continue;
      is_whole &= lane->state == AT_GATHER && lane->mask == mask;
      came |= 1u << (u - first);
    }
    if (!is_whole) continue;
    bool is_fence = runner->races != NULL;
    for (unsigned u = first; u < end; u++) {
      if (came & (1u << (u - first))) is_fence &= runner->lanes[u].is_fence;
    }
    if (is_fence) fake_races_meet(runner->races, first, came);
    uint64_t values[WARP] = {0};
    for (unsigned u = first; u < end; u++) {
      if (came & (1u << (u - first))) values[u - first] = runner->lanes[u].value;
    }
    for (unsigned u = first; u < end; u++) {
      lane_t* lane = &runner->lanes[u];
      if (!(came & (1u << (u - first)))) continue;
      memcpy(lane->out_values, values, sizeof values);
      lane->out_mask = came;
      lane->state = READY;
    }
    is_any = true;
  }
  return is_any;
}

// Releases complete groups. Returns 1 if a thread can run, 0 if all have ended, -1 if they wait for
// different groups. A barrier counts the threads that have not ended, as in CUDA.
static int resolve(void) {
  bool is_any = false, is_done = true, is_barrier = true;
  for (unsigned first = 0; first < runner->block_threads; first += WARP) {
    is_any |= resolve_warp(first);
  }
  if (is_any) return 1;
  for (unsigned t = 0; t < runner->block_threads; t++) {
    const thread_state_t state = runner->lanes[t].state;
    is_done &= state == DONE;
    is_barrier &= state == DONE || state == AT_BARRIER;
  }
  if (is_done) return 0;
  if (!is_barrier) return -1;
  unsigned line = 0;
  for (unsigned t = 0; t < runner->block_threads; t++) {
    const lane_t* lane = &runner->lanes[t];
    if (lane->state != AT_BARRIER) continue;
    if (line != 0 && lane->line != line) return -1;
    line = lane->line;
  }
  if (runner->races) fake_races_barrier(runner->races);
  for (unsigned t = 0; t < runner->block_threads; t++) {
    if (runner->lanes[t].state == AT_BARRIER) runner->lanes[t].state = READY;
  }
  return 1;
}

// Runs each warp alone until it waits for other warps.
static void run_ahead(void) {
  uint16_t warps[MAX_THREADS / WARP], lanes[WARP];
  const unsigned warp_count = (runner->block_threads + WARP - 1) / WARP;
  for (unsigned w = 0; w < warp_count; w++) warps[w] = (uint16_t)w;
  shuffle(warps, warp_count);
  for (unsigned w = 0; w < warp_count; w++) {
    const unsigned first = warps[w] * (unsigned)WARP;
    const unsigned left = runner->block_threads - first;
    const unsigned count = left < WARP ? left : WARP;
    do {
      for (unsigned i = 0; i < count; i++) lanes[i] = (uint16_t)(first + i);
      shuffle(lanes, count);
      for (unsigned i = 0; i < count; i++) {
        lane_t* lane = &runner->lanes[lanes[i]];
        if (lane->state == READY) resume(lane->fiber);
      }
    } while (resolve_warp(first));
  }
}

static CUresult run_block(void) {
  runner->next_thread = 0;
  make_order(false);
  for (unsigned t = 0; t < runner->block_threads; t++) runner->lanes[t].state = READY;
  while (runner->next_thread < runner->block_threads) {
    fiber_t* fiber = idle_fiber();
    if (!fiber) return QN__CU_OUT_OF_MEMORY;
    resume(fiber);
  }
  for (bool is_falling = true;; is_falling = !is_falling) {
    const int next = resolve();
    if (next == 0) return QN__CU_OK;
    if (next < 0) {
      fake_violation("kernel '%s': threads of a block wait for different things",
                     runner->kernel->name);
      return QN__CU_LAUNCH_FAILED;
    }
    if (runner->is_ahead) {
      run_ahead();
      continue;
    }
    make_order(is_falling);
    for (unsigned i = 0; i < runner->block_threads; i++) {
      lane_t* lane = &runner->lanes[runner->order[i]];
      if (lane->state == READY) resume(lane->fiber);
    }
  }
}

// ---------------------------------------------------------------------------------- launches

// Returns the thread-local storage of a kernel's module, which is its static shared memory.
static int find_shared(struct dl_phdr_info* info, size_t size, void* own) {
  (void)size;
  for (unsigned i = 0; info->dlpi_tls_data && i < info->dlpi_phnum; i++) {
    if (info->dlpi_phdr[i].p_type != PT_TLS ||
        !is_inside(own, info->dlpi_tls_data, info->dlpi_phdr[i].p_memsz)) {
      continue;
    }
    runner->shared = info->dlpi_tls_data;
    runner->shared_bytes = info->dlpi_phdr[i].p_memsz;
    return 1;
  }
  return 0;
}

static void prepare_launch(const fake_kernel_t* kernel, const fake_module_t* module,
                           uint64_t number) {
  runner->shared = NULL;
  runner->shared_bytes = 0;
  (void)dl_iterate_phdr(find_shared, module->own());
  runner->random = 0;
  if (fake_settings.seed != 0) {
    runner->random = ((uint64_t)fake_settings.seed * 0x9e3779b97f4a7c15u) ^ (number + 1);
    for (int i = 0; i < 8; i++) (void)below(2);
  }
  runner->is_ahead = runner->random != 0 && below(2) == 0;
  if (fake_settings.has_races && !runner->races) runner->races = fake_races_make();
  if (runner->races) fake_races_begin(runner->races, kernel->name);
}

static CUresult run_blocks(unsigned grid, unsigned block, void* shared, unsigned shared_bytes,
                           bool is_reversed) {
  const unsigned turn = runner->random != 0 ? below(grid) : 0;
  for (unsigned i = 0; i < grid; i++) {
    const unsigned at = (unsigned)(((uint64_t)i + turn) % grid);
    const unsigned b = is_reversed ? grid - 1 - at : at;
    for (unsigned t = 0; t < block; t++) {
      runner->threads[t] =
          (fake_thread_t){{t, 0, 0}, {b, 0, 0}, {block, 1, 1}, {grid, 1, 1}, shared, shared_bytes};
    }
    // Fill the memory with garbage: a block must not rely on its contents.
    memset(runner->shared, GARBAGE, runner->shared_bytes);
    memset(runner->dynamic, GARBAGE, runner->dynamic_bytes);
    if (runner->races) fake_races_block(runner->races, b);
    CUresult result = run_block();
    if (result != QN__CU_OK) return result;
  }
  return QN__CU_OK;
}

CUresult fake_run(const fake_kernel_t* kernel, const fake_module_t* module, unsigned grid,
                  unsigned block, unsigned shared_bytes, void** params, uint64_t number) {
  if (!runner || block > MAX_THREADS) return QN__CU_LAUNCH_FAILED;
  runner->kernel = kernel;
  runner->params = params;
  runner->block_threads = block;
  runner->fault = QN__CU_OK;
  prepare_launch(kernel, module, number);
  // This memory ends at an inaccessible page, too.
  const size_t pages = ((size_t)shared_bytes + 4095) / 4096 * 4096;
  unsigned char* map =
      mmap(NULL, pages + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return QN__CU_OUT_OF_MEMORY;
  (void)mprotect(map + pages, 4096, PROT_NONE);
  runner->dynamic = map + (pages - (shared_bytes + 15u) / 16u * 16u);
  runner->dynamic_bytes = shared_bytes;
  CUresult result;
  if (__builtin_setjmp(runner->jump) == 0) {
    runner->is_running = true;
    result = run_blocks(grid, block, runner->dynamic, shared_bytes, number % 2 == 1);
  } else {
    result = runner->fault;
  }
  runner->is_running = false;
  if (result != QN__CU_OK) {
    // Reset suspended fibers.
    runner->idle = NULL;
    runner->fiber_count = 0;
  }
  (void)munmap(map, pages + 4096);
  return result;
}

static struct sigaction old_actions[4];
static const int fault_signals[4] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

static void handle(int number, siginfo_t* info, void* context) {
  (void)info;
  (void)context;
  if (runner && runner->is_running) {
    runner->fault =
        number == SIGSEGV || number == SIGBUS ? QN__CU_ILLEGAL_ADDRESS : FAKE_ILLEGAL_INSTRUCTION;
    __builtin_longjmp(runner->jump, 1);
  }
  for (int i = 0; i < 4; i++) {
    if (fault_signals[i] == number) (void)sigaction(number, &old_actions[i], NULL);
  }
}

static void install(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int i = 0; i < 4; i++) (void)sigaction(fault_signals[i], &action, &old_actions[i]);
}

static pthread_key_t runner_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void end_runner(void* self) {
  runner_t* ended = self;
  fake_races_free(ended->races);
  for (unsigned i = 0; i < MAX_THREADS; i++) {
    if (ended->fibers[i].stack) {
      (void)munmap(ended->fibers[i].stack - 4096, STACK_BYTES + 4096);
    }
  }
  (void)munmap(ended, sizeof *ended);
}

static void begin(void) {
  install();
  (void)pthread_key_create(&runner_key, end_runner);
}

void fake_run_init(void) {
  (void)pthread_once(&once, begin);
  runner_t* made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return;
  runner = made;
  (void)pthread_setspecific(runner_key, made);
  stack_t stack = {.ss_size = SIGNAL_STACK_BYTES};
  stack.ss_sp =
      mmap(NULL, SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack.ss_sp != MAP_FAILED) (void)sigaltstack(&stack, NULL);
  sigset_t faults;
  (void)sigemptyset(&faults);
  for (int i = 0; i < 4; i++) (void)sigaddset(&faults, fault_signals[i]);
  (void)pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
}
