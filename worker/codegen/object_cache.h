// A cache of compiled objects on disk, so that a restarted process need not compile again.
//
// The cache is a directory with one file per entry, which any number of processes share. An entry
// appears by rename and is verified by a digest when it is read, so a damaged entry is a miss. If
// the entries exceed the size limit, the least recently used ones are removed. If the directory is
// unusable (no permission, disk full, owned by another user), the cache logs that once and stays
// empty. Thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::worker::codegen {

class ObjectCache {
 public:
  // Creates the directory and its parents when the cache is first used. With an empty `folder` the
  // cache stays empty.
  ObjectCache(std::string folder, int64_t bytes_max);
  ObjectCache(const ObjectCache&) = delete;
  ObjectCache& operator=(const ObjectCache&) = delete;

  // Get returns the object of a key, or nullopt. Put adds an object. `key` is in lower-case hex.
  std::optional<std::string> Get(const std::string& key);
  void Put(const std::string& key, std::string_view object);

  // The exclusive right to compile the object of a key, held from LockKey to the destructor.
  class KeyLock {
   public:
    KeyLock(KeyLock&& other) noexcept;
    KeyLock& operator=(KeyLock&&) = delete;
    ~KeyLock();

   private:
    friend class ObjectCache;
    KeyLock(ObjectCache* cache, std::string key) : cache_(cache), key_(std::move(key)) {}

    ObjectCache* cache_;  // null if moved from
    std::string key_;
    int fd_ = -1;  // descriptor of the locked file, or -1
  };
  // Waits while another caller holds the lock of this key. Waits for callers in this process until
  // `deadline`, and then returns COMPILE_TIMEOUT with `label`. Waits for other processes for at
  // most half a minute, since they may hang, and then goes on without their lock. Afterwards the
  // caller must look whether the object has been cached meanwhile.
  absl::StatusOr<KeyLock> LockKey(const std::string& key, absl::Time deadline,
                                  const std::string& label) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::string EntryPathOf(const std::string& key) const { return folder_ + "/" + key + ".o"; }
  std::string LockPathOf(const std::string& key) const { return folder_ + "/" + key + ".lock"; }
  // Creates and checks the directory at the first call. Returns whether it can be used.
  bool EnsureUsable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Logs that the directory cannot be used, and keeps the cache empty from now on. `what` continues
  // the words "the folder for compiled code".
  void GiveUp(std::string_view what, int error_number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Computes the size of the directory, and removes entries beyond the limit.
  void Trim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string folder_;
  const int64_t bytes_max_;
  absl::Mutex mu_;
  enum class State { kUnknown, kUsable, kUnusable } state_ ABSL_GUARDED_BY(mu_) = State::kUnknown;
  // The size of the directory at the last Trim, plus the entries put since then.
  int64_t folder_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t puts_since_trim_ ABSL_GUARDED_BY(mu_) = 0;
  // The keys that are locked in this process.
  std::set<std::string> locked_keys_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::worker::codegen
