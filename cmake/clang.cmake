# The clang of the system that we know best: Debian 12 has 14, Debian 13 has 19.
find_program(TESSERA_CLANG NAMES clang++-14 clang++-19 clang++ REQUIRED)
set(CMAKE_CXX_COMPILER ${TESSERA_CLANG})
