#include "worker/memory/memory_account.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
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

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  Release();
  account_ = std::exchange(other.account_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  holder_ = std::move(other.holder_);
  return *this;
}

void Reservation::Release() {
  if (account_ == nullptr) return;
  absl::MutexLock lock(&account_->mu_);
  account_->Add(holder_, -bytes_);
  account_ = nullptr;
  bytes_ = 0;
}

Reservation Reservation::Split(int64_t bytes, std::string holder) {
  TESSERA_CHECK(bytes >= 0 && bytes <= bytes_) << "bytes=" << bytes << " of " << bytes_;
  Reservation part;
  if (account_ == nullptr) return part;
  absl::MutexLock lock(&account_->mu_);
  account_->Add(holder_, -bytes);
  account_->Add(holder, bytes);
  bytes_ -= bytes;
  part.account_ = account_;
  part.bytes_ = bytes;
  part.holder_ = std::move(holder);
  return part;
}

absl::StatusOr<Reservation> MemoryAccount::Reserve(int64_t bytes, std::string holder) {
  TESSERA_CHECK_GE(bytes, 0);
  absl::MutexLock lock(&mu_);
  if (bytes > capacity_bytes_ - used_bytes_) {
    return MakeError(ErrorKind::kOutOfMemory, OutOfMemoryMessage(bytes, holder));
  }
  Add(holder, bytes);
  Reservation reservation;
  reservation.account_ = this;
  reservation.bytes_ = bytes;
  reservation.holder_ = std::move(holder);
  return reservation;
}

void MemoryAccount::Add(const std::string& holder, int64_t bytes) {
  used_bytes_ += bytes;
  reserved_.Add(bytes);
  (absl::StartsWith(holder, "array ") ? arrays_ : workspace_).Add(bytes);
  if (used_bytes_ > peak_bytes_) {
    peak_.Add(used_bytes_ - peak_bytes_);
    peak_bytes_ = used_bytes_;
  }
  int64_t& held = holders_[holder];
  held += bytes;
  if (held == 0) holders_.erase(holder);
}

std::string MemoryAccount::OutOfMemoryMessage(int64_t bytes, const std::string& holder) const {
  constexpr size_t kHoldersNamed = 5;
  std::vector<std::pair<int64_t, std::string>> held;
  for (const auto& [name, size] : holders_) held.emplace_back(size, name);
  std::sort(held.begin(), held.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string report =
      absl::StrCat("Out of memory on ", device_, ": ", holder, " needs ", BytesToString(bytes),
                   ", but only ", BytesToString(capacity_bytes_ - used_bytes_), " of ",
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
