// Random programs over the whole op table. A program is a sequence of ops taken from the samples
// (samples.h); each operand is a parameter or the result of an earlier op.
//
// Nearly all results are known bit for bit, so that a single wrong bit shows. To that end, sums and
// products of floats take small whole numbers, for which they are exact in every order. Only the
// results of inexact functions of floats are known up to some units in the last place; later ops of
// the program only move them, or the program returns them. A seed gives the same program
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
  // The program as a sample: an op `call`, whose only region is the program.
  Sample sample;
  // For each result of the program, the units in the last place by which it may differ: `ulps`
  // between implementations of ours, `ulps_of_xla` from JAX, which can be larger because some
  // functions of XLA are less exact. 0 means that the result must be equal bit for bit.
  std::vector<double> ulps, ulps_of_xla;
};
// Throws StatusException if the ops do not fit each other, which would be a defect of programs.cc.
RandomProgram MakeRandomProgram(uint64_t seed);

// Returns the names of the ops that random programs use.
std::vector<std::string> OpsOfRandomPrograms();
// Returns the ops that random programs do not use: a map from the name of the op to the reason.
const std::map<std::string, std::string>& NotInPrograms();

// Returns the programs of a range of seeds. The environment variable TESSERA_RANDOM_PROGRAMS gives
// the range as "FIRST-LAST"; the default is "1-120".
const std::vector<RandomProgram>& RandomPrograms();

}  // namespace tessera::ir::samples
