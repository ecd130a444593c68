// SPDX-License-Identifier: Apache-2.0
// bench/serve/client.c: see client.h.
//
// The loop, in turn: sends every request that is due, ends those whose time is over, sleeps until
// the next instant or the next byte, reads answers. A request's bytes are made ahead of its
// instant, in turns without anything else to do, so that its sending is one call.
#include "bench/serve/client.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "bench/serve/answers.h"
#include "bench/serve/http_response.h"

enum {
  EVENTS_A_TURN = 64,
  READ_BYTES = 256 << 10,
  AHEAD = 128,               // requests rendered before their instant
  RENDER_SLACK_NS = 200000,  // renders only if the next instant is further than this
  START_DELAY_NS = 10000000,
  MAX_CONNECTING = 16  // at once, in the run: each takes 50 us of the loop
};
#define NEVER_NS INT64_MAX

typedef enum link_state { LINK_CONNECTING, LINK_IDLE, LINK_BUSY } link_state_t;

typedef struct link {
  struct link* next;  // of the idle ones
  struct link* previous;
  int fd;  // -1: closed
  int32_t number;
  link_state_t state;
  bool must_close;     // after the answer
  size_t request;      // LINK_BUSY
  qn__buffer_t bytes;  // of the request
  size_t sent;
  http_response_t response;
} link_t;

typedef struct client {
  const client_options_t* options;
  const protocol_t* protocol;
  const trace_t* trace;
  client_run_t* run;
  answers_t answers;
  struct addrinfo* address;  // that of the first connection that was opened
  struct addrinfo* addresses;
  int epoll;
  int timer;
  int64_t timer_at_ns;
  int64_t start_ns;
  int64_t looked_ns;  // when the sockets were last looked at
  int64_t since_ns;   // what is read in this turn has come after that
  bool is_running;
  int connect_error;  // errno of the last connection that failed
  link_t** links;     // all that were ever opened, by number; NULL: closed
  link_t* closed;     // freed at the end of the turn: its events may still name them
  uint32_t link_count;
  uint32_t open_count;
  uint32_t connecting_count;
  link_t idle;    // head of a ring, first in first out: all connections get their share
  size_t next;    // the first request that was not sent
  size_t due;     // the first request whose instant has not come; open loop
  size_t oldest;  // every request before it is done
  size_t count;   // of requests to send: the trace, or less once the duration is over
  size_t done_count;
  qn__buffer_t ahead[AHEAD];  // request i in slot i % AHEAD
  size_t rendered;            // every request before it is rendered
  uint8_t* read_bytes;
} client_t;

const char* client_outcome_word(client_outcome_t outcome) {
  static const char* const words[] = {
#define CLIENT_WORD(symbol, word, text) word,
      CLIENT_OUTCOMES(CLIENT_WORD)
#undef CLIENT_WORD
  };
  return words[outcome];
}

const char* client_outcome_text(client_outcome_t outcome) {
  static const char* const texts[] = {
#define CLIENT_TEXT(symbol, word, text) text,
      CLIENT_OUTCOMES(CLIENT_TEXT)
#undef CLIENT_TEXT
  };
  return texts[outcome];
}

static int64_t clock_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t now_ns(const client_t* client) {
  return clock_ns() - client->start_ns;
}

static bool fail_start(client_t* client, const char* what, const char* why) {
  (void)snprintf(client->run->error, sizeof client->run->error, "%s: %s", what, why);
  return false;
}

// ---- records

static void finish(client_t* client, size_t index, client_outcome_t outcome) {
  client_record_t* record = &client->run->records[index];
  record->outcome = outcome;
  record->is_done = true;
  client->done_count++;
}

// Ends the oldest unsent request without an answer.
static void fail_next(client_t* client, client_outcome_t outcome) {
  client_record_t* record = &client->run->records[client->next];
  record->done_ns = now_ns(client);
  finish(client, client->next, outcome);
  client->next++;
}

// ---- connections

static void push_idle(client_t* client, link_t* link) {
  link->state = LINK_IDLE;
  link->next = &client->idle;
  link->previous = client->idle.previous;
  link->previous->next = link;
  client->idle.previous = link;
}

static void drop_idle(link_t* link) {
  link->previous->next = link->next;
  link->next->previous = link->previous;
}

static void watch(client_t* client, link_t* link, int operation, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = link};
  (void)epoll_ctl(client->epoll, operation, link->fd, &event);
}

static void close_link(client_t* client, link_t* link) {
  if (link->state == LINK_CONNECTING) client->connecting_count--;
  if (link->state == LINK_IDLE) drop_idle(link);
  (void)close(link->fd);
  link->fd = -1;
  link->state = LINK_BUSY;
  client->open_count--;
  client->links[link->number] = NULL;
  link->next = client->closed;
  client->closed = link;
}

static void free_closed(client_t* client) {
  while (client->closed) {
    link_t* link = client->closed;
    client->closed = link->next;
    http_response_deinit(&link->response);
    qn__buffer_deinit(&link->bytes);
    free(link);
  }
}

// Begins to connect. Returns NULL with errno set if that fails at once.
static link_t* open_link(client_t* client) {
  const struct addrinfo* address = client->address;
  size_t capacity = client->link_count;
  if ((capacity & (capacity - 1)) == 0) {
    size_t grown = capacity ? capacity * 2 : 1;
    link_t** links = realloc(client->links, grown * sizeof *links);
    if (!links) return NULL;
    client->links = links;
  }
  link_t* link = calloc(1, sizeof *link);
  if (!link) return NULL;
  link->fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (link->fd < 0 ||
      (connect(link->fd, address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS)) {
    int error = errno;
    if (link->fd >= 0) (void)close(link->fd);
    free(link);
    errno = error;
    return NULL;
  }
  (void)setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
  link->number = (int32_t)client->link_count;
  link->state = LINK_CONNECTING;
  qn__buffer_init(&link->bytes, qn_allocator_default());
  http_response_init(&link->response, client->options->max_body_bytes);
  client->links[client->link_count++] = link;
  client->open_count++;
  client->connecting_count++;
  watch(client, link, EPOLL_CTL_ADD, EPOLLOUT);
  return link;
}

// Opens as many as there are requests that wait for one, within the limit.
static void open_more(client_t* client, size_t waiting_count) {
  if (waiting_count > MAX_CONNECTING) waiting_count = MAX_CONNECTING;
  while (client->connecting_count < waiting_count &&
         client->open_count < client->options->max_connections) {
    if (open_link(client)) continue;
    // Out of descriptors: the open connections must do. Without any, the request has failed.
    if (client->open_count == 0) fail_next(client, CLIENT_CONNECT);
    break;
  }
}

// ---- requests

static qn__buffer_t* render(client_t* client, size_t index) {
  qn__buffer_t* bytes = &client->ahead[index % AHEAD];
  qn__buffer_clear(bytes);
  protocol_render(client->protocol, client->trace, index, bytes);
  if (bytes->has_failed) abort();  // no memory; half a request must not be sent
  return bytes;
}

// Keeps the first refusal: its text tells what the server did not like.
static void keep_refusal(client_run_t* run, const http_response_t* response) {
  if (run->refusal[0] != '\0') return;
  int size = snprintf(run->refusal, sizeof run->refusal, "status %d: %.*s", response->status,
                      (int)(response->body.size < 180 ? response->body.size : 180),
                      response->body.size > 0 ? (const char*)response->body.data : "");
  for (int i = 0; i < size && run->refusal[i] != '\0'; i++) {
    unsigned char c = (unsigned char)run->refusal[i];
    if (c < ' ' || c >= 0x7F) run->refusal[i] = '?';
  }
}

static void end_request(client_t* client, link_t* link, client_outcome_t outcome) {
  client_record_t* record = &client->run->records[link->request];
  http_response_t* response = &link->response;
  record->done_ns = now_ns(client);
  record->status = response->status;
  record->bytes = response->body.size;
  if (outcome == CLIENT_OK) record->unread_ns = record->done_ns - client->since_ns;
  record->is_first_seen = response->is_first_seen;
  if (outcome == CLIENT_OK && response->status != 200) {
    outcome = CLIENT_STATUS;
    keep_refusal(client->run, response);
  }
  finish(client, link->request, outcome);
  if (outcome == CLIENT_OK) {
    answers_add(&client->answers, link->request, qn__buffer_as_span(&response->body),
                response->json_bytes);
  }
}

static void break_link(client_t* client, link_t* link, client_outcome_t outcome) {
  if (link->state == LINK_BUSY) end_request(client, link, outcome);
  close_link(client, link);
}

static void write_link(client_t* client, link_t* link) {
  size_t left = link->bytes.size - link->sent;
  ssize_t count = send(link->fd, link->bytes.data + link->sent, left, MSG_NOSIGNAL);
  if (count < 0 && errno != EAGAIN && errno != EINTR) {
    // The server may have answered before it closed: read that before giving up.
    watch(client, link, EPOLL_CTL_MOD, EPOLLIN);
    link->sent = link->bytes.size;
    link->must_close = true;
    return;
  }
  size_t sent_before = link->sent;
  link->sent += count > 0 ? (size_t)count : 0;
  bool is_sent = link->sent == link->bytes.size;
  if (!is_sent && sent_before == 0) watch(client, link, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
  if (is_sent && sent_before > 0) watch(client, link, EPOLL_CTL_MOD, EPOLLIN);
}

static void send_next(client_t* client, link_t* link) {
  size_t index = client->next++;
  if (index >= client->rendered) {
    (void)render(client, index);
    client->rendered = index + 1;
  }
  // The connection's old bytes become the slot's memory.
  qn__buffer_t bytes = client->ahead[index % AHEAD];
  client->ahead[index % AHEAD] = link->bytes;
  link->bytes = bytes;
  drop_idle(link);
  link->state = LINK_BUSY;
  link->request = index;
  link->sent = 0;
  http_response_reset(&link->response);
  client_record_t* record = &client->run->records[index];
  record->connection = link->number;
  record->sent_ns = now_ns(client);
  if (client->options->closed > 0) record->scheduled_ns = record->sent_ns;
  write_link(client, link);
}

static bool has_idle(const client_t* client) {
  return client->idle.next != &client->idle;
}

// Sends all requests that are due and find a connection.
static void dispatch(client_t* client) {
  if (client->options->closed > 0) {
    if (client->options->duration_ns > 0 && client->count > client->next &&
        now_ns(client) >= client->options->duration_ns) {
      client->count = client->next;
    }
    while (client->next < client->count && has_idle(client)) send_next(client, client->idle.next);
    size_t left = client->count - client->next;
    uint32_t missing = client->options->closed - client->open_count;
    if (missing > 0 && left > 0) open_more(client, left < missing ? left : missing);
    return;
  }
  client_record_t* records = client->run->records;
  int64_t now = now_ns(client);
  size_t before = client->due;
  while (client->due < client->count && records[client->due].scheduled_ns <= now) client->due++;
  while (client->next < client->due && has_idle(client)) send_next(client, client->idle.next);
  for (size_t i = client->next > before ? client->next : before; i < client->due; i++) {
    records[i].waited = true;
  }
  if (client->next < client->due) open_more(client, client->due - client->next);
}

// ---- events

static void read_link(client_t* client, link_t* link) {
  ssize_t count = recv(link->fd, client->read_bytes, READ_BYTES, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  http_response_t* response = &link->response;
  if (link->state == LINK_IDLE) {
    // The server closes a connection without a request, or speaks unasked. Neither is an answer.
    close_link(client, link);
    return;
  }
  if (count < 0) {
    break_link(client, link, CLIENT_CLOSED);
    return;
  }
  size_t used = 0;
  if (count > 0) {
    used = http_response_feed(response, client->read_bytes, (size_t)count);
  } else {
    http_response_end(response);
  }
  if (response->state == HTTP_FAILED) {
    break_link(client, link, count > 0 ? CLIENT_PROTOCOL : CLIENT_CLOSED);
  } else if (response->state == HTTP_DONE) {
    if (used < (size_t)count) {
      break_link(client, link, CLIENT_PROTOCOL);  // more bytes than the answer has
      return;
    }
    end_request(client, link, CLIENT_OK);
    // An answer before the end of the request leaves the connection in doubt.
    if (!link->must_close && response->keeps_alive && link->sent == link->bytes.size) {
      push_idle(client, link);
    } else {
      close_link(client, link);
    }
  }
}

static void finish_connecting(client_t* client, link_t* link) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) {
    client->connect_error = error;
    close_link(client, link);
    // Without this a server that is gone would be asked without end.
    size_t due = client->options->closed > 0 ? client->count : client->due;
    if (client->is_running && client->next < due) fail_next(client, CLIENT_CONNECT);
    return;
  }
  client->connecting_count--;
  push_idle(client, link);
  watch(client, link, EPOLL_CTL_MOD, EPOLLIN);
}

static void handle(client_t* client, link_t* link, uint32_t events) {
  if (link->fd < 0) return;
  if (link->state == LINK_CONNECTING) {
    finish_connecting(client, link);
    return;
  }
  if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_link(client, link);
  if (link->fd >= 0 && (events & EPOLLOUT) && link->state == LINK_BUSY &&
      link->sent < link->bytes.size) {
    write_link(client, link);
  }
}

static link_t* find_link(client_t* client, size_t index) {
  int32_t number = client->run->records[index].connection;
  return number < 0 ? NULL : client->links[number];
}

// Ends requests whose time is over. Deadlines ascend as the instants do.
static int64_t expire(client_t* client) {
  int64_t timeout_ns = client->options->timeout_ns;
  int64_t now = now_ns(client);
  size_t end = client->options->closed > 0 ? client->next : client->due;
  while (client->oldest < end) {
    const client_record_t* record = &client->run->records[client->oldest];
    if (!record->is_done) {
      if (record->scheduled_ns + timeout_ns > now) return record->scheduled_ns + timeout_ns;
      if (client->oldest >= client->next) {
        fail_next(client, CLIENT_TIMEOUT);
      } else {
        break_link(client, find_link(client, client->oldest), CLIENT_TIMEOUT);
      }
    }
    client->oldest++;
  }
  return NEVER_NS;
}

// ---- the loop

static void set_timer(client_t* client, int64_t at_ns) {
  if (at_ns == client->timer_at_ns) return;
  client->timer_at_ns = at_ns;
  struct itimerspec spec = {.it_value = {0, 0}};
  if (at_ns != NEVER_NS) {
    int64_t absolute = client->start_ns + at_ns;
    if (absolute < 1) absolute = 1;
    spec.it_value.tv_sec = absolute / 1000000000;
    spec.it_value.tv_nsec = absolute % 1000000000;
  }
  (void)timerfd_settime(client->timer, TFD_TIMER_ABSTIME, &spec, NULL);
}

// Renders one request ahead if there is time. Returns false if there was nothing to do.
static bool render_ahead(client_t* client, int64_t until_ns) {
  if (client->rendered < client->next) client->rendered = client->next;
  if (client->rendered >= client->count || client->rendered >= client->next + AHEAD) return false;
  if (until_ns != NEVER_NS && until_ns - now_ns(client) < RENDER_SLACK_NS) return false;
  (void)render(client, client->rendered++);
  return true;
}

// Sleeps until `wake_ns` or an event, and handles the events.
static void turn(client_t* client, int64_t wake_ns, int64_t next_ns) {
  bool is_close = next_ns != NEVER_NS && next_ns - now_ns(client) <= client->options->spin_ns;
  bool polls = is_close || render_ahead(client, next_ns);
  if (!polls) set_timer(client, wake_ns);
  struct epoll_event events[EVENTS_A_TURN];
  int count = epoll_wait(client->epoll, events, EVENTS_A_TURN, 0);
  client->since_ns = client->looked_ns;  // these bytes may have come right after the last look
  if (count == 0 && !polls) {
    count = epoll_wait(client->epoll, events, EVENTS_A_TURN, -1);
    client->since_ns = now_ns(client);
  }
  client->looked_ns = now_ns(client);
  for (int i = 0; i < count; i++) {
    if (!events[i].data.ptr) {
      uint64_t ticks = 0;
      (void)!read(client->timer, &ticks, sizeof ticks);
      client->timer_at_ns = NEVER_NS;
    } else {
      handle(client, events[i].data.ptr, events[i].events);
    }
    dispatch(client);
  }
  free_closed(client);
  int64_t took_ns = now_ns(client) - client->looked_ns;
  if (took_ns > client->run->max_turn_ns) client->run->max_turn_ns = took_ns;
}

static void replay(client_t* client) {
  for (;;) {
    dispatch(client);
    int64_t deadline_ns = expire(client);
    if (client->done_count >= client->count) break;
    int64_t next_ns = NEVER_NS;
    if (client->options->closed > 0) {
      if (client->options->duration_ns > 0) next_ns = client->options->duration_ns;
    } else if (client->due < client->count) {
      next_ns = client->run->records[client->due].scheduled_ns;
    }
    if (client->options->closed > 0 && client->next >= client->count) next_ns = NEVER_NS;
    turn(client, next_ns < deadline_ns ? next_ns : deadline_ns, next_ns);
  }
}

static int64_t process_cpu_ns(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// Opens the first connection, trying each address, and then the others.
static bool open_all(client_t* client) {
  const client_options_t* options = client->options;
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
  int failure = getaddrinfo(options->host, options->port, &hints, &client->addresses);
  if (failure != 0) return fail_start(client, options->host, gai_strerror(failure));
  uint32_t wanted = options->closed > 0 ? options->closed : options->connections;
  client->connect_error = ETIMEDOUT;
  client->start_ns = clock_ns();
  for (client->address = client->addresses; client->address;
       client->address = client->address->ai_next) {
    for (uint32_t i = 0; i < wanted; i++) {
      if (open_link(client)) continue;
      client->connect_error = errno;
      break;
    }
    while (client->connecting_count > 0 && now_ns(client) < options->timeout_ns) {
      struct epoll_event event;
      int timeout_ms = (int)((options->timeout_ns - now_ns(client)) / 1000000) + 1;
      if (epoll_wait(client->epoll, &event, 1, timeout_ms) != 1) continue;
      handle(client, event.data.ptr, event.events);
    }
    if (has_idle(client)) return true;
  }
  return fail_start(client, "cannot connect", strerror(client->connect_error));
}

static bool prepare(client_t* client) {
  const trace_t* trace = client->trace;
  const client_options_t* options = client->options;
  client->count = trace->count;
  client->run->count = trace->count;
  client->run->records = calloc(trace->count, sizeof *client->run->records);
  client->read_bytes = malloc(READ_BYTES);
  if (!client->run->records || !client->read_bytes)
    return fail_start(client, "records", "no memory");
  for (size_t i = 0; i < trace->count; i++) {
    client->run->records[i] = (client_record_t){.scheduled_ns = trace->requests[i].at_ns,
                                                .sent_ns = -1,
                                                .done_ns = -1,
                                                .unread_ns = -1,
                                                .connection = -1,
                                                .outcome = CLIENT_UNSENT};
  }
  if (options->closed == 0 && options->duration_ns > 0) {
    while (client->count > 0 && trace->requests[client->count - 1].at_ns >= options->duration_ns) {
      client->count--;
    }
  }
  client->epoll = epoll_create1(EPOLL_CLOEXEC);
  client->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (client->epoll < 0 || client->timer < 0) return fail_start(client, "epoll", strerror(errno));
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
  }
  if (!open_all(client)) return false;
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
  (void)epoll_ctl(client->epoll, EPOLL_CTL_ADD, client->timer, &event);
  for (size_t i = 0; i < AHEAD && i < client->count; i++) (void)render(client, client->rendered++);
  return true;
}

bool client_run(const client_options_t* options, const protocol_t* protocol, const trace_t* trace,
                bool keeps_embeddings, client_run_t* out_run) {
  *out_run = (client_run_t){.count = 0};
  client_t* client = calloc(1, sizeof *client);
  if (!client) return false;
  *client = (client_t){.options = options,
                       .protocol = protocol,
                       .trace = trace,
                       .run = out_run,
                       .epoll = -1,
                       .timer = -1,
                       .timer_at_ns = NEVER_NS};
  client->idle.next = client->idle.previous = &client->idle;
  for (size_t i = 0; i < AHEAD; i++) qn__buffer_init(&client->ahead[i], qn_allocator_default());
  answers_init(&client->answers, protocol, trace, out_run, options->hold_bytes, keeps_embeddings);
  bool is_ok = prepare(client);
  if (is_ok) {
    // A closed loop begins at once: times before the start would be negative.
    client->start_ns = clock_ns() + (options->closed > 0 ? 0 : START_DELAY_NS);
    client->looked_ns = now_ns(client);
    client->is_running = true;
    int64_t cpu_ns = process_cpu_ns();
    replay(client);
    out_run->wall_ns = now_ns(client);
    out_run->cpu_ns = process_cpu_ns() - cpu_ns;
    out_run->connections_opened = client->link_count;
    answers_check(&client->answers);
  }
  for (uint32_t i = 0; i < client->link_count; i++) {
    if (client->links[i]) close_link(client, client->links[i]);
  }
  free_closed(client);
  for (size_t i = 0; i < AHEAD; i++) qn__buffer_deinit(&client->ahead[i]);
  answers_deinit(&client->answers);
  if (client->addresses) freeaddrinfo(client->addresses);
  if (client->epoll >= 0) (void)close(client->epoll);
  if (client->timer >= 0) (void)close(client->timer);
  free(client->links);
  free(client->read_bytes);
  free(client);
  return is_ok;
}

void client_run_free(client_run_t* run) {
  free(run->records);
  free(run->embeddings);
  run->records = NULL;
  run->embeddings = NULL;
}
