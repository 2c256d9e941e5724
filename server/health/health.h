// Whether the service works, by what it has lately done: a pure state machine with the time passed
// in. docs/health.md says what the three checks mean.
//
//   live         the scheduler's loop answers
//   ready        live, and there is a device that may be given work and answers its worker
//   progressing  ready, and every such device has lately proved that it works: it passed a canary
//                (a tiny kernel on its executor; a tiny collective over all devices of its kind),
//                or it ended a launch; one that is busy goes on with what it runs
//
// A newcomer that has not proved anything yet is not held against the others. With canaries off the
// last two are what `live` is.
//
// Owned by one thread, which feeds it and asks it (server/health_keeper.h).
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
  absl::Duration interval = absl::Seconds(10);  // of canaries; 0: none
  absl::Duration timeout = absl::Seconds(2);    // of one
  absl::Duration retry = absl::Seconds(1);      // after one that did not pass
  absl::Duration loop_timeout = absl::Seconds(5);
  // How long what runs may stand still. Longer than any single kernel.
  absl::Duration stall = absl::Seconds(60);
};

enum class Reason : uint8_t {
  kOk,
  kLoopStuck,
  kNoDevices,
  kUnproven,
  kKernelCanary,
  kCollectiveCanary,
  kNotProgressing,
  kUnresponsive,
  kStopping
};
const char* NameOf(Reason reason);  // as the label has it

struct Check {
  Reason reason = Reason::kOk;
  std::string text;  // for people: who, what, since when
  bool ok() const { return reason == Reason::kOk; }
  bool operator==(const Check&) const = default;
};
struct Verdict {
  Check live, ready, progressing;
  bool operator==(const Verdict&) const = default;
};

enum class CanaryKind : uint8_t { kKernel, kCollective };
// kSkipped: it was refused for a reason that says nothing about the device.
enum class CanaryResult : uint8_t { kOk, kWrong, kTimeout, kError, kSkipped };
const char* NameOf(CanaryKind kind);
const char* NameOf(CanaryResult result);

struct Canary {
  uint64_t id = 0;
  CanaryKind kind = CanaryKind::kKernel;
  std::vector<std::pair<std::string, uint64_t>> executors;  // name, incarnation
  std::vector<int64_t> devices;
  bool operator==(const Canary&) const = default;
};

// How long ago a device last proved that it works.
struct ProofAge {
  std::string worker;
  int device = 0;  // its number within the worker
  CanaryKind kind = CanaryKind::kKernel;
  absl::Duration age;
};

class Health {
 public:
  explicit Health(Config config) : config_(config) {}

  // The loop has answered at `when`.
  void LoopAnswered(absl::Time when) { loop_answered_ = when; }
  // `executors`: all that are known.
  void Read(const std::vector<core::ExecutorReading>& executors, absl::Time now);
  // The canaries to start now, each returned once; End must be called for each. A device that has
  // work to do gets none.
  std::vector<Canary> Due(absl::Time now);
  void End(uint64_t canary, CanaryResult result, const std::string& why, absl::Time now);
  void Stop() { stopping_ = true; }

  Verdict Judge(absl::Time now) const;
  std::vector<ProofAge> Ages(absl::Time now) const;

 private:
  // The state of one kind of proof on one executor.
  struct Proof {
    absl::Time since;                        // when the executor came
    absl::Time last = absl::InfinitePast();  // when it last proved that it works
    absl::Time next = absl::InfinitePast();  // when its next canary is due
    bool failed = false;                     // whether its last canary failed
    std::string why;
    bool proved() const { return last > absl::InfinitePast(); }
    void Pass(absl::Time now, absl::Duration interval);
    void Fail(const std::string& text, absl::Time now, absl::Duration retry);
  };
  struct Executor {
    core::ExecutorReading reading;
    absl::Time read_at;
    Proof kernel, collective;
    uint64_t canary = 0;  // the one that is running on it; 0: none
    bool counts() const { return reading.alive && !reading.cordoned; }
    bool answers() const { return reading.silence == absl::ZeroDuration(); }
    bool idle() const { return reading.operations == 0 && canary == 0; }
  };
  // The executors that count, by kind of device.
  std::map<std::string, std::vector<Executor*>> Groups();
  Canary Start(CanaryKind kind, const std::vector<Executor*>& on);
  Check JudgeProgress(absl::Time now) const;

  const Config config_;
  absl::Time loop_answered_ = absl::InfinitePast();
  std::map<std::string, Executor> executors_;
  std::map<uint64_t, Canary> running_;
  uint64_t last_canary_ = 0;
  bool stopping_ = false;
};

}  // namespace tessera::server::health
