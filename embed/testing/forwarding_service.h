// A service that passes every call on to another one. Tests derive from it and change some calls.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/api/service.h"

namespace tessera::testing {

class ForwardingService : public api::Service {
 public:
  explicit ForwardingService(std::shared_ptr<api::Service> real) : real_(std::move(real)) {}

  absl::StatusOr<std::vector<api::Device>> ListDevices() override { return real_->ListDevices(); }
  absl::StatusOr<api::CompileReply> Compile(const api::CompileRequest& request) override {
    return real_->Compile(request);
  }
  absl::StatusOr<api::ExecuteReply> Execute(const api::ExecuteRequest& request) override {
    return real_->Execute(request);
  }
  absl::StatusOr<uint64_t> Put(const ir::Array& value, const api::Placement& placement,
                               absl::Duration timeout) override {
    return real_->Put(value, placement, timeout);
  }
  absl::StatusOr<ir::Array> Get(uint64_t array, absl::Duration timeout) override {
    return real_->Get(array, timeout);
  }
  absl::StatusOr<ir::Array> GetShard(uint64_t array, int ordinal, absl::Duration timeout) override {
    return real_->GetShard(array, ordinal, timeout);
  }
  absl::StatusOr<api::ArraySpec> Describe(uint64_t array) override {
    return real_->Describe(array);
  }
  absl::StatusOr<api::PendingArrays> Reshard(uint64_t array,
                                             const api::Placement& placement) override {
    return real_->Reshard(array, placement);
  }
  absl::StatusOr<uint64_t> Save(const std::string& path,
                                const std::vector<api::ArrayToSave>& arrays,
                                bool overwrite) override {
    return real_->Save(path, arrays, overwrite);
  }
  absl::StatusOr<api::PendingArrays> Load(const std::string& path,
                                          const std::vector<api::ArrayToLoad>& arrays) override {
    return real_->Load(path, arrays);
  }
  absl::StatusOr<std::vector<api::FileArrayInfo>> DescribeFile(const std::string& path) override {
    return real_->DescribeFile(path);
  }
  absl::Status Delete(absl::Span<const uint64_t> arrays) override { return real_->Delete(arrays); }
  absl::StatusOr<api::Operation> GetOperation(uint64_t operation) override {
    return real_->GetOperation(operation);
  }
  absl::StatusOr<api::Operation> WaitOperation(uint64_t operation,
                                               absl::Duration timeout) override {
    return real_->WaitOperation(operation, timeout);
  }
  absl::Status Cancel(uint64_t operation) override { return real_->Cancel(operation); }

 protected:
  const std::shared_ptr<api::Service> real_;
};

}  // namespace tessera::testing
