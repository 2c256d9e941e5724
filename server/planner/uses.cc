// Lists the collectives and the host ops of a device program. planner.cc puts the collectives into
// the plan, explain.cc prints both lists, and cost.cc uses BytesSent.
#include "server/planner/uses.h"

#include <algorithm>
#include <utility>

#include "absl/functional/function_ref.h"
#include "ir/derive/computation_graph.h"
#include "ir/derive/factors.h"
#include "ir/derive/scan_size.h"
#include "ir/op_def.h"
#include "server/planner/bytes.h"

namespace tessera::server::planner {
namespace {

// Calls visit(function, index of the op, number of runs) for every op. Ops of regions come before
// the op that has the regions. The body of a loop whose number of iterations is unknown counts as
// run once each time that the loop runs. All branches count, as if each of them ran.
using Visit = absl::FunctionRef<void(const ir::Function& f, size_t i, int64_t runs)>;
void ForEachOp(const ir::Function& f, int64_t runs, Visit visit) {
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const ir::Op& op = f.ops[i];
    if (op.def->data_flow) {
      const int64_t trips = ir::DataFlowOf(f, op).trip_count;
      for (const ir::FunctionRef& region : op.regions)
        ForEachOp(*region, trips == ir::kUnknownTripCount ? runs : runs * trips, visit);
    }
    visit(f, i, runs);
  }
}

bool IsScanOrScatter(const ir::Op& op) {
  return op.def->lowering == ir::Lowering::kScan || op.def->lowering == ir::Lowering::kScatter;
}

// Returns whether the op can be compiled for CPUs but not for accelerators, which leave it to their
// host.
bool IsCompiledForCpusOnly(const ir::Function& f, const ir::Op& op) {
  if (op.def->lowering == ir::Lowering::kSort) return true;
  if (!IsScanOrScatter(op)) return false;
  const ir::ScanSize size = ir::ScanSizeOf(f, op);
  return ir::HasCode(size) && !ir::IsForAccelerators(size);
}

// Returns whether the op's computation can be compiled. True if the op has no computation.
bool CanCompileComputation(const ir::Op& op) {
  return !ir::HasComputation(*op.def) || ir::GraphOf(*op.regions[0]).has_value();
}

// Returns whether the op can be compiled for every kind of device.
bool IsCompiledForAllDevices(const ir::Function& f, const ir::Op& op) {
  const ir::Lowering kind = op.def->lowering;
  if (IsScanOrScatter(op) && !ir::HasCode(ir::ScanSizeOf(f, op))) return false;
  if (kind != ir::Lowering::kScalar)
    return kind != ir::Lowering::kHost && !IsCompiledForCpusOnly(f, op) &&
           CanCompileComputation(op);
  return ir::HasKernels(op.def->scalar.record(op.attrs, f.type(op.operands.back()).dtype,
                                              f.type(op.results[0]).dtype));
}

}  // namespace

// A ppermute sends the whole shard, unless each device keeps its own. Any other collective sends
// (n-1)/n of the larger of its operands and its results. A reduction whose result is as large as
// its operand (a psum, whose result all devices receive) sends twice as much.
int64_t BytesSent(const ir::Function& f, const ir::Op& op, int64_t n) {
  int64_t in = 0, out = 0;
  for (ir::ValueId v : op.operands) in = Plus(in, f.types[v].num_bytes());
  for (ir::ValueId v : op.results) out = Plus(out, f.types[v].num_bytes());
  if (op.def->collective == ir::CollectiveKind::kPermute) {
    const std::vector<int64_t>& perm = op.attrs.Ints("perm");
    for (size_t i = 0; i + 1 < perm.size(); i += 2)
      if (perm[i] != perm[i + 1]) return in;
    return 0;
  }
  const int64_t once = Times(std::max(in, out), n - 1, n);
  return op.def->reduce != ir::ReduceKind::kNone && in == out ? Times(once, 2) : once;
}

std::vector<CollectiveUse> CollectivesOf(const ir::Function& f) {
  std::vector<CollectiveUse> uses;
  ForEachOp(f, 1, [&](const ir::Function& function, size_t i, int64_t runs) {
    const ir::Op& op = function.ops[i];
    if (op.def->lowering != ir::Lowering::kCollective || op.operands.empty()) return;
    CollectiveUse u;
    u.op = std::string(op.def->name);
    u.axes = op.attrs.Strings("axes");
    u.group = function.scope.mesh.SizeOf(u.axes);
    u.runs = runs;
    u.bytes = Times(BytesSent(function, op, u.group), runs);
    u.site = function.sites[i];
    if (u.group > 1) uses.push_back(std::move(u));
  });
  return uses;
}

std::vector<HostOp> HostOpsOf(const ir::Function& f) {
  std::vector<HostOp> ops;
  ForEachOp(f, 1, [&](const ir::Function& function, size_t i, int64_t runs) {
    const ir::Op& op = function.ops[i];
    if (IsCompiledForAllDevices(function, op)) return;
    const bool cpu_code = IsCompiledForCpusOnly(function, op) && CanCompileComputation(op);
    HostOp host_op{std::string(op.def->name), 0, runs, function.sites[i], cpu_code};
    for (const std::vector<ir::ValueId>* values : {&op.operands, &op.results})
      for (const ir::ValueId v : *values)
        host_op.bytes = Plus(host_op.bytes, Times(function.types[v].num_bytes(), runs));
    ops.push_back(std::move(host_op));
  });
  return ops;
}

}  // namespace tessera::server::planner
