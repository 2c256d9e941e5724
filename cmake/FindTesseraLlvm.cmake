# Finds LLVM's single shared library and defines the target Tessera::llvm. The headers count as system
# headers, so that our warnings do not apply to them.
find_package(LLVM 19.1 QUIET CONFIG PATHS /usr/lib/llvm-19/lib/cmake/llvm NO_DEFAULT_PATH)
if(NOT LLVM_FOUND)
  find_package(LLVM 19.1 QUIET CONFIG)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TesseraLlvm
  REQUIRED_VARS LLVM_DIR LLVM_INCLUDE_DIRS
  REASON_FAILURE_MESSAGE "install LLVM 19 (Debian: llvm-19-dev)")
if(TesseraLlvm_FOUND AND NOT TARGET Tessera::llvm)
  add_library(Tessera::llvm INTERFACE IMPORTED)
  set_target_properties(Tessera::llvm PROPERTIES
    INTERFACE_LINK_LIBRARIES LLVM
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${LLVM_INCLUDE_DIRS}"
    INTERFACE_INCLUDE_DIRECTORIES "${LLVM_INCLUDE_DIRS}")
endif()
