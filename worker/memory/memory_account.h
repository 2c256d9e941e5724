// Accounts for the memory of one device: the bytes reserved by each holder, and those left.
//
// A Reservation returns its bytes to the account in its destructor. The account outlives every
// reservation. Thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/metrics.h"

namespace tessera::worker {

// Who holds memory, in words that are put together when somebody asks: "array 7 (train_step)",
// "launch 9 of train_step".
struct MemoryHolder {
  // NOLINTNEXTLINE(google-explicit-constructor): a text may stand for it
  MemoryHolder(const char* text, uint64_t number = 0,
               std::shared_ptr<const std::string> of = nullptr)
      : kind(text), is_array(kind.substr(0, 5) == "array"), id(number), program(std::move(of)) {}
  std::string ToString() const;

  std::string_view kind;                       // a constant text: "array"
  bool is_array;                               // its kind begins with "array"
  uint64_t id;                                 // 0: none
  std::shared_ptr<const std::string> program;  // null: none
};

class MemoryAccount;

class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { Release(); }

  int64_t bytes() const { return bytes_; }
  // Transfers `bytes`, at most bytes(), to another holder; with all of them, this one is over.
  Reservation Split(int64_t bytes, MemoryHolder holder);
  void Release();

 private:
  friend class MemoryAccount;
  MemoryAccount* account_ = nullptr;
  int64_t bytes_ = 0;
  uint64_t reservation_id_ = 0;  // unique in the account
};

class MemoryAccount {
 public:
  // `device` names it in messages: "cpu:0 of w0/0".
  MemoryAccount(std::string device, int64_t capacity_bytes)
      : device_(std::move(device)), capacity_bytes_(capacity_bytes) {}

  // OUT_OF_MEMORY names the device, what was asked for, what is free, and the greatest holders.
  absl::StatusOr<Reservation> Reserve(int64_t bytes, MemoryHolder holder);

  // Sets the metrics of the bytes reserved: all, those of holders named "array ...", those of other
  // holders (workspace), and the peak.
  void SetMetrics(const UpDownCounter& reserved, const UpDownCounter& arrays,
                  const UpDownCounter& workspace, const UpDownCounter& peak)
      ABSL_LOCKS_EXCLUDED(mu_);

  int64_t capacity_bytes() const { return capacity_bytes_; }
  int64_t reserved_bytes() const ABSL_LOCKS_EXCLUDED(mu_);
  int64_t peak_bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class Reservation;
  std::string OutOfMemoryMessage(int64_t bytes, const MemoryHolder& holder) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  struct Entry {
    MemoryHolder holder;
    int64_t bytes = 0;
  };
  Reservation ReserveUnchecked(int64_t bytes, MemoryHolder holder)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AdjustUsage(Entry& entry, int64_t change_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string device_;
  const int64_t capacity_bytes_;
  mutable absl::Mutex mu_;
  int64_t reserved_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t peak_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_reservation_id_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mu_);  // by reservation_id_
  UpDownCounter reserved_metric_ ABSL_GUARDED_BY(mu_), arrays_metric_ ABSL_GUARDED_BY(mu_),
      workspace_metric_ ABSL_GUARDED_BY(mu_), peak_metric_ ABSL_GUARDED_BY(mu_);
};

// "1.5 GiB", "512 B".
std::string BytesToString(int64_t bytes);

}  // namespace tessera::worker
