// Keeps the nodes of Fuse (fuse.cc) in a total order while edges are added. A new edge that
// contradicts the order moves only the nodes between its ends, so fusion of a large program does
// not sort all nodes again for each edge.
#include "worker/program/order.h"

#include <algorithm>

#include "base/log.h"

namespace tessera::worker::program {
namespace {

constexpr size_t kSearchMax = 4096;  // largest number of nodes that Precedes visits

}  // namespace

int PartialOrder::AddFirst() {
  nodes_.push_back({--first_position_, {}, {}, 0});
  return size() - 1;
}

bool PartialOrder::Precedes(int first, int second) const {
  const int64_t end = nodes_[second].position;
  if (nodes_[first].position >= end) return false;
  std::vector<int> stack = {first};
  const int64_t search = ++num_searches_;
  size_t num_seen = 0;
  while (!stack.empty()) {
    const int node = stack.back();
    stack.pop_back();
    for (int next : nodes_[node].next) {
      if (next == second) return true;
      if (nodes_[next].position >= end || !MarkVisited(next, search)) continue;
      ++num_seen;
      stack.push_back(next);
    }
    if (num_seen > kSearchMax) return true;
  }
  return false;
}

// Adds an edge, and repairs the total order if the edge contradicts it. Only nodes between the two
// ends can be affected. A path from `second` to `first` would make a cycle, which the callers rule
// out by Precedes, so it is a bug.
void PartialOrder::AddEdge(int first, int second) {
  if (!nodes_[first].next.insert(second).second) return;
  nodes_[second].previous.insert(first);
  const int64_t low = nodes_[second].position, high = nodes_[first].position;
  if (high < low) return;
  // The successors of `second` and the predecessors of `first` that lie between the two in the
  // total order exchange their positions.
  std::vector<int> after = {second}, before = {first};
  const int64_t search = ++num_searches_;
  MarkVisited(first, search);
  MarkVisited(second, search);
  for (size_t i = 0; i < after.size(); ++i)
    for (int node : nodes_[after[i]].next) {
      TESSERA_CHECK(node != first) << "steps wait for each other";
      if (nodes_[node].position <= high && MarkVisited(node, search)) after.push_back(node);
    }
  for (size_t i = 0; i < before.size(); ++i)
    for (int node : nodes_[before[i]].previous)
      if (nodes_[node].position >= low && MarkVisited(node, search)) before.push_back(node);
  const auto by_position = [this](int a, int b) { return nodes_[a].position < nodes_[b].position; };
  std::sort(after.begin(), after.end(), by_position);
  std::sort(before.begin(), before.end(), by_position);
  std::vector<int> all = before;
  all.insert(all.end(), after.begin(), after.end());
  std::vector<int64_t> positions;
  for (int node : all) positions.push_back(nodes_[node].position);
  std::sort(positions.begin(), positions.end());
  for (size_t i = 0; i < all.size(); ++i) nodes_[all[i]].position = positions[i];
}

void PartialOrder::Merge(int from, int into) {
  const Node gone = std::move(nodes_[from]);
  nodes_[from] = {gone.position, {}, {}, 0};
  for (int node : gone.next) {
    nodes_[node].previous.erase(from);
    AddEdge(into, node);
  }
  for (int node : gone.previous) {
    nodes_[node].next.erase(from);
    AddEdge(node, into);
  }
}

}  // namespace tessera::worker::program
