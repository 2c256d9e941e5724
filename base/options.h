// The options of Tessera's programs. One table (base/options.def) defines them. The values come
// from the environment and from the command line, which takes precedence. Options is a plain value,
// which is passed as an argument and is never global.
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

// Parses a number of bytes with the unit KiB, MiB or GiB, or without a unit: "512", "80GiB".
// Returns nullopt if the text is not such a number or overflows.
std::optional<int64_t> ParseBytes(std::string_view text);

// Returns the value of an environment variable; nullopt if it is not set.
using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;
EnvLookup ProcessEnv();

struct ParsedOptions {
  Options options;
  bool help = false;              // --help was given: print OptionsHelp() and stop.
  bool version = false;           // --version was given: print it and stop.
  std::vector<std::string> rest;  // the arguments that are not options of the table, in order
};

// Reads the environment, then `args`, which do not include the program's name. An option may be
// written as --queue-bound=5, --queue-bound 5 or --queue_bound=5. A bool without a value is true.
// Arguments after "--" go to `rest`. Returns VALUE_ERROR if a value is wrong.
absl::StatusOr<ParsedOptions> ParseOptions(const std::vector<std::string>& args,
                                           const EnvLookup& env);

// Sets one option by its name in the table.
absl::Status SetOption(Options& options, std::string_view name, std::string_view value);

// Returns the flags that give a child process the options `options`. `env` is the environment that
// the child inherits; options that it sets to the right value need no flag.
std::vector<std::string> FlagsFor(const Options& options, const EnvLookup& env);

// Returns all flags, such as "--queue-bound", in the order of the table.
std::vector<std::string> OptionFlags();

// Return the table as text for --help and for docs/env.md.
std::string OptionsHelp();
std::string OptionsMarkdown();

}  // namespace tessera
