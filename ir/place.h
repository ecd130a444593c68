// SPDX-License-Identifier: Apache-2.0
// ir/place.h: where a failure of running code is in the module's text, and the text's names in
// errors of code generators.
//
// Code is made from canonical bytes, so it knows a failing access by its offset there (`place` of
// qn_artifact_site_t). The module of the caller knows its own text. Both bodies have the same
// nodes in the same order, which leads from the offset to the line, for any text of the bytes.
// Nothing is stored for that: the bytes are decoded when a failure is described. Names of locals
// are not in the bytes either: generators name them by their numbers.
#ifndef QUERN_IR_PLACE_H_
#define QUERN_IR_PLACE_H_

#include "ir/ir.h"

// A node of a module's body. Both NULL: none.
typedef struct qn__ir_node {
  const qn__ir_expr_t* expr;
  const qn__ir_stmt_t* stmt;
} qn__ir_node_t;

// Returns the node of `function`, a function of the sealed `module`, whose encoding begins at
// `offset` of the canonical bytes. None if nothing begins there, or without memory.
qn__ir_node_t qn__place_find(const qn_module_t* module, const qn__ir_func_t* function,
                             uint32_t offset);
// Adds the place of a node in the module's text to the message of an error:
// ", at f.qn:7:12: x[i + 3]", and then ", in 'g', called at" with a place for each call of a
// function with a value that led there. Leaves out what stands there if `is_quoted` is false, and
// the condition of an assert without a message of its own, which is the error's message. Returns
// the error itself for a module without text or for no node. Consumes the status. Never fails.
qn_status_t qn__place_append(qn_status_t status, const qn_module_t* module, qn__ir_node_t node,
                             bool is_quoted);

// Puts the module's names in place of the numbers by which a generator names locals of a function,
// and adds the place of the first: "function 'f': 'v3' is f64, ..." becomes "function 'f': 'total'
// is f64, ..., at FILE:7:3". Returns the error itself if it names none. Consumes the status. Never
// fails.
qn_status_t qn__place_name_locals(qn_status_t status, const qn_module_t* module);

#endif  // QUERN_IR_PLACE_H_
