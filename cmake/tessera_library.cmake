# Functions that define Tessera's targets, and the table that says which folder may depend on which.
#
#   tessera_library(NAME tessera_ir SRCS a.cc DEPS tessera_base absl::span [HDRS a.h])
#   tessera_test(NAME a_test SRCS a_test.cc DEPS tessera_ir [TIMEOUT 300] [LABELS slow] [ALONE [OWN_MAIN]])
#   tessera_binary(NAME tessera_server SRCS main.cc DEPS ... [OUTPUT tessera-server])
#   tessera_fuzz(NAME parse_fuzz SRCS parse_fuzz.cc DEPS tessera_ir CORPUS tests/fuzz/parse)
#
# A target belongs to the folder whose CMakeLists.txt defines it. DEPS may name targets that are
# defined later. tessera_check_layers() is called last and refuses dependencies that the table forbids.
# DEPS are public. Files are relative to the folder, as usual.
#
# The tests of a folder share one executable, FOLDER_tests, but each test is run by itself. A test that is ALONE has an
# executable of its own. It needs one if it has its own main() (OWN_MAIN) or compile definitions, or if other tests start
# it.

# The layer of each top folder. A folder may use its own targets and those of lower layers. Folders
# of the same layer never use each other.
set(TESSERA_LAYER_base 0)
set(TESSERA_LAYER_proto 0)
set(TESSERA_LAYER_ir 1)
set(TESSERA_LAYER_client 2)
set(TESSERA_LAYER_server 2)
set(TESSERA_LAYER_worker 2)
set(TESSERA_LAYER_embed 3)
set(TESSERA_LAYER_tests 4)
set(TESSERA_LAYER_bench 5)
set(TESSERA_LAYER_examples 4)

# The only folders that may use generated protobuf and gRPC types. tests/tidy_test checks the includes.
set(TESSERA_PROTO_USERS
    "^(proto|ir/serial|client/remote|client/pjrt|server/jail|server/rows|server/rpc|worker/rpc|bench)(/|$)")

define_property(GLOBAL PROPERTY TESSERA_EDGES BRIEF_DOCS "from-folder|from-target|to-target rows")

function(_tessera_folder out)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(${out} ${folder} PARENT_SCOPE)
endfunction()

# Sets the options that all our targets have in common. Third-party headers are SYSTEM, so that they give no warnings.
function(_tessera_setup name kind deps)
  _tessera_folder(folder)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  # At -O2, gcc 12 falsely reports copies in std::string that overlap or exceed their bounds (its bug 105651), and gcc 14
  # falsely reports reads beyond the memory that a std::vector copies when it grows.
  # -pthread is set for all targets, because all users of a precompiled header need the same flags.
  target_compile_options(${name} PRIVATE -Wall -Wextra -Werror -pthread
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
    # By default, gcc's garbage collection takes a sixth of the time, because it runs so often.
    "$<$<CXX_COMPILER_ID:GNU>:SHELL:--param ggc-min-heapsize=1048576>"
    # ccache requires these options of a compiler that reads precompiled headers.
    $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess> $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang\ -fno-pch-timestamp>
    "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-restrict;-Wno-array-bounds>"
    "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-stringop-overflow;-Wno-stringop-overread>")
  target_link_libraries(${name} PUBLIC ${deps})
  set_target_properties(${name} PROPERTIES TESSERA_FOLDER "${folder}")
  foreach(dep IN LISTS deps)
    set_property(GLOBAL APPEND PROPERTY TESSERA_EDGES "${folder}|${name}|${dep}|${kind}")
  endforeach()
endfunction()

# Third-party headers take most of the time of compiling a file, and they are the same everywhere. So they are compiled
# once for libraries and once for tests. A preset with TESSERA_PCH=OFF finds files that do not include all the headers
# they use.
set(TESSERA_PCH_LIBRARY
    <algorithm> <cstdint> <functional> <map> <memory> <optional> <set> <string> <string_view>
    <thread> <utility> <variant> <vector>
    <absl/container/flat_hash_map.h> <absl/status/status.h> <absl/status/statusor.h>
    <absl/strings/str_cat.h> <absl/strings/str_join.h> <absl/synchronization/mutex.h>
    <absl/time/clock.h> <absl/time/time.h> <absl/types/span.h>)
set(TESSERA_PCH_TEST ${TESSERA_PCH_LIBRARY} <gmock/gmock.h> <gtest/gtest.h>)

# A regular expression of the folders whose libraries are optimised. A preset for tests optimises only the libraries in
# which its tests spend their time. Optimising takes more than half of the time that it takes to compile the others.
set(TESSERA_OPTIMISED_FOLDERS "." CACHE STRING "A regular expression of the folders whose libraries are optimised")

# Compiles a target without optimising it. A test runs its own code only once, and optimising takes half of the time to
# compile it. Only the libraries under test are optimised.
function(_tessera_compile_as_test name)
  target_compile_options(${name} PRIVATE $<$<NOT:$<CONFIG:Release>>:-O0>)
endfunction()

# Defines the targets that contain the precompiled headers. They have the same flags as the targets that use them.
function(_tessera_make_pch)
  add_library(tessera_pch_library STATIC ${PROJECT_SOURCE_DIR}/cmake/empty.cc)
  add_library(tessera_pch_plain_library STATIC EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/cmake/empty.cc)
  add_executable(tessera_pch_test ${PROJECT_SOURCE_DIR}/cmake/empty.cc)
  foreach(target tessera_pch_library tessera_pch_plain_library tessera_pch_test)
    _tessera_setup(${target} pch "absl::flat_hash_map;absl::statusor;absl::time")
  endforeach()
  _tessera_compile_as_test(tessera_pch_test)
  _tessera_compile_as_test(tessera_pch_plain_library)
  target_link_libraries(tessera_pch_test PRIVATE GTest::gtest_main GTest::gmock Threads::Threads)
  target_precompile_headers(tessera_pch_library PRIVATE ${TESSERA_PCH_LIBRARY})
  target_precompile_headers(tessera_pch_plain_library PRIVATE ${TESSERA_PCH_LIBRARY})
  target_precompile_headers(tessera_pch_test PRIVATE ${TESSERA_PCH_TEST})
  set(ending pch)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    set(ending gch)
  endif()
  set(sums "")
  foreach(target tessera_pch_library tessera_pch_plain_library tessera_pch_test)
    set(header ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx)
    list(APPEND sums ${header}.${ending}.sum)
  endforeach()
  set(script ${PROJECT_SOURCE_DIR}/cmake/pch_sum.py)
  set(depfile ${CMAKE_CURRENT_BINARY_DIR}/tessera_pch_sums.d)
  add_custom_command(OUTPUT ${sums}
    COMMAND /usr/bin/python3 -B ${script} ${CMAKE_CXX_COMPILER}
            "$<TARGET_PROPERTY:tessera_pch_test,INCLUDE_DIRECTORIES>" ${depfile} ${sums} -- ${TESSERA_PCH_TEST}
    DEPENDS ${script} DEPFILE ${depfile} COMMENT "Summing up the precompiled headers" VERBATIM)
  add_custom_target(tessera_pch_sums DEPENDS ${sums})
endfunction()

function(_tessera_use_pch name from)
  if(NOT TESSERA_PCH)
    return()
  endif()
  if(NOT TARGET ${from})
    _tessera_make_pch()
  endif()
  target_precompile_headers(${name} REUSE_FROM ${from})
  add_dependencies(${name} tessera_pch_sums)
endfunction()

function(tessera_library)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME" "SRCS;HDRS;DEPS")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tessera_library(${ARG_NAME}): unknown ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(ARG_SRCS)
    # Libraries for tests stay static. Otherwise each shared library would contain Google Test, as well as the program.
    set(kind STATIC)
    _tessera_folder(folder)
    if(TESSERA_SHARED_LIBS AND NOT folder MATCHES "^(tests|bench|examples)" AND NOT "${ARG_SRCS}" MATCHES "testing/")
      set(kind SHARED)
    endif()
    add_library(${ARG_NAME} ${kind} ${ARG_SRCS} ${ARG_HDRS})
    set_target_properties(${ARG_NAME} PROPERTIES DEFINE_SYMBOL "")
    _tessera_setup(${ARG_NAME} library "${ARG_DEPS}")
    if(folder MATCHES "^tests/" AND NOT folder STREQUAL "tests/sim")
      # Code of tests runs only once, except for the simulation, which runs millions of steps. The precompiled headers
      # for tests were compiled for an executable, so this library needs the options of one.
      _tessera_compile_as_test(${ARG_NAME})
      set_target_properties(${ARG_NAME} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
      target_compile_options(${ARG_NAME} PRIVATE -fPIE)
      target_compile_options(${ARG_NAME} PRIVATE
        $<TARGET_PROPERTY:GTest::gtest,INTERFACE_COMPILE_OPTIONS>)
      _tessera_use_pch(${ARG_NAME} tessera_pch_test)
    elseif(NOT folder MATCHES "${TESSERA_OPTIMISED_FOLDERS}")
      _tessera_compile_as_test(${ARG_NAME})
      _tessera_use_pch(${ARG_NAME} tessera_pch_plain_library)
    else()
      _tessera_use_pch(${ARG_NAME} tessera_pch_library)
    endif()
    _tessera_unity(${ARG_NAME})
  else()
    # The library has only headers, which are compiled where they are used.
    add_library(${ARG_NAME} INTERFACE)
    _tessera_folder(folder)
    target_include_directories(${ARG_NAME} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
    target_link_libraries(${ARG_NAME} INTERFACE ${ARG_DEPS})
    set_target_properties(${ARG_NAME} PROPERTIES TESSERA_FOLDER "${folder}")
    foreach(dep IN LISTS ARG_DEPS)
      set_property(GLOBAL APPEND PROPERTY TESSERA_EDGES "${folder}|${ARG_NAME}|${dep}|library")
    endforeach()
  endif()
endfunction()

# Sets `out` to `target` and all of our libraries that it needs.
function(_tessera_libraries_of target out)
  get_property(edges GLOBAL PROPERTY TESSERA_EDGES)
  set(found)
  set(left ${target})
  while(left)
    list(POP_FRONT left next)
    if(next IN_LIST found)
      continue()
    endif()
    list(APPEND found ${next})
    foreach(edge IN LISTS edges)
      if(edge MATCHES "^[^|]*\\|${next}\\|(tessera_[^|]*)\\|")
        list(APPEND left ${CMAKE_MATCH_1})
      endif()
    endforeach()
  endwhile()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# Links our libraries ARGN, and all of our libraries that they need, into the module `name`. They are linked as
# archives, or as object files if the build makes them shared libraries. Call this when all of them are defined.
function(_tessera_link_whole name)
  if(NOT TESSERA_SHARED_LIBS)
    target_link_libraries(${name} PUBLIC ${ARGN})
    return()
  endif()
  set(libraries)
  foreach(library IN LISTS ARGN)
    _tessera_libraries_of(${library} needed)
    list(APPEND libraries ${needed})
  endforeach()
  list(REMOVE_DUPLICATES libraries)
  get_property(edges GLOBAL PROPERTY TESSERA_EDGES)
  foreach(library IN LISTS libraries)
    get_target_property(type ${library} TYPE)
    if(NOT type STREQUAL INTERFACE_LIBRARY)
      target_sources(${name} PRIVATE $<TARGET_OBJECTS:${library}>)
    endif()
    foreach(edge IN LISTS edges)
      if(edge MATCHES "^[^|]*\\|${library}\\|([^|]*)\\|")
        set(dep ${CMAKE_MATCH_1})
        if(NOT dep IN_LIST libraries)
          target_link_libraries(${name} PRIVATE ${dep})
        endif()
      endif()
    endforeach()
  endforeach()
  if(tessera_proto IN_LIST libraries)
    target_link_libraries(${name} PRIVATE gRPC::grpc++ protobuf::libprotobuf)
  endif()
endfunction()

# Like add_test(), but requires TIMEOUT. A test that takes more than TIMEOUT seconds on an idle machine is hanging.
# CTest ends the test only after three times TIMEOUT: it measures elapsed time, which is longer if the test runs beside
# other work. Tests are started by a program that can write down how long each test took (base/testing/timed.cc). A
# test that skips all of its cases exits with 77.
function(tessera_add_test)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME;TIMEOUT;WORKING_DIRECTORY" "COMMAND")
  if(ARG_UNPARSED_ARGUMENTS OR NOT ARG_NAME OR NOT ARG_TIMEOUT OR NOT ARG_COMMAND)
    message(FATAL_ERROR "tessera_add_test(${ARG_NAME}): wants NAME, TIMEOUT and COMMAND, "
                        "and does not know '${ARG_UNPARSED_ARGUMENTS}'")
  endif()
  if(NOT TARGET tessera_timed)
    add_executable(tessera_timed ${PROJECT_SOURCE_DIR}/base/testing/timed.cc)
    _tessera_setup(tessera_timed binary "")
    set_target_properties(tessera_timed PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
    add_dependencies(memory_tests tessera_timed)
    add_dependencies(fuzz_targets tessera_timed)
  endif()
  # A program that a test names in its command is part of "all", even if its own tests run only under sanitizers.
  string(REGEX MATCHALL "<TARGET_FILE:[^>]+" named "${ARG_COMMAND}")
  list(TRANSFORM named REPLACE "<TARGET_FILE:" "")
  set_property(GLOBAL APPEND PROPERTY TESSERA_PLAIN_PROGRAMS ${named})
  list(POP_FRONT ARG_COMMAND program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  if(NOT ARG_WORKING_DIRECTORY)
    set(ARG_WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  add_test(NAME ${ARG_NAME} COMMAND tessera_timed ${ARG_NAME} ${program} ${ARG_COMMAND}
           WORKING_DIRECTORY ${ARG_WORKING_DIRECTORY})
  # Long tests start first, so that short tests run at the same time.
  math(EXPR elapsed_max "3 * ${ARG_TIMEOUT}")
  set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT ${elapsed_max} COST ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

# Sets `out` to the executable that holds the tests of this folder. It is linked once, and its files may share
# translation units.
function(_tessera_suite out)
  _tessera_folder(folder)
  string(REPLACE "/" "_" suite "${folder}_tests")
  if(NOT TARGET ${suite})
    add_executable(${suite})
    _tessera_setup_test(${suite} "")
    _tessera_use_test_main(${suite})
    _tessera_unity(${suite})
  endif()
  set(${out} ${suite} PARENT_SCOPE)
endfunction()

# Links the main() of tests into the target.
function(_tessera_use_test_main name)
  if(NOT TARGET tessera_test_main)
    add_library(tessera_test_main STATIC ${PROJECT_SOURCE_DIR}/base/testing/test_main.cc)
    _tessera_setup(tessera_test_main library "GTest::gmock;GTest::gtest")
  endif()
  target_link_libraries(${name} PRIVATE tessera_test_main)
endfunction()

# Sets the options that all executables with tests have in common.
function(_tessera_setup_test name deps)
  _tessera_setup(${name} test "${deps}")
  _tessera_compile_as_test(${name})
  target_link_libraries(${name} PRIVATE GTest::gmock Threads::Threads)
  _tessera_use_pch(${name} tessera_pch_test)
endfunction()

# Defines macros that tell a test where files are. The values of these macros are string literals, relative to the
# repository, for SourcePath() of base/testing/datadriven.h. With absolute paths, a compiler cache would be useless to
# a checkout in another folder.
#
#   tessera_define_paths(TARGET NAME PATH [NAME PATH]...)
function(tessera_define_paths target)
  while(ARGN)
    list(POP_FRONT ARGN name path)
    target_compile_definitions(${target} PRIVATE "${name}=\"$<PATH:RELATIVE_PATH,${path},${PROJECT_SOURCE_DIR}>\"")
  endwhile()
endfunction()

# Builds the tests that scripts/test runs under sanitizers: those that handle memory, threads or bytes by hand. They
# have the label "memory", from LABELS or from TESSERA_TEST_LABELS, which a folder sets for all tests below it.
add_custom_target(memory_tests)

# Abseil's headers poison the free slots of hash tables under AddressSanitizer. In later versions the library fills slots
# itself, and Debian's library was compiled without the code that ends the poison.
set(TESSERA_ASAN_POISON "")
if(absl_VERSION VERSION_GREATER_EQUAL 20230802)
  set(TESSERA_ASAN_POISON ":allow_user_poisoning=0")
endif()

function(tessera_test)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "ALONE;OWN_MAIN" "NAME;TIMEOUT" "SRCS;DEPS;LABELS")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tessera_test(${ARG_NAME}): unknown ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(TESSERA_SANITIZE)
    math(EXPR ARG_TIMEOUT "2 * ${ARG_TIMEOUT}")
  endif()
  list(APPEND ARG_LABELS ${TESSERA_TEST_LABELS})
  if(ARG_ALONE)
    add_executable(${ARG_NAME} ${ARG_SRCS})
    _tessera_setup_test(${ARG_NAME} "${ARG_DEPS}")
    if(NOT ARG_OWN_MAIN)
      _tessera_use_test_main(${ARG_NAME})
    endif()
    set(command ${ARG_NAME})
  else()
    _tessera_suite(suite)
    _tessera_folder(folder)
    get_target_property(known ${suite} SOURCES)
    set(new ${ARG_SRCS})
    list(REMOVE_ITEM new ${known})
    target_sources(${suite} PRIVATE ${new})
    target_link_libraries(${suite} PUBLIC ${ARG_DEPS})
    foreach(dep IN LISTS ARG_DEPS)
      set_property(GLOBAL APPEND PROPERTY TESSERA_EDGES "${folder}|${suite}|${dep}|test")
    endforeach()
    list(FILTER ARG_SRCS INCLUDE REGEX "_test\\.cc$")
    set(files)
    foreach(source IN LISTS ARG_SRCS)
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      list(APPEND files ${source})
    endforeach()
    list(JOIN files "," files)
    set(command ${suite} --sources=${files})
    add_custom_target(${ARG_NAME} DEPENDS ${suite})
    # Write a script with the name of the test that runs only this test, for people and for other scripts.
    file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${ARG_NAME}
         CONTENT "#!/bin/sh\nexec '$<TARGET_FILE:${suite}>' '--sources=${files}' \"$@\"\n"
         FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                          WORLD_READ WORLD_EXECUTE)
  endif()
  if(memory IN_LIST ARG_LABELS)
    add_dependencies(memory_tests ${ARG_NAME})
    set(target ${suite})
    if(ARG_ALONE)
      set(target ${ARG_NAME})
    endif()
    list(JOIN ARG_DEPS "," deps)
    set_property(GLOBAL APPEND PROPERTY TESSERA_MEMORY_TESTS "${ARG_NAME}|${target}|${deps}")
  elseif(NOT ARG_ALONE)
    set_property(GLOBAL APPEND PROPERTY TESSERA_PLAIN_PROGRAMS ${suite})
  endif()
  tessera_add_test(NAME ${ARG_NAME} COMMAND ${command} TIMEOUT ${ARG_TIMEOUT}
                   WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  # Under a sanitizer, a test spends a quarter of its time on recording the stacks of allocations, so only a few frames
  # are recorded. The leak check of clang 14 has a bug: if thread-local storage of a library begins 16 bytes after a
  # page, the check takes the bytes before it for a header and ends the process. So it is told to skip that storage.
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}"
                       ENVIRONMENT ASAN_OPTIONS=malloc_context_size=6:intercept_tls_get_addr=0${TESSERA_ASAN_POISON})
endfunction()

function(tessera_binary)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME;OUTPUT" "SRCS;DEPS")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tessera_binary(${ARG_NAME}): unknown ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  _tessera_setup(${ARG_NAME} binary "${ARG_DEPS}")
  target_link_libraries(${ARG_NAME} PRIVATE Threads::Threads)
  set_target_properties(${ARG_NAME} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  if(ARG_OUTPUT)
    set_target_properties(${ARG_NAME} PROPERTIES OUTPUT_NAME ${ARG_OUTPUT})
  endif()
endfunction()

# Defines a fuzz target, whose SRCS define LLVMFuzzerTestOneInput. The fuzz preset fuzzes for a limited number of runs.
# Every other preset replays the corpus and mutations of it (base/testing/fuzz_replay_main.cc). The corpus is a folder
# of the repository with at least one file. MAX_LEN is the largest input that fuzzing makes. The target "fuzz_targets"
# builds all fuzz targets.
add_custom_target(fuzz_targets)
function(tessera_fuzz)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME;CORPUS;MAX_LEN" "SRCS;DEPS")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tessera_fuzz(${ARG_NAME}): unknown ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_MAX_LEN)
    set(ARG_MAX_LEN 4096)
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  add_dependencies(fuzz_targets ${ARG_NAME})
  _tessera_setup(${ARG_NAME} fuzz "${ARG_DEPS}")
  set(corpus ${PROJECT_SOURCE_DIR}/${ARG_CORPUS})
  # New inputs are written to the build folder; the corpus is only read.
  set(found ${CMAKE_CURRENT_BINARY_DIR}/${ARG_NAME}_found)
  file(MAKE_DIRECTORY ${found})
  if(TESSERA_FUZZ)
    target_link_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
    tessera_add_test(NAME ${ARG_NAME} TIMEOUT 120 WORKING_DIRECTORY ${found}
             COMMAND ${ARG_NAME} -runs=20000 -max_total_time=60 -max_len=${ARG_MAX_LEN} -timeout=20
                     -rss_limit_mb=1024 -artifact_prefix=${found}/ ${found} ${corpus})
  else()
    if(NOT TARGET tessera_fuzz_replay)
      add_library(tessera_fuzz_replay STATIC ${PROJECT_SOURCE_DIR}/base/testing/fuzz_replay_main.cc)
      _tessera_setup(tessera_fuzz_replay library "")
    endif()
    target_link_libraries(${ARG_NAME} PRIVATE tessera_fuzz_replay)
    tessera_add_test(NAME ${ARG_NAME} TIMEOUT 120 WORKING_DIRECTORY ${found} COMMAND ${ARG_NAME} ${corpus})
  endif()
  list(JOIN ARG_DEPS "," deps)
  set_property(GLOBAL APPEND PROPERTY TESSERA_MEMORY_TESTS "${ARG_NAME}|${ARG_NAME}|${deps}")
  # The packaged protobuf and Abseil share containers with our code, but are not built for the sanitizer.
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS fuzz
                       ENVIRONMENT ASAN_OPTIONS=detect_container_overflow=0${TESSERA_ASAN_POISON})
endfunction()

# Writes sanitized_tests.txt, the list of tests that scripts/test runs only under sanitizers. They have the label
# "memory" or "fuzz" and do not need the wire, which is not built under sanitizers. Programs that only these tests need
# are not part of "all"; the targets memory_tests and fuzz_targets build them. Called last, when every target is known.
function(tessera_list_sanitized_tests)
  # Find all targets that depend on the wire, directly or indirectly.
  get_property(edges GLOBAL PROPERTY TESSERA_EDGES)
  set(wire tessera_proto)
  set(grown TRUE)
  while(grown)
    set(grown FALSE)
    foreach(edge IN LISTS edges)
      if(edge MATCHES "^[^|]*\\|([^|]*)\\|([^|]*)\\|")
        set(from ${CMAKE_MATCH_1})
        set(to ${CMAKE_MATCH_2})
        if(NOT from IN_LIST wire AND (to IN_LIST wire OR to MATCHES "^(gRPC|protobuf)::"))
          list(APPEND wire ${from})
          set(grown TRUE)
        endif()
      endif()
    endforeach()
  endwhile()
  get_property(tests GLOBAL PROPERTY TESSERA_MEMORY_TESTS)
  get_property(plain GLOBAL PROPERTY TESSERA_PLAIN_PROGRAMS)
  set(names "")
  set(programs "")
  foreach(test IN LISTS tests)
    if(test MATCHES "^([^|]*)\\|([^|]*)\\|(.*)$")
      set(name ${CMAKE_MATCH_1})
      set(program ${CMAKE_MATCH_2})
      string(REPLACE "," ";" deps "${CMAKE_MATCH_3}")
      set(needs_wire FALSE)
      foreach(dep IN LISTS deps)
        if(dep IN_LIST wire)
          set(needs_wire TRUE)
        endif()
      endforeach()
      if(needs_wire)
        list(APPEND plain ${program})
      else()
        string(APPEND names "${name}\n")
        list(APPEND programs ${program})
      endif()
    endif()
  endforeach()
  file(WRITE ${PROJECT_BINARY_DIR}/sanitized_tests.txt "${names}")
  list(REMOVE_DUPLICATES programs)
  foreach(program IN LISTS programs)
    if(NOT program IN_LIST plain)
      set_target_properties(${program} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    endif()
  endforeach()
endfunction()

# Sets `out` to the folder that a dependency belongs to: "proto" for the wire libraries, "" for other third-party
# libraries, and "?" for a target of ours that is not defined.
function(_tessera_target_folder dep out)
  set(folder "")
  if(dep MATCHES "^(gRPC|protobuf)::")
    set(folder proto)
  elseif(TARGET ${dep})
    get_target_property(folder ${dep} TESSERA_FOLDER)
    if(NOT folder)
      get_target_property(dir ${dep} SOURCE_DIR)
      get_target_property(imported ${dep} IMPORTED)
      if(NOT imported AND dir)
        file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${dir})
      else()
        set(folder "")
      endif()
    endif()
  elseif(dep MATCHES "^tessera_")
    set(folder "?")
  endif()
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

# Refuses all declared dependencies that go to a higher layer, to another folder of the same layer, or from a wrong
# folder to the wire.
function(tessera_check_layers)
  get_property(edges GLOBAL PROPERTY TESSERA_EDGES)
  foreach(edge IN LISTS edges)
    string(REPLACE "|" ";" edge "${edge}")
    list(GET edge 0 from)
    list(GET edge 1 target)
    list(GET edge 2 dep)
    list(GET edge 3 kind)
    _tessera_target_folder(${dep} to)
    if(to STREQUAL "")
      continue()
    endif()
    if(to STREQUAL "?")
      message(FATAL_ERROR "${target} (${from}/) depends on ${dep}, which no folder defines")
    endif()
    string(REGEX REPLACE "/.*" "" from_top "${from}")
    string(REGEX REPLACE "/.*" "" to_top "${to}")
    if(NOT DEFINED TESSERA_LAYER_${from_top})
      message(FATAL_ERROR "${target}: no layer is given for folder ${from_top}/ "
                          "(cmake/tessera_library.cmake)")
    endif()
    if(to_top STREQUAL "proto" AND NOT from_top STREQUAL "proto")
      if(NOT from MATCHES "${TESSERA_PROTO_USERS}")
        message(FATAL_ERROR "${target} (${from}/) depends on ${dep}: protobuf and gRPC are for "
                            "ir/serial, client/remote, client/pjrt, server/rows, server/rpc, "
                            "worker/rpc and bench")
      endif()
      continue()
    endif()
    if(from_top STREQUAL to_top)
      continue()
    endif()
    if(NOT TESSERA_LAYER_${to_top} LESS TESSERA_LAYER_${from_top})
      message(FATAL_ERROR "${target} (${from}/) depends on ${dep} (${to}/): a folder may only use "
                          "lower layers: base < ir < {client, server, worker} < embed < "
                          "{tests, examples} < bench")
    endif()
  endforeach()
endfunction()
