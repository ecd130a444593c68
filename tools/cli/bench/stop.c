// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/bench/stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t caught;

static void on_signal(int number) {
  caught = number;
}

void stop_install(void) {
  static const int numbers[] = {SIGINT, SIGTERM};
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}, before;
    (void)sigemptyset(&action.sa_mask);
    if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    (void)sigaction(numbers[i], &action, NULL);
  }
}

bool stop_wanted(void) {
  return caught != 0;
}

const char* stop_signal(void) {
  int number = caught;
  return number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : NULL;
}
