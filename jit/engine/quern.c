// SPDX-License-Identifier: Apache-2.0
// jit/engine/quern.c: version and build information.
#include "quern/quern.h"

#if defined(__clang__)
#define COMPILER __VERSION__  // begins with its name
#else
#define COMPILER "gcc " __VERSION__
#endif

const char* qn_version(void) {
  return QN_VERSION_STRING;
}

const char* qn_build_info(void) {
  return "quern " QN_VERSION_STRING " (compiled by " COMPILER
         "), generators: interp, null"
#if QN_HAVE_LLVM
         ", llvm (LLVM " QN_LLVM_VERSION
         ")"
#endif
#if QN_HAVE_CUDA
         ", nvrtc"
#endif
#if QN_HAVE_SHADERC
         ", shaderc"
#endif
      ;
}
