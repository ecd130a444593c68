# SPDX-License-Identifier: Apache-2.0
# Finds LLVM 19 and its C headers (Debian: llvm-19-dev). Sets QUERN_HAVE_LLVM, QUERN_LLVM_INCLUDE,
# QUERN_LLVM_LIBRARIES (what the generator links), QUERN_LLVM_LIBRARY (the shared library, whose
# build id is part of every key; none with QUERN_LLVM_STATIC, where the generator's build id covers
# LLVM too) and QUERN_LLVM_VERSION.

# Sets QUERN_LLVM_LIBRARIES to the archives of LLVM's parts that the generator uses, and to what they
# need; QUERN_HAVE_LLVM is ON if all of them are there.
function(quern_static_llvm)
  execute_process(COMMAND ${QUERN_LLVM_CONFIG} --link-static --libfiles x86 aarch64 orcjit passes
    OUTPUT_VARIABLE archives OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE runtime
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  # LLVM's archives need these two, of which Debian has the links for linkers in packages of their own.
  find_library(QUERN_ZLIB_LIBRARY NAMES z libz.so.1)
  find_library(QUERN_ZSTD_LIBRARY NAMES zstd libzstd.so.1)
  if(failed OR NOT IS_ABSOLUTE "${runtime}" OR NOT QUERN_ZLIB_LIBRARY OR NOT QUERN_ZSTD_LIBRARY)
    return()
  endif()
  separate_arguments(archives)
  set(QUERN_LLVM_LIBRARIES ${archives} ${runtime} -Wl,--as-needed ${QUERN_ZLIB_LIBRARY} ${QUERN_ZSTD_LIBRARY} rt ${CMAKE_DL_LIBS} m
    -Wl,--no-as-needed -Wl,--gc-sections PARENT_SCOPE)
  set(QUERN_HAVE_LLVM ON PARENT_SCOPE)
endfunction()

set(QUERN_HAVE_LLVM OFF)
if(NOT QUERN_LLVM STREQUAL "OFF")
  find_program(QUERN_LLVM_CONFIG NAMES llvm-config-19)
  if(QUERN_LLVM_CONFIG)
    execute_process(COMMAND ${QUERN_LLVM_CONFIG} --version OUTPUT_VARIABLE QUERN_LLVM_VERSION
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    execute_process(COMMAND ${QUERN_LLVM_CONFIG} --includedir OUTPUT_VARIABLE QUERN_LLVM_INCLUDE
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    execute_process(COMMAND ${QUERN_LLVM_CONFIG} --libdir OUTPUT_VARIABLE QUERN_LLVM_LIBDIR
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(QUERN_LLVM_STATIC)
      unset(QUERN_LLVM_LIBRARY CACHE)
      quern_static_llvm()
    else()
      find_file(QUERN_LLVM_LIBRARY NAMES libLLVM.so.19.1 libLLVM-19.so.1 libLLVM-19.so
                PATHS ${QUERN_LLVM_LIBDIR} NO_DEFAULT_PATH)
      if(QUERN_LLVM_LIBRARY)
        set(QUERN_HAVE_LLVM ON)
        set(QUERN_LLVM_LIBRARIES ${QUERN_LLVM_LIBRARY})
      endif()
    endif()
  endif()
  if(QUERN_LLVM STREQUAL "ON" AND NOT QUERN_HAVE_LLVM)
    if(QUERN_LLVM_STATIC)
      set(missing "llvm-config-19, LLVM's archives, libstdc++.a, libz or libzstd were")
    else()
      set(missing "llvm-config-19 or libLLVM was")
    endif()
    message(FATAL_ERROR "QUERN_LLVM=ON, but ${missing} not found (llvm-19-dev)")
  endif()
endif()
set(QN_HAVE_LLVM ${QUERN_HAVE_LLVM})
message(STATUS "quern: LLVM code generator: ${QUERN_HAVE_LLVM} ${QUERN_LLVM_VERSION}")
