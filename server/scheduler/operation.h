// The record of an operation: the unit that is scheduled, sent to executors and ended. The kinds of
// work that an operation may do are in work.h.
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
#include "server/scheduler/work.h"

namespace tessera::server::scheduler {

struct Operation {
  uint64_t id = 0;
  std::string name;
  std::string tenant;
  uint64_t session = 0;            // key of the session in Ownership; the session may have ended
  uint64_t client_session_id = 0;  // id of the session for clients
  api::OperationKind kind = api::OperationKind::kExecute;  // the kind of work, for clients
  absl::Time created, started = absl::InfiniteFuture(), ended_at = absl::InfiniteFuture();
  // How far the wall clock was ahead of `created`. It is kept so that the dates of the operation do
  // not change when the wall clock is set.
  absl::Duration wall_ahead;
  api::OperationState state = api::OperationState::kPending;
  absl::Status error;
  Work work;
  std::vector<uint64_t> args, results;
  absl::Time deadline = absl::InfiniteFuture();
  // The duration from which `deadline` was computed.
  absl::Duration time_allowed = absl::InfiniteDuration();
  // Deadline for executors to acknowledge the end of the operation. Executors that are late are
  // killed.
  absl::Time kill_at = absl::InfiniteFuture();
  // The commit that contains the start of the operation; 0 if there is none. The commands of the
  // operation may wait for this commit (Outbox in loop.h).
  uint64_t started_in_commit = 0;
  // The commit that contains the end of the operation; 0 if there is none.
  uint64_t ended_in_commit = 0;
  // The executors that were behind (Machine::IsBehind) when the operation ended, or at the last
  // kill_at.
  std::set<std::string> executors_behind;
  // End of the wait for executors to come back or, if `loading` is set, to compile the program.
  absl::Time executors_until = absl::InfiniteFuture();
  absl::Duration executors_wait;  // duration from which `executors_until` was computed
  bool loading = false;
  uint64_t sequence = 0;    // number in the global order; 0 if the operation is not scheduled yet
  uint64_t generation = 0;  // generation of its communicator; 0 if there is none
  // The executors that have not reported the end of the operation -> their incarnations.
  std::map<std::string, uint64_t> outstanding;
  bool inputs_gone = false;  // whether an executor was lost or has consumed donated inputs
  IdSet waiters;             // requests that wait for the operation
  absl::Status peer_error;   // error that blames a peer; OK if there is none
  // From this time on, peer_error counts as the root cause.
  absl::Time verdict_until = absl::InfiniteFuture();
  // For notes: the longest run on an executor, and the run times summed over all devices.
  absl::Duration run_longest, run_total;
  // Whether the program was not planned yet when the operation was accepted.
  bool planned_late = false;
  // Whether `sequence` was assigned by this life, because the number that the operation was first
  // sent with is not known.
  bool sequence_reassigned = false;
  // The sequence number that executors are told; 0 if the number that they got first is not known.
  uint64_t known_sequence() const { return sequence_reassigned ? 0 : sequence; }

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
