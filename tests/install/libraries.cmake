# Checks that PROGRAM loads no library for computing. OTHER must load one, which proves that the
# check finds them.
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${PROGRAM} RESOLVED_DEPENDENCIES_VAR program)
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${OTHER} RESOLVED_DEPENDENCIES_VAR other)
set(heavy "/lib(dnnl|gomp|LLVM|cuda|nccl)[^/]*$")
list(FILTER program INCLUDE REGEX ${heavy})
list(FILTER other INCLUDE REGEX ${heavy})
if(program)
  message(FATAL_ERROR "Tessera::client brings ${program}")
endif()
if(NOT other)
  message(FATAL_ERROR "Tessera::embedded brings none of ${heavy}: this check checks nothing")
endif()
