// The methods of AdminService that manage the gate's tokens.  Thread-safe.  They return
// TOKENS_DISABLED if the gate has no token store.
#pragma once
#include "absl/status/status.h"
#include "server/rpc/gate.h"
#include "tessera/v1/admin.pb.h"

namespace tessera::server::rpc {

absl::Status CreateToken(Gate& gate, const v1::CreateTokenRequest& request,
                         v1::CreateTokenResponse* response);
absl::Status ListTokens(Gate& gate, const v1::ListTokensRequest& request,
                        v1::ListTokensResponse* response);
// Revokes a token. The token's open calls are cancelled before the function returns.
absl::Status RevokeToken(Gate& gate, const v1::RevokeTokenRequest& request, v1::Token* response);

}  // namespace tessera::server::rpc
