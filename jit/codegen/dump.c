// SPDX-License-Identifier: Apache-2.0
// jit/codegen/dump.c: writes intermediate forms to files, for debugging: QUERN_DUMP=ir,llvm,asm
// writes DIR/FUNCTION-KEY8.FORM for each compile.
//
// File names contain the key, so equal compiles write the same file.
#include <fcntl.h>
#include <stdio.h>

#include "base/fs.h"
#include "base/log.h"
#include "jit/codegen/generator.h"

static void dump_form(const char* directory, const char* name, const char* form,
                      const qn_codegen_t* codegen, void* self,
                      const qn_compile_request_t* request) {
  char path[4096];
  int length = snprintf(path, sizeof path, "%s/%s.%s", directory, name, form);
  if (length < 0 || (size_t)length >= sizeof path) return;
  int fd = qn__fs()->open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  qn_status_t status = QN_OK;
  if (fd < 0) {
    status = qn_status_make(QN_STATUS_IO, "it cannot be opened");
  } else {
    status = codegen->emit(self, request, form, (qn_sink_t){&fd, qn__fs_write_sink});
    (void)qn__fs()->close(fd);
  }
  if (!qn_ok(status)) {
    qn__log(QN_LOG_WARN, "dump '%s' was not written: %s", path, qn_status_message(status));
    qn_status_free(status);
  }
}

void qn__codegen_dump(const qn_codegen_t* codegen, void* self, const qn_compile_request_t* request,
                      const char* forms, const char* directory, const char* name) {
  while (*forms != '\0') {
    size_t size = strcspn(forms, ",");
    char form[32];
    if (size != 0 && size < sizeof form) {
      memcpy(form, forms, size);
      form[size] = '\0';
      if (codegen->emit) {
        dump_form(directory, name, form, codegen, self, request);
      } else {
        qn__log(QN_LOG_WARN, "generator '%s' has no form '%s' to dump", codegen->name, form);
      }
    }
    forms += size;
    if (*forms == ',') forms++;
  }
}
