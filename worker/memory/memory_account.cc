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
  return is_array() ? absl::StrCat(text, " (", *program, ")")
                    : absl::StrCat(text, " of ", *program);
}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  Release();
  account_ = std::exchange(other.account_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  number_ = other.number_;
  return *this;
}

void Reservation::Release() {
  if (account_ == nullptr) return;
  absl::MutexLock lock(&account_->mu_);
  const auto held = account_->held_.find(number_);
  account_->Add(held->second, -bytes_);
  account_->held_.erase(held);
  account_ = nullptr;
  bytes_ = 0;
}

Reservation Reservation::Split(int64_t bytes, MemoryHolder holder) {
  TESSERA_CHECK(bytes >= 0 && bytes <= bytes_) << "bytes=" << bytes << " of " << bytes_;
  if (account_ == nullptr) return {};
  absl::MutexLock lock(&account_->mu_);
  account_->Add(account_->held_.find(number_)->second, -bytes);
  bytes_ -= bytes;
  return account_->Make(bytes, std::move(holder));
}

absl::StatusOr<Reservation> MemoryAccount::Reserve(int64_t bytes, MemoryHolder holder) {
  TESSERA_CHECK_GE(bytes, 0);
  absl::MutexLock lock(&mu_);
  if (bytes > capacity_bytes_ - used_bytes_) {
    return MakeError(ErrorKind::kOutOfMemory, OutOfMemoryMessage(bytes, holder));
  }
  return Make(bytes, std::move(holder));
}

Reservation MemoryAccount::Make(int64_t bytes, MemoryHolder holder) {
  Reservation reservation;
  reservation.account_ = this;
  reservation.bytes_ = bytes;
  reservation.number_ = ++last_number_;
  Add(held_.try_emplace(last_number_, Held{std::move(holder)}).first->second, bytes);
  return reservation;
}

void MemoryAccount::Add(Held& held, int64_t bytes) {
  held.bytes += bytes;
  used_bytes_ += bytes;
  reserved_.Add(bytes);
  (held.holder.is_array() ? arrays_ : workspace_).Add(bytes);
  if (used_bytes_ > peak_bytes_) {
    peak_.Add(used_bytes_ - peak_bytes_);
    peak_bytes_ = used_bytes_;
  }
}

std::string MemoryAccount::OutOfMemoryMessage(int64_t bytes, const MemoryHolder& holder) const {
  constexpr size_t kHoldersNamed = 5;
  std::map<std::string, int64_t> holders;
  for (const auto& [number, one] : held_)
    if (one.bytes > 0) holders[one.holder.ToString()] += one.bytes;
  std::vector<std::pair<int64_t, std::string>> held;
  for (const auto& [name, size] : holders) held.emplace_back(size, name);
  std::stable_sort(held.begin(), held.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string report = absl::StrCat("Out of memory on ", device_, ": ", holder.ToString(),
                                    " needs ", BytesToString(bytes), ", but only ",
                                    BytesToString(capacity_bytes_ - used_bytes_), " of ",
                                    BytesToString(capacity_bytes_), " is free.");
  for (size_t i = 0; i < std::min(held.size(), kHoldersNamed); ++i) {
    absl::StrAppend(&report, i == 0 ? " Held: " : ", ", held[i].second, " ",
                    BytesToString(held[i].first));
  }
  if (held.size() > kHoldersNamed)
    absl::StrAppend(&report, " and ", held.size() - kHoldersNamed, " more");
  return absl::StrCat(report, held.empty() ? "" : ".",
                      " Delete arrays, donate arguments or shard further.");
}

void MemoryAccount::SetMetrics(const UpDownCounter& reserved, const UpDownCounter& arrays,
                               const UpDownCounter& workspace, const UpDownCounter& peak) {
  absl::MutexLock lock(&mu_);
  reserved_ = reserved;
  arrays_ = arrays;
  workspace_ = workspace;
  peak_ = peak;
}

int64_t MemoryAccount::used_bytes() const {
  absl::MutexLock lock(&mu_);
  return used_bytes_;
}

int64_t MemoryAccount::peak_bytes() const {
  absl::MutexLock lock(&mu_);
  return peak_bytes_;
}

}  // namespace tessera::worker
