// Compiled objects on disk, by key: what makes the second start of a program warm.
//
// A folder of files, one an entry, shared by any number of processes: entries appear by rename and
// are checked against their own digest when read, so a torn or damaged one is a miss. Beyond the
// bound the entries that were used least lately go first. Where the folder cannot be used (no
// rights, no room, another user's) the cache logs that once and holds nothing.
//
// Any thread.
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
  // Makes the folder, and those above it, when it is first written to. "" holds nothing.
  ObjectCache(std::string folder, int64_t bytes_max);
  ObjectCache(const ObjectCache&) = delete;
  ObjectCache& operator=(const ObjectCache&) = delete;

  // `key` is lower-case hex.
  std::optional<std::string> Get(const std::string& key);
  void Put(const std::string& key, std::string_view object);

  // The exclusive right to compile the object of a key, from TakeTurn to the destructor.
  class Turn {
   public:
    Turn(Turn&& other) noexcept;
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    friend class ObjectCache;
    Turn(ObjectCache* cache, std::string key) : cache_(cache), key_(std::move(key)) {}

    ObjectCache* cache_;  // null: moved from
    std::string key_;
    int fd_ = -1;  // of the locked file; -1: none
  };
  // Waits while another makes it: in this process until `deadline`, then COMPILE_TIMEOUT with
  // `label`; in others that share the folder at most 30 s, since they may have stopped. Who has the
  // turn looks whether the object is there before compiling it.
  absl::StatusOr<Turn> TakeTurn(const std::string& key, absl::Time deadline,
                                const std::string& label) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::string PathOf(const std::string& key) const { return folder_ + "/" + key + ".o"; }
  std::string LockOf(const std::string& key) const { return folder_ + "/" + key + ".lock"; }
  bool Usable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void GiveUp(std::string_view what, int error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Counts what is there and removes what is too much.
  void Trim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string folder_;
  const int64_t bytes_max_;
  absl::Mutex mu_;
  enum class State { kUnknown, kUsable, kUnusable } state_ ABSL_GUARDED_BY(mu_) = State::kUnknown;
  int64_t bytes_ ABSL_GUARDED_BY(mu_) =
      0;  // in the folder, by the last count and what was put since
  int64_t since_count_ ABSL_GUARDED_BY(mu_) = 0;      // entries put since
  std::set<std::string> turns_ ABSL_GUARDED_BY(mu_);  // keys whose turn somebody here has
};

}  // namespace tessera::worker::codegen
