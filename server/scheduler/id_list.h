// A list of ids, from which those that are removed disappear later, together: adding at the end and
// removing take constant time on average, however long it is. Ids are mostly added in ascending
// order; elsewhere they take time in proportion to the length.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace tessera::server::scheduler {

class IdList {
 public:
  size_t size() const { return ids_.size() - removed_.size(); }
  // Requires: it is not there.
  void Add(uint64_t id) {
    if (ids_.empty() || ids_.back() < id) {
      ids_.push_back(id);
      return;
    }
    Settle();
    ids_.insert(std::upper_bound(ids_.begin(), ids_.end(), id), id);
  }
  // Requires: it is there.
  void Remove(uint64_t id) {
    if (ids_.back() == id) {
      ids_.pop_back();
      return;
    }
    removed_.push_back(id);
    if (2 * removed_.size() > ids_.size() + kKeptMin) Settle();
  }
  // Ascending. Valid until the next call.
  const std::vector<uint64_t>& ids() {
    Settle();
    return ids_;
  }

 private:
  static constexpr size_t kKeptMin = 16;

  void Settle() {
    if (removed_.empty()) return;
    std::sort(removed_.begin(), removed_.end());
    auto removed = removed_.begin();
    ids_.erase(std::remove_if(ids_.begin(), ids_.end(),
                              [&](uint64_t id) {
                                while (removed != removed_.end() && *removed < id) ++removed;
                                return removed != removed_.end() && *removed == id;
                              }),
               ids_.end());
    removed_.clear();
  }

  std::vector<uint64_t> ids_, removed_;
};

}  // namespace tessera::server::scheduler
