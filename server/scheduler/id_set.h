// An ordered set of ids, for sets that usually have one or two: these need no memory of their own.
// Inserting at the end and erasing at the front are fast, since ids are mostly used in the order
// given; elsewhere they take time in proportion to the ids behind the place.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"

namespace tessera::server::scheduler {

class IdSet {
 public:
  auto begin() const { return ids_.begin() + erased_; }
  auto end() const { return ids_.end(); }
  size_t size() const { return ids_.size() - erased_; }
  bool empty() const { return size() == 0; }
  size_t count(uint64_t id) const { return std::binary_search(begin(), end(), id); }
  void insert(uint64_t id) {
    const auto at = std::lower_bound(begin(), end(), id);
    if (at != end() && *at == id) return;
    if (at == begin() && erased_ > 0) {
      ids_[--erased_] = id;
    } else {
      ids_.insert(at, id);
    }
  }
  void clear() {
    ids_.clear();
    erased_ = 0;
  }
  void erase(uint64_t id) {
    const auto at = std::lower_bound(begin(), end(), id);
    if (at == end() || *at != id) return;
    if (at != begin()) {
      ids_.erase(at);
      return;
    }
    // Its place is given up once half of the places are.
    if (2 * ++erased_ < ids_.size()) return;
    ids_.erase(ids_.begin(), begin());
    erased_ = 0;
  }

 private:
  absl::InlinedVector<uint64_t, 2> ids_;
  size_t erased_ = 0;  // places at the front
};

}  // namespace tessera::server::scheduler
