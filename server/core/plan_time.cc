// The planner prints times and rates with these functions. The coordinator adds the time of the
// last run to an explanation that it returns, because the plan was explained before that run.
#include "server/core/plan_time.h"

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace tessera::server::core {
namespace {

struct Scale {
  double at_least;
  const char* prefix;
};

template <size_t n>
std::string Scaled(double value, const Scale (&scales)[n], std::string_view unit) {
  const Scale* scale = scales;
  while (scale + 1 < std::end(scales) && value < scale->at_least) ++scale;
  return absl::StrCat(absl::StrFormat("%.3g", value / scale->at_least), " ", scale->prefix,
                      ToAbsl(unit));
}

}  // namespace

std::string SecondsText(double seconds) {
  constexpr Scale kScales[] = {{1, ""}, {1e-3, "m"}, {1e-6, "u"}, {1e-9, "n"}};
  return seconds <= 0 ? "0 s" : Scaled(seconds, kScales, "s");
}

std::string RateText(double per_second, std::string_view unit) {
  constexpr Scale kScales[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};
  return Scaled(per_second, kScales, unit);
}

namespace {

// The largest JSON text that is parsed and written again. Parsing takes some ten times as much
// memory.
constexpr size_t kJsonBytesMax = size_t{64} << 20;
// The deepest nesting of a JSON text that is written again. The planner's JSON is nested about five
// deep. The bound protects the stack, because the JSON writer recurses and the text may come from a
// jailed process that a client has taken over.
constexpr int kJsonDepthMax = 32;

// Returns whether no value is nested deeper than kJsonDepthMax. Does not recurse.
bool IsShallow(const nlohmann::json& root) {
  std::vector<std::pair<const nlohmann::json*, int>> left = {{&root, 1}};
  while (!left.empty()) {
    const auto [value, depth] = left.back();
    left.pop_back();
    if (!value->is_structured()) continue;
    if (depth > kJsonDepthMax) return false;
    for (const nlohmann::json& inner : *value) left.emplace_back(&inner, depth + 1);
  }
  return true;
}

void AddLastRunToJson(double seconds, std::string* explain_json) {
  if (explain_json->empty() || explain_json->size() > kJsonBytesMax) return;
  nlohmann::json object =
      nlohmann::json::parse(*explain_json, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !IsShallow(object)) return;
  object["last_run_seconds"] = seconds;
  *explain_json =
      object.dump(1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void AddLastRun(CompileReply* reply) {
  if (reply->last_run <= absl::ZeroDuration()) return;
  const double seconds = absl::ToDoubleSeconds(reply->last_run);
  if (!reply->explain_text.empty())
    absl::StrAppend(&reply->explain_text, "predicted ", SecondsText(reply->predicted_seconds),
                    ", last run ", SecondsText(seconds), "\n");
  AddLastRunToJson(seconds, &reply->explain_json);
}

}  // namespace tessera::server::core
