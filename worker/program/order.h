// An incremental topological order: a growing graph and a total order that agrees with its edges.
// Whether one node precedes another is decided by a search of the nodes between them.
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
  // Adds a node before all others in the total order; returns it.
  int AddFirst();
  int size() const { return static_cast<int>(nodes_.size()); }

  // Requires: `second` does not precede `first`.
  void AddEdge(int first, int second);
  // Whether there is a path from `first` to `second`. May wrongly return true where the search
  // would take too long.
  bool Precedes(int first, int second) const;
  // Moves the edges of `from` to `into`. Requires: neither precedes the other.
  void Merge(int from, int into);

  const std::set<int>& next(int node) const { return nodes_[node].next; }

 private:
  struct Node {
    int64_t position = 0;
    std::set<int> next, previous;
    mutable int64_t seen = 0;  // the last search that saw it
  };
  // Whether this search sees the node for the first time.
  bool IsNew(int node, int64_t search) const {
    return std::exchange(nodes_[node].seen, search) != search;
  }

  std::vector<Node> nodes_;
  int64_t first_ = 0;
  mutable int64_t searches_ = 0;
};

}  // namespace tessera::worker::program
