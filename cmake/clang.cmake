# Chooses the clang of the system: Debian 12 has clang 14, and Debian 13 has clang 19.
find_program(TESSERA_CLANG NAMES clang++-14 clang++-19 clang++ REQUIRED)
set(CMAKE_CXX_COMPILER ${TESSERA_CLANG})
