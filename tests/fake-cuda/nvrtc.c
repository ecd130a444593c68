// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
// tests/fake-cuda/nvrtc.c: an NVRTC for tests that compiles CUDA C as C++ with the system's
// compiler. Its "cubin" is a shared object for the fake driver.
//
// It parses only four things: names and launch bounds of kernels, which the driver needs;
// declarations of dynamic shared memory; the tag of error records; and inline PTX (ptx.c).
// Operations that are undefined in C and differ between GPUs and this processor (too large shifts,
// signed overflow, misaligned accesses, conversions out of range) trap as an illegal instruction.
// Local variables start with garbage. Options are checked by form. Messages have NVRTC's form,
// "name(line): error: text".
#include <ctype.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fake-cuda/ptx.h"

#define EXPORT __attribute__((visibility("default")))

typedef enum nvrtcResult {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_OUT_OF_MEMORY = 1,
  NVRTC_ERROR_INVALID_INPUT = 3,
  NVRTC_ERROR_INVALID_PROGRAM = 4,
  NVRTC_ERROR_INVALID_OPTION = 5,
  NVRTC_ERROR_COMPILATION = 6,
  NVRTC_ERROR_INTERNAL_ERROR = 11,
} nvrtcResult;

typedef struct _nvrtcProgram {
  char* text;
  char name[256];
  char arch[32];
  char* log;
  size_t log_size;
  char* cubin;
  size_t cubin_size;
}* nvrtcProgram;

enum { VERSION = 13000 };

extern char** environ;

// ---------------------------------------------------------------------------------- the text

// The one race that is meant: each thread of a kernel that can fail reads the record's tag once,
// while one that fails may swap its own into it, which is as good as none. As a volatile access it
// is none for race.c.
static void write_line(FILE* out, const char* line, size_t size) {
  static const char tag[] = "qn_record->tag";
  for (;;) {
    const char* at = memmem(line, size, tag, sizeof tag - 1);
    if (!at) break;
    (void)fprintf(out, "%.*s(*(volatile unsigned*)&%s)", (int)(at - line), line, tag);
    size -= (size_t)(at - line) + sizeof tag - 1;
    line = at + sizeof tag - 1;
  }
  (void)fprintf(out, "%.*s\n", (int)size, line);
}

// Writes the text with dynamic shared memory as a pointer, one line for one line.
static void write_text(FILE* out, const char* text) {
  static const char words[] = "extern __shared__";
  while (*text) {
    const char* end = strchr(text, '\n');
    size_t size = end ? (size_t)(end - text) : strlen(text);
    const char* at = memmem(text, size, words, sizeof words - 1);
    const char* bracket = at ? memmem(at, size - (size_t)(at - text), "[]", 2) : NULL;
    if (bracket) {
      const char *name = bracket, *type_end;
      while (name > at && (isalnum((unsigned char)name[-1]) || name[-1] == '_')) name--;
      type_end = name;
      const char* type = at + sizeof words - 1;
      // Without an alignment in front of the type.
      while (type < type_end && isspace((unsigned char)*type)) type++;
      if (strncmp(type, "__align__", 9) == 0 && strchr(type, ')')) type = strchr(type, ')') + 1;
      (void)fprintf(out, "#define %.*s ((%.*s*)fake_dynamic_shared())\n", (int)(bracket - name),
                    name, (int)(type_end - type), type);
    } else if (!fake_ptx_write(out, text, size)) {
      write_line(out, text, size);
    }
    text += size + (end != NULL);
  }
}

// "__global__ void __launch_bounds__(256) name(": a line for each kernel.
static void write_kernels(FILE* out, const char* text, const char* arch) {
  (void)fprintf(out, "FAKE_MODULE_BEGIN\n");
  for (const char* at = text; (at = strstr(at, "__global__")) != NULL;) {
    at += 10;
    long max_threads = 1024;
    char name[256] = "";
    while (*at && *at != '{' && *at != ';') {
      if (isspace((unsigned char)*at)) {
        at++;
        continue;
      }
      size_t size = 0;
      while (isalnum((unsigned char)at[size]) || at[size] == '_') size++;
      if (size == 0 || size >= sizeof name) break;
      const char* word = at;
      at += size;
      if (*at != '(') continue;
      if (size == 17 && strncmp(word, "__launch_bounds__", 17) == 0) {
        max_threads = strtol(at + 1, NULL, 10);
        while (*at && *at != ')') at++;
        if (*at) at++;
        continue;
      }
      memcpy(name, word, size);
      name[size] = '\0';
      break;
    }
    if (name[0]) (void)fprintf(out, "FAKE_KERNEL(%s, %ld)\n", name, max_threads);
  }
  (void)fprintf(out, "FAKE_MODULE_END(\"%s\", %d)\n", arch, VERSION);
}

// ---------------------------------------------------------------------------------- compiling

static char* read_file(const char* path, size_t* out_size) {
  *out_size = 0;
  FILE* file = fopen(path, "rb");
  if (!file) return NULL;
  char* data = NULL;
  size_t capacity = 0;
  for (;;) {
    if (*out_size + 65536 > capacity) {
      capacity = capacity * 2 + 65536;
      char* grown = realloc(data, capacity + 1);
      if (!grown) break;
      data = grown;
    }
    const size_t got = fread(data + *out_size, 1, 65536, file);
    *out_size += got;
    if (got == 0) break;
  }
  (void)fclose(file);
  if (data) data[*out_size] = '\0';
  return data;
}

static int compile(const char* source, const char* output, const char* log) {
  const char* races = getenv("FAKE_CUDA_RACES");
  const bool has_races = races && races[0] == '1';
  char* const arguments[] = {(char*)FAKE_CUDA_CXX,
                             (char*)"-std=c++17",
                             (char*)"-O1",
                             (char*)"-fPIC",
                             (char*)"-shared",
                             (char*)"-w",
                             (char*)"-fvisibility=hidden",
                             (char*)"-ffp-contract=off",
                             (char*)"-fsanitize=shift,integer-divide-by-zero,bounds,alignment,"
                                    "signed-integer-overflow,float-cast-overflow",
                             (char*)"-fsanitize-undefined-trap-on-error",
                             (char*)"-ftrivial-auto-var-init=pattern",
                             (char*)"-fno-strict-aliasing",
                             (char*)"-fno-exceptions",
                             (char*)"-fno-rtti",
                             (char*)"-nostdinc++",
                             (char*)"-fno-math-errno",
                             (char*)"-fno-builtin-printf",
                             (char*)"-I" FAKE_CUDA_SOURCE_DIR,
                             (char*)"-include",
                             (char*)FAKE_CUDA_SOURCE_DIR "/tests/fake-cuda/kernel.hpp",
                             (char*)source,
                             (char*)"-o",
                             (char*)output,
                             (char*)"-lm",
                             // Its own calls in front of accesses, without its library.
                             has_races ? (char*)"-fsanitize=thread" : NULL,
                             (char*)"--param=tsan-distinguish-volatile=1",
                             (char*)"-DFAKE_CUDA_RACES",
                             (char*)"-nodefaultlibs",
                             (char*)"-lc",
                             (char*)"-lgcc",
                             NULL};
  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0) return -1;
  (void)posix_spawn_file_actions_addopen(&actions, 2, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid;
  int status = posix_spawnp(&pid, FAKE_CUDA_CXX, &actions, NULL, arguments, environ);
  (void)posix_spawn_file_actions_destroy(&actions);
  if (status != 0) return -1;
  while (waitpid(pid, &status, 0) < 0) continue;
  return status;
}

// "NAME:12:3: error: text" becomes "NAME(12): error: text".
static char* convert_log(const char* from) {
  char* to = malloc(strlen(from) + 1);
  if (!to) return NULL;
  char* at = to;
  while (*from) {
    const char* end = strchr(from, '\n');
    const size_t size = end ? (size_t)(end - from) + 1 : strlen(from);
    int name_size = 0, line = 0, column = 0, used = 0;
    if (sscanf(from, "%*[^:\n]%n:%d:%d: %n", &name_size, &line, &column, &used) == 2 && used > 0 &&
        (size_t)used < size) {
      at += sprintf(at, "%.*s(%d): ", name_size, from, line);
      memcpy(at, from + used, size - (size_t)used);
      at += size - (size_t)used;
    } else {
      memcpy(at, from, size);
      at += size;
    }
    from += size;
  }
  *at = '\0';
  return to;
}

static nvrtcResult build(nvrtcProgram program, const char* folder) {
  char source[512], output[512], log[512];
  (void)snprintf(source, sizeof source, "%s/kernel.cpp", folder);
  (void)snprintf(output, sizeof output, "%s/kernel.so", folder);
  (void)snprintf(log, sizeof log, "%s/log", folder);
  FILE* file = fopen(source, "w");
  if (!file) return NVRTC_ERROR_INTERNAL_ERROR;
  (void)fprintf(file, "#line 1 \"%s\"\n", program->name);
  write_text(file, program->text);
  write_kernels(file, program->text, program->arch);
  (void)fclose(file);
  const int status = compile(source, output, log);
  size_t log_size;
  char* text = read_file(log, &log_size);
  free(program->log);
  program->log = text ? convert_log(text) : NULL;
  program->log_size = program->log ? strlen(program->log) : 0;
  free(text);
  if (status == 0) {
    free(program->cubin);
    program->cubin = read_file(output, &program->cubin_size);
  }
  (void)unlink(source);
  (void)unlink(output);
  (void)unlink(log);
  if (status < 0) return NVRTC_ERROR_INTERNAL_ERROR;
  return status == 0 && program->cubin ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

// ---------------------------------------------------------------------------------- entries

EXPORT const char* nvrtcGetErrorString(nvrtcResult result);
EXPORT const char* nvrtcGetErrorString(nvrtcResult result) {
  switch (result) {
    case NVRTC_SUCCESS:
      return "NVRTC_SUCCESS";
    case NVRTC_ERROR_COMPILATION:
      return "NVRTC_ERROR_COMPILATION";
    case NVRTC_ERROR_INVALID_OPTION:
      return "NVRTC_ERROR_INVALID_OPTION";
    default:
      return "NVRTC_ERROR unknown";
  }
}

EXPORT nvrtcResult nvrtcVersion(int* out_major, int* out_minor);
EXPORT nvrtcResult nvrtcVersion(int* out_major, int* out_minor) {
  *out_major = VERSION / 1000;
  *out_minor = VERSION % 1000 / 10;
  return NVRTC_SUCCESS;
}

static const int archs[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int* out_count);
EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int* out_count) {
  *out_count = (int)(sizeof archs / sizeof archs[0]);
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetSupportedArchs(int* out_archs);
EXPORT nvrtcResult nvrtcGetSupportedArchs(int* out_archs) {
  memcpy(out_archs, archs, sizeof archs);
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram* out_program, const char* text, const char* name,
                                      int header_count, const char* const* headers,
                                      const char* const* names);
EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram* out_program, const char* text, const char* name,
                                      int header_count, const char* const* headers,
                                      const char* const* names) {
  (void)headers;
  (void)names;
  if (!out_program || !text || header_count != 0) return NVRTC_ERROR_INVALID_INPUT;
  nvrtcProgram program = calloc(1, sizeof *program);
  if (!program) return NVRTC_ERROR_OUT_OF_MEMORY;
  program->text = strdup(text);
  (void)snprintf(program->name, sizeof program->name, "%s", name ? name : "default_program");
  *out_program = program;
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program);
EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  if (!program || !*program) return NVRTC_ERROR_INVALID_PROGRAM;
  free((*program)->text);
  free((*program)->log);
  free((*program)->cubin);
  free(*program);
  *program = NULL;
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options);
EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count,
                                       const char* const* options) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  (void)snprintf(program->arch, sizeof program->arch, "sm_75");
  for (int i = 0; i < count; i++) {
    if (options[i][0] != '-') return NVRTC_ERROR_INVALID_OPTION;
    const char* equals = strchr(options[i], '=');
    if (equals && (strncmp(options[i], "-arch=", 6) == 0 ||
                   strncmp(options[i], "--gpu-architecture=", 19) == 0)) {
      if (strncmp(equals + 1, "sm_", 3) != 0 && strncmp(equals + 1, "compute_", 8) != 0) {
        return NVRTC_ERROR_INVALID_OPTION;
      }
      (void)snprintf(program->arch, sizeof program->arch, "%s", equals + 1);
    }
  }
  char folder[256];
  const char* base = getenv("TMPDIR");
  (void)snprintf(folder, sizeof folder, "%s/fake-nvrtc-XXXXXX", base && base[0] ? base : "/tmp");
  if (!mkdtemp(folder)) return NVRTC_ERROR_INTERNAL_ERROR;
  const nvrtcResult result = build(program, folder);
  (void)rmdir(folder);
  return result;
}

EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* out_size);
EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* out_size) {
  if (!program || !program->cubin) return NVRTC_ERROR_INVALID_PROGRAM;
  *out_size = program->cubin_size;
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* out);
EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* out) {
  if (!program || !program->cubin) return NVRTC_ERROR_INVALID_PROGRAM;
  memcpy(out, program->cubin, program->cubin_size);
  return NVRTC_SUCCESS;
}

static const char ptx[] = "// the fake NVRTC makes no PTX\n.version 9.0\n";

EXPORT nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t* out_size);
EXPORT nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t* out_size) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  *out_size = sizeof ptx;
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* out);
EXPORT nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* out) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  memcpy(out, ptx, sizeof ptx);
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* out_size);
EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* out_size) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  *out_size = program->log_size + 1;
  return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* out);
EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* out) {
  if (!program) return NVRTC_ERROR_INVALID_PROGRAM;
  memcpy(out, program->log ? program->log : "", program->log_size + 1);
  return NVRTC_SUCCESS;
}
