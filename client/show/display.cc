// Detects the capabilities of the process's terminal, and measures and truncates texts that have
// escape sequences. Used by the pictures of plans and by the command line's tables.
#include "client/show/display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/options.h"

namespace tessera::internal {
namespace {

constexpr int kMinColumns = 40;

// The parameters of the escape sequences, indexed by Style.
constexpr const char* kStyleCodes[] = {"", "1", "2", "31", "32", "33", "34", "35", "36"};

std::string Colored(bool color, Style style, const std::string& text) {
  if (!color || style == Style::kPlain || text.empty()) return text;
  return absl::StrCat("\x1b[", kStyleCodes[static_cast<size_t>(style)], "m", text, "\x1b[0m");
}

// Returns the end of the escape sequence or code point at byte `at`. Sets `visible` to whether it
// is a code point, which takes one column.
size_t NextPosition(const std::string& text, size_t at, bool* visible) {
  size_t end = at + 1;
  *visible = text[at] != '\x1b';
  if (!*visible) {
    while (end < text.size() && text[end] != 'm') ++end;
    return std::min(end + 1, text.size());
  }
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
  return end;
}

}  // namespace

// A terminal that is dumb, or unknown, gets the plain defaults. COLUMNS overrides the window size,
// as in other programs.
Display Display::OfProcess() {
  const auto variable = [](const char* name) { return ProcessEnv()(name).value_or(""); };
  Display display;
  display.out_is_terminal = isatty(STDOUT_FILENO) == 1;
  display.err_is_terminal = isatty(STDERR_FILENO) == 1;
  const bool colors = variable("NO_COLOR").empty() && variable("TERM") != "dumb";
  display.color_out = colors && display.out_is_terminal;
  display.color_err = colors && display.err_is_terminal;
  // The first variable that is set counts, as in the C library.
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string locale = absl::AsciiStrToLower(variable(name));
    if (locale.empty()) continue;
    display.unicode = absl::StrContains(locale, "utf-8") || absl::StrContains(locale, "utf8");
    break;
  }
  winsize window{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) {
    display.columns = window.ws_col;
    display.rows = window.ws_row;
  }
  if (int columns = 0; absl::SimpleAtoi(variable("COLUMNS"), &columns) && columns > 0) {
    display.columns = columns;
  }
  display.columns = std::max(display.columns, kMinColumns);
  return display;
}

std::string Display::Colorize(Style style, const std::string& text) const {
  return Colored(color_out, style, text);
}
std::string Display::ColorizeError(Style style, const std::string& text) const {
  return Colored(color_err, style, text);
}

int WidthOf(const std::string& text) {
  int width = 0;
  for (size_t at = 0; at < text.size();) {
    bool visible = false;
    at = NextPosition(text, at, &visible);
    width += visible ? 1 : 0;
  }
  return width;
}

std::string Truncate(const std::string& text, int width) {
  if (WidthOf(text) <= width) return text;
  std::string out;
  int taken = 0;
  for (size_t at = 0; at < text.size();) {
    bool visible = false;
    const size_t end = NextPosition(text, at, &visible);
    // Escape sequences are copied, so that a style always ends.
    if (!visible || taken < width - 1) out.append(text, at, end - at);
    if (visible && taken == width - 1) out += '~';
    taken += visible ? 1 : 0;
    at = end;
  }
  return out;
}

std::string PadOrTruncate(const std::string& text, int width, bool align_right) {
  const std::string out = Truncate(text, width);
  const std::string blanks(static_cast<size_t>(std::max(width - WidthOf(out), 0)), ' ');
  return align_right ? blanks + out : out + blanks;
}

}  // namespace tessera::internal
