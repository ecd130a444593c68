// SPDX-License-Identifier: Apache-2.0
// examples/plugin/tiny.c: the first step of docs/new-backend.md: a device and a code generator that
// run saxpy. The generator writes C, which the C compiler of the machine makes a shared object of.
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quern/backend.h"

enum { DEVICE_TINY = 41 };  // DLPack has no number for it; a plugin takes one below 64

// ---- the device: its memory is the host's; it has its default stream alone

static qn_status_t allocate(int32_t id, size_t size_bytes, size_t alignment_bytes, void** out) {
  (void)id;
  size_t alignment = alignment_bytes > 64 ? alignment_bytes : 64;
  if (posix_memalign(out, alignment, size_bytes | 1) == 0) return QN_OK;
  return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "tiny: no memory for %zu bytes", size_bytes);
}

static qn_status_t release(int32_t id, void* pointer) {
  (void)id, free(pointer);
  return QN_OK;
}

static qn_status_t copy(int32_t id, void* stream, const qn_copy_t* copy) {
  (void)id, (void)stream;
  memcpy((char*)copy->to + copy->to_offset_bytes, (const char*)copy->from + copy->from_offset_bytes,
         copy->size_bytes);
  return QN_OK;
}

static bool accepts(const char* format) {
  return strcmp(format, "tiny-1") == 0;
}

static qn_status_t load(int32_t id, const qn_artifact_t* artifact, const qn_load_options_t* options,
                        void** out_executable) {
  (void)id, (void)options;
  char path[] = "/tmp/tiny-XXXXXX";
  int file = mkstemp(path);
  ssize_t size = write(file, artifact->payload, artifact->payload_size);
  *out_executable = size == (ssize_t)artifact->payload_size ? dlopen(path, RTLD_NOW) : NULL;
  (void)close(file), (void)unlink(path);
  return *out_executable
             ? QN_OK
             : qn_status_make(QN_STATUS_DATA_LOSS, "tiny: no shared object, or /tmp is full");
}

static void unload(int32_t id, void* executable) {
  (void)id, (void)dlclose(executable);
}

static qn_status_t launch(int32_t id, void* executable, uint32_t index, void* stream,
                          const qn_launch_t* launch) {
  (void)id, (void)stream, (void)index;  // there is one function
  void* symbol = dlsym(executable, "f");
  if (!symbol) return qn_status_make(QN_STATUS_INTERNAL, "tiny: the code has no function");
  void (*kernel)(const uint64_t* words);
  memcpy(&kernel, &symbol, sizeof kernel);
  kernel(launch->words);
  return QN_OK;
}

// ---- from module to C

typedef struct writer {
  const qn_module_t* module;
  FILE* out;
  qn_status_t status;  // the first error
} writer_t;

static bool is_ok(writer_t* w, qn_status_t status) {
  if (qn_ok(w->status)) w->status = status, status = QN_OK;
  qn_status_free(status);
  return qn_ok(w->status);
}

static void refuse(writer_t* w, const char* what, int kind) {
  (void)is_ok(w, qn_status_make(QN_STATUS_UNSUPPORTED, "tiny: %s of kind %d", what, kind));
}

static unsigned id_of(writer_t* w, const qn_var_t* var) {
  qn_var_info_t v = {.struct_size = sizeof v};
  return is_ok(w, qn_module_var_info(w->module, var, &v)) ? v.id : 0;
}

static void write_expr(writer_t* w, const qn_expr_t* expr);
static void write_element(writer_t* w, const qn_buffer_t* buffer, const qn_expr_t* index) {
  qn_buffer_info_t b = {.struct_size = sizeof b};
  if (!is_ok(w, qn_module_buffer_info(w->module, buffer, &b))) return;
  if (b.rank != 1 || b.strides || b.scope != QN_SCOPE_PARAM) refuse(w, "buffers", (int)b.scope);
  fprintf(w->out, "b%u[", (unsigned)b.id);
  write_expr(w, index);
  fputs("]", w->out);
}

static void write_expr(writer_t* w, const qn_expr_t* expr) {
  static const char signs[QN_OP_COUNT] = {[QN_OP_ADD] = '+', [QN_OP_MUL] = '*'};
  qn_expr_info_t e = {.struct_size = sizeof e};
  if (!is_ok(w, qn_module_expr_info(w->module, expr, &e))) return;
  if (e.dtype != QN_DTYPE_F32 && e.dtype != QN_DTYPE_I64) refuse(w, "dtypes", (int)e.dtype);
  if (e.kind == QN_EXPR_INT) {
    fprintf(w->out, "(int64_t)%lluu", (unsigned long long)e.bits);
  } else if (e.kind == QN_EXPR_VAR) {
    fprintf(w->out, "v%u", id_of(w, e.var));
  } else if (e.kind == QN_EXPR_LOAD && e.arg_count == 1) {
    write_element(w, e.buffer, e.args[0]);
  } else if (e.kind == QN_EXPR_OP && signs[e.op]) {
    fputs("(", w->out);
    write_expr(w, e.args[0]);
    fprintf(w->out, " %c ", signs[e.op]);
    write_expr(w, e.args[1]);
    fputs(")", w->out);
  } else {
    refuse(w, "expressions", (int)e.kind);
  }
}

static void write_block(writer_t* w, const qn_stmt_t* first) {
  qn_stmt_info_t s = {.struct_size = sizeof s};
  for (const qn_stmt_t* at = first; at; at = s.next) {
    if (!is_ok(w, qn_module_stmt_info(w->module, at, &s))) return;
    if (s.kind == QN_STMT_STORE && s.index_count == 1) {
      write_element(w, s.buffer, s.indices[0]);
      fputs(" = ", w->out);
      write_expr(w, s.value);
      fputs(";\n", w->out);
    } else if (s.kind == QN_STMT_LOOP && s.loop_kind <= QN_LOOP_PARALLEL) {
      unsigned id = id_of(w, s.var);
      fprintf(w->out, "for (int64_t v%u = ", id);
      write_expr(w, s.begin);
      fputs(", end = ", w->out);
      write_expr(w, s.end);
      fprintf(w->out, "; v%u < end; v%u++) {\n", id, id);
      write_block(w, s.body);
      fputs("}\n", w->out);
    } else {
      refuse(w, "statements", (int)s.kind);
    }
  }
}

// A call has a word for each parameter, then one for each symbol.
static void write_function(writer_t* w, const qn_function_info_t* f) {
  fputs("#include <stdint.h>\nvoid f(const uint64_t* w) {\n", w->out);
  for (size_t i = 0; i < f->param_count; i++) {
    qn_param_info_t p = {.struct_size = sizeof p};
    qn_buffer_info_t b = {.struct_size = sizeof b};
    if (!is_ok(w, qn_module_param_info(w->module, 0, i, &p))) return;
    if (p.dtype != QN_DTYPE_F32) refuse(w, "dtypes", (int)p.dtype);
    if (!p.is_buffer) {
      fprintf(w->out, "float v%u = *(const float*)(w + %zu);\n", id_of(w, p.scalar), i);
    } else if (is_ok(w, qn_module_buffer_info(w->module, p.buffer, &b))) {
      fprintf(w->out, "float* restrict b%u = (float*)w[%zu];\n", (unsigned)b.id, i);
    }
  }
  for (size_t i = 0; i < f->symbol_count; i++) {
    fprintf(w->out, "int64_t v%u = (int64_t)w[%zu];\n", id_of(w, f->symbols[i]),
            f->param_count + i);
  }
  write_block(w, f->body);
  fputs("}\n", w->out);
}

// ---- the code generator: the compiler of the machine makes the artifact

// Writes the module's function into the compiler, and reads the shared object that it makes.
static qn_status_t make(const qn_module_t* module, char* code, size_t room, qn_artifact_t** out) {
  char path[] = "/tmp/tiny-XXXXXX", command[128];
  int file = mkstemp(path);
  (void)snprintf(command, sizeof command,
                 "LD_PRELOAD= cc -O2 -shared -fPIC -x c -o %s - 2>/dev/null || { cat >/dev/null; "
                 "false; }",
                 path);  // cat reads what a compiler that fails leaves: no SIGPIPE
  writer_t w = {.module = module, .out = popen(command, "w")};
  qn_function_info_t f = {.struct_size = sizeof f};
  if (file < 0 || !w.out) return qn_status_make(QN_STATUS_INTERNAL, "tiny: no file or no process");
  if (qn_module_function_count(module) != 1) refuse(&w, "other functions", 1);
  if (is_ok(&w, qn_module_function_info(module, 0, &f))) write_function(&w, &f);
  bool is_made = pclose(w.out) == 0;
  (void)close(file);  // another one than the linker's
  FILE* object = is_made ? fopen(path, "rb") : NULL;
  size_t size = object ? fread(code, 1, room, object) : 0;
  if (object) (void)fclose(object);
  (void)unlink(path);
  if (size == 0 || size == room)
    (void)is_ok(&w, qn_status_make(QN_STATUS_INTERNAL, "tiny: cc fails, or makes a large object"));
  const qn_artifact_function_t function = {.name = f.name, .launch_count = 1};
  const qn_artifact_t artifact = {.struct_size = sizeof artifact,
                                  .format = "tiny-1",
                                  .isa = "{\"kind\":\"tiny\"}",
                                  .payload = code,
                                  .payload_size = size,
                                  .function_count = 1,
                                  .functions = &function};
  if (qn_ok(w.status)) w.status = qn_artifact_copy(&artifact, out);
  return w.status;
}

static qn_status_t compile(void* self, const qn_compile_request_t* request, qn_artifact_t** out) {
  (void)self;
  enum { ROOM = 1 << 16 };
  qn_module_t* module = NULL;
  qn_status_t status = qn_module_decode(request->module_bytes, request->module_size, NULL, &module);
  if (!qn_ok(status)) return status;
  char* code = malloc(ROOM);
  if (code)
    status = make(module, code, ROOM, out);
  else
    status = qn_status_make(QN_STATUS_OUT_OF_MEMORY, "tiny: no memory");
  qn_module_release(module);
  free(code);
  return status;
}

static const qn_device_table_t device = {.abi_version = QN_DEVICE_ABI_VERSION,
                                         .struct_size = sizeof device,
                                         .type = DEVICE_TINY,
                                         .name = "tiny",
                                         .allocate = allocate,
                                         .free = release,
                                         .copy = copy,
                                         .accepts = accepts,
                                         .load = load,
                                         .unload = unload,
                                         .launch = launch};
static const qn_codegen_t generator = {QN_CODEGEN_ABI_VERSION, sizeof generator, "tiny",
                                       .compile = compile};
static const qn_target_kind_info_t kind = {
    sizeof kind, "tiny", "saxpy, by the C compiler of the machine", "tiny", DEVICE_TINY, 0, NULL};
// The engine makes the generator's identity, of this object's build id and of the compiler's.
static const char* const files[] = {"cc"};
static const qn_generator_info_t info = {sizeof info, "tiny", .file_count = 1, .files = files};
QN_API const qn_plugin_t* qn_plugin_entry(uint32_t abi_version);
QN_API const qn_plugin_t* qn_plugin_entry(uint32_t abi_version) {
  static const qn_device_table_t* const devices[] = {&device};
  static const qn_codegen_t* const generators[] = {&generator};
  static const qn_target_kind_info_t* const kinds[] = {&kind};
  static const qn_generator_info_t* const infos[] = {&info};
  static const qn_plugin_t plugin = {
      QN_PLUGIN_ABI_VERSION, sizeof plugin, "tiny", 1, devices, 1, generators, 1, kinds, 1, infos};
  return abi_version == QN_PLUGIN_ABI_VERSION ? &plugin : NULL;
}
