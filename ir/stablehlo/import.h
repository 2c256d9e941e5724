// Reads a StableHLO artifact as a program: each op becomes the op of the same name, or ops that do
// the same. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "ir/stablehlo/artifact.h"
#include "ir/stablehlo/host_program.h"

namespace tessera::ir::stablehlo {

// Returns the artifact's function "main" at logical types. Ops carry the file and line that the
// artifact gives, arguments and results the names that they have there, and the entry function the
// module's name.
//
// Shardings are those of Shardy or GSPMD in the artifact, on Auto axes of the artifact's mesh. The
// caller may lay the mesh on any devices. An artifact for several devices without a mesh gets one
// whose axes are named axis0, axis1, .... Code that runs on shards becomes a manual_computation, in
// which groups of devices are axes again.
//
// The accuracy that an artifact asks for in functions such as exp is ignored; the precision and the
// algorithm of products are read (import_products.cc). A scatter drops a window that is partly
// outside, as XLA does; StableHLO's text says that only the elements outside are dropped. The
// padding of a window holds the initial value, as StableHLO's text says. XLA on CPUs leaves the
// padding out, which differs if the initial value is not neutral.
//
// Errors: those of ReadArtifact; MALFORMED_PROGRAM for a function that is missing or calls itself,
// for attributes of the wrong kind, and for results of other types than the op gives;
// NOT_IMPLEMENTED, with the op's name, for an op, a type or a sharding that Tessera lacks; and an
// op's own errors.
absl::StatusOr<Program> ImportProgram(const Artifact& artifact);

// Like ImportProgram, for a caller that keeps pending sums as they are and runs callbacks. Custom
// calls of kHostCallback become `calls`, or ir::DebugPrint with the call's backend_config as its
// format. The resulting program must not be sent.
absl::StatusOr<HostProgram> ImportForHost(const Artifact& artifact);

// Returns the ids of the artifact's devices in the program's mesh, row-major, or an empty list if
// the ids are 0, 1, 2, ... in this order. Errors are those of ImportProgram that concern meshes.
absl::StatusOr<std::vector<int64_t>> DevicesOfMesh(const Artifact& artifact);

}  // namespace tessera::ir::stablehlo
