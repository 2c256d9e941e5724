# Targets of Tessera, and the table of what may depend on what.
#
#   tessera_library(NAME tessera_ir SRCS a.cc DEPS tessera_base absl::span [HDRS a.h])
#   tessera_test(NAME a_test SRCS a_test.cc DEPS tessera_ir [TIMEOUT 300] [LABELS slow])
#   tessera_binary(NAME tessera_server SRCS main.cc DEPS ... [OUTPUT tessera-server])
#   tessera_fuzz(NAME parse_fuzz SRCS parse_fuzz.cc DEPS tessera_ir CORPUS tests/fuzz/parse)
#
# A target belongs to the folder whose CMakeLists.txt defines it. DEPS may name targets that are
# defined later; tessera_check_layers(), called last, refuses those that the table forbids. DEPS are
# public. Files are relative to the folder, as usual.

# The layer of each top folder: a folder may use its own targets and those of a lower layer. Folders
# that share a layer never use one another.
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

# The only folders that may see generated protobuf and gRPC types. tests/tidy_test checks includes.
set(TESSERA_PROTO_USERS
    "^(proto|ir/serial|client/remote|client/pjrt|server/jail|server/rows|server/rpc|worker/rpc|bench)(/|$)")

define_property(GLOBAL PROPERTY TESSERA_EDGES BRIEF_DOCS "from-folder|from-target|to-target rows")

function(_tessera_folder out)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set(${out} ${folder} PARENT_SCOPE)
endfunction()

# Everything that our own targets have in common. Third-party headers are SYSTEM: no warnings there.
function(_tessera_setup name kind deps)
  _tessera_folder(folder)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  # gcc 12 at -O2 sees copies in std::string that overlap or leave their bounds, and are none (its bug
  # 105651).
  # Threads everywhere: precompiled headers want the same flags of all.
  target_compile_options(${name} PRIVATE -Wall -Wextra -Werror -pthread
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
    # As ccache wants it of a compiler that reads precompiled headers.
    $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess> $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang\ -fno-pch-timestamp>
    "$<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overflow>")
  target_link_libraries(${name} PUBLIC ${deps})
  set_target_properties(${name} PROPERTIES TESSERA_FOLDER "${folder}")
  foreach(dep IN LISTS deps)
    set_property(GLOBAL APPEND PROPERTY TESSERA_EDGES "${folder}|${name}|${dep}|${kind}")
  endforeach()
endfunction()

# Most of the time that a file takes is that of the headers of others, which are the same everywhere:
# they are compiled once for libraries, and once for tests. A preset with TESSERA_PCH=OFF sees whether
# each file includes what it uses.
set(TESSERA_PCH_LIBRARY
    <algorithm> <cstdint> <functional> <map> <memory> <optional> <set> <string> <string_view>
    <thread> <utility> <variant> <vector>
    <absl/container/flat_hash_map.h> <absl/status/status.h> <absl/status/statusor.h>
    <absl/strings/str_cat.h> <absl/strings/str_join.h> <absl/synchronization/mutex.h>
    <absl/time/clock.h> <absl/time/time.h> <absl/types/span.h>)
set(TESSERA_PCH_TEST ${TESSERA_PCH_LIBRARY} <gmock/gmock.h> <gtest/gtest.h>)

# What a test itself says runs once, and optimising it takes half of the time that it takes to compile:
# only what it tests is optimised.
function(_tessera_compile_as_test name)
  target_compile_options(${name} PRIVATE $<$<NOT:$<CONFIG:Release>>:-O0>)
endfunction()

# The targets that hold the compiled headers. Their flags are those of the targets that use them.
function(_tessera_make_pch)
  add_library(tessera_pch_library STATIC ${PROJECT_SOURCE_DIR}/cmake/empty.cc)
  add_executable(tessera_pch_test ${PROJECT_SOURCE_DIR}/cmake/empty.cc)
  _tessera_setup(tessera_pch_library pch "absl::flat_hash_map;absl::statusor;absl::time")
  _tessera_setup(tessera_pch_test pch "absl::flat_hash_map;absl::statusor;absl::time")
  _tessera_compile_as_test(tessera_pch_test)
  target_link_libraries(tessera_pch_test PRIVATE GTest::gtest_main GTest::gmock Threads::Threads)
  target_precompile_headers(tessera_pch_library PRIVATE ${TESSERA_PCH_LIBRARY})
  target_precompile_headers(tessera_pch_test PRIVATE ${TESSERA_PCH_TEST})
endfunction()

function(_tessera_use_pch name from)
  if(NOT TESSERA_PCH)
    return()
  endif()
  if(NOT TARGET ${from})
    _tessera_make_pch()
  endif()
  target_precompile_headers(${name} REUSE_FROM ${from})
endfunction()

function(tessera_library)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME" "SRCS;HDRS;DEPS")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tessera_library(${ARG_NAME}): unknown ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(ARG_SRCS)
    add_library(${ARG_NAME} STATIC ${ARG_SRCS} ${ARG_HDRS})
    _tessera_setup(${ARG_NAME} library "${ARG_DEPS}")
    _tessera_use_pch(${ARG_NAME} tessera_pch_library)
  else()
    # Headers alone: compiled where they are used.
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

function(tessera_test)
  cmake_parse_arguments(PARSE_ARGV 0 ARG "" "NAME;TIMEOUT" "SRCS;DEPS;LABELS")
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tessera_test(${ARG_NAME}): unknown ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${ARG_NAME} ${ARG_SRCS})
  _tessera_setup(${ARG_NAME} test "${ARG_DEPS}")
  _tessera_compile_as_test(${ARG_NAME})
  target_link_libraries(${ARG_NAME} PRIVATE GTest::gtest_main GTest::gmock Threads::Threads)
  _tessera_use_pch(${ARG_NAME} tessera_pch_test)
  # Golden files and the tree itself are read relative to the repository.
  target_compile_definitions(${ARG_NAME} PRIVATE TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  # A sanitizer's test spends a quarter of its time on the stacks of allocations: a few frames do.
  # Where thread-local storage of libraries lies at 16 bytes from a page, clang 14's leak check takes
  # what is before it for a header, and ends the process: it is told to leave that storage out.
  set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
                       ENVIRONMENT ASAN_OPTIONS=malloc_context_size=6:intercept_tls_get_addr=0)
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

# SRCS define LLVMFuzzerTestOneInput. The fuzz preset fuzzes for a bounded number of runs; every other
# preset replays the corpus, a folder of the repository that holds at least one file, and mutations
# of it (base/testing/fuzz_replay_main.cc). MAX_LEN bounds the inputs that fuzzing makes. The target
# "fuzz_targets" builds them all.
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
  # What is found goes to the build folder; the corpus is only read.
  set(found ${CMAKE_CURRENT_BINARY_DIR}/${ARG_NAME}_found)
  file(MAKE_DIRECTORY ${found})
  if(TESSERA_FUZZ)
    target_link_options(${ARG_NAME} PRIVATE -fsanitize=fuzzer)
    add_test(NAME ${ARG_NAME} WORKING_DIRECTORY ${found}
             COMMAND ${ARG_NAME} -runs=20000 -max_total_time=60 -max_len=${ARG_MAX_LEN} -timeout=20
                     -rss_limit_mb=1024 -artifact_prefix=${found}/ ${found} ${corpus})
  else()
    target_sources(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR}/base/testing/fuzz_replay_main.cc)
    add_test(NAME ${ARG_NAME} WORKING_DIRECTORY ${found} COMMAND ${ARG_NAME} ${corpus})
  endif()
  # The packaged protobuf and Abseil share containers with us and are not built for the sanitizer.
  set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT 120 LABELS fuzz
                       ENVIRONMENT ASAN_OPTIONS=detect_container_overflow=0)
endfunction()

# The folder that an edge leads to, or "proto" for the wire libraries, or "" for other third parties.
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

# Refuses every declared dependency that goes up, sideways or to the wire from the wrong folder.
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
