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

// Gives the id to all ranks: the group's first rank makes it, and an all-gather sends it to the
// others.
absl::StatusOr<tessera_comm_id> ShareId(const Device& device, const RunContext& context,
                                        const std::vector<int>& group, int position,
                                        const CallKey& key) {
  tessera_comm_id mine = {};
  if (position == 0) {
    TESSERA_RETURN_IF_ERROR(device.Check(device.api().comm_id(&mine), "a communicator's id"));
  }
  std::vector<tessera_comm_id> all(group.size());
  const absl::Span<const std::byte> in(reinterpret_cast<const std::byte*>(&mine), sizeof(mine));
  const absl::Span<std::byte> out(reinterpret_cast<std::byte*>(all.data()),
                                  sizeof(mine) * all.size());
  TESSERA_RETURN_IF_ERROR(context.collectives->Run({.kind = ir::CollectiveKind::kAllGather,
                                                    .rank = group[position],
                                                    .group = group,
                                                    .key = key,
                                                    .in = in,
                                                    .out = out}));
  return all[0];
}

}  // namespace

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

// Finds the group's communicator, or makes one together with the other ranks. The id travels over
// the host's collectives first, which have a deadline and name a missing rank. Only then does the
// device library wait for its peers. The lock is not held meanwhile: a device has one enqueueing
// thread, so no other thread makes the same communicator.
absl::StatusOr<GroupCommRef> GroupComms::GetOrCreate(const RunContext& context,
                                                     const std::vector<int>& group,
                                                     const CallKey& key) {
  const CommKey map_key(context.generation, group);
  {
    absl::MutexLock lock(&mu_);
    const auto it = comms_.find(map_key);
    // A communicator that was aborted with a failed launch is replaced.
    if (it != comms_.end() && !it->second->aborted()) return it->second;
  }
  if (context.collectives == nullptr) {
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat(key.op, ": the launch has no communicator"));
  }
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
  TESSERA_ASSIGN_OR_RETURN(const tessera_comm_id id,
                           ShareId(*device_, context, group, communicator->position, key));
  tessera_comm* comm = nullptr;
  const int code = device_->api().comm_create(
      device_->context(), &id, static_cast<int32_t>(group.size()), communicator->position, &comm);
  if (code != TESSERA_NOT_READY) TESSERA_RETURN_IF_ERROR(device_->Check(code, "a communicator"));
  communicator->handle = CommHandle(&device_->api(), comm);
  TESSERA_RETURN_IF_ERROR(AwaitReady(*communicator, context, key.op));
  absl::MutexLock lock(&mu_);
  comms_[map_key] = communicator;
  return communicator;
}

absl::Status GroupComms::AwaitReady(GroupComm& communicator, const RunContext& context,
                                    const std::string& label) const {
  absl::Status ready = PollUntilReady(communicator, context, label);
  if (ready.ok()) return ready;
  // A cancel of this launch and a lost device are told as such.
  if (KindOf(ready) == ErrorKind::kPeerFailed && communicator.aborted())
    return communicator.AbortedError(label);
  abort_(communicator);
  return ready;
}

absl::Status GroupComms::PollUntilReady(const GroupComm& communicator, const RunContext& context,
                                        const std::string& label) const {
  const absl::Time began = SteadyNow(), deadline = began + timeout_;
  const absl::Notification never;
  while (true) {
    const int code = device_->api().comm_ready(communicator.handle.get());
    if (code != TESSERA_NOT_READY) return device_->Check(code, label.c_str());
    TESSERA_RETURN_IF_ERROR(context.cancel->status());
    const absl::Time now = SteadyNow();
    if (now > deadline) {
      return MakeError(
          ErrorKind::kCollectiveTimeout,
          absl::StrCat(label, " of ", ToAbsl(context.program), ": ", device_->name(), " waited ",
                       absl::FormatDuration(timeout_), " for the communicator of ranks {",
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
