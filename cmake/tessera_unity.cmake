# Compiles several source files as one translation unit, where TESSERA_UNITY is on: most of the time that a file
# takes goes to headers and templates, which the files of a group share. unity_groups.py decides which files may
# share a translation unit, from the names that they use. ninja asks it again when a source changes, and configures
# again if the groups have changed.
#
# The preset dev-clang compiles every file by itself, and so sees whether each includes what it uses.

# Lets `name` have groups.
function(_tessera_unity name)
  if(TESSERA_UNITY)
    set_property(GLOBAL APPEND PROPERTY TESSERA_UNITY_TARGETS ${name})
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    # gcc takes a class that is defined in an included file for one that other translation units see.
    target_compile_options(${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# Decides the groups. Called last, when every target is known.
function(tessera_make_unity_groups)
  if(NOT TESSERA_UNITY)
    return()
  endif()
  set(listed ${PROJECT_BINARY_DIR}/unity_sources.txt)
  set(groups ${PROJECT_BINARY_DIR}/unity_groups.cmake)
  set(script ${PROJECT_SOURCE_DIR}/cmake/unity_groups.py)
  set(command /usr/bin/python3 -B ${script} ${PROJECT_SOURCE_DIR} ${listed} ${groups} ${groups}.d)
  get_property(targets GLOBAL PROPERTY TESSERA_UNITY_TARGETS)
  set(rows "")
  foreach(target IN LISTS targets)
    get_target_property(folder ${target} SOURCE_DIR)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cc$")
    list(TRANSFORM sources PREPEND ${folder}/ REGEX "^[^/]")
    string(APPEND rows "${target};${folder};${sources}\n")
  endforeach()
  file(CONFIGURE OUTPUT ${listed} CONTENT "${rows}" @ONLY)
  execute_process(COMMAND ${command} COMMAND_ERROR_IS_FATAL ANY)
  include(${groups})
  # ninja makes what a configuration depends on before it decides whether to configure again.
  add_custom_command(OUTPUT ${groups} COMMAND ${command} DEPENDS ${script} ${listed} DEPFILE ${groups}.d
    COMMENT "Grouping source files" VERBATIM)
  add_custom_target(tessera_unity_groups DEPENDS ${groups})
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${groups})
endfunction()
