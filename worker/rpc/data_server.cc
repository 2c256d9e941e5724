// Serves an executor's DataService: uploads, reads and their status, each with a ticket. Clients
// and other executors connect to it directly, so that the bytes of arrays do not pass through the
// coordinator. Uploads go to the UploadTable, and reads to the executor's buffers.
#include "worker/rpc/data_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "base/unique_fd.h"
#include "google/protobuf/stubs/logging.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "ir/api/crc32c.h"
#include "ir/api/ticket.h"
#include "ir/serial/chunk_call.h"
#include "ir/serial/grpc_status.h"
#include "tessera/v1/data.grpc.pb.h"
#include "worker/collectives/socket.h"
#include "worker/rpc/data_metrics.h"
#include "worker/runtime/timer.h"

namespace tessera::worker::rpc {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;
constexpr int kMessageBytes = 8 << 20;
constexpr int kStreamsPerConnection = 128;
constexpr absl::Duration kStopGrace = absl::Milliseconds(200);

// Write and Read exchange their messages with gRPC as bytes, so that the bytes of arrays are not
// copied on the way.
using RawDataService =
    v1::DataService::WithRawCallbackMethod_Write<v1::DataService::WithCallbackMethod_GetShardStatus<
        v1::DataService::WithRawCallbackMethod_Read<v1::DataService::Service>>>;

class Service final : public RawDataService {
 public:
  Service(Executor* executor, const DataServerOptions& options)
      : executor_(executor),
        shard_bytes_max_(options.shard_bytes_max),
        read_timeout_(options.read_timeout),
        uploads_(executor, options.uploads) {}

  void SetTicketKey(const std::string& key, absl::Duration clock_ahead) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    key_ = {key, clock_ahead};
  }

  grpc::ServerReadReactor<grpc::ByteBuffer>* Write(grpc::CallbackServerContext* context,
                                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetShardStatus(grpc::CallbackServerContext* context,
                                           const v1::GetShardStatusRequest* request,
                                           v1::GetShardStatusResponse* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Read(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override;

  Executor& executor() const { return *executor_; }
  UploadTable& uploads() { return uploads_; }
  const UploadTable& uploads() const { return uploads_; }
  absl::Duration read_timeout() const { return read_timeout_; }
  Timer& timer() { return timer_; }

  absl::StatusOr<api::Ticket> Check(const std::string& text, api::Ticket::Access access) const
      ABSL_LOCKS_EXCLUDED(mu_) {
    Key key;
    {
      absl::MutexLock lock(&mu_);
      key = key_;
    }
    const auto denied = [](absl::string_view why) {
      return MakeError(ErrorKind::kTicketRefused, absl::StrCat("ticket: ", why));
    };
    if (key.text.empty()) {
      return MakeError(ErrorKind::kTicketStale,
                       "ticket: this executor is not registered yet; ask the coordinator for one");
    }
    TESSERA_ASSIGN_OR_RETURN(api::Ticket ticket, CheckWithKey(key, text));
    if (ticket.access != access) {
      return denied(access == api::Ticket::Access::kRead ? "not for reading" : "not for writing");
    }
    const int64_t bytes = ir::MakeType(ticket.dtype, ticket.shape).num_bytes();
    if (bytes > shard_bytes_max_) return denied("the shard is larger than any device");
    return ticket;
  }

 private:
  struct Key {
    std::string text;
    absl::Duration clock_ahead;  // how far the coordinator's clock is ahead of ours
  };
  absl::StatusOr<api::Ticket> CheckWithKey(const Key& key, const std::string& text) const {
    return api::CheckTicket(text, key.text, SteadyNow() + key.clock_ahead,
                            executor_->info().incarnation);
  }

  Executor* const executor_;
  const int64_t shard_bytes_max_;
  const absl::Duration read_timeout_;
  UploadTable uploads_;
  Timer timer_;
  mutable absl::Mutex mu_;
  Key key_ ABSL_GUARDED_BY(mu_);
};

absl::Status NotAMessageError(absl::string_view type) {
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat("the bytes sent are not a message of type tessera.v1.", type));
}

// Receives one shard, or the rest of a shard. gRPC calls it from one thread at a time, while Cut
// comes from another thread. It is kept alive by gRPC until OnDone, and by the thread that cuts it.
class WriteCall final : public grpc::ServerReadReactor<grpc::ByteBuffer>, public UploadStream {
 public:
  static WriteCall* Start(Service* service, grpc::ByteBuffer* response) {
    auto call = std::make_shared<WriteCall>(service, response);
    call->self_ = call;
    call->StartRead(&call->message_);
    return call.get();
  }
  WriteCall(Service* service, grpc::ByteBuffer* response)
      : service_(service), response_(response) {}

  void OnReadDone(bool ok) override {
    if (!ok) return End(Commit());
    if (const absl::Status status = AppendChunk(); !status.ok()) return End(status);
    StartRead(&message_);
  }
  void OnDone() override {
    service_->uploads().Leave(writer_);
    const std::shared_ptr<WriteCall> last = std::move(self_);
  }
  void Cut(const absl::Status& why) override { End(why); }

 private:
  void End(const absl::Status& status) {
    if (!ending_.exchange(true)) Finish(ir::serial::ToGrpc(status));
  }

  absl::Status AppendChunk() {
    if (!chunk_.Parse(message_)) return NotAMessageError("WriteRequest");
    const v1::WriteRequest& request = chunk_.rest();
    if (writer_.upload == nullptr) {
      TESSERA_ASSIGN_OR_RETURN(const api::Ticket ticket,
                               service_->Check(request.ticket(), api::Ticket::Access::kWrite));
      TESSERA_ASSIGN_OR_RETURN(writer_, service_->uploads().Open(ticket, request.offset(), self_));
    }
    return service_->uploads().Append(writer_, request.offset(), chunk_.data(), request.crc32c());
  }

  absl::Status Commit() {
    if (writer_.upload == nullptr) {
      return MakeError(ErrorKind::kValueError, "write: the stream ended before its first message");
    }
    TESSERA_ASSIGN_OR_RETURN(const UploadTable::CommitResult result,
                             service_->uploads().Commit(writer_));
    service_->executor().metrics().RecordTransferDuration(
        TransferKind::kPut, TransferPath::kTicket, absl::Nanoseconds(AgeGauge::Now() - began_));
    v1::WriteResponse response;
    response.set_committed_bytes(result.bytes);
    response.set_crc32c(result.crc32c);
    *response_ = ir::serial::ToBuffer(response);
    return absl::OkStatus();
  }

  Service* const service_;
  grpc::ByteBuffer* const response_;
  std::shared_ptr<WriteCall> self_;
  std::atomic<bool> ending_{false};
  grpc::ByteBuffer message_;
  ir::serial::Chunk<v1::WriteRequest> chunk_;
  UploadTable::UploadWriter writer_;
  const int64_t began_ = AgeGauge::Now();
};

// Waits for one shard, and then sends a block of it.
class ReadCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  ReadCall(Service* service, grpc::CallbackServerContext* context, const grpc::ByteBuffer& message)
      : service_(service), context_(context) {
    absl::StatusOr<api::Ticket> ticket = ParseRequest(message);
    if (!ticket.ok()) {
      Finish(ir::serial::ToGrpc(ticket.status()));
      return;
    }
    id_ = {ticket->array, ticket->device};
    // gRPC gets this reactor only after the constructor. Writes and a Finish that are called
    // earlier take effect then, and neither OnCancel nor OnDone is called earlier.
    waiter_id_ = service_->executor().ReadShard(
        id_, std::move(block_of_shard_),
        [this](absl::StatusOr<ir::Array> value) { Begin(std::move(value)); });
  }

  void OnWriteDone(bool ok) override {
    service_->timer().Cancel(write_timer_);
    if (!ok) return Finish(grpc::Status::CANCELLED);
    SendNext();
  }
  void OnCancel() override {
    // The party that ends the wait also ends the call.
    if (service_->executor().CancelRead(id_, waiter_id_)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  // Returns the ticket of the request, if it allows reading.
  absl::StatusOr<api::Ticket> ParseRequest(const grpc::ByteBuffer& message) {
    v1::ReadRequest request;
    if (!ir::serial::FromBuffer(message, &request)) return NotAMessageError("ReadRequest");
    if (request.starts_size() > 0 || request.shape_size() > 0) {
      block_of_shard_ = {ir::Dims(request.starts().begin(), request.starts().end()),
                         ir::Dims(request.shape().begin(), request.shape().end())};
    }
    next_offset_ = first_offset_ = request.offset();
    return service_->Check(request.ticket(), api::Ticket::Access::kRead);
  }

  void Begin(absl::StatusOr<ir::Array> value) {
    absl::Status status = value.status();
    if (status.ok()) block_ = *std::move(value);
    if (status.ok() && (next_offset_ < 0 || next_offset_ > block_.num_bytes())) {
      status = MakeError(ErrorKind::kValueError, absl::StrCat("read: offset ", next_offset_, " of ",
                                                              block_.num_bytes(), " bytes"));
    }
    status.ok() ? SendNext() : Finish(ir::serial::ToGrpc(status));
  }

  void SendNext() {
    const int64_t size = std::min(kChunkBytes, block_.num_bytes() - next_offset_);
    if (size == 0) {
      service_->executor().metrics().RecordTransfer(TransferKind::kGet, TransferPath::kTicket,
                                                    next_offset_ - first_offset_,
                                                    absl::Nanoseconds(AgeGauge::Now() - began_));
      return Finish(grpc::Status::OK);
    }
    v1::ReadResponse response;
    response.set_offset(next_offset_);
    response.set_crc32c(api::Crc32c(0, block_.data() + next_offset_, static_cast<size_t>(size)));
    message_ = ir::serial::MakeChunk(response, block_, next_offset_, size);
    next_offset_ += size;
    // A client that reads nothing would keep the bytes in memory, although the array may have been
    // deleted meanwhile. OnWriteDone cancels the timer before the call ends.
    write_timer_ = service_->timer().CallAt(SteadyNow() + service_->read_timeout(), [this] {
      TESSERA_LOG(WARNING) << "a reader does not read its data and is cut off"
                           << Field("array", id_.array) << Field("device", id_.device)
                           << Field("sent", next_offset_) << Field("of", block_.num_bytes());
      context_->TryCancel();
    });
    StartWrite(&message_);
  }

  Service* const service_;
  grpc::CallbackServerContext* const context_;
  Timer::Id write_timer_;                          // timer of the write in flight
  std::optional<Executor::Block> block_of_shard_;  // nullopt for the whole shard
  BufferId id_;
  uint64_t waiter_id_ = 0;
  // Owned by the party that writes: first the callback, then gRPC.
  ir::Array block_;
  int64_t first_offset_ = 0, next_offset_ = 0;
  const int64_t began_ = AgeGauge::Now();
  grpc::ByteBuffer message_;
};

grpc::ServerReadReactor<grpc::ByteBuffer>* Service::Write(grpc::CallbackServerContext*,
                                                          grpc::ByteBuffer* response) {
  return WriteCall::Start(this, response);
}

grpc::ServerUnaryReactor* Service::GetShardStatus(grpc::CallbackServerContext* context,
                                                  const v1::GetShardStatusRequest* request,
                                                  v1::GetShardStatusResponse* response) {
  const absl::Status status = [&]() -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const api::Ticket ticket,
                             Check(request->ticket(), api::Ticket::Access::kWrite));
    TESSERA_ASSIGN_OR_RETURN(const UploadTable::Progress progress, uploads_.ProgressOf(ticket));
    response->set_committed_bytes(progress.committed_bytes);
    response->set_complete(progress.complete);
    return absl::OkStatus();
  }();
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(ir::serial::ToGrpc(status));
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* Service::Read(grpc::CallbackServerContext* context,
                                                          const grpc::ByteBuffer* request) {
  return new ReadCall(this, context, *request);
}

// Listens on the address of a socket that only reserves it, until this process ends. The reserving
// socket itself cannot listen: the daemon holds it, too, so it would go on listening when no
// process is there to answer. Returns a descriptor that is not open if the address is taken.
UniqueFd ListenBeside(int reserved) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getsockname(reserved, reinterpret_cast<sockaddr*>(&address), &size);
  UniqueFd fd(socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  for (const int option : {SO_REUSEADDR, SO_REUSEPORT})
    setsockopt(fd.get(), SOL_SOCKET, option, &on, sizeof(on));
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0)
    return {};
  return fd;
}

class GrpcDataServer final : public DataServer {
 public:
  GrpcDataServer(const DataServerOptions& options, Executor* executor)
      : options_(options), service_(executor, options) {
    if (options.certificates.empty()) Build();
    acceptor_ = std::thread([this] { Serve(); });
  }
  ~GrpcDataServer() override {
    stop_signal_.Raise();
    acceptor_.join();
    if (server_ != nullptr) server_->Shutdown(WallDeadline(kStopGrace));
  }
  void SetTicketKey(const std::string& key, absl::Duration clock_ahead) override {
    service_.SetTicketKey(key, clock_ahead);
    key_signal_.Raise();
  }
  UploadTable::Counts uploads() const override { return service_.uploads().counts(); }

 private:
  // Builds the gRPC server. gRPC gets its connections from Serve instead of accepting them itself,
  // because its own listener would never listen again once descriptors run out. With certificates
  // this process needs its own listening socket, as data_server.h explains; in plaintext the
  // daemon's socket is used.
  void Build() {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    // Protobuf logs nothing, as in the coordinator: the sender of a bad message gets the error.
    google::protobuf::SetLogHandler(nullptr);
    grpc::ServerBuilder builder;
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
    if (options_.certificates.empty()) {
      fcntl(options_.listen_fd, F_SETFL, fcntl(options_.listen_fd, F_GETFL) | O_NONBLOCK);
    } else {
      grpc::SslServerCredentialsOptions tls(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
      tls.pem_key_cert_pairs.push_back({options_.key, options_.certificates});
      credentials = grpc::SslServerCredentials(tls);
      own_listener_ = ListenBeside(options_.listen_fd);
    }
    using ExternalConnections = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    connections_ = builder.experimental().AddExternalConnectionAcceptor(
        ExternalConnections::FROM_FD, credentials);
    builder.RegisterService(&service_);
    if (options_.metrics != nullptr) {
      std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
      factories.push_back(MakeDataInterceptorFactory(options_.metrics));
      builder.experimental().SetInterceptorCreators(std::move(factories));
    }
    builder.SetMaxReceiveMessageSize(kMessageBytes);
    builder.SetMaxSendMessageSize(kMessageBytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnection);
    for (const ChannelArgument& argument : ServerArguments(options_.keepalive)) {
      builder.AddChannelArgument(argument.name, argument.value);
    }
    server_ = builder.BuildAndStart();
    TESSERA_CHECK(server_ != nullptr && (options_.certificates.empty() || own_listener_.ok()))
        << "gRPC does not serve the data port; are the certificate and its key a pair, and is the "
           "port free?";
  }
  // The accepting thread: waits for the first key, and then accepts connections and hands them to
  // gRPC, until the server stops. Before the first key no ticket could be checked, so connections
  // are left in the backlog.
  void Serve() {
    NameThread("data port");
    // A client may have its ticket before this server has the key. It then waits in the backlog, or
    // tries again.
    pollfd first[] = {{stop_signal_.fd(), POLLIN, 0}, {key_signal_.fd(), POLLIN, 0}};
    poll(first, 2, -1);
    if (first[0].revents != 0) return;
    if (server_ == nullptr) Build();
    const int listener = own_listener_.ok() ? own_listener_.get() : options_.listen_fd;
    // gRPC's own listener would never listen again after a lack of descriptors for a connection.
    while (true) {
      pollfd fds[] = {{stop_signal_.fd(), POLLIN, 0}, {listener, POLLIN, 0}};
      poll(fds, 2, -1);
      if (fds[0].revents != 0) return;
      const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0) {
        TuneSocket(fd);
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
        connection.fd = fd;
        connections_->HandleNewConnection(&connection);  // takes ownership of the descriptor
      } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        TESSERA_LOG(WARNING) << "data port: " << std::strerror(errno);
        poll(fds, 1, 50);  // wait a little: without free descriptors the next accept fails, too
      }
    }
  }

  const DataServerOptions options_;
  Service service_;
  // With certificates, these belong to the accepting thread.
  UniqueFd own_listener_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  Signal stop_signal_, key_signal_;
  std::thread acceptor_;
};

}  // namespace

std::unique_ptr<DataServer> DataServer::Start(const DataServerOptions& options,
                                              Executor* executor) {
  return std::make_unique<GrpcDataServer>(options, executor);
}

}  // namespace tessera::worker::rpc
