// Which of a growing set of nodes must come before which, with a total order kept that agrees, so
// that asking is cheap where two are near.
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
  // Whether `first` must come before `second`; also said, wrongly, where finding out takes too
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
