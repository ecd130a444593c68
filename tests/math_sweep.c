// SPDX-License-Identifier: Apache-2.0
// A loop over one math operation, compiled in memory with LLVM: see math_sweep.h. Included by the
// programs that use it, because it needs LLVM.
#include "tests/math_sweep.h"

#include <elf.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jit/llvm/math.h"

struct math_kernel {
  LLVMOrcLLJITRef jit;
  math_loop_t loop;
  size_t size_bytes;
};

static _Thread_local char error_text[512];

static const char* take_error(LLVMErrorRef error) {
  char* message = LLVMGetErrorMessage(error);
  snprintf(error_text, sizeof(error_text), "%s", message);
  LLVMDisposeErrorMessage(message);
  return error_text;
}

typedef struct {
  const char* name;
  bool has_fma, has_round, has_avx512;
} cpu_t;

static cpu_t find_cpu(const char* name) {
  if (strcmp(name, "x86-64-v3") == 0) return (cpu_t){name, true, true, false};
  if (strcmp(name, "x86-64-v4") == 0) return (cpu_t){name, true, true, true};
  if (strcmp(name, "x86-64-v2") == 0) return (cpu_t){name, false, true, false};
  if (strcmp(name, "native") == 0) {
    return (cpu_t){name, __builtin_cpu_supports("fma") != 0, __builtin_cpu_supports("sse4.1") != 0,
                   __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                       __builtin_cpu_supports("avx512dq")};
  }
  return (cpu_t){name, false, false, false};
}

bool math_cpu_is_here(const char* cpu) {
  if (strcmp(cpu, "x86-64-v3") == 0)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (strcmp(cpu, "x86-64-v2") == 0) return __builtin_cpu_supports("sse4.1") != 0;
  if (strcmp(cpu, "x86-64-v4") == 0) return find_cpu("native").has_avx512;
  return true;
}

static LLVMTargetMachineRef create_machine(const char* cpu, int level) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMTargetRef target = NULL;
  char* triple = LLVMGetDefaultTargetTriple();
  char* message = NULL;
  LLVMTargetMachineRef machine = NULL;
  if (!LLVMGetTargetFromTriple(triple, &target, &message)) {
    LLVMCodeGenOptLevel optimization = level == 0 ? LLVMCodeGenLevelNone : LLVMCodeGenLevelDefault;
    bool native = strcmp(cpu, "native") == 0;
    char* host = native ? LLVMGetHostCPUName() : LLVMCreateMessage(cpu);
    char* features = native ? LLVMGetHostCPUFeatures() : LLVMCreateMessage("");
    machine = LLVMCreateTargetMachine(target, triple, host, features, optimization, LLVMRelocPIC,
                                      LLVMCodeModelSmall);
    LLVMDisposeMessage(host);
    LLVMDisposeMessage(features);
  } else {
    LLVMDisposeMessage(message);
  }
  LLVMDisposeMessage(triple);
  return machine;
}

// i32(x): rounded towards zero, within the limits of i32, and 0 for NaN.
static LLVMValueRef build_exponent(LLVMContextRef context, LLVMModuleRef module, LLVMBuilderRef b,
                                   LLVMValueRef x) {
  LLVMTypeRef types[] = {LLVMInt32TypeInContext(context), LLVMTypeOf(x)};
  if (LLVMGetTypeKind(types[1]) == LLVMVectorTypeKind) {
    types[0] = LLVMVectorType(types[0], LLVMGetVectorSize(types[1]));
  }
  static const char NAME[] = "llvm.fptosi.sat";
  unsigned id = LLVMLookupIntrinsicID(NAME, sizeof NAME - 1);
  LLVMValueRef callee = LLVMGetIntrinsicDeclaration(module, id, types, 2);
  return LLVMBuildCall2(b, LLVMGlobalGetValueType(callee), callee, &x, 1, "");
}

// void loop(a, b, c, out, count)
static bool build_loop(LLVMContextRef context, LLVMModuleRef module,
                       const math_kernel_spec_t* spec) {
  enum { PARAMETERS = 5, OUT = 3, COUNT = 4 };
  cpu_t cpu = find_cpu(spec->cpu);
  LLVMTypeRef pointer = LLVMPointerTypeInContext(context, 0);
  LLVMTypeRef i64 = LLVMInt64TypeInContext(context);
  LLVMTypeRef element =
      spec->is_f64 ? LLVMDoubleTypeInContext(context) : LLVMFloatTypeInContext(context);
  LLVMTypeRef type = spec->lanes == 1 ? element : LLVMVectorType(element, spec->lanes);
  LLVMTypeRef parameters[PARAMETERS] = {pointer, pointer, pointer, pointer, i64};
  LLVMValueRef function = LLVMAddFunction(
      module, "loop",
      LLVMFunctionType(LLVMVoidTypeInContext(context), parameters, PARAMETERS, false));
  LLVMBuilderRef b = LLVMCreateBuilderInContext(context);
  LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(context, function, "entry");
  LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(context, function, "body");
  LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(context, function, "done");
  LLVMPositionBuilderAtEnd(b, entry);
  LLVMBuildBr(b, body);
  LLVMPositionBuilderAtEnd(b, body);
  LLVMValueRef i = LLVMBuildPhi(b, i64, "i");
  LLVMValueRef args[3];
  for (unsigned k = 0; k < 3; k++) {
    LLVMValueRef address = LLVMBuildInBoundsGEP2(b, element, LLVMGetParam(function, k), &i, 1, "");
    args[k] = LLVMBuildLoad2(b, type, address, "");
    LLVMSetAlignment(args[k], spec->is_f64 ? 8 : 4);
  }
  qn__arena_t arena;
  qn__arena_init(&arena, qn_allocator_default());
  qn__llvm_math_t math = {.context = context,
                          .module = module,
                          .builder = b,
                          .arena = &arena,
                          .has_fma = cpu.has_fma,
                          .has_round = cpu.has_round,
                          .has_avx2 = cpu.has_fma,
                          .has_avx512 = cpu.has_avx512,
                          .fast = spec->fast};
  qn_dtype_t dtype = spec->is_f64 ? QN_DTYPE_F64 : QN_DTYPE_F32;
  if (spec->op == QN_OP_LDEXP) args[1] = build_exponent(context, module, b, args[1]);
  LLVMValueRef result = qn__llvm_math_emit(&math, spec->op, dtype, args);
  qn__arena_deinit(&arena);
  if (result != NULL) {
    if (LLVMTypeOf(result) != type) result = LLVMBuildUIToFP(b, result, type, "");
    LLVMValueRef address =
        LLVMBuildInBoundsGEP2(b, element, LLVMGetParam(function, OUT), &i, 1, "");
    LLVMSetAlignment(LLVMBuildStore(b, result, address), spec->is_f64 ? 8 : 4);
  }
  LLVMValueRef next = LLVMBuildAdd(b, i, LLVMConstInt(i64, spec->lanes, false), "");
  LLVMBuildCondBr(b, LLVMBuildICmp(b, LLVMIntULT, next, LLVMGetParam(function, COUNT), ""), body,
                  done);
  LLVMAddIncoming(i, (LLVMValueRef[]){LLVMConstNull(i64), next}, (LLVMBasicBlockRef[]){entry, body},
                  2);
  LLVMPositionBuilderAtEnd(b, done);
  LLVMBuildRetVoid(b);
  LLVMDisposeBuilder(b);
  return result != NULL;
}

// Every symbol that the object refers to must be its own, and every place that linking fills in a
// distance. Adds up the sizes of what will be in memory.
static bool is_closed(LLVMMemoryBufferRef object, size_t* out_size_bytes, const char** out_error) {
  const char* bytes = LLVMGetBufferStart(object);
  Elf64_Ehdr header;
  memcpy(&header, bytes, sizeof(header));
  size_t total = 0;
  for (unsigned s = 0; s < header.e_shnum; s++) {
    Elf64_Shdr section;
    memcpy(&section, bytes + header.e_shoff + s * sizeof(section), sizeof(section));
    if ((section.sh_flags & SHF_ALLOC) != 0 && section.sh_type == SHT_PROGBITS)
      total += section.sh_size;
    if (section.sh_type == SHT_RELA) {
      for (size_t at = 0; at < section.sh_size; at += sizeof(Elf64_Rela)) {
        Elf64_Rela place;
        memcpy(&place, bytes + section.sh_offset + at, sizeof(place));
        uint32_t type = (uint32_t)ELF64_R_TYPE(place.r_info);
        if (type == R_X86_64_PC32 || type == R_X86_64_PLT32 || type == R_X86_64_PC64) continue;
        snprintf(error_text, sizeof(error_text), "the object has a relocation of type %u", type);
        *out_error = error_text;
        return false;
      }
    }
    if (section.sh_type != SHT_SYMTAB) continue;
    Elf64_Shdr strings;
    memcpy(&strings, bytes + header.e_shoff + section.sh_link * sizeof(strings), sizeof(strings));
    for (size_t at = sizeof(Elf64_Sym); at < section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      memcpy(&symbol, bytes + section.sh_offset + at, sizeof(symbol));
      if (symbol.st_shndx != SHN_UNDEF) continue;
      snprintf(error_text, sizeof(error_text), "the object refers to '%s'",
               bytes + strings.sh_offset + symbol.st_name);
      *out_error = error_text;
      return false;
    }
  }
  *out_size_bytes = total;
  return true;
}

math_kernel_t* math_kernel_create(const math_kernel_spec_t* spec, const char** out_error) {
  *out_error = "";
  LLVMTargetMachineRef machine = create_machine(spec->cpu, spec->level);
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = LLVMModuleCreateWithNameInContext("math", context);
  char* message = NULL;
  LLVMMemoryBufferRef object = NULL;
  math_kernel_t* kernel = calloc(1, sizeof(*kernel));
  bool made = false;
  if (machine == NULL || kernel == NULL) {
    *out_error = "no target machine";
  } else if (!build_loop(context, module, spec)) {
    *out_error = "qn__llvm_math_emit knows no such operation";
  } else if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message)) {
    snprintf(error_text, sizeof(error_text), "%s", message);
    *out_error = error_text;
  } else {
    char* triple = LLVMGetTargetMachineTriple(machine);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
    LLVMSetTarget(module, triple);
    LLVMSetModuleDataLayout(module, layout);
    LLVMDisposeTargetData(layout);
    LLVMDisposeMessage(triple);
    LLVMErrorRef error = NULL;
    if (spec->level == 2) {
      LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
      error = LLVMRunPasses(module, "default<O2>", machine, options);
      LLVMDisposePassBuilderOptions(options);
    }
    const char* dump = getenv("MATH_DUMP");
    if (dump != NULL) {
      char* ignored = NULL;
      char name[256];
      snprintf(name, sizeof(name), "%s", dump);
      LLVMTargetMachineEmitToFile(machine, module, name, LLVMAssemblyFile, &ignored);
    }
    if (error != NULL) {
      *out_error = take_error(error);
    } else if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMObjectFile, &message,
                                                   &object)) {
      snprintf(error_text, sizeof(error_text), "%s", message);
      *out_error = error_text;
    } else if (is_closed(object, &kernel->size_bytes, out_error)) {
      made = true;
    }
  }
  LLVMDisposeMessage(message);
  if (made) {
    LLVMOrcExecutorAddress address = 0;
    LLVMErrorRef error = LLVMOrcCreateLLJIT(&kernel->jit, NULL);
    if (error == NULL) {
      error =
          LLVMOrcLLJITAddObjectFile(kernel->jit, LLVMOrcLLJITGetMainJITDylib(kernel->jit), object);
      object = NULL;
    }
    if (error == NULL) error = LLVMOrcLLJITLookup(kernel->jit, &address, "loop");
    if (error == NULL) {
      kernel->loop = (math_loop_t)(uintptr_t)address;
    } else {
      *out_error = take_error(error);
      made = false;
    }
  }
  if (object != NULL) LLVMDisposeMemoryBuffer(object);
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  if (machine != NULL) LLVMDisposeTargetMachine(machine);
  if (made) return kernel;
  math_kernel_free(kernel);
  return NULL;
}

math_loop_t math_kernel_loop(const math_kernel_t* kernel) {
  return kernel->loop;
}

size_t math_kernel_size_bytes(const math_kernel_t* kernel) {
  return kernel->size_bytes;
}

void math_kernel_free(math_kernel_t* kernel) {
  if (kernel == NULL) return;
  if (kernel->jit != NULL) LLVMConsumeError(LLVMOrcDisposeLLJIT(kernel->jit));
  free(kernel);
}
