// Reads the coordinator's responses, which are JSON by protobuf's mapping, and formats values as
// human-readable text.
//
// The readers never fail: an absent field reads as empty or 0. They return strings without control
// characters. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/plan/text.h"
#include "nlohmann/json.hpp"

namespace tessera::cli {

using Json = nlohmann::ordered_json;

absl::StatusOr<Json> ParseJson(const std::string& text, const std::string& where);

using internal::BytesText;
using internal::CountText;
using internal::DurationText;
using internal::IntsText;
using internal::ReplaceControlChars;

// Return the field `key` of the object.
std::string TextOf(const Json& object, const std::string& key);
int64_t IntOf(const Json& object, const std::string& key);  // a number, or an int64 in a string
double NumberOf(const Json& object, const std::string& key);
bool FlagOf(const Json& object, const std::string& key);
const Json& ChildOf(const Json& object, std::string_view key);  // null if absent
std::vector<int64_t> IntsOf(const Json& object, const std::string& key);
// Returns the field "state" without its prefix: "READY" for WORKER_STATE_READY.
std::string StateOf(const Json& object);
// Read durations such as "1.5s" and times such as "2026-01-02T03:04:05Z".
std::optional<absl::Duration> DurationOf(const Json& object, const std::string& key);
std::optional<absl::Time> TimeOf(const Json& object, const std::string& key);

// Convert between absl::Status and google.rpc.Status. ErrorDocument returns {"error": ...};
// StatusOf reads the field `error` of an operation.
Json ErrorDocument(const absl::Status& status);
absl::Status StatusOf(const Json& error);

// Returns the JSON text of a google.protobuf.Duration, such as "1.500000000s".
std::string DurationField(absl::Duration duration);

}  // namespace tessera::cli
