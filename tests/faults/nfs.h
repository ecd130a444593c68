// SPDX-License-Identifier: Apache-2.0
// tests/faults/nfs.h: a file system that behaves like NFS, installed below base/fs.h.
//
//   - Negative entries: a name that was not found stays missing for some calls after its creation.
//   - Silly renames: a file that is unlinked or replaced while this client has it open becomes
//     .nfsXXXX in the same directory until it is closed.
//   - Stale handles: reads or stats of a file replaced by another client may fail with ESTALE.
//   - Repeated requests: a call that succeeded may report the error of a second try, for example
//     EEXIST after creating a file, or ENOENT after a rename or an unlink.
//   - Late errors: close may report EDQUOT or EIO for earlier writes.
//   - Locks fail with ENOLCK, and statfs reports NFS.
//
// All random choices follow from a seed. Thread rule: any thread; one lock covers all calls.
#ifndef QUERN_TESTS_FAULTS_NFS_H_
#define QUERN_TESTS_FAULTS_NFS_H_

#include <stdint.h>

void nfs_install(uint64_t seed);
// Switches the NFS behaviour off. The file system is a plain one afterwards.
void nfs_remove(void);
// Counts how often each behaviour occurred.
void nfs_print(void);
unsigned long nfs_count(const char* manner);

#endif  // QUERN_TESTS_FAULTS_NFS_H_
