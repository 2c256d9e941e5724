// Reads the command line of a benchmark. CLI11 does the parsing, and only flags.cc includes it.
//
//   int rounds = 10;
//   FlagParser parser("bench-loops", "Compares loops with the same loops in JAX.");
//   parser.AddNumber("--rounds", &rounds, "number of rounds");
//   if (const std::optional<int> status = parser.Parse(argc, argv)) return *status;
//
// Every flag that takes a value may be given as `--flag VALUE` or as `--flag=VALUE`. Flags take
// effect in the order of the command line, so that the last one counts. Not thread-safe.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

namespace tessera::bench {

// The numbers that a flag accepts: those from `least` to `most` that `multiple_of` divides.
struct NumberRange {
  int64_t least = 1;
  int64_t most = std::numeric_limits<int64_t>::max();
  int64_t multiple_of = 1;
};

class FlagParser {
 public:
  // `program` is the name in the messages, and `summary` opens the text of --help.
  FlagParser(const std::string& program, const std::string& summary);
  ~FlagParser();

  // The methods Add... add a flag. `name` begins with two dashes. `help` says in a phrase what the
  // flag is for. The variables must outlive the parser. The values that the variables have before
  // Parse are the defaults, which --help shows.
  //
  // AddText adds a flag that takes a text; --help calls the text `value`.
  void AddText(const std::string& name, const std::string& value, std::string* to,
               const std::string& help);
  void AddNumber(const std::string& name, int* to, const std::string& help, NumberRange range = {});
  void AddNumber(const std::string& name, int64_t* to, const std::string& help,
                 NumberRange range = {});
  // AddSwitch adds a flag without a value, which sets `*to` to true.
  void AddSwitch(const std::string& name, bool* to, const std::string& help);
  // AddAction adds a flag without a value, which calls `act`. A flag such as --smoke sets several
  // variables in this way.
  void AddAction(const std::string& name, const std::function<void()>& act,
                 const std::string& help);
  // Makes Parse fail if the command line lacks the flag `name`, which has been added before.
  void SetRequired(const std::string& name);

  // Reads the command line. Returns the exit status if the program has to end: 0 after it has
  // printed the help that --help asks for, and 2 after it has printed what is wrong with the
  // command line. Returns nullopt if the program is to go on.
  std::optional<int> Parse(int argc, char** argv);

 private:
  struct Grammar;

  void AddNumberOption(const std::string& name, int64_t default_value,
                       const std::function<void(int64_t)>& set, const std::string& help,
                       NumberRange range);

  std::unique_ptr<Grammar> grammar_;
};

}  // namespace tessera::bench
