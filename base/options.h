// The options of Tessera's programs: one table (base/options.def), read from the environment and
// the command line, which takes precedence. A plain value: passed as an argument, never global.
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
#define TESSERA_INT_OPTION(name, default_value, min, max, unit, help) int64_t name = default_value;
#define TESSERA_BOOL_OPTION(name, default_value, help) bool name = default_value;
#define TESSERA_TEXT_OPTION(name, default_value, help) std::string name = default_value;
#include "base/options.def"
#undef TESSERA_INT_OPTION
#undef TESSERA_BOOL_OPTION
#undef TESSERA_TEXT_OPTION
};

// "512", "80GiB": with KiB, MiB or GiB, or without a unit. nullopt if it does not parse or
// overflows.
std::optional<int64_t> ParseBytes(std::string_view text);

// Returns the value of an environment variable; nullopt if it is not set.
using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;
EnvLookup ProcessEnv();

struct ParsedOptions {
  Options options;
  bool help = false;              // --help was given: print OptionsHelp() and stop.
  bool version = false;           // --version was given: print it and stop.
  std::vector<std::string> rest;  // Arguments that are not options of the table, in order.
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
