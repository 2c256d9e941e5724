#include "worker/rpc/data_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/server_posix.h"
#include "ir/api/ticket.h"
#include "tessera/v1/data.grpc.pb.h"
#include "worker/collectives/socket.h"
#include "worker/rpc/status.h"

namespace tessera::worker::rpc {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;
constexpr int kMessageBytes = 8 << 20;
constexpr absl::Duration kStopGrace = absl::Milliseconds(200);

class Service final : public v1::DataService::CallbackService {
 public:
  explicit Service(Executor* executor, int64_t shard_bytes_max)
      : executor_(executor), shard_bytes_max_(shard_bytes_max) {}

  void SetTicketKey(const std::string& key) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    key_ = key;
  }

  grpc::ServerReadReactor<v1::WriteRequest>* Write(grpc::CallbackServerContext* context,
                                                   v1::WriteResponse* response) override;
  grpc::ServerWriteReactor<v1::ReadResponse>* Read(grpc::CallbackServerContext* context,
                                                   const v1::ReadRequest* request) override;

  Executor& executor() const { return *executor_; }

  absl::StatusOr<api::Ticket> Check(const std::string& text, api::Ticket::Access access) const
      ABSL_LOCKS_EXCLUDED(mu_) {
    std::string key;
    {
      absl::MutexLock lock(&mu_);
      key = key_;
    }
    const auto denied = [](absl::string_view why) {
      absl::Status status(absl::StatusCode::kPermissionDenied, absl::StrCat("ticket: ", why));
      status.SetPayload(kReasonPayload, absl::Cord(ToAbsl(InfoOf(ErrorKind::kValueError).reason)));
      return status;
    };
    if (key.empty()) return denied("this executor is not registered yet");
    absl::StatusOr<api::Ticket> ticket =
        api::CheckTicket(text, key, absl::Now(), executor_->info().incarnation);
    if (!ticket.ok()) return denied(ticket.status().message());
    if (ticket->access != access) {
      return denied(access == api::Ticket::Access::kRead ? "not for reading" : "not for writing");
    }
    const int64_t bytes = ir::MakeType(ticket->dtype, ticket->shape).num_bytes();
    if (bytes > shard_bytes_max_) return denied("the shard is larger than any device");
    return ticket;
  }

 private:
  Executor* const executor_;
  const int64_t shard_bytes_max_;
  mutable absl::Mutex mu_;
  std::string key_ ABSL_GUARDED_BY(mu_);
};

// Takes one shard. gRPC calls it from one thread at a time.
class WriteCall final : public grpc::ServerReadReactor<v1::WriteRequest> {
 public:
  WriteCall(const Service* service, v1::WriteResponse* response)
      : service_(service), response_(response) {
    StartRead(&request_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(ToGrpc(End()));
    if (const absl::Status status = Take(); !status.ok()) return Finish(ToGrpc(status));
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  absl::Status Open() {
    TESSERA_ASSIGN_OR_RETURN(ticket_,
                             service_->Check(request_.ticket(), api::Ticket::Access::kWrite));
    const int64_t bytes = ir::MakeType(ticket_.dtype, ticket_.shape).num_bytes();
    TESSERA_ASSIGN_OR_RETURN(
        reservation_, service_->executor().ReserveShard({ticket_.array, ticket_.device}, bytes));
    value_ = ir::Array(ticket_.dtype, ticket_.shape);
    open_ = true;
    return absl::OkStatus();
  }

  absl::Status Take() {
    if (!open_) TESSERA_RETURN_IF_ERROR(Open());
    const std::string& data = request_.data();
    const auto size = static_cast<int64_t>(data.size());
    if (request_.offset() != received_ || size > value_.num_bytes() - received_) {
      return MakeError(
          ErrorKind::kValueError,
          absl::StrCat("write: ", size, " bytes at offset ", request_.offset(),
                       "; expected offset ", received_, " of ", value_.num_bytes(), " bytes"));
    }
    if (api::Crc32c(0, data.data(), data.size()) != request_.crc32c()) {
      absl::Status status(absl::StatusCode::kDataLoss,
                          absl::StrCat("write: the chunk at offset ", request_.offset(),
                                       " does not match its checksum; send the shard again"));
      status.SetPayload(kReasonPayload, absl::Cord(ToAbsl(InfoOf(ErrorKind::kInternal).reason)));
      return status;
    }
    std::memcpy(value_.MutableData() + received_, data.data(), data.size());
    received_ += size;
    return absl::OkStatus();
  }

  absl::Status End() {
    if (!open_ || received_ != value_.num_bytes()) {
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("write: the stream ended after ", received_, " bytes",
                                    open_ ? absl::StrCat(" of ", value_.num_bytes()) : ""));
    }
    TESSERA_RETURN_IF_ERROR(service_->executor().WriteShard(
        {ticket_.array, ticket_.device}, std::move(value_), std::move(reservation_)));
    response_->set_committed_bytes(received_);
    return absl::OkStatus();
  }

  const Service* const service_;
  v1::WriteResponse* const response_;
  v1::WriteRequest request_;
  bool open_ = false;
  api::Ticket ticket_;
  Reservation reservation_;
  ir::Array value_;
  int64_t received_ = 0;
};

// Waits for one shard, then sends a block of it.
class ReadCall final : public grpc::ServerWriteReactor<v1::ReadResponse> {
 public:
  ReadCall(const Service* service, const v1::ReadRequest& request)
      : service_(service),
        starts_(request.starts().begin(), request.starts().end()),
        shape_(request.shape().begin(), request.shape().end()) {
    absl::StatusOr<api::Ticket> ticket =
        service->Check(request.ticket(), api::Ticket::Access::kRead);
    if (!ticket.ok()) {
      Finish(ToGrpc(ticket.status()));
      return;
    }
    id_ = {ticket->array, ticket->device};
    // What is called before gRPC has the reactor takes effect when it has it, so neither OnCancel
    // nor OnDone comes before this returns.
    wait_ = service_->executor().ReadShard(
        id_, [this](absl::StatusOr<ir::Array> value) { Begin(std::move(value)); });
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    Next();
  }
  void OnCancel() override {
    // Whoever ends the wait ends the call.
    if (service_->executor().ForgetRead(id_, wait_)) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  absl::Status Cut(absl::StatusOr<ir::Array> value) {
    TESSERA_RETURN_IF_ERROR(value);
    if (starts_.empty() && shape_.empty()) {
      block_ = *std::move(value);
      return absl::OkStatus();
    }
    const ir::Dims& whole = value->shape();
    bool inside = starts_.size() == whole.size() && shape_.size() == whole.size();
    for (size_t d = 0; inside && d < whole.size(); ++d) {
      inside = starts_[d] >= 0 && shape_[d] >= 0 && shape_[d] <= whole[d] &&
               starts_[d] <= whole[d] - shape_[d];
    }
    if (!inside) {
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("read: the block [", ir::DimsToString(shape_), "] at [",
                                    ir::DimsToString(starts_), "] does not lie inside the shard [",
                                    ir::DimsToString(whole), "]"));
    }
    block_ = ir::SliceBlock(*value, starts_, shape_);
    return absl::OkStatus();
  }

  void Begin(absl::StatusOr<ir::Array> value) {
    if (const absl::Status status = Cut(std::move(value)); !status.ok()) {
      return Finish(ToGrpc(status));
    }
    Next();
  }

  void Next() {
    const int64_t size = std::min(kChunkBytes, block_.num_bytes() - sent_);
    if (size == 0) return Finish(grpc::Status::OK);
    response_.set_offset(sent_);
    response_.set_data(block_.data() + sent_, static_cast<size_t>(size));
    response_.set_crc32c(api::Crc32c(0, block_.data() + sent_, static_cast<size_t>(size)));
    sent_ += size;
    StartWrite(&response_);
  }

  const Service* const service_;
  const ir::Dims starts_, shape_;
  BufferId id_;
  uint64_t wait_ = 0;
  // Of whoever holds the turn: the callback, then gRPC.
  ir::Array block_;
  int64_t sent_ = 0;
  v1::ReadResponse response_;
};

grpc::ServerReadReactor<v1::WriteRequest>* Service::Write(grpc::CallbackServerContext*,
                                                          v1::WriteResponse* response) {
  return new WriteCall(this, response);
}

grpc::ServerWriteReactor<v1::ReadResponse>* Service::Read(grpc::CallbackServerContext*,
                                                          const v1::ReadRequest* request) {
  return new ReadCall(this, *request);
}

class GrpcDataServer final : public DataServer {
 public:
  GrpcDataServer(const DataServerOptions& options, Executor* executor)
      : service_(executor, options.shard_bytes_max), listen_fd_(options.listen_fd) {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(kMessageBytes);
    builder.SetMaxSendMessageSize(kMessageBytes);
    server_ = builder.BuildAndStart();
    TESSERA_CHECK(server_ != nullptr) << "gRPC does not start";
    fcntl(listen_fd_, F_SETFL, fcntl(listen_fd_, F_GETFL) | O_NONBLOCK);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~GrpcDataServer() override {
    stopping_.Raise();
    acceptor_.join();
    server_->Shutdown(absl::ToChronoTime(absl::Now() + kStopGrace));
  }
  void SetTicketKey(const std::string& key) override {
    service_.SetTicketKey(key);
    keyed_.Raise();
  }

 private:
  void Accept() {
    // A client may have its ticket before we have the key: it waits in the backlog.
    pollfd first[] = {{stopping_.fd(), POLLIN, 0}, {keyed_.fd(), POLLIN, 0}};
    poll(first, 2, -1);
    while (true) {
      pollfd fds[] = {{stopping_.fd(), POLLIN, 0}, {listen_fd_, POLLIN, 0}};
      poll(fds, 2, -1);
      if (fds[0].revents != 0) return;
      const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd >= 0) {
        TuneSocket(fd);
        grpc::AddInsecureChannelFromFd(server_.get(), fd);  // Takes it.
      } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        TESSERA_LOG(WARNING) << "data port: " << std::strerror(errno);
        poll(fds, 1, 50);  // Out of descriptors, say: not a reason to spin.
      }
    }
  }

  Service service_;
  const int listen_fd_;
  std::unique_ptr<grpc::Server> server_;
  Signal stopping_, keyed_;
  std::thread acceptor_;
};

}  // namespace

std::unique_ptr<DataServer> DataServer::Start(const DataServerOptions& options,
                                              Executor* executor) {
  return std::make_unique<GrpcDataServer>(options, executor);
}

}  // namespace tessera::worker::rpc
