// Defines the parts of the fixture that need the planner. They are in a file of their own, so that
// the fixture's header, like the code under test, does not include the planner.
#include "server/rpc/testing/edge.h"

#include "ir/builder.h"
#include "ir/op_def.h"
#include "ir/registry.h"
#include "server/planner/planner.h"

namespace tessera::server::rpc {

core::PlanFn PlannerOfTests() { return planner::MakePlan; }

ir::Program SurfaceTest::Product() {
  ir::Builder b({{{{"x", 4}}}, true}, "product");
  b.SetSite({"model.cc", 3});
  const ir::Value l = b.Param(ir::MakeType(ir::DType::kF32, {4, 2}));
  const ir::Value r = b.Param(ir::MakeType(ir::DType::kF32, {4, 2}));
  ir::Program p;
  p.entry = b.Build({b.Emit1(*ir::FindOp("multiply"), {l, r})});
  p.in_shardings = {ir::PartitionSpec{{{"x"}}, {}, {}, {}}, std::nullopt};
  return p;
}

}  // namespace tessera::server::rpc
