// Builds a scalar graph (ir/scalar_graph.h). The functions add nodes and return the numbers of
// these. Value semantics; thread-compatible.
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
  // Combines `x` and `y`, which have the same dtype. Computes in the compute type of this dtype
  // (ir::ComputeDType), and converts the result back to the dtype.
  int Combine(ir::ReduceKind kind, int x, int y);
  // Returns a bool node: whether `node`, a number of any integer dtype, is in [0, max] and the bool
  // node `and_also` is true. If `and_also` is -1, only the number is tested. The number is
  // converted to s64. A u64 that is too large for an s64 becomes negative, and therefore counts as
  // outside.
  int AndInside(int and_also, int node, int64_t max);
  // Adds the nodes of `graph`, with node args[i] for its input i. Returns the nodes of its roots.
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
