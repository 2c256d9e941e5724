// Judges whether the service is healthy from what its scheduler and devices did recently. This is a
// state machine without threads or clocks: callers pass in the observations and the time.
// docs/health.md explains the three checks.
//
//   live         the scheduler's loop replies
//   ready        live, and some device may get work and its executor replies to its worker
//   progressing  ready, and every device that may get work has worked recently: it passed a canary
//                or ended a launch, or it is busy and makes progress
//
// A canary is a probe: a tiny kernel on the devices of one executor, or a tiny collective over all
// devices of one kind. A device that has just registered does not make the check fail as long as
// another device has worked recently. If canaries are off, the last two checks equal `live`.
// Thread-compatible (see server/coordinator/health_monitor.h).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/core/telemetry.h"

namespace tessera::server::health {

struct Config {
  absl::Duration interval = absl::Seconds(10);  // time between canaries; 0 turns them off
  absl::Duration timeout = absl::Seconds(2);    // a canary that takes longer has failed
  absl::Duration retry = absl::Seconds(1);      // time to the next canary after a failed one
  // How long the scheduler's loop may leave a ping unanswered.
  absl::Duration loop_timeout = absl::Seconds(5);
  // How long a launch may go without progress. Progress is reported between kernels, so this must
  // be longer than the longest kernel.
  absl::Duration stall = absl::Seconds(60);
};

enum class Reason : uint8_t {
  kOk,
  kLoopStuck,
  kNoDevices,
  kNoSuccessYet,
  kKernelCanary,
  kCollectiveCanary,
  kNotProgressing,
  kUnresponsive,
  kStopping
};
const char* NameOf(Reason reason);  // returns the value of the metric's label

struct Check {
  Reason reason = Reason::kOk;
  std::string text;  // for people: which executor, what is wrong, and since when
  bool ok() const { return reason == Reason::kOk; }
  bool operator==(const Check&) const = default;
};
struct Verdict {
  Check live, ready, progressing;
  bool operator==(const Verdict&) const = default;
};

enum class CanaryKind : uint8_t { kKernel, kCollective };
// kSkipped means that the canary did not run, for a reason that says nothing about the devices.
enum class CanaryResult : uint8_t { kOk, kWrong, kTimeout, kError, kSkipped };
const char* NameOf(CanaryKind kind);
const char* NameOf(CanaryResult result);

struct Canary {
  uint64_t id = 0;
  CanaryKind kind = CanaryKind::kKernel;
  std::vector<std::pair<std::string, uint64_t>> executors;  // names and incarnations
  std::vector<int64_t> devices;
  bool operator==(const Canary&) const = default;
};

// The time since a device last passed a canary of this kind, or ended a launch that proves as much;
// before its first success, the time since its executor registered.
struct SuccessAge {
  std::string worker;
  int device = 0;  // index of the device within the worker
  CanaryKind kind = CanaryKind::kKernel;
  absl::Duration age;
};

class Health {
 public:
  explicit Health(Config config) : config_(config) {}

  // Records that the scheduler's loop replied at `when`.
  void RecordLoopReply(absl::Time when) { loop_replied_at_ = when; }
  // Records the state of all known executors.
  void RecordExecutors(const std::vector<core::ExecutorReading>& executors, absl::Time now);
  // Returns the canaries to start now. Each canary is returned once, and the caller must call
  // EndCanary for it. Busy devices get no canary.
  std::vector<Canary> TakeDue(absl::Time now);
  void EndCanary(uint64_t canary, CanaryResult result, const std::string& why, absl::Time now);
  void Stop() { stopping_ = true; }

  Verdict Evaluate(absl::Time now) const;
  std::vector<SuccessAge> SuccessAges(absl::Time now) const;

 private:
  // The successes and failures of one kind of canary on one executor.
  struct ProbeHistory {
    absl::Time registered_at;                           // when the executor registered
    absl::Time last_success_at = absl::InfinitePast();  // when the executor last succeeded
    absl::Time next_due_at = absl::InfinitePast();      // when the next canary is due
    bool failed = false;                                // whether the last canary failed
    std::string failure;                                // why the last canary failed
    bool succeeded() const { return last_success_at > absl::InfinitePast(); }
    void RecordSuccess(absl::Time now, absl::Duration interval);
    void RecordFailure(const std::string& text, absl::Time now, absl::Duration retry);
  };
  struct Executor {
    core::ExecutorReading reading;
    absl::Time read_at;
    ProbeHistory kernel, collective;
    uint64_t canary = 0;  // id of the canary that runs on it, or 0
    bool takes_work() const { return reading.alive && !reading.cordoned; }
    bool responsive() const { return reading.silence == absl::ZeroDuration(); }
    // Whether a canary may be sent to it. A canary that is sent to an executor which does not
    // answer proves nothing that its silence does not say, and would wait there.
    bool may_get_canary() const {
      return reading.operations == 0 && canary == 0 && reading.answers;
    }
  };
  // Returns the executors that are alive and not cordoned, grouped by their kind of device.
  std::map<std::string, std::vector<Executor*>> ExecutorsByKind();
  Canary StartCanary(CanaryKind kind, const std::vector<Executor*>& on);
  Check EvaluateProgress(absl::Time now) const;

  const Config config_;
  absl::Time loop_replied_at_ = absl::InfinitePast();
  std::map<std::string, Executor> executors_;
  std::map<uint64_t, Canary> running_;
  uint64_t last_canary_ = 0;
  bool stopping_ = false;
};

}  // namespace tessera::server::health
