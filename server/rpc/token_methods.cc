// Creates, lists and revokes tokens for AdminService. The handlers in admin_service.cc call these
// functions, and the token store (server/auth) keeps the tokens.
#include "server/rpc/token_methods.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/serial/status.h"
#include "server/rpc/page_token.h"

namespace tessera::server::rpc {
namespace {

constexpr int kPageDefault = 100;
constexpr int kPageMax = 1000;
// The scope of the page tokens of ListTokens. The scope has no tenant, because every caller who may
// call ListTokens gets the same list.
constexpr char kListScope[] = "ListTokensRequest";

absl::StatusOr<core::TokenStore*> TokenStoreOf(Gate& gate) {
  if (gate.tokens() != nullptr) return gate.tokens();
  return MakeError(ErrorKind::kTokensDisabled,
                   "the coordinator runs without tokens; start it with --tokens-file");
}

void SetTime(absl::Time time, google::protobuf::Timestamp* out) {
  out->set_seconds(absl::ToUnixSeconds(time));
}

v1::Token ToProto(const core::TokenInfo& info) {
  v1::Token out;
  out.set_name(info.name);
  out.set_role(std::string(core::RoleName(info.role)));
  out.set_tenant(info.tenant);
  SetTime(info.created, out.mutable_create_time());
  if (info.expires != absl::InfiniteFuture()) SetTime(info.expires, out.mutable_expire_time());
  if (info.last_used != absl::InfinitePast()) SetTime(info.last_used, out.mutable_last_use_time());
  out.set_revoked(info.revoked);
  return out;
}

}  // namespace

absl::Status CreateToken(Gate& gate, const v1::CreateTokenRequest& request,
                         v1::CreateTokenResponse* response) {
  TESSERA_ASSIGN_OR_RETURN(core::TokenStore* const tokens, TokenStoreOf(gate));
  core::NewToken token;
  token.name = request.name();
  TESSERA_ASSIGN_OR_RETURN(token.role, core::ParseRole(request.role()));
  token.tenant = request.tenant();
  if (request.has_time_to_live())
    token.time_to_live = ir::serial::FromProto(request.time_to_live());
  TESSERA_ASSIGN_OR_RETURN(const core::MadeToken made, tokens->Create(token, gate.clock().Wall()));
  TESSERA_LOG(INFO) << "token made" << Field("token", made.info.name)
                    << Field("role", ToStd(core::RoleName(made.info.role)))
                    << Field("tenant", made.info.tenant);
  response->set_text(made.text);
  *response->mutable_token() = ToProto(made.info);
  return absl::OkStatus();
}

absl::Status ListTokens(Gate& gate, const v1::ListTokensRequest& request,
                        v1::ListTokensResponse* response) {
  TESSERA_ASSIGN_OR_RETURN(core::TokenStore* const tokens, TokenStoreOf(gate));
  TESSERA_RETURN_IF_ERROR(CheckPageSize(request.page_size()));
  const int size =
      request.page_size() == 0 ? kPageDefault : std::min(request.page_size(), kPageMax);
  const std::vector<core::TokenInfo> all = tokens->List();
  auto next = all.begin();
  if (!request.page_token().empty()) {
    // The page token holds the last name of the previous page. The list is searched for the next
    // greater name, because a token of that name may be gone.
    TESSERA_ASSIGN_OR_RETURN(const std::string after,
                             KeyOfPageToken(kListScope, request.page_token()));
    next = std::upper_bound(
        all.begin(), all.end(), after,
        [](const std::string& name, const core::TokenInfo& info) { return name < info.name; });
  }
  for (; next != all.end() && response->tokens_size() < size; ++next)
    *response->add_tokens() = ToProto(*next);
  if (next != all.end())
    response->set_next_page_token(PageToken(kListScope, std::prev(next)->name));
  return absl::OkStatus();
}

absl::Status RevokeToken(Gate& gate, const v1::RevokeTokenRequest& request, v1::Token* response) {
  TESSERA_ASSIGN_OR_RETURN(core::TokenStore* const tokens, TokenStoreOf(gate));
  const absl::StatusOr<core::TokenInfo> info = tokens->Revoke(request.name());
  // The token is revoked even if writing the file failed, so its calls are cancelled in any case.
  gate.CancelCallsWithInvalidTokens();
  TESSERA_RETURN_IF_ERROR(info);
  TESSERA_LOG(INFO) << "token revoked" << Field("token", info->name);
  *response = ToProto(*info);
  return absl::OkStatus();
}

}  // namespace tessera::server::rpc
