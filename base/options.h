// The options of Tessera's programs: one table (base/options.def), read from the environment and
// the command line, the latter winning. A plain value: copy it freely, pass it in, keep no global.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

struct Options {
#define TESSERA_INT_OPTION(name, initial, min, max, unit, help) int64_t name = initial;
#define TESSERA_BOOL_OPTION(name, initial, help) bool name = initial;
#define TESSERA_TEXT_OPTION(name, initial, help) std::string name = initial;
#include "base/options.def"
#undef TESSERA_INT_OPTION
#undef TESSERA_BOOL_OPTION
#undef TESSERA_TEXT_OPTION
};

// "512", "80GiB": with KiB, MiB or GiB, or without a unit.  std::nullopt if it does not parse
// or is beyond int64.
std::optional<int64_t> ParseBytes(std::string_view text);

// Looks a variable up; std::nullopt when it is not set.
using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;
EnvLookup ProcessEnv();

struct ParsedOptions {
  Options options;
  bool help = false;              // --help was given: print OptionsHelp() and stop.
  bool version = false;           // --version was given: print it and stop.
  std::vector<std::string> rest;  // Arguments that no row of the table names, in order.
};

// Reads the environment, then `args` (without the program's name): --queue-bound=5,
// --queue-bound 5, --queue_bound=5; a bool without a value is true. Arguments after "--" are left
// in `rest`.
absl::StatusOr<ParsedOptions> ParseOptions(const std::vector<std::string>& args,
                                           const EnvLookup& env);

// Sets one option by its name in the table.
absl::Status SetOption(Options& options, std::string_view name, std::string_view value);

// The flags that make a child process with this environment have the same options.
std::vector<std::string> FlagsFor(const Options& options, const EnvLookup& env);

// Every flag of the table, "--queue-bound", in its order.
std::vector<std::string> OptionFlags();

// The table, for --help and for docs/env.md.
std::string OptionsHelp();
std::string OptionsMarkdown();

}  // namespace tessera
