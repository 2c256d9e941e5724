// Ordered sets and maps of ids, made for sets that usually hold one or two ids and then allocate no
// memory. Inserting at the end and erasing at the front are fast, because ids are mostly used in
// the order in which they were assigned. Elsewhere these calls take time in proportion to the
// distance to the nearer end.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace tessera::server::scheduler {

// The common base of IdSet and IdMap. The functions do what the functions of std::set and std::map
// do. Iterators are valid until the next change.
template <class Entry, size_t kInlined>
class SortedById {
 public:
  using const_iterator = const Entry*;
  const_iterator begin() const { return entries_.data() + free_at_front_; }
  const_iterator end() const { return entries_.data() + entries_.size(); }
  // Requires: the container is not empty.
  const Entry& back() const { return entries_.back(); }
  size_t size() const { return entries_.size() - free_at_front_; }
  bool empty() const { return size() == 0; }
  const_iterator lower_bound(uint64_t id) const {
    return std::lower_bound(begin(), end(), id,
                            [](const Entry& a, uint64_t b) { return IdOf(a) < b; });
  }
  const_iterator find(uint64_t id) const {
    const const_iterator at = lower_bound(id);
    return at == end() || IdOf(*at) != id ? end() : at;
  }
  size_t count(uint64_t id) const { return find(id) == end() ? 0 : 1; }
  void clear() {
    entries_.clear();
    free_at_front_ = 0;
  }
  // Returns the number of erased entries.
  size_t erase(uint64_t id) {
    if (empty()) return 0;
    const const_iterator found = find(id);
    if (found == end()) return 0;
    Entry* const at = entries_.data() + (found - entries_.data());
    if (end() - at <= at - begin()) {
      entries_.erase(at);
      return 1;
    }
    std::move_backward(entries_.data() + free_at_front_, at, at + 1);
    // The free places at the front are given up once half of all places are free.
    if (2 * ++free_at_front_ < entries_.size()) return 1;
    entries_.erase(entries_.begin(),
                   entries_.begin() + static_cast<std::ptrdiff_t>(free_at_front_));
    free_at_front_ = 0;
    return 1;
  }
  friend bool operator==(const SortedById& a, const SortedById& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 protected:
  // Returns the entry of this id; inserts it if there is none.
  Entry& FindOrInsert(const Entry& entry) {
    const const_iterator found = lower_bound(IdOf(entry));
    Entry* const at = entries_.data() + (found - entries_.data());
    if (found != end() && IdOf(*found) == IdOf(entry)) return *at;
    if (free_at_front_ > 0 && found - begin() < end() - found) {
      std::move(entries_.data() + free_at_front_, at, entries_.data() + free_at_front_ - 1);
      --free_at_front_;
      return at[-1] = entry;
    }
    return *entries_.insert(at, entry);
  }

 private:
  static_assert(std::is_trivially_copyable_v<Entry> || std::is_trivially_destructible_v<Entry>);
  static uint64_t IdOf(uint64_t entry) { return entry; }
  template <class Value>
  static uint64_t IdOf(const std::pair<uint64_t, Value>& entry) {
    return entry.first;
  }

  absl::InlinedVector<Entry, kInlined> entries_;
  size_t free_at_front_ = 0;  // number of free places at the front
};

class IdSet : public SortedById<uint64_t, 2> {
 public:
  // Returns whether the id was not in the set.
  bool insert(uint64_t id) {
    const size_t before = size();
    FindOrInsert(id);
    return size() > before;
  }
};

template <class Value>
class IdMap : public SortedById<std::pair<uint64_t, Value>, 1> {
 public:
  IdMap() = default;
  IdMap(std::initializer_list<std::pair<uint64_t, Value>> entries) {
    for (const auto& [id, value] : entries) (*this)[id] = value;
  }
  Value& operator[](uint64_t id) { return this->FindOrInsert({id, Value()}).second; }
};

}  // namespace tessera::server::scheduler
