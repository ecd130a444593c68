// SPDX-License-Identifier: Apache-2.0
// examples/plugin/echo.c: the smallest plugin: a device, a code generator and a target kind in one
// shared object.
//
//   quern conformance --plugin ./libecho.so --device echo --filter memory/
//   quern compile saxpy.qn --plugin ./libecho.so --target echo --emit outline
//
// The device's memory is the host's, and its code does nothing: cases about memory, copies and
// attributes pass, and those that compute fail. Its generator reads the module nevertheless, and
// prints what it reads. devices/ and jit/ have real ones. Uses the public headers alone. Read next:
// docs/new-backend.md.
#define _POSIX_C_SOURCE 200809L  // posix_memalign
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quern/backend.h"

enum { DEVICE_ECHO = 40 };  // DLPack has no number for it; a plugin takes one below 64

// ------------------------------------------------------------------------------------ the device

static int32_t count(void) {
  return 1;
}

static qn_status_t attribute(int32_t id, qn_attribute_t attribute, qn_attribute_value_t* out) {
  (void)id;
  if (attribute == QN_ATTRIBUTE_DEVICE_NAME) {
    out->type = QN_ATTRIBUTE_TYPE_STRING;
    memcpy(out->string_value, "echo", 5);
  } else if (attribute == QN_ATTRIBUTE_POINTER_IS_ADDRESS ||
             attribute == QN_ATTRIBUTE_HOST_ACCESSIBLE) {
    out->type = QN_ATTRIBUTE_TYPE_BOOL;
    out->int_value = attribute == QN_ATTRIBUTE_POINTER_IS_ADDRESS;
  }
  return QN_OK;  // none, for everything else
}

static qn_status_t allocate(int32_t id, size_t size_bytes, size_t alignment_bytes, void** out) {
  (void)id;
  size_t alignment = alignment_bytes > 64 ? alignment_bytes : 64;
  bool is_absurd = size_bytes > (size_t)1 << 40;
  if (!is_absurd && posix_memalign(out, alignment, size_bytes + 1) == 0) return QN_OK;
  *out = NULL;
  return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "echo: no memory for %zu bytes", size_bytes);
}

static qn_status_t release(int32_t id, void* pointer) {
  (void)id;
  free(pointer);
  return QN_OK;
}

// Work is done when it is queued, so a stream is an object without a state.
static qn_status_t copy(int32_t id, void* stream, const qn_copy_t* copy) {
  (void)id, (void)stream;
  memcpy((char*)copy->to + copy->to_offset_bytes, (const char*)copy->from + copy->from_offset_bytes,
         copy->size_bytes);
  return QN_OK;
}

static qn_status_t stream_create(int32_t id, void** out_stream) {
  (void)id;
  *out_stream = malloc(1);
  return *out_stream ? QN_OK : qn_status_make(QN_STATUS_OUT_OF_MEMORY, "echo: no memory");
}

static void stream_destroy(int32_t id, void* stream) {
  (void)id;
  free(stream);
}

static qn_status_t stream_sync(int32_t id, void* stream) {
  (void)id, (void)stream;
  return QN_OK;
}

static qn_status_t stream_wait(int32_t id, void* from, void* to) {
  (void)id, (void)from, (void)to;
  return QN_OK;
}

static bool accepts(const char* format) {
  return strcmp(format, "echo-1") == 0;
}

static qn_status_t load(int32_t id, const qn_artifact_t* artifact, const qn_load_options_t* options,
                        void** out_executable) {
  (void)id, (void)artifact, (void)options;
  *out_executable = malloc(1);
  return *out_executable ? QN_OK : qn_status_make(QN_STATUS_OUT_OF_MEMORY, "echo: no memory");
}

static void unload(int32_t id, void* executable) {
  (void)id;
  free(executable);
}

static qn_status_t launch(int32_t id, void* executable, uint32_t index, void* stream,
                          const qn_launch_t* launch) {
  (void)id, (void)executable, (void)index, (void)stream, (void)launch;
  return QN_OK;
}

static const qn_device_table_t device = {
    .abi_version = QN_DEVICE_ABI_VERSION,
    .struct_size = sizeof(qn_device_table_t),
    .type = DEVICE_ECHO,
    .name = "echo",
    .count = count,
    .attribute = attribute,
    .allocate = allocate,
    .free = release,
    .copy = copy,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .stream_wait = stream_wait,
    .accepts = accepts,
    .load = load,
    .unload = unload,
    .launch = launch,
};

// ------------------------------------------------------------------------------ reading the module
//
// A generator goes down from functions to expressions. This one prints a line for each node, with
// its dtype; a real one writes code there.

typedef struct reader {
  const qn_module_t* module;
  qn_sink_t sink;
  qn_status_t status;  // the first error; nothing is written after it
} reader_t;

static bool is_ok(reader_t* r, qn_status_t status) {
  if (qn_ok(r->status)) {
    r->status = status;
  } else {
    qn_status_free(status);
  }
  return qn_ok(r->status);
}

__attribute__((format(printf, 3, 4))) static void line(reader_t* r, int depth, const char* format,
                                                       ...) {
  char text[160];
  int indent = snprintf(text, sizeof text, "%*s", depth < 40 ? 2 * depth : 80, "");
  va_list arguments;
  va_start(arguments, format);
  int size = vsnprintf(text + indent, sizeof text - (size_t)indent - 1, format, arguments);
  va_end(arguments);
  size_t end =
      (size_t)(indent + size) < sizeof text - 1 ? (size_t)(indent + size) : sizeof text - 2;
  text[end] = '\n';
  if (qn_ok(r->status)) (void)is_ok(r, r->sink.write(r->sink.self, text, end + 1));
}

static uint32_t var_id(reader_t* r, const qn_var_t* var) {
  qn_var_info_t info = {.struct_size = sizeof info};
  return is_ok(r, qn_module_var_info(r->module, var, &info)) ? info.id : 0;
}

static qn_buffer_info_t buffer_of(reader_t* r, const qn_buffer_t* buffer) {
  qn_buffer_info_t info = {.struct_size = sizeof info};
  (void)is_ok(r, qn_module_buffer_info(r->module, buffer, &info));
  return info;
}

static void read_block(reader_t* r, int depth, const qn_stmt_t* first);

static void read_expr(reader_t* r, int depth, const qn_expr_t* expr) {
  static const char* const ops[QN_OP_COUNT] = {
#define QN_OP(name, value, text, arity, rule, syntax, doc) [QN_OP_##name] = text,
#include "quern/ops.inc"
#undef QN_OP
  };
  qn_expr_info_t e = {.struct_size = sizeof e};
  if (!expr || !is_ok(r, qn_module_expr_info(r->module, expr, &e))) return;
  const char* dtype = qn_dtype_text(e.dtype);
  if (e.kind == QN_EXPR_INT) {
    line(r, depth, "%s %lld", dtype, (long long)e.int_value);
  } else if (e.kind == QN_EXPR_FLOAT) {
    line(r, depth, "%s %.17g", dtype, e.float_value);
  } else if (e.kind == QN_EXPR_VAR) {
    line(r, depth, "%s v%u", dtype, (unsigned)var_id(r, e.var));
  } else if (e.kind == QN_EXPR_LOAD) {
    line(r, depth, "%s load b%u", dtype, (unsigned)buffer_of(r, e.buffer).id);
  } else if (e.kind == QN_EXPR_OP) {
    line(r, depth, "%s %s", dtype, ops[e.op]);
  } else if (e.kind == QN_EXPR_REDUCE) {
    line(r, depth, "%s reduction %d over v%u", dtype, (int)e.reduce_kind,
         (unsigned)var_id(r, e.var));
    read_expr(r, depth + 1, e.begin);
    read_expr(r, depth + 1, e.end);
    read_block(r, depth + 1, e.lets);
    read_expr(r, depth + 1, e.value);
  } else if (e.kind == QN_EXPR_CAST || e.kind == QN_EXPR_BITCAST || e.kind == QN_EXPR_COND) {
    line(r, depth, "%s of kind %d", dtype, (int)e.kind);
  } else {  // of a newer library
    (void)is_ok(r,
                qn_status_make(QN_STATUS_UNSUPPORTED, "echo: expressions of kind %d", (int)e.kind));
  }
  for (uint32_t i = 0; i < e.arg_count; i++) read_expr(r, depth + 1, e.args[i]);
}

static void read_block(reader_t* r, int depth, const qn_stmt_t* first) {
  static const char* const kinds[] = {
      [QN_STMT_LET] = "let",     [QN_STMT_STORE] = "store",   [QN_STMT_ATOMIC] = "atomic",
      [QN_STMT_IF] = "if",       [QN_STMT_LOOP] = "loop",     [QN_STMT_WHILE] = "while",
      [QN_STMT_ALLOC] = "alloc", [QN_STMT_ASSERT] = "assert", [QN_STMT_BARRIER] = "barrier",
      [QN_STMT_LEAVE] = "leave", [QN_STMT_FENCE] = "fence",
  };
  qn_stmt_info_t s = {.struct_size = sizeof s};
  for (const qn_stmt_t* stmt = first; stmt; stmt = s.next) {
    if (!is_ok(r, qn_module_stmt_info(r->module, stmt, &s))) return;
    // Reductions of several values are left out, and a newer library may have other kinds.
    if (s.kind >= sizeof kinds / sizeof kinds[0] || !kinds[s.kind]) {
      (void)is_ok(
          r, qn_status_make(QN_STATUS_UNSUPPORTED, "echo: statements of kind %d", (int)s.kind));
      return;
    }
    if (s.var) {
      line(r, depth, "%s v%u", kinds[s.kind], (unsigned)var_id(r, s.var));
    } else if (s.buffer) {
      qn_buffer_info_t b = buffer_of(r, s.buffer);
      line(r, depth, "%s b%u: %s of rank %u", kinds[s.kind], (unsigned)b.id, qn_dtype_text(b.dtype),
           (unsigned)b.rank);
    } else {
      line(r, depth, "%s", kinds[s.kind]);
    }
    for (uint32_t i = 0; i < s.index_count; i++) read_expr(r, depth + 1, s.indices[i]);
    const qn_expr_t* const parts[] = {s.begin, s.end, s.condition, s.value, s.value2};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) read_expr(r, depth + 1, parts[i]);
    read_block(r, depth + 1, s.body);
    read_block(r, depth + 1, s.other_body);
  }
}

// Consecutive outermost loops.
static uint32_t count_launches(reader_t* r, const qn_stmt_t* first) {
  qn_stmt_info_t s = {.struct_size = sizeof s};
  uint32_t count = 0;
  for (const qn_stmt_t* stmt = first; stmt; stmt = s.next) {
    if (!is_ok(r, qn_module_stmt_info(r->module, stmt, &s))) break;
    count += s.kind == QN_STMT_LOOP;
  }
  return count;
}

// ------------------------------------------------------------------------------ the code generator

typedef struct made {
  qn_artifact_t artifact;  // first: release gets this pointer back
  qn_module_t* module;     // the names of the functions
  qn_artifact_function_t functions[];
} made_t;

static void release_artifact(qn_artifact_t* artifact) {
  made_t* made = (made_t*)(void*)artifact;
  qn_module_release(made->module);
  free(made);
}

static qn_status_t create(void** out_self) {
  *out_self = NULL;
  return QN_OK;
}

static void destroy(void* self) {
  (void)self;
}

static const char* identity(void* self) {
  (void)self;
  return "echo 1";
}

static qn_status_t compile(void* self, const qn_compile_request_t* request,
                           qn_artifact_t** out_artifact) {
  (void)self;
  *out_artifact = NULL;
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_decode(request->module_bytes, request->module_size, NULL, &module);
  if (!qn_ok(status)) return status;
  size_t function_count = qn_module_function_count(module);
  made_t* made = calloc(1, sizeof *made + function_count * sizeof made->functions[0]);
  if (!made) {
    qn_module_release(module);
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "echo: no memory");
  }
  made->module = module;
  reader_t reader = {.module = module, .status = QN_OK};
  for (size_t i = 0; i < function_count; i++) {
    qn_function_info_t info = {.struct_size = sizeof info};
    if (!is_ok(&reader, qn_module_function_info(module, i, &info))) break;
    made->functions[i].name = info.name;
    made->functions[i].launch_count = count_launches(&reader, info.body);
  }
  made->artifact = (qn_artifact_t){.struct_size = sizeof(qn_artifact_t),
                                   .format = "echo-1",
                                   .isa = "{\"kind\":\"echo\"}",
                                   .function_count = function_count,
                                   .functions = made->functions,
                                   .release = release_artifact};
  if (!qn_ok(reader.status)) {
    release_artifact(&made->artifact);
    return reader.status;
  }
  *out_artifact = &made->artifact;
  return QN_OK;
}

static qn_status_t emit(void* self, const qn_compile_request_t* request, const char* form,
                        qn_sink_t sink) {
  (void)self;
  if (strcmp(form, "outline") != 0) {
    return qn_status_make(QN_STATUS_NOT_FOUND, "echo has the form outline, not '%s'", form);
  }
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_decode(request->module_bytes, request->module_size, NULL, &module);
  if (!qn_ok(status)) return status;
  reader_t reader = {.module = module, .sink = sink, .status = QN_OK};
  for (size_t i = 0; i < qn_module_function_count(module); i++) {
    qn_function_info_t info = {.struct_size = sizeof info};
    if (!is_ok(&reader, qn_module_function_info(module, i, &info))) break;
    line(&reader, 0, "%s", qn_module_function_signature(module, i));
    read_block(&reader, 1, info.body);
  }
  qn_module_release(module);
  return reader.status;
}

static const qn_codegen_t generator = {
    .abi_version = QN_CODEGEN_ABI_VERSION,
    .struct_size = sizeof(qn_codegen_t),
    .name = "echo",
    .create = create,
    .destroy = destroy,
    .identity = identity,
    .compile = compile,
    .emit = emit,
};

// --------------------------------------------------------------------------------- the target kind

static const qn_option_info_t options[] = {
    {"volume", QN_OPTION_INT, "3", false, "an example of an option", 0, 10},
};
static const qn_target_kind_info_t kind = {
    .struct_size = sizeof(qn_target_kind_info_t),
    .name = "echo",
    .doc = "an example of a plugin: code that does nothing",
    .codegen = "echo",
    .device_type = DEVICE_ECHO,
    .option_count = sizeof options / sizeof options[0],
    .options = options,
};

// --------------------------------------------------------------------------------------- the entry

static const qn_device_table_t* const devices[] = {&device};
static const qn_codegen_t* const generators[] = {&generator};
static const qn_target_kind_info_t* const kinds[] = {&kind};
static const qn_plugin_t plugin = {
    .abi_version = QN_PLUGIN_ABI_VERSION,
    .struct_size = sizeof(qn_plugin_t),
    .name = "echo",
    .device_count = 1,
    .devices = devices,
    .generator_count = 1,
    .generators = generators,
    .kind_count = 1,
    .kinds = kinds,
};

QN_API const qn_plugin_t* qn_plugin_entry(uint32_t abi_version);
QN_API const qn_plugin_t* qn_plugin_entry(uint32_t abi_version) {
  return abi_version == QN_PLUGIN_ABI_VERSION ? &plugin : NULL;
}
