// base/plugin.h: modules of quern that are opened on demand (`libquern-NAME.so`): code generators,
// the remote store, cryptography. The core links none of what they need.
//
// Thread rule: any thread. Read next: plugin.c.
#ifndef QUERN_BASE_PLUGIN_H_
#define QUERN_BASE_PLUGIN_H_

#include <limits.h>

#include "base/base.h"

// The folder that this library was loaded from, without the last slash; false when unknown.
bool qn__library_folder(char out[PATH_MAX]);
// The path of `libquern-NAME.so`: in `directory` alone if that is not "", else beside this library,
// in its quern/ folder, or in lib/ beside the folder of a statically linked program. False when
// there is none; `out` then has the place where it was expected first.
bool qn__plugin_find(const char* directory, const char* name, char out[PATH_MAX]);
// What to do about a module that this build was made without; NULL for one that it was made with,
// and for those of others.
const char* qn__plugin_remedy(const char* name);
// Opens the module (it is never closed) and finds a symbol of it. Errors: UNAVAILABLE with what was
// tried and why it failed.
qn_status_t qn__plugin_open(const char* directory, const char* name, const char* symbol,
                            void** out_symbol);

#endif  // QUERN_BASE_PLUGIN_H_
