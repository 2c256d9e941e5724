// An operation: the unit that is scheduled, sent to executors and ended.
//
// What it does is its work, a variant.  Each kind of work is a struct in a file of its own, with
// - Executors: the distinct executors that it runs on;
// - Send: sends the commands to these executors, once it is scheduled; or again to `only` one of
//   them, if that is not empty, which never got them;
// - kUsesDevices: it occupies its executors' devices in sequence order, and later operations there
//   wait for it;
// - kReadsPeers: executors read its arguments from each other, so that their buffers stay until it
//   has ended: one executor's order of commands does not delay a deletion until another has read.
// To add a kind, add its file and a line in Work.
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
#include "server/scheduler/id_set.h"
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
  uint64_t session_name = 0;  // its id for clients
  api::OperationKind kind = api::OperationKind::kExecute;  // the kind of work, for clients
  absl::Time created, started = absl::InfiniteFuture(), ended_at = absl::InfiniteFuture();
  absl::Duration wall_ahead;  // at its creation, so that its dates do not change
  api::OperationState state = api::OperationState::kPending;
  absl::Status error;
  Work work;
  std::vector<uint64_t> args, results;
  absl::Time deadline = absl::InfiniteFuture();
  absl::Duration time_allowed = absl::InfiniteDuration();  // from which `deadline` was computed
  // When it has ended: executors that have not acknowledged the end by then are killed.
  absl::Time kill_at = absl::InfiniteFuture();
  // The commit of its start, which its commands may wait for (loop.h, Outbox); 0: for none.
  uint64_t started_in = 0;
  uint64_t ended_in = 0;  // the commit of its end; 0: for none
  // Executors that had something else to do first when it ended, or at the last kill_at.
  std::set<std::string> behind;
  // While it waits for executors: to come back or, if `loading`, to compile its program.
  absl::Time executors_until = absl::InfiniteFuture();
  absl::Duration executors_wait;  // from which it was computed
  bool loading = false;
  uint64_t sequence = 0;    // number in the global order; 0: not scheduled yet
  uint64_t generation = 0;  // communicator of its launch; 0: none
  // Executors that have not reported its end -> incarnation.
  std::map<std::string, uint64_t> outstanding;
  bool inputs_gone = false;  // an executor was lost, or has consumed donated inputs
  IdSet waiters;             // requests
  absl::Status peer_error;   // the first report that blames a peer
  absl::Time verdict_until = absl::InfiniteFuture();  // then peer_error counts as the root cause
  // For notes: the longest of the executors' runs, and their sum over devices.
  absl::Duration run_longest, run_total;
  bool planned_late = false;  // its program was not planned yet when it was accepted
  // Its number is of this life, as that of the one in which it was sent is not known.
  bool placed_again = false;
  // As its executors are told.
  uint64_t known_sequence() const { return placed_again ? 0 : sequence; }

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
