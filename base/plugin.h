// SPDX-License-Identifier: Apache-2.0
// base/plugin.h: modules of quern that are opened on demand (`libquern-NAME.so`): code generators,
// the remote store, cryptography. The core links none of the libraries that they need.
#ifndef QUERN_BASE_PLUGIN_H_
#define QUERN_BASE_PLUGIN_H_

#include <limits.h>

#include "base/base.h"

// Returns the folder of this library, without the last slash; false when unknown.
bool qn__library_folder(char out[PATH_MAX]);
// Gives the file that is mapped at an address, with all links resolved; false when unknown.
bool qn__mapped_path(const void* address, char out[PATH_MAX]);
// Finds `libquern-NAME.so`: in each of `directories`, which colons separate, then beside this
// library and in its quern/ folder. A statically linked program stands for the library; of it,
// ../lib and ../lib/quern are searched as well, and at last the folder into which quern was
// configured to be installed. The word "none" in the list ends the search. False when there is
// none; `out` is then the first place that was tried.
bool qn__plugin_find(const char* directories, const char* name, char out[PATH_MAX]);
// Returns advice about a module that was left out of this build; NULL for one that was built, and
// for an unknown one.
const char* qn__plugin_remedy(const char* name);
// Opens the object at `path`, for the life of the process, and finds a symbol in it. Errors:
// UNAVAILABLE with the path and the reason.
qn_status_t qn__plugin_open_file(const char* name, const char* path, const char* symbol,
                                 void** out_symbol);
// Finds the module and opens it. Errors: UNAVAILABLE with the path that was tried and the reason.
qn_status_t qn__plugin_open(const char* directories, const char* name, const char* symbol,
                            void** out_symbol);

#endif  // QUERN_BASE_PLUGIN_H_
