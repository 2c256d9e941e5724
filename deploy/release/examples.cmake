# Builds the examples against the release that contains this folder:
#   cmake -S examples -B /tmp/examples && cmake --build /tmp/examples
cmake_minimum_required(VERSION 3.20)
project(TesseraExamples LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
get_filename_component(release ${CMAKE_CURRENT_SOURCE_DIR}/.. ABSOLUTE)
add_library(tessera_release INTERFACE)
target_include_directories(tessera_release SYSTEM INTERFACE
  ${release}/include ${release}/include/tessera ${release}/include/tessera_third_party)
target_link_directories(tessera_release INTERFACE ${release}/lib)
target_link_libraries(tessera_release INTERFACE -ltessera)
target_link_options(tessera_release INTERFACE LINKER:-rpath,${release}/lib)
add_executable(quickstart quickstart.cc)
target_link_libraries(quickstart PRIVATE tessera_release)
add_executable(mlp_digits mlp_digits.cc command_line.cc digits.cc)
target_include_directories(mlp_digits PRIVATE ${release})
target_link_libraries(mlp_digits PRIVATE tessera_release)
