// Proves that a session compiles a program again when its service has forgotten the executable. The
// service is an embedded cluster that forgets what the test tells it to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/testing/status_matchers.h"
#include "client/tessera.h"
#include "client/testing/evaluated.h"
#include "embed/testing/forwarding_service.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;

// Gives out ids of its own for executables, and refuses runs of those that it has forgotten. Used
// by one thread.
class ForgetfulService final : public testing::ForwardingService {
 public:
  using ForwardingService::ForwardingService;

  // Forgets the executables that exist. With `again`, later ones are forgotten as soon as they are
  // made.
  void Forget(bool again = false) {
    known_.clear();
    forgets_at_once_ = again;
  }
  void RefuseToCompile(absl::Status why) { refusal_ = std::move(why); }
  int num_compiled() const { return num_compiled_; }

  absl::StatusOr<api::CompileReply> Compile(const api::CompileRequest& request) override {
    TESSERA_RETURN_IF_ERROR(refusal_);
    TESSERA_ASSIGN_OR_RETURN(api::CompileReply reply, real_->Compile(request));
    const uint64_t id = kFirstId + static_cast<uint64_t>(++num_compiled_);
    if (!forgets_at_once_) known_.emplace(id, reply.executable);
    reply.executable = id;
    return reply;
  }
  absl::StatusOr<api::ExecuteReply> Execute(const api::ExecuteRequest& request) override {
    const auto found = known_.find(request.executable);
    if (found == known_.end())
      return MakeError(ErrorKind::kProgramNotFound,
                       absl::StrCat("executable ", request.executable, " does not exist"));
    api::ExecuteRequest real = request;
    real.executable = found->second;
    return real_->Execute(real);
  }

 private:
  static constexpr uint64_t kFirstId = 1'000'000;

  std::map<uint64_t, uint64_t> known_;  // executables of the real service, by our ids
  int num_compiled_ = 0;
  bool forgets_at_once_ = false;
  absl::Status refusal_;
};

class ForgottenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::shared_ptr<api::Service>> real = absl::UnknownError("not started");
    TesseraStartEmbedded({.devices = 2}, &real);
    ASSERT_THAT(real, IsOk());
    service_ = std::make_shared<ForgetfulService>(*std::move(real));
    Session::SetDefault(Session::FromService(service_));
  }
  void TearDown() override { Session::SetDefault(nullptr); }
  static Array Put() { return put(ir::Array::Of(kF32, {2}, {1, 2})); }

  std::shared_ptr<ForgetfulService> service_;
};

TEST_F(ForgottenTest, AProgramIsCompiledAgainOnceForEachLoss) {
  const auto f = jit([](Array x) { return x + 1.0; });
  const Array x = Put();
  EXPECT_THAT(f(x).get<float>(), ElementsAre(2, 3));
  const int before = service_->num_compiled();
  for (int losses = 1; losses <= 2; ++losses) {
    service_->Forget();
    for (int calls = 0; calls < 3; ++calls) EXPECT_THAT(f(x).get<float>(), ElementsAre(2, 3));
    EXPECT_EQ(service_->num_compiled(), before + losses);
  }
}

TEST_F(ForgottenTest, AProgramThatIsForgottenAgainAtOnceIsAnError) {
  const auto f = jit([](Array x) { return x + 1.0; });
  const Array x = Put();
  f(x).wait();
  const int before = service_->num_compiled();
  service_->Forget(/*again=*/true);
  const Error e = ErrorOf([&] { f(x); });
  EXPECT_EQ(e.reason(), "PROGRAM_NOT_FOUND");
  EXPECT_THAT(e.what(), HasSubstr(absl::StrCat("executable ", 1'000'000 + before, " was gone")));
  EXPECT_THAT(e.what(), HasSubstr(absl::StrCat("executable ", 1'000'001 + before, " was gone")));
  EXPECT_EQ(service_->num_compiled(), before + 1) << "there is no loop";
}

TEST_F(ForgottenTest, TheErrorOfTheSecondCompilationIsTheErrorOfTheCall) {
  const auto f = jit([](Array x) { return x + 1.0; });
  const Array x = Put();
  f(x).wait();
  service_->Forget();
  service_->RefuseToCompile(MakeError(ErrorKind::kOutOfMemory, "too large"));
  const Error e = ErrorOf([&] { f(x); });
  EXPECT_EQ(e.reason(), "OUT_OF_MEMORY");
  EXPECT_THAT(e.what(), HasSubstr("is gone, and its program was compiled again: too large"));
  service_->RefuseToCompile(absl::OkStatus());
  EXPECT_THAT(f(x).get<float>(), ElementsAre(2, 3));
}

}  // namespace
}  // namespace tessera
