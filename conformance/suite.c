// SPDX-License-Identifier: Apache-2.0
// conformance/suite.c: runs the areas, makes the verdict of a case, and releases its resources.
#include "conformance/suite.h"

#include "quern/device.h"
#include "quern/target.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const conf_area_t* const areas[] = {
    &conf_area_attributes, &conf_area_memory,   &conf_area_copies,    &conf_area_streams,
    &conf_area_graphs,     &conf_area_dtypes,   &conf_area_operators, &conf_area_math,
    &conf_area_statements, &conf_area_scans,    &conf_area_grids,     &conf_area_atomics,
    &conf_area_exchanges,  &conf_area_failures, &conf_area_shapes,    &conf_area_products,
    &conf_area_calls,      &conf_area_threads,  &conf_area_cache,
};

const char* conf_verdict_text(conf_verdict_t verdict) {
  static const char* const texts[] = {"", "pass", "fail", "unsupported"};
  return texts[verdict];
}

int64_t conf_now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// ----------------------------------------------------------------------------------- the verdict

bool conf_wants(const conf_t* c, const char* feature, const char* variant) {
  if (!c->options.filter) return true;
  char name[512];
  (void)snprintf(name, sizeof name, "%s/%s/%s", c->area, feature, variant ? variant : "");
  const char* filter = c->options.filter;
  return filter[0] == '^' ? strncmp(name, filter + 1, strlen(filter + 1)) == 0
                          : strstr(name, filter) != NULL;
}

static void tell(conf_t* c, int64_t elapsed_ns) {
  conf_result_t result = {c->area, c->feature, c->variant, c->verdict,
                          c->why,  c->program, elapsed_ns};
  if (c->options.on_result) c->options.on_result(c->options.self, &result);
}

bool conf_begin(conf_t* c, const char* feature, const char* variant) {
  c->feature = feature;
  c->variant = variant ? variant : "";
  c->why[0] = '\0';
  c->verdict = (conf_verdict_t)0;
  if (conf_is_listing(c)) {
    tell(c, 0);
    return false;
  }
  if (!conf_wants(c, feature, variant)) return false;
  c->verdict = CONF_PASS;
  c->begin_ns = conf_now_ns();
  return true;
}

static void give_back(const conf_kept_t* kept) {
  switch (kept->kind) {
    case CONF_KEPT_HOST:
      free(kept->pointer);
      break;
    case CONF_KEPT_DEVICE:
      (void)qn_status_consume(qn_device_free(kept->device, kept->pointer));
      break;
    case CONF_KEPT_STREAM:
      qn_stream_destroy(kept->pointer);
      break;
    case CONF_KEPT_FUNCTION:
      qn_function_release(kept->pointer);
      break;
    case CONF_KEPT_EXECUTABLE:
      qn_executable_release(kept->pointer);
      break;
    case CONF_KEPT_MODULE:
      qn_module_release(kept->pointer);
      break;
  }
}

// Sets the active device. Code is loaded onto the active device of the target's type, or onto the
// first: the suite runs on the first without setting it, as most programs do.
static void go_home(conf_t* c) {
  qn_device_t home = c->device.id > 0 && !c->options.form ? c->device : conf_cpu();
  (void)qn_status_consume(qn_set_active_device(home));
}

void conf_end(conf_t* c) {
  // A failed case may have queued work that still uses its memory.
  for (size_t i = 0; i < c->kept_count; i++) {
    if (c->kept[i].kind != CONF_KEPT_STREAM) continue;
    (void)qn_status_consume(qn_stream_sync(c->device, c->kept[i].pointer));
  }
  if (!c->options.form) (void)qn_status_consume(qn_stream_sync(c->device, NULL));
  while (c->kept_count > 0) give_back(&c->kept[--c->kept_count]);
  go_home(c);
  c->totals.pass_count += c->verdict == CONF_PASS;
  c->totals.fail_count += c->verdict == CONF_FAIL;
  c->totals.unsupported_count += c->verdict == CONF_UNSUPPORTED;
  tell(c, conf_now_ns() - c->begin_ns);
  free(c->program);
  c->program = NULL;
}

void conf_fail(conf_t* c, const char* format, ...) {
  if (c->verdict == CONF_FAIL) return;
  c->verdict = CONF_FAIL;
  va_list args;
  va_start(args, format);
  (void)vsnprintf(c->why, sizeof c->why, format, args);
  va_end(args);
}

void conf_unsupported(conf_t* c, const char* format, ...) {
  if (c->verdict != CONF_PASS) return;
  c->verdict = CONF_UNSUPPORTED;
  va_list args;
  va_start(args, format);
  (void)vsnprintf(c->why, sizeof c->why, format, args);
  va_end(args);
}

bool conf_ok(conf_t* c, qn_status_t status) {
  return conf_expect(c, status, QN_STATUS_OK, NULL);
}

// Calls "a,b" the texts "a" and "b"; false with the first that `message` lacks.
static bool has_parts(const char* message, const char* parts, char out_missing[128]) {
  while (parts && *parts) {
    size_t size = strcspn(parts, ",");
    (void)snprintf(out_missing, 128, "%.*s", (int)size, parts);
    if (!strstr(message, out_missing)) return false;
    parts += size + (parts[size] == ',');
  }
  return true;
}

bool conf_expect(conf_t* c, qn_status_t status, qn_status_code_t code, const char* parts) {
  char missing[128];
  qn_status_code_t got = qn_status_code(status);
  if (got == code && has_parts(qn_status_message(status), parts, missing)) {
    qn_status_free(status);
    return true;
  }
  if (got == code) {
    conf_fail(c, "'%s' is not in the message: %s", missing, qn_status_message(status));
  } else if (got == QN_STATUS_UNSUPPORTED || got == QN_STATUS_UNAVAILABLE) {
    conf_unsupported(c, "%s", qn_status_message(status));
  } else {
    conf_fail(c, "expected '%s', got '%s'%s%s", qn_status_code_text(code), qn_status_code_text(got),
              got ? ": " : "", qn_status_message(status));
  }
  qn_status_free(status);
  return false;
}

// ---------------------------------------------------------------------------- taken and given back

void conf_keep(conf_t* c, conf_kept_kind_t kind, void* pointer, qn_device_t device) {
  if (!pointer) return;
  if (c->kept_count == c->kept_capacity) {
    size_t capacity = 2 * c->kept_capacity + 64;
    conf_kept_t* grown = realloc(c->kept, capacity * sizeof *grown);
    if (!grown) {
      conf_fail(c, "no memory");
      return;
    }
    c->kept = grown;
    c->kept_capacity = capacity;
  }
  c->kept[c->kept_count++] = (conf_kept_t){kind, pointer, device};
}

void conf_drop(conf_t* c, void* pointer) {
  for (size_t i = c->kept_count; i-- > 0;) {
    if (c->kept[i].pointer != pointer) continue;
    give_back(&c->kept[i]);
    memmove(&c->kept[i], &c->kept[i + 1], (c->kept_count - i - 1) * sizeof c->kept[0]);
    c->kept_count--;
    return;
  }
}

void* conf_host_memory(conf_t* c, size_t size_bytes) {
  void* memory = calloc(1, size_bytes + 1);
  if (!memory) conf_fail(c, "no host memory for %zu bytes", size_bytes);
  conf_keep(c, CONF_KEPT_HOST, memory, conf_cpu());
  return memory;
}

void* conf_device_memory_of(conf_t* c, qn_device_t device, size_t size_bytes) {
  void* memory = NULL;
  if (!conf_ok(c, qn_device_allocate(device, size_bytes, 0, &memory))) return NULL;
  if (!memory) conf_fail(c, "%zu bytes were allocated, but the handle is null", size_bytes);
  conf_keep(c, CONF_KEPT_DEVICE, memory, device);
  return memory;
}

void* conf_device_memory(conf_t* c, size_t size_bytes) {
  return conf_device_memory_of(c, c->device, size_bytes);
}

qn_stream_t* conf_stream(conf_t* c) {
  qn_stream_t* stream = NULL;
  if (!conf_ok(c, qn_stream_create(c->device, &stream))) return NULL;
  if (!stream) conf_fail(c, "a stream was created, but is null");
  conf_keep(c, CONF_KEPT_STREAM, stream, c->device);
  return stream;
}

qn_module_t* conf_module(conf_t* c, const char* text) {
  qn_module_t* module = NULL;
  if (!conf_ok(c, qn_module_parse(text, strlen(text), NULL, &module))) return NULL;
  conf_keep(c, CONF_KEPT_MODULE, module, c->device);
  return module;
}

qn_function_t* conf_function(conf_t* c, const char* text, const char* name, bool is_checked) {
  qn_module_t* module = conf_module(c, text);
  if (!module) return NULL;
  qn_lookup_options_t options = {
      .struct_size = sizeof options, .tier = c->options.tier, .is_checked = is_checked};
  qn_function_t* function = NULL;
  qn_status_t status =
      qn_engine_function(c->engine, module, c->target, name, &options, NULL, &function);
  if (!conf_ok(c, status)) return NULL;
  conf_keep(c, CONF_KEPT_FUNCTION, function, c->device);
  return function;
}

qn_status_t conf_call(const conf_t* c, qn_function_t* function, const qn_value_t* args,
                      size_t count) {
  qn_status_t status = qn_function_call(function, args, count, NULL);
  qn_status_t synchronised = qn_stream_sync(c->device, NULL);
  if (qn_ok(status)) return synchronised;
  qn_status_free(synchronised);
  return status;
}

qn_status_t conf_copy(qn_device_t from_device, const void* from, size_t from_offset_bytes,
                      qn_device_t to_device, void* to, size_t to_offset_bytes, size_t size_bytes,
                      bool is_host_pinned, qn_stream_t* stream) {
  qn_copy_t copy = {.struct_size = sizeof copy,
                    .from_device = from_device,
                    .from = from,
                    .from_offset_bytes = from_offset_bytes,
                    .to_device = to_device,
                    .to = to,
                    .to_offset_bytes = to_offset_bytes,
                    .size_bytes = size_bytes,
                    .is_host_pinned = is_host_pinned};
  return qn_device_copy(&copy, stream);
}

bool conf_upload(conf_t* c, void* device_memory, size_t offset_bytes, const void* host,
                 size_t size_bytes) {
  return conf_ok(c, conf_copy(conf_cpu(), host, 0, c->device, device_memory, offset_bytes,
                              size_bytes, false, NULL)) &&
         conf_ok(c, qn_stream_sync(c->device, NULL));
}

bool conf_download(conf_t* c, void* host, const void* device_memory, size_t offset_bytes,
                   size_t size_bytes) {
  return conf_ok(c, conf_copy(c->device, device_memory, offset_bytes, conf_cpu(), host, 0,
                              size_bytes, false, NULL)) &&
         conf_ok(c, qn_stream_sync(c->device, NULL));
}

qn_tensor_t conf_tensor(const conf_t* c, void* data, qn_dtype_t dtype, int32_t rank,
                        int64_t* shape) {
  qn_tensor_t tensor = {.data = data,
                        .device = c->device,
                        .ndim = rank,
                        .dtype = qn_dtype_to_dl(dtype),
                        .shape = shape};
  return tensor;
}

// ---------------------------------------------------------------------------------------- the run

static void run_area(conf_t* c, const conf_area_t* area) {
  c->area = area->name;
  // Without a run only texts are compiled.
  size_t case_count = c->options.form ? 0 : area->case_count;
  for (size_t i = 0; i < case_count; i++) {
    if (!conf_begin(c, area->cases[i].feature, NULL)) continue;
    area->cases[i].run(c);
    conf_end(c);
  }
  if (area->run) area->run(c);
}

static bool flushes(const qn_target_t* target, const char* option) {
  bool preserves = true;
  return qn_target_get_bool(target, option, &preserves) && !preserves;
}

static qn_status_t default_target(qn_device_t device, char out_text[96]) {
  for (size_t i = 0; i < qn_target_kind_count(); i++) {
    const qn_target_kind_info_t* kind = qn_target_kind_at(i);
    if (kind->device_type != device.type) continue;
    (void)snprintf(out_text, 96, "%s -from_device=%d", kind->name, (int)device.id);
    return QN_OK;
  }
  return qn_status_make(QN_STATUS_UNSUPPORTED, "no target kind is for devices of type '%s'",
                        qn_device_type_text(device.type));
}

static int64_t attribute_int(qn_device_t device, qn_attribute_t attribute, int64_t otherwise) {
  qn_attribute_value_t value = {.type = QN_ATTRIBUTE_TYPE_NONE};
  if (qn_status_consume(qn_device_attribute(device, attribute, &value)) != QN_STATUS_OK) {
    return otherwise;
  }
  return value.type == QN_ATTRIBUTE_TYPE_NONE ? otherwise : value.int_value;
}

// Opens the device and parses the target.
static qn_status_t prepare_device(conf_t* c) {
  qn_attribute_value_t exists = {.type = QN_ATTRIBUTE_TYPE_NONE};
  qn_status_t status = qn_device_attribute(c->device, QN_ATTRIBUTE_EXIST, &exists);
  if (!qn_ok(status)) return status;
  if (!exists.int_value) {
    return qn_status_make(QN_STATUS_UNAVAILABLE, "no device %s:%d is here",
                          qn_device_type_text(c->device.type), (int)c->device.id);
  }
  c->is_address = attribute_int(c->device, QN_ATTRIBUTE_POINTER_IS_ADDRESS, 0) != 0;
  if (c->options.target) return qn_target_parse(c->options.target, &c->target);
  char text[96];
  status = default_target(c->device, text);
  return qn_ok(status) ? qn_target_parse(text, &c->target) : status;
}

static qn_status_t prepare(conf_t* c) {
  qn_status_t status =
      c->options.form ? qn_target_parse(c->options.target, &c->target) : prepare_device(c);
  if (!qn_ok(status)) return status;
  c->warp_size = 32;
  c->max_threads = 1024;
  (void)qn_target_get_int(c->target, "warp_size", &c->warp_size);
  (void)qn_target_get_int(c->target, "max_threads_per_block", &c->max_threads);
  // The interpreter is about a thousand times slower than other targets.
  c->long_rounds = strcmp(qn_target_kind(c->target), "interp") == 0 ? 3 : 20000;
  c->flushes_f32 = flushes(c->target, "supports_denorm_preserve_float32");
  c->flushes_f64 = flushes(c->target, "supports_denorm_preserve_float64");
  char text[96];
  (void)snprintf(text, sizeof text, "interp -warp_size=%d", (int)c->warp_size);
  status = qn_target_parse(text, &c->oracle);
  if (!qn_ok(status)) return status;
  go_home(c);
  qn_engine_options_t options = {
      .struct_size = sizeof options, .cache_mode = QN_CACHE_OFF, .cache_dir = ""};
  return qn_engine_create(&options, &c->engine);
}

qn_status_t conf_run(const conf_options_t* options, conf_totals_t* out_totals) {
  conf_t c = {.options = *options, .device = options->device};
  qn_status_t status = prepare(&c);
  bool is_random = options->random_count > 0;
  if (qn_ok(status) && is_random) run_area(&c, &conf_area_random);
  for (size_t i = 0; qn_ok(status) && !is_random && i < CONF_COUNT_OF(areas); i++) {
    run_area(&c, areas[i]);
  }
  (void)qn_status_consume(qn_set_active_device(conf_cpu()));
  qn_engine_destroy(c.engine);
  qn_target_release(c.target);
  qn_target_release(c.oracle);
  free(c.kept);
  *out_totals = c.totals;
  return status;
}

void conf_list(void (*on_result)(void* self, const conf_result_t* result), void* self) {
  conf_t c = {.options = {.on_result = on_result, .self = self}};
  for (size_t i = 0; i < CONF_COUNT_OF(areas); i++) run_area(&c, areas[i]);
}
