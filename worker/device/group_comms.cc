// Makes, shares and polls the device library's communicators. Runner::Exchange calls GetOrCreate
// and AwaitReady for each collective. All waits are polled on the host, so that they end with a
// cancellation or a deadline.
#include "worker/device/group_comms.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/status.h"

namespace tessera::worker::device {
namespace {

// The state of a rank's comm, which it sends when the ranks agree on one. All zeros if it has none.
struct CommState {
  uint64_t abort_number = 0;
  int64_t num_collectives = 0;
  bool operator==(const CommState&) const = default;
};

// Returns the hash of the bytes by FNV-1a, with the highest bit set. Numbers of launches count from
// 1 and never reach that bit.
uint64_t NumberOf(absl::Span<const char> bytes, uint64_t hash = 0xcbf29ce484222325) {
  for (const char byte : bytes) {
    hash ^= static_cast<unsigned char>(byte);
    hash *= 0x100000001b3;
  }
  return hash | uint64_t{1} << 63;
}

// Returns the number by which the ranks tell each other that they ask before they use the comm in
// the launch.
uint64_t AskingNumber(const GroupComm& comm, uint64_t launch) {
  char bytes[sizeof launch];
  std::memcpy(bytes, &launch, sizeof launch);
  return NumberOf(bytes, comm.abort_number);
}

}  // namespace

template <class T>
absl::StatusOr<std::vector<T>> GroupComms::GatherOnHost(const RunContext& context, const T& mine,
                                                        const std::vector<int>& group,
                                                        const CallKey& key) const {
  std::vector<T> all(group.size());
  const absl::Span<const std::byte> in(reinterpret_cast<const std::byte*>(&mine), sizeof(mine));
  const absl::Span<std::byte> out(reinterpret_cast<std::byte*>(all.data()),
                                  sizeof(mine) * all.size());
  TESSERA_RETURN_IF_ERROR(context.collectives->Run({.kind = ir::CollectiveKind::kAllGather,
                                                    .rank = context.ranks[context.mesh_device],
                                                    .group = group,
                                                    .key = key,
                                                    .in = in,
                                                    .out = out,
                                                    .long_timeout = options_.opening_timeout,
                                                    .measures_links = false}));
  return all;
}

bool GroupComm::MarkAborted(Collectives* host) {
  if (aborted_.exchange(true)) return false;
  if (host != nullptr) host->AbortLaunch(abort_number, AbortedError("an exchange"));
  return true;
}

bool GroupComm::IsAbortedAnywhere(const Collectives* host) const {
  return aborted() || (host != nullptr && !host->LaunchFailure(abort_number).ok());
}

void GroupComm::AddLaunch(uint64_t launch) {
  // More than an executor has in flight on a device.
  constexpr size_t kLaunchesKept = 32;
  if (!launches.empty() && launches.back() == launch) return;
  launches.push_back(launch);
  if (launches.size() > kLaunchesKept) launches.pop_front();
}

bool GroupComm::HasFailedLaunch(const Collectives* host) const {
  return host != nullptr && std::any_of(launches.begin(), launches.end(), [host](uint64_t launch) {
           return !host->LaunchFailure(launch).ok();
         });
}

void GroupComm::TellOfAsking(Collectives* host, uint64_t launch) {
  asked_launch_ = launch;
  host->AbortLaunch(AskingNumber(*this, launch), AbortedError("an exchange"));
}

bool GroupComm::IsAskedInVain(const Collectives* host, uint64_t launch) const {
  return asked_launch_ != launch && !host->LaunchFailure(AskingNumber(*this, launch)).ok();
}

absl::Status GroupComm::AbortedError(const std::string& label) const {
  return MakeError(ErrorKind::kPeerAborted,
                   absl::StrCat(label, ": the exchange of ranks {", absl::StrJoin(group, ","),
                                "} was broken off together with one of an earlier operation, which "
                                "was cancelled or failed; run it again"));
}

absl::Duration PollInterval(absl::Duration waited) {
  constexpr absl::Duration kBusyWait = absl::Microseconds(200), kPauseMax = absl::Milliseconds(1);
  if (waited < kBusyWait) return absl::ZeroDuration();
  return std::min(waited / 8, kPauseMax);
}

// Finds the group's communicator, or makes one together with the other ranks. The ranks talk over
// the host's collectives, which have a deadline and name a missing rank. Only then does the device
// library wait for its peers. The lock is not held meanwhile: a device has one enqueueing thread,
// so no other thread makes the same communicator.
absl::StatusOr<GroupCommRef> GroupComms::GetOrCreate(const RunContext& context,
                                                     const std::vector<int>& group,
                                                     const CallKey& key) {
  const CommKey map_key(context.generation, group);
  GroupCommRef known;
  {
    absl::MutexLock lock(&mu_);
    if (const auto it = comms_.find(map_key); it != comms_.end()) known = it->second;
  }
  const bool is_usable = known != nullptr && !known->IsAbortedAnywhere(context.collectives);
  GroupCommRef agreed = is_usable ? known : nullptr;
  if (!is_usable || known->must_ask || known->HasFailedLaunch(context.collectives)) {
    if (context.collectives == nullptr) {
      return MakeError(ErrorKind::kInternal,
                       absl::StrCat(key.op, ": the launch has no communicator"));
    }
    TESSERA_ASSIGN_OR_RETURN(agreed, AgreeOnComm(context, std::move(agreed), group, key));
  }
  if (agreed == nullptr) {
    // The launches that still use the old communicator end it. Without any, it is ended here: the
    // map and `known` are then its only references, and no other thread adds one.
    if (known != nullptr && known.use_count() == 2) abort_(*known, context.collectives);
    TESSERA_ASSIGN_OR_RETURN(agreed, Create(context, group, key));
    {
      absl::MutexLock lock(&mu_);
      comms_[map_key] = agreed;
    }
    AbortOldest(context);
  }
  agreed->last_use = ++uses_;
  ++agreed->num_collectives;
  agreed->AddLaunch(context.launch);
  return agreed;
}

// The communicators of a device hold threads and memory of the library. A communicator that no
// launch uses has ended its work at this rank, so at the others it is about to end. They hear of
// the abort, and all make a new one when they need it again.
void GroupComms::AbortOldest(const RunContext& context) {
  while (true) {
    GroupCommRef oldest;
    {
      absl::MutexLock lock(&mu_);
      int comms = 0;
      auto found = comms_.end();
      for (auto it = comms_.begin(); it != comms_.end(); ++it) {
        if (it->first.first != context.generation) continue;
        ++comms;
        const bool unused = it->second.use_count() == 1;
        if (unused && (found == comms_.end() || it->second->last_use < found->second->last_use))
          found = it;
      }
      if (comms <= options_.comms_max || found == comms_.end()) return;
      oldest = std::move(found->second);
      comms_.erase(found);
    }
    abort_(*oldest, context.collectives);
  }
}

// All ranks that do not simply go on with their communicator come here, those that have none as
// well. A rank that does go on never comes, and its part of the launch waits for this one on the
// device. It is told that this rank asks, so that its part ends, and with it the wait here.
absl::StatusOr<GroupCommRef> GroupComms::AgreeOnComm(const RunContext& context, GroupCommRef known,
                                                     const std::vector<int>& group,
                                                     const CallKey& key) const {
  CommState mine;
  if (known != nullptr) {
    known->TellOfAsking(context.collectives, context.launch);
    mine = {known->abort_number, known->num_collectives};
  }
  // The key must not be that of the call in Create, and calls of a launch are fewer than this bit.
  CallKey agreement = key;
  agreement.op_sequence |= uint32_t{1} << 31;
  TESSERA_ASSIGN_OR_RETURN(const std::vector<CommState> all,
                           GatherOnHost(context, mine, group, agreement));
  if (known == nullptr ||
      !std::all_of(all.begin(), all.end(), [&](const CommState& state) { return state == mine; }))
    return nullptr;
  known->must_ask = false;
  known->launches.clear();
  return known;
}

// Makes a communicator with the other ranks of the group, which all call this function for the same
// collective. The id goes over the host first, so that a missing rank is named.
absl::StatusOr<GroupCommRef> GroupComms::Create(const RunContext& context,
                                                const std::vector<int>& group,
                                                const CallKey& key) const {
  const int rank = context.ranks[context.mesh_device];
  const auto at = std::find(group.begin(), group.end(), rank);
  if (at == group.end()) {
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat(key.op, ": rank ", rank, " is not in its own group {",
                                  absl::StrJoin(group, ","), "}"));
  }
  auto communicator = std::make_shared<GroupComm>();
  communicator->group = group;
  communicator->position = static_cast<int>(at - group.begin());
  // The first rank of the group makes the id.
  tessera_comm_id mine = {};
  if (communicator->position == 0) {
    TESSERA_RETURN_IF_ERROR(device_->Check(device_->api().comm_id(&mine), "a communicator's id"));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<tessera_comm_id> ids,
                           GatherOnHost(context, mine, group, key));
  communicator->abort_number = NumberOf(ids[0].bytes);
  tessera_comm* comm = nullptr;
  const absl::Time began = SteadyNow();
  const int code =
      device_->api().comm_create(device_->context(), ids.data(), static_cast<int32_t>(group.size()),
                                 communicator->position, &comm);
  if (code != TESSERA_NOT_READY) TESSERA_RETURN_IF_ERROR(device_->Check(code, "a communicator"));
  communicator->handle = CommHandle(&device_->api(), comm);
  TESSERA_RETURN_IF_ERROR(
      AwaitReadyWithin(options_.opening_timeout, *communicator, context, key.op));
  context.collectives->RecordDeviceOpening(static_cast<int>(group.size()), SteadyNow() - began);
  return communicator;
}

void GroupComms::Skip(uint64_t generation, const std::vector<std::vector<int>>& groups) {
  absl::MutexLock lock(&mu_);
  for (const auto& [key, communicator] : comms_) {
    const bool concerned =
        groups.empty() || std::find(groups.begin(), groups.end(), key.second) != groups.end();
    if (key.first == generation && concerned) communicator->must_ask = true;
  }
}

absl::Status GroupComms::AwaitReady(GroupComm& communicator, const RunContext& context,
                                    const std::string& label) const {
  return AwaitReadyWithin(options_.timeout, communicator, context, label);
}

absl::Status GroupComms::AwaitReadyWithin(absl::Duration timeout, GroupComm& communicator,
                                          const RunContext& context,
                                          const std::string& label) const {
  absl::Status ready = PollUntilReady(timeout, communicator, context, label);
  if (ready.ok()) return ready;
  // A cancel of this launch, its failure at a peer, and a lost device are told as such.
  const Collectives* const host = context.collectives;
  const bool launch_failed = host != nullptr && !host->LaunchFailure(context.launch).ok();
  if (KindOf(ready) == ErrorKind::kPeerFailed && !launch_failed &&
      communicator.IsAbortedAnywhere(host))
    ready = communicator.AbortedError(label);
  abort_(communicator, context.collectives);
  return ready;
}

// Polls the library, which does not say whether a rank is lost or late. The wait therefore also
// ends when the launch is cancelled or has failed at a peer, when another rank has aborted the
// communicator, and at the timeout.
absl::Status GroupComms::PollUntilReady(absl::Duration timeout, const GroupComm& communicator,
                                        const RunContext& context, const std::string& label) const {
  const absl::Time began = SteadyNow(), deadline = began + timeout;
  const absl::Notification never;
  while (true) {
    const int code = device_->api().comm_ready(communicator.handle.get());
    if (code != TESSERA_NOT_READY) return device_->Check(code, label.c_str());
    TESSERA_RETURN_IF_ERROR(context.cancel->status());
    if (context.collectives != nullptr)
      TESSERA_RETURN_IF_ERROR(context.collectives->LaunchFailure(context.launch));
    if (communicator.IsAbortedAnywhere(context.collectives))
      return communicator.AbortedError(label);
    const absl::Time now = SteadyNow();
    if (now > deadline) {
      return MakeError(
          ErrorKind::kCollectiveTimeout,
          absl::StrCat(label, " of ", ToAbsl(context.program), ": ", device_->name(), " waited ",
                       absl::FormatDuration(timeout), " for the communicator of ranks {",
                       absl::StrJoin(communicator.group, ","), "}"));
    }
    if (const absl::Duration pause = PollInterval(now - began); pause > absl::ZeroDuration()) {
      never.WaitForNotificationWithTimeout(pause);
    } else {
      std::this_thread::yield();
    }
  }
}

void GroupComms::Close(uint64_t generation) {
  // These communicators are destroyed after the lock is released.
  std::vector<GroupCommRef> closed;
  absl::MutexLock lock(&mu_);
  for (auto it = comms_.begin(); it != comms_.end();) {
    if (it->first.first != generation) {
      ++it;
      continue;
    }
    closed.push_back(std::move(it->second));
    it = comms_.erase(it);
  }
}

}  // namespace tessera::worker::device
