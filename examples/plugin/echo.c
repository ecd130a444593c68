// examples/plugin/echo.c: the smallest plugin: a device, a code generator and a target kind in one
// shared object.
//
//   quern conformance --plugin ./libecho.so --device echo --filter memory/
//
// The device's memory is the host's, and its code does nothing: cases about memory, copies and
// attributes pass, and those that compute fail. devices/ and jit/ have real ones. Uses the public
// headers alone. Read next: docs/new-backend.md.
#define _POSIX_C_SOURCE 200809L  // posix_memalign
#include <stdlib.h>
#include <string.h>

#include "quern/backend.h"
#include "quern/ir.h"
#include "quern/quern.h"

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
  for (size_t i = 0; i < function_count; i++) {
    made->functions[i].name = qn_module_function_name(module, i);
    made->functions[i].launch_count = 1;
  }
  made->module = module;
  made->artifact = (qn_artifact_t){.struct_size = sizeof(qn_artifact_t),
                                   .format = "echo-1",
                                   .isa = "{\"kind\":\"echo\"}",
                                   .function_count = function_count,
                                   .functions = made->functions,
                                   .release = release_artifact};
  *out_artifact = &made->artifact;
  return QN_OK;
}

static const qn_codegen_t generator = {
    .abi_version = QN_CODEGEN_ABI_VERSION,
    .struct_size = sizeof(qn_codegen_t),
    .name = "echo",
    .create = create,
    .destroy = destroy,
    .identity = identity,
    .compile = compile,
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
