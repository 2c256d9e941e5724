// Writes a program as a StableHLO portable artifact, which JAX and other tools read. It is the
// inverse of ImportProgram. Stateless; thread-safe.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "ir/stablehlo/bytecode.h"

namespace tessera::ir::stablehlo {

// Returns the program as a module with the function "main" and the functions that it calls. The
// artifact is for the oldest version of StableHLO, 1.0 or later, that can express it. Ops carry the
// file and line of their call sites; arguments and results carry their names.
//
// Ops that StableHLO lacks become composites "tessera.<name>". A reader that does not know a
// composite replaces it by its decomposition; ImportProgram turns it back into the op.
// Factorizations and eigenvalues become the custom calls that JAX writes for CPUs. Derivative
// rules, check_vma and weak types are left out.
//
// Meshes and shardings are written as Shardy's.
//
// Errors: UNKNOWN_AXIS and VALUE_ERROR for a sharding of a param or a result that names an axis
// that the mesh lacks, or names one twice. NOT_IMPLEMENTED, with the op's name, for an op that
// StableHLO cannot express, for a mesh with axes that are not Auto, and for specs with unreduced or
// reduced axes. LIMIT_EXCEEDED for a program that takes more ops, regions or bytes than a reader's
// limits.
//
// Requires: the program is verified.
absl::StatusOr<std::string> ExportProgram(const Program& program, const ReadLimits& limits = {});

}  // namespace tessera::ir::stablehlo
