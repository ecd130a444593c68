// SPDX-License-Identifier: Apache-2.0
// jit/shaderc/plugin.c: the entry point of libquern-shaderc.so.
#include "jit/identity/plugin.h"
#include "jit/shaderc/compile.h"

QN__CODEGEN_PLUGIN(shaderc);
