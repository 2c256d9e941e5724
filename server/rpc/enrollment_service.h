// Signs certificates for workers that join (proto/tessera/v1/enroll.proto).
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

// FindHostFn finds a worker by its name. It calls `then` with the host from which the worker is
// connected, or with nullopt if the worker is not connected.
using HostCallback = std::function<void(const std::optional<std::string>& host)>;
using FindHostFn = std::function<void(const std::string& worker, HostCallback then)>;

// Thread-safe.  The gate and the clock outlive the service.
class EnrollmentService final : public v1::EnrollmentService::CallbackService {
 public:
  // If `ca` has no key, workers cannot enrol. If it has no certificate either, clients cannot get
  // the CA's certificate.
  EnrollmentService(pki::Credential ca, const Clock* clock, Gate* gate, FindHostFn find_host)
      : ca_(std::move(ca)), clock_(clock), gate_(gate), find_host_(std::move(find_host)) {}

  grpc::ServerUnaryReactor* GetAuthority(grpc::CallbackServerContext* context,
                                         const v1::GetAuthorityRequest* request,
                                         v1::Authority* response) override;
  grpc::ServerUnaryReactor* Enroll(grpc::CallbackServerContext* context,
                                   const v1::EnrollRequest* request,
                                   v1::EnrollResponse* response) override;

 private:
  absl::Status Sign(const v1::EnrollRequest& request, v1::EnrollResponse* response) const;

  const pki::Credential ca_;
  const Clock* const clock_;
  Gate* const gate_;
  const FindHostFn find_host_;
};

// Reads the CA's certificate and its key, and checks that they belong together. An empty path
// stands for an absent file.
absl::StatusOr<pki::Credential> ReadCa(const std::string& ca_file, const std::string& ca_key_file);

}  // namespace tessera::server::rpc
