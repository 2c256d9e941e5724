// The capabilities of a terminal, and the width of a text on it.
//
// Colours are used only on a terminal, and not if NO_COLOR is set. Lines and blocks are drawn with
// Unicode if the locale supports it. A Display is a value. Used by the SDK and the command line.
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
  int columns = 100;  // width of stdout
  int rows = 40;

  // Detects the capabilities by isatty, NO_COLOR, TERM, the locale's variables and the window size.
  static Display OfProcess();
  std::string Colorize(Style style, const std::string& text) const;       // for stdout
  std::string ColorizeError(Style style, const std::string& text) const;  // for stderr
};

// Returns the width of a text in columns. An escape sequence has width 0, a code point width 1.
int WidthOf(const std::string& text);
// Truncates a text that is wider than `width`.
std::string Truncate(const std::string& text, int width);
// Like Truncate, but also pads a narrower text with blanks, on the left if `align_right`.
std::string PadOrTruncate(const std::string& text, int width, bool align_right = false);

}  // namespace tessera::internal
