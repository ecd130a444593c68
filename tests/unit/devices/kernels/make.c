// tests/unit/devices/kernels/make.c: turns the kernels of this folder into kernels.inc, so that the
// tests of the Vulkan device need no compiler. Not part of the build; how to run it:
//   cd tests/unit/devices/kernels && cc make.c -lshaderc_combined -lglslang -lMachineIndependent \
//     -lGenericCodeGen -lOSDependent -lOGLCompiler -lHLSL -lSPIRV -lSPIRV-Tools-opt -lSPIRV-Tools \
//     -lstdc++ -lm -lpthread -o /tmp/make && /tmp/make *.comp > kernels.inc
#include <shaderc/shaderc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  shaderc_compiler_t compiler = shaderc_compiler_initialize();
  shaderc_compile_options_t options = shaderc_compile_options_initialize();
  shaderc_compile_options_set_target_env(options, shaderc_target_env_vulkan,
                                         shaderc_env_version_vulkan_1_1);
  shaderc_compile_options_set_optimization_level(options, shaderc_optimization_level_performance);
  printf("// SPIR-V of the kernels *.comp beside, made by make.c.\n// clang-format off\n");
  for (int i = 1; i < argc; i++) {
    static char text[1 << 16];
    FILE* file = fopen(argv[i], "rb");
    size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    if (file) fclose(file);
    shaderc_compilation_result_t result = shaderc_compile_into_spv(
        compiler, text, size, shaderc_compute_shader, argv[i], "main", options);
    if (shaderc_result_get_compilation_status(result) != shaderc_compilation_status_success) {
      fprintf(stderr, "%s", shaderc_result_get_error_message(result));
      return 1;
    }
    size_t words = shaderc_result_get_length(result) / 4;
    const unsigned char* bytes = (const unsigned char*)shaderc_result_get_bytes(result);
    printf("static const uint32_t spirv_%.*s[] = {", (int)(strchr(argv[i], '.') - argv[i]),
           argv[i]);
    for (size_t w = 0; w < words; w++) {
      unsigned word;
      memcpy(&word, bytes + 4 * w, 4);
      printf("%s0x%x,", w % 12 == 0 ? "\n  " : " ", word);
    }
    printf("\n};\n");
    shaderc_result_release(result);
  }
  printf("// clang-format on\n");
  return 0;
}
