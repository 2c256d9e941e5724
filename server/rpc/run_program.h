// RunProgram: compile, upload, run and download in one call, with JSON values for small things.
#pragma once
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "google/protobuf/struct.pb.h"
#include "ir/array.h"
#include "server/coordinator.h"
#include "tessera/v1/program_service.pb.h"

namespace tessera::server::rpc {

// Nested lists, row-major, to an array of that type and back.  Numbers for numbers, true and false
// for bool; "NaN", "Infinity", "-Infinity" and, for 64-bit integers, decimal texts.  VALUE_ERROR
// says where in the lists the value does not fit.  f16, f8 and complex dtypes are NOT_IMPLEMENTED,
// lists of more than 2^22 values LIMIT_EXCEEDED.
absl::StatusOr<ir::Array> ArrayFromJson(const google::protobuf::Value& value, ir::DType dtype,
                                        const ir::Dims& shape);
absl::StatusOr<google::protobuf::Value> JsonFromArray(const ir::Array& array);

// Carries out one request; blocks.
absl::Status RunOne(Coordinator& coordinator, const v1::RunProgramRequest& request,
                    v1::RunProgramResponse* response, absl::Duration timeout);

// A few threads for RunOne and a bounded queue, beyond which QUEUE_FULL is the answer. Thread-safe;
// the coordinator outlives it; the destructor answers what waits with SERVER_STOPPING.
class RunPool {
 public:
  explicit RunPool(Coordinator* coordinator);
  ~RunPool();
  // request and response live until `done`.
  void Run(const v1::RunProgramRequest* request, v1::RunProgramResponse* response,
           absl::Duration timeout, std::function<void(absl::Status)> done) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Job {
    const v1::RunProgramRequest* request;
    v1::RunProgramResponse* response;
    absl::Time until;
    std::function<void(absl::Status)> done;
  };
  void Work() ABSL_LOCKS_EXCLUDED(mu_);

  Coordinator* const coordinator_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace tessera::server::rpc
