// Which of the coordinator's commands an executor has taken and not ended: what it says of itself
// when it attaches again, beside its arrays.
//
// A read or an inspection is answered to the stream that it came on and to no later one: its
// request gets a number of this process's own, as requests of two coordinators may be the same. Not
// thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "ir/api/worker_link.h"

namespace tessera::worker::rpc {

class CommandLedger {
 public:
  // Before the command is carried out, which is changed where it holds a request.
  void Take(api::Command& command);
  // Before the report is sent or kept, which is changed likewise. False: it answers nobody, and is
  // dropped.
  bool Settle(api::ReportBody& report);
  // The stream has ended.
  void ForgetRequests() { requests_.clear(); }
  // All that is said of operations that run, executables and communicators.
  void Describe(api::ExecutorInventory* inventory) const;

 private:
  bool Answer(uint64_t* request);
  void Number(uint64_t* request);

  struct Running {
    uint64_t sequence = 0, generation = 0;
  };
  std::map<uint64_t, Running> running_;   // by operation
  std::map<uint64_t, bool> executables_;  // -> whether it is loaded
  std::set<uint64_t> generations_;
  uint64_t last_request_ = 0;
  absl::flat_hash_map<uint64_t, uint64_t> requests_;  // by our number
};

}  // namespace tessera::worker::rpc
