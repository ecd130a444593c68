// tests/support/power.h: a disk that loses power: what was written becomes durable late, in any
// order, in parts, or never.
//
// While installed, all file calls go to the real file system and are recorded. Afterwards the
// states in which a disk may come back are made from the record, as many as one likes, for a loss
// of power before any of the calls. The model, per file and name below the recorded root:
//   - bytes are durable once fdatasync of that file has returned after they were written. Others
//     are, block by block (512 or 4096 bytes), there, zero, or what was there before, and the size
//     is anything between the last durable one and the newest.
//   - names are durable at random: either all up to some earlier moment, as a journal has it, or
//     each name by itself at any of the states that it has had, in no order. A rename may thus be
//     there without the end of the older name, or be lost while a later one is there.
//   - what existed at the install, or at a settle, is durable.
// Times of modification and modes are not modelled. Directories are never synced: a name that must
// not be lost has no place in the cache.
//
// Thread rule: calls from any threads are recorded in one order. One recording at a time.
// Read next: power.c, tests/faults/test_power.c.
#ifndef QUERN_TESTS_SUPPORT_POWER_H_
#define QUERN_TESTS_SUPPORT_POWER_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum qn_power_disk {
  QN_POWER_HONEST = 0,
  QN_POWER_LIES = 1,  // fdatasync says that it did, and did nothing
} qn_power_disk_t;

// Records what happens below `root` from now on; what is there is durable.
void qn_power_install(const char* root, qn_power_disk_t disk);
// Ends the recording; the record stays until qn_power_forget.
void qn_power_remove(void);
void qn_power_forget(void);
// The number of recorded calls that change anything: power may fail before each, and after all.
size_t qn_power_event_count(void);

typedef struct qn_power_damage {
  unsigned lost_names;     // names that have an older state, or none
  unsigned torn_files;     // files whose bytes are not all those that were written
  unsigned torn_in_place;  // of them: with the full size, so that only their bytes tell
} qn_power_damage_t;

// Makes in `directory` (which is emptied first) one state in which the disk may come back when
// power fails before event `cut`. `out_damage` (may be NULL) says what was lost in it.
void qn_power_materialise(const char* directory, size_t cut, uint64_t seed,
                          qn_power_damage_t* out_damage);

#endif  // QUERN_TESTS_SUPPORT_POWER_H_
