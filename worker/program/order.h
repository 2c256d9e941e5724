// An incremental topological order: a growing graph, and a total order that agrees with its edges.
// To decide whether one node precedes another, it searches the nodes that lie between the two in
// the total order.
//
// Reference: Pearce and Kelly, A dynamic topological sort algorithm for directed acyclic graphs.
// Value semantics; thread-compatible.
#pragma once
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace tessera::worker::program {

class PartialOrder {
 public:
  // Adds a node before all others in the total order, and returns its number.
  int AddFirst();
  int size() const { return static_cast<int>(nodes_.size()); }

  // Makes `first` precede `second`. Requires that `second` does not precede `first`.
  void AddEdge(int first, int second);
  // Returns whether there is a path from `first` to `second`. May wrongly return true if the search
  // would take too long.
  bool Precedes(int first, int second) const;
  // Moves the edges of `from` to `into`. Requires that neither precedes the other.
  void Merge(int from, int into);

  const std::set<int>& next(int node) const { return nodes_[node].next; }

 private:
  struct Node {
    int64_t position = 0;
    std::set<int> next, previous;
    mutable int64_t last_search = 0;  // the number of the last search that visited the node
  };
  // Marks the node as visited by this search. Returns whether the search had not visited it before.
  bool MarkVisited(int node, int64_t search) const {
    return std::exchange(nodes_[node].last_search, search) != search;
  }

  std::vector<Node> nodes_;
  int64_t first_position_ = 0;
  mutable int64_t num_searches_ = 0;
};

}  // namespace tessera::worker::program
