// jit/shaderc/plugin.c: what libquern-shaderc.so exports.
#include "jit/identity/plugin.h"
#include "jit/shaderc/compile.h"

QN__CODEGEN_PLUGIN(shaderc);
