// Proves that errors keep their code and reason through the macros, annotations and exceptions, and
// how call sites are printed.
#include "base/status.h"

#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/cord.h"
#include "base/site.h"
#include "base/status_exception.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

absl::StatusOr<int> Half(int x) {
  if (x % 2 != 0) return MakeError(ErrorKind::kValueError, "odd");
  return x / 2;
}

absl::StatusOr<std::map<int, int>> MapOf(int key, int value) {
  return std::map<int, int>{{key, value}};
}

absl::StatusOr<int> Quarter(int x) {
  TESSERA_ASSIGN_OR_RETURN(const int half, Half(x));
  int result = 0;
  TESSERA_ASSIGN_OR_RETURN(result, Half(half));
  TESSERA_ASSIGN_OR_RETURN((std::map<int, int> pair), MapOf(1, result));
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<int> moved,
                           absl::StatusOr<std::unique_ptr<int>>(std::make_unique<int>(pair[1])));
  return *moved;
}

absl::Status CheckQuarter(int x) {
  TESSERA_RETURN_IF_ERROR(Quarter(x));
  TESSERA_RETURN_IF_ERROR(absl::OkStatus());
  return absl::OkStatus();
}

TEST(Status, AssignOrReturnPassesValuesAndErrors) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_TRUE(CheckQuarter(4).ok());
  EXPECT_EQ(ReasonOf(CheckQuarter(3)), "VALUE_ERROR");
}

TEST(Status, EveryKindGivesItsCodeAndReasonBack) {
  std::set<std::string_view> reasons;
  for (const ErrorKindInfo* info = ErrorKindsBegin(); info != ErrorKindsEnd(); ++info) {
    const absl::Status status = MakeError(info->kind, "m");
    EXPECT_EQ(status.code(), info->code) << info->name;
    EXPECT_EQ(ReasonOf(status), info->reason) << info->name;
    EXPECT_EQ(KindOf(status), info->kind) << info->name;
    EXPECT_EQ(IsRetryable(status), info->retry) << info->name;
    EXPECT_EQ(InfoOf(info->kind).name, info->name);
    EXPECT_TRUE(reasons.insert(info->reason).second) << info->reason << " is there twice";
  }
}

TEST(Status, AnErrorWithoutReasonHasTheKindOfItsCode) {
  EXPECT_EQ(ReasonOf(absl::AbortedError("x")), "");
  EXPECT_EQ(KindOf(absl::AbortedError("x")), ErrorKind::kPeerFailed);
  EXPECT_EQ(KindOf(absl::OutOfRangeError("x")), ErrorKind::kValueError);
  EXPECT_EQ(KindOf(absl::UnimplementedError("x")), ErrorKind::kNotImplemented);
  EXPECT_EQ(KindOf(absl::ResourceExhaustedError("x")), ErrorKind::kLimitExceeded);
  EXPECT_EQ(KindOf(absl::UnavailableError("x")), ErrorKind::kWorkerLost);
  EXPECT_EQ(KindOf(absl::DeadlineExceededError("x")), ErrorKind::kDeadlineExceeded);
  EXPECT_EQ(KindOf(absl::CancelledError("x")), ErrorKind::kCancelled);
  EXPECT_EQ(KindOf(absl::DataLossError("x")), ErrorKind::kInternal);
  EXPECT_TRUE(IsRetryable(absl::UnavailableError("x")));
  EXPECT_FALSE(IsRetryable(absl::OkStatus()));
}

TEST(Status, AReasonThisVersionDoesNotKnowReadsAsNone) {
  absl::Status status = absl::InternalError("x");
  status.SetPayload(kReasonPayload, absl::Cord("FROM_THE_FUTURE"));
  EXPECT_EQ(ReasonOf(status), "");
  EXPECT_EQ(KindOf(status), ErrorKind::kInternal);
}

TEST(Status, AnnotateKeepsCodeAndReason) {
  const absl::Status status =
      Annotate(MakeError(ErrorKind::kWorkerLost, "worker 3 stopped answering"), "launch 7");
  EXPECT_EQ(status.message(), "launch 7: worker 3 stopped answering");
  EXPECT_EQ(ReasonOf(status), "WORKER_LOST");
  EXPECT_TRUE(Annotate(absl::OkStatus(), "x").ok());
}

TEST(StatusException, IsCaughtAsItsStatus) {
  EXPECT_TRUE(CatchStatus([] {}).ok());
  EXPECT_EQ(ReasonOf(CatchStatus([] { Throw(ErrorKind::kTypeError, "t"); })), "TYPE_ERROR");
  EXPECT_EQ(CatchStatus([] { return absl::AbortedError("a"); }), absl::AbortedError("a"));
  EXPECT_EQ(*CatchStatusOr([] { return ValueOrThrow(Half(4)); }), 2);
  EXPECT_EQ(ReasonOf(CatchStatusOr([] { return ValueOrThrow(Half(3)); }).status()), "VALUE_ERROR");
  EXPECT_EQ(CatchStatus([] { ThrowIfError(absl::OkStatus()); }), absl::OkStatus());
}

TEST(Site, PrintsFileNameAndLine) {
  EXPECT_EQ((Site{"a/b/model.cc", 41}).ToString(), "model.cc:41");
  EXPECT_EQ(Site().ToString(), "");
  const Site here = Site::Here();
  EXPECT_EQ(here.ToString(), "status_test.cc:" + std::to_string(__LINE__ - 1));
}

TEST(Site, InternedFilesAreOnePointer) {
  const char* first = InternFile(std::string("model.cc"));
  EXPECT_EQ(first, InternFile("model.cc"));
  EXPECT_NE(first, InternFile("other.cc"));
}

}  // namespace
}  // namespace tessera
