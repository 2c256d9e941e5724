// Which shards of an array are left when devices lose theirs, and the errors of arrays of which not
// every shard is left. Several devices may hold the same shard. Stateless, except for LossErrors.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/scheduler/catalogue.h"

namespace tessera::server::scheduler {

// Returns whether every device of the placement holds its shard.
// Requires: the array has been scheduled, so that its holders are known.
bool HasAllHolders(const ArrayRecord& array);

// Returns the number of devices that hold a shard of the array, or will hold one. For an array that
// has failed it is the number that would have held one.
size_t NumHeld(const ArrayRecord& array);

// Returns one ordinal for each distinct shard that no device holds, ascending.
// Requires: the array has been scheduled, so that its holders are known.
std::vector<int> MissingShards(const ArrayRecord& array);

// Returns the index range of a shard in each dim: "[0:4, :]". A term of a pending sum has its
// number behind the range: "[:] (term 1)".
std::string ShardText(const api::ArraySpec& array, int ordinal);

// Makes the errors of the arrays that are lost for one reason. Arrays with the same error share it,
// because a million arrays may be lost at once. Thread-compatible.
class LossErrors {
 public:
  // `whole` is the error of an array that has lost all its shards. It has the form of
  // ArrayRecord::error. `how` ends the error of any other array, after the names of its shards and
  // their devices.
  LossErrors(absl::Status whole, std::string how)
      : whole_(std::move(whole)), how_(std::move(how)) {}

  const absl::Status& Whole() const { return whole_; }
  // Returns the error of an array of which these shards are missing, since these devices lost
  // theirs. The error names at most a few shards and devices.
  const absl::Status& Of(const ArrayRecord& array, const std::vector<int>& missing,
                         const std::vector<int64_t>& devices);

 private:
  const absl::Status whole_;
  const std::string how_;
  std::map<std::string, absl::Status> by_text_;
};

}  // namespace tessera::server::scheduler
