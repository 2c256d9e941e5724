// Random histories of launches that are cancelled, fail or lose a rank, on four devices with
// exchanges over several communicators. No launch may end well with wrong contents, a launch that
// exchanges nothing is not disturbed by its neighbours, and the devices go on afterwards.
//
// Each device has what it has in a service: a thread that enqueues, host collectives over TCP of
// its own, and at most 16 launches in flight. A thread plays the coordinator, which cancels
// launches and tells all devices when a launch has failed on one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "base/testing/seeds.h"
#include "worker/collectives/testing/test_cluster.h"
#include "worker/device/testing/test_device.h"

namespace tessera::worker::device {
namespace {

using ::testing::AnyOf;

constexpr int kRanks = 4, kElements = 4, kDepth = 16;

// The programs, for a mesh of 2 x 2 devices. `factor` relates the sum of the arguments over the
// group to the result; a group of one rank exchanges nothing.
struct TestProgram {
  const char* text;
  bool over_i, over_j;
  double factor;
};
constexpr TestProgram kPrograms[] = {
    {R"(mesh (i=2:manual, j=2:manual)
func main(%x: f32[4]) -> (f32[4]) unchecked {
  %y = add(%x, %x)
  return %y
})",
     false, false, 2},
    {R"(mesh (i=2:manual, j=2:manual)
func main(%x: f32[4]) -> (f32[4]) unchecked {
  %s = psum(%x) {axes=["i"]}
  return %s
})",
     true, false, 1},
    {R"(mesh (i=2:manual, j=2:manual)
func main(%x: f32[4]) -> (f32[4]) unchecked {
  %y = add(%x, %x)
  %s = psum(%y) {axes=["j"]}
  return %s
})",
     false, true, 2},
    {R"(mesh (i=2:manual, j=2:manual)
func main(%x: f32[4]) -> (f32[4]) unchecked {
  %s = psum(%x) {axes=["i", "j"]}
  %y = add(%s, %s)
  return %y
})",
     true, true, 2},
    {R"(mesh (i=2:manual, j=2:manual)
func main(%x: f32[4]) -> (f32[4]) unchecked {
  %s = psum(%x) {axes=["i"]}
  %y = add(%s, %s)
  %t = psum(%y) {axes=["j"]}
  return %t
})",
     true, true, 2},
};

struct PlannedLaunch {
  int program = 0;
  bool reads_previous = false;  // its argument is the result of the launch before it
  bool donates = false;         // it is the only user of that result
};

// The part of a launch on one rank.
struct Part {
  CancelToken cancel;
  absl::Notification ended;
  // Whether the thread that ends the part has left it. The history may then end. The thread
  // sanitizer sees this, and does not see the notification of the packaged Abseil.
  std::atomic<bool> left{false};
  absl::Status status;  // set before `ended`
  DeviceBufferRef argument, result;
};

struct Launched {
  PlannedLaunch plan;
  std::array<Part, kRanks> parts;

  bool ended() const {
    return std::all_of(parts.begin(), parts.end(), [](const Part& p) { return p.left.load(); });
  }
};

// The devices, and the executables of all programs on them. They serve many histories.
class Devices {
 public:
  Devices() {
    DeviceBackendOptions options;
    options.collective_timeout = absl::Seconds(60);
    options.abort_grace = absl::Seconds(60);
    options.cancel_grace = absl::Seconds(60);
    options.peer_abort_delay = absl::Milliseconds(2);
    for (int rank = 0; rank < kRanks; ++rank) {
      devices.push_back(std::make_unique<TestDevice>(rank, options));
      for (const TestProgram& program : kPrograms)
        executables[rank].push_back(*devices[rank]->backend->Compile(Parse(program.text)));
    }
  }
  std::vector<std::unique_ptr<TestDevice>> devices;
  std::array<std::vector<std::shared_ptr<const Executable>>, kRanks> executables;
};

// One history.
class History {
 public:
  // Chooses the launches and faults of the history from the seed. The fakes count the operations of
  // a rank, so a stall comes at a random one of them.
  History(Devices& devices, uint64_t seed, uint64_t generation, uint64_t first_launch)
      : devices_(devices), random_(seed), generation_(generation), first_launch_(first_launch) {
    cluster_ = std::make_unique<TestCluster>(kRanks, 1, absl::Seconds(60));
    cluster_->config.generation = generation;
    cluster_->StartAll();
    const int launches = 8 + static_cast<int>(random_() % 24);
    for (int i = 0; i < launches; ++i) {
      auto launch = std::make_unique<Launched>();
      launch->plan.program = static_cast<int>(random_() % std::size(kPrograms));
      // A chain is short, so that f32 has its values exactly.
      launch->plan.reads_previous = i % 4 != 0 && random_() % 3 == 0;
      launch->plan.donates = launch->plan.reads_previous && random_() % 2 == 0;
      launches_.push_back(std::move(launch));
    }
    if (random_() % 8 == 0) {
      lost_rank_ = static_cast<int>(random_() % kRanks);
      lost_at_ = static_cast<int>(random_() % launches);
    }
    tells_all_ = random_() % 4 != 0;
    stalls_ = random_() % 2 == 0;
    if (stalls_) {
      cuda::SetFake("nccl_fault_rank", static_cast<int64_t>(random_() % 2));
      cuda::SetFake("nccl_stall_at", 1 + static_cast<int64_t>(random_() % (2 * launches)));
    }
    cuda::SetFake("nccl_dead_peer_hangs", static_cast<int64_t>(random_() % 2));
  }

  void Run() {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back([this, rank] { Enqueue(rank); });
    Coordinate();
    for (std::thread& rank : ranks) rank.join();
    Check();
    if (!lost_a_rank()) CheckThatDevicesGoOn();
    cuda::SetFake("nccl_stall_at", 0);
    for (const auto& device : devices_.devices) device->backend->CloseGeneration(generation_);
  }

  size_t num_launches() const { return launches_.size() + num_tries_ + 1; }
  int num_tries() const { return num_tries_; }
  int num_ok() const { return num_ok_; }
  bool lost_a_rank() const { return lost_rank_ >= 0; }

 private:
  static double Argument(size_t launch, int rank) {
    return static_cast<double>(launch % 50) + 100.0 * (rank + 1);
  }

  // The ranks are numbered row by row: rank 2 i + j is at (i, j).
  static double Expected(const TestProgram& program, const std::array<double, kRanks>& arguments,
                         int rank) {
    double sum = 0;
    for (int other = 0; other < kRanks; ++other) {
      const bool same_i = other / 2 == rank / 2, same_j = other % 2 == rank % 2;
      if ((same_i || program.over_i) && (same_j || program.over_j)) sum += arguments[other];
    }
    return program.factor * sum;
  }

  // The thread of one rank, which enqueues the launches in order, as an executor does.
  void Enqueue(int rank) {
    TestDevice& device = *devices_.devices[rank];
    for (size_t i = 0; i < launches_.size(); ++i) {
      if (rank == lost_rank_ && static_cast<int>(i) >= lost_at_) return LoseRank(rank, i);
      if (i >= kDepth) launches_[i - kDepth]->parts[rank].ended.WaitForNotification();
      const absl::Status status = EnqueuePart(device, rank, i);
      if (!status.ok()) EndPart(rank, i, status);
    }
  }

  // Runs a launch that nobody cancels until it ends well, on all ranks. The first tries may end
  // with PEER_ABORTED, because a rank has not yet heard what another has aborted.
  void CheckThatDevicesGoOn() {
    constexpr int kTriesMax = 20;
    std::string ends;
    cuda::SetFake("nccl_stall_at", 0);
    for (num_tries_ = 1; num_tries_ <= kTriesMax; ++num_tries_) {
      std::array<absl::StatusOr<Array>, kRanks> results;
      std::vector<std::thread> ranks;
      for (int rank = 0; rank < kRanks; ++rank)
        ranks.emplace_back([&, rank] { results[rank] = RunLast(rank); });
      for (std::thread& rank : ranks) rank.join();
      bool all_ok = true;
      for (const auto& result : results) {
        all_ok &= result.ok();
        CheckStatus(result.status());
        absl::StrAppend(&ends, "\n", num_tries_, ": ", result.status().ToString());
      }
      if (!all_ok) continue;
      for (const auto& result : results) EXPECT_EQ(*result, ArrayOf(8));
      return;
    }
    ADD_FAILURE() << "the devices do not go on:" << ends;
  }

  absl::StatusOr<Array> RunLast(int rank) {
    TestDevice& device = *devices_.devices[rank];
    const size_t i = launches_.size() + num_tries_;
    CancelToken none;
    absl::Status ended_with;
    absl::Notification ended;
    absl::StatusOr<Enqueued> last =
        EnqueueOn(device, rank, i, /*program=*/4, none, {device.Put(ArrayOf(1))});
    if (last.ok()) {
      last->event->OnDone([&](const absl::Status& status) {
        ended_with = status;
        ended.Notify();
      });
      ended.WaitForNotification();
    } else {
      ended_with = last.status();
    }
    if (ended_with.ok()) return device.backend->ToHost(*last->results[0]);
    cluster_->executors[rank]->AbortLaunch(first_launch_ + i, StatusForPeers(ended_with));
    return ended_with;
  }

  static Array ArrayOf(double value) {
    return Array::Of(DType::kF32, {kElements}, {value, value, value, value});
  }

  RunContext ContextOf(int rank, size_t i, const CancelToken& cancel) const {
    RunContext context;
    context.launch = first_launch_ + i;
    context.program = "program";
    context.tenant = i % 2 == 0 ? "a" : "b";
    context.mesh_device = rank;
    context.collectives = cluster_->executors[rank].get();
    context.generation = generation_;
    context.ranks = ranks_;
    context.cancel = &cancel;
    return context;
  }

  absl::StatusOr<Enqueued> EnqueueOn(TestDevice& device, int rank, size_t i, int program,
                                     const CancelToken& cancel,
                                     const std::vector<DeviceBufferRef>& args,
                                     absl::Span<const int> donations = {}) {
    RunContext context = ContextOf(rank, i, cancel);
    context.donations = donations;
    return device.backend->Enqueue(*devices_.executables[rank][program], context, args);
  }

  // Enqueues a rank's part as an executor does: a part whose argument has failed is skipped, and a
  // part ends with the failure of its argument.
  absl::Status EnqueuePart(TestDevice& device, int rank, size_t i) {
    const PlannedLaunch& plan = launches_[i]->plan;
    Part& part = launches_[i]->parts[rank];
    if (plan.reads_previous) {
      part.argument = launches_[i - 1]->parts[rank].result;
      if (part.argument == nullptr) {
        device.backend->Skip(devices_.executables[rank][plan.program].get(),
                             ContextOf(rank, i, part.cancel));
        return launches_[i - 1]->parts[rank].status;
      }
    } else {
      part.argument = device.Put(ArrayOf(Argument(i, rank)));
    }
    const std::vector<DeviceBufferRef> args = {part.argument};
    const std::vector<int> donations = device.backend->ChooseDonations(
        *devices_.executables[rank][plan.program], args, {plan.donates});
    TESSERA_ASSIGN_OR_RETURN(
        Enqueued enqueued, EnqueueOn(device, rank, i, plan.program, part.cancel, args, donations));
    part.result = std::move(enqueued.results[0]);
    enqueued.event->OnDone([this, rank, i](absl::Status status) {
      if (launches_[i]->plan.reads_previous) status.Update(launches_[i - 1]->parts[rank].status);
      EndPart(rank, i, status);
    });
    return absl::OkStatus();
  }

  void EndPart(int rank, size_t i, const absl::Status& status) {
    Part& part = launches_[i]->parts[rank];
    part.status = status;
    if (!status.ok()) {
      part.cancel.Cancel(status);
      cluster_->executors[rank]->AbortLaunch(first_launch_ + i, StatusForPeers(status));
    }
    if (!status.ok() && tells_all_) {
      absl::MutexLock lock(&mu_);
      failed_.push_back(i);
    }
    part.ended.Notify();
    part.left = true;
  }

  // The rank enqueues nothing more, its connections close, and its parts are over.
  void LoseRank(int rank, size_t i) {
    cluster_->executors[rank]->Abort(MakeError(ErrorKind::kWorkerLost, "lost"));
    const absl::Status gone = MakeError(ErrorKind::kWorkerLost, "lost");
    for (size_t j = 0; j < i; ++j) launches_[j]->parts[rank].cancel.Cancel(gone);
    for (; i < launches_.size(); ++i) EndPart(rank, i, gone);
  }

  // Cancels launches at random times, each on all ranks, one after the other. If an exchange stalls
  // or a rank is lost, the oldest launch is cancelled when nothing goes on. Otherwise everything
  // must end by itself.
  void Coordinate() {
    std::mt19937_64 random(random_());
    const bool may_hang = stalls_ || lost_a_rank();
    const absl::Duration patience = may_hang ? absl::Milliseconds(15) : absl::Seconds(20);
    size_t first_unfinished = 0;
    absl::Time progress = absl::Now();
    while (true) {
      const size_t before = first_unfinished;
      while (first_unfinished < launches_.size() && launches_[first_unfinished]->ended())
        ++first_unfinished;
      if (first_unfinished == launches_.size()) return;
      const absl::Time now = absl::Now();
      if (before != first_unfinished) progress = now;
      if (now - progress > patience) {
        EXPECT_TRUE(may_hang) << "launch " << first_unfinished << " does not end by itself";
        CancelOnAll(random, first_unfinished, ErrorKind::kDeadlineExceeded);
        progress = now;
      } else if (random() % 64 == 0) {
        const size_t behind = random() % std::min<size_t>(6, launches_.size() - first_unfinished);
        CancelOnAll(random, first_unfinished + behind, ErrorKind::kCancelled);
      }
      std::vector<size_t> failed;
      {
        absl::MutexLock lock(&mu_);
        failed.swap(failed_);
      }
      for (const size_t i : failed) CancelOnAll(random, i, ErrorKind::kPeerFailed);
      const auto& parts = launches_[first_unfinished]->parts;
      const auto unfinished = std::find_if(
          parts.begin(), parts.end(), [](const Part& p) { return !p.ended.HasBeenNotified(); });
      if (unfinished != parts.end())
        unfinished->ended.WaitForNotificationWithTimeout(absl::Microseconds(50 + random() % 200));
    }
  }

  void CancelOnAll(std::mt19937_64& random, size_t i, ErrorKind kind) {
    std::array<int, kRanks> order = {0, 1, 2, 3};
    std::shuffle(order.begin(), order.end(), random);
    for (const int rank : order) {
      // A rank whose part has ended is not told.
      Part& part = launches_[i]->parts[rank];
      if (part.ended.HasBeenNotified()) continue;
      if (part.cancel.Cancel(MakeError(kind, "enough")))
        cluster_->executors[rank]->AbortLaunch(
            first_launch_ + i, StatusForPeers(MakeError(ErrorKind::kPeerFailed, "enough")));
      if (random() % 4 == 0)
        part.ended.WaitForNotificationWithTimeout(absl::Microseconds(random() % 500));
    }
  }

  // Checks the ends of all launches, and the contents of those that ended well at all ranks. The
  // expected contents follow from the arguments alone, since all values are small whole numbers.
  void Check() {
    std::array<double, kRanks> previous = {};
    for (size_t i = 0; i < launches_.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("launch ", i));
      const Launched& launch = *launches_[i];
      std::array<double, kRanks> arguments;
      for (int rank = 0; rank < kRanks; ++rank)
        arguments[rank] = launch.plan.reads_previous ? previous[rank] : Argument(i, rank);
      bool all_ok = true;
      for (int rank = 0; rank < kRanks; ++rank) {
        const TestProgram& program = kPrograms[launch.plan.program];
        previous[rank] = Expected(program, arguments, rank);
        const absl::Status& status = launch.parts[rank].status;
        all_ok &= status.ok();
        CheckStatus(status);
        // Without an exchange, the part must only be right if it was not itself cancelled.
        if (program.over_i || program.over_j || launch.plan.reads_previous) continue;
        if (!status.ok()) {
          EXPECT_THAT(ReasonOf(status),
                      AnyOf("CANCELLED", "DEADLINE_EXCEEDED", "PEER_FAILED", "WORKER_LOST"));
        }
      }
      if (!all_ok) continue;
      ++num_ok_;
      const bool consumed = i + 1 < launches_.size() && launches_[i + 1]->plan.donates;
      for (int rank = 0; rank < kRanks && !consumed; ++rank)
        EXPECT_THAT(devices_.devices[rank]->backend->ToHost(*launch.parts[rank].result),
                    IsOkAndHolds(ArrayOf(previous[rank])));
    }
    for (const auto& device : devices_.devices) EXPECT_THAT(device->fatal_status(), IsOk());
    EXPECT_EQ(cuda::FakeViolations(), "");
  }

  void CheckStatus(const absl::Status& status) const {
    if (status.ok()) return;
    const std::string reason(ReasonOf(status));
    if (lost_a_rank() && reason == "WORKER_LOST") return;
    EXPECT_THAT(reason, AnyOf("CANCELLED", "DEADLINE_EXCEEDED", "PEER_ABORTED", "PEER_FAILED"))
        << status;
  }

  const std::vector<int> ranks_ = {0, 1, 2, 3};
  Devices& devices_;
  std::mt19937_64 random_;
  const uint64_t generation_, first_launch_;
  std::unique_ptr<TestCluster> cluster_;
  std::vector<std::unique_ptr<Launched>> launches_;
  int lost_rank_ = -1, lost_at_ = 0;
  bool tells_all_ = false, stalls_ = false;
  int num_ok_ = 0, num_tries_ = 0;
  absl::Mutex mu_;
  std::vector<size_t> failed_ ABSL_GUARDED_BY(mu_);  // launches that have failed on a rank
};

class DeviceAbortsTest : public FakeDevicesTest {};

TEST_F(DeviceAbortsTest, NoLaunchEndsWellWithWrongContents) {
  cuda::SetFake("violation_abort", 0);
  Devices devices;
  int64_t num_launches = 0, num_ok = 0;
  uint64_t first_launch = 1;
  for (int64_t seed = 0; seed < testing::NumSeeds(1000) && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    History history(devices, seed, /*generation=*/seed + 1, first_launch);
    history.Run();
    first_launch += history.num_launches();
    num_launches += static_cast<int64_t>(history.num_launches());
    num_ok += history.num_ok();
  }
  // Some launches end well, and many do not.
  EXPECT_GT(num_ok, num_launches / 10);
  EXPECT_LT(num_ok, num_launches * 9 / 10);
  RecordProperty("launches", absl::StrCat(num_ok, " of ", num_launches, " ended well"));
}

}  // namespace
}  // namespace tessera::worker::device
