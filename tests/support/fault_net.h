// SPDX-License-Identifier: Apache-2.0
// tests/support/fault_net.h: failures on demand of the network calls of base/net.h, like fault.h
// for files.
//
// Thread rule: arm from one thread; other threads may be in calls.
#ifndef QUERN_TESTS_SUPPORT_FAULT_NET_H_
#define QUERN_TESTS_SUPPORT_FAULT_NET_H_

#include "base/net.h"
#include "tests/support/fault.h"

typedef enum qn_fault_net_kind {
  QN_FAULT_NET_ERRNO = 0,  // the call fails with an errno and has no effect
  QN_FAULT_NET_SHORT,      // send and recv move one byte; only they are counted
  QN_FAULT_NET_CLOSED,     // recv says that the peer has closed; only it is counted
  QN_FAULT_NET_SILENT,     // wait reports a timeout at once; only waits are counted
} qn_fault_net_kind_t;

// Returns the table, for functions that take one or for qn__net_install.
extern const qn__net_t qn_fault_net;
// Makes the n-th call from now (1: the next, 0: never) fail according to `kind`.
void qn_fault_net_arm(long fail_at, qn_fault_mode_t mode, qn_fault_net_kind_t kind, int error);
long qn_fault_net_calls(void);
long qn_fault_net_failures(void);
// Returns the number of sockets and address lists created through the table and not yet released.
long qn_fault_net_open_count(void);
// Sets a function that is called before every name resolution. NULL removes it.
void qn_fault_net_on_resolve(void (*hook)(void* user), void* user);

#endif  // QUERN_TESTS_SUPPORT_FAULT_NET_H_
