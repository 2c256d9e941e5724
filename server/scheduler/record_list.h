// A list of records in order of their ids. Removed records disappear later, several at a time, so
// that adding at the end and removing take constant time on average, however long the list is. Ids
// are mostly added in ascending order; adding elsewhere takes time in proportion to the length.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace tessera::server::scheduler {

template <class Record>
class RecordList {
 public:
  struct Entry {
    uint64_t id = 0;
    Record* record = nullptr;
  };
  size_t size() const { return entries_.size() - removed_.size(); }
  // Requires: the id is not in the list.
  void Add(uint64_t id, Record* record) {
    if (entries_.empty() || entries_.back().id < id) {
      entries_.push_back({id, record});
      return;
    }
    DropRemoved();
    const auto after = [](uint64_t a, const Entry& b) { return a < b.id; };
    entries_.insert(std::upper_bound(entries_.begin(), entries_.end(), id, after), {id, record});
  }
  // Requires: the id is in the list.
  void Remove(uint64_t id) {
    if (entries_.back().id == id) {
      entries_.pop_back();
      return;
    }
    removed_.push_back(id);
    if (2 * removed_.size() > entries_.size() + kKeptMin) DropRemoved();
  }
  // Returns the entries in ascending order. They are valid until the next call.
  const std::vector<Entry>& entries() {
    DropRemoved();
    return entries_;
  }

 private:
  static constexpr size_t kKeptMin = 16;

  void DropRemoved() {
    if (removed_.empty()) return;
    std::sort(removed_.begin(), removed_.end());
    auto removed = removed_.begin();
    const auto is_removed = [&](const Entry& entry) {
      while (removed != removed_.end() && *removed < entry.id) ++removed;
      return removed != removed_.end() && *removed == entry.id;
    };
    entries_.erase(std::remove_if(entries_.begin(), entries_.end(), is_removed), entries_.end());
    removed_.clear();
  }

  std::vector<Entry> entries_;
  std::vector<uint64_t> removed_;
};

}  // namespace tessera::server::scheduler
