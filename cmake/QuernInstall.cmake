# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where, the CMake package and the pkg-config file.
include(CMakePackageConfigHelpers)

# The component `server` is what a machine needs to serve and to share kernels, without a code generator.
install(TARGETS quern EXPORT quernTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT server NAMELINK_COMPONENT development)
install(TARGETS quern_static quern_warm quern_warm_static EXPORT quernTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/quern DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.inc")
install(FILES ${CMAKE_BINARY_DIR}/include/quern/config.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quern)
foreach(module llvm nvrtc shaderc sodium redis)
  set(component development)
  if(module MATCHES "sodium|redis")
    set(component server)
  endif()
  if(TARGET quern-${module})
    install(TARGETS quern-${module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/quern COMPONENT ${component})
  endif()
endforeach()
foreach(program quern_cli quern_serve)
  set(component development)
  if(program STREQUAL quern_serve)
    set(component server)
  endif()
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component})
  endif()
endforeach()
# The folder of documentation is laid out as the source tree, so that paths such as docs/ir.md, which help texts and errors
# name, and links between pages hold there.
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT server)
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}
  USE_SOURCE_PERMISSIONS)
if(QUERN_HAVE_SHADERC)
  quern_notices(DESTINATION ${CMAKE_INSTALL_DOCDIR}/notices COMPONENT Unspecified libshaderc-dev glslang-dev spirv-tools)
endif()
if(QUERN_HAVE_LLVM AND QUERN_LLVM_STATIC)
  quern_notices(DESTINATION ${CMAKE_INSTALL_DOCDIR}/notices COMPONENT Unspecified libllvm19 gcc-12-base)
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/quern)
install(EXPORT quernTargets NAMESPACE quern:: DESTINATION ${package_folder})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/quernConfig.cmake.in
  ${CMAKE_BINARY_DIR}/quernConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/quernConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/quernConfig.cmake ${CMAKE_BINARY_DIR}/quernConfigVersion.cmake
  DESTINATION ${package_folder})

# From the folder of the file up to the prefix, however many levels libdir has.
file(RELATIVE_PATH QUERN_PC_TO_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
configure_file(${PROJECT_SOURCE_DIR}/cmake/quern.pc.in ${CMAKE_BINARY_DIR}/quern.pc @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/cmake/quern-warm.pc.in ${CMAKE_BINARY_DIR}/quern-warm.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/quern.pc ${CMAKE_BINARY_DIR}/quern-warm.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
