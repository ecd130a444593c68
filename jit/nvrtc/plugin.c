// jit/nvrtc/plugin.c: what libquern-nvrtc.so exports.
#include "jit/identity/plugin.h"
#include "jit/nvrtc/compile.h"

QN__CODEGEN_PLUGIN(nvrtc);
