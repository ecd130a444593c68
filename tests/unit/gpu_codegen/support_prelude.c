// SPDX-License-Identifier: Apache-2.0
// support_prelude.c: see support_prelude.h.
//
// CUDA's words come from tests/fake-cuda/kernel.hpp, GLSL's from tests/support/glsl_words.hpp.
#include "tests/unit/gpu_codegen/support_prelude.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jit/gpu/prelude.h"

const prelude_mode_t PRELUDE_MODES[PRELUDE_MODE_COUNT] = {
    {"cuda", false, true, true, true},
    {"glsl", true, true, true, true},
    {"glsl without fma", true, false, true, true},
    {"glsl of 32 bits", true, false, false, false},
};

static void write_file(const char* path, const prelude_mode_t* mode, const char* loops) {
  qn__buffer_t prelude;
  qn__buffer_init(&prelude, qn_allocator_default());
  qn__gpu_prelude_use_t use;
  memset(&use, 1, sizeof use);
  qn__gpu_prelude_write(&use, mode->is_glsl, mode->has_fma, mode->has_int64, mode->has_float64,
                        &prelude);
  FILE* file = fopen(path, "w");
  if (file != NULL && !prelude.has_failed) {
    fprintf(file, "#include \"%s\"\n",
            mode->is_glsl ? "tests/support/glsl_words.hpp" : "tests/fake-cuda/kernel.hpp");
    if (mode->is_glsl) {
      // Quotients and roots that are put right afterwards.
      fputs("#define sqrt off_root\n#define QN_QUOTIENT(a, b) off_quotient(a, b)\n", file);
    }
    const char* text = (const char*)prelude.data;
    // C++ has no suffix for doubles.
    for (; *text != '\0'; text++) {
      if (strncmp(text, "#define QN_QUOTIENT", 19) == 0) text += strcspn(text, "\n");
      if (mode->is_glsl && text[0] == 'L' && text[1] == 'F' && strchr(",;) \n", text[2])) {
        text++;
        continue;
      }
      fputc(*text, file);
    }
    if (!mode->is_glsl) fputs("FAKE_MODULE_BEGIN\nFAKE_MODULE_END(\"\", 0)\n", file);
    fputs(loops, file);
  }
  if (file != NULL) fclose(file);
  qn__buffer_deinit(&prelude);
}

void* prelude_build(const prelude_mode_t* mode, const char* loops, const char** out_error) {
  static char error[4096];
  *out_error = error;
  error[0] = '\0';
  if (system("c++ --version > /dev/null 2>&1") != 0) return NULL;
  char folder[] = "/tmp/quern-prelude-XXXXXX";
  if (mkdtemp(folder) == NULL) {
    snprintf(error, sizeof error, "no folder");
    return NULL;
  }
  char source[64], object[64], log[64], command[1024];
  snprintf(source, sizeof source, "%s/t.cpp", folder);
  snprintf(object, sizeof object, "%s/t.so", folder);
  snprintf(log, sizeof log, "%s/log", folder);
  write_file(source, mode, loops);
  // Structs of GLSL are made in parentheses, which is C++20.
  snprintf(command, sizeof command,
           "c++ -std=c++20 -O1 -w -fPIC -shared -ffp-contract=off -fwrapv -fno-math-errno %s -I%s "
           "-o %s %s > %s 2>&1",
           __builtin_cpu_supports("fma") ? "-mfma -mavx2" : "", QN_SOURCE_DIR, object, source, log);
  void* built = NULL;
  if (system(command) == 0) built = dlopen(object, RTLD_NOW | RTLD_LOCAL);
  if (built == NULL) {
    FILE* file = fopen(log, "r");
    size_t size = file == NULL ? 0 : fread(error, 1, sizeof error - 1, file);
    error[size] = '\0';
    if (file != NULL) fclose(file);
    if (size == 0) snprintf(error, sizeof error, "%s does not load", object);
  }
  if (getenv("QUERN_TEST_KEEP") == NULL) {
    unlink(source);
    unlink(object);
    unlink(log);
    rmdir(folder);
  }
  return built;
}

void* prelude_symbol(void* built, const char* name) {
  return dlsym(built, name);
}

void prelude_free(void* built) {
  dlclose(built);
}
