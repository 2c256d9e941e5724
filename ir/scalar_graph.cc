// Graphs of scalar primitives: construction, the canonical numbering, and their text. The rules of
// elementwise ops record such graphs, and the workers' code generators translate them.
#include "ir/scalar_graph.h"

#include <bit>
#include <cstdio>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status.h"

namespace tessera::ir {
namespace {

// Two nodes are equal if all their fields are equal. Constants are compared by their bits, so that
// -0 differs from 0.
using NodeKey = std::tuple<ScalarPrim, DType, std::vector<int>, uint64_t, int64_t>;
NodeKey KeyOf(const ScalarNode& n) {
  return {n.prim, n.dtype, n.args, std::bit_cast<uint64_t>(n.value), n.int_value};
}

class Renumbering {
 public:
  explicit Renumbering(const ScalarGraph& from) : from_(from), renamed_(from.nodes.size(), -1) {}

  int Visit(int id) {
    if (renamed_[id] >= 0) return renamed_[id];
    ScalarNode node = from_.nodes[id];
    for (int& arg : node.args) {
      TESSERA_CHECK(arg < id) << "scalar graph: node " << id << " uses a later node " << arg;
      arg = Visit(arg);
    }
    const auto [it, is_new] = known_.try_emplace(KeyOf(node), static_cast<int>(to_.nodes.size()));
    if (is_new) to_.nodes.push_back(std::move(node));
    return renamed_[id] = it->second;
  }
  ScalarGraph Take(std::vector<int> roots) {
    to_.roots = std::move(roots);
    return std::move(to_);
  }

 private:
  const ScalarGraph& from_;
  std::vector<int> renamed_;
  std::map<NodeKey, int> known_;
  ScalarGraph to_;
};

std::string DetailOf(const ScalarNode& n) {
  if (n.prim == ScalarPrim::kInput) return absl::StrCat(" ", static_cast<int>(n.value));
  if (n.prim != ScalarPrim::kConstant) return "";
  if (!IsFloat(n.dtype)) return absl::StrCat(" ", n.int_value);
  char text[40];
  std::snprintf(text, sizeof text, " %.17g", n.value);
  return text;
}

}  // namespace

std::string_view ScalarPrimName(ScalarPrim prim) {
  static constexpr std::string_view kNames[] = {
#define TESSERA_X(Name) #Name,
      TESSERA_SCALAR_PRIMS(TESSERA_X)
#undef TESSERA_X
  };
  return kNames[static_cast<int>(prim)];
}

ScalarGraph Canonical(const ScalarGraph& graph) {
  Renumbering renumbering(graph);
  std::vector<int> roots;
  for (int root : graph.roots) roots.push_back(renumbering.Visit(root));
  return renumbering.Take(std::move(roots));
}

int ScalarGraph::Add(ScalarPrim prim, DType dtype, std::initializer_list<int> args, double value,
                     int64_t int_value) {
  nodes.push_back({prim, dtype, args, value, int_value});
  return static_cast<int>(nodes.size()) - 1;
}

std::string ScalarGraph::ToString() const {
  const auto name = [](std::string* out, int id) { absl::StrAppend(out, "%", id); };
  std::string out;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const ScalarNode& n = nodes[i];
    absl::StrAppend(&out, "%", i, " = ", ToAbsl(ScalarPrimName(n.prim)), DetailOf(n),
                    n.args.empty() ? "" : " ", absl::StrJoin(n.args, ", ", name), " : ",
                    ToAbsl(DTypeName(n.dtype)), "\n");
  }
  absl::StrAppend(&out, "return ", absl::StrJoin(roots, ", ", name), "\n");
  return out;
}

}  // namespace tessera::ir
