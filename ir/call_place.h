// SPDX-License-Identifier: Apache-2.0
// ir/call_place.h: the places of nodes that come from expanded calls.
//
// A call is expanded before anything else sees it (callee.h). Its nodes still tell where they are
// in the text of the called function, and by which calls they came here: their places begin beyond
// every text, and are numbers of qn__ir_place_t.
#ifndef QUERN_IR_CALL_PLACE_H_
#define QUERN_IR_CALL_PLACE_H_

#include "ir/ir.h"

// Adds a call, or returns false if the arena is exhausted.
bool qn__places_add_call(qn__ir_places_t* places, qn__arena_t* arena, const char* name,
                         qn__ir_loc_t loc);
// Returns the place `text` as it is in the expansion of call number `call`. Without memory, the
// arena is exhausted, and the place is `text`.
qn__ir_loc_t qn__places_add(qn__ir_places_t* places, qn__arena_t* arena, qn__ir_loc_t text,
                            uint32_t call);
// Returns the place that a number stands for; NULL for a place in the text.
const qn__ir_place_t* qn__places_find(const qn__ir_places_t* places, qn__ir_loc_t loc);
// Makes a place one of the text, and returns the call it came by; NULL: none. The place of that
// call may come by another call. `places` may be NULL.
const qn__ir_call_t* qn__places_resolve(const qn__ir_places_t* places, qn__ir_loc_t* loc);
// Copies all places to another arena. Returns false if it is exhausted.
bool qn__places_copy(const qn__ir_places_t* from, qn__arena_t* arena, qn__ir_places_t* out_places);

#endif  // QUERN_IR_CALL_PLACE_H_
