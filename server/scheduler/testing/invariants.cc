// Checks the invariants of the state, one function per kind of record. step_test.cc and the
// simulation (tests/sim/process.cc) call it after steps, so that a bug shows at the step that makes
// it and not where it does harm.
#include "server/scheduler/testing/invariants.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ir/api/placement.h"
#include "server/scheduler/machine.h"
#include "server/scheduler/replicas.h"

// Returns from the function with the text of the other arguments, unless `condition` holds.
#define TESSERA_HOLDS(condition, ...) \
  if (!(condition)) return Broken(__VA_ARGS__)

namespace tessera::server::scheduler {
namespace {

// A function that is not inlined, because the stack frames of the checks would otherwise hold the
// pieces of every text.
template <class... Parts>
[[gnu::noinline]] std::string Broken(const Parts&... parts) {
  return absl::StrCat(parts...);
}

bool IsLive(const State& s, uint64_t operation) { return s.order.live().count(operation) == 1; }

bool IsThere(const State& s, const std::string& executor, uint64_t incarnation) {
  const Executor& x = s.cluster.executors().at(executor);
  return (x.alive() || x.away) && x.info.incarnation == incarnation;
}

// Returns whether the executors of the operation are there and have no operation of an earlier
// place to do.
bool IsNext(const State& s, uint64_t id, const Operation& op) {
  return !op.ended() && !op.outstanding.empty() &&
         std::all_of(op.outstanding.begin(), op.outstanding.end(), [&](const auto& executor) {
           const Executor& x = s.cluster.executors().at(executor.first);
           return x.alive() &&
                  (!op.uses_devices() || (!x.running.empty() && x.running.begin()->second == id));
         });
}

// Returns whether a run that has not started has everything that it waits for.
bool MayStart(const State& s, const Operation& op) {
  if (op.ended() || op.sequence != 0 || op.run() == nullptr || !s.cluster.draining().empty())
    return false;
  const auto found = s.catalogue.executables().find(op.run()->executable);
  if (found == s.catalogue.executables().end()) return false;
  const Executable& x = found->second;
  return x.state == ExecutableState::kPlanned &&
         std::all_of(op.args.begin(), op.args.end(),
                     [&](uint64_t a) {
                       const ArrayState state = s.catalogue.arrays().at(a).state;
                       return state == ArrayState::kReady || state == ArrayState::kScheduled;
                     }) &&
         std::all_of(x.devices.begin(), x.devices.end(), [&](int64_t d) {
           const Executor& executor = s.cluster.ExecutorOf(d);
           const auto loaded = x.loaded_on.find(executor.name);
           return executor.alive() && loaded != x.loaded_on.end() &&
                  loaded->second == executor.info.incarnation;
         });
}

// Checks one operation: that the sets and records that name it agree on whether it has ended, that
// what it needs is there, and that it has the timers that bound it.
std::string CheckOperation(const State& s, uint64_t id, const Operation& op) {
  const auto& arrays = s.catalogue.arrays();
  TESSERA_HOLDS(IsLive(s, id) == !op.ended(), "operation ", id,
                " is live and has ended, or neither");
  TESSERA_HOLDS((op.ended() && op.state != api::OperationState::kDone) == !op.error.ok(),
                "operation ", id, " has failed without an error, or has one and has not");
  if (op.ended()) {
    for (uint64_t request : op.waiters)
      TESSERA_HOLDS(std::holds_alternative<DonationWait>(s.waiters.at(request).wait) &&
                        !op.outstanding.empty(),
                    "operation ", id, " has ended, and request ", request, " waits for it");
    for (uint64_t r : op.results)
      if (const auto a = arrays.find(r); a != arrays.end())
        TESSERA_HOLDS(a->second.state == ArrayState::kReady || !a->second.error.ok(), "operation ",
                      id, " has ended, its result ", r, " has not");
  }
  for (uint64_t a : op.args) {
    const auto it = arrays.find(a);
    TESSERA_HOLDS(op.ended() || it != arrays.end(), "operation ", id, " reads array ", a,
                  ", which is freed");
    if (it != arrays.end())
      TESSERA_HOLDS((it->second.readers.count(id) == 1) == !op.ended(), "operation ", id,
                    " and array ", a, " disagree on whether it is read");
  }
  // Gang: the operation runs on all of its executors or on none, and only on executors that are
  // there.
  if (!op.ended())
    for (const auto& [executor, incarnation] : op.outstanding)
      TESSERA_HOLDS(IsThere(s, executor, incarnation), "operation ", id, " waits for ", executor,
                    ", which is gone");
  TESSERA_HOLDS(op.ended() || (s.timers.Has({op.deadline, {kDeadlineTimer, id}})) ==
                                  (op.deadline < absl::InfiniteFuture()),
                "operation ", id, " has a deadline without a timer, or the reverse");
  TESSERA_HOLDS(op.verdict_until == absl::InfiniteFuture() ||
                    (s.timers.Has({op.verdict_until, {kVerdictTimer, id}})) == !op.ended(),
                "operation ", id, " waits for a verdict without a timer, or the reverse");
  TESSERA_HOLDS(!MayStart(s, op), "operation ", id, " waits for nothing");
  TESSERA_HOLDS(!IsNext(s, id, op) || op.deadline < absl::InfiniteFuture(), "operation ", id,
                " runs without a deadline");
  return "";
}

std::string CheckArray(const State& s, uint64_t id, const ArrayRecord& a) {
  // No array is ready on an incarnation that is gone, or without one of its shards.
  if (a.state == ArrayState::kReady || a.state == ArrayState::kScheduled) {
    for (const auto& [device, incarnation] : a.holders)
      TESSERA_HOLDS(IsThere(s, s.cluster.device(device).executor, incarnation), "array ", id,
                    " is on a process that is gone");
    TESSERA_HOLDS(HasAllHolders(a) || MissingShards(a).empty(), "array ", id,
                  " has a shard that no process has");
  }
  for (uint64_t op : a.unscheduled_readers)
    TESSERA_HOLDS(IsLive(s, op), "array ", id, " is awaited by operation ", op,
                  ", which has ended");
  for (uint64_t op : a.readers)
    TESSERA_HOLDS(IsLive(s, op), "array ", id, " is read by operation ", op, ", which has ended");
  TESSERA_HOLDS(!a.deleted || a.donated_to != 0 || a.waiters.empty(), "array ", id,
                " has been deleted, and is waited for");
  if (a.deleted) return "";
  const auto session = s.ownership.sessions().find(a.session);
  TESSERA_HOLDS(session != s.ownership.sessions().end() && session->second.arrays.count(id) == 1,
                "array ", id, " is in no session");
  return "";
}

std::string CheckSession(const State& s, uint64_t key, const Session& session) {
  TESSERA_HOLDS(session.own == (session.lease_until == absl::InfiniteFuture()), "session ", key,
                " is a tenant's own and has a lease, or neither");
  for (uint64_t a : session.arrays) {
    const auto it = s.catalogue.arrays().find(a);
    TESSERA_HOLDS(
        it != s.catalogue.arrays().end() && !it->second.deleted && it->second.session == key,
        "session ", key, " has array ", a, ", which is not its own");
  }
  for (uint64_t op : session.operations)
    TESSERA_HOLDS(IsLive(s, op), "session ", key, " has operation ", op, ", which has ended");
  for (const auto& [hold, request] : session.holds)
    TESSERA_HOLDS(s.waiters.count(request) == 1, "session ", key, " has hold ", hold,
                  ", whose request ended");
  TESSERA_HOLDS(session.holds.empty() || session.silent_until == absl::InfiniteFuture(), "session ",
                key, " is held and silent");
  return "";
}

// A program is loaded only where it was sent, and was sent only to processes that are there.
std::string CheckExecutable(const State& s, uint64_t id, const Executable& x) {
  for (const auto& [name, incarnation] : x.sent_to) {
    const Executor& executor = s.cluster.executors().at(name);
    TESSERA_HOLDS(executor.alive() && executor.info.incarnation == incarnation, "executable ", id,
                  " was sent to ", name, ", whose process is not there");
  }
  for (const auto& [name, incarnation] : x.loaded_on) {
    const auto sent = x.sent_to.find(name);
    TESSERA_HOLDS(sent != x.sent_to.end() && sent->second == incarnation, "executable ", id,
                  " is on ", name, ", to which it was not sent");
  }
  return "";
}

std::string CheckExecutor(const State& s, const std::string& name, const Executor& x) {
  for (const auto& [sequence, id] : x.running)
    TESSERA_HOLDS(s.order.operations().at(id).outstanding.count(name) == 1, name,
                  " runs operation ", id, ", which it has left");
  if (!x.away) return "";
  TESSERA_HOLDS(s.timers.HasAny(x.away_until, kAwayTimer), name, " is away without a bound");
  return "";
}

std::string CheckWaiter(const State& s, uint64_t request, const Waiter& waiter) {
  TESSERA_HOLDS(std::holds_alternative<HoldWait>(waiter.wait) ||
                    s.timers.Has({waiter.until, {kRequestTimer, request}}),
                "request ", request, " waits without a bound");
  const auto* const read = std::get_if<ReadWait>(&waiter.wait);
  if (read == nullptr) return "";
  if (!read->executor.empty()) {
    const auto x = s.cluster.executors().find(read->executor);
    TESSERA_HOLDS(x != s.cluster.executors().end() && x->second.alive(), "request ", request,
                  " waits for a read of ", read->executor, ", which is gone");
    return "";
  }
  const ArrayRecord& a = s.catalogue.arrays().at(read->array);
  if (a.state != ArrayState::kReady) return "";
  const std::vector<int> first = api::FirstReplicas(a.spec->placement, a.spec->shape);
  for (size_t k = 0; k < first.size(); ++k) {
    const int64_t device = a.spec->placement.devices.at(k);
    TESSERA_HOLDS(first[k] != first.at(read->ordinal) || a.holders.count(device) == 0 ||
                      !s.cluster.ExecutorOf(device).alive(),
                  "request ", request, " waits to read array ", read->array, ", which is there");
  }
  return "";
}

std::string CheckOrder(const State& s) {
  std::vector<uint64_t> places;
  for (const auto& [id, op] : s.order.operations())
    if (op.sequence != 0) places.push_back(op.sequence);
  std::sort(places.begin(), places.end());
  const auto twice = std::adjacent_find(places.begin(), places.end());
  TESSERA_HOLDS(twice == places.end(), "two operations have place ", *twice);
  for (uint64_t op : s.order.held())
    TESSERA_HOLDS(IsLive(s, op), "operation ", op, " is held and has ended");
  TESSERA_HOLDS(s.order.num_records() <= s.config.operations_kept, "there are ",
                s.order.num_records(), " records");
  TESSERA_HOLDS(static_cast<int64_t>(s.order.operations().size()) ==
                    s.order.num_live() + s.order.num_records() +
                        static_cast<int64_t>(s.order.lingering().size()),
                "an operation is neither live nor lingering nor a record");
  for (uint64_t id : s.order.lingering()) {
    const Operation& op = s.order.operations().at(id);
    TESSERA_HOLDS(op.ended() && !op.outstanding.empty(), "operation ", id, " does not linger");
    TESSERA_HOLDS(s.timers.Has({op.kill_at, {kKillTimer, id}}), "nobody sees to it that operation ",
                  id, " is left");
  }
  return "";
}

}  // namespace

std::string FirstBrokenInvariant(const State& state) {
  for (const auto& [id, op] : state.order.operations())
    if (std::string broken = CheckOperation(state, id, op); !broken.empty()) return broken;
  for (const auto& [id, array] : state.catalogue.arrays())
    if (std::string broken = CheckArray(state, id, array); !broken.empty()) return broken;
  std::vector<size_t> on_device(static_cast<size_t>(state.cluster.num_ids()));
  for (const auto& [id, array] : state.catalogue.arrays())
    for (const int64_t d : array.spec->placement.devices)
      if (static_cast<size_t>(d) < on_device.size()) ++on_device[d];
  for (int64_t d = 0; d < state.cluster.num_ids(); ++d)
    TESSERA_HOLDS(state.catalogue.NumArraysOn(d) == on_device[d], "device ", d, " lists ",
                  state.catalogue.NumArraysOn(d), " arrays, and has ", on_device[d]);
  for (const auto& [key, session] : state.ownership.sessions())
    if (std::string broken = CheckSession(state, key, session); !broken.empty()) return broken;
  for (const auto& [request, waiter] : state.waiters)
    if (std::string broken = CheckWaiter(state, request, waiter); !broken.empty()) return broken;
  for (const auto& [id, executable] : state.catalogue.executables())
    if (std::string broken = CheckExecutable(state, id, executable); !broken.empty()) return broken;
  for (const auto& [name, x] : state.cluster.executors())
    if (std::string broken = CheckExecutor(state, name, x); !broken.empty()) return broken;
  return CheckOrder(state);
}

}  // namespace tessera::server::scheduler
