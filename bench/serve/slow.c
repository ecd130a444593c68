// SPDX-License-Identifier: Apache-2.0
// bench/serve/slow.c: serve_slow, clients that hold connections of a server and hardly use them.
//
//   serve_slow PORT COUNT LIMIT       the server should end each after LIMIT seconds
//
// In turn they send headers a byte at a time, a body a byte at a time, half a request and no more,
// or read answers a byte at a time. Each has one turn a second, and the turns are spread evenly:
// steps in bursts would be a load of their own. When the server ends a client, its next turn opens
// another. In the beginning they come over LIMIT seconds, so that they do not end at once later.
//
// Ends with SIGTERM, and prints counts as JSON. `left` counts clients that lived longer than LIMIT
// and twice GRACE_NS. A client that reads finds the end only after the last byte: so it reads all
// that is there after half of that.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)
#define GRACE_NS (2 * SECOND_NS)  // the server looks once a second

typedef enum kind { KIND_HEADERS, KIND_BODY, KIND_HALF, KIND_READER, KIND_COUNT } kind_t;

// What a client of each kind sends at once, and what it sends a byte at a time after that.
static const char* const at_once[KIND_COUNT] = {
    "",
    "POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
    "POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"inputs\":[\"half",
    // More than the server's socket holds for a client with segments of this size.
    "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: "
    "x\r\n\r\n"
    "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: "
    "x\r\n\r\n",
};
static const char* const in_bytes[KIND_COUNT] = {
    "POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nX-Filler: a mill grinds grain",
    "{\"inputs\":[\"a mill grinds grain, and a quern is a mill for one pair of hands",
    "",
    "",
};
enum { SEGMENT_BYTES = 1400, WINDOW_BYTES = 4096 };

typedef struct client {
  int fd;  // -1: none
  kind_t kind;
  bool is_left;      // counted as such
  size_t sent;       // of in_bytes
  int64_t begin_ns;  // when it was opened
} client_t;

typedef struct slow {
  struct sockaddr_in address;
  client_t* clients;
  size_t count;
  int64_t limit_ns;
  size_t opened, ended, left, failed;
  int64_t longest_ns;  // life of one that the server ended
} slow_t;

static volatile sig_atomic_t is_over;

static void on_signal(int number) {
  (void)number;
  is_over = 1;
}

static int64_t now_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

static void open_client(slow_t* slow, client_t* client, int64_t now) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd >= 0 && client->kind == KIND_READER) {
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){WINDOW_BYTES}, sizeof(int));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &(int){SEGMENT_BYTES}, sizeof(int));
  }
  if (fd < 0 || (connect(fd, (const struct sockaddr*)&slow->address, sizeof slow->address) != 0 &&
                 errno != EINPROGRESS)) {
    slow->failed++;
    if (fd >= 0) (void)close(fd);
    return;
  }
  const char* text = at_once[client->kind];
  if (*text && send(fd, text, strlen(text), MSG_NOSIGNAL) < 0) {
    slow->failed++;
    (void)close(fd);
    return;
  }
  client->fd = fd;
  client->sent = 0;
  client->is_left = false;
  client->begin_ns = now;
  slow->opened++;
}

// Sends or reads a byte. Returns false if the server has ended the connection.
static bool step(client_t* client, bool reads_all) {
  const char next = in_bytes[client->kind][client->sent];
  if (next && send(client->fd, &next, 1, MSG_NOSIGNAL) == 1) client->sent++;
  char bytes[WINDOW_BYTES];
  ssize_t count;
  do {
    count = recv(client->fd, bytes, reads_all ? sizeof bytes : 1, 0);
  } while (reads_all && count > 0);
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

static void take_turn(slow_t* slow, client_t* client, int64_t now) {
  if (client->fd < 0) {
    open_client(slow, client, now);
    return;
  }
  const int64_t life_ns = now - client->begin_ns;
  if (!step(client, life_ns > slow->limit_ns + GRACE_NS)) {
    (void)close(client->fd);
    client->fd = -1;
    slow->ended++;
    if (life_ns > slow->longest_ns) slow->longest_ns = life_ns;
  } else if (life_ns > slow->limit_ns + 2 * GRACE_NS && !client->is_left) {
    client->is_left = true;
    slow->left++;
  }
}

static void run(slow_t* slow) {
  const int64_t start = now_ns();
  const size_t rounds = (size_t)(slow->limit_ns / SECOND_NS);
  for (size_t turn = 0; !is_over; turn++) {
    const size_t index = turn % slow->count;
    const size_t round = turn / slow->count;
    if (round < rounds && round < index % rounds) continue;  // it has not come yet
    const int64_t at =
        start + (int64_t)round * SECOND_NS + (int64_t)index * SECOND_NS / (int64_t)slow->count;
    const struct timespec time = {.tv_sec = at / SECOND_NS, .tv_nsec = at % SECOND_NS};
    if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0) continue;
    take_turn(slow, &slow->clients[index], now_ns());
  }
}

static void print(const slow_t* slow) {
  struct rusage usage;
  (void)getrusage(RUSAGE_SELF, &usage);
  const double cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  (void)printf(
      "{\"opened\":%zu,\"failed\":%zu,\"ended\":%zu,\"left\":%zu,\"longest_s\":%.3f,"
      "\"cpu_s\":%.3f}\n",
      slow->opened, slow->failed, slow->ended, slow->left,
      (double)slow->longest_ns / (double)SECOND_NS, cpu_s);
}

int main(int argc, char** argv) {
  slow_t slow = {.address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
  if (argc == 4) {
    slow.address.sin_port = htons((uint16_t)strtoul(argv[1], NULL, 10));
    slow.count = strtoul(argv[2], NULL, 10);
    slow.limit_ns = strtol(argv[3], NULL, 10) * SECOND_NS;
  }
  if (slow.count == 0 || slow.limit_ns < SECOND_NS) {
    (void)fprintf(stderr, "usage: serve_slow PORT COUNT LIMIT\n");
    return 2;
  }
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
  }
  const struct sigaction action = {.sa_handler = on_signal};
  (void)sigaction(SIGTERM, &action, NULL);
  slow.clients = calloc(slow.count, sizeof *slow.clients);
  if (!slow.clients) return 2;
  for (size_t i = 0; i < slow.count; i++) {
    slow.clients[i].fd = -1;
    slow.clients[i].kind = (kind_t)(i % KIND_COUNT);
  }
  run(&slow);
  print(&slow);
  free(slow.clients);
  return 0;
}
