// The contents of workers' certificates. The enrollment service signs them for workers that join,
// and `tessera init` writes them to the state directory.
#include "ir/api/worker_certificate.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/api/identity.h"

namespace tessera::api {
namespace {

constexpr size_t kWorkerNameMax = 63;

}  // namespace

absl::StatusOr<pki::CertificateSpec> WorkerCertificate(const std::string& name) {
  const bool valid_characters = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
  });
  if (name.empty() || name.size() > kWorkerNameMax || name[0] == '.' || !valid_characters)
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("worker: expected a name of 1 to ", kWorkerNameMax,
                                  " letters, digits, '.', '-' and '_', not '.' first"));
  pki::CertificateSpec spec;
  spec.common_name = name;
  spec.dns = {kWorkerServerName};
  spec.uris = {absl::StrCat(kWorkerUriPrefix, name)};
  return spec;
}

}  // namespace tessera::api
