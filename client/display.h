// What a terminal can show, and how wide a text is on it.
//
// Colours only on a terminal, and not where NO_COLOR is set; lines and blocks are drawn with
// Unicode where the locale has it. Values. Used by the SDK and the command line.
#pragma once
#include <cstdint>
#include <string>

namespace tessera::internal {

enum class Style : uint8_t { kPlain, kBold, kDim, kRed, kGreen, kYellow, kBlue, kMagenta, kCyan };

// The capabilities of stdout and stderr.
struct Display {
  bool out_is_terminal = false, err_is_terminal = false;
  bool color_out = false, color_err = false;
  bool unicode = false;
  int columns = 100;  // of stdout
  int rows = 40;

  // Detects them by isatty, NO_COLOR, TERM, the locale's variables and the window size.
  static Display OfProcess();
  std::string Colorize(Style style, const std::string& text) const;       // for stdout
  std::string ColorizeError(Style style, const std::string& text) const;  // for stderr
};

// The width of a text in columns: escape sequences have none, a code point has one.
int WidthOf(const std::string& text);
// Truncates a text that is wider than `width`.
std::string Truncate(const std::string& text, int width);
// The same, and pads a narrower one with blanks: on the left if `right`.
std::string PadOrTruncate(const std::string& text, int width, bool right = false);

}  // namespace tessera::internal
