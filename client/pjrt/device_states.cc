// Asks the coordinator for the states of devices: when the framework waits for data that it has put
// on a device (buffer.cc), and when the user looks at a device (extension.cc). Several that ask at
// the same time share one question.
#include "client/pjrt/device_states.h"

#include <algorithm>
#include <utility>

#include "absl/base/const_init.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status.h"

namespace tessera::pjrt {
namespace {

// How often AwaitUsable asks again, and how long it waits for each answer.
constexpr absl::Duration kPollInterval = absl::Milliseconds(200);
constexpr absl::Duration kAnswerWait = absl::Seconds(1);
// How old a state may be by which AwaitUsable decides. The waits for many arrays share questions.
constexpr absl::Duration kStateAgeMax = absl::Milliseconds(100);

// For the Python package, which knows devices by their ids and no client.
ABSL_CONST_INIT absl::Mutex latest_mu(absl::kConstInit);
std::weak_ptr<DeviceStates>& Latest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(latest_mu) {
  static auto* const latest = new std::weak_ptr<DeviceStates>;
  return *latest;
}

}  // namespace

const char* NameOf(DeviceState::Kind kind) {
  constexpr const char* kNames[] = {"ready", "cordoned", "unresponsive", "away", "lost", "unknown"};
  return kNames[kind];
}

DeviceState StateOf(const api::Device& device) {
  if (device.away)
    return {DeviceState::kAway, std::string(absl::StripPrefix(device.reason, "away: "))};
  if (device.unresponsive) return {DeviceState::kUnresponsive, device.reason};
  if (!device.healthy) return {DeviceState::kLost, device.reason};
  if (device.cordoned)
    return {DeviceState::kCordoned,
            device.reason.empty() ? "its worker takes no new programs" : device.reason};
  return {DeviceState::kReady, ""};
}

absl::Status DeviceLostError(int64_t device, const DeviceState& state) {
  return MakeError(ErrorKind::kWorkerLost,
                   absl::StrCat("device ", device, " is lost: ", state.why,
                                "; use another device, or try again when it is back"));
}

DeviceStates::DeviceStates(std::shared_ptr<Session> session)
    : session_(std::move(session)), pool_({.threads = 2}) {}

// Loops because an answer may be too old: the question may have been asked for somebody else,
// before `wanted_since`. Each turn of the loop waits for one answer.
DeviceState DeviceStates::Get(int64_t device, absl::Duration max_age, absl::Duration limit) {
  const absl::Time wanted_since = SteadyNow() - max_age;
  absl::MutexLock lock(&mu_);
  while (asked_at_ < wanted_since) {
    if (!std::exchange(fetching_, true)) {
      fetching_since_ = SteadyNow();
      pool_.Push(/*size=*/0, [this] { Fetch(); });
    }
    const auto answered = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !fetching_; };
    if (!mu_.AwaitWithTimeout(absl::Condition(&answered), fetching_since_ + limit - SteadyNow())) {
      return {DeviceState::kUnknown, absl::StrCat("the coordinator has not answered within ",
                                                  absl::FormatDuration(limit))};
    }
    if (!error_.empty()) return {DeviceState::kUnknown, error_};
  }
  const auto found = states_.find(device);
  if (found == states_.end())
    return {DeviceState::kLost, "its worker is not registered at the coordinator any more"};
  return found->second;
}

void DeviceStates::Fetch() {
  const absl::Time asked_at = SteadyNow();
  const absl::StatusOr<std::vector<api::Device>> devices = session_->service().ListDevices();
  absl::MutexLock lock(&mu_);
  fetching_ = false;
  error_ = devices.ok() ? "" : std::string(devices.status().message());
  if (!devices.ok()) return;
  asked_at_ = asked_at;
  states_.clear();
  for (const api::Device& device : *devices) states_[device.id] = StateOf(device);
}

// Asks again and again, because the coordinator has no call that waits for a device.
absl::Status DeviceStates::AwaitUsable(int64_t device, absl::Duration limit,
                                       const std::atomic<bool>& stop) {
  const absl::Time end = SteadyNow() + limit;
  while (true) {
    const DeviceState state = Get(device, kStateAgeMax, kAnswerWait);
    switch (state.kind) {
      case DeviceState::kReady:
      case DeviceState::kCordoned:
        return absl::OkStatus();
      case DeviceState::kLost:
        return DeviceLostError(device, state);
      case DeviceState::kUnresponsive:
      case DeviceState::kAway:
      case DeviceState::kUnknown:
        break;
    }
    if (stop.load()) return absl::CancelledError("the client has been closed");
    if (SteadyNow() >= end) {
      return MakeError(
          ErrorKind::kDeadlineExceeded,
          absl::StrCat("device ", device, " is ", NameOf(state.kind), " (", state.why,
                       "), and did not come back within ", absl::FormatDuration(limit)));
    }
    absl::SleepFor(std::min(kPollInterval, end - SteadyNow()));
  }
}

std::shared_ptr<DeviceStates> MakeDeviceStates(std::shared_ptr<Session> session) {
  auto made = std::make_shared<DeviceStates>(std::move(session));
  absl::MutexLock lock(&latest_mu);
  Latest() = made;
  return made;
}

std::shared_ptr<DeviceStates> LatestDeviceStates() {
  absl::MutexLock lock(&latest_mu);
  return Latest().lock();
}

}  // namespace tessera::pjrt
