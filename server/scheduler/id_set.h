// An ordered set of ids, for sets that usually have one or two: these need no memory of their own.
// Inserting and erasing take time in proportion to the ids behind the place.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"

namespace tessera::server::scheduler {

class IdSet {
 public:
  auto begin() const { return ids_.begin(); }
  auto end() const { return ids_.end(); }
  size_t size() const { return ids_.size(); }
  bool empty() const { return ids_.empty(); }
  size_t count(uint64_t id) const { return std::binary_search(ids_.begin(), ids_.end(), id); }
  void insert(uint64_t id) {
    const auto at = std::lower_bound(ids_.begin(), ids_.end(), id);
    if (at == ids_.end() || *at != id) ids_.insert(at, id);
  }
  void erase(uint64_t id) {
    const auto at = std::lower_bound(ids_.begin(), ids_.end(), id);
    if (at != ids_.end() && *at == id) ids_.erase(at);
  }

 private:
  absl::InlinedVector<uint64_t, 2> ids_;
};

}  // namespace tessera::server::scheduler
