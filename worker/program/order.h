// An incremental topological order: a growing set of nodes with edges, and a total order that
// agrees with them, so that questions about nodes near each other are cheap.
//
// Reference: Pearce and Kelly, A dynamic topological sort algorithm for directed acyclic graphs.
// Value semantics; thread-compatible.
#pragma once
#include <cstdint>
#include <set>
#include <vector>

namespace tessera::worker::program {

class PartialOrder {
 public:
  // A node, before all others in the total order.
  int AddFirst();
  int size() const { return static_cast<int>(nodes_.size()); }

  // Requires: `second` does not precede `first`.
  void Before(int first, int second);
  // Whether `first` must come before `second`. May answer true wrongly if the search takes too
  // long.
  bool Precedes(int first, int second) const;
  // The two become one, `into`. Requires: neither precedes the other.
  void Merge(int from, int into);

  const std::set<int>& next(int node) const { return nodes_[node].next; }

 private:
  struct Node {
    int64_t position = 0;
    std::set<int> next, previous;
  };

  std::vector<Node> nodes_;
  int64_t first_ = 0;
};

}  // namespace tessera::worker::program
