// Reads and writes the attribute `precision`. The default precision is written by leaving the
// attribute out, so that equal programs have one form and one hash.
#include "ir/precision.h"

#include <algorithm>
#include <array>
#include <string>

namespace tessera::ir {
namespace {
constexpr std::string_view kAttribute = "precision";
constexpr std::array<std::string_view, 3> kNames = {"default", "high", "highest"};
}  // namespace

std::string_view PrecisionName(Precision precision) {
  return kNames[static_cast<size_t>(precision)];
}

std::optional<Precision> FindPrecision(std::string_view name) {
  const auto* const found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Precision>(found - kNames.begin());
}

Precision PrecisionOf(const Attrs& attrs) {
  if (!attrs.Has(kAttribute)) return Precision::kDefault;
  return FindPrecision(attrs.Str(kAttribute)).value_or(Precision::kDefault);
}

void SetPrecision(Precision precision, Attrs* attrs) {
  if (precision == Precision::kDefault) {
    attrs->Erase(kAttribute);
  } else {
    attrs->Set(kAttribute, std::string(PrecisionName(precision)));
  }
}

}  // namespace tessera::ir
