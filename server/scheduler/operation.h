// An operation: what the order gives a place, sends to executors and ends.
//
// What it does is its work, a variant of kinds.  A kind is a struct in a file of its own, with
// - Executors: where it runs, each executor once;
// - Send: has these executors begin, once it has its place;
// - kUsesDevices: it takes its turn on its executors' devices, and what has a later place there
//   waits for it;
// - kReadsPeers: executors read its arguments from each other, so that their buffers stay until it
//   has ended: the order of one executor does not hold for the reads of another.
// A new kind is its file and a line in Work.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ir/api/service.h"
#include "server/scheduler/load.h"
#include "server/scheduler/run.h"
#include "server/scheduler/save.h"
#include "server/scheduler/transfer.h"

namespace tessera::server::scheduler {

using Work = std::variant<Run, Transfer, Save, Load>;

struct Operation {
  uint64_t id = 0;
  std::string name;
  std::string tenant;
  uint64_t session = 0;       // its key in Ownership; it may have ended
  uint64_t session_name = 0;  // as clients call it
  api::OperationKind kind = api::OperationKind::kExecute;  // as clients call its work
  absl::Time created, started = absl::InfiniteFuture(), ended_at = absl::InfiniteFuture();
  absl::Duration wall_ahead;  // when it was made, so that its dates stay what they are
  api::OperationState state = api::OperationState::kPending;
  absl::Status error;
  Work work;
  std::vector<uint64_t> args, results;
  absl::Time deadline = absl::InfiniteFuture();
  absl::Duration time_allowed = absl::InfiniteDuration();  // that `deadline` stands for
  // When it has ended: executors that have not left it by then are killed.
  absl::Time kill_at = absl::InfiniteFuture();
  // While it waits for executors: to come back or, if `loading`, to compile its program.
  absl::Time executors_until = absl::InfiniteFuture();
  bool loading = false;
  uint64_t sequence = 0;    // its place in the order; 0: none yet
  uint64_t generation = 0;  // communicator of its launch; 0: none
  // Executors that have not reported -> incarnation; of one that has ended, that have not left it.
  std::map<std::string, uint64_t> outstanding;
  bool inputs_gone = false;    // an executor was lost, or has given its donated inputs to devices
  std::set<uint64_t> waiters;  // requests
  absl::Status peer_error;     // the first report that blames a peer
  absl::Time verdict_until = absl::InfiniteFuture();  // then peer_error is the verdict
  // For notes: of the executors' runs the longest, and the sum over devices.
  absl::Duration run_longest, run_total;
  bool planned_late = false;  // its program was not planned yet when it was accepted

  bool ended() const { return state >= api::OperationState::kDone; }
  Run* run() { return std::get_if<Run>(&work); }
  const Run* run() const { return std::get_if<Run>(&work); }
  bool uses_devices() const {
    return std::visit([](const auto& w) { return std::decay_t<decltype(w)>::kUsesDevices; }, work);
  }
  bool reads_peers() const {
    return std::visit([](const auto& w) { return std::decay_t<decltype(w)>::kReadsPeers; }, work);
  }
};

}  // namespace tessera::server::scheduler
