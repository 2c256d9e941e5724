// The certificates and tokens of a cluster on disk. `tessera init` and `tessera up` prepare the
// directory before daemons start; `tessera join` uses the same layout for the certificate that the
// coordinator signs. See docs/security.md.
#include "client/cli/state_dir.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/pki.h"
#include "base/secret.h"
#include "base/status.h"
#include "base/token_file.h"
#include "ir/api/worker_certificate.h"

namespace tessera::cli {
namespace {

// Certificates that expire within this time are reissued.
constexpr absl::Duration kRenewBefore = absl::Hours(24 * 30);
constexpr char kAdminToken[] = "admin";
constexpr char kJoinTokens[] = "join-";
constexpr size_t kMaxTokenFileBytes = 8 << 20;

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

bool HasAll(std::vector<std::string> have, const std::vector<std::string>& want) {
  return std::all_of(want.begin(), want.end(), [&](const std::string& name) {
    return std::find(have.begin(), have.end(), name) != have.end();
  });
}

// Returns whether the member's certificate fits its key, is signed by the CA, does not expire soon,
// and has all the names.
bool IsStillValid(const StateDir& dir, const std::string& member, const std::string& ca_pem,
                  const pki::CertificateSpec& spec, absl::Time now) {
  const auto cert = ReadWholeFile(dir.FilePath(member, "cert.pem"));
  const auto key = ReadWholeFile(dir.FilePath(member, "key.pem"));
  if (!cert.ok() || !key.ok() || !pki::CheckPair(*cert, *key).ok()) return false;
  if (!pki::CheckIssuedBy(*cert, ca_pem).ok()) return false;
  const auto info = pki::Describe(*cert);
  return info.ok() && info->not_after - now > kRenewBefore && HasAll(info->dns, spec.dns) &&
         HasAll(info->ips, spec.ips) && HasAll(info->uris, spec.uris);
}

absl::Status PrepareMember(const StateDir& dir, const std::string& member,
                           const pki::CertificateSpec& spec, absl::Time now) {
  TESSERA_RETURN_IF_ERROR(MakeDirectory(dir.path() + "/" + member));
  pki::Credential ca;
  TESSERA_ASSIGN_OR_RETURN(ca.cert_pem, ReadWholeFile(dir.FilePath("ca", "ca.pem")));
  TESSERA_ASSIGN_OR_RETURN(ca.key_pem, ReadWholeFile(dir.FilePath("ca", "ca.key")));
  TESSERA_RETURN_IF_ERROR(
      ReplaceFile(dir.FilePath(member, "ca.pem"), ca.cert_pem, /*is_private=*/false));
  if (IsStillValid(dir, member, ca.cert_pem, spec, now)) return absl::OkStatus();
  TESSERA_ASSIGN_OR_RETURN(const pki::Credential issued, pki::Issue(ca, spec, now));
  TESSERA_RETURN_IF_ERROR(
      ReplaceFile(dir.FilePath(member, "key.pem"), issued.key_pem, /*is_private=*/true));
  return ReplaceFile(dir.FilePath(member, "cert.pem"), issued.cert_pem, /*is_private=*/false);
}

absl::StatusOr<std::vector<TokenRecord>> ReadTokens(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxTokenFileBytes));
  absl::StatusOr<std::vector<TokenRecord>> records = ParseTokenFile(text);
  return records.ok() ? records : Annotate(records.status(), path);
}

}  // namespace

bool IsIpAddress(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

std::string HostName() {
  char name[256] = "localhost";
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string DefaultStateDir() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return absl::StrCat(state, "/tessera");
  const char* home = std::getenv("HOME");
  return absl::StrCat(home == nullptr ? "." : home, "/.local/state/tessera");
}

absl::Status MakeDirectory(const std::string& path) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  // If the directory exists already, for example as the mount point of a volume, only its mode is
  // set.
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return MakeError(ErrorKind::kValueError, absl::StrCat(path, ": ", std::strerror(errno)));
  if (chmod(path.c_str(), 0700) != 0)
    return MakeError(ErrorKind::kValueError, absl::StrCat(path, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

absl::Status StateDir::PrepareCa(absl::Time now) const {
  TESSERA_RETURN_IF_ERROR(MakeDirectory(path_));
  TESSERA_RETURN_IF_ERROR(MakeDirectory(path_ + "/ca"));
  const std::string cert_file = FilePath("ca", "ca.pem"), key_file = FilePath("ca", "ca.key");
  if (Exists(cert_file) || Exists(key_file)) {
    TESSERA_ASSIGN_OR_RETURN(const std::string cert, ReadWholeFile(cert_file));
    TESSERA_ASSIGN_OR_RETURN(const std::string key, ReadWholeFile(key_file));
    return Annotate(pki::CheckPair(cert, key), path_ + "/ca");
  }
  TESSERA_ASSIGN_OR_RETURN(const pki::Credential made, pki::MakeCa("Tessera cluster", now));
  TESSERA_RETURN_IF_ERROR(ReplaceFile(key_file, made.key_pem, /*is_private=*/true));
  return ReplaceFile(cert_file, made.cert_pem, /*is_private=*/false);
}

absl::Status StateDir::PrepareTokens(absl::Time now) const {
  const std::string tokens_file = FilePath("coordinator", "tokens"),
                    admin_token_file = FilePath("client", "token");
  std::vector<TokenRecord> records;
  if (Exists(tokens_file)) {
    TESSERA_ASSIGN_OR_RETURN(records, ReadTokens(tokens_file));
    if (Exists(admin_token_file)) return absl::OkStatus();
  }
  TokenRecord admin;
  // If the text of the first token is lost, a second token is made, which needs another name.
  admin.name = records.empty() ? kAdminToken : absl::StrCat(kAdminToken, "-", RandomHex(4));
  admin.role = "admin";
  admin.tenant = "default";
  admin.created = absl::FromUnixSeconds(absl::ToUnixSeconds(now));
  const std::string text = MakeToken(&admin);
  records.push_back(std::move(admin));
  // Write the file with the hash before the file with the text. If only the text were written, the
  // token would be useless and would never be replaced.
  TESSERA_RETURN_IF_ERROR(ReplaceFile(tokens_file, FormatTokenFile(records), /*is_private=*/true));
  return ReplaceFile(admin_token_file, text + "\n", /*is_private=*/true);
}

std::vector<std::string> StateDir::TlsFlags(const std::string& member) const {
  return {"--tls-cert-file=" + FilePath(member, "cert.pem"),
          "--tls-key-file=" + FilePath(member, "key.pem"),
          "--tls-ca-file=" + FilePath(member, "ca.pem")};
}

absl::Status StateDir::Prepare(const std::vector<std::string>& names, absl::Time now) const {
  TESSERA_RETURN_IF_ERROR(PrepareCa(now));
  pki::CertificateSpec spec;
  spec.common_name = "tessera-coordinator";
  spec.client = false;
  for (const std::string& name : names) (IsIpAddress(name) ? spec.ips : spec.dns).push_back(name);
  TESSERA_RETURN_IF_ERROR(PrepareMember(*this, "coordinator", spec, now));
  TESSERA_RETURN_IF_ERROR(MakeDirectory(path_ + "/client"));
  TESSERA_ASSIGN_OR_RETURN(const std::string ca, ReadWholeFile(FilePath("ca", "ca.pem")));
  TESSERA_RETURN_IF_ERROR(ReplaceFile(FilePath("client", "ca.pem"), ca, /*is_private=*/false));
  return PrepareTokens(now);
}

absl::Status StateDir::PrepareWorker(const std::string& worker, absl::Time now) const {
  TESSERA_ASSIGN_OR_RETURN(const pki::CertificateSpec spec, api::WorkerCertificate(worker));
  for (const char* taken : {"ca", "coordinator", "client"})
    if (worker == taken)
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("worker: '", worker,
                                    "' is the name of another folder there; choose another name"));
  return PrepareMember(*this, worker, spec, now);
}

absl::StatusOr<std::string> StateDir::MakeJoinToken(absl::Time now, absl::Duration lifetime) const {
  const std::string tokens_file = FilePath("coordinator", "tokens");
  TESSERA_ASSIGN_OR_RETURN(std::vector<TokenRecord> records, ReadTokens(tokens_file));
  records.erase(std::remove_if(records.begin(), records.end(),
                               [&](const TokenRecord& r) {
                                 return r.role == "worker" && r.expires <= now &&
                                        r.name.rfind(kJoinTokens, 0) == 0;
                               }),
                records.end());
  TokenRecord join;
  join.name = absl::StrCat(kJoinTokens, RandomHex(4));
  join.role = "worker";
  join.created = absl::FromUnixSeconds(absl::ToUnixSeconds(now));
  join.expires = join.created + absl::Floor(lifetime, absl::Seconds(1));
  TESSERA_ASSIGN_OR_RETURN(const TokenText token, ParseToken(MakeToken(&join)));
  TESSERA_ASSIGN_OR_RETURN(const std::string ca, ReadWholeFile(FilePath("ca", "ca.pem")));
  TESSERA_ASSIGN_OR_RETURN(const std::string fingerprint, pki::Fingerprint(ca));
  records.push_back(std::move(join));
  TESSERA_RETURN_IF_ERROR(ReplaceFile(tokens_file, FormatTokenFile(records), /*is_private=*/true));
  return FormatJoinToken(token, fingerprint);
}

absl::StatusOr<UniqueFd> LockDirectory(const std::string& directory) {
  TESSERA_RETURN_IF_ERROR(MakeDirectory(directory));
  const std::string path = directory + "/lock";
  UniqueFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.ok())
    return MakeError(ErrorKind::kValueError, absl::StrCat(path, ": ", std::strerror(errno)));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return MakeError(
        ErrorKind::kAlreadyExists,
        absl::StrCat(
            directory,
            ": another tessera runs from this folder; end it, or give another folder with --dir"));
  return lock;
}

}  // namespace tessera::cli
