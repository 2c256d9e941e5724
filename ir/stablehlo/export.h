// A program as a StableHLO portable artifact, which JAX and other tools read: the inverse of
// ImportProgram.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "ir/stablehlo/bytecode.h"

namespace tessera::ir::stablehlo {

// The program as a module of the function "main" and those that it calls, for the oldest version of
// StableHLO, 1.0 or later, that can say it. Ops carry their file and line, arguments and results
// their names.
//
// Ops that StableHLO lacks are composites "tessera.<name>", which whoever does not know them
// replaces by their decomposition, and ImportProgram by the op; factorizations and eigenvalues are
// the custom calls that JAX writes for CPUs. Derivative rules, check_vma and
// weak types are left out.
//
// Meshes and shardings are Shardy's.
//
// Errors: UNKNOWN_AXIS and VALUE_ERROR for a sharding of a param or a result that names an axis
// that is not there, or names one twice; NOT_IMPLEMENTED, with the op's name, for an op that
// StableHLO cannot say, and for a mesh with axes that are not Auto and specs of unreduced or
// reduced axes; LIMIT_EXCEEDED for a program that takes more ops, regions or bytes than a reader's
// limits are.
//
// Requires: the program is verified.
absl::StatusOr<std::string> ExportProgram(const Program& program, const ReadLimits& limits = {});

}  // namespace tessera::ir::stablehlo
