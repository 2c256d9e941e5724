// Reads blocks of shards from other executors over gRPC, for the transfers of an executor
// (worker/runtime/executor_run.cc). It keeps one channel for each endpoint, since a transfer often
// reads many blocks from the same peer.
#include "worker/rpc/grpc_peer_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/host_memory.h"
#include "base/keepalive.h"
#include "base/status.h"
#include "grpcpp/grpcpp.h"
#include "ir/api/identity.h"
#include "ir/serial/chunk_call.h"
#include "ir/serial/grpc_status.h"

namespace tessera::worker::rpc {
namespace {

constexpr int kMessageBytes = 8 << 20;
constexpr size_t kChannelsMax = 1024;

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const std::string& authorities) {
  if (authorities.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions tls;
  tls.pem_root_certs = authorities;
  return grpc::SslCredentials(tls);
}

class GrpcPeerReader final : public PeerReader {
 public:
  explicit GrpcPeerReader(const std::string& authorities)
      : credentials_(CredentialsOf(authorities)) {}

  // Reads one block into memory, and decides whom to blame if it fails. An error of the shard has a
  // reason and is returned unchanged, because it is the first failure. An error without a reason
  // comes from the connection, and a stale ticket means that the peer has restarted; both become
  // WORKER_LOST and name the peer. The launch's own cancellation takes precedence over both.
  absl::StatusOr<ir::Array> Read(const api::Transfer::Piece& piece, ir::DType dtype,
                                 absl::Time deadline, CancelToken& cancel) override {
    const std::string& endpoint = piece.endpoint;
    // A coordinator of an earlier build does not say which executor this is.
    const std::string who = piece.executor.empty()
                                ? absl::StrCat("the executor at ", endpoint)
                                : absl::StrCat("executor ", piece.executor, " at ", endpoint);
    grpc::ClientContext context;
    if (deadline != absl::InfiniteFuture())
      context.set_deadline(WallDeadline(deadline - SteadyNow()));
    v1::ReadRequest request;
    request.set_ticket(piece.ticket);
    request.mutable_starts()->Add(piece.source_starts.begin(), piece.source_starts.end());
    request.mutable_shape()->Add(piece.shape.begin(), piece.shape.end());
    ir::serial::ChunkCall call(ChannelTo(endpoint), "/tessera.v1.DataService/Read", &context);
    const int64_t listener = cancel.AddListener([&context] { context.TryCancel(); });
    ir::Array block(dtype, piece.shape,
                    NewHostMemory(ir::MakeType(dtype, piece.shape).num_bytes()));
    int64_t received = 0;
    absl::Status status;
    if (call.Write(ir::serial::ToBuffer(request)) && call.WritesDone()) {
      status = ir::serial::ReceiveBlock(call, who, &block, &received,
                                        [](int64_t) { return absl::OkStatus(); });
    }
    if (!status.ok()) context.TryCancel();
    const grpc::Status end = call.Finish();
    cancel.RemoveListener(listener);
    if (cancel.cancelled()) return cancel.status();
    if (status.ok()) status = ir::serial::FromGrpc(end);
    if (status.ok() && received != block.num_bytes()) {
      status = MakeError(ErrorKind::kInternal, absl::StrCat("the stream ended after ", received,
                                                            " of ", block.num_bytes(), " bytes"));
    }
    // An error of the shard is returned unchanged. An error of the connection gets the name of the
    // peer.
    if (!status.ok() && ReasonOf(status).empty()) {
      DropChannel(endpoint);
      status = MakeError(status.code() == absl::StatusCode::kDeadlineExceeded
                             ? ErrorKind::kDeadlineExceeded
                             : ErrorKind::kWorkerLost,
                         absl::StrCat("reading from ", who, ": ", status.message()));
    }
    // The coordinator knows of the restart, or is about to learn of it.
    if (KindOf(status) == ErrorKind::kTicketStale) {
      status =
          MakeError(ErrorKind::kWorkerLost,
                    absl::StrCat("reading from ", who, ": another process has taken its place"));
    }
    TESSERA_RETURN_IF_ERROR(status);
    return block;
  }

 private:
  std::shared_ptr<grpc::Channel> ChannelTo(const std::string& endpoint) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    if (channels_.size() >= kChannelsMax) channels_.clear();
    std::shared_ptr<grpc::Channel>& channel = channels_[endpoint];
    if (channel == nullptr) {
      grpc::ChannelArguments arguments;
      arguments.SetMaxReceiveMessageSize(kMessageBytes);
      // The certificates of executors have this one server name, and not the names of their hosts.
      arguments.SetString(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, api::kWorkerServerName);
      // Each new channel must make a new connection.
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      for (const ChannelArgument& a : ClientArguments({})) arguments.SetInt(a.name, a.value);
      channel = grpc::CreateCustomChannel(endpoint, credentials_, arguments);
    }
    return channel;
  }

  // Drops a channel whose connection has failed. It would wait before it connects again, and fail
  // calls meanwhile, although a new executor at the same port may already be there.
  void DropChannel(const std::string& endpoint) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    channels_.erase(endpoint);
  }

  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  absl::Mutex mu_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<PeerReader> MakeGrpcPeerReader(const std::string& authorities) {
  return std::make_unique<GrpcPeerReader>(authorities);
}

}  // namespace tessera::worker::rpc
