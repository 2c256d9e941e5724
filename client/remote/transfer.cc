#include "client/remote/transfer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/remote/status.h"
#include "grpcpp/create_channel.h"
#include "ir/api/ticket.h"

namespace tessera::remote {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;
constexpr int kParallelTransfers = 4;

absl::Status FromExecutor(const grpc::Status& status, const std::string& endpoint) {
  return FromGrpc(status, absl::StrCat("the executor at ", endpoint), ErrorKind::kWorkerLost);
}

}  // namespace

absl::StatusOr<Block> BlockOf(const api::ArraySpec& spec, int ordinal) {
  const ir::Mesh& mesh = spec.placement.mesh;
  if (ordinal < 0 || ordinal >= mesh.num_devices()) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("shard ", ordinal, " of an array on ", mesh.num_devices(),
                                  " devices does not exist"));
  }
  Block block{ir::Dims(spec.shape.size(), 0), spec.shape};
  for (size_t d = 0; d < spec.placement.spec.dims.size(); ++d) {
    const ir::AxisList& axes = spec.placement.spec.dims[d];
    if (axes.empty()) continue;
    for (const std::string& axis : axes) {
      if (!mesh.Has(axis)) {
        return MakeError(ErrorKind::kUnknownAxis,
                         absl::StrCat("placement names axis '", axis, "', which the mesh ",
                                      mesh.ToString(), " does not have"));
      }
    }
    const int64_t parts = mesh.SizeOf(axes);
    if (d >= spec.shape.size() || spec.shape[d] % parts != 0) {
      return MakeError(ErrorKind::kIndivisible,
                       absl::StrCat("placement ", spec.placement.spec.ToString(),
                                    " does not divide shape (", ir::DimsToString(spec.shape), ")"));
    }
    block.shape[d] = spec.shape[d] / parts;
    block.starts[d] = mesh.IndexAlong(ordinal, axes) * block.shape[d];
  }
  return block;
}

std::shared_ptr<grpc::Channel> Transfer::ChannelTo(const std::string& endpoint) {
  absl::MutexLock lock(&mu_);
  std::shared_ptr<grpc::Channel>& channel = channels_[endpoint];
  if (!channel) {
    grpc::ChannelArguments args;
    args.SetMaxReceiveMessageSize(8 << 20);
    channel = grpc::CreateCustomChannel(endpoint, credentials_, args);
  }
  return channel;
}

absl::Status Transfer::Write(const std::string& endpoint, const std::string& ticket,
                             const ir::Array& shard, absl::Time end) {
  const auto stub = v1::DataService::NewStub(ChannelTo(endpoint));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(end));
  v1::WriteResponse response;
  const auto writer = stub->Write(&context, &response);
  const char* bytes = reinterpret_cast<const char*>(shard.data());
  int64_t sent = 0;
  // An empty shard still says its ticket.
  do {
    v1::WriteRequest request;
    if (sent == 0) request.set_ticket(ticket);
    const int64_t size = std::min(kChunkBytes, shard.num_bytes() - sent);
    request.set_offset(sent);
    request.set_data(bytes + sent, static_cast<size_t>(size));
    request.set_crc32c(api::Crc32c(0, bytes + sent, static_cast<size_t>(size)));
    if (!writer->Write(request)) break;  // Finish says why
    sent += size;
  } while (sent < shard.num_bytes());
  writer->WritesDone();
  TESSERA_RETURN_IF_ERROR(FromExecutor(writer->Finish(), endpoint));
  if (response.committed_bytes() != shard.num_bytes()) {
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat(endpoint, " stored ", response.committed_bytes(), " of ",
                                  shard.num_bytes(), " bytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ir::Array> Transfer::Read(const std::string& endpoint, const std::string& ticket,
                                         ir::DType dtype, const ir::Dims& shape, absl::Time end) {
  const auto stub = v1::DataService::NewStub(ChannelTo(endpoint));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(end));
  v1::ReadRequest request;
  request.set_ticket(ticket);
  const auto reader = stub->Read(&context, request);
  ir::Array shard(dtype, shape);
  std::byte* bytes = shard.MutableData();
  int64_t received = 0;
  v1::ReadResponse chunk;
  while (reader->Read(&chunk)) {
    const int64_t size = static_cast<int64_t>(chunk.data().size());
    if (chunk.offset() != received || size > shard.num_bytes() - received) {
      context.TryCancel();
      return MakeError(ErrorKind::kInternal,
                       absl::StrCat(endpoint, " sent ", size, " bytes at ", chunk.offset(),
                                    " when ", received, " of ", shard.num_bytes(), " were there"));
    }
    if (api::Crc32c(0, chunk.data().data(), chunk.data().size()) != chunk.crc32c()) {
      context.TryCancel();
      return absl::DataLossError(
          absl::StrCat("a chunk from ", endpoint, " does not match its checksum. Read it again"));
    }
    if (size > 0) std::memcpy(bytes + received, chunk.data().data(), static_cast<size_t>(size));
    received += size;
  }
  TESSERA_RETURN_IF_ERROR(FromExecutor(reader->Finish(), endpoint));
  if (received != shard.num_bytes()) {
    return MakeError(ErrorKind::kInternal, absl::StrCat(endpoint, " sent ", received, " of ",
                                                        shard.num_bytes(), " bytes"));
  }
  return shard;
}

absl::Status RunAll(const std::vector<std::function<absl::Status()>>& jobs) {
  if (jobs.size() == 1) return jobs[0]();
  std::atomic<size_t> next{0};
  absl::Mutex mu;
  absl::Status first;
  const auto work = [&] {
    for (size_t i = next++; i < jobs.size(); i = next++) {
      absl::Status status = jobs[i]();
      absl::MutexLock lock(&mu);
      first.Update(status);
    }
  };
  std::vector<std::thread> threads;
  for (size_t t = 1; t < std::min<size_t>(kParallelTransfers, jobs.size()); ++t) {
    threads.emplace_back(work);
  }
  work();
  for (std::thread& t : threads) t.join();
  return first;
}

}  // namespace tessera::remote
