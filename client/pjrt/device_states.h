// The states of a client's devices, which change while the client lives: the framework knows its
// devices for good, but a worker may be lost and come back.
//
// Thread-safe. The client owns a DeviceStates.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/sized_pool.h"
#include "client/session.h"
#include "ir/api/service.h"

namespace tessera::pjrt {

struct DeviceState {
  enum Kind {
    kReady,
    kCordoned,      // it takes no new programs
    kUnresponsive,  // its executor runs, but does not answer
    kAway,          // its executor may come back with its arrays
    kLost,          // its executor is gone with its arrays; another one may take its place
    kUnknown,       // the coordinator does not answer
  };
  Kind kind = kUnknown;
  std::string why;  // the reason; empty if the device is ready
};
const char* NameOf(DeviceState::Kind kind);
DeviceState StateOf(const api::Device& device);
// Returns WORKER_LOST for a device whose state is kLost.
absl::Status DeviceLostError(int64_t device, const DeviceState& state);

class DeviceStates {
 public:
  // Call MakeDeviceStates instead.
  explicit DeviceStates(std::shared_ptr<Session> session);
  DeviceStates(const DeviceStates&) = delete;
  DeviceStates& operator=(const DeviceStates&) = delete;

  // Returns the state of a device, which the coordinator has said within `max_age`. Asks the
  // coordinator if need be. If it does not answer within `limit`, the state is kUnknown, also for
  // those that ask before the answer has come.
  DeviceState Get(int64_t device, absl::Duration max_age, absl::Duration limit)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Waits, at most for `limit`, until the device may take data: until it is neither away,
  // unresponsive nor unknown. Returns WORKER_LOST with the reason if it is lost, and
  // DEADLINE_EXCEEDED at the limit. `stop` ends the wait with CANCELLED.
  absl::Status AwaitUsable(int64_t device, absl::Duration limit, const std::atomic<bool>& stop)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Fetch() ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<Session> session_;
  absl::Mutex mu_;
  bool fetching_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time fetching_since_ ABSL_GUARDED_BY(mu_);
  absl::Time asked_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // when `states_` was asked for
  std::map<int64_t, DeviceState> states_ ABSL_GUARDED_BY(mu_);
  std::string error_ ABSL_GUARDED_BY(mu_);  // why the last question was not answered, or ""
  SizedPool pool_;                          // calls Fetch; last, because it uses the other members
};

// Returns the states of a new client's devices.
std::shared_ptr<DeviceStates> MakeDeviceStates(std::shared_ptr<Session> session);
// Returns what the last call of MakeDeviceStates returned, or null if it is gone.
std::shared_ptr<DeviceStates> LatestDeviceStates();

}  // namespace tessera::pjrt
