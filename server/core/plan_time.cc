#include "server/core/plan_time.h"

#include <iterator>

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

void AddLastRun(double predicted_seconds, absl::Duration last_run, std::string* explain_text,
                std::string* explain_json) {
  const double seconds = absl::ToDoubleSeconds(last_run);
  if (!explain_text->empty())
    absl::StrAppend(explain_text, "predicted ", SecondsText(predicted_seconds), ", last run ",
                    SecondsText(seconds), "\n");
  const size_t end = explain_json->rfind('}');
  if (end == std::string::npos || end == 0) return;
  const bool is_first = (*explain_json)[explain_json->find_last_not_of(" \n", end - 1)] == '{';
  explain_json->insert(end, absl::StrCat(is_first ? "" : ",", "\"last_run_seconds\": ", seconds));
}

}  // namespace tessera::server::core
