// Proves how runs are sent ahead. Local ids stand for the coordinator's ids, the error of a refused
// run is returned where its results are used, and after a broken stream the unanswered runs are
// sent again on a new stream. The coordinator is a fake in this process. The test tells it how to
// serve each stream.
#include "client/remote/runs_ahead.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "client/remote/fake_coordinator.h"
#include "client/remote/status.h"
#include "gmock/gmock.h"
#include "ir/serial/status.h"

namespace tessera::remote {
namespace {

void Refuse(ServerStream* stream, uint64_t number, const absl::Status& why) {
  v1::ExecuteProgramsEvent event;
  event.set_number(number);
  *event.mutable_refused() = ir::serial::ToProto(why);
  EXPECT_TRUE(stream->Write(event));
}
// Accepts the run as the operation `id`, whose only result is the array `id`.
void AcceptWithResult(ServerStream* stream, uint64_t number, uint64_t id) {
  v1::ExecuteProgramsEvent event;
  event.set_number(number);
  event.mutable_accepted()->set_operation(id);
  event.mutable_accepted()->add_outputs(id);
  EXPECT_TRUE(stream->Write(event));
}

class RunsAheadTest : public ::testing::Test {
 protected:
  // Starts the client. The callbacks note their calls, and return what the test has set.
  void Start(FakeCoordinator::Serve serve) {
    coordinator_.SetServe(std::move(serve));
    runs_ahead_ = std::make_unique<RunsAhead>(
        execution_client_.get(), coordinator_.channel(), &outage_,
        [](const grpc::Status& status) {
          return FromGrpc(status, "the coordinator", ErrorKind::kServerStopping);
        },
        RunsAhead::Callbacks{.replace_session =
                                 [this](uint64_t session) {
                                   absl::MutexLock lock(&mu_);
                                   unknown_sessions_.push_back(session);
                                   return new_session_;
                                 },
                             .free_arrays =
                                 [this](const std::vector<uint64_t>& arrays) {
                                   absl::MutexLock lock(&mu_);
                                   freed_.insert(freed_.end(), arrays.begin(), arrays.end());
                                 },
                             .compile =
                                 [this](const api::CompileRequest& request) {
                                   absl::MutexLock lock(&mu_);
                                   compiled_.push_back(request.name);
                                   return next_compile_;
                                 },
                             .on_accepted =
                                 [this](uint64_t session, const api::ExecuteReply&) {
                                   absl::MutexLock lock(&mu_);
                                   accepted_in_.push_back(session);
                                 },
                             .check_held =
                                 [this](absl::Span<const uint64_t> arrays) {
                                   absl::MutexLock lock(&mu_);
                                   for (const uint64_t array : arrays)
                                     if (array == lost_array_)
                                       return MakeError(ErrorKind::kSessionNotFound,
                                                        "the lease has ended");
                                   return absl::OkStatus();
                                 }});
  }
  // Returns the program of the executable `executable`. When the program is compiled again, its
  // executable is `again`.
  std::shared_ptr<api::KeptProgram> Keep(uint64_t executable, uint64_t again) {
    api::CompileRequest request;
    request.name = "step";
    api::CompileReply reply;
    reply.executable = executable;
    auto kept = std::make_shared<api::KeptProgram>(std::move(request), reply);
    reply.executable = again;
    absl::MutexLock lock(&mu_);
    next_compile_ = std::move(reply);
    return kept;
  }
  // Acts as another call, which has the program compiled again as executable `made`.
  static void ReplaceByAnotherCall(api::KeptProgram& kept, uint64_t lost, uint64_t made) {
    const auto compile = [made](const api::CompileRequest&) {
      api::CompileReply reply;
      reply.executable = made;
      return reply;
    };
    TESSERA_EXPECT_OK(kept.Replace(lost, compile, SteadyNow() + kLimit));
  }
  // Sends a run with one result, and returns the id of that result.
  uint64_t Run(uint64_t executable, std::vector<uint64_t> args, std::vector<uint64_t> release = {},
               std::shared_ptr<api::KeptProgram> kept_program = nullptr) {
    api::ExecuteRequest request;
    request.executable = executable;
    request.kept_program = std::move(kept_program);
    request.args = std::move(args);
    request.release = std::move(release);
    request.session = 5;
    const auto reply = runs_ahead_->Execute(request, 1, kLimit);
    TESSERA_EXPECT_OK(reply);
    EXPECT_TRUE(RunsAhead::IsLocal(reply->operation));
    operation_ = reply->operation;
    return reply->outputs.at(0);
  }
  absl::StatusOr<uint64_t> CoordinatorId(uint64_t id) {
    return runs_ahead_->AwaitCoordinatorId(id, SteadyNow() + kLimit);
  }

  FakeCoordinator coordinator_;
  Outage outage_{kLimit};
  const std::unique_ptr<ExecutionClient> execution_client_ = coordinator_.MakeClient();
  uint64_t operation_ = 0;  // the operation of the last run
  absl::Mutex mu_;
  std::vector<uint64_t> unknown_sessions_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> freed_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> accepted_in_ ABSL_GUARDED_BY(mu_);  // the sessions of the accepted runs
  std::vector<std::string> compiled_ ABSL_GUARDED_BY(mu_);  // the names of the compiled programs
  // what the callbacks return
  absl::StatusOr<uint64_t> new_session_ ABSL_GUARDED_BY(mu_) =
      MakeError(ErrorKind::kSessionNotFound, "no session");
  absl::StatusOr<api::CompileReply> next_compile_ ABSL_GUARDED_BY(mu_) = api::CompileReply();
  uint64_t lost_array_ ABSL_GUARDED_BY(mu_) = 0;
  std::unique_ptr<RunsAhead> runs_ahead_;
};

// The coordinator accepts the first three runs only after it has read all three. So the second and
// the third run are sent before the runs that make their arguments are accepted.
TEST_F(RunsAheadTest, ARunMayUseResultsOfARunNotYetAccepted) {
  absl::Notification done;
  Start([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest a, b, c;
    EXPECT_TRUE(stream->Read(&a) && stream->Read(&b) && stream->Read(&c));
    EXPECT_TRUE(a.in_order() && b.in_order() && c.in_order());
    EXPECT_EQ(a.run().args(0), 7);
    EXPECT_EQ(a.results_of_runs_size(), 0);
    EXPECT_EQ(b.results_of_runs(0).number(), a.number());
    EXPECT_EQ(c.results_of_runs(0).arg(), 1);
    EXPECT_EQ(c.results_of_runs(0).number(), b.number());
    AcceptWithResult(stream, a.number(), 101);
    AcceptWithResult(stream, b.number(), 102);
    AcceptWithResult(stream, c.number(), 103);
    End(stream, c.number(), 103);
    v1::ExecuteProgramsRequest d;
    EXPECT_TRUE(stream->Read(&d));
    EXPECT_EQ(d.run().args(0), 103);
    EXPECT_EQ(d.results_of_runs_size(), 0);
    AcceptWithResult(stream, d.number(), 104);
    done.Notify();
    return grpc::Status::OK;
  });
  const uint64_t a = Run(1, {7}), b = Run(1, {a}), c = Run(1, {8, b});
  EXPECT_EQ(runs_ahead_->AwaitInlineResult(c, SteadyNow() + kLimit)->At(0), 103);
  EXPECT_EQ(runs_ahead_->AwaitOperation(operation_, SteadyNow() + kLimit)->state,
            api::OperationState::kDone);
  EXPECT_EQ(*CoordinatorId(a), 101);
  EXPECT_EQ(*CoordinatorId(c), 103);
  EXPECT_EQ(*CoordinatorId(42), 42);
  EXPECT_EQ(*CoordinatorId(Run(1, {c})), 104);
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(kLimit));
}

TEST_F(RunsAheadTest, UsesOfARefusedRunsResultsReturnItsError) {
  Start([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest request;
    EXPECT_TRUE(stream->Read(&request));
    EXPECT_TRUE(request.stop_if_not_found());
    Refuse(stream, request.number(), MakeError(ErrorKind::kSessionNotFound, "no session"));
    return grpc::Status::OK;
  });
  const uint64_t a = Run(1, {7});
  const uint64_t operation = operation_;
  EXPECT_THAT(CoordinatorId(a).status(), ReasonIs("SESSION_NOT_FOUND", "no session"));
  EXPECT_THAT(CoordinatorId(operation).status(), ReasonIs("SESSION_NOT_FOUND", "no session"));
  const auto ended = runs_ahead_->AwaitOperation(operation, SteadyNow() + kLimit);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->state, api::OperationState::kFailed);
  EXPECT_THAT(ended->error, ReasonIs("SESSION_NOT_FOUND", "no session"));
  // A run whose argument has failed is not sent at all.
  EXPECT_THAT(CoordinatorId(Run(1, {3, a})).status(), ReasonIs("SESSION_NOT_FOUND", "no session"));
  absl::MutexLock lock(&mu_);
  EXPECT_EQ(unknown_sessions_, (std::vector<uint64_t>{5}));
}

// The stream breaks before the second run is refused. The second run is not sent again, since the
// client already knows that its argument failed.
TEST_F(RunsAheadTest, ARunWithARefusedArgumentFailsEvenIfTheStreamBreaks) {
  Start([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest a, b;
    EXPECT_TRUE(stream->Read(&a) && stream->Read(&b));
    Refuse(stream, a.number(), MakeError(ErrorKind::kProgramNotFound, "no such executable"));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  });
  const uint64_t a = Run(1, {7}), b = Run(2, {a});
  EXPECT_THAT(CoordinatorId(a).status(), ReasonIs("PROGRAM_NOT_FOUND", "no such executable"));
  EXPECT_THAT(CoordinatorId(b).status(), ReasonIs("PROGRAM_NOT_FOUND", "no such executable"));
  EXPECT_EQ(coordinator_.num_streams(), 1);
}

TEST_F(RunsAheadTest, TooFewResultIdsFromTheCoordinatorAreAnError) {
  Start([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest request;
    EXPECT_TRUE(stream->Read(&request));
    Accept(stream, request.number(), 1);
    while (stream->Read(&request)) continue;
    return grpc::Status::OK;
  });
  EXPECT_THAT(CoordinatorId(Run(1, {7})).status(), ReasonIs("INTERNAL", "ids for 0 results"));
}

// The runs without an answer are sent again in their order. The requests are the same except for
// one argument: the coordinator has accepted the run that makes it, so the argument now has the
// coordinator's id.
TEST_F(RunsAheadTest, UnansweredRunsAreSentAgainOnANewStream) {
  std::vector<v1::ExecuteProgramsRequest> first(3), second(2);
  absl::Notification second_read;
  Start([&](ServerStream* stream) {
    for (auto& request : first) EXPECT_TRUE(stream->Read(&request));
    coordinator_.SetServe([&](ServerStream* next) {
      for (auto& request : second) EXPECT_TRUE(next->Read(&request));
      AcceptWithResult(next, second[0].number(), 102);
      AcceptWithResult(next, second[1].number(), 103);
      second_read.Notify();
      return grpc::Status::OK;
    });
    AcceptWithResult(stream, first[0].number(), 101);
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  });
  const uint64_t a = Run(1, {7}), b = Run(2, {a}), c = Run(3, {b});
  EXPECT_EQ(*CoordinatorId(c), 103);
  EXPECT_EQ(*CoordinatorId(b), 102);
  EXPECT_EQ(*CoordinatorId(a), 101);
  ASSERT_TRUE(second_read.WaitForNotificationWithTimeout(kLimit));
  for (int i : {0, 1}) {
    EXPECT_EQ(second[i].number(), first[i + 1].number());
    EXPECT_EQ(second[i].run().request_id(), first[i + 1].run().request_id());
    EXPECT_EQ(second[i].run().executable(), first[i + 1].run().executable());
  }
  EXPECT_EQ(second[0].run().args(0), 101);
  EXPECT_EQ(second[0].results_of_runs_size(), 0);
  EXPECT_EQ(second[1].results_of_runs(0).number(), second[0].number());
}

// An array is not deleted while a run that may take it is on its way.
TEST_F(RunsAheadTest, ForgottenArraysAreDeletedAfterTheUnacceptedRuns) {
  absl::Notification forgotten;
  Start([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest a, b;
    EXPECT_TRUE(stream->Read(&a));
    EXPECT_TRUE(forgotten.WaitForNotificationWithTimeout(kLimit));
    EXPECT_TRUE(stream->Read(&b));
    EXPECT_EQ(a.run().release_size(), 0);
    EXPECT_THAT(b.run().release(), ::testing::ElementsAre(7, 9));
    AcceptWithResult(stream, a.number(), 101);
    AcceptWithResult(stream, b.number(), 102);
    while (stream->Read(&b)) continue;
    return grpc::Status::OK;
  });
  const uint64_t a = Run(1, {7});
  EXPECT_TRUE(runs_ahead_->ForgetAndTakeDeletable({a, a, 7}).empty());
  EXPECT_THAT(CoordinatorId(a).status(), ReasonIs("ARRAY_DELETED"));
  const uint64_t operation = operation_;  // the operation is still known
  const uint64_t b = Run(1, {8}, {9});
  EXPECT_TRUE(runs_ahead_->ForgetAndTakeDeletable({10}).empty());
  forgotten.Notify();
  EXPECT_EQ(*CoordinatorId(b), 102);
  EXPECT_EQ(*CoordinatorId(operation), 101);
  runs_ahead_->AwaitAccepted(SteadyNow() + kLimit);
  EXPECT_TRUE(tessera::testing::Eventually([&] {
    absl::MutexLock lock(&mu_);
    return freed_.size() == 2;
  }));
  EXPECT_EQ(runs_ahead_->ForgetAndTakeDeletable({b, 11}), (std::vector<uint64_t>{102, 11}));
  EXPECT_TRUE(runs_ahead_->ForgetAndTakeDeletable({b}).empty());
  absl::MutexLock lock(&mu_);
  EXPECT_THAT(freed_, ::testing::UnorderedElementsAre(10, 101));
}

// The coordinator refuses some runs before it looks at the arrays to release, so the client deletes
// these arrays itself. The second run is not sent again, because its argument has failed.
TEST_F(RunsAheadTest, ARefusedRunsArraysToReleaseAreDeleted) {
  Start([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest a, b;
    EXPECT_TRUE(stream->Read(&a) && stream->Read(&b));
    EXPECT_THAT(a.run().release(), ::testing::ElementsAre(8));
    Refuse(stream, a.number(), MakeError(ErrorKind::kValueError, "result 0 of run 9"));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
  });
  const uint64_t a = Run(1, {7}, {8}), b = Run(2, {a}, {9, 10});
  EXPECT_THAT(CoordinatorId(b).status(), ReasonIs("VALUE_ERROR", "of run 9"));
  // The arrays of the second run are deleted with the next call, or by the thread.
  std::vector<uint64_t> deleted = runs_ahead_->ForgetAndTakeDeletable({11});
  absl::MutexLock lock(&mu_);
  deleted.insert(deleted.end(), freed_.begin(), freed_.end());
  EXPECT_THAT(deleted, ::testing::UnorderedElementsAre(8, 9, 10, 11));
}

TEST_F(RunsAheadTest, AtMost512RunsAreInFlight) {
  absl::Notification enough;
  Start([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest request;
    uint64_t first = 0;
    for (int i = 0; stream->Read(&request); ++i) {
      if (i == 0) first = request.number();
      AcceptWithResult(stream, request.number(), 100 + request.number());
      if (i == 511) {
        EXPECT_TRUE(enough.WaitForNotificationWithTimeout(kLimit));
        End(stream, first, 100 + first);
      }
    }
    return grpc::Status::OK;
  });
  for (int i = 0; i < 512; ++i) Run(1, {});
  api::ExecuteRequest request;
  request.executable = 1;
  const auto full = runs_ahead_->Execute(request, 1, absl::Milliseconds(20));
  EXPECT_THAT(full.status(), ReasonIs("QUEUE_FULL", "512 runs"));
  enough.Notify();
  TESSERA_EXPECT_OK(CoordinatorId(Run(1, {})));
}

// The coordinator reads nothing behind the refused run and ends the stream. So the runs behind it
// come after it on the next stream, although one of them releases its argument.
TEST_F(RunsAheadTest, ARunWhoseExecutableIsGoneIsSentAgainBeforeTheRunsBehindIt) {
  v1::ExecuteProgramsRequest refused;
  std::vector<v1::ExecuteProgramsRequest> again(3);
  absl::Notification done;
  Start([&](ServerStream* stream) {
    EXPECT_TRUE(stream->Read(&refused));
    coordinator_.SetServe([&](ServerStream* next) {
      for (auto& request : again) EXPECT_TRUE(next->Read(&request));
      for (int i = 0; i < 3; ++i) AcceptWithResult(next, again[i].number(), 101 + i);
      done.Notify();
      return grpc::Status::OK;
    });
    Refuse(stream, refused.number(), MakeError(ErrorKind::kProgramNotFound, "executable 1"));
    return grpc::Status::OK;
  });
  const auto kept = Keep(1, 11);
  const uint64_t a = Run(1, {7}, {}, kept), b = Run(1, {a}, {7}, kept), c = Run(2, {8});
  EXPECT_EQ(*CoordinatorId(a), 101);
  EXPECT_EQ(*CoordinatorId(b), 102);
  EXPECT_EQ(*CoordinatorId(c), 103);
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kLimit));
  EXPECT_EQ(refused.run().executable(), 1);
  EXPECT_EQ(again[0].run().executable(), 11);
  EXPECT_EQ(again[0].run().request_id(), refused.run().request_id());
  EXPECT_EQ(again[1].run().executable(), 11);
  EXPECT_EQ(again[1].results_of_runs(0).number(), again[0].number());
  EXPECT_EQ(again[2].run().executable(), 2);
  EXPECT_EQ(kept->executable(), 11);
  absl::MutexLock lock(&mu_);
  EXPECT_THAT(compiled_, ::testing::ElementsAre("step"));
}

// Another call has had the program compiled again, as executable 11, before the run is sent. The
// loss of executable 11 is then the first one that the run meets.
TEST_F(RunsAheadTest, ARunUsesTheExecutableThatTookThePlaceOfItsOwn) {
  std::vector<uint64_t> tried;
  Start([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest request;
    EXPECT_TRUE(stream->Read(&request));
    tried.push_back(request.run().executable());
    coordinator_.SetServe([&](ServerStream* next) {
      v1::ExecuteProgramsRequest again;
      EXPECT_TRUE(next->Read(&again));
      tried.push_back(again.run().executable());
      AcceptWithResult(next, again.number(), 101);
      while (next->Read(&again)) continue;
      return grpc::Status::OK;
    });
    Refuse(stream, request.number(), MakeError(ErrorKind::kProgramNotFound, "no executable"));
    return grpc::Status::OK;
  });
  const auto kept = Keep(1, 21);
  ReplaceByAnotherCall(*kept, 1, 11);
  EXPECT_EQ(*CoordinatorId(Run(1, {7}, {}, kept)), 101);
  EXPECT_THAT(tried, ::testing::ElementsAre(11, 21));
}

// The run meets the loss of executable 1 only after another call has had the program compiled
// again, as executable 11. Then executable 11 is lost as well.
TEST_F(RunsAheadTest, ALossThatAnotherCallRepairedDoesNotCount) {
  const auto kept = Keep(1, 21);
  std::vector<uint64_t> tried;
  Start([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest request;
    EXPECT_TRUE(stream->Read(&request));
    tried.push_back(request.run().executable());
    if (tried.size() == 1) ReplaceByAnotherCall(*kept, 1, 11);
    if (tried.size() == 3) {
      AcceptWithResult(stream, request.number(), 101);
      while (stream->Read(&request)) continue;
    } else {
      Refuse(stream, request.number(), MakeError(ErrorKind::kProgramNotFound, "no executable"));
    }
    return grpc::Status::OK;
  });
  EXPECT_EQ(*CoordinatorId(Run(1, {7}, {}, kept)), 101);
  EXPECT_THAT(tried, ::testing::ElementsAre(1, 11, 21));
}

TEST_F(RunsAheadTest, AnExecutableThatIsLostAgainAtOnceIsAnError) {
  Start([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest request;
    EXPECT_TRUE(stream->Read(&request));
    Refuse(stream, request.number(), MakeError(ErrorKind::kProgramNotFound, "no executable"));
    return grpc::Status::OK;
  });
  EXPECT_THAT(CoordinatorId(Run(1, {7}, {}, Keep(1, 11))),
              ReasonIs("PROGRAM_NOT_FOUND",
                       "step: executable 1 was gone and its program was "
                       "compiled again, and the new executable 11 was gone"));
  EXPECT_EQ(coordinator_.num_streams(), 2);
  absl::MutexLock lock(&mu_);
  EXPECT_EQ(compiled_.size(), 1);
}

// Only the run that needs the program fails, and the runs that take its results.
TEST_F(RunsAheadTest, TheErrorOfTheSecondCompilationIsTheErrorOfTheRun) {
  Start([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest request;
    EXPECT_TRUE(stream->Read(&request));
    coordinator_.SetServe([&](ServerStream* next) {
      v1::ExecuteProgramsRequest other;
      EXPECT_TRUE(next->Read(&other));
      EXPECT_EQ(other.run().executable(), 2);
      AcceptWithResult(next, other.number(), 103);
      while (next->Read(&other)) continue;
      return grpc::Status::OK;
    });
    Refuse(stream, request.number(), MakeError(ErrorKind::kProgramNotFound, "no executable"));
    return grpc::Status::OK;
  });
  const auto kept = Keep(1, 11);
  {
    absl::MutexLock lock(&mu_);
    next_compile_ = MakeError(ErrorKind::kNotEnoughDevices, "two devices are missing");
  }
  const uint64_t a = Run(1, {7}, {}, kept), b = Run(2, {a}), c = Run(2, {8});
  EXPECT_THAT(CoordinatorId(a), ReasonIs("NOT_ENOUGH_DEVICES", "step: executable 1 is gone"));
  EXPECT_THAT(CoordinatorId(b), ReasonIs("NOT_ENOUGH_DEVICES", "two devices are missing"));
  EXPECT_EQ(*CoordinatorId(c), 103);
}

TEST_F(RunsAheadTest, ARunOfAnUnknownSessionIsSentAgainInTheSessionThatTakesItsPlace) {
  Start([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest request;
    EXPECT_TRUE(stream->Read(&request));
    coordinator_.SetServe([](ServerStream* next) {
      v1::ExecuteProgramsRequest again;
      EXPECT_TRUE(next->Read(&again));
      EXPECT_EQ(again.run().session(), 6);
      AcceptWithResult(next, again.number(), 101);
      while (next->Read(&again)) continue;
      return grpc::Status::OK;
    });
    Refuse(stream, request.number(), MakeError(ErrorKind::kSessionNotFound, "no session"));
    return grpc::Status::OK;
  });
  {
    absl::MutexLock lock(&mu_);
    new_session_ = 6;
  }
  EXPECT_EQ(*CoordinatorId(Run(1, {})), 101);
  absl::MutexLock lock(&mu_);
  EXPECT_EQ(unknown_sessions_, (std::vector<uint64_t>{5}));
  EXPECT_EQ(accepted_in_, (std::vector<uint64_t>{6}));
}

TEST_F(RunsAheadTest, ARunThatTakesWhatALeaseHadGetsTheErrorOfTheLease) {
  Start([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest request;
    EXPECT_TRUE(stream->Read(&request));
    Refuse(stream, request.number(), MakeError(ErrorKind::kArrayDeleted, "array 7"));
    while (stream->Read(&request)) continue;
    return grpc::Status::OK;
  });
  {
    absl::MutexLock lock(&mu_);
    lost_array_ = 7;
  }
  EXPECT_THAT(CoordinatorId(Run(1, {7})), ReasonIs("SESSION_NOT_FOUND", "the lease has ended"));
}

// The destructor returns although the coordinator never answers.
TEST_F(RunsAheadTest, TheDestructorReturnsWhileTheCoordinatorIsSilent) {
  absl::Notification read;
  Start([&](ServerStream* stream) {
    v1::ExecuteProgramsRequest request;
    EXPECT_TRUE(stream->Read(&request));
    read.Notify();
    while (stream->Read(&request)) continue;
    return grpc::Status::OK;
  });
  Run(1, {7});
  EXPECT_TRUE(read.WaitForNotificationWithTimeout(kLimit));
  const absl::Time before = SteadyNow();
  runs_ahead_.reset();
  EXPECT_LT(SteadyNow() - before, kLimit);
}

}  // namespace
}  // namespace tessera::remote
