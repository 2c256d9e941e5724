# Tests smoke.cmake with small shell programs in place of a benchmark.
function(expect_verdict expected script)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -DPROGRAM=/bin/sh "-DARGS=-c;${script}" "-DOUTPUT=first row.*last row"
      -P ${CMAKE_CURRENT_LIST_DIR}/smoke.cmake
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(verdict passes)
  if(NOT status STREQUAL "0")
    set(verdict fails)
  endif()
  if(NOT verdict STREQUAL expected)
    message(SEND_ERROR "`${script}` ${verdict}; expected: ${expected}\n${output}")
  endif()
endfunction()

expect_verdict(passes "echo first row && echo last row")
expect_verdict(passes "echo first row && echo last row >&2")
expect_verdict(fails "echo first row")
expect_verdict(fails "echo last row && echo first row")
expect_verdict(fails "true")
# The output is complete, and then the program fails.
expect_verdict(fails "echo first row && echo last row && exit 3")
expect_verdict(fails "echo first row && echo last row && kill -ABRT $$")
expect_verdict(fails "echo first row && echo last row && kill -SEGV $$")
