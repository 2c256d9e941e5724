// Proves how options are read from the command line and the environment, and what the errors say.
// The environment is a map, so the tests do not depend on the real one.
#include "base/options.h"

#include <map>

#include "base/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

EnvLookup FakeEnv(std::map<std::string, std::string> env) {
  return [env](const std::string& name) -> std::optional<std::string> {
    const auto it = env.find(name);
    return it == env.end() ? std::nullopt : std::optional<std::string>(it->second);
  };
}

TEST(Options, TheCommandLineWinsOverTheEnvironment) {
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const ParsedOptions parsed,
      ParseOptions({"--queue-bound=5", "--lease_ms", "7", "--max-program-bytes=2MiB"},
                   FakeEnv({{"TESSERA_QUEUE_BOUND", "9"}, {"TESSERA_DUMP", "/d"}})));
  EXPECT_EQ(parsed.options.queue_bound, 5);
  EXPECT_EQ(parsed.options.lease_ms, 7);
  EXPECT_EQ(parsed.options.max_program_bytes, 2 << 20);
  EXPECT_EQ(parsed.options.dump, "/d");
  EXPECT_EQ(parsed.options.heartbeat_ms, Options().heartbeat_ms);
}

TEST(Options, ArgumentsWithoutARowAreLeftToTheCaller) {
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const ParsedOptions parsed,
      ParseOptions({"run", "--help", "--port=1", "--", "--queue-bound=5"}, FakeEnv({})));
  EXPECT_TRUE(parsed.help);
  EXPECT_THAT(parsed.rest, ElementsAre("run", "--port=1", "--queue-bound=5"));
  EXPECT_EQ(parsed.options.queue_bound, Options().queue_bound);
}

TEST(Options, WrongValuesNameTheirSource) {
  EXPECT_THAT(ParseOptions({"--queue-bound=0"}, FakeEnv({})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "--queue-bound: got \"0\", expected a number of launches from 1 to"));
  EXPECT_THAT(ParseOptions({}, FakeEnv({{"TESSERA_LEASE_MS", "soon"}})),
              ReasonIs("VALUE_ERROR", HasSubstr("TESSERA_LEASE_MS: got \"soon\"")));
  EXPECT_THAT(ParseOptions({"--max-program-bytes=9000000000000GiB"}, FakeEnv({})),
              ReasonIs("VALUE_ERROR"));
  EXPECT_THAT(ParseOptions({"--dump"}, FakeEnv({})), ReasonIs("VALUE_ERROR"));
}

TEST(Options, BytesMayHaveUnits) {
  EXPECT_EQ(ParseBytes("512"), 512);
  EXPECT_EQ(ParseBytes("80GiB"), int64_t{80} << 30);
  for (const char* wrong : {"", "GiB", "80GB", "8 GiBs", "1.5GiB", "9000000000000GiB"})
    EXPECT_EQ(ParseBytes(wrong), std::nullopt) << wrong;
}

TEST(Options, OptionsAreSetByName) {
  Options options;
  EXPECT_THAT(SetOption(options, "queue_bound", "3"), IsOk());
  EXPECT_EQ(options.queue_bound, 3);
  EXPECT_THAT(SetOption(options, "no_such", "3"), ReasonIs("VALUE_ERROR"));
}

TEST(Options, AChildGetsFlagsForWhatItsEnvironmentLacks) {
  const EnvLookup env = FakeEnv({{"TESSERA_LEASE_MS", "7"}, {"TESSERA_QUEUE_BOUND", "9"}});
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const ParsedOptions parent,
      ParseOptions({"--queue-bound=1024", "--insecure", "--dump=/a b"}, env));
  const std::vector<std::string> flags = FlagsFor(parent.options, env);
  EXPECT_THAT(flags, ElementsAre("--dump=/a b", "--queue-bound=1024", "--insecure=true"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const ParsedOptions child, ParseOptions(flags, env));
  EXPECT_THAT(FlagsFor(child.options, env), flags);
}

TEST(Options, HelpNamesEveryRow) {
  EXPECT_THAT(OptionsHelp(), HasSubstr("--collective-timeout-ms [TESSERA_COLLECTIVE_TIMEOUT_MS]"));
  EXPECT_THAT(OptionsHelp(), HasSubstr("Default: 5000 ms."));
}

}  // namespace
}  // namespace tessera
