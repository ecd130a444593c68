// jit/quern.c: version and build information.
#include "quern/quern.h"

const char* qn_version(void) {
  return QN_VERSION_STRING;
}

const char* qn_build_info(void) {
  return "quern " QN_VERSION_STRING " (compiled by " __VERSION__
         "), generators: interp, null"
#if QN_HAVE_LLVM
         ", llvm (LLVM " QN_LLVM_VERSION ")"
#endif
      ;
}
