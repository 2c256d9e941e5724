// Formats and parses the lines of a monitor process.
#include "worker/device/reading.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace tessera::worker::device {
namespace {

struct Figure {
  absl::string_view name;
  double tessera_device_reading::*member;
};
constexpr Figure kFigures[] = {
#define TESSERA_READING(field, metric, label) {#field, &tessera_device_reading::field},
#include "worker/device/readings.def"
};
static_assert(std::size(kFigures) == sizeof(tessera_device_reading) / sizeof(double));

constexpr double kUnknown = -1;

// The first word of each kind of line.
constexpr absl::string_view kWords[] = {"reading", "error", "lost", "unavailable"};

std::string WithoutBreaks(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

tessera_device_reading UnknownReading() {
  tessera_device_reading reading;
  for (const Figure& figure : kFigures) reading.*figure.member = kUnknown;
  return reading;
}

std::string FormatLine(const MonitorLine& line) {
  std::string out = absl::StrCat(kWords[static_cast<size_t>(line.kind)], " ", line.device);
  switch (line.kind) {
    case MonitorLine::Kind::kReading:
      for (const Figure& figure : kFigures)
        if (const double value = line.reading.*figure.member; value >= 0)
          absl::StrAppendFormat(&out, " %s=%.17g", figure.name, value);
      break;
    case MonitorLine::Kind::kError:
      absl::StrAppend(&out, " ", line.code);
      break;
    case MonitorLine::Kind::kLost:
    case MonitorLine::Kind::kUnavailable:
      absl::StrAppend(&out, " ", WithoutBreaks(line.text));
  }
  return out + "\n";
}

// A line is a word for its kind, the index of a device, and what follows for this kind. Whoever
// reads a reading may be older than the process that wrote it, so figures that are not known are
// left out.
std::optional<MonitorLine> ParseLine(std::string_view text) {
  const std::pair<absl::string_view, absl::string_view> word =
      absl::StrSplit(ToAbsl(text), absl::MaxSplits(' ', 1));
  const std::pair<absl::string_view, absl::string_view> device =
      absl::StrSplit(word.second, absl::MaxSplits(' ', 1));
  const auto* const kind = std::find(std::begin(kWords), std::end(kWords), word.first);
  MonitorLine line;
  if (kind == std::end(kWords) || !absl::SimpleAtoi(device.first, &line.device) || line.device < 0)
    return std::nullopt;
  line.kind = static_cast<MonitorLine::Kind>(kind - kWords);
  const absl::string_view rest = device.second;
  if (line.kind == MonitorLine::Kind::kError)
    return absl::SimpleAtoi(rest, &line.code) ? std::optional(line) : std::nullopt;
  if (line.kind != MonitorLine::Kind::kReading) {
    line.text = std::string(rest);
    return line;
  }
  for (const absl::string_view part : absl::StrSplit(rest, ' ', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> named = absl::StrSplit(part, '=');
    double value = 0;
    if (!absl::SimpleAtod(named.second, &value)) return std::nullopt;
    for (const Figure& figure : kFigures)
      if (figure.name == named.first) line.reading.*figure.member = value;
  }
  return line;
}

}  // namespace tessera::worker::device
