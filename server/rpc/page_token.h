// Page tokens of List methods. A token holds the last key of the previous page, and a hash of this
// key and of the list (its scope). So a token is valid only for the same list of the same tenant.
// Tokens contain no secrets. The functions are thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::server::rpc {

// Returns the token of the page that begins after the key `after`. `scope` identifies the list:
// method, tenant and filter.
std::string PageToken(std::string_view scope, std::string_view after);
// Returns the key in the token, after which the page begins. Returns VALUE_ERROR if the token
// belongs to another list or does not parse.
absl::StatusOr<std::string> KeyOfPageToken(std::string_view scope, std::string_view token);
// Returns the error for a token that this list has not returned.
absl::Status PageTokenError();
// Returns VALUE_ERROR if `size` is negative.
absl::Status CheckPageSize(int32_t size);

}  // namespace tessera::server::rpc
