// The JSON calls of the commands, on top of client/remote/json_client.h. Most commands come here by
// way of Context::Call; doctor and up use a Connection of their own for another address.
#include "client/cli/connection.h"

#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/secret.h"
#include "base/status.h"
#include "client/cli/commands.h"

namespace tessera::cli {

absl::StatusOr<Json> Connection::Call(const std::string& method, const Json& request,
                                      absl::Duration timeout,
                                      const std::function<bool()>& give_up) {
  if (client_ == nullptr) {
    if (const absl::Status address_status = CheckAddress(address_); !address_status.ok())
      return WithExitCode(Annotate(address_status, "the coordinator's address"), kExitUsage);
    TESSERA_ASSIGN_OR_RETURN(client_, remote::JsonClient::Make(address_, options_));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string response,
                           client_->Call(method, request.dump(), timeout, give_up));
  return ParseJson(response, method);
}

// The id is random. If two commands that start at the same time had equal ids, the coordinator
// would take the second call for a retry and answer it with the response to the first.
std::string NewRequestId() { return absl::StrCat("cli-", RandomHex(16)); }

}  // namespace tessera::cli
