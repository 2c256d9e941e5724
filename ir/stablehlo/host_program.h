// A program for the process that wrote the artifact. That process keeps pending sums as they are,
// and runs callbacks. ImportForHost makes such a program. Plain data.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/program.h"
#include "ir/stablehlo/other_placement.h"

namespace tessera::ir::stablehlo {

// The target of the custom calls that call the host.
inline constexpr std::string_view kHostCallback = "tessera.host_callback";

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

}  // namespace tessera::ir::stablehlo
