// SPDX-License-Identifier: Apache-2.0
// serve/probe.h: one process asks another one whether it is ready.
#ifndef SERVE_PROBE_H_
#define SERVE_PROBE_H_

#include "serve/options.h"

// Asks the server at the address and port of the options for /health, within three seconds. A
// server that listens at all addresses is asked at the loopback. Errors: FAILED_PRECONDITION if it
// is not ready, with its answer; UNAVAILABLE if there is none; INVALID_ARGUMENT for the address,
// and for a server with TLS, which this client does not speak.
QN_MUST_USE qn_status_t serve_probe(const serve_options_t* options);

#endif  // SERVE_PROBE_H_
