// SPDX-License-Identifier: Apache-2.0
// bench/serve/summary_write.c: the outputs of summary.h.
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/serve/summary.h"

// ---- the table

static void print_ms(FILE* out, double ms, int width) {
  if (isnan(ms)) {
    (void)fprintf(out, "%*s", width, "-");
  } else if (isinf(ms)) {
    (void)fprintf(out, "%*s", width, "failed");
  } else {
    (void)fprintf(out, "%*.3f", width, ms);
  }
}

static void print_times(FILE* out, const char* name, const summary_times_t* times) {
  if (times->count == 0) return;
  (void)fprintf(out, "%-28s %8zu", name, times->count);
  for (size_t l = 0; l < SUMMARY_LEVEL_COUNT; l++) print_ms(out, times->levels[l].value, 10);
  print_ms(out, times->max, 10);
  (void)fprintf(out, "\n%-28s %8s", "  95 % interval: from", "");
  for (size_t l = 0; l < SUMMARY_LEVEL_COUNT; l++) print_ms(out, times->levels[l].low, 10);
  (void)fprintf(out, "\n%-28s %8s", "                 to", "");
  for (size_t l = 0; l < SUMMARY_LEVEL_COUNT; l++) print_ms(out, times->levels[l].high, 10);
  (void)fprintf(out, "\n");
}

void summary_print(const summary_t* summary, const client_run_t* run, FILE* out) {
  (void)fprintf(out, "%zu requests, %zu before them as warm-up; %.1f s; ", summary->count,
                summary->warm_up_count, summary->seconds);
  if (summary->is_closed) {
    (void)fprintf(out,
                  "CLOSED loop: latencies count from sending and are no latencies under a load\n");
  } else {
    (void)fprintf(out, "open loop, offered %.1f requests/s\n", summary->offered);
  }
  (void)fprintf(out, "answered %.1f requests/s, %.1f texts/s", summary->answered_rate,
                summary->texts_rate);
  if (summary->tokens_rate > 0) (void)fprintf(out, ", %.0f tokens/s", summary->tokens_rate);
  (void)fprintf(out, "; %u connections; the generator took %.0f %% of a core\n",
                run->connections_opened, 100 * summary->cpu_share);
  (void)fprintf(out, "\n%-28s %8s%10s%10s%10s%10s%10s%10s\n", "milliseconds", "count", "p50", "p90",
                "p95", "p99", "p99.9", "max");
  bool has_failures = summary->outcomes[CLIENT_OK] < summary->count;
  if (has_failures) print_times(out, "latency, failed as never", &summary->all);
  print_times(out, "latency", &summary->answered);
  if (summary->first_seen.count > 0) {
    print_times(out, "  of first-seen batches", &summary->first_seen);
    print_times(out, "  of others", &summary->others);
  }
  if (!summary->is_closed) {
    print_times(out, "from the actual sending", &summary->service);
    print_times(out, "lag of the generator", &summary->lag);
    print_times(out, "answers unread, at most", &summary->unread);
    (void)fprintf(out, "%zu requests waited for a connection; longest turn %.3f ms\n",
                  summary->waited_count, (double)run->max_turn_ns / 1e6);
  }
  for (int o = 0; o < CLIENT_OUTCOME_COUNT; o++) {
    if (o == CLIENT_OK || summary->outcomes[o] == 0) continue;
    (void)fprintf(out, "FAILED %zu: %s\n", summary->outcomes[o],
                  client_outcome_text((client_outcome_t)o));
  }
  if (run->body_error) (void)fprintf(out, "first wrong body: %s\n", run->body_error);
  if (run->refusal[0] != '\0') (void)fprintf(out, "first refusal: %s\n", run->refusal);
  if (summary->is_bottleneck) {
    (void)fprintf(out,
                  "THE GENERATOR WAS THE BOTTLENECK: p99 of lag or unread is above %.3f ms\n"
                  "(as root, 'chrt -f 1 serve_load ...' keeps other programs from delaying it)\n",
                  summary->lag_limit_ms);
  }
}

// ---- JSON

// Infinite (failed) and unknown numbers are null.
static json_t* number(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static json_t* times_json(const summary_times_t* times) {
  static const char* const names[] = {
#define SUMMARY_NAME(name, p) #name,
      SUMMARY_LEVELS(SUMMARY_NAME)
#undef SUMMARY_NAME
  };
  json_t* object = json_object();
  (void)json_object_set_new(object, "count", json_integer((json_int_t)times->count));
  for (size_t l = 0; l < SUMMARY_LEVEL_COUNT; l++) {
    const quantile_t* q = &times->levels[l];
    json_t* level = json_object();
    (void)json_object_set_new(level, "value", number(q->value));
    (void)json_object_set_new(level, "low", number(q->low));
    (void)json_object_set_new(level, "high", number(q->high));
    (void)json_object_set_new(object, names[l], level);
  }
  (void)json_object_set_new(object, "mean", number(times->mean));
  (void)json_object_set_new(object, "max", number(times->max));
  return object;
}

bool summary_write_json(const summary_t* summary, const client_run_t* run, const char* trace_path,
                        const char* path) {
  json_t* root = json_object();
  (void)json_object_set_new(root, "trace", json_string(trace_path));
  (void)json_object_set_new(root, "loop", json_string(summary->is_closed ? "closed" : "open"));
  (void)json_object_set_new(root, "requests", json_integer((json_int_t)summary->count));
  (void)json_object_set_new(root, "warm_up", json_integer((json_int_t)summary->warm_up_count));
  (void)json_object_set_new(root, "seconds", number(summary->seconds));
  (void)json_object_set_new(root, "offered_per_s", number(summary->offered));
  (void)json_object_set_new(root, "answered_per_s", number(summary->answered_rate));
  (void)json_object_set_new(root, "texts_per_s", number(summary->texts_rate));
  (void)json_object_set_new(root, "tokens_per_s", number(summary->tokens_rate));
  json_t* failed = json_object();
  for (int o = 0; o < CLIENT_OUTCOME_COUNT; o++) {
    if (o == CLIENT_OK || o == CLIENT_UNSENT) continue;
    (void)json_object_set_new(failed, client_outcome_word((client_outcome_t)o),
                              json_integer((json_int_t)summary->outcomes[o]));
  }
  (void)json_object_set_new(root, "failed", failed);
  if (run->body_error) {
    (void)json_object_set_new(root, "first_wrong_body", json_string(run->body_error));
  }
  if (run->refusal[0] != '\0') {
    (void)json_object_set_new(root, "first_refusal", json_string(run->refusal));
  }
  (void)json_object_set_new(root, "latency_failed_as_never_ms", times_json(&summary->all));
  (void)json_object_set_new(root, "latency_ms", times_json(&summary->answered));
  (void)json_object_set_new(root, "latency_first_seen_ms", times_json(&summary->first_seen));
  (void)json_object_set_new(root, "latency_others_ms", times_json(&summary->others));
  (void)json_object_set_new(root, "from_sending_ms", times_json(&summary->service));
  (void)json_object_set_new(root, "lag_ms", times_json(&summary->lag));
  (void)json_object_set_new(root, "unread_ms", times_json(&summary->unread));
  (void)json_object_set_new(root, "lag_limit_ms", number(summary->lag_limit_ms));
  (void)json_object_set_new(root, "is_bottleneck", json_boolean(summary->is_bottleneck));
  (void)json_object_set_new(root, "waited_for_connection",
                            json_integer((json_int_t)summary->waited_count));
  (void)json_object_set_new(root, "connections", json_integer(run->connections_opened));
  (void)json_object_set_new(root, "longest_turn_ms", number((double)run->max_turn_ns / 1e6));
  (void)json_object_set_new(root, "generator_cpu_share", number(summary->cpu_share));
  (void)json_object_set_new(root, "embedding_width", json_integer(run->text_width));
  bool is_written = json_dump_file(root, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;
  json_decref(root);
  return is_written;
}

// ---- records

static void put_us(FILE* out, int64_t ns) {
  if (ns < 0) {
    (void)fprintf(out, ",");
  } else {
    (void)fprintf(out, "%lld.%03d,", (long long)(ns / 1000), (int)(ns % 1000));
  }
}

// Returns false with errno set if any write has failed.
static bool close_written(FILE* out) {
  bool is_written = !ferror(out);
  return (fclose(out) == 0) && is_written;
}

bool summary_write_records(const client_run_t* run, const trace_t* trace, size_t warm_up_count,
                           const char* path) {
  FILE* out = fopen(path, "w");
  if (!out) return false;
  (void)fprintf(
      out,
      "index,client,scheduled_us,sent_us,done_us,unread_us,status,bytes,texts,tokens,first_seen,"
      "connection,waited,warm_up,checksum,error\n");
  for (size_t i = 0; i < run->count; i++) {
    const client_record_t* record = &run->records[i];
    const trace_request_t* request = &trace->requests[i];
    (void)fprintf(out, "%zu,%u,", i, request->client);
    put_us(out, record->scheduled_ns);
    put_us(out, record->sent_ns);
    put_us(out, record->done_ns);
    put_us(out, record->unread_ns);
    (void)fprintf(out, "%d,%llu,%u,%lld,%d,%d,%d,%d,%016llx,%s\n", record->status,
                  (unsigned long long)record->bytes, request->text_count,
                  (long long)request->tokens, record->is_first_seen, record->connection,
                  record->waited, i < warm_up_count, (unsigned long long)record->checksum,
                  client_outcome_word(record->outcome));
  }
  return close_written(out);
}

// A .npy file, version 1.0, of [texts, width]; rows of failed requests are NaN.
bool summary_write_embeddings(const client_run_t* run, const trace_t* trace, const char* path) {
  FILE* out = fopen(path, "wb");
  if (!out) return false;
  size_t rows = run->embeddings ? trace->text_count : 0;
  char header[128];
  (void)memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
  int size = snprintf(header + 10, sizeof header - 10,
                      "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %u), }", rows,
                      run->text_width);
  (void)memset(header + 10 + size, ' ', sizeof header - 11 - (size_t)size);
  header[sizeof header - 1] = '\n';
  (void)fwrite(header, 1, sizeof header, out);
  if (rows > 0) (void)fwrite(run->embeddings, run->text_width * sizeof(float), rows, out);
  return close_written(out);
}
