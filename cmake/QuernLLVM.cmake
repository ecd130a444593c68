# SPDX-License-Identifier: Apache-2.0
# Finds LLVM 19's shared library and C headers (Debian: llvm-19-dev). Sets QUERN_HAVE_LLVM,
# QUERN_LLVM_INCLUDE, QUERN_LLVM_LIBRARY (the file that the generator links and whose build id is
# part of every key) and QUERN_LLVM_VERSION.
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
    find_file(QUERN_LLVM_LIBRARY NAMES libLLVM.so.19.1 libLLVM-19.so.1 libLLVM-19.so
              PATHS ${QUERN_LLVM_LIBDIR} NO_DEFAULT_PATH)
    if(QUERN_LLVM_LIBRARY)
      set(QUERN_HAVE_LLVM ON)
    endif()
  endif()
  if(QUERN_LLVM STREQUAL "ON" AND NOT QUERN_HAVE_LLVM)
    message(FATAL_ERROR "QUERN_LLVM=ON, but llvm-config-19 or libLLVM was not found (llvm-19-dev)")
  endif()
endif()
set(QN_HAVE_LLVM ${QUERN_HAVE_LLVM})
message(STATUS "quern: LLVM code generator: ${QUERN_HAVE_LLVM} ${QUERN_LLVM_VERSION}")
