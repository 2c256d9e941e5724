// Fuzzes ParseOptions with arbitrary command lines and environments: accepted numbers must be in
// their ranges. The input has "NAME=value" lines, then "--", then one argument per line.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/options.h"
#include "base/status.h"

namespace tessera {
namespace {

// Splits the input, parses it, and checks every integer option against the range in its row. The
// ranges come from the table itself, so new options are checked without a change here.
void OneInput(absl::string_view text) {
  std::map<std::string, std::string> variables;
  std::vector<std::string> args;
  bool in_args = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (in_args) {
      args.emplace_back(line);
    } else if (line == "--") {
      in_args = true;
    } else {
      const std::pair<absl::string_view, absl::string_view> pair =
          absl::StrSplit(line, absl::MaxSplits('=', 1));
      variables.emplace(pair.first, pair.second);
    }
  }
  const EnvLookup env = [&](const std::string& name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  };
  const absl::StatusOr<ParsedOptions> parsed = ParseOptions(args, env);
  if (!parsed.ok()) return;
  // Every number that was accepted must be in its range.
  const Options& options = parsed->options;
#define TESSERA_INT_OPTION(name, initial, min, max, unit, help) \
  TESSERA_CHECK(options.name >= (min) && options.name <= (max)) << #name;
#define TESSERA_BOOL_OPTION(name, initial, help)
#define TESSERA_TEXT_OPTION(name, initial, help)
#include "base/options.def"
#undef TESSERA_INT_OPTION
#undef TESSERA_BOOL_OPTION
#undef TESSERA_TEXT_OPTION
  static_cast<void>(ParseLogLevel(options.log_level));
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::OneInput({reinterpret_cast<const char*>(data), size});
  return 0;
}
