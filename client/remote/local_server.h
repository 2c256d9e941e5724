// A gRPC server for tests that listens on a free port, and a channel to that server.
#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "grpcpp/grpcpp.h"

namespace tessera::remote {

class LocalServer {
 public:
  // `service` must outlive this object.
  explicit LocalServer(grpc::Service* service) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                   grpc::InsecureChannelCredentials());
  }
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;
  // Cuts off the calls that are still open.
  ~LocalServer() { server_->Shutdown(std::chrono::system_clock::now()); }

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace tessera::remote
