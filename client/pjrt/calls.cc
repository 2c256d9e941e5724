#include "client/pjrt/calls.h"

#include <atomic>

#include "base/status.h"
#include "base/thread_name.h"
#include "client/pjrt/buffer.h"
#include "client/pjrt/executable.h"
#include "client/pjrt/status.h"
#include "client/pjrt/types.h"
#include "client/prints.h"
#include "client/trace.h"

namespace tessera::pjrt {
namespace {

std::atomic<HostCallback> host_callback{nullptr};
std::atomic<HoldCallback> hold_callback{nullptr};

void Hold(const std::vector<std::string>& names, bool held) {
  const HoldCallback hold = hold_callback.load();
  if (hold == nullptr) return;
  for (const std::string& name : names) hold(name.c_str(), held);
}

void Call(const std::string& id, absl::Span<const ir::Array> arrays) {
  std::vector<HostValue> values;
  for (const ir::Array& a : arrays)
    values.push_back({a.data(), NumberOfDType(a.dtype()), a.shape().data(), a.shape().size()});
  if (const HostCallback callback = host_callback.load(); callback != nullptr)
    callback(id.c_str(), values.size(), values.data());
}

absl::Status MakeCalls(const Compiled& compiled, const std::vector<tessera::Array>& arrays) {
  const Client& client = *compiled.client;
  std::vector<ir::Array> values;
  for (const tessera::Array& array : arrays) {
    TESSERA_RETURN_IF_ERROR(AwaitRun(client, array));
    TESSERA_ASSIGN_OR_RETURN(
        values.emplace_back(),
        client.session->service().Get(internal::AsConcrete(array)->id, internal::kMaxWaitPerCall));
  }
  return internal::RunPrints(*compiled.sent.prints, std::move(values), Call);
}

}  // namespace

void SetHostCallbacks(HostCallback callback, HoldCallback hold) {
  host_callback.store(callback);
  hold_callback.store(hold);
}

HeldCallbacks::HeldCallbacks(std::vector<std::string> names) : names_(std::move(names)) {
  Hold(names_, /*held=*/true);
}
HeldCallbacks::~HeldCallbacks() { Hold(names_, /*held=*/false); }

CallsInOrder::~CallsInOrder() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<Outcome> CallsInOrder::Make(std::shared_ptr<const Compiled> compiled,
                                            std::vector<tessera::Array> arrays) {
  auto outcome = std::make_shared<Outcome>();
  auto settler = std::make_shared<Settler>(outcome);
  absl::MutexLock lock(&mu_);
  waiting_.emplace_back([compiled = std::move(compiled), arrays = std::move(arrays),
                         settler = std::move(settler)]() mutable {
    const absl::Status status = Caught([&] { return MakeCalls(*compiled, arrays); });
    // Nothing calls the host any more when it hears of the end: its process may be ending.
    compiled.reset();
    arrays.clear();
    settler->Settle(status);
  });
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  return outcome;
}

void CallsInOrder::Run() {
  NameThread("tessera-calls");
  while (true) {
    std::function<void()> next;
    {
      absl::MutexLock lock(&mu_);
      const auto work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
        return stopping_ || !waiting_.empty();
      };
      mu_.Await(absl::Condition(&work));
      if (stopping_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    next();
  }
}

}  // namespace tessera::pjrt
