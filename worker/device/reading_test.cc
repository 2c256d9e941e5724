// Tests the lines of a monitor process.
#include "worker/device/reading.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::worker::device {
namespace {

std::optional<MonitorLine> ThereAndBack(const MonitorLine& line) {
  std::string text = FormatLine(line);
  EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
  text.pop_back();
  return ParseLine(text);
}

TEST(ReadingTest, ALineOfEachKindComesBack) {
  MonitorLine line;
  line.device = 3;
  line.reading.utilization = 0.1;
  line.reading.memory_total_bytes = 151'523'418'112.0;
  line.reading.link_errors = 0;
  std::optional<MonitorLine> back = ThereAndBack(line);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->device, 3);
  EXPECT_EQ(back->reading.utilization, 0.1);
  EXPECT_EQ(back->reading.memory_total_bytes, 151'523'418'112.0);
  EXPECT_EQ(back->reading.link_errors, 0);
  EXPECT_EQ(back->reading.power_watts, -1);

  line.kind = MonitorLine::Kind::kError;
  line.code = 79;
  back = ThereAndBack(line);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->kind, MonitorLine::Kind::kError);
  EXPECT_EQ(back->code, 79);

  for (const auto kind : {MonitorLine::Kind::kLost, MonitorLine::Kind::kUnavailable}) {
    line.kind = kind;
    line.text = "a text\nof two lines";
    back = ThereAndBack(line);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->kind, kind);
    EXPECT_EQ(back->text, "a text of two lines");
  }
}

TEST(ReadingTest, OtherLinesAreRefused) {
  for (const char* text : {"", "reading", "reading x", "reading -1", "error 0", "error 0 x",
                           "hello 0", "reading 0 power_watts=x", "reading 0 power_watts"})
    EXPECT_FALSE(ParseLine(text)) << text;
  EXPECT_TRUE(ParseLine("reading 0 a_new_figure=1"));
}

}  // namespace
}  // namespace tessera::worker::device
