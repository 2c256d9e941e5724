// Proves that the driver processes the events that effects post, fires its timer, and waits for the
// processes when it ends. A fake worker without processes answers each effect at once.
#include "worker/daemon/driver.h"

#include <vector>

#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "gtest/gtest.h"

namespace tessera::worker::daemon {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

// A worker with one executor, without processes. The thread that applies an effect
// also posts the answer at once. The first process does not start.
class FakeWorker {
 public:
  FakeWorker() { driver_.Start(); }

  Driver& driver() { return driver_; }
  absl::Notification& registered() { return registered_; }
  const std::vector<absl::Time>& starts() const { return starts_; }
  const std::vector<LossCause>& losses() const { return losses_; }

 private:
  static Config OneExecutor() {
    Config config;
    config.incarnations = {1000};
    return config;
  }
  void Apply(const Effect& effect) {
    if (const auto* start = std::get_if<StartChild>(&effect)) return StartProcess(*start);
    if (const auto* lost = std::get_if<ChildLost>(&effect)) losses_.push_back(lost->loss.cause);
    if (std::holds_alternative<Connect>(effect)) driver_.Post(Welcomed{api::Welcome()});
    if (std::holds_alternative<Registered>(effect)) registered_.Notify();
    if (std::holds_alternative<CancelLink>(effect)) {
      driver_.Post(LinkEnded{absl::CancelledError("cancelled")});
    }
    if (std::holds_alternative<CloseChildInput>(effect)) {
      driver_.Post(ChildEnded{0, {false, "exited with status 0", 0}, {}});
    }
  }
  void StartProcess(const StartChild& start) {
    starts_.push_back(SteadyNow());
    if (starts_.size() == 1) return driver_.Post(SpawnFailed{0, "no such file"});
    api::ExecutorInfo info;
    info.incarnation = start.incarnation;
    driver_.Post(ChildStarted{0});
    driver_.Post(ChildMessage{0, info});
  }

  // Used by the runner, and by the test once the driver has ended.
  std::vector<absl::Time> starts_;
  std::vector<LossCause> losses_;
  absl::Notification registered_;
  Driver driver_{OneExecutor(), [this](const Effect& effect) { Apply(effect); },
                 [] { return true; }};
};

TEST(DriverTest, PostedEventsAndTimersAreProcessed) {
  FakeWorker worker;
  ASSERT_TRUE(worker.registered().WaitForNotificationWithTimeout(kPatience));
  EXPECT_TRUE(worker.driver().ready(0));
  worker.driver().End();
  ASSERT_EQ(worker.starts().size(), 2);
  EXPECT_GE(worker.starts()[1] - worker.starts()[0], Config().backoff_min);
}

TEST(DriverTest, EndWaitsForTheProcesses) {
  FakeWorker worker;
  ASSERT_TRUE(worker.registered().WaitForNotificationWithTimeout(kPatience));
  worker.driver().End();
  EXPECT_EQ(worker.losses(), (std::vector<LossCause>{LossCause::kOther, LossCause::kStopped}));
  EXPECT_FALSE(worker.driver().ready(0));
}

}  // namespace
}  // namespace tessera::worker::daemon
