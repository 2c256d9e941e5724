// Proves that times and rates print as documented, and that AddLastRun extends an explanation
// and leaves JSON that it cannot extend unchanged. The functions are called directly.
#include "server/core/plan_time.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/time/time.h"

namespace tessera::server::core {
namespace {

using nlohmann::json;

// Returns a reply whose last run took 3.4 ms.
CompileReply Reply(std::string explain_text, std::string explain_json) {
  CompileReply reply;
  reply.explain_text = std::move(explain_text);
  reply.explain_json = std::move(explain_json);
  reply.predicted_seconds = 0.0031;
  reply.last_run = absl::Microseconds(3400);
  return reply;
}

// Returns the JSON explanation after AddLastRun.
std::string WithLastRun(std::string explain_json) {
  CompileReply reply = Reply("", std::move(explain_json));
  AddLastRun(&reply);
  return reply.explain_json;
}

TEST(PlanTime, TimesAndRatesHaveThreeDigitsAndAPrefix) {
  EXPECT_EQ(SecondsText(0.0031), "3.1 ms");
  EXPECT_EQ(SecondsText(12.5), "12.5 s");
  EXPECT_EQ(SecondsText(0), "0 s");
  EXPECT_EQ(RateText(117.3e9, "FLOP/s"), "117 GFLOP/s");
}

TEST(PlanTime, TheLastRunStandsBesideThePrediction) {
  CompileReply reply = Reply("plan\n", "{\n \"program\": \"f\"\n}");
  AddLastRun(&reply);
  EXPECT_EQ(reply.explain_text, "plan\npredicted 3.1 ms, last run 3.4 ms\n");
  // The planner writes its JSON in this form.
  EXPECT_EQ(reply.explain_json, "{\n \"last_run_seconds\": 0.0034,\n \"program\": \"f\"\n}");
}

TEST(PlanTime, WithoutARunTheExplanationStaysUnchanged) {
  CompileReply reply = Reply("plan\n", "{}");
  reply.last_run = absl::ZeroDuration();
  AddLastRun(&reply);
  EXPECT_EQ(reply.explain_text, "plan\n");
  EXPECT_EQ(reply.explain_json, "{}");
}

TEST(PlanTime, AnExplanationThatWasNotRequestedStaysEmpty) {
  CompileReply reply = Reply("", "");
  AddLastRun(&reply);
  EXPECT_EQ(reply.explain_text, "");
  EXPECT_EQ(reply.explain_json, "");
}

TEST(PlanTime, TheLastRunIsAddedToAnyJsonObject) {
  for (const char* const text :
       {"{}", "{\t}", "{\r\n}\r\n", R"({"why": "}"})", R"({"why": "{" })",
        "{\"a\": {\"b\": {}}\t}\n", R"({"a": [{"b": "}"}, {}], "c": "\"}"})",
        R"({"last_run_seconds": 1})"}) {
    json expected = json::parse(text);
    expected["last_run_seconds"] = 0.0034;
    EXPECT_EQ(json::parse(WithLastRun(text), nullptr, /*allow_exceptions=*/false), expected)
        << text << " became " << WithLastRun(text);
  }
}

TEST(PlanTime, TheLastRunIsAddedOnce) {
  const std::string twice = WithLastRun(WithLastRun("{\"a\": 1}"));
  EXPECT_EQ(twice, WithLastRun("{\"a\": 1}"));
}

TEST(PlanTime, TextThatIsNotAJsonObjectStaysUnchanged) {
  const std::string deep = "{\"a\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  const std::string large = "{\"a\": \"" + std::string(size_t{65} << 20, 'x') + "\"}";
  for (const std::string& text :
       {std::string("\"}\""), std::string("[{}]"), std::string("{\"a\": \"}"), std::string("}"),
        std::string("{\"a\": 1} }"), deep, large})
    EXPECT_TRUE(WithLastRun(text) == text) << text.substr(0, 40);
}

}  // namespace
}  // namespace tessera::server::core
