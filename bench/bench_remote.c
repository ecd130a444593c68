// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// What does the remote tier cost: a hit on loopback, a put, a store that hangs?
//
// It starts a redis-server on a unix socket and a free port. A hit goes through the tier's thread
// and includes the MAC and the decoding; its floor is to send GET and receive the same bytes. Both
// take turns, in wall time, because much of it is waiting. Then the server is stopped, and a
// thousand gets show the cost of a hang.
//
// Without redis-server it prints a message and ends with 0.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"
#include "bench/harness.h"
#include "cache/remote.h"

#define SECOND INT64_C(1000000000)
#define ROUNDS 2000
#define HANG_GETS 1000

static char directory[64];
static pid_t server;

static void end_server(void) {
  if (server > 0) {
    (void)kill(server, SIGKILL);
    (void)waitpid(server, NULL, 0);
  }
  bench_remove_directory(directory);
}

static void give_up(const char* why) {
  end_server();
  bench_give_up(why);
}

static int connect_tcp(int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int one = 1;
  if (fd >= 0) (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (fd >= 0 && connect(fd, (struct sockaddr*)&address, sizeof address) == 0) return fd;
  if (fd >= 0) (void)close(fd);
  return -1;
}

static int free_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, (struct sockaddr*)&address, size) != 0 ||
      getsockname(fd, (struct sockaddr*)&address, &size) != 0) {
    give_up("no port");
  }
  (void)close(fd);
  return ntohs(address.sin_port);
}

static int start_server(void) {
  char port[16], path[80];
  int number = free_port();
  (void)snprintf(port, sizeof port, "%d", number);
  (void)snprintf(path, sizeof path, "%s/redis.sock", directory);
  server = fork();
  if (server == 0) {
    (void)execl("/usr/bin/redis-server", "redis-server", "--port", port, "--bind", "127.0.0.1",
                "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", directory,
                "--logfile", "log", (char*)NULL);
    _exit(127);
  }
  for (int i = 0; i < 1000; i++) {
    int fd = connect_tcp(number);
    if (fd >= 0) {
      (void)close(fd);
      return number;
    }
    (void)usleep(10000);
  }
  give_up("redis-server does not start");
  return 0;
}

typedef struct subject {
  qn__buffer_t preimage;
  uint8_t* payload;
  qn__entry_t entry;
  qn__expectation_t expected;
  char name[128];
  size_t value_size;
} subject_t;

static void make_subject(subject_t* s, size_t payload_size) {
  static unsigned serial;
  memset(s, 0, sizeof *s);
  uint8_t module[4] = {(uint8_t)++serial};
  qn_span_t canonical = {module, sizeof module};
  qn__sha256_t digest = qn__sha256(canonical);
  qn__buffer_init(&s->preimage, qn_allocator_default());
  qn__preimage_begin(&s->preimage);
  qn__preimage_add_module(&s->preimage, sizeof module, qn__xxh128(canonical, 0), &digest);
  s->payload = malloc(payload_size);
  if (!s->payload || s->preimage.has_failed) give_up("no memory");
  for (size_t i = 0; i < payload_size; i++) s->payload[i] = (uint8_t)(i * 2654435761u >> 13);
  s->entry.preimage = qn__buffer_as_span(&s->preimage);
  s->entry.key = qn__preimage_key(s->entry.preimage);
  s->entry.payload = (qn_span_t){s->payload, payload_size};
  s->expected = (qn__expectation_t){s->entry.key, s->entry.preimage};
  char hex[33];
  qn__hash128_hex(s->entry.key, hex);
  (void)snprintf(s->name, sizeof s->name, "quern:1.%u::%s", QN__ENTRY_VERSION, hex);
  s->value_size = qn__entry_size(&s->entry) + 48;
}

static qn__remote_t* open_remote(const char* url) {
  static const uint8_t key[QN__MAC_KEY_BYTES] = {1};
  const qn__remote_options_t options = {
      .url = url, .may_write = true, .connect_timeout_ns = SECOND, .key = key};
  qn__remote_t* remote = NULL;
  qn_status_t status = qn__remote_create(&options, &remote);
  if (!qn_ok(status)) give_up(qn_status_message(status));
  return remote;
}

static void get(qn__remote_t* remote, const subject_t* s) {
  qn__hit_t hit;
  if (qn__remote_get(remote, &s->expected, INT64_MAX, &hit) != QN__GET_HIT) give_up("no hit");
  bench_keep(hit.entry.payload.data);
  qn__remote_hit_release(remote, &hit);
}

// Sends a command and receives the answer, without the tier.
static void talk(int fd, const char* command, size_t command_size, uint8_t* buffer, size_t size) {
  if (send(fd, command, command_size, MSG_NOSIGNAL) != (ssize_t)command_size)
    give_up("cannot send");
  for (size_t done = 0; done < size;) {
    ssize_t got = recv(fd, buffer + done, size - done, 0);
    if (got <= 0) give_up("cannot receive");
    done += (size_t)got;
  }
}

// Times the MAC and the decoding of a hit, without any network.
static double verify_us(const subject_t* s, const qn__crypto_t* crypto) {
  static double us[ROUNDS / 10];
  static const uint8_t key[QN__MAC_KEY_BYTES] = {1};
  size_t size = qn__entry_size(&s->entry);
  uint8_t* bytes = malloc(size);
  if (!bytes) give_up("no memory");
  qn__entry_write(&s->entry, bytes);
  qn__entry_seal(bytes, size);
  for (int i = 0; i < ROUNDS / 10; i++) {
    int64_t start = bench_now_ns();
    uint8_t mac[QN__MAC_BYTES];
    const qn_span_t span = {bytes, size};
    crypto->mac(key, &span, 1, mac);
    qn__entry_t entry;
    if (qn__entry_decode(span, &s->expected, &entry) != QN__REASON_NONE) give_up("a bad entry");
    bench_keep(mac);
    us[i] = (double)(bench_now_ns() - start) / 1000;
  }
  free(bytes);
  return bench_median(us, ROUNDS / 10);
}

static void time_hits(bench_report_t* report, qn__remote_t* remote, int port, size_t payload_size,
                      const char* text) {
  static double bare_us[ROUNDS], hit_us[ROUNDS], put_us[ROUNDS], copy_us[ROUNDS];
  subject_t s;
  make_subject(&s, payload_size);
  if (!qn__remote_put(remote, &s.entry) || !qn__remote_flush(remote, 10 * SECOND)) {
    give_up("cannot put");
  }
  char command[256];
  int command_size = snprintf(command, sizeof command, "*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n",
                              strlen(s.name), s.name);
  char head[32];
  size_t reply_size =
      s.value_size + 2 + (size_t)snprintf(head, sizeof head, "$%zu\r\n", s.value_size);
  uint8_t* buffer = malloc(reply_size);
  int fd = connect_tcp(port);
  if (!buffer || fd < 0) give_up("cannot connect");
  for (int i = 0; i < ROUNDS; i++) {
    int64_t start = bench_now_ns();
    talk(fd, command, (size_t)command_size, buffer, reply_size);
    int64_t middle = bench_now_ns();
    get(remote, &s);
    int64_t end = bench_now_ns();
    bare_us[i] = (double)(middle - start) / 1000;
    hit_us[i] = (double)(end - middle) / 1000;
  }
  if (memcmp(buffer, head, strlen(head)) != 0) give_up("not the value");
  for (int i = 0; i < ROUNDS / 10; i++) {
    int64_t start = bench_now_ns();
    uint8_t* copy = malloc(s.value_size);
    if (!copy) give_up("no memory");
    memcpy(copy, s.payload, payload_size);
    bench_keep(copy);
    free(copy);
    int64_t middle = bench_now_ns();
    if (!qn__remote_put(remote, &s.entry)) give_up("cannot put");
    int64_t end = bench_now_ns();
    copy_us[i] = (double)(middle - start) / 1000;
    put_us[i] = (double)(end - middle) / 1000;
    if (!qn__remote_flush(remote, 10 * SECOND)) give_up("cannot flush");
  }
  char name[96];
  (void)snprintf(name, sizeof name, "bare GET of %s", text);
  double bare = bench_median(bare_us, ROUNDS);
  bench_row(report, name, bare, "us", 0, 0);
  (void)snprintf(name, sizeof name, "remote hit of %s", text);
  bench_row(report, name, bench_median(hit_us, ROUNDS), "us", bare, 0);
  const qn__crypto_t* crypto;
  if (qn_status_consume(qn__crypto_open("", &crypto)) != QN_STATUS_OK) give_up("no libsodium");
  (void)snprintf(name, sizeof name, "of it MAC and decoding of %s", text);
  bench_row(report, name, verify_us(&s, crypto), "us", bare, 0);
  double copy = bench_median(copy_us, ROUNDS / 10);
  (void)snprintf(name, sizeof name, "allocation and copy of %s", text);
  bench_row(report, name, copy, "us", 0, 0);
  (void)snprintf(name, sizeof name, "put of %s, to the caller", text);
  bench_row(report, name, bench_median(put_us, ROUNDS / 10), "us", 0, 50);
  (void)close(fd);
  free(buffer);
  free(s.payload);
  qn__buffer_deinit(&s.preimage);
}

static void time_hang(bench_report_t* report, qn__remote_t* remote) {
  static double rest_ns[HANG_GETS];
  subject_t s;
  make_subject(&s, 100);
  qn__hit_t hit;
  if (qn__remote_get(remote, &s.expected, INT64_MAX, &hit) != QN__GET_ABSENT) give_up("no miss");
  (void)kill(server, SIGSTOP);
  int64_t start = bench_now_ns();
  qn__get_result_t result = qn__remote_get(remote, &s.expected, INT64_MAX, &hit);
  int64_t first_end = bench_now_ns();
  if (result != QN__GET_TIMEOUT) give_up("no hang");
  int64_t last = first_end;
  for (int i = 0; i < HANG_GETS; i++) {
    if (qn__remote_get(remote, &s.expected, INT64_MAX, &hit) != QN__GET_OFF) give_up("not off");
    int64_t now = bench_now_ns();
    rest_ns[i] = (double)(now - last);
    last = now;
  }
  (void)kill(server, SIGCONT);
  bench_row(report, "server hangs: first get (deadline 200 ms)", (double)(first_end - start) / 1e6,
            "ms", 200, 1.05);
  bench_row(report, "server hangs: each of the next 1000", bench_median(rest_ns, HANG_GETS), "ns",
            0, 1000);
  free(s.payload);
  qn__buffer_deinit(&s.preimage);
}

int main(int argc, char** argv) {
  bench_report_t report = bench_begin(
      "remote", "Measures hits, puts and a hang of the remote tier on loopback.", argc, argv);
  if (access("/usr/bin/redis-server", X_OK) != 0) {
    (void)fprintf(stderr, "bench_remote: no redis-server here: nothing to measure\n");
    return bench_end(&report);
  }
  bench_make_directory("/tmp", directory);
  int port = start_server();
  char url[96];
  (void)snprintf(url, sizeof url, "redis://127.0.0.1:%d", port);
  qn__remote_t* remote = open_remote(url);
  time_hits(&report, remote, port, 3800, "4 KB");
  time_hits(&report, remote, port, 65000, "64 KB");
  time_hang(&report, remote);
  qn__remote_destroy(remote, 0);
  end_server();
  return bench_end(&report);
}
