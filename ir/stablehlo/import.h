// Reads a StableHLO artifact as a program: each op becomes the op of the same name, or ops that do
// the same. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "ir/stablehlo/artifact.h"
#include "ir/stablehlo/other_placement.h"

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

// A call of the host whose results the program uses. It is not inside a loop, a branch or a
// shard_map.
struct HostCall {
  std::string name;           // the call's backend_config
  int num_operands = 0;       // number of operands, which are results of the program
  std::vector<Type> results;  // types of the results, which are params of the program
};

// A program for the process that wrote the artifact. That process runs the callbacks which the
// program calls.
struct HostProgram {
  Program program;
  // The calls in their order. The operands of the calls are the last results of the program, and
  // the calls' results its last params. The operands of a call depend only on results of earlier
  // calls.
  std::vector<HostCall> calls;
  // The axes of the mesh along which each argument and each result is a pending sum ("unreduced")
  // in the artifact. ImportProgram takes such a value for the sum and leaves its position to the
  // planner. Here the value lies as the artifact says along the other axes, and is whole along
  // these axes.
  std::vector<AxisList> in_sums, out_sums;
  // One entry for each argument. It is set for an argument that lies on the program's devices in
  // another order, as "device_put" between meshes produces it; the program takes a copy, which lies
  // where the plan says. ImportProgram refuses such arguments, and both functions refuse such
  // results.
  std::vector<std::optional<OtherPlacement>> in_other_placements;
  std::vector<std::string> callbacks;  // the callbacks that the program calls, each once
  // Callbacks with results inside a loop, a branch or a shard_map. In place of their results the
  // program uses NaN, which ends loops, or zeros for integers. They are called like callbacks
  // without results. The run is right only if such a callback fails, and its error becomes the
  // run's error, or if it returns these very values.
  std::vector<HostCall> nested_calls;
};
// Like ImportProgram, for a caller that keeps the terms of sums and runs callbacks. Custom calls of
// kHostCallback become `calls`, or ir::DebugPrint with the call's backend_config as its format.
// The resulting program must not be sent.
inline constexpr std::string_view kHostCallback = "tessera.host_callback";
absl::StatusOr<HostProgram> ImportForHost(const Artifact& artifact);

// Returns the artifact's device at each place of the program's mesh, row-major; empty if each
// device is at its own place. Errors are those of ImportProgram that concern meshes.
absl::StatusOr<std::vector<int64_t>> DevicesOfMesh(const Artifact& artifact);

}  // namespace tessera::ir::stablehlo
