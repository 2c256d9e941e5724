// Turns a computation of scalars into one scalar graph by inlining its ops. Workers compile
// reductions and scatters by a computation from such graphs, and the planner weighs them.
#include "ir/derive/computation_graph.h"

#include <algorithm>
#include <utility>

#include "ir/derive/factors.h"
#include "ir/op_def.h"

namespace tessera::ir {
namespace {

// Bounds on a computation. kNodesMax bounds its graph, since it may be compiled several times into
// one kernel. kOpsMax bounds the ops that are inlined, most of which add no node.
constexpr size_t kNodesMax = 128;
constexpr int kOpsMax = 1024;
// kResultsMax bounds the results, because a kernel has several params for each result.
constexpr size_t kResultsMax = 8;

class Inliner {
 public:
  // Appends the nodes for the results of `f` on these arguments. Returns false if `f` has no scalar
  // form.
  bool Inline(const Function& f, const std::vector<int>& args, std::vector<int>* results) {
    std::vector<int> env(f.types.size(), -1);
    std::copy(args.begin(), args.end(), env.begin());
    for (const Op& op : f.ops) {
      const std::vector<int> in = ElementsAt(env, op.operands);
      std::vector<int> out;
      if (++ops_ > kOpsMax || !RunOp(f, op, in, &out) || graph_.nodes.size() > kNodesMax)
        return false;
      for (size_t r = 0; r < out.size(); ++r) env[op.results[r]] = out[r];
    }
    *results = ElementsAt(env, f.results);
    return true;
  }
  int Input(int param, DType dtype) {
    return graph_.Add(ScalarPrim::kInput, dtype, {}, static_cast<double>(param));
  }
  ScalarGraph BuildGraph(std::vector<int> roots) {
    graph_.roots = std::move(roots);
    return Canonical(graph_);
  }

 private:
  bool RunOp(const Function& f, const Op& op, const std::vector<int>& in, std::vector<int>* out) {
    switch (op.def->lowering) {
      case Lowering::kAlias:
      case Lowering::kBarrier:
        *out = in;
        return true;
      case Lowering::kScalar:
        return RunScalar(f, op, in, out);
      case Lowering::kIndexMap:
        return RunIndexMap(f, op, in, out);
      case Lowering::kRegion:
        return RunCall(f, op, in, out);
      default:
        return false;
    }
  }

  bool RunScalar(const Function& f, const Op& op, const std::vector<int>& in,
                 std::vector<int>* out) {
    const ScalarGraph body = op.def->scalar.record(op.attrs, f.type(op.operands.back()).dtype,
                                                   f.type(op.results[0]).dtype);
    if (!HasKernels(body)) return false;
    std::vector<int> added;
    for (ScalarNode node : body.nodes) {
      if (node.prim == ScalarPrim::kInput) {
        added.push_back(in[static_cast<int>(node.value)]);
        continue;
      }
      for (int& arg : node.args) arg = added[arg];
      graph_.nodes.push_back(std::move(node));
      added.push_back(static_cast<int>(graph_.nodes.size()) - 1);
    }
    *out = ElementsAt(added, body.roots);
    return true;
  }

  // On scalars, an index map is an operand itself or a constant.
  bool RunIndexMap(const Function& f, const Op& op, const std::vector<int>& in,
                   std::vector<int>* out) {
    const std::vector<Type> types = ElementsAt(f.types, op.operands);
    const IndexMap map = op.def->index_map({*op.def, f.scope, types, op.attrs, op.regions},
                                           ElementsAt(f.types, op.results));
    if (map.pieces.size() != 1 || map.indexes_complex_parts) return false;
    const IndexPiece& piece = map.pieces[0];
    if (!piece.read.empty() || !piece.write.empty() || piece.fills) return false;
    if (piece.source >= 0) {
      *out = {in[piece.source]};
      return true;
    }
    const DType dtype = f.type(op.results[0]).dtype;
    if (piece.source != IndexPiece::kLiteral || !IsComputable(dtype)) return false;
    const DType computed = ComputeDType(dtype);
    int node = IsFloat(dtype)
                   ? graph_.Add(ScalarPrim::kConstant, computed, {}, map.literal->At(0))
                   : graph_.Add(ScalarPrim::kConstant, computed, {}, 0, map.literal->IntAt(0));
    if (computed != dtype) node = graph_.Add(ScalarPrim::kConvert, dtype, {node});
    *out = {node};
    return true;
  }

  bool RunCall(const Function& f, const Op& op, const std::vector<int>& in, std::vector<int>* out) {
    const DataFlow flow = DataFlowOf(f, op);
    if (!IsCall(*op.def, flow)) return false;
    const Function& body = *op.regions[0];
    std::vector<int> args(body.num_params, -1), inner;
    for (const DataFlowEdge& edge : flow.regions[0].operands) args[edge.inner] = in[edge.outer];
    if (!Inline(body, args, &inner)) return false;
    out->assign(op.results.size(), -1);
    for (const DataFlowEdge& edge : flow.regions[0].results) (*out)[edge.outer] = inner[edge.inner];
    return true;
  }

  ScalarGraph graph_;
  int ops_ = 0;
};

}  // namespace

bool HasComputation(const OpDef& def) {
  return !def.regions.empty() && def.regions[0] == RegionRole::kComputation;
}

bool IsCall(const OpDef& def, const DataFlow& flow) {
  const auto has_leading_dim = [](const DataFlowEdge& edge) { return edge.leading_dim; };
  const RegionDataFlow& edges = flow.regions[0];
  return def.RoleOf(0) == RegionRole::kBody && flow.manual_axes.empty() && flow.trip_count == 1 &&
         edges.carries.empty() &&
         std::none_of(edges.operands.begin(), edges.operands.end(), has_leading_dim) &&
         std::none_of(edges.results.begin(), edges.results.end(), has_leading_dim);
}

std::optional<ScalarGraph> GraphOf(const Function& f) {
  Inliner inliner;
  std::vector<int> params, roots;
  if (f.results.size() > kResultsMax) return std::nullopt;
  for (int i = 0; i < f.num_params; ++i) {
    if (!IsComputable(f.types[i].dtype)) return std::nullopt;
    params.push_back(inliner.Input(i, f.types[i].dtype));
  }
  if (!inliner.Inline(f, params, &roots)) return std::nullopt;
  return inliner.BuildGraph(std::move(roots));
}

// Weighs a primitive by the instructions that it takes: divisions and roots a few, functions many.
// Only the order of magnitude matters, since the sum is compared with the bound of a kernel's size.
int WeightOf(ScalarPrim prim) {
  constexpr int kSimple = 1, kDivision = 6, kFunction = 20;
  switch (prim) {
    case ScalarPrim::kInput:
    case ScalarPrim::kConstant:
    case ScalarPrim::kBitcast:
      return 0;
    case ScalarPrim::kDiv:
    case ScalarPrim::kRem:
    case ScalarPrim::kSqrt:
    case ScalarPrim::kRsqrt:
      return kDivision;
    case ScalarPrim::kExp:
    case ScalarPrim::kExpm1:
    case ScalarPrim::kLog:
    case ScalarPrim::kLog1p:
    case ScalarPrim::kSin:
    case ScalarPrim::kCos:
    case ScalarPrim::kTan:
    case ScalarPrim::kTanh:
    case ScalarPrim::kAtan2:
    case ScalarPrim::kPow:
    case ScalarPrim::kCbrt:
    case ScalarPrim::kErf:
      return kFunction;
    default:
      return kSimple;
  }
}

int WeightOf(const ScalarGraph& graph) {
  int weight = 0;
  for (const ScalarNode& node : graph.nodes) weight += WeightOf(node.prim);
  return weight;
}

int64_t RunLength(int64_t rows, const ScalarGraph& computation) {
  // Bounds on what one kernel reads and computes. Compile time grows with them, and registers are
  // limited.
  constexpr int64_t kReadsMax = 16, kNodesInRunMax = 112, kWeightMax = 240;
  const auto operands = static_cast<int64_t>(computation.roots.size());
  const auto nodes = static_cast<int64_t>(computation.nodes.size());
  const auto fits = [&](int64_t length) {
    return length * operands <= kReadsMax && length / 2 < rows &&
           (length - 1) * nodes <= kNodesInRunMax &&
           (length - 1) * WeightOf(computation) <= kWeightMax;
  };
  int64_t length = 2;
  while (fits(2 * length)) length *= 2;
  return length;
}

int64_t NumRuns(int64_t rows, const ScalarGraph& computation) {
  const int64_t length = RunLength(rows, computation);
  return (rows + length - 1) / length;
}

}  // namespace tessera::ir
