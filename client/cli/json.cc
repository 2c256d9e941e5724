// Readers of the coordinator's JSON responses, which all commands use. A response may come from an
// older or newer coordinator, so a field that is missing or of another type is no error.
#include "client/cli/json.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace tessera::cli {
namespace {

constexpr char kErrorInfo[] = "type.googleapis.com/google.rpc.ErrorInfo";
constexpr char kDomain[] = "tessera.dev";

}  // namespace

absl::StatusOr<Json> ParseJson(const std::string& text, const std::string& where) {
  Json json = Json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return MakeError(ErrorKind::kValueError, absl::StrCat(where, ": this is not JSON"));
  }
  return json;
}

const Json& ChildOf(const Json& object, std::string_view key) {
  static const auto* const none = new Json();
  if (!object.is_object()) return *none;
  const auto it = object.find(key);
  return it == object.end() ? *none : *it;
}

std::string TextOf(const Json& object, const std::string& key) {
  const Json& child = ChildOf(object, key);
  return child.is_string() ? ReplaceControlChars(child.get<std::string>()) : "";
}

int64_t IntOf(const Json& object, const std::string& key) {
  const Json& child = ChildOf(object, key);
  if (child.is_number()) return child.get<int64_t>();
  int64_t value = 0;
  if (child.is_string() && absl::SimpleAtoi(child.get<std::string>(), &value)) return value;
  return 0;
}

double NumberOf(const Json& object, const std::string& key) {
  const Json& child = ChildOf(object, key);
  return child.is_number() ? child.get<double>() : static_cast<double>(IntOf(object, key));
}

bool FlagOf(const Json& object, const std::string& key) {
  const Json& child = ChildOf(object, key);
  return child.is_boolean() && child.get<bool>();
}

std::vector<int64_t> IntsOf(const Json& object, const std::string& key) {
  std::vector<int64_t> out;
  for (const Json& item : ChildOf(object, key)) out.push_back(IntOf(Json{{"v", item}}, "v"));
  return out;
}

std::string StateOf(const Json& object) {
  constexpr std::string_view kEndOfPrefix = "_STATE_";
  const std::string state = TextOf(object, "state");
  const size_t at = state.find(kEndOfPrefix);
  return at == std::string::npos ? state : state.substr(at + kEndOfPrefix.size());
}

std::optional<absl::Duration> DurationOf(const Json& object, const std::string& key) {
  const Json& child = ChildOf(object, key);
  absl::Duration value;
  if (!child.is_string() || !absl::ParseDuration(child.get<std::string>(), &value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<absl::Time> TimeOf(const Json& object, const std::string& key) {
  const Json& child = ChildOf(object, key);
  absl::Time value;
  std::string ignored;
  if (!child.is_string() ||
      !absl::ParseTime(absl::RFC3339_full, child.get<std::string>(), &value, &ignored)) {
    return std::nullopt;
  }
  return value;
}

Json ErrorDocument(const absl::Status& status) {
  Json error = {{"code", static_cast<int>(status.code())},
                {"message", std::string(status.message())}};
  error["details"] = Json::array();
  if (const std::string_view reason = ReasonOf(status); !reason.empty()) {
    error["details"].push_back(
        {{"@type", kErrorInfo}, {"reason", std::string(reason)}, {"domain", kDomain}});
  }
  return Json{{"error", std::move(error)}};
}

absl::Status StatusOf(const Json& error) {
  const int64_t code = IntOf(error, "code");
  if (!error.is_object() || code == 0) return absl::OkStatus();
  absl::Status status(static_cast<absl::StatusCode>(code), TextOf(error, "message"));
  for (const Json& detail : ChildOf(error, "details")) {
    if (const std::string reason = TextOf(detail, "reason"); !reason.empty()) {
      status.SetPayload(kReasonPayload, absl::Cord(reason));
    }
  }
  return status;
}

std::string DurationField(absl::Duration duration) {
  return absl::StrFormat("%.9fs", std::max(0.0, absl::ToDoubleSeconds(duration)));
}

}  // namespace tessera::cli
