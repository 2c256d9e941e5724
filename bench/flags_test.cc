// Proves that flags set their variables, that the last one counts, and that a wrong command line is
// refused with the flag's name and status 2.
#include "bench/flags.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The flags of a program that measures nothing, and what the program printed.
struct Program {
  int rounds = 10;
  int64_t elements = 128;
  std::string jax;
  std::string folder = "/tmp";
  bool json = false;
  std::string out, err;

  // Reads the command line `args`, which does not contain the program's name.
  std::optional<int> Read(std::vector<std::string> args, bool needs_jax = false) {
    FlagParser parser("bench-nothing", "Measures nothing.");
    parser.AddNumber("--rounds", &rounds, "number of rounds");
    parser.AddNumber("--elements", &elements, "size", {.least = 64, .multiple_of = 64});
    parser.AddText("--jax", "PYTHON", &jax, "compares with JAX");
    parser.AddText("--folder", "DIR", &folder, "where to write");
    parser.AddSwitch("--json", &json, "prints JSON");
    parser.AddAction(
        "--smoke", [this] { rounds = 1; }, "runs short");
    if (needs_jax) parser.SetRequired("--jax");
    args.insert(args.begin(), "bench-nothing");
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const std::optional<int> status = parser.Parse(static_cast<int>(argv.size()), argv.data());
    out = ::testing::internal::GetCapturedStdout();
    err = ::testing::internal::GetCapturedStderr();
    return status;
  }
};

TEST(Flags, SetTheirVariables) {
  Program p;
  EXPECT_EQ(p.Read({"--rounds", "3", "--elements=640", "--jax", "python3", "--json"}),
            std::nullopt);
  EXPECT_EQ(p.rounds, 3);
  EXPECT_EQ(p.elements, 640);
  EXPECT_EQ(p.jax, "python3");
  EXPECT_EQ(p.folder, "/tmp");
  EXPECT_TRUE(p.json);
  EXPECT_EQ(p.out + p.err, "");
}

TEST(Flags, TakeEffectInTheirOrder) {
  Program p;
  EXPECT_EQ(p.Read({"--rounds", "3", "--rounds", "4"}), std::nullopt);
  EXPECT_EQ(p.rounds, 4);
  EXPECT_EQ(p.Read({"--rounds", "3", "--smoke"}), std::nullopt);
  EXPECT_EQ(p.rounds, 1);
  EXPECT_EQ(p.Read({"--smoke", "--rounds", "010"}), std::nullopt);
  EXPECT_EQ(p.rounds, 10);
}

TEST(Flags, HelpShowsTheDefaults) {
  Program p;
  EXPECT_EQ(p.Read({"--help"}), 0);
  EXPECT_THAT(p.out, AllOf(HasSubstr("Measures nothing."), HasSubstr("--rounds N=10"),
                           HasSubstr("--jax PYTHON"), HasSubstr("--folder DIR=/tmp"),
                           HasSubstr("a number of 64 or more that 64 divides")));
  EXPECT_EQ(p.err, "");
}

TEST(Flags, AWrongCommandLineIsRefusedWithTheFlagsName) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> rows = {
      {{"--runds", "3"}, "bench-nothing: there is no flag --runds\n"},
      {{"--runds=3"}, "there is no flag --runds\n"},
      {{"more"}, "'more' is one argument too many"},
      {{"--rounds"}, "--rounds: "},
      {{"--rounds", "0"}, "--rounds: '0' is not a number from 1 to 2147483647"},
      {{"--rounds", "3000000000"}, "--rounds: '3000000000' is not a number"},
      {{"--rounds", "x"}, "--rounds: 'x' is not a number"},
      {{"--elements", "65"}, "--elements: '65' is not a number of 64 or more that 64 divides"},
  };
  for (const auto& [args, error] : rows) {
    Program p;
    EXPECT_EQ(p.Read(args), 2) << args[0];
    EXPECT_THAT(p.err, AllOf(HasSubstr(error), HasSubstr("--elements N=128"))) << args[0];
    EXPECT_EQ(p.out, "");
  }
}

TEST(Flags, AMissingRequiredFlagIsNamed) {
  Program p;
  EXPECT_EQ(p.Read({}, /*needs_jax=*/true), 2);
  EXPECT_THAT(p.err, HasSubstr("--jax is required"));
  EXPECT_EQ(p.Read({"--jacks", "python3"}, /*needs_jax=*/true), 2);
  EXPECT_THAT(p.err, HasSubstr("there is no flag --jacks"));
  EXPECT_EQ(p.Read({"--jax", "python3"}, /*needs_jax=*/true), std::nullopt);
}

}  // namespace
}  // namespace tessera::bench
