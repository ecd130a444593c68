// SPDX-License-Identifier: Apache-2.0
// tests/cli/generators/faulty.c: a code generator for tests that crashes, hangs or refuses, chosen
// by the name of the module's first function. For other names it generates code without effect.
//
// Built as libquern-llvm.so in a folder of its own, which tests put into QUERN_GENERATOR_DIR.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "ir/encode.h"
#include "ir/ir.h"
#include "quern/backend.h"

typedef struct made {
  qn_artifact_t artifact;  // first: release gets this pointer back
  qn_artifact_function_t functions[16];
  char names[16][64];
  uint8_t code[64];
} made_t;

// xor eax, eax; ret
static const uint8_t do_nothing[] = {0x31, 0xc0, 0xc3};

static void release(qn_artifact_t* artifact) {
  free(artifact);
}

// As a real fault does: past the handlers that sanitizers install, and on threads that have all
// signals blocked.
static void die_of(int number) {
  sigset_t set;
  (void)sigemptyset(&set);
  (void)sigaddset(&set, number);
  (void)signal(number, SIG_DFL);
  (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  (void)raise(number);
}

static bool begins_with(const char* text, const char* prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

static qn_status_t behave(const char* name) {
  if (begins_with(name, "crash")) die_of(SIGSEGV);
  if (begins_with(name, "killed")) die_of(SIGKILL);
  if (begins_with(name, "leave")) _exit(7);
  if (begins_with(name, "abort")) {
    fprintf(stderr, "GENERATOR ERROR: no luck\n");
    die_of(SIGABRT);
  }
  if (begins_with(name, "hang")) {
    // A line for each that hangs, where the test can count them.
    int marks = open("hang.marks", O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0600);
    if (marks >= 0) (void)!write(marks, "hangs\n", 6);
    for (;;) pause();
  }
  if (begins_with(name, "slow")) (void)poll(NULL, 0, 300);
  if (begins_with(name, "once")) {
    // The first one who comes dies; the marker lies in the working directory of the test.
    int mark = open("once.mark", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (mark >= 0) die_of(SIGSEGV);
  }
  if (begins_with(name, "refuse")) {
    return qn_status_make(QN_STATUS_UNSUPPORTED, "'%s' is not to this generator's liking", name);
  }
  return QN_OK;
}

static qn_status_t compile(void* self, const qn_compile_request_t* request,
                           qn_artifact_t** out_artifact) {
  (void)self;
  *out_artifact = NULL;
  qn__ir_body_t body;
  QN_TRY(qn__body_decode((qn_span_t){request->module_bytes, request->module_size},
                         qn_allocator_default(), &body));
  made_t* made = calloc(1, sizeof *made);
  if (!made) {
    qn__body_deinit(&body);
    return qn_status_make(QN_STATUS_OUT_OF_MEMORY, "no memory for an artifact");
  }
  size_t count = 0;
  for (qn__ir_func_t* f = body.first; f && count < 16; f = f->next, count++) {
    (void)snprintf(made->names[count], sizeof made->names[count], "%s", f->name);
    made->functions[count] = (qn_artifact_function_t){
        .name = made->names[count], .code_size_bytes = 3, .launch_count = 1};
  }
  qn__body_deinit(&body);
  made->artifact = (qn_artifact_t){.struct_size = sizeof made->artifact,
                                   .format = "cpu-image-1",
                                   .isa = "{\"kind\":\"null\"}",  // runs everywhere
                                   .payload = made->code,
                                   .payload_size = sizeof made->code,
                                   .function_count = count,
                                   .functions = made->functions,
                                   .release = release};
  memcpy(made->code, do_nothing, sizeof do_nothing);
  if (count && begins_with(made->names[0], "coin")) {
    // Behind the code, where nobody runs it: bytes that are never the same twice.
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    memcpy(made->code + 8, &now, sizeof now);
    made->code[7] = 1;
  }
  qn_status_t status = count ? behave(made->names[0]) : QN_OK;
  if (!qn_ok(status)) {
    free(made);
    return status;
  }
  *out_artifact = &made->artifact;
  return QN_OK;
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
  return "faulty 1";
}

static const qn_codegen_t table = {
    .abi_version = QN_CODEGEN_ABI_VERSION,
    .struct_size = sizeof(qn_codegen_t),
    .name = "llvm",
    .create = create,
    .destroy = destroy,
    .identity = identity,
    .compile = compile,
};

QN_API const qn_codegen_t* qn_codegen_entry(uint32_t abi_version);
const qn_codegen_t* qn_codegen_entry(uint32_t abi_version) {
  return abi_version == QN_CODEGEN_ABI_VERSION ? &table : NULL;
}
