// Random programs over the whole op table. A program is a sequence of ops taken from the samples;
// each operand is a parameter or the result of an earlier op.
//
// Results are known bit for bit, so that a single wrong bit shows. To that end, float sums and
// products take small whole numbers, which are exact in every order, and the result of an inexact
// function of floats is only moved or returned afterwards. A seed gives the same program
// everywhere.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/ops/samples.h"

namespace tessera::ir::samples {

struct RandomProgram {
  uint64_t seed = 0;
  // A `call` of the program, whose only region is the program.
  Sample sample;
  // How many units in the last place each result may be off: between our implementations, and from
  // JAX, since XLA is further off for some functions. 0 means that every bit is known.
  std::vector<double> ulps, ulps_of_xla;
};
// Throws StatusException if the ops do not fit each other, which would be a defect of programs.cc.
RandomProgram MakeRandomProgram(uint64_t seed);

// Returns the names of the ops that random programs use.
std::vector<std::string> OpsOfRandomPrograms();
// Maps the name of each other op to the reason why random programs do not use it.
const std::map<std::string, std::string>& NotInPrograms();

// Returns the programs of a range of seeds. The environment variable TESSERA_RANDOM_PROGRAMS gives
// the range as "FIRST-LAST"; the default is "1-120".
const std::vector<RandomProgram>& RandomPrograms();

}  // namespace tessera::ir::samples
