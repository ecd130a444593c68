// jit/identity/nvrtc_place.h: where the CUDA compiler's library lies, and the programs beside it.
//
// One function serves the generator, which opens the file, and the engine, which reads only its
// build id to know the key (identity.h): so both speak of the same file, and a hit loads no
// compiler. Thread rule: any thread; reads the environment. Read next: nvrtc_place.c.
#ifndef QUERN_JIT_NVRTC_PLACE_H_
#define QUERN_JIT_NVRTC_PLACE_H_

#include <limits.h>

#include "base/buffer.h"

// What the driver's kernel module says of its version.
#define QN__NVIDIA_VERSION_FILE "/sys/module/nvidia/version"

// The path of libnvrtc. In this order: QUERN_NVRTC_LIBRARY (a file, and then no other one);
// CUDA_HOME and CUDA_PATH; /usr/local/cuda and /usr/local/cuda-*; the system's folders; the PyPI
// packages of $VIRTUAL_ENV, of the user and of the system's Python; LD_LIBRARY_PATH. One of a later
// major version of CUDA than the machine's driver offers comes behind all others. False when
// there is none; `tried` (may be NULL) then has the places, with commas.
bool qn__nvrtc_find(char out[PATH_MAX], qn__buffer_t* tried);
// A program of the CUDA toolkit, such as "nvdisasm": in PATH, in the toolkits' folders, then in the
// folder bin beside that of libnvrtc (the PyPI packages share one root). False when there is none.
bool qn__cuda_program_find(const char* name, char out[PATH_MAX]);

#endif  // QUERN_JIT_NVRTC_PLACE_H_
