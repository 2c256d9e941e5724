#include "server/coordinator.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/api/placement.h"
#include "ir/api/ticket.h"
#include "server/admission/admission.h"

namespace tessera::server {
namespace {

using scheduler::ArrayInfo;
using scheduler::Reply;

constexpr absl::Duration kTicketLife = absl::Minutes(5);

std::string RandomBytes(size_t n) {
  std::random_device random;
  std::string out(n, '\0');
  for (char& c : out) c = static_cast<char>(random() & 0xff);
  return out;
}

scheduler::DriverOptions DriverOptionsOf(const Options& options, const std::string& ticket_key) {
  scheduler::DriverOptions out;
  out.config.queue_bound = options.queue_bound;
  out.config.lease = absl::Milliseconds(options.lease_ms);
  out.config.result_wait_max = absl::Milliseconds(options.result_wait_ms_max);
  out.config.write_wait = kTicketLife;
  out.config.ticket_key = ticket_key;
  out.config.communicator_secret = RandomBytes(32);
  return out;
}

// The body of a reply that is OK; anything else is our bug.
template <class T>
absl::StatusOr<T> As(Reply reply) {
  if (!reply.status.ok()) return std::move(reply.status);
  T* body = std::get_if<T>(&reply.body);
  TESSERA_CHECK(body != nullptr) << "a reply is of kind " << reply.body.index();
  return std::move(*body);
}

std::vector<int> AllOrdinals(const ArrayInfo& info) {
  std::vector<int> all(info.shards.size());
  for (size_t k = 0; k < all.size(); ++k) all[k] = static_cast<int>(k);
  return all;
}

}  // namespace

Coordinator::Coordinator(const Options& options, const Clock* clock, core::PlanFn plan,
                         store::Store* store)
    : options_(options),
      limits_(admission::LimitsOf(options)),
      clock_(clock),
      ticket_key_(RandomBytes(32)),
      epoch_(static_cast<uint64_t>(absl::ToUnixMillis(clock->Now()))),
      driver_(DriverOptionsOf(options_, ticket_key_), clock, std::move(plan),
              [store](std::string_view record) { return store->Append(record); }) {}

Coordinator::~Coordinator() { Stop(); }
void Coordinator::Stop() { driver_.Stop(); }

template <class E>
Reply Coordinator::Wait(E event) {
  Reply reply;
  absl::Notification done;
  driver_.Call(std::move(event), [&](Reply r) {
    reply = std::move(r);
    done.Notify();
  });
  // The scheduler bounds every request, and Stop answers what is left.
  done.WaitForNotification();
  return reply;
}

// ---- Without blocking. --------------------------------------------------------------------------
void Coordinator::ListDevicesAsync(Then<std::vector<api::Device>> then) {
  driver_.Call(scheduler::ListDevices{}, [then = std::move(then)](Reply r) {
    then(As<std::vector<api::Device>>(std::move(r)));
  });
}

void Coordinator::CompileAsync(api::CompileRequest request, Then<api::CompileReply> then) {
  const absl::Status admitted = admission::AdmitCompile(request, limits_);
  if (!admitted.ok()) return then(admitted);
  std::string key = ir::StructuralHash(request.program);
  driver_.Call(scheduler::Compile{0, std::move(key), std::move(request)},
               [then = std::move(then)](Reply r) { then(As<api::CompileReply>(std::move(r))); });
}

void Coordinator::ExecuteToEndAsync(api::ExecuteRequest request, Then<api::ExecuteReply> accepted,
                                    Then<api::Completion> ended) {
  absl::Status admitted = admission::AdmitExecute(request, limits_);
  admitted.Update(admission::AdmitDelete(request.release.size()));
  if (!admitted.ok()) {
    accepted(admitted);
    return ended(admitted);
  }
  driver_.CallToEnd(
      scheduler::Execute{0, std::move(request)},
      [then = std::move(accepted)](Reply r) { then(As<api::ExecuteReply>(std::move(r))); },
      [then = std::move(ended)](Reply r) { then(As<api::Completion>(std::move(r))); });
}

void Coordinator::ExecuteAsync(api::ExecuteRequest request, Then<api::ExecuteReply> then) {
  absl::Status admitted = admission::AdmitExecute(request, limits_);
  admitted.Update(admission::AdmitDelete(request.release.size()));
  if (!admitted.ok()) return then(admitted);
  driver_.Call(scheduler::Execute{0, std::move(request)},
               [then = std::move(then)](Reply r) { then(As<api::ExecuteReply>(std::move(r))); });
}

std::vector<ShardTicket> Coordinator::Tickets(const ArrayInfo& info,
                                              const std::vector<int>& ordinals, bool write) const {
  std::vector<ShardTicket> tickets;
  api::Ticket t;
  t.access = write ? api::Ticket::Access::kWrite : api::Ticket::Access::kRead;
  t.array = info.array;
  t.dtype = info.spec.dtype;
  t.shape = api::LocalShape(info.spec.placement, info.spec.shape);
  t.expires = clock_->Now() + kTicketLife;
  for (int k : ordinals) {
    const ArrayInfo::Shard& shard = info.shards[k];
    t.incarnation = shard.incarnation;
    t.device = shard.device;
    tickets.push_back({k, shard.endpoint, api::SignTicket(t, ticket_key_)});
  }
  return tickets;
}

void Coordinator::CreateArrayAsync(api::ArraySpec spec, Then<TicketedArray> then) {
  const absl::Status admitted = admission::AdmitArray(spec, limits_);
  if (!admitted.ok()) return then(admitted);
  driver_.Call(scheduler::CreateArray{0, std::move(spec)}, [this, then = std::move(then)](Reply r) {
    absl::StatusOr<ArrayInfo> info = As<ArrayInfo>(std::move(r));
    if (!info.ok()) return then(info.status());
    then(
        TicketedArray{info->array, info->spec, Tickets(*info, AllOrdinals(*info), /*write=*/true)});
  });
}

void Coordinator::ReadTicketsAsync(uint64_t array, std::vector<int> ordinals,
                                   absl::Duration timeout, Then<TicketedArray> then) {
  driver_.Call(scheduler::WaitArray{0, array, timeout}, [this, ordinals = std::move(ordinals),
                                                         then = std::move(then)](Reply r) {
    absl::StatusOr<ArrayInfo> info = As<ArrayInfo>(std::move(r));
    if (!info.ok()) return then(info.status());
    const int shards = static_cast<int>(info->shards.size());
    for (int k : ordinals)
      if (k < 0 || k >= shards)
        return then(
            MakeError(ErrorKind::kValueError, absl::StrCat("array ", info->array, ": shard ", k,
                                                           " does not exist; it has ", shards)));
    then(TicketedArray{
        info->array, info->spec,
        Tickets(*info,
                ordinals.empty() ? api::DistinctBlocks(info->spec.placement, info->spec.shape)
                                 : ordinals,
                /*write=*/false)});
  });
}

void Coordinator::DescribeAsync(uint64_t array, Then<ArrayInfo> then) {
  driver_.Call(scheduler::DescribeArray{0, array},
               [then = std::move(then)](Reply r) { then(As<ArrayInfo>(std::move(r))); });
}

void Coordinator::DeleteAsync(std::vector<uint64_t> arrays,
                              std::function<void(absl::Status)> then) {
  const absl::Status admitted = admission::AdmitDelete(arrays.size());
  if (!admitted.ok()) return then(admitted);
  driver_.Call(scheduler::DeleteArrays{0, std::move(arrays)},
               [then = std::move(then)](Reply r) { then(r.status); });
}

void Coordinator::WaitOperationAsync(uint64_t operation, absl::Duration timeout,
                                     Then<api::Operation> then) {
  driver_.Call(scheduler::WaitOperation{0, operation, timeout},
               [then = std::move(then)](Reply r) { then(As<api::Operation>(std::move(r))); });
}

void Coordinator::CancelAsync(uint64_t operation, std::function<void(absl::Status)> then) {
  driver_.Call(scheduler::CancelOperation{0, operation},
               [then = std::move(then)](Reply r) { then(r.status); });
}

// ---- api::Service. ------------------------------------------------------------------------------
namespace {

// Runs an asynchronous call and waits for it.
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

}  // namespace

absl::StatusOr<std::vector<api::Device>> Coordinator::ListDevices() {
  return Await<std::vector<api::Device>>([&](auto then) { ListDevicesAsync(std::move(then)); });
}

absl::StatusOr<api::CompileReply> Coordinator::Compile(const api::CompileRequest& request) {
  return Await<api::CompileReply>([&](auto then) { CompileAsync(request, std::move(then)); });
}

absl::StatusOr<api::ExecuteReply> Coordinator::Execute(const api::ExecuteRequest& request) {
  return Await<api::ExecuteReply>([&](auto then) { ExecuteAsync(request, std::move(then)); });
}

absl::StatusOr<uint64_t> Coordinator::Put(const ir::Array& value, const api::Placement& placement) {
  const api::ArraySpec spec{value.dtype(), value.shape(), placement};
  TESSERA_ASSIGN_OR_RETURN(const TicketedArray array, Await<TicketedArray>([&](auto then) {
                             CreateArrayAsync(spec, std::move(then));
                           }));
  const ir::Dims local = api::LocalShape(placement, value.shape());
  const int n = static_cast<int>(placement.devices.size());
  // Replicas share one copy of their block.
  std::map<ir::Dims, ir::Array> blocks;
  absl::Mutex mu;
  int left = n;
  absl::Status first;
  for (int k = 0; k < n; ++k) {
    const ir::Dims starts = api::BlockStarts(placement, value.shape(), k);
    auto it = blocks.find(starts);
    if (it == blocks.end()) it = blocks.emplace(starts, ir::SliceBlock(value, starts, local)).first;
    driver_.Call(scheduler::WriteShard{0, array.array, k, it->second}, [&](Reply r) {
      absl::MutexLock lock(&mu);
      if (first.ok()) first = r.status;
      --left;
    });
  }
  {
    absl::MutexLock lock(&mu);
    mu.Await(absl::Condition(
        +[](int* left) { return *left == 0; }, &left));
  }
  if (!first.ok()) {
    (void)Delete({array.array});
    return first;
  }
  return array.array;
}

absl::StatusOr<ir::Array> Coordinator::GetShard(uint64_t array, int ordinal,
                                                absl::Duration timeout) {
  const absl::Time until = clock_->Now() + timeout;
  while (true) {
    // The scheduler bounds one wait; longer ones ask again.
    const absl::Duration left = std::max(until - clock_->Now(), absl::ZeroDuration());
    absl::StatusOr<ir::Array> value =
        As<ir::Array>(Wait(scheduler::ReadShard{0, array, ordinal, left}));
    if (value.ok() || KindOf(value.status()) != ErrorKind::kDeadlineExceeded ||
        left <= absl::Milliseconds(options_.result_wait_ms_max))
      return value;
  }
}

absl::StatusOr<ir::Array> Coordinator::Get(uint64_t array, absl::Duration timeout) {
  TESSERA_ASSIGN_OR_RETURN(const api::ArraySpec spec, Describe(array));
  const std::vector<int> ordinals = api::DistinctBlocks(spec.placement, spec.shape);
  const absl::Time until = clock_->Now() + timeout;
  if (ordinals.size() == 1) return GetShard(array, ordinals[0], timeout);
  // The first says when it is ready; the others are then asked for together.
  std::vector<absl::StatusOr<ir::Array>> blocks(ordinals.size(), absl::UnknownError(""));
  blocks[0] = GetShard(array, ordinals[0], timeout);
  TESSERA_RETURN_IF_ERROR(blocks[0]);
  absl::Mutex mu;
  int left = static_cast<int>(ordinals.size()) - 1;
  for (size_t i = 1; i < ordinals.size(); ++i)
    driver_.Call(scheduler::ReadShard{0, array, ordinals[i],
                                      std::max(until - clock_->Now(), absl::Seconds(1))},
                 [&, i](Reply r) {
                   absl::StatusOr<ir::Array> value = As<ir::Array>(std::move(r));
                   absl::MutexLock lock(&mu);
                   blocks[i] = std::move(value);
                   --left;
                 });
  {
    absl::MutexLock lock(&mu);
    mu.Await(absl::Condition(
        +[](int* left) { return *left == 0; }, &left));
  }
  ir::Array whole(spec.dtype, spec.shape);
  for (size_t i = 0; i < ordinals.size(); ++i) {
    TESSERA_RETURN_IF_ERROR(blocks[i]);
    ir::WriteBlock(&whole, api::BlockStarts(spec.placement, spec.shape, ordinals[i]), *blocks[i]);
  }
  return whole;
}

absl::StatusOr<api::ArraySpec> Coordinator::Describe(uint64_t array) {
  TESSERA_ASSIGN_OR_RETURN(ArrayInfo info, As<ArrayInfo>(Wait(scheduler::DescribeArray{0, array})));
  return std::move(info.spec);
}

absl::Status Coordinator::Delete(absl::Span<const uint64_t> arrays) {
  TESSERA_RETURN_IF_ERROR(admission::AdmitDelete(arrays.size()));
  return Wait(scheduler::DeleteArrays{0, {arrays.begin(), arrays.end()}}).status;
}

absl::StatusOr<api::Operation> Coordinator::GetOperation(uint64_t operation) {
  return WaitOperation(operation, absl::ZeroDuration());
}

absl::StatusOr<api::Operation> Coordinator::WaitOperation(uint64_t operation,
                                                          absl::Duration timeout) {
  const absl::Time until = clock_->Now() + timeout;
  while (true) {
    const absl::Duration left = std::max(until - clock_->Now(), absl::ZeroDuration());
    TESSERA_ASSIGN_OR_RETURN(
        api::Operation op, As<api::Operation>(Wait(scheduler::WaitOperation{0, operation, left})));
    if (op.state >= api::OperationState::kDone ||
        left <= absl::Milliseconds(options_.result_wait_ms_max))
      return op;
  }
}

absl::Status Coordinator::Cancel(uint64_t operation) {
  return Wait(scheduler::CancelOperation{0, operation}).status;
}

// ---- api::WorkerEvents. -------------------------------------------------------------------------
absl::StatusOr<api::Welcome> Coordinator::Register(const api::Registration& registration,
                                                   std::shared_ptr<api::WorkerLink> link) {
  if (registration.worker.empty() || registration.executors.empty())
    return MakeError(ErrorKind::kValueError,
                     "registration: a worker has a name and at least one executor");
  api::Welcome welcome;
  welcome.session = driver_.AddWorker(registration, std::move(link));
  welcome.epoch = epoch_;
  welcome.heartbeat = absl::Milliseconds(options_.heartbeat_ms);
  welcome.lease = absl::Milliseconds(options_.lease_ms);
  welcome.ticket_key = ticket_key_;
  TESSERA_LOG(INFO) << "worker registered" << Field("worker", registration.worker)
                    << Field("host", registration.host) << Field("session", welcome.session);
  return welcome;
}

void Coordinator::OnReport(uint64_t session, api::Report report) {
  driver_.Report(session, std::move(report));
}

void Coordinator::Disconnect(uint64_t session, const absl::Status& why) {
  driver_.RemoveWorker(session, why);
}

}  // namespace tessera::server
