// SPDX-License-Identifier: Apache-2.0
// jit/nvrtc/plugin.c: the entry point of libquern-nvrtc.so.
#include "jit/identity/plugin.h"
#include "jit/nvrtc/compile.h"

QN__CODEGEN_PLUGIN(nvrtc);
