// tests/support/fault_net.h: failures on demand of the network calls of base/net.h, as fault.h has
// them for files.
//
// Thread rule: arming is for one thread; calls may be under way. Read next: fault_net.c.
#ifndef QUERN_TESTS_SUPPORT_FAULT_NET_H_
#define QUERN_TESTS_SUPPORT_FAULT_NET_H_

#include "base/net.h"
#include "tests/support/fault.h"

typedef enum qn_fault_net_kind {
  QN_FAULT_NET_ERRNO = 0,  // the call fails with an errno and has no effect
  QN_FAULT_NET_SHORT,      // send and recv move one byte; only they are counted
  QN_FAULT_NET_CLOSED,     // recv says that the peer has closed; only it is counted
  QN_FAULT_NET_SILENT,     // wait says that nothing happened, at once; only it is counted
} qn_fault_net_kind_t;

// The table; hand it to what takes one, or qn__net_install it.
extern const qn__net_t qn_fault_net;
// The n-th call from now (1 is the next, 0 never) behaves as `kind` says.
void qn_fault_net_arm(long fail_at, qn_fault_mode_t mode, qn_fault_net_kind_t kind, int error);
long qn_fault_net_calls(void);
long qn_fault_net_failures(void);
// Sockets and address lists that were made through the table and not given back.
long qn_fault_net_open_count(void);
// Called instead of every lookup of a name, when not NULL, before it.
void qn_fault_net_on_resolve(void (*hook)(void* user), void* user);

#endif  // QUERN_TESTS_SUPPORT_FAULT_NET_H_
