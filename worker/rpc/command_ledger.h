// The coordinator's commands that an executor has taken and not ended. The executor describes them,
// together with its arrays, when it attaches again.
//
// A read or an inspection is answered only on the stream on which it came, and not on a later one.
// The ledger replaces the coordinator's number of such a request by a number of its own, because
// two coordinators may use the same number. Not thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "ir/api/worker_link.h"

namespace tessera::worker::rpc {

class CommandLedger {
 public:
  // Call before the command is carried out. If the command has a request, its number is replaced.
  void RecordCommand(api::Command& command);
  // Call before the report is sent or kept. If the report answers a request, sets the coordinator's
  // number of the request again. Returns false if nobody waits for the report; the caller then
  // drops it.
  bool RecordReport(api::ReportBody& report);
  // Call when the stream has ended.
  void ForgetRequests() { requests_.clear(); }
  // Describes everything about running operations, executables and communicators.
  void Describe(api::ExecutorInventory* inventory) const;

 private:
  // Replaces the coordinator's number of a request by one of our own.
  void ReplaceNumber(uint64_t* request);
  // Undoes ReplaceNumber for the answer. Returns false if nobody waits for the answer.
  bool RestoreNumber(uint64_t* request);

  struct RunningOperation {
    uint64_t sequence = 0, generation = 0;
  };
  std::map<uint64_t, RunningOperation> running_;  // by operation
  std::map<uint64_t, bool> executables_;          // by executable; whether it is loaded
  std::set<uint64_t> generations_;
  uint64_t last_request_ = 0;
  absl::flat_hash_map<uint64_t, uint64_t> requests_;  // by our number, the coordinator's number
};

}  // namespace tessera::worker::rpc
