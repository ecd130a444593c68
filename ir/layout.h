// ir/layout.h: the maximum width of a line of canonical text, and the breaking of longer lines.
//
// Shared by the printer and the formatter, so that they agree.
#ifndef QUERN_IR_LAYOUT_H_
#define QUERN_IR_LAYOUT_H_

#include "base/buffer.h"

enum { QN__LAYOUT_COLUMNS = 100, QN__LAYOUT_INDENT = 2 };

// Breaks the line that `out` ends with, from byte `line_begin` on, where it is too wide. Only
// spaces become line ends. The line has no comment.
void qn__layout_wrap(qn__buffer_t* out, size_t line_begin);

#endif  // QUERN_IR_LAYOUT_H_
