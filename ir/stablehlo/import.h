// A StableHLO artifact as a program: each of its ops becomes the op of the same name, or those that
// do the same.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "ir/stablehlo/artifact.h"
#include "ir/stablehlo/elsewhere.h"

namespace tessera::ir::stablehlo {

// The artifact's function "main", at logical types.  Ops carry the file and line that the artifact
// gives, arguments and results their names there, and the entry the module's.
//
// Shardings are those that Shardy or GSPMD say, on Auto axes of the artifact's mesh, which the
// caller may lay on any devices; an artifact of several devices without a mesh gets one whose axes
// are named axis0, axis1, ....  What runs on shards becomes a manual_computation, in which groups
// of devices are axes again.
//
// What the artifact asks for beyond the ops' results is left out: the accuracy of functions, the
// algorithm of products. A scatter drops a window that is partly outside, as XLA does; StableHLO's
// text drops its elements that are. What a window's padding holds is the initial value, as
// StableHLO's text has it; XLA leaves it out on CPUs, which differs where that value is not
// neutral.
//
// Errors: those of ReadArtifact; MALFORMED_PROGRAM for a function that is not there or calls
// itself, for attributes of the wrong kind, and for results of other types than the op gives;
// NOT_IMPLEMENTED, with the op's name, for an op, a type or a sharding that Tessera lacks; an op's
// own errors.
absl::StatusOr<Program> ImportProgram(const Artifact& artifact);

// A call of the host whose results the program goes on with. It stands in no loop, branch or
// shard_map.
struct HostCall {
  std::string name;           // the call's backend_config
  int num_operands = 0;       // they are results of the program
  std::vector<Type> results;  // they are params of it
};

// A program that the process which wrote the artifact runs.
struct HostProgram {
  Program program;
  // In their order. Their operands are the last results of the program, and their results its last
  // params; operands of one depend on results of those before it only.
  std::vector<HostCall> calls;
  // The axes of the mesh along which each argument and each result is a pending sum ("unreduced"),
  // as the artifact says.  ImportProgram takes such a value for the sum, and leaves to the planner
  // where it lies; here it lies as the artifact says along the other axes, and is whole along
  // these.
  std::vector<AxisList> in_sums, out_sums;
  // By argument: of one that lies elsewhere, as "device_put" between meshes has it, the program
  // takes a copy, which lies where the plan says.  ImportProgram refuses such arguments; such
  // results are refused by both.
  std::vector<std::optional<Elsewhere>> in_elsewhere;
  std::vector<std::string> callbacks;  // those that it calls, each once
  // Those with results that stand in a loop, a branch or a shard_map, where the program goes on
  // with NaN, on which loops end, and with zeros in place of integers. They are called like those
  // without results, and a run is as it should be if they fail, which is then how it ends, or
  // return that.
  std::vector<HostCall> late;
};
// ImportProgram for who keeps terms and runs callbacks: custom calls of kHostCallback are those of
// `calls`, or ir::DebugPrint, whose format is the call's backend_config. Such a program is not to
// be sent.
inline constexpr std::string_view kHostCallback = "tessera.host_callback";
absl::StatusOr<HostProgram> ImportForHost(const Artifact& artifact);

// Which of the artifact's devices is at each place of the program's mesh, row-major; empty: each is
// at its own. Errors: those of ImportProgram that are about meshes.
absl::StatusOr<std::vector<int64_t>> DevicesOfMesh(const Artifact& artifact);

}  // namespace tessera::ir::stablehlo
