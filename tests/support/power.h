// SPDX-License-Identifier: Apache-2.0
// tests/support/power.h: a model of a disk that loses power: writes become durable late, in any
// order, in part, or never.
//
// While installed, all file calls go to the real file system and are recorded. Afterwards any
// number of possible states after a power loss can be generated, for a loss before any of the
// calls. The model, for files and names below the recorded root:
//   - Bytes are durable once fdatasync of their file has returned. Every other block (512 or 4096
//     bytes) is new, zero or old, and the size is between the last durable and the newest one.
//   - Names are durable at random: either all changes up to some moment, as with a journal, or each
//     name independently in any of its states. A rename may thus persist without an earlier one.
//   - Everything that existed at the install, or at a settle, is durable.
//   - Modification times and modes are not modelled. Directories are never synced: the cache must
//     not need a name to survive.
//
// Thread rule: calls from any thread are recorded in one order. One recording at a time.
#ifndef QUERN_TESTS_SUPPORT_POWER_H_
#define QUERN_TESTS_SUPPORT_POWER_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum qn_power_disk {
  QN_POWER_HONEST = 0,
  QN_POWER_LIES = 1,  // fdatasync says that it did, and did nothing
} qn_power_disk_t;

// Starts to record changes below `root`. Its present state is durable.
void qn_power_install(const char* root, qn_power_disk_t disk);
// Ends the recording. The record is kept until qn_power_forget.
void qn_power_remove(void);
void qn_power_forget(void);
// Returns the number of recorded changes. Power may fail before each of them and after the last.
size_t qn_power_event_count(void);

typedef struct qn_power_damage {
  unsigned lost_names;     // names in an older state or missing
  unsigned torn_files;     // files without some of their written bytes
  unsigned torn_in_place;  // of these: files with the full size, whose damage only the bytes show
} qn_power_damage_t;

// Builds in `directory`, which is emptied first, one possible state after a power loss before event
// `cut`. `out_damage` (may be NULL) gets the losses.
void qn_power_materialise(const char* directory, size_t cut, uint64_t seed,
                          qn_power_damage_t* out_damage);

#endif  // QUERN_TESTS_SUPPORT_POWER_H_
