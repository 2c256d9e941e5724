// Proves what the driver adds to the state machine: in which order waiting events and timers are
// processed, that each event counts from the time at which it came however late it is processed,
// and that reports which links return are processed. The tests use a fake clock, and can make the
// runner wait inside a commit.
#include "server/scheduler/driver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/testing/status_matchers.h"

namespace tessera::server::scheduler {
namespace {

// A worker's link that records whether it was closed.
class FakeLink final : public api::WorkerLink {
 public:
  void Send(int32_t, uint64_t, api::Command) override {}
  void Close(const absl::Status& why) override {
    absl::MutexLock lock(&mu_);
    closed_ = why;
  }
  absl::Status closed() {
    absl::MutexLock lock(&mu_);
    return closed_;
  }
  // Returns false if the link is not closed within a minute.
  bool AwaitClosed() {
    absl::MutexLock lock(&mu_);
    auto closed = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !closed_.ok(); };
    return mu_.AwaitWithTimeout(absl::Condition(&closed), absl::Minutes(1));
  }

 private:
  absl::Mutex mu_;
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
};

// A link of an executor in this process. SendForReport returns after the shard has been written. If
// before_ is set, SendForReport calls it first, for example to post another event.
class AnsweringLink final : public api::WorkerLink {
 public:
  void Send(int32_t, uint64_t, api::Command) override {}
  bool SendForReport(int32_t executor, uint64_t incarnation, api::Command command,
                     api::Report* report) override {
    const auto* const write = std::get_if<api::WriteBuffer>(&command);
    if (write == nullptr) return false;
    if (before_) before_();
    report->executor = executor;
    report->incarnation = incarnation;
    report->body = api::BufferWritten{write->array, write->device, absl::OkStatus()};
    return true;
  }
  std::function<void()> before_;
};

// A driver whose commit function can be made to wait, so that the runner waits too.
class DriverTest : public ::testing::Test {
 protected:
  DriverTest()
      : driver_({.config = DurableConfig(), .commit = [this](const Commit& c) { OnCommit(c); }},
                &clock_, [](const core::PlanRequest&) { return absl::UnimplementedError(""); }) {}
  ~DriverTest() override { HoldCommits(false); }

  void HoldCommits(bool on) {
    absl::MutexLock lock(&mu_);
    hold_commits_ = on;
  }
  void AwaitHeldCommit() {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&commit_is_held_));
  }
  uint64_t Register(const std::string& name, std::shared_ptr<api::WorkerLink> link) {
    api::Registration registration;
    registration.worker = name;
    registration.host = "here";
    registration.executors.emplace_back();
    registration.executors[0].incarnation = 1;
    registration.executors[0].device_kind = "cpu";
    return driver_.AddWorker(registration, std::move(link));
  }
  WorkerInfo DescribeWorker(const std::string& worker) {
    absl::Notification answered;
    WorkerInfo info;
    GetWorker get;
    get.worker = worker;
    get.caller.role = core::Role::kAdmin;
    driver_.Call(std::move(get), [&](Reply reply) {
      EXPECT_THAT(reply.status, IsOk());
      if (reply.status.ok()) info = std::get<WorkerInfo>(reply.body);
      answered.Notify();
    });
    answered.WaitForNotification();
    return info;
  }

  static Config DurableConfig() {
    Config config;
    config.durable = true;
    return config;
  }
  void OnCommit(const Commit& commit) {
    {
      absl::MutexLock lock(&mu_);
      commit_is_held_ = hold_commits_;
      mu_.Await(absl::Condition(
          +[](bool* held) { return !*held; }, &hold_commits_));
      commit_is_held_ = false;
    }
    driver_.OnDurable(commit.number);
  }

  absl::Mutex mu_;
  bool hold_commits_ ABSL_GUARDED_BY(mu_) = false;
  bool commit_is_held_ ABSL_GUARDED_BY(mu_) = false;
  FakeClock clock_;
  Driver driver_;
};

TEST_F(DriverTest, ReportsThatWaitAreProcessedBeforeTimersThatAreDue) {
  const auto link = std::make_shared<FakeLink>();
  const uint64_t w0 = Register("w0", link);
  // The registration of another worker is held up for longer than a lease.
  HoldCommits(true);
  std::thread other([this] { Register("w1", std::make_shared<FakeLink>()); });
  AwaitHeldCommit();
  for (int i = 0; i < 20; ++i) {
    clock_.Advance(absl::Milliseconds(300));
    driver_.Report(w0, {0, 0, api::Heartbeat{}});
  }
  HoldCommits(false);
  other.join();
  const WorkerInfo w = DescribeWorker("w0");
  EXPECT_EQ(w.state, WorkerState::kReady) << w.reason;
  EXPECT_THAT(link->closed(), IsOk());
}

TEST_F(DriverTest, AReportCountsFromItsTimeOfArrival) {
  const auto link = std::make_shared<FakeLink>();
  const uint64_t w0 = Register("w0", link);
  HoldCommits(true);
  std::thread other([this] { Register("w1", std::make_shared<FakeLink>()); });
  AwaitHeldCommit();
  clock_.Advance(absl::Milliseconds(100));
  driver_.Report(w0, {0, 0, api::Heartbeat{}});
  clock_.Advance(absl::Seconds(10));
  HoldCommits(false);
  other.join();
  // The worker has been silent for ten seconds since then, so the driver closes its link.
  EXPECT_TRUE(link->AwaitClosed());
  const WorkerInfo w = DescribeWorker("w0");
  EXPECT_EQ(w.state, WorkerState::kSuspect);
  EXPECT_THAT(w.reason, ::testing::HasSubstr("it may come back"));
}

// A report that a link returns is processed as if it were reported: alone, behind the events that
// wait by then, and when the posting thread has processed as many events as it may.
TEST_F(DriverTest, ReportsThatALinkReturnsAreProcessed) {
  const auto link = std::make_shared<AnsweringLink>();
  Register("w0", link);
  ir::Array value(ir::DType::kF32, {4});
  std::atomic<int> asked = 0, answered = 0;
  for (const int first : {0, 1, 100}) {
    link->before_ = [&, first] {
      for (int i = 0; i < first; ++i) {
        ++asked;
        driver_.Call(GetTopology{}, [&](const Reply& reply) {
          EXPECT_THAT(reply.status, IsOk());
          ++answered;
        });
      }
    };
    CreateArray create;
    create.spec = {value.dtype(), value.shape(), {{}, {}, {0}}};
    const Reply created = driver_.Await(std::move(create));
    ASSERT_THAT(created.status, IsOk());
    const uint64_t array = std::get<ArrayInfo>(created.body).array;
    const Reply written = driver_.Await(WriteShard{{}, array, 0, value});
    EXPECT_THAT(written.status, IsOk());
    DescribeArray describe;
    describe.array = array;
    const Reply described = driver_.Await(std::move(describe));
    ASSERT_THAT(described.status, IsOk());
    EXPECT_EQ(std::get<ArrayInfo>(described.body).state, ArrayInfo::State::kReady);
  }
  // These calls waited before the report.
  EXPECT_EQ(answered, asked);
}

TEST_F(DriverTest, ALeaseDoesNotEndWhenSomebodySetsTheClock) {
  const auto ask = [this](auto event) {
    absl::Notification answered;
    SessionInfo info;
    driver_.Call(std::move(event), [&](Reply reply) {
      EXPECT_THAT(reply.status, IsOk());
      if (reply.status.ok()) info = std::get<SessionInfo>(reply.body);
      answered.Notify();
    });
    answered.WaitForNotification();
    return info;
  };
  OpenSession open;
  open.lease = absl::Minutes(1);
  const SessionInfo opened = ask(open);
  GetSession get;
  get.session = opened.id;
  for (const absl::Duration by : {absl::Hours(1), -absl::Hours(2)}) {
    clock_.StepWall(by);
    clock_.Advance(absl::Seconds(20));
    const SessionInfo now = ask(get);
    // The date for people follows the wall clock.
    EXPECT_EQ(now.expires - clock_.Wall(), opened.expires - clock_.Now());
  }
}

TEST_F(DriverTest, LaterEventsDoNotDelayATimerThatIsDue) {
  const auto link = std::make_shared<FakeLink>();
  Register("w0", link);
  clock_.Advance(absl::Seconds(10));
  // The callback of each reply posts the next request, so that one event always waits.
  struct Flood {
    Driver* driver;
    FakeLink* link;
    absl::Notification over;
    void Next() {
      driver->Call(GetTopology{},
                   [this](const Reply&) { link->closed().ok() ? Next() : over.Notify(); });
    }
  } flood{&driver_, link.get(), {}};
  flood.Next();
  flood.over.WaitForNotification();
  EXPECT_THAT(link->closed(), ReasonIs("WORKER_LOST", "silent"));
}

}  // namespace
}  // namespace tessera::server::scheduler
