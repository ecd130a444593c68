// SPDX-License-Identifier: Apache-2.0
// serve/protocols.h: the tables of routes of all protocols, and whose errors a path gets.
#ifndef SERVE_PROTOCOLS_H_
#define SERVE_PROTOCOLS_H_

#include "serve/server.h"

extern const serve_routes_t* const serve_all_routes[];
extern const size_t serve_all_routes_count;

// Returns the protocol in whose shape errors of a path are, also where there is no such route.
const serve_protocol_t* serve_protocol_of_path(const char* path);

extern const serve_protocol_t serve_oip;
extern const serve_routes_t serve_oip_routes;
extern const serve_protocol_t serve_openai;
extern const serve_routes_t serve_openai_routes;
extern const serve_protocol_t serve_tei;
extern const serve_routes_t serve_tei_routes;

#endif  // SERVE_PROTOCOLS_H_
