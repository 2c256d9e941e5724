// Calls the planner as the server does, and cuts whole arrays into the blocks that the plan
// expects. Tests of sharding and of backends (tests/ops, tests/stablehlo) run the resulting device
// program.
#include "tests/ops/planned.h"

#include "base/status_exception.h"
#include "ir/strided.h"
#include "server/planner/planner.h"

namespace tessera::ir::samples {

Array BlockOf(const Array& whole, const PartitionSpec& spec, const Mesh& mesh, int64_t device) {
  Dims start(whole.rank(), 0), shape = whole.shape();
  for (size_t d = 0; d < spec.dims.size(); ++d) {
    shape[d] /= mesh.SizeOf(spec.dims[d]);
    start[d] = mesh.IndexAlong(device, spec.dims[d]) * shape[d];
  }
  return SliceBlock(whole, start, shape);
}

Planned PlanOf(const Program& program, const std::vector<Array>& args) {
  server::core::PlanRequest request;
  request.program = program;
  request.cluster.devices.resize(program.mesh().num_devices());
  Planned out{ValueOrThrow(server::planner::MakePlan(request)), {}, {}};
  for (int64_t d = 0; d < program.mesh().num_devices(); ++d) out.devices.push_back(d);
  for (size_t i = 0; i < args.size(); ++i) {
    out.args.emplace_back();
    for (int64_t d : out.devices)
      out.args.back().push_back(BlockOf(args[i], out.plan.in[i].spec, out.plan.mesh, d));
  }
  return out;
}

}  // namespace tessera::ir::samples
