#include "server/coordinator.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/api/placement.h"
#include "ir/api/ticket.h"
#include "server/admission/admission.h"

namespace tessera::server {
namespace {

using scheduler::ArrayInfo;
using scheduler::Reply;

std::string RandomBytes(size_t n) {
  std::random_device random;
  std::string out(n, '\0');
  for (char& c : out) c = static_cast<char>(random() & 0xff);
  return out;
}

scheduler::Config ConfigOf(const Options& options, const std::string& ticket_key,
                           const store::Store& store, bool tenant_folders) {
  scheduler::Config config;
  config.queue_bound = options.queue_bound;
  config.arrays_max = options.arrays_max;
  config.operations_kept = options.operations_kept;
  config.sessions_max = options.sessions_max;
  config.meshes_max = options.meshes_max;
  config.lease = absl::Milliseconds(options.lease_ms);
  config.heartbeat = absl::Milliseconds(options.heartbeat_ms);
  config.session_lease = absl::Milliseconds(options.session_lease_ms);
  config.session_lease_max = absl::Milliseconds(options.session_lease_ms_max);
  config.session_grace = absl::Milliseconds(options.session_grace_ms);
  config.result_wait_max = absl::Milliseconds(options.result_wait_ms_max);
  config.write_wait = absl::Milliseconds(options.ticket_ms);
  config.load_wait = absl::Milliseconds(options.compile_timeout_ms);
  config.run_deadline = absl::Milliseconds(options.run_deadline_ms);
  config.cancel_grace = absl::Milliseconds(options.cancel_grace_ms);
  config.unresponsive = absl::Milliseconds(options.unresponsive_ms);
  config.tenant_folders = tenant_folders;
  config.life = store.life();
  config.executors = store.executors();
  config.keeps_executors = store.is_persistent();
  config.ticket_key = ticket_key;
  config.communicator_secret = RandomBytes(32);
  return config;
}

std::vector<int> AllOrdinals(const ArrayInfo& info) {
  std::vector<int> all(info.shards.size());
  for (size_t k = 0; k < all.size(); ++k) all[k] = static_cast<int>(k);
  return all;
}

absl::Status CheckOrdinals(const ArrayInfo& info, const std::vector<int>& ordinals) {
  const int shards = static_cast<int>(info.shards.size());
  for (int k : ordinals)
    if (k < 0 || k >= shards)
      return MakeError(ErrorKind::kValueError, absl::StrCat("array ", info.array, ": shard ", k,
                                                            " does not exist; it has ", shards));
  return absl::OkStatus();
}

// Assembles the whole array from its distinct shards.
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
                         store::Store* store, core::Observer* observer, bool tenant_folders)
    : options_(options),
      limits_(admission::LimitsOf(options)),
      clock_(clock),
      ticket_key_(RandomBytes(32)),
      config_(ConfigOf(options_, ticket_key_, *store, tenant_folders)),
      driver_({.config = config_,
               .plan_threads = static_cast<int>(options.compile_jobs),
               .keep =
                   [store](const std::vector<core::KnownExecutor>& known) {
                     return store->KeepExecutors(known);
                   },
               .observer = observer},
              clock, std::move(plan),
              [store](std::string_view record) { return store->Append(record); }),
      programs_({.programs_max = options.programs_max,
                 .bytes_max = options.programs_bytes_max,
                 .program_bytes_max = options.max_program_bytes}) {}

Coordinator::~Coordinator() { Stop(); }
void Coordinator::Stop() { driver_.Stop(); }

// ---- Asynchronous calls. ------------------------------------------------------------------------
void Coordinator::CompileAsync(const core::Caller& caller, api::CompileRequest request,
                               Then<api::CompileReply> then) {
  const absl::Status admitted = admission::ValidateCompile(request, limits_);
  if (!admitted.ok()) return then(admitted);
  std::string key = absl::StrCat(ir::StructuralHash(request.program), "/",
                                 ir::AnnotationHash(request.program), "/", request.name);
  Ask<api::CompileReply>(scheduler::Compile{{0, caller}, std::move(key), std::move(request)},
                         std::move(then));
}

void Coordinator::ExecuteToEndAsync(const core::Caller& caller, api::ExecuteRequest request,
                                    Then<api::ExecuteReply> accepted, Then<api::Completion> ended) {
  absl::Status admitted = admission::ValidateExecute(request, limits_);
  admitted.Update(admission::ValidateDelete(request.release.size()));
  if (!admitted.ok()) {
    accepted(admitted);
    return ended(admitted);
  }
  driver_.CallToEnd(
      scheduler::Execute{{0, caller}, std::move(request)},
      [then = std::move(accepted)](Reply r) { then(As<api::ExecuteReply>(std::move(r))); },
      [then = std::move(ended)](Reply r) { then(As<api::Completion>(std::move(r))); });
}

uint64_t Coordinator::HoldSessionAsync(const core::Caller& caller, uint64_t session,
                                       Then<scheduler::SessionInfo> held,
                                       std::function<void(absl::Status)> ended) {
  const uint64_t hold = ++holds_;
  driver_.CallToEnd(
      scheduler::HoldSession{{0, caller}, session, hold},
      [then = std::move(held)](Reply r) { then(As<scheduler::SessionInfo>(std::move(r))); },
      [then = std::move(ended)](Reply r) { then(r.status); });
  return hold;
}

void Coordinator::ReleaseHold(uint64_t session, uint64_t hold) {
  driver_.Tell(scheduler::DropHold{session, hold});
}

void Coordinator::ExecuteAsync(const core::Caller& caller, api::ExecuteRequest request,
                               Then<api::ExecuteReply> then) {
  absl::Status admitted = admission::ValidateExecute(request, limits_);
  admitted.Update(admission::ValidateDelete(request.release.size()));
  if (!admitted.ok()) return then(admitted);
  Ask<api::ExecuteReply>(scheduler::Execute{{0, caller}, std::move(request)}, std::move(then));
}

std::vector<ShardTicket> Coordinator::Tickets(const ArrayInfo& info,
                                              const std::vector<int>& ordinals, bool write,
                                              absl::Time until) const {
  std::vector<ShardTicket> tickets;
  api::Ticket t;
  t.access = write ? api::Ticket::Access::kWrite : api::Ticket::Access::kRead;
  t.array = info.array;
  t.dtype = info.spec.dtype;
  t.shape = api::LocalShape(info.spec.placement, info.spec.shape);
  t.expires = until;
  for (int k : ordinals) {
    const ArrayInfo::Shard& shard = info.shards[k];
    t.incarnation = shard.incarnation;
    t.device = shard.device;
    const std::string key = api::TicketKeyFor(ticket_key_, shard.executor, shard.incarnation);
    tickets.push_back({k, shard.endpoint, api::SignTicket(t, key)});
  }
  return tickets;
}

void Coordinator::CreateArrayAsync(const core::Caller& caller, uint64_t session,
                                   api::ArraySpec spec, bool check_only, Then<TicketedArray> then) {
  const absl::Status admitted = admission::ValidateArray(spec, limits_);
  if (!admitted.ok()) return then(admitted);
  Ask<ArrayInfo>(
      scheduler::CreateArray{{0, caller}, session, std::move(spec), check_only},
      [this, then = std::move(then)](absl::StatusOr<ArrayInfo> info) {
        if (!info.ok()) return then(info.status());
        then(TicketedArray{info->array, info->spec,
                           Tickets(*info, AllOrdinals(*info), /*write=*/true,
                                   clock_->Steady() + absl::Milliseconds(options_.ticket_ms))});
      });
}

void Coordinator::ReadTicketsAsync(const core::Caller& caller, uint64_t array,
                                   std::vector<int> ordinals, absl::Duration timeout,
                                   Then<TicketedArray> then) {
  Ask<ArrayInfo>(
      scheduler::WaitArray{{0, caller}, array, timeout},
      [this, ordinals = std::move(ordinals),
       then = std::move(then)](absl::StatusOr<ArrayInfo> info) {
        if (!info.ok()) return then(info.status());
        if (absl::Status s = CheckOrdinals(*info, ordinals); !s.ok()) return then(s);
        const api::ArraySpec& spec = info->spec;
        const std::vector<int> wanted =
            ordinals.empty() ? api::OrdinalsOfDistinctShards(spec.placement, spec.shape) : ordinals;
        then(TicketedArray{info->array, spec,
                           Tickets(*info, wanted, /*write=*/false,
                                   clock_->Steady() + absl::Milliseconds(options_.ticket_ms))});
      });
}

void Coordinator::WriteTicketsAsync(const core::Caller& caller, uint64_t array,
                                    std::vector<int> ordinals, Then<TicketedArray> then) {
  Ask<ArrayInfo>(scheduler::DescribeUpload{{0, caller}, array},
                 [this, ordinals = std::move(ordinals),
                  then = std::move(then)](absl::StatusOr<ArrayInfo> info) {
                   if (!info.ok()) return then(info.status());
                   if (absl::Status s = CheckOrdinals(*info, ordinals); !s.ok()) return then(s);
                   then(TicketedArray{info->array, info->spec,
                                      Tickets(*info, ordinals.empty() ? info->unwritten : ordinals,
                                              /*write=*/true, info->upload_until)});
                 });
}

void Coordinator::DeleteAsync(const core::Caller& caller, std::vector<uint64_t> arrays,
                              Then<scheduler::MissingArrays> then) {
  const absl::Status admitted = admission::ValidateDelete(arrays.size());
  if (!admitted.ok()) return then(admitted);
  Ask<scheduler::MissingArrays>(scheduler::DeleteArrays{{0, caller}, std::move(arrays)},
                                std::move(then));
}

void Coordinator::PutAsync(const core::Caller& caller, uint64_t session, const ir::Array& value,
                           const api::Placement& placement, absl::Duration timeout,
                           Then<uint64_t> then) {
  // The reply to the last of the writes calls `then`.
  struct Put {
    absl::Mutex mu;
    size_t left ABSL_GUARDED_BY(mu) = 0;
    absl::Status first ABSL_GUARDED_BY(mu);
    Then<uint64_t> then;
  };
  CreateArrayAsync(
      caller, session, {value.dtype(), value.shape(), placement}, /*check_only=*/false,
      [this, caller, value, placement, timeout,
       then = std::move(then)](absl::StatusOr<TicketedArray> array) mutable {
        if (!array.ok()) return then(array.status());
        const uint64_t id = array->array;
        const auto put = std::make_shared<Put>();
        put->then = std::move(then);
        const size_t n = placement.devices.size();
        {
          absl::MutexLock lock(&put->mu);
          put->left = n;
        }
        const ir::Dims local = api::LocalShape(placement, value.shape());
        std::map<ir::Dims, ir::Array> blocks;  // Replicas share one copy of a shard.
        for (size_t k = 0; k < n; ++k) {
          const ir::Dims starts =
              api::ShardStarts(placement, value.shape(), static_cast<int64_t>(k));
          auto it = blocks.find(starts);
          if (it == blocks.end())
            it = blocks.emplace(starts, ir::SliceBlock(value, starts, local)).first;
          driver_.Call(
              scheduler::WriteShard{{0, caller}, id, static_cast<int>(k), it->second, timeout},
              [this, caller, put, id](const Reply& r) {
                absl::Status first;
                {
                  absl::MutexLock lock(&put->mu);
                  put->first.Update(r.status);
                  if (--put->left > 0) return;
                  first = put->first;
                }
                if (first.ok()) return put->then(id);
                DeleteAsync(caller, {id}, [put, first](const auto&) { put->then(first); });
              });
        }
      });
}

void Coordinator::GetAsync(const core::Caller& caller, uint64_t array, absl::Duration timeout,
                           int64_t bytes_max, Then<ir::Array> then) {
  struct Get {
    api::ArraySpec spec;
    std::vector<int> ordinals;
    Then<ir::Array> then;
    absl::Mutex mu;
    std::vector<absl::StatusOr<ir::Array>> blocks ABSL_GUARDED_BY(mu);
    size_t left ABSL_GUARDED_BY(mu) = 0;
  };
  Ask<ArrayInfo>(
      scheduler::DescribeArray{{0, caller}, array},
      [this, caller, array, timeout, bytes_max,
       then = std::move(then)](absl::StatusOr<ArrayInfo> info) mutable {
        if (!info.ok()) return then(info.status());
        const int64_t bytes = ir::MakeType(info->spec.dtype, info->spec.shape).num_bytes();
        if (bytes > bytes_max)
          return then(
              MakeError(ErrorKind::kLimitExceeded,
                        absl::StrCat("array ", array, " has ", bytes, " bytes, at most ", bytes_max,
                                     " are relayed (relay_bytes_max); read it "
                                     "by tickets")));
        const auto get = std::make_shared<Get>();
        get->spec = std::move(info->spec);
        get->ordinals = api::OrdinalsOfDistinctShards(get->spec.placement, get->spec.shape);
        get->then = std::move(then);
        {
          absl::MutexLock lock(&get->mu);
          get->left = get->ordinals.size();
          get->blocks.assign(get->left, absl::UnknownError(""));
        }
        for (size_t i = 0; i < get->ordinals.size(); ++i)
          driver_.Call(scheduler::ReadShard{{0, caller}, array, get->ordinals[i], timeout},
                       [get, i](Reply r) {
                         absl::StatusOr<ir::Array> value = As<ir::Array>(std::move(r));
                         std::vector<absl::StatusOr<ir::Array>> blocks;
                         {
                           absl::MutexLock lock(&get->mu);
                           get->blocks[i] = std::move(value);
                           if (--get->left > 0) return;
                           blocks = std::move(get->blocks);
                         }
                         get->then(Assemble(get->spec, get->ordinals, blocks));
                       });
      });
}

// ---- api::WorkerEvents. -------------------------------------------------------------------------
absl::StatusOr<api::Welcome> Coordinator::Register(const api::Registration& registration,
                                                   std::shared_ptr<api::WorkerLink> link) {
  if (registration.worker.empty() || registration.executors.empty())
    return MakeError(ErrorKind::kValueError,
                     "registration: a worker has a name and at least one executor");
  api::Welcome welcome;
  welcome.session = driver_.AddWorker(registration, std::move(link));
  welcome.epoch = epoch();
  welcome.heartbeat = absl::Milliseconds(options_.heartbeat_ms);
  welcome.lease = absl::Milliseconds(options_.lease_ms);
  welcome.ticket_key = api::WorkerTicketKey(ticket_key_, registration.worker);
  welcome.clock = clock_->Steady();
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
