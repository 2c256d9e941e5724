// Builds the scalar graphs that lowering puts together from several parts: reductions by a
// computation, scatters, and gathers that give a fill value where an index is out of bounds. Each
// function adds nodes and returns their numbers.
#include "worker/program/graph_builder.h"

namespace tessera::worker::program {

using ir::DType;
using ir::ReduceKind;
using enum ir::ScalarPrim;

int GraphBuilder::Combine(ReduceKind kind, int x, int y) {
  const DType dtype = DTypeOf(x), computed = ir::ComputeDType(dtype);
  const bool is_bool = dtype == DType::kBool;
  const ir::ScalarPrim prim = kind == ReduceKind::kSum    ? kAdd
                              : kind == ReduceKind::kProd ? kMul
                              : kind == ReduceKind::kMax  ? (is_bool ? kOr : kMax)
                                                          : (is_bool ? kAnd : kMin);
  const int left = Convert(x, computed);
  const int right = Convert(y, computed);
  return Convert(graph_.Add(prim, computed, {left, right}), dtype);
}

int GraphBuilder::AndInside(int and_also, int node, int64_t max) {
  const int number = Convert(node, DType::kS64);
  for (const auto& [compare, bound] : {std::pair(kGe, int64_t{0}), std::pair(kLe, max)}) {
    const int limit = graph_.Add(kConstant, DType::kS64, {}, 0, bound);
    const int holds = graph_.Add(compare, DType::kBool, {number, limit});
    and_also = and_also < 0 ? holds : graph_.Add(kAnd, DType::kBool, {and_also, holds});
  }
  return and_also;
}

std::vector<int> GraphBuilder::Apply(const ir::ScalarGraph& graph, const std::vector<int>& args) {
  std::vector<int> added, roots;
  for (ir::ScalarNode node : graph.nodes) {
    if (node.prim == kInput) {
      added.push_back(args[static_cast<int>(node.value)]);
      continue;
    }
    for (int& arg : node.args) arg = added[arg];
    graph_.nodes.push_back(std::move(node));
    added.push_back(static_cast<int>(graph_.nodes.size()) - 1);
  }
  for (const int root : graph.roots) roots.push_back(added[root]);
  return roots;
}

}  // namespace tessera::worker::program
