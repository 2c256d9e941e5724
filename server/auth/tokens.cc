// Implements the token store. The gate authenticates each call with it (server/rpc/gate.cc), and
// AdminService creates, lists and revokes tokens in it (server/rpc/token_methods.cc).
#include "server/auth/tokens.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"

namespace tessera::server::auth {
namespace {

using core::Caller;
using core::Role;
using core::TokenInfo;

constexpr size_t kFileBytesMax = 8 << 20;
// A token's time of last use is updated at most this often.
constexpr absl::Duration kLastUseResolution = absl::Minutes(1);

Role RoleOf(const TokenRecord& record) {
  // The file's parser accepts the same names, so the default is never used.
  return core::ParseRole(record.role).value_or(Role::kViewer);
}

TokenInfo InfoOf(const TokenRecord& r) {
  return {r.name, RoleOf(r), r.tenant, r.created, r.expires, r.last_used, r.revoked};
}

absl::Status CheckValid(const TokenRecord& record, absl::Time now) {
  if (record.revoked)
    return MakeError(ErrorKind::kTokenRevoked,
                     absl::StrCat("token '", record.name, "' was revoked; ask for a new one"));
  if (now >= record.expires)
    return MakeError(
        ErrorKind::kTokenExpired,
        absl::StrCat("token '", record.name, "' expired at ",
                     absl::FormatTime(absl::RFC3339_sec, record.expires, absl::UTCTimeZone()),
                     "; ask for a new one"));
  return absl::OkStatus();
}

absl::Status UnknownTokenError() {
  return MakeError(ErrorKind::kTokenUnknown,
                   "this coordinator does not know the token; check that the token is complete and "
                   "was made by this coordinator");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokens>> Tokens::Open(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0)
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("tokens_file: ", path, ": ", std::strerror(errno)));
  if ((info.st_mode & 0077) != 0)
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("tokens_file: others may read or write ", path,
                                  "; expected mode 0600: chmod 600 it"));
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kFileBytesMax));
  absl::StatusOr<std::vector<TokenRecord>> records = ParseTokenFile(text);
  if (!records.ok()) return Annotate(records.status(), path);
  RecordsByName by_name;
  for (TokenRecord& record : *records) by_name[record.name] = std::move(record);
  return std::unique_ptr<Tokens>(new Tokens(path, std::move(by_name)));
}

Tokens::Tokens(std::string path, RecordsByName records)
    : path_(std::move(path)), records_(std::move(records)) {
  for (const auto& [name, record] : records_) names_by_id_[record.id] = name;
}

absl::StatusOr<Caller> Tokens::Authenticate(absl::string_view text, absl::Time now) {
  const absl::StatusOr<TokenText> token = ParseToken(ToStd(text));
  if (!token.ok()) return UnknownTokenError();
  absl::MutexLock lock(&mu_);
  const auto name = names_by_id_.find(token->id);
  if (name == names_by_id_.end()) return UnknownTokenError();
  TokenRecord& record = records_.find(name->second)->second;
  // A caller without the right secret learns nothing about the token, not even that its id exists.
  if (!TokenMatches(record, token->secret)) return UnknownTokenError();
  TESSERA_RETURN_IF_ERROR(CheckValid(record, now));
  if (now - record.last_used >= kLastUseResolution) {
    record.last_used = absl::FromUnixSeconds(absl::ToUnixSeconds(now));
    has_unwritten_changes_ = true;
  }
  const Role role = RoleOf(record);
  return Caller{role == Role::kWorker ? core::kSystemTenant : record.tenant, role, record.name};
}

absl::Status Tokens::Check(const std::string& name, absl::Time now) const {
  absl::MutexLock lock(&mu_);
  const auto found = records_.find(name);
  return found == records_.end() ? UnknownTokenError() : CheckValid(found->second, now);
}

// Checks the request, makes the token with its secret, and writes the file before it returns the
// token. So a token that a client has is still known after a crash. Creation and expiry are whole
// seconds, because the file stores seconds. The records in memory change only once the file has
// been written.
absl::StatusOr<core::MadeToken> Tokens::Create(const core::NewToken& token, absl::Time now) {
  TESSERA_RETURN_IF_ERROR(CheckTokenName("name", token.name));
  TokenRecord record;
  record.name = token.name;
  record.role = std::string(core::RoleName(token.role));
  if (token.role == Role::kWorker) {
    if (!token.tenant.empty())
      return MakeError(ErrorKind::kValueError,
                       "tenant: a worker's token has no tenant; leave the tenant out");
  } else {
    record.tenant = token.tenant.empty() ? core::kDefaultTenant : token.tenant;
    TESSERA_RETURN_IF_ERROR(CheckTokenName("tenant", record.tenant));
    if (record.tenant == core::kSystemTenant)
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("tenant: '", record.tenant, "' is the coordinator's own"));
  }
  if (token.time_to_live < absl::Seconds(1))
    return MakeError(ErrorKind::kValueError, "time_to_live: expected a second or more");
  record.created = absl::FromUnixSeconds(absl::ToUnixSeconds(now));
  // A lifetime of a thousand years or more means that the token never expires.
  if (token.time_to_live < absl::Hours(24 * 365 * 1000))
    record.expires = record.created + absl::Floor(token.time_to_live, absl::Seconds(1));
  absl::MutexLock lock(&mu_);
  if (records_.count(record.name) > 0)
    return MakeError(ErrorKind::kAlreadyExists,
                     absl::StrCat("token '", record.name, "' exists; choose another name"));
  if (records_.size() >= kTokensMax)
    return MakeError(ErrorKind::kLimitExceeded,
                     absl::StrCat("tokens: there are already ", kTokensMax,
                                  " tokens (revoked tokens included), which is the maximum"));
  core::MadeToken made;
  made.text = MakeToken(&record);
  made.info = InfoOf(record);
  RecordsByName next = records_;
  next[record.name] = std::move(record);
  TESSERA_RETURN_IF_ERROR(Persist(std::move(next)));
  return made;
}

std::vector<TokenInfo> Tokens::List() const {
  absl::MutexLock lock(&mu_);
  std::vector<TokenInfo> out;
  for (const auto& [name, record] : records_) out.push_back(InfoOf(record));
  return out;
}

absl::StatusOr<TokenInfo> Tokens::Revoke(const std::string& name) {
  absl::MutexLock lock(&mu_);
  const auto found = records_.find(name);
  if (found == records_.end())
    return MakeError(ErrorKind::kTokenNotFound,
                     absl::StrCat("no token has the name '", name.substr(0, 64), "'"));
  if (!found->second.revoked) {
    // The revocation takes effect at once, even if the file cannot be written. The caller then gets
    // the error and retries.
    found->second.revoked = true;
    has_unwritten_changes_ = true;
  }
  const TokenInfo info = InfoOf(found->second);
  if (has_unwritten_changes_) TESSERA_RETURN_IF_ERROR(Persist(records_));
  return info;
}

absl::Status Tokens::Flush() {
  absl::MutexLock lock(&mu_);
  return has_unwritten_changes_ ? Persist(records_) : absl::OkStatus();
}

absl::Status Tokens::Persist(RecordsByName records) {
  std::vector<TokenRecord> list;
  for (const auto& [name, record] : records) list.push_back(record);
  if (const absl::Status written = ReplaceFile(path_, FormatTokenFile(list), /*is_private=*/true);
      !written.ok())
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat("the tokens cannot be stored: ", written.message()));
  records_ = std::move(records);
  names_by_id_.clear();
  for (const auto& [name, record] : records_) names_by_id_[record.id] = name;
  has_unwritten_changes_ = false;
  return absl::OkStatus();
}

}  // namespace tessera::server::auth
