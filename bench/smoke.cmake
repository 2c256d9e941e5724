# Runs a benchmark as a test: fails if the program ends other than with status 0, or if its output
# does not match a regular expression. CTest's PASS_REGULAR_EXPRESSION ignores the exit status, so a
# program that printed its last row and then crashed would pass.
#
#   cmake -DPROGRAM=<path> "-DARGS=<list>" "-DOUTPUT=<regex>" -P smoke.cmake
foreach(name PROGRAM OUTPUT)
  if(NOT ${name})
    message(FATAL_ERROR "smoke.cmake: ${name} is not set")
  endif()
endforeach()
# Both streams go into one variable, in the order in which the program writes them, and to CTest's log.
execute_process(COMMAND ${PROGRAM} ${ARGS} RESULT_VARIABLE status
  OUTPUT_VARIABLE output ERROR_VARIABLE output ECHO_OUTPUT_VARIABLE ECHO_ERROR_VARIABLE)
if(NOT status STREQUAL "0")  # a number, or the description of a signal
  message(FATAL_ERROR "${PROGRAM} ended with \"${status}\"; expected status 0")
endif()
if(NOT output MATCHES "${OUTPUT}")
  message(FATAL_ERROR "${PROGRAM} printed nothing that matches \"${OUTPUT}\"")
endif()
