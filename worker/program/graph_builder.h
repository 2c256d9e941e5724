// Builds a scalar graph. It has value semantics and is thread-compatible.
#pragma once
#include <utility>
#include <vector>

#include "ir/collective.h"
#include "ir/dtype.h"
#include "ir/scalar_graph.h"

namespace tessera::worker::program {

class GraphBuilder {
 public:
  int Input(int operand, ir::DType dtype) {
    return graph_.Add(ir::ScalarPrim::kInput, dtype, {}, static_cast<double>(operand));
  }
  int Convert(int node, ir::DType to) {
    return DTypeOf(node) == to ? node : graph_.Add(ir::ScalarPrim::kConvert, to, {node});
  }
  int Select(int pred, int x, int otherwise) {
    return graph_.Add(ir::ScalarPrim::kSelect, DTypeOf(x), {pred, x, otherwise});
  }
  // Combines `x` and `y`, which have one dtype, in the compute type of that dtype, and rounds the
  // result to it.
  int Combine(ir::ReduceKind kind, int x, int y);
  // Returns a node that says whether `node` is in [0, max] and `and_also` holds. `node` is a number
  // of any integer dtype, and `and_also` is a node or -1. A u64 that is too large for an s64
  // becomes negative, and therefore counts as outside, too.
  int AndInside(int and_also, int node, int64_t max);
  // Adds `graph` with the inputs `args`, and returns its roots.
  std::vector<int> Apply(const ir::ScalarGraph& graph, const std::vector<int>& args);

  ir::ScalarGraph WithRoots(std::vector<int> nodes) && {
    graph_.roots = std::move(nodes);
    return ir::Canonical(graph_);
  }

 private:
  ir::DType DTypeOf(int node) const { return graph_.nodes[node].dtype; }

  ir::ScalarGraph graph_;
};

}  // namespace tessera::worker::program
