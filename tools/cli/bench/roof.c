// SPDX-License-Identifier: Apache-2.0
// tools/cli/bench/roof.c: measures peaks by small programs, and compares calls with them.
//
// The programs keep twelve vectors of sums, more than the latency of a multiply-add times the units
// of any processor that we know. `load` reads a slice again and again into such sums; `update`
// changes one in place, which a write-back cache serves with two transfers for each element.
#include "tools/cli/bench/roof.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quern/device.h"
#include "tools/cli/bench/stop.h"
#include "tools/cli/output.h"
#include "tools/cli/session.h"

#define MS INT64_C(1000000)
enum { CHAINS = 12, PEAK_SLICES = 8, MEMORY_BYTES = 1 << 27 };

// D: dtype, V: lanes, C: chains times lanes, S: one step of a chain.
static const char program[] =
    "func peak(n: i64, inout x: @D[t, @C]) {\n"
    "  parallel i in 0..t {\n"
    "    alloc acc: @D[12, @V] in local;\n"
    "    unroll u in 0..12 { vector v in 0..@V { acc[u, v] = x[i, u * @V + v]; } }\n"
    "    for r in 0..n {\n"
    "      unroll u in 0..12 { vector v in 0..@V { acc[u, v] = @S; } }\n"
    "    }\n"
    "    unroll u in 0..12 { vector v in 0..@V { x[i, u * @V + v] = acc[u, v]; } }\n"
    "  }\n"
    "}\n"
    "func load(n: i64, x: @D[t, m, @C], out y: @D[t, @C]) {\n"
    "  parallel i in 0..t {\n"
    "    alloc acc: @D[12, @V] in local;\n"
    "    unroll u in 0..12 { vector v in 0..@V { acc[u, v] = @D(0); } }\n"
    "    for r in 0..n {\n"
    "      for j in 0..m {\n"
    "        unroll u in 0..12 { vector v in 0..@V {\n"
    "          acc[u, v] = acc[u, v] + x[i, j, u * @V + v]; } }\n"
    "      }\n"
    "    }\n"
    "    unroll u in 0..12 { vector v in 0..@V { y[i, u * @V + v] = acc[u, v]; } }\n"
    "  }\n"
    "}\n"
    "func update(n: i64, inout x: @D[t, m, @C]) {\n"
    "  parallel i in 0..t { for j in 0..m { for k in 0..@C {\n"
    "    x[i, j, k] = x[i, j, k] + @D(1);\n"
    "  } } }\n"
    "}\n";

typedef struct bench_roof {
  const bench_place_t* place;
  int32_t threads;
  int64_t lanes, slices;
  qn_dtype_t dtype;
  qn_engine_t* engine;
  qn_module_t* module;
} bench_roof_t;

static void write_program(const bench_roof_t* roof, char* out, size_t room) {
  const char* dtype = qn_dtype_text(roof->dtype);
  bool is_float = strchr("fb", dtype[0]) != NULL;
  size_t used = 0;
  for (const char* at = program; *at && used + 64 < room; at++) {
    if (*at != '@') {
      out[used++] = *at;
      continue;
    }
    int size = 0;
    switch (*++at) {
      case 'D':
        size = snprintf(out + used, room - used, "%s", dtype);
        break;
      case 'V':
        size = snprintf(out + used, room - used, "%d", (int)roof->lanes);
        break;
      case 'C':
        size = snprintf(out + used, room - used, "%d", (int)(CHAINS * roof->lanes));
        break;
      default:
        size = snprintf(out + used, room - used, "%s",
                        is_float ? "fma(acc[u, v], 0.5, 1.0)" : "acc[u, v] * 3 + 1");
    }
    used += (size_t)size;
  }
  assert(used + 64 < room);
  out[used] = '\0';
}

static qn_status_t open_roof(bench_roof_t* roof) {
  static const qn_setting_t settings[] = {{"cache_dir", ""}, {"bundles", ""}, {"remote", ""},
                                          {"record", ""},    {"trace", ""},   {"dump", ""}};
  char text[4096];
  write_program(roof, text, sizeof text);
  qn_status_t status = qn_module_parse(text, strlen(text), NULL, &roof->module);
  if (!qn_ok(status)) return status;
  return session_engine_with(settings, sizeof settings / sizeof settings[0], &roof->engine);
}

// ------------------------------------------------------------------------------------ running

// One function with its arrays.
typedef struct roof_stream {
  qn_function_t* function;
  void* data[2];
  int64_t shapes[2][3];
  qn_tensor_t tensors[2];
  qn_value_t args[3];
  size_t arg_count;
} roof_stream_t;

static qn_status_t make_array(const bench_roof_t* roof, roof_stream_t* s, int i, int32_t rank) {
  int64_t count = 1;
  for (int32_t d = 0; d < rank; d++) count *= s->shapes[i][d];
  size_t bytes = (size_t)count * qn_dtype_size_bytes(roof->dtype);
  qn_device_t device = roof->place->device;
  qn_status_t status = qn_device_allocate(device, bytes, 64, &s->data[i]);
  if (!qn_ok(status)) return status;
  // Ones and zeros, so that no sum becomes slow to add; written, so that the system gives pages.
  void* zeros = calloc(1, bytes);
  if (!zeros) return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for %zu bytes", bytes);
  memset(zeros, 0, bytes);
  qn_copy_t copy = {.struct_size = sizeof copy,
                    .from_device = {QN_DEVICE_CPU, 0},
                    .from = zeros,
                    .to_device = device,
                    .to = s->data[i],
                    .size_bytes = bytes};
  status = qn_device_copy(&copy, NULL);
  free(zeros);
  s->tensors[i] = (qn_tensor_t){.data = s->data[i],
                                .device = device,
                                .ndim = rank,
                                .dtype = qn_dtype_to_dl(roof->dtype),
                                .shape = s->shapes[i]};
  s->args[1 + i] = qn_value_tensor(&s->tensors[i]);
  return status;
}

static qn_status_t time_call(const bench_roof_t* roof, roof_stream_t* s, int64_t n,
                             double* out_ns) {
  s->args[0] = qn_value_int(n);
  int64_t start_ns = now_ns();
  qn_status_t status = qn_function_call_on(s->function, NULL, s->args, s->arg_count, NULL);
  if (qn_ok(status)) status = qn_stream_sync(roof->place->device, NULL);
  *out_ns = (double)(now_ns() - start_ns);
  return status;
}

// Finds the best time per repetition within about 40 ms. `n` repetitions take a millisecond or so.
static qn_status_t best_time(const bench_roof_t* roof, roof_stream_t* s, bool has_repetitions,
                             double* out_ns) {
  double ns = 0, best = 0;
  int64_t n = 1;
  qn_status_t status = time_call(roof, s, n, &ns);
  while (qn_ok(status) && has_repetitions && ns < (double)MS && n < (INT64_C(1) << 30)) {
    n *= 2;
    status = time_call(roof, s, n, &ns);
  }
  int64_t until_ns = now_ns() + 40 * MS;
  for (int i = 0; qn_ok(status) && (i < 3 || now_ns() < until_ns) && !stop_wanted(); i++) {
    status = time_call(roof, s, n, &ns);
    if (best == 0 || ns < best) best = ns;
  }
  *out_ns = best / (double)n;
  return status;
}

// Runs one function over slices of `rows` rows; 0: `peak`, which has no rows.
static qn_status_t run_stream(const bench_roof_t* roof, const char* name, int64_t rows,
                              double* out_ns) {
  roof_stream_t s = {.arg_count = 2};
  int64_t width = CHAINS * roof->lanes;
  bool is_load = strcmp(name, "load") == 0;
  // More chains than threads, so that no thread waits long for a slower one. Streams have a slice
  // for each thread, or the caches would hold less than their size.
  s.shapes[0][0] = s.shapes[1][0] = rows ? roof->slices : PEAK_SLICES * roof->slices;
  s.shapes[0][1] = rows ? rows : width;
  s.shapes[0][2] = s.shapes[1][1] = width;
  qn_status_t status = qn_engine_function(roof->engine, roof->module, roof->place->target, name,
                                          NULL, NULL, &s.function);
  if (qn_ok(status)) status = make_array(roof, &s, 0, rows ? 3 : 2);
  if (qn_ok(status) && is_load) {
    s.arg_count = 3;
    status = make_array(roof, &s, 1, 2);
  }
  if (qn_ok(status)) status = best_time(roof, &s, rows == 0 || is_load, out_ns);
  qn_function_release(s.function);
  for (int i = 0; i < 2; i++) {
    if (s.data[i]) (void)qn_status_consume(qn_device_free(roof->place->device, s.data[i]));
  }
  return status;
}

// ------------------------------------------------------------------------------------ levels

typedef struct level {
  const char* name;
  int64_t size_bytes;  // of the level; 0: unknown, negative: memory
} level_t;

static int64_t target_number(const bench_place_t* place, const char* name) {
  int64_t value = 0;
  return qn_target_get_int(place->target, name, &value) ? value : 0;
}

static int64_t device_number(const bench_place_t* place, qn_attribute_t attribute) {
  qn_attribute_value_t value;
  qn_status_t status = qn_device_attribute(place->device, attribute, &value);
  if (qn_status_consume(status) != QN_STATUS_OK) return 0;
  return value.type == QN_ATTRIBUTE_TYPE_INT ? value.int_value : 0;
}

// Returns the size of a cache of this machine as the system knows it, or that of the target.
static int64_t cache_bytes(const bench_place_t* place, int level) {
  long size = 0;
#ifdef _SC_LEVEL1_DCACHE_SIZE
  size = sysconf(level == 1   ? _SC_LEVEL1_DCACHE_SIZE
                 : level == 2 ? _SC_LEVEL2_CACHE_SIZE
                              : _SC_LEVEL3_CACHE_SIZE);
#endif
  if (size > 0) return size;
  return level == 3 ? 0 : target_number(place, level == 1 ? "l1_cache_bytes" : "l2_cache_bytes");
}

static size_t list_levels(const bench_place_t* place, level_t out[4]) {
  if (!place->is_cpu) {
    out[0] = (level_t){"L2", device_number(place, QN_ATTRIBUTE_L2_CACHE_SIZE_BYTES)};
    out[1] = (level_t){"memory", -1};
    return 2;
  }
  out[0] = (level_t){"L1", cache_bytes(place, 1)};
  out[1] = (level_t){"L2", cache_bytes(place, 2)};
  out[2] = (level_t){"L3", cache_bytes(place, 3)};
  out[3] = (level_t){"memory", -1};
  return 4;
}

static bool is_shared(const bench_roof_t* roof, const level_t* level) {
  return !roof->place->is_cpu || strcmp(level->name, "L3") == 0 || level->size_bytes < 0;
}

// Returns the bytes of one slice: half of a private level. Of a shared level a share of four times
// the level before, because neighbours on the machine may use the rest; of memory a share of four
// times the last level. `before_bytes` is the size of all caches of the level before.
static int64_t slice_bytes(const bench_roof_t* roof, const level_t* level, int64_t before_bytes) {
  if (level->size_bytes < 0) {
    int64_t bytes = 4 * before_bytes > MEMORY_BYTES ? MEMORY_BYTES : 4 * before_bytes;
    return (bytes < MEMORY_BYTES / 2 ? MEMORY_BYTES / 2 : bytes) / roof->slices;
  }
  if (!is_shared(roof, level)) return level->size_bytes / 2;
  int64_t bytes = level->size_bytes / 4;
  if (before_bytes > 0 && 4 * before_bytes < bytes) bytes = 4 * before_bytes;
  return bytes / roof->slices;
}

static void note(json_t* not_measured, const bench_roof_t* roof, const char* what,
                 const char* why) {
  char text[160];
  (void)snprintf(text, sizeof text, "%s: %s", roof->place->text, what);
  json_array_append_new(not_measured, json_record("what:s why:s", text, why));
}

static void measure_levels(const bench_roof_t* roof, json_t* levels, json_t* not_measured) {
  level_t list[4];
  size_t count = list_levels(roof->place, list);
  int64_t row_bytes = CHAINS * roof->lanes * (int64_t)qn_dtype_size_bytes(roof->dtype);
  int64_t before_bytes = 0;
  for (size_t i = 0; i < count && !stop_wanted(); i++) {
    char what[64];
    (void)snprintf(what, sizeof what, "bandwidth of %s", list[i].name);
    if (list[i].size_bytes == 0) {
      note(not_measured, roof, what, "its size is not known");
      continue;
    }
    int64_t rows = slice_bytes(roof, &list[i], before_bytes) / row_bytes;
    before_bytes = list[i].size_bytes * (is_shared(roof, &list[i]) ? 1 : roof->slices);
    if (rows < 1) rows = 1;
    double load_ns, update_ns, bytes = (double)(rows * row_bytes * roof->slices);
    qn_status_t status = run_stream(roof, "load", rows, &load_ns);
    if (qn_ok(status)) status = run_stream(roof, "update", rows, &update_ns);
    if (!qn_ok(status)) {
      note(not_measured, roof, what, qn_status_message(status));
      qn_status_free(status);
      continue;
    }
    if (load_ns <= 0 || update_ns <= 0) continue;  // stopped
    json_t* level = json_record("name:s size_bytes:i", list[i].name,
                                list[i].size_bytes > 0 ? list[i].size_bytes : INT64_C(0));
    json_object_set_new(level, "load_gbs", json_real(bytes / load_ns));
    json_object_set_new(level, "update_gbs", json_real(2 * bytes / update_ns));
    json_array_append_new(levels, level);
  }
}

void roof_measure(const bench_place_t* place, int32_t threads, qn_dtype_t dtype,
                  json_t* not_measured, json_t** out_record) {
  *out_record = NULL;
  bench_roof_t roof = {.place = place, .threads = threads, .dtype = dtype};
  if (dtype == QN_DTYPE_NONE || dtype == QN_DTYPE_BOOL) roof.dtype = dtype = QN_DTYPE_F32;
  if (place->is_interpreter) {
    note(not_measured, &roof, "limits of the machine", "the interpreter runs no machine code");
    return;
  }
  int64_t vector_bits = target_number(place, "vector_width");
  if (vector_bits < 128) vector_bits = 128;
  roof.lanes = vector_bits / 8 / (int64_t)qn_dtype_size_bytes(dtype);
  int64_t blocks = device_number(place, QN_ATTRIBUTE_MULTI_PROCESSOR_COUNT);
  roof.slices = place->is_cpu ? threads : (blocks > 0 ? blocks : 16) * 1024;
  int32_t before = qn_cpu_set_core_budget(threads);
  double ns = 0;
  qn_status_t status = open_roof(&roof);
  if (qn_ok(status)) status = run_stream(&roof, "peak", 0, &ns);
  if (!qn_ok(status)) {
    note(not_measured, &roof, "limits of the machine", qn_status_message(status));
    qn_status_free(status);
  } else if (ns > 0) {
    double ops = 2.0 * (double)(CHAINS * PEAK_SLICES * roof.lanes * roof.slices);
    json_t* levels = json_array();
    measure_levels(&roof, levels, not_measured);
    json_t* record =
        json_record("target:s dtype:s threads:d", place->text, qn_dtype_text(dtype), (int)threads);
    if (threads == 0) json_object_set_new(record, "threads", json_null());
    json_object_set_new(record, "gops", json_real(ops / ns));
    json_object_set_new(record, "levels", levels);
    *out_record = record;
  }
  (void)qn_cpu_set_core_budget(before);
  qn_module_release(roof.module);
  qn_engine_destroy(roof.engine);
}

// ------------------------------------------------------------------------------------ applying

static double number_of(const json_t* record, const char* name) {
  return json_number_value(json_object_get(record, name));
}

// Returns the level that holds so many bytes: the first that is large enough, else the last.
static const json_t* level_for(const json_t* roof, double bytes) {
  const json_t* levels = json_object_get(roof, "levels");
  size_t count = json_array_size(levels);
  for (size_t i = 0; i < count; i++) {
    const json_t* level = json_array_get(levels, i);
    double size = number_of(level, "size_bytes");
    double threads = number_of(roof, "threads");
    bool is_private = json_string_value(json_object_get(level, "name"))[1] != '3' && threads > 0;
    if (size == 0 || bytes <= size * (is_private ? threads : 1)) return level;
  }
  return NULL;
}

void roof_apply(const json_t* roofs, json_t* record) {
  const json_t* work = json_object_get(record, "work");
  const json_t* found = NULL;
  const char* dtype = json_string_value(json_object_get(work, "dtype"));
  if (!dtype) return;
  for (size_t i = 0; i < json_array_size(roofs) && !found; i++) {
    const json_t* roof = json_array_get(roofs, i);
    const char* own = json_string_value(json_object_get(roof, "dtype"));
    bool is_same = json_equal(json_object_get(roof, "target"), json_object_get(record, "target")) &&
                   json_equal(json_object_get(roof, "threads"), json_object_get(record, "threads"));
    bool is_any = strcmp(dtype, "none") == 0 || strcmp(dtype, "bool") == 0;
    if (is_same && (is_any || strcmp(own, dtype) == 0)) found = roof;
  }
  double gops = number_of(record, "gops"), gbs = number_of(record, "gbs");
  const json_t* level = found ? level_for(found, number_of(work, "moved_bytes")) : NULL;
  if (!level) return;
  double load = number_of(level, "load_gbs"), update = number_of(level, "update_gbs");
  double bandwidth = load > update ? load : update, peak = number_of(found, "gops");
  double of_compute = gops / peak, of_memory = gbs / bandwidth;
  bool is_compute = of_compute > of_memory;
  json_object_set_new(record, "bound",
                      is_compute ? json_text("compute")
                                 : json_text(json_string_value(json_object_get(level, "name"))));
  json_object_set_new(record, is_compute ? "roof_gops" : "roof_gbs",
                      json_real(is_compute ? peak : bandwidth));
  json_object_set_new(record, "of_roof", json_real(is_compute ? of_compute : of_memory));
}
