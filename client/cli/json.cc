#include "client/cli/json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
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

std::string ReplaceControlChars(const std::string& text) {
  std::string out = text;
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) c = '?';
  }
  return out;
}

const Json& ChildOf(const Json& object, const std::string& key) {
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

std::string BytesText(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%.0f B", bytes)
                   : absl::StrFormat("%.1f %s", bytes, kUnits[unit]);
}

std::string DurationText(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return "for ever";
  const double seconds = absl::ToDoubleSeconds(duration);
  if (seconds < 0) return "0 s";
  if (seconds < 1e-3) return absl::StrFormat("%.0f us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.3g ms", seconds * 1e3);
  if (seconds < 60) return absl::StrFormat("%.3g s", seconds);
  const auto whole = static_cast<int64_t>(seconds);
  if (whole < 3600) return absl::StrFormat("%d m %02d s", whole / 60, whole % 60);
  if (whole < 86400) return absl::StrFormat("%d h %02d m", whole / 3600, whole / 60 % 60);
  return absl::StrFormat("%d d %d h", whole / 86400, whole / 3600 % 24);
}

std::string CountText(int64_t count) {
  std::string digits = absl::StrCat(std::abs(count));
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return (count < 0 ? "-" : "") + digits;
}

std::string JoinInts(const std::vector<int64_t>& ints) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < ints.size();) {
    size_t end = i + 1;
    while (end < ints.size() && ints[end] == ints[end - 1] + 1) ++end;
    runs.push_back(end - i == 1 ? absl::StrCat(ints[i])
                                : absl::StrCat(ints[i], end - i == 2 ? "," : "-", ints[end - 1]));
    i = end;
  }
  return absl::StrJoin(runs, ",");
}

std::string DurationField(absl::Duration duration) {
  return absl::StrFormat("%.9fs", std::max(0.0, absl::ToDoubleSeconds(duration)));
}

}  // namespace tessera::cli
