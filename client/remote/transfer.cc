// Moves array bytes to and from executors, without the coordinator. RemoteService::Put and Get call
// Write and Read once per shard, with the ticket that the coordinator made for that shard. A
// transfer survives a broken connection and corrupt bytes, so that a large array need not start
// again from its first byte.
#include "client/remote/transfer.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/host_memory.h"
#include "base/status.h"
#include "client/remote/status.h"
#include "grpcpp/create_channel.h"
#include "ir/api/crc32c.h"
#include "ir/api/identity.h"
#include "ir/api/placement.h"
#include "ir/serial/chunk_call.h"
#include "ir/spec.h"
#include "tessera/v1/data.grpc.pb.h"

namespace tessera::remote {
namespace {

constexpr int kParallelTransfers = 4;
constexpr int kMessageBytes = 8 << 20;
constexpr absl::Duration kStatusTimeout = absl::Seconds(10);  // timeout of GetShardStatus

absl::Status FromExecutor(const grpc::Status& status, const std::string& endpoint) {
  return FromGrpc(status, absl::StrCat("the executor at ", endpoint), ErrorKind::kWorkerLost);
}

// Returns whether the error comes from the transport and not from the executor: a broken
// connection, or corrupt bytes that our checksums do not cover.
bool IsTransportError(const grpc::Status& status) {
  if (status.ok() || !status.error_details().empty()) return false;
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:  // the caller checks its own deadline
      return true;
    default:
      return false;
  }
}

// Returns whether the upload can be resumed after this error of the executor: a chunk was corrupt,
// the stream was idle, or the executor has not yet detected that an earlier stream is dead.
bool CanResume(const absl::Status& status) {
  const ErrorKind kind = KindOf(status);
  return !status.ok() && (kind == ErrorKind::kChecksumMismatch || kind == ErrorKind::kCancelled ||
                          kind == ErrorKind::kDeadlineExceeded);
}

}  // namespace

absl::StatusOr<Block> BlockOf(const api::ArraySpec& spec, int ordinal) {
  const ir::Mesh& mesh = spec.placement.mesh;
  if (ordinal < 0 || ordinal >= mesh.num_devices()) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("shard ", ordinal, " of an array on ", mesh.num_devices(),
                                  " devices does not exist"));
  }
  const ir::PartitionSpec& partition = spec.placement.spec;
  const std::optional<ir::SpecFault> fault = ir::FindSpecFault(partition, mesh, spec.shape);
  if (fault && fault->kind == ir::SpecFault::kUnknownAxis) {
    return MakeError(ErrorKind::kUnknownAxis,
                     absl::StrCat("placement names axis '", fault->axis, "', which the mesh ",
                                  mesh.ToString(), " does not have"));
  }
  if (fault) {
    return MakeError(ErrorKind::kIndivisible,
                     absl::StrCat("placement ", partition.ToString(), " does not divide shape (",
                                  ir::DimsToString(spec.shape), ")"));
  }
  return Block{api::ShardStarts(spec.placement, spec.shape, ordinal),
               api::LocalShape(spec.placement, spec.shape)};
}

// The state of an upload across its attempts.
struct Transfer::Upload {
  const std::string& endpoint;
  const std::string& ticket;
  const ir::Array& shard;
  std::vector<uint32_t> chunk_crcs;  // checksums of the chunks that were sent
  int64_t committed_bytes = 0;       // bytes that the executor has stored
  int64_t most_sent = 0;             // the most bytes that any attempt has sent
  bool complete = false;

  uint32_t CrcOf(int64_t offset, int64_t size, int64_t chunk_bytes) {
    const auto compute = [&] {
      return api::Crc32c(0, shard.data() + offset, static_cast<size_t>(size));
    };
    const auto index = static_cast<size_t>(offset / chunk_bytes);
    if (offset % chunk_bytes != 0 || index > chunk_crcs.size()) return compute();
    if (index == chunk_crcs.size()) chunk_crcs.push_back(compute());
    return chunk_crcs[index];
  }
};

// The state of a download across its attempts.
struct Transfer::Download {
  const std::string& endpoint;
  const std::string& ticket;
  ir::Array block;
  int64_t received = 0;
};

Transfer::Channel Transfer::ChannelTo(const std::string& endpoint) {
  absl::MutexLock lock(&mu_);
  Connections& connections = connections_[endpoint];
  if (connections.channels.size() < kParallelTransfers) {
    grpc::ChannelArguments args;
    args.SetMaxReceiveMessageSize(kMessageBytes);
    // The certificate of an executor names its role and not its address, so TLS must expect the
    // role's name. In plain text this has no effect.
    args.SetString(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, api::kWorkerServerName);
    // Each channel has its own connection, so that a stuck transfer does not delay others.
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                static_cast<int>(absl::ToInt64Milliseconds(options_.initial_backoff)));
    args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
    args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                static_cast<int>(absl::ToInt64Milliseconds(options_.max_backoff)));
    for (const ChannelArgument& a : ClientArguments(options_.keepalive))
      args.SetInt(a.name, a.value);
    connections.channels.push_back(grpc::CreateCustomChannel(endpoint, credentials_, args));
    return connections.channels.back();
  }
  return connections.channels[connections.next++ % connections.channels.size()];
}

// An attempt that gets further than all earlier attempts resets the backoff and the time since
// which nothing gets through. So a slow transfer goes on, and a stuck transfer ends. `check_state`
// is called before the next attempt: if the array has been deleted or its executor lost, the
// coordinator's error says more than the error of the connection.
absl::Status Transfer::RunWithRetries(const std::string& endpoint, absl::Time end,
                                      const StateFn& check_state,
                                      const std::function<int64_t()>& moved,
                                      const std::function<Outcome(const Channel&)>& attempt) {
  absl::Duration wait = options_.initial_backoff;
  int64_t most_moved = moved();
  absl::Time stuck_since = absl::InfiniteFuture();
  while (true) {
    const auto [status, retryable] = attempt(ChannelTo(endpoint));
    const absl::Time ended = SteadyNow();
    if (status.ok()) return status;
    if (KindOf(status) == ErrorKind::kChecksumMismatch) ++corrupt_;
    if (!retryable) return status;
    if (check_state) TESSERA_RETURN_IF_ERROR(check_state());
    if (moved() > most_moved) {
      most_moved = moved();
      stuck_since = ended;
      wait = options_.initial_backoff;
    }
    stuck_since = std::min(stuck_since, ended);
    const absl::Time now = SteadyNow();
    if (now + wait >= end) {
      return MakeError(ErrorKind::kDeadlineExceeded,
                       absl::StrCat("moving a shard: the deadline passed after ", most_moved,
                                    " bytes; the last attempt: ", status.message()));
    }
    if (now >= stuck_since + options_.patience) {
      return Annotate(status, absl::StrCat("moving a shard: no progress for ",
                                           absl::FormatDuration(absl::Trunc(
                                               now - stuck_since, absl::Milliseconds(100))),
                                           " after ", most_moved, " bytes"));
    }
    absl::SleepFor(wait);
    wait = std::min(2 * wait, options_.max_backoff);
    ++retries_;
  }
}

absl::Status Transfer::ReportProgress(int64_t bytes) const {
  if (!options_.on_bytes || options_.on_bytes(bytes)) return absl::OkStatus();
  return MakeError(ErrorKind::kCancelled, "moving a shard: given up by the caller");
}

// Sends the bytes from `committed_bytes` to the end over one stream. The executor answers with the
// number and the checksum of all bytes that it has stored, including those of earlier attempts.
// Both are compared, so that an array that arrived wrong is never used. The first message carries
// the ticket.
Transfer::Outcome Transfer::TryWrite(const Channel& channel, Upload& upload, absl::Time end) {
  grpc::ClientContext context;
  context.set_deadline(WallDeadline(end - SteadyNow()));
  ir::serial::ChunkCall call(channel, "/tessera.v1.DataService/Write", &context);
  const ir::Array& shard = upload.shard;
  int64_t at = upload.committed_bytes;
  v1::WriteRequest request;
  request.set_ticket(upload.ticket);
  // Send at least one chunk, even if no bytes are left: it carries the ticket.
  do {
    const int64_t size = std::min(options_.chunk_bytes, shard.num_bytes() - at);
    request.set_offset(at);
    request.set_crc32c(upload.CrcOf(at, size, options_.chunk_bytes));
    if (!call.Write(ir::serial::MakeChunk(request, shard, at, size)))
      break;  // Finish below returns the error
    at += size;
    const int64_t new_bytes = std::max<int64_t>(0, at - upload.most_sent);
    upload.most_sent += new_bytes;
    if (absl::Status reported = ReportProgress(new_bytes); !reported.ok()) {
      context.TryCancel();
      call.Finish();
      return {std::move(reported)};
    }
    request.clear_ticket();
  } while (at < shard.num_bytes());
  call.WritesDone();
  grpc::ByteBuffer answer;
  v1::WriteResponse response;
  const bool answered = call.Read(&answer) && ir::serial::FromBuffer(answer, &response);
  const grpc::Status finished = call.Finish();
  if (!finished.ok()) {
    const absl::Status status = FromExecutor(finished, upload.endpoint);
    return {status, IsTransportError(finished) || CanResume(status)};
  }
  if (!answered || response.committed_bytes() != shard.num_bytes()) {
    return {MakeError(ErrorKind::kInternal,
                      absl::StrCat(upload.endpoint, " stored ", response.committed_bytes(), " of ",
                                   shard.num_bytes(), " bytes"))};
  }
  uint32_t crc = 0;
  for (int64_t offset = 0; offset < shard.num_bytes(); offset += options_.chunk_bytes) {
    const int64_t size = std::min(options_.chunk_bytes, shard.num_bytes() - offset);
    crc = api::Crc32cCombine(crc, upload.CrcOf(offset, size, options_.chunk_bytes),
                             static_cast<uint64_t>(size));
  }
  if (response.crc32c() != crc) {
    return {MakeError(ErrorKind::kInternal,
                      absl::StrCat(upload.endpoint, " stored bytes that differ from those sent"))};
  }
  return {};
}

Transfer::Outcome Transfer::FetchProgress(const Channel& channel, Upload& upload, absl::Time end) {
  grpc::ClientContext context;
  context.set_deadline(WallDeadline(std::min(end - SteadyNow(), kStatusTimeout)));
  v1::GetShardStatusRequest request;
  request.set_ticket(upload.ticket);
  v1::GetShardStatusResponse response;
  grpc::Status finished =
      v1::DataService::NewStub(channel)->GetShardStatus(&context, request, &response);
  if (finished.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && IsTransportError(finished))
    finished =
        grpc::Status(grpc::StatusCode::UNAVAILABLE,
                     absl::StrCat("nothing came back for ", absl::FormatDuration(kStatusTimeout)));
  if (!finished.ok()) return {FromExecutor(finished, upload.endpoint), IsTransportError(finished)};
  if (response.committed_bytes() < 0 || response.committed_bytes() > upload.shard.num_bytes()) {
    return {MakeError(ErrorKind::kInternal,
                      absl::StrCat(upload.endpoint, " has ", response.committed_bytes(),
                                   " bytes of ", upload.shard.num_bytes()))};
  }
  upload.committed_bytes = response.committed_bytes();
  upload.complete = response.complete();
  return {};
}

absl::Status Transfer::Write(const std::string& endpoint, const std::string& ticket,
                             const ir::Array& shard, absl::Time end, const StateFn& check_state) {
  Upload upload{endpoint, ticket, shard, {}};
  bool is_first_attempt = true;
  return RunWithRetries(
      endpoint, end, check_state, [&] { return upload.committed_bytes; },
      [&](const Channel& channel) -> Outcome {
        if (!std::exchange(is_first_attempt, false)) {
          if (Outcome fetched = FetchProgress(channel, upload, end); !fetched.status.ok())
            return fetched;
        }
        return upload.complete ? Outcome() : TryWrite(channel, upload, end);
      });
}

Transfer::Outcome Transfer::TryRead(const Channel& channel, Download& download, absl::Time end) {
  grpc::ClientContext context;
  context.set_deadline(WallDeadline(end - SteadyNow()));
  v1::ReadRequest request;
  request.set_ticket(download.ticket);
  request.set_offset(download.received);
  ir::serial::ChunkCall call(channel, "/tessera.v1.DataService/Read", &context);
  absl::Status received;
  if (call.Write(ir::serial::ToBuffer(request)) && call.WritesDone()) {
    received =
        ir::serial::ReceiveBlock(call, download.endpoint, &download.block, &download.received,
                                 [this](int64_t bytes) { return ReportProgress(bytes); });
  }
  const int64_t total_bytes = download.block.num_bytes();
  if (!received.ok()) context.TryCancel();
  const grpc::Status finished = call.Finish();
  if (!received.ok()) return {received, KindOf(received) == ErrorKind::kChecksumMismatch};
  if (!finished.ok())
    return {FromExecutor(finished, download.endpoint), IsTransportError(finished)};
  if (download.received == total_bytes) return {};
  return {MakeError(
      ErrorKind::kInternal,
      absl::StrCat(download.endpoint, " sent ", download.received, " of ", total_bytes, " bytes"))};
}

absl::StatusOr<ir::Array> Transfer::Read(const std::string& endpoint, const std::string& ticket,
                                         ir::DType dtype, const ir::Dims& shape, absl::Time end,
                                         const StateFn& check_state) {
  const int64_t bytes = ir::MakeType(dtype, shape).num_bytes();
  Download download{endpoint, ticket, ir::Array(dtype, shape, NewHostMemory(bytes))};
  TESSERA_RETURN_IF_ERROR(RunWithRetries(
      endpoint, end, check_state, [&] { return download.received; },
      [&](const Channel& channel) { return TryRead(channel, download, end); }));
  return std::move(download.block);
}

absl::Status RunAll(const std::vector<std::function<absl::Status()>>& jobs) {
  if (jobs.size() == 1) return jobs[0]();
  std::atomic<size_t> next{0};
  absl::Mutex mu;
  absl::Status first_error;
  const auto work = [&] {
    for (size_t i = next++; i < jobs.size(); i = next++) {
      absl::Status status = jobs[i]();
      absl::MutexLock lock(&mu);
      first_error.Update(status);
    }
  };
  std::vector<std::thread> threads;
  for (size_t t = 1; t < std::min<size_t>(kParallelTransfers, jobs.size()); ++t) {
    threads.emplace_back(work);
  }
  work();
  for (std::thread& t : threads) t.join();
  return first_error;
}

}  // namespace tessera::remote
