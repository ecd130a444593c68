// SPDX-License-Identifier: Apache-2.0
// bench/serve/load.c: serve_load, a load generator for servers of embeddings.
//
// Replays a trace (make-trace) against a server of one of four protocols and reports latencies from
// the scheduled instants. docs/benchmarks.md, "Serving", shows its use. Exit status: 0 all
// answered; 1 requests failed; 2 wrong usage or no connection; 3 the generator was the bottleneck.
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/serve/summary.h"

typedef struct load {
  protocol_t protocol;
  client_options_t client;
  const char* url;
  const char* protocol_name;
  const char* trace_path;
  const char* words_path;
  const char* records_path;
  const char* json_path;
  const char* embeddings_path;
  double speed;
  double timeout_s;
  double duration_s;
  double spin_us;
  double lag_limit_ms;
  double hold_mib;
  double connections;
  double max_connections;
  double closed;
  double warm_up;
} load_t;

typedef enum option_kind { OPTION_TEXT, OPTION_NUMBER, OPTION_FLAG } option_kind_t;

typedef struct load_option {
  const char* name;
  option_kind_t kind;
  size_t offset;  // in load_t
  double least;   // of numbers
  double most;
  const char* help;
} load_option_t;

#define AT(member) offsetof(load_t, member)
static const load_option_t options[] = {
    {"url", OPTION_TEXT, AT(url), 0, 0, "http://HOST:PORT[/PREFIX]"},
    {"protocol", OPTION_TEXT, AT(protocol_name), 0, 0, "oip, oip-binary, tei or openai"},
    {"model", OPTION_TEXT, AT(protocol.model), 0, 0, "NAME of the model"},
    {"trace", OPTION_TEXT, AT(trace_path), 0, 0, "FILE of make-trace"},
    {"speed", OPTION_NUMBER, AT(speed), 1e-6, 1e6, "times are divided by this; default 1"},
    {"closed", OPTION_NUMBER, AT(closed), 1, 60000,
     "N clients, one request after another; times are ignored"},
    {"warm-up", OPTION_NUMBER, AT(warm_up), 0, 1e9, "the first N requests do not count"},
    {"duration", OPTION_NUMBER, AT(duration_s), 0, 1e6, "seconds after which no more is sent"},
    {"timeout", OPTION_NUMBER, AT(timeout_s), 0.001, 1e6,
     "seconds from a request's instant; default 30"},
    {"connections", OPTION_NUMBER, AT(connections), 1, 60000,
     "opened before the start; default 64"},
    {"max-connections", OPTION_NUMBER, AT(max_connections), 1, 60000,
     "limit of those opened later; default 4096"},
    {"key", OPTION_TEXT, AT(protocol.key), 0, 0, "sent as 'Authorization: Bearer KEY'"},
    {"inputs", OPTION_TEXT, AT(protocol.inputs), 0, 0,
     "OIP: NAME of the texts, or NAMES of ids[,mask[,types]]"},
    {"output", OPTION_TEXT, AT(protocol.output), 0, 0,
     "OIP: NAME of the embeddings; default: the first"},
    {"ids", OPTION_FLAG, AT(protocol.sends_ids), 0, 0, "sends token ids instead of texts"},
    {"column", OPTION_FLAG, AT(protocol.sends_column), 0, 0, "OIP: texts as [N, 1], not [N]"},
    {"floats", OPTION_FLAG, AT(protocol.wants_floats), 0, 0, "OpenAI: numbers instead of base64"},
    {"records", OPTION_TEXT, AT(records_path), 0, 0, "FILE of one CSV line a request"},
    {"json", OPTION_TEXT, AT(json_path), 0, 0, "FILE of the summary"},
    {"embeddings", OPTION_TEXT, AT(embeddings_path), 0, 0, "FILE.npy of all embeddings"},
    {"lag-limit", OPTION_NUMBER, AT(lag_limit_ms), 0, 1e6,
     "ms, of the lag's p99; default 1, or 5 % of the median latency if that is more"},
    {"spin", OPTION_NUMBER, AT(spin_us), 0, 1e6,
     "polls so many us before an instant instead of sleeping; default 0"},
    {"hold", OPTION_NUMBER, AT(hold_mib), 0, 1e6,
     "MiB of answers that are kept for checks after the run; default 1024"},
    {"words", OPTION_TEXT, AT(words_path), 0, 0, "FILE of words and their ids"},
};
enum { OPTION_COUNT = sizeof options / sizeof *options };

_Noreturn static void give_up(const char* what, const char* why) {
  (void)fprintf(stderr, "serve_load: %s: %s\n", what, why);
  exit(2);
}

static void print_help(void) {
  (void)printf("usage: serve_load --url URL --protocol NAME --trace FILE [OPTION...]\n\n");
  for (size_t i = 0; i < OPTION_COUNT; i++) {
    (void)printf("  --%-16s %s\n", options[i].name, options[i].help);
  }
}

static void set_option(load_t* load, const load_option_t* option, const char* text) {
  char* member = (char*)load + option->offset;
  if (option->kind == OPTION_FLAG) {
    *(bool*)(void*)member = true;
  } else if (option->kind == OPTION_TEXT) {
    *(const char**)(void*)member = text;
  } else {
    char* end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= option->least && value <= option->most)) {
      give_up(option->name, "not a number that is allowed here");
    }
    *(double*)(void*)member = value;
  }
}

static void read_options(load_t* load, int argc, char** argv) {
  struct option table[OPTION_COUNT + 2] = {{.name = NULL}};
  for (size_t i = 0; i < OPTION_COUNT; i++) {
    int needs = options[i].kind == OPTION_FLAG ? no_argument : required_argument;
    table[i] = (struct option){options[i].name, needs, NULL, 1};
  }
  table[OPTION_COUNT] = (struct option){"help", no_argument, NULL, 2};
  for (;;) {
    int at = 0;
    int found = getopt_long(argc, argv, "", table, &at);
    if (found == -1) break;
    if (found == 2) {
      print_help();
      exit(0);
    }
    if (found != 1) exit(2);  // getopt_long has told why
    set_option(load, &options[at], optarg);
  }
  if (optind < argc) give_up(argv[optind], "unexpected");
  if (!load->url || !load->protocol_name || !load->trace_path) {
    give_up("needed", "--url, --protocol and --trace; --help shows all");
  }
}

// "http://host:port/prefix" into its parts, in storage of its own. IPv6: "http://[::1]:8080".
static void read_url(load_t* load) {
  static char host[640];
  static char port[16];
  static char header[640];
  static char prefix[512];
  if (strncmp(load->url, "http://", 7) != 0) give_up(load->url, "not http://");
  const char* begin = load->url + 7;
  size_t size = strcspn(begin, "/");
  const char* rest = begin + size;
  size_t rest_size = strlen(rest);
  while (rest_size > 0 && rest[rest_size - 1] == '/') rest_size--;
  if (size == 0 || size >= sizeof host || rest_size >= sizeof prefix) give_up(load->url, "bad URL");
  (void)snprintf(header, sizeof header, "%.*s", (int)size, begin);
  (void)snprintf(prefix, sizeof prefix, "%.*s", (int)rest_size, rest);
  (void)snprintf(host, sizeof host, "%s", header);
  (void)snprintf(port, sizeof port, "80");
  char* end = host[0] == '[' ? strchr(host, ']') : NULL;
  char* colon = strchr(end ? end : host, ':');
  if (colon) {
    if (strlen(colon + 1) >= sizeof port) give_up(load->url, "bad port");
    (void)snprintf(port, sizeof port, "%.15s", colon + 1);
    *colon = '\0';
  }
  load->client.host = host;
  if (end) {
    *end = '\0';
    load->client.host = host + 1;
  }
  load->client.port = port;
  load->protocol.host = header;
  load->protocol.prefix = prefix;
}

static void set_defaults(load_t* load) {
  *load = (load_t){.words_path = QN_SOURCE_DIR "/bench/serve/words.txt",
                   .speed = 1,
                   .timeout_s = 30,
                   .hold_mib = 1024,
                   .connections = 64,
                   .max_connections = 4096};
}

static void set_client(load_t* load) {
  client_options_t* client = &load->client;
  client->connections = (uint32_t)load->connections;
  client->max_connections = (uint32_t)fmax(load->max_connections, load->connections);
  client->closed = (uint32_t)load->closed;
  if (client->closed > client->max_connections) client->max_connections = client->closed;
  client->timeout_ns = (int64_t)(load->timeout_s * 1e9);
  client->duration_ns = (int64_t)(load->duration_s * 1e9);
  client->spin_ns = (int64_t)(load->spin_us * 1e3);
  client->hold_bytes = (size_t)(load->hold_mib * 1048576);
  client->max_body_bytes = (size_t)1 << 30;
}

int main(int argc, char** argv) {
  load_t load;
  set_defaults(&load);
  read_options(&load, argc, argv);
  read_url(&load);
  set_client(&load);
  if (!protocol_parse(load.protocol_name, &load.protocol.kind)) {
    give_up(load.protocol_name, "not a protocol; they are oip, oip-binary, tei, openai");
  }
  trace_t trace;
  if (!trace_read(&trace, load.words_path, load.trace_path, load.speed)) {
    give_up("trace", trace.error);
  }
  const char* problem = protocol_problem(&load.protocol, &trace);
  if (problem) give_up(load.protocol_name, problem);
  client_run_t run;
  if (!client_run(&load.client, &load.protocol, &trace, load.embeddings_path != NULL, &run)) {
    give_up(load.url, run.error);
  }
  bool is_closed = load.client.closed > 0;
  size_t warm_up = (size_t)load.warm_up;
  summary_t summary = summary_make(&run, &trace, warm_up, is_closed, load.lag_limit_ms);
  summary_print(&summary, &run, stdout);
  if (load.records_path && !summary_write_records(&run, &trace, warm_up, load.records_path)) {
    give_up(load.records_path, strerror(errno));
  }
  if (load.json_path && !summary_write_json(&summary, &run, load.trace_path, load.json_path)) {
    give_up(load.json_path, strerror(errno));
  }
  if (load.embeddings_path && !summary_write_embeddings(&run, &trace, load.embeddings_path)) {
    give_up(load.embeddings_path, strerror(errno));
  }
  client_run_free(&run);
  trace_free(&trace);
  if (summary.outcomes[CLIENT_OK] < summary.count) return 1;
  return summary.is_bottleneck ? 3 : 0;
}
