// A fake coordinator for tests, which serves ExecutePrograms as the test says.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/testing/status_matchers.h"
#include "client/remote/executions.h"
#include "client/remote/local_server.h"
#include "grpcpp/grpcpp.h"

namespace tessera::remote {

using ServerStream = grpc::ServerReaderWriter<v1::ExecuteProgramsEvent, v1::ExecuteProgramsRequest>;

inline constexpr absl::Duration kLimit = absl::Seconds(20);

class FakeCoordinator final : public v1::ProgramService::Service {
 public:
  using Serve = std::function<grpc::Status(ServerStream*)>;

  // Sets the function that serves all streams that open from now on.
  void SetServe(Serve serve) ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    serve_ = std::move(serve);
  }
  int num_streams() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return num_streams_;
  }
  const std::shared_ptr<grpc::Channel>& channel() const { return server_.channel(); }
  std::unique_ptr<ExecutionClient> MakeClient() {
    return std::make_unique<ExecutionClient>(
        stub_.get(), [](grpc::ClientContext* context, absl::Duration timeout) {
          context->set_deadline(WallDeadline(std::min(timeout, kLimit)));
        });
  }

  grpc::Status ExecutePrograms(grpc::ServerContext*, ServerStream* stream) override {
    Serve serve;
    {
      absl::MutexLock lock(&mu_);
      ++num_streams_;
      serve = serve_;
    }
    return serve(stream);
  }

 private:
  mutable absl::Mutex mu_;
  Serve serve_ ABSL_GUARDED_BY(mu_);
  int num_streams_ ABSL_GUARDED_BY(mu_) = 0;
  LocalServer server_{this};
  const std::unique_ptr<v1::ProgramService::Stub> stub_ =
      v1::ProgramService::NewStub(server_.channel());
};

// Accepts the run, without results.
inline void Accept(ServerStream* stream, uint64_t number, uint64_t operation) {
  v1::ExecuteProgramsEvent event;
  event.set_number(number);
  event.mutable_accepted()->set_operation(operation);
  EXPECT_TRUE(stream->Write(event));
}
// Completes the run, with the inline result `array`.
inline void End(ServerStream* stream, uint64_t number, uint64_t array) {
  v1::ExecuteProgramsEvent event;
  event.set_number(number);
  event.mutable_ended()->mutable_operation()->set_state(v1::OPERATION_STATE_DONE);
  v1::InlineResult* const result = event.mutable_ended()->add_results();
  result->set_array(array);
  result->mutable_value()->set_dtype("u8");
  result->mutable_value()->add_shape(1);
  result->mutable_value()->set_data(std::string(1, static_cast<char>(array)));
  EXPECT_TRUE(stream->Write(event));
}
// Accepts every request and ends its run at once. The operation and the result have the id of the
// executable. The client must await the end of the run before it closes the stream: otherwise the
// end cannot be written, and the test fails.
inline grpc::Status ServeAll(ServerStream* stream) {
  v1::ExecuteProgramsRequest request;
  while (stream->Read(&request)) {
    Accept(stream, request.number(), request.run().executable());
    End(stream, request.number(), request.run().executable());
  }
  return grpc::Status::OK;
}
// Returns a request to run `executable`.
inline v1::ExecuteProgramRequest RequestFor(uint64_t executable) {
  v1::ExecuteProgramRequest request;
  request.set_executable(executable);
  return request;
}

}  // namespace tessera::remote
