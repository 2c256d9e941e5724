// Random programs over the whole table: ops of the samples in a row, each on parameters or on what
// ops before it gave.
//
// Results are known bit for bit, so that a wrong bit anywhere shows: float sums and products add up
// small whole numbers, which is exact in every order, and what a function of floats gives is only
// moved afterwards, or returned. The same seed gives the same program everywhere.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/ops/samples.h"

namespace tessera::ir::samples {

struct RandomProgram {
  uint64_t seed = 0;
  // A call of the program.
  Sample sample;
  // How many units in the last place each result may be off, and beside JAX's, where XLA is further
  // off than ours; 0: every bit is known.
  std::vector<double> ulps, ulps_of_xla;
};
// Throws StatusException when ops do not fit each other: a defect of this file.
RandomProgram MakeRandomProgram(uint64_t seed);

// The names of the ops that programs are made of, and of the others with why not.
std::vector<std::string> OpsOfRandomPrograms();
const std::map<std::string, std::string>& NotInPrograms();

// Of the seeds that the environment variable TESSERA_RANDOM_PROGRAMS says, as "1-120", which they
// are without it.
const std::vector<RandomProgram>& RandomPrograms();

}  // namespace tessera::ir::samples
