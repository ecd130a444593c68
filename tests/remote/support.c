// SPDX-License-Identifier: Apache-2.0
// tests/remote/support.c: see support.h.
#include "tests/remote/support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_CONNECTIONS 4096
#define MAX_BYTES 65536
// An operation that takes longer counts as a hang.
#define PATIENCE_MS 600000

static void sleep_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  (void)nanosleep(&time, NULL);
}

// ---- the scripted server

typedef struct item {
  char* name;
  uint8_t* data;
  size_t size;
} item_t;

struct peer {
  peer_kind_t kind;
  const void* reply;
  size_t reply_size;
  int listener;
  int port;
  int fillers[8];  // connections that fill the backlog (PEER_NO_ACCEPT)
  _Atomic bool is_stopping;
  _Atomic long connection_count;
  pthread_t thread;
  pthread_t workers[MAX_CONNECTIONS];
  int worker_count;
  pthread_mutex_t mutex;
  item_t items[32];
};

typedef struct connection {
  peer_t* peer;
  int fd;
  uint8_t in[MAX_BYTES];
  size_t size;
} connection_t;

// The server's socket is non-blocking too, so that stopping is quick.
static bool ready(const peer_t* peer, int fd, short events) {
  while (!atomic_load(&peer->is_stopping)) {
    struct pollfd item = {.fd = fd, .events = events};
    if (poll(&item, 1, 5) > 0) return true;
  }
  return false;
}

static bool say(const peer_t* peer, int fd, const void* data, size_t size) {
  const uint8_t* bytes = data;
  while (size > 0) {
    if (!ready(peer, fd, POLLOUT)) return false;
    size_t part = peer->kind == PEER_DRIP ? 1 : size;
    ssize_t sent = send(fd, bytes, part, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    size -= (size_t)sent;
  }
  return true;
}

typedef struct word {
  const uint8_t* data;
  size_t size;
} word_t;

// Parses the words of the first command. Returns its size, or 0 if it is incomplete.
static size_t parse_command(const uint8_t* in, size_t size, word_t words[8], int* out_count) {
  size_t at = 0;
  long numbers[9];
  int count = 0;
  for (int i = -1; i < count; i++) {
    const uint8_t* end = memchr(in + at, '\n', size - at);
    if (!end) return 0;
    numbers[i + 1] = strtol((const char*)in + at + 1, NULL, 10);
    at = (size_t)(end - in) + 1;
    if (i < 0) {
      count = (int)numbers[0];
      if (count < 1 || count > 8) abort();
      continue;
    }
    if (size - at < (size_t)numbers[i + 1] + 2) return 0;
    words[i] = (word_t){in + at, (size_t)numbers[i + 1]};
    at += words[i].size + 2;
  }
  *out_count = count;
  return at;
}

static bool is_word(word_t word, const char* text) {
  return word.size == strlen(text) && memcmp(word.data, text, word.size) == 0;
}

static item_t* find(peer_t* peer, word_t name) {
  for (size_t i = 0; i < 32; i++) {
    if (peer->items[i].name && is_word(name, peer->items[i].name)) return &peer->items[i];
  }
  return NULL;
}

static void drop(item_t* item) {
  free(item->name);
  free(item->data);
  memset(item, 0, sizeof *item);
}

static void set(peer_t* peer, word_t name, word_t value) {
  item_t* item = find(peer, name);
  for (size_t i = 0; !item && i < 32; i++) {
    if (!peer->items[i].name) item = &peer->items[i];
  }
  if (!item) abort();
  drop(item);
  item->name = calloc(name.size + 1, 1);
  item->data = malloc(value.size + 1);
  if (!item->name || !item->data) abort();
  memcpy(item->name, name.data, name.size);
  memcpy(item->data, value.data, value.size);
  item->size = value.size;
}

static bool answer_get(connection_t* connection, word_t name) {
  peer_t* peer = connection->peer;
  uint8_t out[MAX_BYTES + 64];
  size_t size = 5;
  memcpy(out, "$-1\r\n", size);
  (void)pthread_mutex_lock(&peer->mutex);
  const item_t* item = find(peer, name);
  if (item) {
    size = (size_t)snprintf((char*)out, 64, "$%zu\r\n", item->size);
    memcpy(out + size, item->data, item->size);
    memcpy(out + size + item->size, "\r\n", 2);
    size += item->size + 2;
  }
  (void)pthread_mutex_unlock(&peer->mutex);
  return say(peer, connection->fd, out, size);
}

static bool answer(connection_t* connection, const word_t* words, int count) {
  peer_t* peer = connection->peer;
  if (is_word(words[0], "GET") && count == 2) return answer_get(connection, words[1]);
  const char* text = "-ERR unknown command\r\n";
  (void)pthread_mutex_lock(&peer->mutex);
  if (is_word(words[0], "SET") && count >= 3) {
    bool is_claim = count == 6 && is_word(words[3], "NX");
    text = is_claim && find(peer, words[1]) ? "$-1\r\n" : "+OK\r\n";
    if (text[0] == '+') set(peer, words[1], words[2]);
  } else if (is_word(words[0], "EVAL") && count == 5) {
    item_t* item = find(peer, words[3]);
    bool is_ours =
        item && item->size == words[4].size && memcmp(item->data, words[4].data, item->size) == 0;
    if (is_ours) drop(item);
    text = is_ours ? ":1\r\n" : ":0\r\n";
  } else if (is_word(words[0], "AUTH") || is_word(words[0], "SELECT")) {
    text = "+OK\r\n";
  }
  (void)pthread_mutex_unlock(&peer->mutex);
  return say(peer, connection->fd, text, strlen(text));
}

static bool serve_commands(connection_t* connection) {
  word_t words[8];
  int count = 0;
  size_t used;
  while ((used = parse_command(connection->in, connection->size, words, &count)) > 0) {
    if (!answer(connection, words, count)) return false;
    memmove(connection->in, connection->in + used, connection->size - used);
    connection->size -= used;
    if (connection->peer->kind == PEER_FORGETFUL) return false;
  }
  return true;
}

static bool trickle(connection_t* connection) {
  const peer_t* peer = connection->peer;
  char head[32];
  int size = snprintf(head, sizeof head, "$%d\r\n", PEER_TRICKLE_BYTES);
  bool goes_on = say(peer, connection->fd, head, (size_t)size);
  while (goes_on && !atomic_load(&peer->is_stopping)) {
    sleep_ms(5);
    goes_on = say(peer, connection->fd, "x", 1);
  }
  return false;
}

// Answers a complete command according to the server's kind. Returns false if the connection is to
// be closed.
static bool serve(connection_t* connection) {
  peer_t* peer = connection->peer;
  switch (peer->kind) {
    case PEER_GOOD:
    case PEER_DRIP:
    case PEER_FORGETFUL:
      return serve_commands(connection);
    case PEER_TRICKLE:
      return trickle(connection);
    case PEER_ANSWERS:
    case PEER_SAYS_LESS:
      connection->size = 0;
      return say(peer, connection->fd, peer->reply, peer->reply_size) && peer->kind == PEER_ANSWERS;
    case PEER_SILENT:
    case PEER_GREETS:
    case PEER_DEAF:
    case PEER_NO_ACCEPT:
      connection->size = 0;
      return true;
  }
  return false;
}

static void* run_connection(void* arg) {
  connection_t* connection = arg;
  peer_t* peer = connection->peer;
  bool goes_on = true;
  if (peer->kind == PEER_GREETS) goes_on = say(peer, connection->fd, peer->reply, peer->reply_size);
  while (goes_on && peer->kind == PEER_DEAF && !atomic_load(&peer->is_stopping)) sleep_ms(2);
  while (goes_on && ready(peer, connection->fd, POLLIN)) {
    ssize_t got = recv(connection->fd, connection->in + connection->size,
                       sizeof connection->in - connection->size, 0);
    if (got <= 0) break;
    connection->size += (size_t)got;
    goes_on = serve(connection);
  }
  (void)close(connection->fd);
  free(connection);
  return NULL;
}

static void* run_peer(void* arg) {
  peer_t* peer = arg;
  while (ready(peer, peer->listener, POLLIN)) {
    int fd = accept(peer->listener, NULL, NULL);
    if (fd < 0) continue;
    connection_t* connection = calloc(1, sizeof *connection);
    if (!connection || peer->worker_count == MAX_CONNECTIONS) abort();
    connection->peer = peer;
    connection->fd = fd;
    atomic_fetch_add(&peer->connection_count, 1);
    if (pthread_create(&peer->workers[peer->worker_count++], NULL, run_connection, connection)) {
      abort();
    }
  }
  return NULL;
}

int port_of_nobody(int* out_port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = {.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (fd < 0 || bind(fd, (struct sockaddr*)&address, size) != 0 ||
      getsockname(fd, (struct sockaddr*)&address, &size) != 0) {
    abort();
  }
  *out_port = ntohs(address.sin_port);
  return fd;
}

static int listen_somewhere(int backlog, int* out_port) {
  int fd = port_of_nobody(out_port);
  if (listen(fd, backlog) != 0) abort();
  return fd;
}

// Two connections fill a backlog of one. Further connection attempts get no answer.
static void fill_backlog(peer_t* peer) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)peer->port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (size_t i = 0; i < 8; i++) {
    peer->fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)connect(peer->fillers[i], (struct sockaddr*)&address, sizeof address);
    sleep_ms(2);
  }
}

peer_t* peer_start(peer_kind_t kind, const void* reply, size_t reply_size) {
  peer_t* peer = calloc(1, sizeof *peer);
  if (!peer) abort();
  peer->kind = kind;
  peer->reply = reply;
  peer->reply_size = reply_size;
  (void)pthread_mutex_init(&peer->mutex, NULL);
  peer->listener = listen_somewhere(kind == PEER_NO_ACCEPT ? 0 : 64, &peer->port);
  if (kind == PEER_NO_ACCEPT) {
    fill_backlog(peer);
  } else if (pthread_create(&peer->thread, NULL, run_peer, peer) != 0) {
    abort();
  }
  return peer;
}

void peer_stop(peer_t* peer) {
  atomic_store(&peer->is_stopping, true);
  if (peer->kind == PEER_NO_ACCEPT) {
    for (size_t i = 0; i < 8; i++) (void)close(peer->fillers[i]);
  } else {
    (void)pthread_join(peer->thread, NULL);
  }
  for (int i = 0; i < peer->worker_count; i++) (void)pthread_join(peer->workers[i], NULL);
  (void)close(peer->listener);
  for (size_t i = 0; i < 32; i++) drop(&peer->items[i]);
  (void)pthread_mutex_destroy(&peer->mutex);
  free(peer);
}

int peer_port(const peer_t* peer) {
  return peer->port;
}
long peer_connections(peer_t* peer) {
  return atomic_load(&peer->connection_count);
}

// ---- redis

static const char* server_path(void) {
  static const char* const places[] = {"/usr/bin/redis-server", "/usr/local/bin/redis-server"};
  for (size_t i = 0; i < 2; i++) {
    if (access(places[i], X_OK) == 0) return places[i];
  }
  return NULL;
}

// Connects by the Unix socket in the server's private directory. redis-server creates that socket
// after it has bound its port, so the answer comes from this server and not from another test's.
static bool answers(const redis_server_t* server) {
  char text[64];
  for (int i = 0; i < PATIENCE_MS / 5; i++) {
    // An error that asks for a password also shows that the server is up.
    if (redis_say(server, "PING\r\n", text, sizeof text) && (text[0] == '+' || text[0] == '-') &&
        strncmp(text, "-LOADING", 8) != 0) {
      return true;
    }
    int code;
    if (waitpid(server->pid, &code, WNOHANG) != 0) return false;
    sleep_ms(5);
  }
  return false;
}

// Returns false if the server does not start, for example because its port is in use.
static bool try_start(redis_server_t* server, const char* const* options) {
  char port[16];
  (void)snprintf(port, sizeof port, "%d", server->port);
  const char* argv[64] = {server_path(),
                          "--port",
                          port,
                          "--bind",
                          "127.0.0.1",
                          "--save",
                          "",
                          "--appendonly",
                          "no",
                          "--unixsocket",
                          server->unix_path,
                          "--unixsocketperm",
                          "700",
                          "--dir",
                          server->directory,
                          "--logfile",
                          "redis.log",
                          "--daemonize",
                          "no"};
  size_t count = 19;
  while (options && *options) argv[count++] = *options++;
  argv[count] = NULL;
  (void)unlink(server->unix_path);  // left by a killed server
  server->pid = fork();
  if (server->pid == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);  // ends the server together with a test that crashes
    (void)execv(argv[0], (char* const*)(uintptr_t)argv);
    _exit(127);
  }
  return server->pid > 0 && answers(server);
}

bool redis_restart(redis_server_t* server, const char* const* options) {
  // The port may be in use by an unrelated connection for a moment.
  for (int i = 0; i < PATIENCE_MS / 100; i++) {
    if (try_start(server, options)) return true;
    redis_kill(server);
    sleep_ms(100);
  }
  return false;
}

// Picks a port outside of the system's ephemeral range, so that it is still free when the server is
// restarted.
static int some_port(int attempt) {
  enum { FIRST = 15000, COUNT = 15000 };
  return FIRST + (int)(((unsigned)getpid() * 7u + (unsigned)attempt * 1009u) % COUNT);
}

bool redis_start(redis_server_t* server, const char* const* options, bool* out_is_missing) {
  memset(server, 0, sizeof *server);
  *out_is_missing = server_path() == NULL;
  if (*out_is_missing || !qn_test_tempdir_make(server->directory)) return false;
  (void)snprintf(server->unix_path, sizeof server->unix_path, "%s/redis.sock", server->directory);
  for (int i = 0; i < 50; i++) {
    server->port = some_port(i);
    if (try_start(server, options)) return true;
    redis_kill(server);
  }
  qn_test_tempdir_remove(server->directory);
  return false;
}

void redis_kill(redis_server_t* server) {
  if (server->pid <= 0) return;
  (void)kill(server->pid, SIGCONT);
  (void)kill(server->pid, SIGKILL);
  (void)waitpid(server->pid, NULL, 0);
  server->pid = 0;
}

void redis_stop(redis_server_t* server) {
  redis_kill(server);
  qn_test_tempdir_remove(server->directory);
}

bool redis_say(const redis_server_t* server, const char* command, char* out, size_t room) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(server->unix_path) >= sizeof address.sun_path) return false;
  memcpy(address.sun_path, server->unix_path, strlen(server->unix_path));
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ssize_t got = -1;
  if (fd >= 0 && connect(fd, (struct sockaddr*)&address, sizeof address) == 0 &&
      send(fd, command, strlen(command), MSG_NOSIGNAL) == (ssize_t)strlen(command)) {
    struct pollfd item = {.fd = fd, .events = POLLIN};
    if (poll(&item, 1, PATIENCE_MS) > 0) got = recv(fd, out, room - 1, 0);
  }
  if (fd >= 0) (void)close(fd);
  if (got <= 0) return false;
  out[got] = '\0';
  return true;
}
