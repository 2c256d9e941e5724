// The blocking form of the coordinator's calls. The RPC RunProgram and the embedded cluster use it
// as the client's api::Service. Each method posts an event to the scheduler and waits for the
// reply. The scheduler lets no call wait longer than result_wait_ms_max; for a longer wait, the
// method posts the event again.
#include "server/coordinator/bound_service.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "server/coordinator/coordinator.h"
#include "server/core/plan_time.h"

namespace tessera::server {
namespace {

// Runs an asynchronous call and waits for its result.  The wait always ends: the scheduler bounds
// every request, and Coordinator::Stop fails the pending ones.
template <class T, class F>
absl::StatusOr<T> Await(F call) {
  absl::StatusOr<T> out = absl::UnknownError("");
  absl::Notification done;
  call([&](absl::StatusOr<T> r) {
    out = std::move(r);
    done.Notify();
  });
  done.WaitForNotification();
  return out;
}

class BoundService final : public api::Service {
 public:
  BoundService(Coordinator* coordinator, core::Caller caller, uint64_t session, absl::Time until,
               std::function<void()> before_wait)
      : coordinator_(coordinator),
        caller_(std::move(caller)),
        session_(session),
        until_(until),
        before_wait_(std::move(before_wait)) {}

  absl::StatusOr<std::vector<api::Device>> ListDevices() override {
    TESSERA_ASSIGN_OR_RETURN(
        scheduler::Page<api::Device> page,
        Call<scheduler::Page<api::Device>>(scheduler::ListDevices{{0, caller_}}));
    return std::move(page.items);
  }
  absl::StatusOr<api::CompileReply> Compile(const api::CompileRequest& request) override {
    api::CompileRequest bounded = request;
    bounded.timeout = std::min(bounded.timeout, TimeLeft(until_));
    TESSERA_ASSIGN_OR_RETURN(core::CompileReply reply, Await<core::CompileReply>([&](auto then) {
                               coordinator_->CompileAsync(caller_, std::move(bounded),
                                                          std::move(then));
                             }));
    core::AddLastRun(&reply);
    return api::CompileReply(std::move(reply));
  }
  absl::StatusOr<api::ExecuteReply> Execute(const api::ExecuteRequest& request) override {
    api::ExecuteRequest execute = request;
    if (execute.session == 0) execute.session = session_;
    absl::StatusOr<api::ExecuteReply> reply =
        coordinator_->Execute({0, caller_}, std::move(execute));
    if (reply.ok()) reply->done = coordinator_->HasSucceeded(reply->operation);
    return reply;
  }
  absl::StatusOr<uint64_t> Put(const ir::Array& value, const api::Placement& placement,
                               absl::Duration timeout) override {
    return Await<uint64_t>([&](auto then) {
      coordinator_->PutAsync({0, caller_}, session_, value, placement,
                             std::min(timeout, TimeLeft(until_)), std::move(then));
    });
  }
  absl::StatusOr<ir::Array> Get(uint64_t array, absl::Duration timeout) override {
    return RepeatUntil(timeout, [&](absl::Duration left) {
      return Await<ir::Array>([&](auto then) {
        coordinator_->GetAsync(caller_, array, left, std::numeric_limits<int64_t>::max(),
                               std::move(then));
      });
    });
  }
  absl::StatusOr<ir::Array> GetShard(uint64_t array, int ordinal, absl::Duration timeout) override {
    return RepeatUntil(timeout, [&](absl::Duration left) {
      return Call<ir::Array>(scheduler::ReadShard{{0, caller_}, array, ordinal, left});
    });
  }
  absl::StatusOr<api::ArraySpec> Describe(uint64_t array) override {
    TESSERA_ASSIGN_OR_RETURN(
        const scheduler::ArrayInfo info,
        Call<scheduler::ArrayInfo>(scheduler::DescribeArray{{0, caller_}, array}));
    return *info.spec;
  }
  absl::StatusOr<api::PendingArrays> Reshard(uint64_t array,
                                             const api::Placement& placement) override {
    return PendingArraysOf(Call<scheduler::PendingArrays>(
        scheduler::ReshardArray{{0, caller_}, session_, array, placement}));
  }
  absl::StatusOr<uint64_t> Save(const std::string& path,
                                const std::vector<api::ArrayToSave>& arrays,
                                bool overwrite) override {
    TESSERA_ASSIGN_OR_RETURN(const api::Operation op, Call<api::Operation>(scheduler::SaveArrays{
                                                          {0, caller_}, arrays, path, overwrite}));
    return op.id;
  }
  absl::StatusOr<api::PendingArrays> Load(const std::string& path,
                                          const std::vector<api::ArrayToLoad>& arrays) override {
    return PendingArraysOf(Call<scheduler::PendingArrays>(
        scheduler::LoadArrays{{0, caller_}, session_, path, arrays}));
  }
  absl::StatusOr<std::vector<api::FileArrayInfo>> DescribeFile(const std::string& path) override {
    return Call<std::vector<api::FileArrayInfo>>(scheduler::DescribeFile{{0, caller_}, path});
  }
  absl::Status Delete(absl::Span<const uint64_t> arrays) override {
    return Await<scheduler::MissingArrays>([&](auto then) {
             coordinator_->DeleteAsync({0, caller_}, {arrays.begin(), arrays.end()},
                                       std::move(then));
           })
        .status();
  }
  absl::StatusOr<api::Operation> GetOperation(uint64_t operation) override {
    return WaitOperation(operation, absl::ZeroDuration());
  }
  absl::StatusOr<api::Operation> WaitOperation(uint64_t operation,
                                               absl::Duration timeout) override {
    if (before_wait_ && timeout > absl::ZeroDuration()) before_wait_();
    const absl::Time until = coordinator_->clock()->Now() + timeout;
    while (true) {
      const absl::Duration left = TimeLeft(until);
      TESSERA_ASSIGN_OR_RETURN(api::Operation op, Call<api::Operation>(scheduler::WaitOperation{
                                                      {0, caller_}, operation, left}));
      if (op.state >= api::OperationState::kDone || left <= LongestWait()) return op;
    }
  }
  absl::Status Cancel(uint64_t operation) override {
    return Call<std::monostate>(scheduler::CancelOperation{{0, caller_}, operation}).status();
  }
  bool HasEnded(uint64_t operation) override { return coordinator_->HasEnded(operation); }

 private:
  template <class T, class E>
  absl::StatusOr<T> Call(E event) {
    return coordinator_->Await<T>(std::move(event));
  }
  static absl::StatusOr<api::PendingArrays> PendingArraysOf(
      const absl::StatusOr<scheduler::PendingArrays>& pending) {
    TESSERA_RETURN_IF_ERROR(pending.status());
    api::PendingArrays out{pending->operation.id, {}, {}};
    for (const scheduler::ArrayInfo& info : pending->arrays) {
      out.arrays.push_back(info.array);
      out.specs.push_back(*info.spec);
    }
    return out;
  }
  absl::Duration LongestWait() const {
    return absl::Milliseconds(coordinator_->options().result_wait_ms_max);
  }
  absl::Duration TimeLeft(absl::Time until) const {
    return std::max(until - coordinator_->clock()->Now(), absl::ZeroDuration());
  }
  // Calls `get` with the time that is left until it returns a value or an error other than
  // DEADLINE_EXCEEDED, or until `timeout` is over. The scheduler bounds each wait, so a longer wait
  // takes several calls.
  template <class F>
  absl::StatusOr<ir::Array> RepeatUntil(absl::Duration timeout, F get) {
    if (before_wait_ && timeout > absl::ZeroDuration()) before_wait_();
    const absl::Time until = coordinator_->clock()->Now() + timeout;
    while (true) {
      const absl::Duration left = TimeLeft(until);
      absl::StatusOr<ir::Array> value = get(left);
      if (value.ok() || KindOf(value.status()) != ErrorKind::kDeadlineExceeded ||
          left <= LongestWait())
        return value;
    }
  }

  Coordinator* const coordinator_;
  const core::Caller caller_;
  const uint64_t session_;
  const absl::Time until_;
  const std::function<void()> before_wait_;
};

}  // namespace

std::unique_ptr<api::Service> MakeBoundService(Coordinator* coordinator, core::Caller caller,
                                               uint64_t session, absl::Time until,
                                               std::function<void()> before_wait) {
  return std::make_unique<BoundService>(coordinator, std::move(caller), session, until,
                                        std::move(before_wait));
}

}  // namespace tessera::server
