// tests/faults/nfs.h: a file system with the manners of NFS, under the seam of base/fs.h.
//
//   - negative entries: a name that was once not found is not found for some calls more, although
//     it has been made since;
//   - silly renames: what is unlinked or replaced while this client has it open stays as .nfsXXXX
//     in the same directory until it is closed;
//   - stale handles: reading or describing a file that another client has replaced may say ESTALE;
//   - repeated requests: what was done may be answered as if it had been done before (EEXIST for a
//     file that was just made, ENOENT for a rename or an unlink that worked);
//   - late errors: close may say EDQUOT or EIO for what was written;
//   - locks fail with ENOLCK, and the file system says that it is NFS.
//
// Seeded. Thread rule: any thread, one lock over everything. Read next: nfs.c.
#ifndef QUERN_TESTS_FAULTS_NFS_H_
#define QUERN_TESTS_FAULTS_NFS_H_

#include <stdint.h>

void nfs_install(uint64_t seed);
// Ends the manners: from then on it is a plain file system.
void nfs_remove(void);
// How often each of the manners was met: negative, silly, stale, repeated, late, locks.
void nfs_print(void);
unsigned long nfs_count(const char* manner);

#endif  // QUERN_TESTS_FAULTS_NFS_H_
