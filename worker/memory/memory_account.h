// Accounts for the memory of one device: the bytes that each holder has reserved, and the free
// bytes.
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

// The name of a memory holder. The text is put together only when an error needs it: "array 7
// (train_step)" or "launch 9 of train_step".
struct MemoryHolder {
  // NOLINTNEXTLINE(google-explicit-constructor): conversion is intended
  MemoryHolder(const char* text, uint64_t number = 0,
               std::shared_ptr<const std::string> of = nullptr)
      : kind(text), is_array(kind.substr(0, 5) == "array"), id(number), program(std::move(of)) {}
  std::string ToString() const;

  std::string_view kind;                       // a constant text, for example "array"
  bool is_array;                               // whether `kind` begins with "array"
  uint64_t id;                                 // 0 if there is none
  std::shared_ptr<const std::string> program;  // null if there is none
};

class MemoryAccount;

class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { Release(); }

  int64_t bytes() const { return bytes_; }
  // Transfers `bytes`, at most bytes(), to another holder. Transferring all bytes ends this
  // reservation.
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
  // `device` names the device in messages, as "cpu:0 of w0/0".
  MemoryAccount(std::string device, int64_t capacity_bytes)
      : device_(std::move(device)), capacity_bytes_(capacity_bytes) {}

  // Reserves memory. OUT_OF_MEMORY names the device, the bytes that were asked for, the free bytes,
  // and the largest holders.
  absl::StatusOr<Reservation> Reserve(int64_t bytes, MemoryHolder holder);

  // Sets the counters that the account updates: the bytes that are reserved by all holders, by the
  // holders named "array ...", and by the other holders (workspace), and the peak of `reserved`.
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

// Formats a size, as "1.5 GiB" or "512 B".
std::string BytesToString(int64_t bytes);

}  // namespace tessera::worker
