// Proves the order of RunProgram's steps and that every array it made is deleted however the run
// ends. The service is a fake that records the calls and fails where a test asks for it.
#include "ir/api/run.h"

#include <optional>

#include "base/clock.h"
#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::api {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// A service with one program of two parameters and one result. Put makes the arrays 1 and 2, and
// Execute makes the array 9.
class FakeService final : public Service {
 public:
  absl::StatusOr<CompileReply> Compile(const CompileRequest&) override {
    CompileReply reply;
    reply.in.resize(2);
    reply.out.resize(1);
    return reply;
  }
  absl::StatusOr<uint64_t> Put(const ir::Array&, const Placement&, absl::Duration) override {
    return ++put_;
  }
  absl::StatusOr<ExecuteReply> Execute(const ExecuteRequest& request) override {
    executed = request;
    return ExecuteReply{5, {9}};
  }
  absl::StatusOr<Operation> WaitOperation(uint64_t operation, absl::Duration) override {
    Operation ended;
    ended.id = operation;
    ended.error = end_status;
    return ended;
  }
  absl::StatusOr<ir::Array> Get(uint64_t, absl::Duration) override { return ir::Array(); }
  absl::Status Delete(absl::Span<const uint64_t> arrays) override {
    deleted.insert(deleted.end(), arrays.begin(), arrays.end());
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Device>> ListDevices() override { return None(); }
  absl::StatusOr<ir::Array> GetShard(uint64_t, int, absl::Duration) override { return None(); }
  absl::StatusOr<ArraySpec> Describe(uint64_t) override { return None(); }
  absl::StatusOr<PendingArrays> Reshard(uint64_t, const Placement&) override { return None(); }
  absl::StatusOr<uint64_t> Save(const std::string&, const std::vector<ArrayToSave>&,
                                bool) override {
    return None();
  }
  absl::StatusOr<PendingArrays> Load(const std::string&, const std::vector<ArrayToLoad>&) override {
    return None();
  }
  absl::StatusOr<std::vector<FileArrayInfo>> DescribeFile(const std::string&) override {
    return None();
  }
  absl::StatusOr<Operation> GetOperation(uint64_t) override { return None(); }
  absl::Status Cancel(uint64_t) override { return None(); }

  absl::Status end_status;
  std::optional<ExecuteRequest> executed;
  std::vector<uint64_t> deleted;

 private:
  static absl::Status None() { return absl::UnimplementedError("not of a run"); }
  uint64_t put_ = 0;
};

class RunProgramTest : public ::testing::Test {
 protected:
  absl::StatusOr<RunResult> Run() {
    return RunProgram(service_, CompileRequest(), {ir::Array(), ir::Array()}, options_);
  }
  FakeService service_;
  RunOptions options_;
};

TEST_F(RunProgramTest, ResultsAreReadAndEveryArrayIsDeleted) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const RunResult result, Run());
  EXPECT_EQ(result.run.operation, 5u);
  EXPECT_EQ(result.values.size(), 1u);
  EXPECT_THAT(service_.executed->args, ElementsAre(1, 2));
  EXPECT_THAT(service_.deleted, UnorderedElementsAre(1, 2, 9));
}

TEST_F(RunProgramTest, ResultsThatAreKeptAreNotDeleted) {
  options_.keep = true;
  options_.fetch = false;
  TESSERA_ASSERT_OK_AND_ASSIGN(const RunResult result, Run());
  EXPECT_THAT(result.values, IsEmpty());
  EXPECT_THAT(service_.deleted, UnorderedElementsAre(1, 2));
}

TEST_F(RunProgramTest, StepsAreNamedAndAnAbandonedStepEndsTheRun) {
  std::vector<std::string> steps;
  options_.carry_out = [&](const std::string& what, const std::function<absl::Status()>& step) {
    steps.push_back(what);
    return what == "input 1" ? absl::CancelledError("given up") : step();
  };
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kCancelled, "given up"));
  EXPECT_THAT(steps, ElementsAre("compile", "input 0", "input 1"));
  EXPECT_FALSE(service_.executed.has_value());
  EXPECT_THAT(service_.deleted, ElementsAre(1));
}

TEST_F(RunProgramTest, TheRunReturnsTheErrorOfTheOperation) {
  service_.end_status = absl::AbortedError("a device was lost");
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kAborted, "a device was lost"));
  EXPECT_THAT(service_.deleted, UnorderedElementsAre(1, 2, 9));
}

TEST_F(RunProgramTest, NothingRunsAfterTheDeadline) {
  options_.deadline = SteadyNow();
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                              "no time is left after compiling and uploading"));
  EXPECT_FALSE(service_.executed.has_value());
  EXPECT_THAT(service_.deleted, UnorderedElementsAre(1, 2));
}

}  // namespace
}  // namespace tessera::api
