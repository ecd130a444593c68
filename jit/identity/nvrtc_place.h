// SPDX-License-Identifier: Apache-2.0
// jit/identity/nvrtc_place.h: finds the CUDA compiler's library and the toolkit's programs.
//
// The generator opens the file; the engine only reads its build id, for the key (identity.h). Both
// use this function, so they use the same file. Reads the environment.
#ifndef QUERN_JIT_NVRTC_PLACE_H_
#define QUERN_JIT_NVRTC_PLACE_H_

#include <limits.h>

#include "base/buffer.h"

// The file with the version of the driver's kernel module.
#define QN__NVIDIA_VERSION_FILE "/sys/module/nvidia/version"

// Finds the path of libnvrtc. If QUERN_NVRTC_LIBRARY is set, only that file is used. Otherwise the
// order is:
//  1. CUDA_HOME and CUDA_PATH
//  2. /usr/local/cuda and /usr/local/cuda-*
//  3. the system's library folders
//  4. the PyPI packages of $VIRTUAL_ENV, of the user and of the system's Python
//  5. LD_LIBRARY_PATH
// A library of a later major version than the machine's driver supports is used only if there is no
// other. False if there is none; `tried` (may be NULL) then has the places, separated by commas.
bool qn__nvrtc_find(char out[PATH_MAX], qn__buffer_t* tried);
// Finds a program of the CUDA toolkit, such as "nvdisasm": in PATH, in the toolkits' folders, then
// in the folder bin beside that of libnvrtc (the PyPI packages share one root). False if there is
// none.
bool qn__cuda_program_find(const char* name, char out[PATH_MAX]);

#endif  // QUERN_JIT_NVRTC_PLACE_H_
