# Installs into an empty prefix and checks that the files that the README promises are there.
file(REMOVE_RECURSE ${PREFIX})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX}
  COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
foreach(file bin/tessera bin/tessera-coordinator bin/tessera-worker
    include/tessera/client/tessera.h share/bash-completion/completions/tessera
    share/zsh/site-functions/_tessera share/fish/vendor_completions.d/tessera.fish)
  if(NOT EXISTS ${PREFIX}/${file})
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()
foreach(daemon tessera-coordinator tessera-worker)
  execute_process(COMMAND ${PREFIX}/bin/${daemon} --help
    COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE help)
  if(NOT help MATCHES "--log-level")
    message(FATAL_ERROR "${daemon} --help says: ${help}")
  endif()
endforeach()
execute_process(COMMAND ${PREFIX}/bin/tessera version
  COMMAND_ERROR_IS_FATAL ANY OUTPUT_VARIABLE version)
if(NOT version MATCHES "^tessera [0-9]+\\.[0-9]+\\.[0-9]+, op set ")
  message(FATAL_ERROR "tessera version says: ${version}")
endif()
# Only headers for users are installed: none of tests, generated code or the server.
file(GLOB_RECURSE headers RELATIVE ${PREFIX}/include/tessera ${PREFIX}/include/tessera/*)
foreach(header IN LISTS headers)
  if(NOT header MATCHES "^(base|ir|client)/" OR header MATCHES "(test|\\.pb\\.h)")
    message(FATAL_ERROR "${header} is not for users")
  endif()
endforeach()
