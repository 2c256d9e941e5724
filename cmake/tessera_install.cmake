# Defines which files `cmake --install` puts under the prefix, with the package that
# find_package(Tessera) reads:
#
#   bin/tessera-coordinator  bin/tessera-worker
#   include/tessera/client/*.h, of which users include tessera.h, and the headers that they need
#   lib/libtessera_*.a
#   lib/cmake/Tessera/TesseraConfig.cmake with the targets Tessera::client and Tessera::embedded
#
# Included last, when every target is known.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(NOT TARGET tessera_client_remote OR NOT TARGET tessera_sdk)
  return()  # Only a part of the tree is built, which makes no package.
endif()

# Sets `out` to the headers ARGN and all headers that they include, as paths relative to the repository.
function(_tessera_headers_of out)
  set(found)
  set(left ${ARGN})
  while(left)
    list(POP_FRONT left next)
    if(next IN_LIST found OR NOT EXISTS ${PROJECT_SOURCE_DIR}/${next})
      continue()
    endif()
    list(APPEND found ${next})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${next} lines REGEX "^#include \"")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"([^\"]*)\".*" "\\1" included "${line}")
      list(APPEND left ${included})
    endforeach()
  endwhile()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# The names of the two targets that users link.
set_target_properties(tessera_client_remote PROPERTIES EXPORT_NAME client)
set_target_properties(tessera_sdk PROPERTIES EXPORT_NAME embedded)

_tessera_libraries_of(tessera_client_remote client_libraries)
_tessera_libraries_of(tessera_sdk embedded_libraries)
# The libraries of the client belong to the first export. tessera_sdk also links
# tessera_client_remote, but not by its DEPS, so that it is not in the list.
list(REMOVE_ITEM embedded_libraries ${client_libraries})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
install(TARGETS ${client_libraries} EXPORT TesseraClient
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera)
install(TARGETS ${embedded_libraries} EXPORT TesseraEmbedded
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera)
foreach(set Client Embedded)
  install(EXPORT Tessera${set} FILE Tessera${set}Targets.cmake NAMESPACE Tessera::
    DESTINATION ${package_dir})
endforeach()
set(programs tessera_coordinator_bin tessera_worker_bin tessera_cli_bin)
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TESSERA_SHARED_LIBS)
  # Install the shared libraries that the programs load and that users do not link.
  set(program_libraries tessera_proto)
  foreach(program IN LISTS programs)
    _tessera_libraries_of(${program} libraries)
    list(APPEND program_libraries ${libraries})
  endforeach()
  list(REMOVE_DUPLICATES program_libraries)
  list(REMOVE_ITEM program_libraries ${client_libraries} ${embedded_libraries} ${programs})
  foreach(library IN LISTS program_libraries)
    get_target_property(type ${library} TYPE)
    if(type STREQUAL SHARED_LIBRARY)
      install(TARGETS ${library} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    endif()
  endforeach()
endif()
# The shells look for completions in these folders.
install(FILES ${PROJECT_BINARY_DIR}/completions/tessera
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${PROJECT_BINARY_DIR}/completions/_tessera
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${PROJECT_BINARY_DIR}/completions/tessera.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# All headers in client/ itself are public. Some hold one line, which includes the path that the header has now.
file(GLOB public_headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/client/*.h)
_tessera_headers_of(headers ${public_headers})
foreach(header IN LISTS headers)
  get_filename_component(dir ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header}
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera/${dir})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
endforeach()

configure_package_config_file(cmake/TesseraConfig.cmake.in TesseraConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(TesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/TesseraConfig.cmake
  ${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindTesseraDnnl.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindTesseraLlvm.cmake
  DESTINATION ${package_dir})

# ---- Targets that images and the release are staged from (scripts/stage, scripts/release). ----

# The SDK as one shared library, for users who do not have our archives and their dependencies. It
# contains all our archives and the parts of other libraries that they need.
add_library(tessera_shared SHARED EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/cmake/empty.cc)
set(archives)
foreach(library IN LISTS client_libraries embedded_libraries)
  get_target_property(type ${library} TYPE)
  if(type STREQUAL STATIC_LIBRARY)
    list(APPEND archives $<TARGET_FILE:${library}>)
  endif()
endforeach()
target_link_options(tessera_shared PRIVATE
  LINKER:--whole-archive ${archives} LINKER:--no-whole-archive)
target_link_libraries(tessera_shared PRIVATE tessera_sdk tessera_client_remote)
set_target_properties(tessera_shared PROPERTIES OUTPUT_NAME tessera SOVERSION 0
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

# The programs in the container images, and the programs of the release, which has a few more.
set(image_programs tessera_coordinator_bin tessera_worker_bin tessera_cuda)
if(TARGET tessera_cli_bin)
  list(APPEND image_programs tessera_cli_bin)
endif()
add_custom_target(image_programs DEPENDS ${image_programs})
add_custom_target(release_programs DEPENDS ${image_programs} tessera_shared)
if(TARGET tessera_example_mlp_digits)
  add_dependencies(release_programs tessera_example_mlp_digits)
endif()
