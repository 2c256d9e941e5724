// Counts the memory of one device. The executor reserves memory here for each array, launch and
// upload before it allocates anything, so that a lack of memory is an error that names the holders,
// and not a failure of the device's allocator.
#include "worker/memory/memory_account.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/status.h"

namespace tessera::worker {

std::string BytesToString(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  int unit = -1;
  while (value >= 1024 && unit < 3) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string MemoryHolder::ToString() const {
  std::string text(kind);
  if (id != 0) absl::StrAppend(&text, " ", id);
  if (program == nullptr) return text;
  return is_array ? absl::StrCat(text, " (", *program, ")") : absl::StrCat(text, " of ", *program);
}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  Release();
  account_ = std::exchange(other.account_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  reservation_id_ = other.reservation_id_;
  return *this;
}

void Reservation::Release() {
  if (account_ == nullptr) return;
  absl::MutexLock lock(&account_->mu_);
  const auto entry = account_->entries_.find(reservation_id_);
  account_->AdjustUsage(entry->second, -bytes_);
  account_->entries_.erase(entry);
  account_ = nullptr;
  bytes_ = 0;
}

Reservation Reservation::Split(int64_t bytes, MemoryHolder holder) {
  TESSERA_CHECK(bytes >= 0 && bytes <= bytes_) << "bytes=" << bytes << " of " << bytes_;
  if (account_ == nullptr) return {};
  absl::MutexLock lock(&account_->mu_);
  MemoryAccount::Entry& entry = account_->entries_.find(reservation_id_)->second;
  account_->AdjustUsage(entry, -bytes);
  if (bytes < bytes_) {
    bytes_ -= bytes;
    return account_->ReserveUnchecked(bytes, std::move(holder));
  }
  entry.holder = std::move(holder);
  account_->AdjustUsage(entry, bytes);
  return std::move(*this);
}

absl::StatusOr<Reservation> MemoryAccount::Reserve(int64_t bytes, MemoryHolder holder) {
  TESSERA_CHECK_GE(bytes, 0);
  absl::MutexLock lock(&mu_);
  if (bytes > capacity_bytes_ - reserved_bytes_) {
    return MakeError(ErrorKind::kOutOfMemory, OutOfMemoryMessage(bytes, holder));
  }
  return ReserveUnchecked(bytes, std::move(holder));
}

Reservation MemoryAccount::ReserveUnchecked(int64_t bytes, MemoryHolder holder) {
  Reservation reservation;
  reservation.account_ = this;
  reservation.bytes_ = bytes;
  reservation.reservation_id_ = ++last_reservation_id_;
  Entry& entry = entries_.try_emplace(last_reservation_id_, Entry{std::move(holder)}).first->second;
  AdjustUsage(entry, bytes);
  return reservation;
}

void MemoryAccount::AdjustUsage(Entry& entry, int64_t change_bytes) {
  entry.bytes += change_bytes;
  reserved_bytes_ += change_bytes;
  reserved_metric_.Add(change_bytes);
  (entry.holder.is_array ? arrays_metric_ : workspace_metric_).Add(change_bytes);
  if (reserved_bytes_ > peak_bytes_) {
    peak_metric_.Add(reserved_bytes_ - peak_bytes_);
    peak_bytes_ = reserved_bytes_;
  }
}

std::string MemoryAccount::OutOfMemoryMessage(int64_t bytes, const MemoryHolder& holder) const {
  constexpr size_t kHoldersListedMax = 5;
  std::map<std::string, int64_t> bytes_by_holder;
  for (const auto& [id, entry] : entries_)
    if (entry.bytes > 0) bytes_by_holder[entry.holder.ToString()] += entry.bytes;
  std::vector<std::pair<int64_t, std::string>> largest;
  for (const auto& [name, size] : bytes_by_holder) largest.emplace_back(size, name);
  std::stable_sort(largest.begin(), largest.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string report = absl::StrCat("Out of memory on ", device_, ": ", holder.ToString(),
                                    " needs ", BytesToString(bytes), ", but only ",
                                    BytesToString(capacity_bytes_ - reserved_bytes_), " of ",
                                    BytesToString(capacity_bytes_), " is free.");
  for (size_t i = 0; i < std::min(largest.size(), kHoldersListedMax); ++i) {
    absl::StrAppend(&report, i == 0 ? " Held: " : ", ", largest[i].second, " ",
                    BytesToString(largest[i].first));
  }
  if (largest.size() > kHoldersListedMax)
    absl::StrAppend(&report, " and ", largest.size() - kHoldersListedMax, " more");
  return absl::StrCat(report, largest.empty() ? "" : ".",
                      " Delete arrays, donate arguments or shard further.");
}

void MemoryAccount::SetMetrics(const UpDownCounter& reserved, const UpDownCounter& arrays,
                               const UpDownCounter& workspace, const UpDownCounter& peak) {
  absl::MutexLock lock(&mu_);
  reserved_metric_ = reserved;
  arrays_metric_ = arrays;
  workspace_metric_ = workspace;
  peak_metric_ = peak;
}

int64_t MemoryAccount::reserved_bytes() const {
  absl::MutexLock lock(&mu_);
  return reserved_bytes_;
}

int64_t MemoryAccount::peak_bytes() const {
  absl::MutexLock lock(&mu_);
  return peak_bytes_;
}

}  // namespace tessera::worker
