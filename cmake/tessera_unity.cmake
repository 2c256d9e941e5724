# Compiles several source files as one translation unit if TESSERA_UNITY is on. Headers and templates take most of the
# time of compiling a file, and the files of a group share them. unity_groups.py decides which files may share a
# translation unit, from the names that they use. ninja runs it again when a source changes, and configures again if
# the groups have changed.
#
# The preset dev-gcc compiles every file by itself, so it finds files that do not include all the headers they use.

# Allows groups in the target `name`.
function(_tessera_unity name)
  if(TESSERA_UNITY)
    set_property(GLOBAL APPEND PROPERTY TESSERA_UNITY_TARGETS ${name})
  endif()
endfunction()

# Decides the groups. Called last, when every target is known. CMake's own UNITY_BUILD is not used, because it includes
# the sources by their absolute paths: a compiler cache would not recognise them in a checkout in another folder.
function(tessera_make_unity_groups)
  if(NOT TESSERA_UNITY)
    return()
  endif()
  set(listed ${PROJECT_BINARY_DIR}/unity_sources.txt)
  set(out ${PROJECT_BINARY_DIR}/unity)
  set(groups ${out}/groups.cmake)
  set(script ${PROJECT_SOURCE_DIR}/cmake/unity_groups.py)
  set(command /usr/bin/python3 -B ${script} ${PROJECT_SOURCE_DIR} ${listed} ${out})
  get_property(targets GLOBAL PROPERTY TESSERA_UNITY_TARGETS)
  set(rows "")
  foreach(target IN LISTS targets)
    get_target_property(folder ${target} SOURCE_DIR)
    _tessera_sources_of(${target} sources)
    _tessera_shared_sources(${folder} shared)
    set(row "")
    foreach(source IN LISTS sources)
      _tessera_has_own_options(${source} ${folder} own)
      if(NOT own AND NOT source IN_LIST shared)
        string(APPEND row ";${source}")
      endif()
    endforeach()
    string(APPEND rows "${target};${folder}${row}\n")
  endforeach()
  file(CONFIGURE OUTPUT ${listed} CONTENT "${rows}" @ONLY)
  execute_process(COMMAND ${command} COMMAND_ERROR_IS_FATAL ANY)
  include(${groups})
  # ninja builds the files that the configuration depends on before it decides whether to configure again.
  add_custom_command(OUTPUT ${groups} COMMAND ${command} DEPENDS ${script} ${listed} DEPFILE ${out}/groups.d
    COMMENT "Grouping source files" VERBATIM)
  add_custom_target(tessera_unity_groups DEPENDS ${groups})
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${groups})
endfunction()

# Sets `out` to whether a file has compile options that its target does not have. A file with its own options is
# compiled by itself.
function(_tessera_has_own_options source folder out)
  set(${out} FALSE PARENT_SCOPE)
  foreach(property COMPILE_OPTIONS COMPILE_DEFINITIONS SKIP_PRECOMPILE_HEADERS)
    get_source_file_property(value ${source} DIRECTORY ${folder} ${property})
    if(value)
      set(${out} TRUE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# Sets `out` to the absolute paths of the .cc files of a target.
function(_tessera_sources_of target out)
  get_target_property(folder ${target} SOURCE_DIR)
  get_target_property(sources ${target} SOURCES)
  set(found "")
  foreach(source IN LISTS sources)
    if(source MATCHES "\\.cc$")
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} NORMALIZE)
      list(APPEND found ${source})
    endif()
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# Sets `out` to the sources that belong to several targets of a folder. CMake stores for a whole folder whether a file
# is compiled by itself, so these files are compiled by themselves for all targets.
function(_tessera_shared_sources folder out)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  set(seen "")
  set(found "")
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(NOT type STREQUAL UTILITY AND NOT type STREQUAL INTERFACE_LIBRARY)
      _tessera_sources_of(${target} sources)
      foreach(source IN LISTS sources)
        if(source IN_LIST seen)
          list(APPEND found ${source})
        endif()
      endforeach()
      list(APPEND seen ${sources})
    endif()
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()
