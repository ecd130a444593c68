// SPDX-License-Identifier: Apache-2.0
// base/escape.h: UTF-8, and the one escape of text from outside (qn_text_escape, quern/status.h).
#ifndef QUERN_BASE_ESCAPE_H_
#define QUERN_BASE_ESCAPE_H_

#include "base/base.h"

// Returns the bytes of the well-formed UTF-8 sequence at the beginning of `text`, which is not
// empty, and its code point; 0 when it is malformed.
size_t qn__utf8_decode(qn_str_t text, uint32_t* out_code);
// Whether a terminal may act on the code point instead of showing it: C0, DEL, C1, and the controls
// that change the direction of writing or end a line.
bool qn__is_control(uint32_t code);

#endif  // QUERN_BASE_ESCAPE_H_
