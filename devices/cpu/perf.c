// SPDX-License-Identifier: Apache-2.0
// devices/cpu/perf.c: the perf map: one line per kernel, "START SIZE name", in /tmp/perf-PID.map.
//
// perf reads the file only if it belongs to the user who runs perf. The file is opened without
// following links, and each call appends its lines by one write.
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/fs.h"
#include "base/log.h"
#include "devices/cpu/debug.h"

void qn__perf_map_add(const qn__cpu_symbol_t* symbols, size_t count) {
  char path[64];
  (void)snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
  qn__buffer_t lines;
  qn__buffer_init(&lines, qn_allocator_default());
  for (size_t i = 0; i < count; i++) {
    qn__buffer_format(&lines, "%" PRIxPTR " %zx %s\n", symbols[i].address, symbols[i].size_bytes,
                      symbols[i].name);
  }
  int fd = qn__fs()->open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  bool is_written = fd >= 0 && !lines.has_failed &&
                    qn__fs()->write(fd, lines.data, lines.size) == (ssize_t)lines.size;
  if (!is_written)
    QN__LOG_ONCE(QN_LOG_WARN, "%s cannot be written: perf will not name kernels", path);
  if (fd >= 0) (void)qn__fs()->close(fd);
  qn__buffer_deinit(&lines);
}
