// Output of the command line. Commands print tables and notes through it, and transfers and waits
// show their progress. If a stream is no terminal, it gets neither colours nor lines that are drawn
// over each other.
#include "client/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/options.h"
#include "client/cli/json.h"

namespace tessera::cli {
namespace {

constexpr absl::Duration kHiddenBefore = absl::Milliseconds(300);  // shorter steps show nothing
constexpr absl::Duration kRedrawInterval = absl::Milliseconds(100);
constexpr absl::Duration kLineInterval = absl::Seconds(5);  // between lines, without a terminal
constexpr int64_t kLargeBytes = 16 << 20;  // larger transfers show a bar from the start
constexpr int kGap = 2;                    // blanks between the columns of a table
constexpr char kClearLine[] = "\r\x1b[K";

}  // namespace

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {
  for (std::string& name : header_) {
    right_aligned_.push_back(absl::StartsWith(name, ">"));
    if (right_aligned_.back()) name.erase(0, 1);
  }
}

void Table::AddRow(std::vector<std::string> cells) {
  cells.resize(header_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::ToText(const Display& display) const {
  std::vector<int> widths(header_.size());
  for (size_t c = 0; c < header_.size(); ++c) {
    widths[c] = WidthOf(header_[c]);
    for (const auto& row : rows_) widths[c] = std::max(widths[c], WidthOf(row[c]));
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells, Style style) {
    std::string text;
    for (size_t c = 0; c < cells.size(); ++c) {
      const bool last = c + 1 == cells.size();
      text += last && !right_aligned_[c] ? cells[c]
                                         : PadOrTruncate(cells[c], widths[c], right_aligned_[c]);
      if (!last) text.append(kGap, ' ');
    }
    absl::StripTrailingAsciiWhitespace(&text);
    if (display.out_is_terminal) text = Truncate(text, display.columns);
    absl::StrAppend(&out, display.Colorize(style, text), "\n");
  };
  line(header_, Style::kDim);
  for (const auto& row : rows_) line(row, Style::kPlain);
  return out;
}

void Terminal::Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void Terminal::Note(const std::string& text) {
  const std::string line = display_.ColorizeError(Style::kDim, text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void Terminal::Clear() {
  if (display_.out_is_terminal) Print("\x1b[H\x1b[2J");
}

std::string ProgressLine(const std::string& what, int64_t bytes_done, int64_t bytes_total,
                         absl::Duration elapsed, int columns, bool unicode) {
  const double seconds = std::max(absl::ToDoubleSeconds(elapsed), 1e-3);
  const std::string rate = absl::StrCat(BytesText(static_cast<double>(bytes_done) / seconds), "/s");
  const double part =
      bytes_total > 0
          ? std::min(1.0, static_cast<double>(bytes_done) / static_cast<double>(bytes_total))
          : 1;
  const std::string numbers = absl::StrFormat("%3d %%  %s of %s  %s", static_cast<int>(part * 100),
                                              BytesText(static_cast<double>(bytes_done)),
                                              BytesText(static_cast<double>(bytes_total)), rate);
  const int room = columns - WidthOf(what) - WidthOf(numbers) - 7;
  if (room < 8) return absl::StrCat(what, "  ", numbers);
  const int width = std::min(room, 40);
  const int full = static_cast<int>(part * width);
  std::string bar;
  for (int i = 0; i < width; ++i) {
    bar += unicode ? (i < full ? "█" : "░") : (i < full ? "#" : "-");
  }
  return absl::StrCat(what, "  [", bar, "]  ", numbers);
}

Progress::Progress(const Display& display, std::string what, int64_t bytes_total, bool shown)
    : display_(display),
      what_(std::move(what)),
      bytes_total_(bytes_total),
      shown_(shown),
      started_at_(SteadyNow()),
      last_drawn_at_(started_at_) {}

Progress::~Progress() { Finish(); }

void Progress::Add(int64_t bytes) {
  absl::MutexLock lock(&mu_);
  bytes_done_ += bytes;
  Draw(/*last=*/false);
}

void Progress::SetState(const std::string& state) {
  absl::MutexLock lock(&mu_);
  state_ = state;
  Draw(/*last=*/false);
}

void Progress::Finish() {
  absl::MutexLock lock(&mu_);
  if (finished_) return;
  finished_ = true;
  if (ever_drawn_) Draw(/*last=*/true);
}

// Draws the progress unless it is too early: a short step stays hidden, and lines follow each other
// only after an interval. A large transfer on a terminal is drawn at once.
void Progress::Draw(bool last) {
  const absl::Time now = SteadyNow();
  if (!shown_ || (finished_ && !last)) return;
  const bool draw_at_once = display_.err_is_terminal && bytes_total_ >= kLargeBytes && !ever_drawn_;
  if (!last && !draw_at_once) {
    if (now - started_at_ < kHiddenBefore) return;
    const absl::Duration interval = display_.err_is_terminal ? kRedrawInterval : kLineInterval;
    if (now - last_drawn_at_ < interval) return;
  }
  last_drawn_at_ = now;
  ever_drawn_ = true;
  std::string text = bytes_total_ > 0
                         ? ProgressLine(what_, bytes_done_, bytes_total_, now - started_at_,
                                        display_.columns - 1, display_.unicode)
                         : absl::StrCat(what_, "  ", DurationText(now - started_at_),
                                        state_.empty() ? "" : "  ", state_);
  if (!display_.err_is_terminal) {
    std::fprintf(stderr, "%s\n", text.c_str());
    return;
  }
  // At the end, erase the line of a wait and leave the last line of a transfer.
  text = Truncate(text, display_.columns - 1);
  if (last && bytes_total_ == 0) text.clear();
  std::fprintf(stderr, "%s%s%s", kClearLine, text.c_str(), last && bytes_total_ > 0 ? "\n" : "");
  std::fflush(stderr);
}

}  // namespace tessera::cli
