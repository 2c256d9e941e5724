// Connects the parts of the coordinator. The RPC handlers, bound_service.cc and the health monitor
// call it; it checks their requests (admission), posts them to the scheduler's driver as events,
// and turns the replies into results and tickets. Workers reach the driver through the last
// section.
#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status.h"
#include "ir/api/placement.h"
#include "ir/program_hash.h"
#include "ir/strided.h"
#include "server/admission/admission.h"

namespace tessera::server {
namespace {

using Access = api::Ticket::Access;
using scheduler::ArrayInfo;
using scheduler::Reply;

// Returns the scheduler's configuration. The scheduler is a pure function and does not include
// base/options.h, so every option that it follows is copied here. The keys for tickets and
// communicators are derived from the store's secret, so that keys of an earlier life stay valid.
scheduler::Config ConfigOf(const Options& options, const std::string& ticket_key,
                           const store::Store& store, const core::Observer* observer,
                           bool tenant_folders) {
  scheduler::Config config;
  config.queue_bound = options.queue_bound;
  config.arrays_max = options.arrays_max;
  config.operations_kept = options.operations_kept;
  config.request_ids_max = options.request_ids_max;
  config.request_id_age = absl::Milliseconds(options.request_id_ms);
  config.sessions_max = options.sessions_max;
  config.meshes_max = options.meshes_max;
  config.executables_max = options.executables_max;
  config.programs_max = options.programs_max;
  config.programs_bytes_max = options.programs_bytes_max;
  config.program_bytes_max = options.max_program_bytes;
  config.lease = absl::Milliseconds(options.lease_ms);
  config.heartbeat = absl::Milliseconds(options.heartbeat_ms);
  config.session_lease = absl::Milliseconds(options.session_lease_ms);
  config.session_lease_max = absl::Milliseconds(options.session_lease_ms_max);
  config.session_grace = absl::Milliseconds(options.session_grace_ms);
  config.result_wait_max = absl::Milliseconds(options.result_wait_ms_max);
  config.ticket_lifetime = absl::Milliseconds(options.ticket_ms);
  config.store_answer = absl::Milliseconds(options.store_answer_ms);
  config.compile_timeout = absl::Milliseconds(options.compile_timeout_ms);
  config.run_deadline = absl::Milliseconds(options.run_deadline_ms);
  config.cancel_grace = absl::Milliseconds(options.cancel_grace_ms);
  config.unresponsive = absl::Milliseconds(options.unresponsive_ms);
  config.tenant_folders = tenant_folders;
  config.life = store.life();
  config.durable = store.is_persistent();
  config.outage_grace = absl::Milliseconds(options.outage_grace_ms);
  config.wants_debug = observer != nullptr;  // only an embedded coordinator has no observer
  config.ticket_key = ticket_key;
  config.communicator_secret = Sha256Hex("communicators " + store.secret());
  return config;
}

std::vector<int> AllOrdinals(const ArrayInfo& info) {
  std::vector<int> all(info.shards.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Checks that the shards of the array are blocks of its value. The shards of an unreduced array are
// summands instead.
absl::Status CheckHoldsBlocks(const ArrayInfo& info) {
  if (!api::IsPendingSum(info.spec->placement)) return absl::OkStatus();
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat("array ", info.array, " is ", info.spec->placement.spec.ToString(),
                                ": its shards are terms of a sum. Reshard it to a spec without "
                                "unreduced axes, or read its shards one by one"));
}

absl::Status CheckOrdinals(const ArrayInfo& info, const std::vector<int>& ordinals) {
  const int shards = static_cast<int>(info.shards.size());
  for (int k : ordinals)
    if (k < 0 || k >= shards)
      return MakeError(ErrorKind::kValueError, absl::StrCat("array ", info.array, ": shard ", k,
                                                            " does not exist; it has ", shards));
  return absl::OkStatus();
}

// Assembles the whole array from the blocks at these ordinals, or returns the first error.
absl::StatusOr<ir::Array> Assemble(const api::ArraySpec& spec, const std::vector<int>& ordinals,
                                   const std::vector<absl::StatusOr<ir::Array>>& blocks) {
  for (const auto& block : blocks) TESSERA_RETURN_IF_ERROR(block);
  if (blocks.size() == 1) return blocks[0];
  ir::Array whole(spec.dtype, spec.shape);
  for (size_t i = 0; i < ordinals.size(); ++i)
    ir::WriteBlock(&whole, api::ShardStarts(spec.placement, spec.shape, ordinals[i]), *blocks[i]);
  return whole;
}

}  // namespace

Coordinator::Coordinator(const Options& options, const Clock* clock, core::PlanFn plan,
                         store::Store* store, core::Observer* observer, bool tenant_folders,
                         Durability durability)
    : options_(options),
      limits_(admission::LimitsOf(options)),
      clock_(clock),
      ticket_key_(Sha256Hex("tickets " + store->secret())),
      config_(ConfigOf(options_, ticket_key_, *store, observer, tenant_folders)),
      store_(store),
      on_fenced_(std::move(durability.on_fenced)),
      driver_({.config = config_,
               .plan_threads = static_cast<int>(options.compile_jobs),
               .commit =
                   [store, encode = std::move(durability.encode)](scheduler::Commit commit) {
                     store->Commit(commit.number, encode(commit.rows));
                   },
               .observer = observer},
              clock, std::move(plan)) {
  store_->Listen(this);
  if (!durability.restored.empty()) driver_.Restore(std::move(durability.restored));
}

Coordinator::~Coordinator() { Stop(); }

void Coordinator::Stop() {
  driver_.Stop();
  store_->Listen(nullptr);
}

void Coordinator::OnDurable(uint64_t commit) {
  RecordFlight(FlightKind::kDurable, "", commit);
  driver_.OnDurable(commit);
}

void Coordinator::OnCommitsFailed(absl::Status why) {
  const bool fenced = KindOf(why) == ErrorKind::kStaleEpoch;
  RecordFlight(FlightKind::kCommitFails, ReasonOf(why));
  driver_.OnCommitsFailed(why);
  if (fenced && on_fenced_) on_fenced_();
}

// ---- Asynchronous calls. ------------------------------------------------------------------------
void Coordinator::CompileAsync(const core::Caller& caller, api::CompileRequest request,
                               Callback<core::CompileReply> then) {
  const absl::Status admitted = admission::ValidateCompile(request, limits_);
  if (!admitted.ok()) return then(admitted);
  std::string key = absl::StrCat(ir::StructuralHash(request.program), "/",
                                 ir::AnnotationHash(request.program), "/", request.name);
  Post<core::CompileReply>(scheduler::Compile{{0, caller}, std::move(key), std::move(request)},
                           std::move(then));
}

absl::Status Coordinator::CheckExecute(const api::ExecuteRequest& request) const {
  TESSERA_RETURN_IF_ERROR(admission::ValidateExecute(request, limits_));
  return admission::ValidateDelete(request.release.size());
}

absl::StatusOr<api::ExecuteReply> Coordinator::Execute(scheduler::Request from,
                                                       api::ExecuteRequest request) {
  TESSERA_RETURN_IF_ERROR(CheckExecute(request));
  return Await<api::ExecuteReply>(scheduler::Execute{std::move(from), std::move(request)});
}

void Coordinator::ExecuteToEndAsync(scheduler::Request from, api::ExecuteRequest request,
                                    Callback<api::ExecuteReply> on_accepted,
                                    Callback<api::Completion> on_ended) {
  if (absl::Status admitted = CheckExecute(request); !admitted.ok()) {
    on_accepted(admitted);
    return on_ended(admitted);
  }
  driver_.CallToEnd(
      scheduler::Execute{std::move(from), std::move(request)},
      [then = std::move(on_accepted)](Reply r) { then(BodyOf<api::ExecuteReply>(std::move(r))); },
      [then = std::move(on_ended)](Reply r) { then(BodyOf<api::Completion>(std::move(r))); });
}

uint64_t Coordinator::HoldSessionAsync(const core::Caller& caller, uint64_t session,
                                       Callback<scheduler::SessionInfo> on_held,
                                       std::function<void(absl::Status)> on_ended) {
  const uint64_t hold = ++last_hold_;
  driver_.CallToEnd(
      scheduler::HoldSession{{0, caller}, session, hold},
      [then = std::move(on_held)](Reply r) { then(BodyOf<scheduler::SessionInfo>(std::move(r))); },
      [then = std::move(on_ended)](Reply r) { then(r.status); });
  return hold;
}

void Coordinator::ReleaseHold(uint64_t session, uint64_t hold) {
  driver_.Tell(scheduler::DropHold{session, hold});
}

void Coordinator::ExecuteAsync(scheduler::Request from, api::ExecuteRequest request,
                               Callback<api::ExecuteReply> then) {
  if (absl::Status admitted = CheckExecute(request); !admitted.ok()) return then(admitted);
  Post<api::ExecuteReply>(scheduler::Execute{std::move(from), std::move(request)}, std::move(then));
}

TicketedArray Coordinator::MakeTickets(const ArrayInfo& info, const std::vector<int>& ordinals,
                                       api::Ticket::Access access, absl::Time expires) const {
  TicketedArray out{info.array, *info.spec, {}};
  api::Ticket t;
  t.access = access;
  t.array = info.array;
  t.dtype = out.spec.dtype;
  t.shape = api::LocalShape(out.spec.placement, out.spec.shape);
  t.expires = expires;
  for (int k : ordinals) {
    const ArrayInfo::Shard& shard = info.shards[k];
    // The device has been lost during the upload. Others get the same shard, so that it need not be
    // written.
    if (access == Access::kWrite && shard.incarnation == 0) continue;
    t.incarnation = shard.incarnation;
    t.device = shard.device;
    const std::string key = api::TicketKeyFor(ticket_key_, shard.executor, shard.incarnation);
    out.tickets.push_back({k, shard.endpoint, api::SignTicket(t, key)});
  }
  return out;
}

absl::Time Coordinator::TicketExpiry() const {
  return clock_->Steady() + absl::Milliseconds(options_.ticket_ms);
}

void Coordinator::CreateArrayAsync(scheduler::Request from, uint64_t session, api::ArraySpec spec,
                                   bool check_only, Callback<TicketedArray> then) {
  const absl::Status admitted = admission::ValidateArray(spec, limits_);
  if (!admitted.ok()) return then(admitted);
  Post<ArrayInfo>(scheduler::CreateArray{std::move(from), session, std::move(spec), check_only},
                  [this, then = std::move(then)](absl::StatusOr<ArrayInfo> info) {
                    if (!info.ok()) return then(info.status());
                    then(MakeTickets(*info, AllOrdinals(*info), Access::kWrite, TicketExpiry()));
                  });
}

void Coordinator::ReadTicketsAsync(const core::Caller& caller, uint64_t array,
                                   std::vector<int> ordinals, absl::Duration timeout,
                                   Callback<TicketedArray> then) {
  Post<ArrayInfo>(scheduler::WaitArray{{0, caller}, array, timeout},
                  [this, ordinals = std::move(ordinals),
                   then = std::move(then)](absl::StatusOr<ArrayInfo> info) {
                    if (!info.ok()) return then(info.status());
                    if (absl::Status s = CheckOrdinals(*info, ordinals); !s.ok()) return then(s);
                    if (ordinals.empty())
                      if (absl::Status s = CheckHoldsBlocks(*info); !s.ok()) return then(s);
                    const std::vector<int> wanted =
                        ordinals.empty() ? api::OrdinalsOfDistinctShards(info->spec->placement,
                                                                         info->spec->shape)
                                         : ordinals;
                    then(MakeTickets(*info, wanted, Access::kRead, TicketExpiry()));
                  });
}

void Coordinator::WriteTicketsAsync(const core::Caller& caller, uint64_t array,
                                    std::vector<int> ordinals, Callback<TicketedArray> then) {
  Post<ArrayInfo>(scheduler::DescribeUpload{{0, caller}, array},
                  [this, ordinals = std::move(ordinals),
                   then = std::move(then)](absl::StatusOr<ArrayInfo> info) {
                    if (!info.ok()) return then(info.status());
                    if (absl::Status s = CheckOrdinals(*info, ordinals); !s.ok()) return then(s);
                    then(MakeTickets(*info, ordinals.empty() ? info->unwritten : ordinals,
                                     Access::kWrite, info->upload_until));
                  });
}

void Coordinator::DeleteAsync(scheduler::Request from, std::vector<uint64_t> arrays,
                              Callback<scheduler::MissingArrays> then) {
  const absl::Status admitted = admission::ValidateDelete(arrays.size());
  if (!admitted.ok()) return then(admitted);
  Post<scheduler::MissingArrays>(scheduler::DeleteArrays{std::move(from), std::move(arrays)},
                                 std::move(then));
}

// The replies may arrive in any order and on any thread; if an event is refused, its reply arrives
// on this thread within driver_.Call. The callback that gets the last reply calls `then`, without
// the lock, because `then` may post more events.
template <class E>
void Coordinator::CallAll(std::vector<E> events, std::function<void(std::vector<Reply>)> then) {
  struct Replies {
    absl::Mutex mu;
    std::vector<Reply> replies ABSL_GUARDED_BY(mu);
    size_t num_missing ABSL_GUARDED_BY(mu) = 0;
  };
  const auto shared = std::make_shared<Replies>();
  {
    absl::MutexLock lock(&shared->mu);
    shared->num_missing = events.size();
    shared->replies.resize(events.size());
  }
  for (size_t i = 0; i < events.size(); ++i) {
    driver_.Call(std::move(events[i]), [shared, then, i](Reply reply) {
      std::vector<Reply> replies;
      {
        absl::MutexLock lock(&shared->mu);
        shared->replies[i] = std::move(reply);
        if (--shared->num_missing > 0) return;
        replies = std::move(shared->replies);
      }
      then(std::move(replies));
    });
  }
}

namespace {

// Returns the events that write the blocks of `value` at these ordinals.
std::vector<scheduler::WriteShard> WritesOf(const ArrayInfo& info, const std::vector<int>& ordinals,
                                            const ir::Array& value, const core::Caller& caller,
                                            absl::Duration timeout) {
  const api::Placement& placement = info.spec->placement;
  const ir::Dims local = api::LocalShape(placement, value.shape());
  std::map<ir::Dims, ir::Array> blocks;  // Replicas share one copy of a shard.
  std::vector<scheduler::WriteShard> writes;
  for (const int k : ordinals) {
    const ir::Dims starts = api::ShardStarts(placement, value.shape(), k);
    auto it = blocks.find(starts);
    if (it == blocks.end()) it = blocks.emplace(starts, ir::SliceBlock(value, starts, local)).first;
    writes.push_back({{0, caller}, info.array, k, it->second, timeout});
  }
  return writes;
}

}  // namespace

// Creates the array, then writes its shards in parallel. A client may repeat a Put that was not
// answered. The repetition gets the same array from CreateArray and writes only the missing shards.
// The call and its repetition may run at the same time. The slower one then gets VALUE_ERROR for a
// shard that is written already, and reads the array's state to learn whether the other one has
// succeeded.
void Coordinator::PutAsync(scheduler::Request from, uint64_t session, const ir::Array& value,
                           const api::Placement& placement, absl::Duration timeout,
                           Callback<uint64_t> then) {
  api::ArraySpec spec{value.dtype(), value.shape(), placement};
  if (absl::Status admitted = admission::ValidateArray(spec, limits_); !admitted.ok())
    return then(admitted);
  const std::string creation = from.request_id.text;
  const core::Caller caller = from.caller;
  Post<ArrayInfo>(
      scheduler::CreateArray{std::move(from), session, std::move(spec), /*check_only=*/false},
      [this, caller, creation, value, timeout,
       then = std::move(then)](const absl::StatusOr<ArrayInfo>& info) {
        if (!info.ok()) return then(info.status());
        // A repeated call goes on where the first one stopped.
        if (info->state == ArrayInfo::State::kReady) return then(info->array);
        // If the array has failed, there is nothing to write. A write to its shard 0 then returns
        // the error with which it has failed.
        const bool failed = info->unwritten.empty();
        CallAll(
            WritesOf(*info, failed ? std::vector<int>{0} : info->unwritten, value, caller, timeout),
            [this, caller, creation, id = info->array, then](const std::vector<Reply>& replies) {
              absl::Status value_error, other_error;
              for (const Reply& reply : replies)
                (KindOf(reply.status) == ErrorKind::kValueError ? value_error : other_error)
                    .Update(reply.status);
              if (!other_error.ok()) return GiveUpPut(caller, id, creation, other_error, then);
              if (value_error.ok()) return then(id);
              // All errors are VALUE_ERRORs: either a repetition of this call has written the
              // array, or the array has failed with this error.
              Post<ArrayInfo>(scheduler::DescribeArray{{0, caller}, id},
                              [this, caller, creation, id, value_error,
                               then](const absl::StatusOr<ArrayInfo>& now) {
                                if (now.ok() && now->state == ArrayInfo::State::kReady)
                                  return then(id);
                                GiveUpPut(caller, id, creation, value_error, then);
                              });
            });
      });
}

void Coordinator::GiveUpPut(const core::Caller& caller, uint64_t array, const std::string& creation,
                            const absl::Status& error, const Callback<uint64_t>& then) {
  const auto delete_array = [this, caller, array, creation, error, then] {
    Post<scheduler::MissingArrays>(scheduler::DeleteArrays{{0, caller}, {array}, creation},
                                   [then, error](const auto&) { then(error); });
  };
  if (creation.empty()) return delete_array();
  Post<ArrayInfo>(
      scheduler::DescribeArray{{0, caller}, array},
      [error, then, delete_array](const absl::StatusOr<ArrayInfo>& info) {
        using State = ArrayInfo::State;
        if (!info.ok() || info->state == State::kPending || info->state == State::kReady)
          return then(error);
        delete_array();
      });
}

// Describes the array first, because only its spec tells how large it is and which shards are
// distinct. The shards are then read in parallel and assembled; each read waits until the array is
// ready. The size is checked before anything is read, as the coordinator's memory is shared.
void Coordinator::GetAsync(const core::Caller& caller, uint64_t array, absl::Duration timeout,
                           int64_t bytes_max, Callback<ir::Array> then) {
  Post<ArrayInfo>(
      scheduler::DescribeArray{{0, caller}, array},
      [this, caller, array, timeout, bytes_max,
       then = std::move(then)](const absl::StatusOr<ArrayInfo>& info) {
        if (!info.ok()) return then(info.status());
        if (absl::Status s = CheckHoldsBlocks(*info); !s.ok()) return then(s);
        const api::ArraySpec& spec = *info->spec;
        const int64_t bytes = ir::MakeType(spec.dtype, spec.shape).num_bytes();
        if (bytes > bytes_max)
          return then(
              MakeError(ErrorKind::kLimitExceeded,
                        absl::StrCat("array ", array, " has ", bytes, " bytes, at most ", bytes_max,
                                     " are relayed (relay_bytes_max); read it "
                                     "by tickets")));
        const std::vector<int> ordinals = api::OrdinalsOfDistinctShards(spec.placement, spec.shape);
        std::vector<scheduler::ReadShard> reads;
        for (const int k : ordinals) reads.push_back({{0, caller}, array, k, timeout});
        CallAll(std::move(reads), [spec = info->spec, ordinals, then](std::vector<Reply> replies) {
          std::vector<absl::StatusOr<ir::Array>> blocks;
          for (Reply& reply : replies) blocks.push_back(BodyOf<ir::Array>(std::move(reply)));
          then(Assemble(*spec, ordinals, blocks));
        });
      });
}

// ---- api::WorkerEvents. -------------------------------------------------------------------------
absl::StatusOr<api::Welcome> Coordinator::Register(const api::Registration& registration,
                                                   std::shared_ptr<api::WorkerLink> link) {
  if (registration.worker.empty() || registration.executors.empty())
    return MakeError(ErrorKind::kValueError,
                     "registration: a worker has a name and at least one executor");
  const absl::StatusOr<int32_t> protocol = ChooseProtocol(
      absl::StrCat("registration: worker ", registration.worker), ThisBuild(), registration.build);
  if (!protocol.ok()) {
    TESSERA_LOG(WARNING) << "worker refused" << Field("worker", registration.worker)
                         << Field("host", registration.host) << Field("why", protocol.status());
    return protocol.status();
  }
  api::Welcome welcome;
  welcome.build = ThisBuild();
  welcome.protocol = *protocol;
  welcome.registration_id = driver_.AddWorker(registration, std::move(link));
  welcome.epoch = epoch();
  welcome.state_began = config_.life.state_began;
  welcome.heartbeat = absl::Milliseconds(options_.heartbeat_ms);
  welcome.lease = absl::Milliseconds(options_.lease_ms);
  welcome.ticket_key = api::WorkerTicketKey(ticket_key_, registration.worker);
  welcome.clock = clock_->Steady();
  welcome.outage_grace = absl::Milliseconds(options_.outage_grace_ms);
  TESSERA_LOG(INFO) << "worker registered" << Field("worker", registration.worker)
                    << Field("host", registration.host) << Field("session", welcome.registration_id)
                    << Field("build", BuildText(registration.build))
                    << Field("protocol", welcome.protocol);
  return welcome;
}

void Coordinator::OnReport(uint64_t registration_id, api::Report report) {
  driver_.Report(registration_id, std::move(report));
}

void Coordinator::Disconnect(uint64_t registration_id, const absl::Status& why) {
  driver_.RemoveWorker(registration_id, why);
}

void Coordinator::DisconnectExecutor(uint64_t registration_id, int32_t executor,
                                     uint64_t incarnation, uint64_t attachment,
                                     const absl::Status& why) {
  driver_.DetachExecutor(registration_id, executor, incarnation, attachment, why);
}

}  // namespace tessera::server
