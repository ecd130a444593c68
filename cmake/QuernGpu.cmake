# SPDX-License-Identifier: Apache-2.0
# What there is for GPUs. CUDA needs nothing at build time. The Vulkan device needs the Khronos headers
# (libvulkan-dev), its generator shaderc and the archives that it is made of (libshaderc-dev,
# glslang-dev, spirv-tools); Debian 12's libshaderc.so.1 misses symbols, so the archives it is. Sets
# QUERN_HAVE_CUDA, QUERN_HAVE_VULKAN, QUERN_HAVE_SHADERC, QUERN_SHADERC_LIBRARIES, QUERN_GPU_DEVICES.
set(QUERN_HAVE_CUDA ON)
if(QUERN_CUDA STREQUAL "OFF")
  set(QUERN_HAVE_CUDA OFF)
endif()
set(QUERN_HAVE_VULKAN OFF)
set(QUERN_HAVE_SHADERC OFF)
if(NOT QUERN_VULKAN STREQUAL "OFF")
  find_path(QUERN_VULKAN_INCLUDE vulkan/vulkan_core.h)
  find_path(QUERN_SHADERC_INCLUDE shaderc/shaderc.h)
  find_path(QUERN_SPIRV_TOOLS_INCLUDE spirv-tools/libspirv.h)
  find_library(QUERN_SHADERC_ARCHIVE NAMES libshaderc_combined.a)
  set(QUERN_SHADERC_PARTS)
  set(QUERN_SHADERC_IS_WHOLE ON)
  foreach(part glslang MachineIndependent GenericCodeGen OSDependent OGLCompiler HLSL SPIRV
          SPIRV-Tools-opt SPIRV-Tools)
    find_library(QUERN_ARCHIVE_${part} NAMES lib${part}.a)
    if(NOT QUERN_ARCHIVE_${part})
      set(QUERN_SHADERC_IS_WHOLE OFF)
    endif()
    list(APPEND QUERN_SHADERC_PARTS ${QUERN_ARCHIVE_${part}})
  endforeach()
  if(QUERN_VULKAN_INCLUDE)
    set(QUERN_HAVE_VULKAN ON)
  endif()
  if(QUERN_SHADERC_INCLUDE AND QUERN_SPIRV_TOOLS_INCLUDE AND QUERN_SHADERC_ARCHIVE AND
     QUERN_SHADERC_IS_WHOLE)
    set(QUERN_HAVE_SHADERC ON)
    set(QUERN_SHADERC_LIBRARIES ${QUERN_SHADERC_ARCHIVE} -Wl,--start-group ${QUERN_SHADERC_PARTS}
      -Wl,--end-group stdc++ pthread)
  endif()
  if(QUERN_VULKAN STREQUAL "ON" AND NOT (QUERN_HAVE_VULKAN AND QUERN_HAVE_SHADERC))
    message(FATAL_ERROR "QUERN_VULKAN=ON, but the Vulkan headers or shaderc's archives were not found "
      "(libvulkan-dev, libshaderc-dev, glslang-dev, spirv-tools)")
  endif()
endif()
set(QUERN_GPU_DEVICES)
if(QUERN_HAVE_CUDA)
  list(APPEND QUERN_GPU_DEVICES devices/cuda)
endif()
if(QUERN_HAVE_VULKAN)
  list(APPEND QUERN_GPU_DEVICES devices/vulkan)
endif()
set(QN_HAVE_CUDA ${QUERN_HAVE_CUDA})
set(QN_HAVE_VULKAN ${QUERN_HAVE_VULKAN})
set(QN_HAVE_SHADERC ${QUERN_HAVE_SHADERC})
message(STATUS "quern: CUDA: ${QUERN_HAVE_CUDA}; Vulkan device: ${QUERN_HAVE_VULKAN}; "
  "shaderc generator: ${QUERN_HAVE_SHADERC}")
