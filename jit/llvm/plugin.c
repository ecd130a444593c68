// SPDX-License-Identifier: Apache-2.0
// jit/llvm/plugin.c: what libquern-llvm.so exports.
#include "jit/identity/plugin.h"
#include "jit/llvm/compile.h"

QN__CODEGEN_PLUGIN(llvm);
