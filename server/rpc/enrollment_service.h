// Certificates for workers that join (proto/tessera/v1/enroll.proto).
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/pki.h"
#include "server/rpc/gate.h"
#include "tessera/v1/enroll.grpc.pb.h"

namespace tessera::server::rpc {

// Tells from which host a worker of the name is connected; nothing: none is.
using ThenHost = std::function<void(const std::optional<std::string>& host)>;
using HostOf = std::function<void(const std::string& worker, ThenHost then)>;

// Thread-safe.  The gate and the clock outlive it.
class EnrollmentService final : public v1::EnrollmentService::CallbackService {
 public:
  // `authority` without a key: nobody can join, and with neither nobody learns whom to trust.
  EnrollmentService(pki::Credential authority, const Clock* clock, Gate* gate, HostOf host_of)
      : authority_(std::move(authority)),
        clock_(clock),
        gate_(gate),
        host_of_(std::move(host_of)) {}

  grpc::ServerUnaryReactor* GetAuthority(grpc::CallbackServerContext* context,
                                         const v1::GetAuthorityRequest* request,
                                         v1::Authority* response) override;
  grpc::ServerUnaryReactor* Enroll(grpc::CallbackServerContext* context,
                                   const v1::EnrollRequest* request,
                                   v1::EnrollResponse* response) override;

 private:
  absl::Status Sign(const v1::EnrollRequest& request, v1::EnrollResponse* response) const;

  const pki::Credential authority_;
  const Clock* const clock_;
  Gate* const gate_;
  const HostOf host_of_;
};

// Reads and checks the two files; empty paths give empty texts.
absl::StatusOr<pki::Credential> ReadAuthority(const std::string& ca_file,
                                              const std::string& ca_key_file);

}  // namespace tessera::server::rpc
