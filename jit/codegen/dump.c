// jit/codegen/dump.c: intermediate forms as files, for people: QUERN_DUMP=ir,llvm,asm writes
// DIR/FUNCTION-KEY8.FORM for each compile.
//
// Thread rule: any thread; names hold the key, so equal compiles write equal files. Read next:
// lookup.c.
#include <fcntl.h>
#include <stdio.h>

#include "base/fs.h"
#include "base/log.h"
#include "jit/engine/engine.h"

typedef struct file_sink {
  int fd;
  bool has_failed;
} file_sink_t;

static qn_status_t write_file(void* self, const void* data, size_t size_bytes) {
  file_sink_t* sink = self;
  const char* at = data;
  while (size_bytes != 0) {
    ssize_t written = qn__fs()->write(sink->fd, at, size_bytes);
    if (written <= 0) return qn_status_make(QN_STATUS_IO, "a write failed");
    at += written;
    size_bytes -= (size_t)written;
  }
  return QN_OK;
}

static void dump_form(const char* directory, const char* name, const char* form,
                      const qn_codegen_t* codegen, void* self,
                      const qn_compile_request_t* request) {
  char path[4096];
  int length = snprintf(path, sizeof path, "%s/%s.%s", directory, name, form);
  if (length < 0 || (size_t)length >= sizeof path) return;
  file_sink_t sink = {.fd = qn__fs()->open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
  qn_status_t status = QN_OK;
  if (sink.fd < 0) {
    status = qn_status_make(QN_STATUS_IO, "it cannot be opened");
  } else {
    status = codegen->emit(self, request, form, (qn_sink_t){&sink, write_file});
    (void)qn__fs()->close(sink.fd);
  }
  if (!qn_ok(status)) {
    qn__log(QN_LOG_WARN, "dump '%s' was not written: %s", path, qn_status_message(status));
    qn_status_free(status);
  }
}

void qn__engine_dump(qn_engine_t* engine, const qn_codegen_t* codegen, void* self,
                     const qn_compile_request_t* request, const char* name) {
  const char* list = qn__config_get(&engine->config, QN__SETTING_dump);
  const char* directory = qn__config_get(&engine->config, QN__SETTING_dump_dir);
  while (*list != '\0') {
    size_t size = strcspn(list, ",");
    char form[32];
    if (size != 0 && size < sizeof form) {
      memcpy(form, list, size);
      form[size] = '\0';
      if (codegen->emit) {
        dump_form(directory, name, form, codegen, self, request);
      } else {
        qn__log(QN_LOG_WARN, "generator '%s' has no form '%s' to dump", codegen->name, form);
      }
    }
    list += size;
    if (*list == ',') list++;
  }
}
