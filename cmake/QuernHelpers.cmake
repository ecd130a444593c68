# The few functions that CMakeLists.txt is written in.

# Warnings and sanitizers for our own targets.
function(quern_flags target)
  target_compile_definitions(${target} PRIVATE _POSIX_C_SOURCE=200809L)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
    -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wcast-qual -Wformat=2)
  if(QUERN_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(QUERN_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${QUERN_SANITIZE} -fno-omit-frame-pointer
      -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${QUERN_SANITIZE})
  endif()
endfunction()

# quern_component(NAME FOLDER... DEPS LIB...): static library qn_NAME from FOLDER/*.c.
function(quern_component name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  set(sources)
  foreach(folder ${ARG_UNPARSED_ARGUMENTS})
    file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.c)
    list(APPEND sources ${found})
  endforeach()
  if(NOT sources)
    return()
  endif()
  add_library(qn_${name} STATIC ${sources})
  target_include_directories(qn_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include
    ${CMAKE_BINARY_DIR}/include PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(qn_${name} PUBLIC ${ARG_DEPS})
  quern_flags(qn_${name})
  set_property(GLOBAL APPEND PROPERTY QUERN_COMPONENTS qn_${name})
endfunction()

# libquern.so and libquern.a from all components.
function(quern_library)
  get_property(components GLOBAL PROPERTY QUERN_COMPONENTS)
  set(objects)
  foreach(component ${components})
    list(APPEND objects $<TARGET_OBJECTS:${component}>)
  endforeach()
  foreach(kind SHARED STATIC)
    if(kind STREQUAL "SHARED")
      set(target quern)
    else()
      set(target quern_static)
    endif()
    add_library(${target} ${kind} ${objects})
    target_include_directories(${target} PUBLIC
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
      $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(${target} PRIVATE PkgConfig::XXHASH PkgConfig::JANSSON Threads::Threads
      ${CMAKE_DL_LIBS} m)
    quern_flags(${target})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME quern LINKER_LANGUAGE C)
  endforeach()
  set(script ${PROJECT_SOURCE_DIR}/cmake/quern.map)
  target_link_options(quern PRIVATE -Wl,--version-script=${script} -Wl,--build-id=sha1
    -Wl,--no-undefined)
  set_target_properties(quern PROPERTIES LINK_DEPENDS ${script} VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  if(QUERN_SANITIZE)
    # A sanitized shared library leaves the runtime to the program.
    set_target_properties(quern PROPERTIES LINK_OPTIONS
      "-Wl,--version-script=${script};-Wl,--build-id=sha1;-fsanitize=${QUERN_SANITIZE}")
  endif()
  add_library(quern::quern ALIAS quern)
  add_library(quern::static ALIAS quern_static)
endfunction()

# quern_generator(NAME FOLDER INCLUDES DIR... DEPS LIB...): a code generator, which is a loadable
# module with its own copy of base, ir and target.
function(quern_generator name folder)
  cmake_parse_arguments(ARG "" "" "INCLUDES;DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.c)
  if(NOT sources)
    return()
  endif()
  # The sources as a library too, so that tests can reach the inner functions.
  add_library(qn_${name} STATIC ${sources})
  target_include_directories(qn_${name} SYSTEM PUBLIC ${ARG_INCLUDES})
  target_include_directories(qn_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(qn_${name} PUBLIC ${ARG_DEPS} qn_ir qn_target qn_base m)
  quern_flags(qn_${name})
  add_library(quern-${name} MODULE $<TARGET_OBJECTS:qn_${name}>)
  target_link_libraries(quern-${name} PRIVATE ${ARG_DEPS} qn_ir qn_target qn_base m)
  quern_flags(quern-${name})
  set_target_properties(quern-${name} PROPERTIES LINKER_LANGUAGE C)
  target_link_options(quern-${name} PRIVATE
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/generator.map -Wl,--build-id=sha1)
  if(NOT QUERN_SANITIZE)
    target_link_options(quern-${name} PRIVATE -Wl,--no-undefined)
  endif()
endfunction()

# What the GPU generators share: a static library, part of each of them and not of libquern.
function(quern_gpu_codegen)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/jit/gpu/*.c)
  add_library(qn_gpu_codegen STATIC ${sources})
  target_include_directories(qn_gpu_codegen PUBLIC ${PROJECT_SOURCE_DIR}/include
    ${CMAKE_BINARY_DIR}/include PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(qn_gpu_codegen PUBLIC qn_gpu qn_ir qn_target qn_base m)
  quern_flags(qn_gpu_codegen)
endfunction()

# A module of the cache that is opened on demand, with its own copy of base.
function(quern_plugin name folder library)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.c)
  if(NOT sources)
    return()
  endif()
  # The sources as a library too, so that tests can reach the inner functions.
  add_library(qn_${name} STATIC ${sources})
  target_include_directories(qn_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(qn_${name} PUBLIC qn_base ${library})
  quern_flags(qn_${name})
  add_library(quern-${name} MODULE $<TARGET_OBJECTS:qn_${name}>)
  target_link_libraries(quern-${name} PRIVATE qn_base ${library})
  quern_flags(quern-${name})
  set_target_properties(quern-${name} PROPERTIES LINKER_LANGUAGE C)
  target_link_options(quern-${name} PRIVATE
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/generator.map -Wl,--build-id=sha1)
  if(NOT QUERN_SANITIZE)
    target_link_options(quern-${name} PRIVATE -Wl,--no-undefined)
  endif()
endfunction()

# The conformance suite: on the public headers alone, for the command and for programs of others.
function(quern_conformance)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/conformance/*.c)
  add_library(qn_conformance STATIC ${sources})
  target_include_directories(qn_conformance PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(qn_conformance PUBLIC quern::quern Threads::Threads m)
  quern_flags(qn_conformance)
endfunction()

function(quern_command)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/*.c)
  if(sources)
    add_executable(quern_cli ${sources})
    target_include_directories(quern_cli PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(quern_cli PRIVATE qn_conformance quern::quern PkgConfig::JANSSON m)
    quern_flags(quern_cli)
    set_target_properties(quern_cli PROPERTIES OUTPUT_NAME quern)
  endif()
endfunction()

# examples/*.c are a program each; examples/embed is one program of several files.
function(quern_examples)
  file(GLOB programs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.c)
  foreach(source ${programs})
    get_filename_component(name ${source} NAME_WE)
    add_executable(example_${name} ${source})
    target_link_libraries(example_${name} PRIVATE quern::quern m)
    quern_flags(example_${name})
  endforeach()
  # A plugin: devices, generators and target kinds of others in one shared object.
  file(GLOB plugins CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/plugin/*.c)
  foreach(source ${plugins})
    get_filename_component(name ${source} NAME_WE)
    add_library(example_plugin_${name} MODULE ${source})
    target_link_libraries(example_plugin_${name} PRIVATE quern::quern)
    quern_flags(example_plugin_${name})
    set_target_properties(example_plugin_${name} PROPERTIES OUTPUT_NAME ${name})
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/embed/*.c)
  if(sources)
    add_executable(embed ${sources} ${PROJECT_SOURCE_DIR}/tools/npy.c
      ${PROJECT_SOURCE_DIR}/tools/file.c)
    target_include_directories(embed PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(embed PRIVATE quern::quern PkgConfig::JANSSON m)
    quern_flags(embed)
  endif()
endfunction()

# bench/bench_*.c are a program each; they may reach inside. One that says "links: llvm" or "links:
# shaderc" reaches into that generator, and is not built without it.
function(quern_benchmarks)
  file(GLOB programs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/bench_*.c)
  foreach(source ${programs})
    get_filename_component(name ${source} NAME_WE)
    file(STRINGS ${source} links_llvm REGEX "links: llvm")
    if(links_llvm AND NOT QUERN_HAVE_LLVM)
      continue()
    endif()
    file(STRINGS ${source} links_shaderc REGEX "links: shaderc")
    if(links_shaderc AND NOT QUERN_HAVE_SHADERC)
      continue()
    endif()
    add_executable(${name} ${source} ${PROJECT_SOURCE_DIR}/bench/harness.c)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
    target_compile_definitions(${name} PRIVATE QN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    target_link_libraries(${name} PRIVATE quern_static PkgConfig::XXHASH PkgConfig::JANSSON
      Threads::Threads ${CMAKE_DL_LIBS} m)
    if(links_llvm)
      target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/bench/stages.c)
      target_link_libraries(${name} PRIVATE qn_llvm)
    endif()
    if(links_shaderc)
      target_link_libraries(${name} PRIVATE qn_shaderc)
    endif()
    quern_flags(${name})
  endforeach()
endfunction()
