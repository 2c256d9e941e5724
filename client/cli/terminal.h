// Output for people: what stdout and stderr can show, tables, colours, progress.
//
// Results go to stdout, everything else to stderr. Colours only on a terminal, and not where
// NO_COLOR is set; lines and blocks are drawn with Unicode where the locale has it.
// Thread-compatible, but for Progress, which any thread may move.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::cli {

enum class Style : uint8_t { kPlain, kBold, kDim, kRed, kGreen, kYellow, kBlue, kMagenta, kCyan };

// What the two streams can show.
struct Looks {
  bool out_is_terminal = false, err_is_terminal = false;
  bool color_out = false, color_err = false;
  bool unicode = false;
  int columns = 100;  // of stdout
  int rows = 40;

  // Of this process: isatty, NO_COLOR, TERM, the locale's variables, the window's size.
  static Looks OfProcess();
  std::string Paint(Style style, const std::string& text) const;       // for stdout
  std::string PaintError(Style style, const std::string& text) const;  // for stderr
};

// Columns that the text takes: escape sequences take none, a code point takes one.
int WidthOf(const std::string& text);
// Cut or filled up with blanks to the width.
std::string Fit(const std::string& text, int width, bool right = false);

// Rows of cells; a column is as wide as its widest cell. The last one is not filled up.
class Table {
 public:
  // A name that begins with '>' is of a column whose cells stand to the right.
  explicit Table(std::vector<std::string> header);
  void Row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // Lines end in "\n"; none is longer than `looks.columns` where stdout is a terminal.
  std::string Draw(const Looks& looks) const;

 private:
  std::vector<std::string> header_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

class Terminal {
 public:
  explicit Terminal(Looks looks) : looks_(looks) {}
  const Looks& looks() const { return looks_; }

  void Print(const std::string& text);  // to stdout, as it is
  void Note(const std::string& text);   // a line to stderr
  void Clear();                         // stdout, for a screen that is drawn anew

 private:
  const Looks looks_;
};

// Progress on stderr: a moving bar on a terminal, else a line every few seconds and one at the end.
// Nothing is shown for a short and small step.
class Progress {
 public:
  // `total` in bytes; 0: unknown, a clock instead of a bar. `shown` false: silent.
  Progress(const Looks& looks, std::string what, int64_t total, bool shown);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Add(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Shows what is waited for.
  void Say(const std::string& state) ABSL_LOCKS_EXCLUDED(mu_);
  void Done() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Draw(bool last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Looks looks_;
  const std::string what_;
  const int64_t total_;
  const bool shown_;
  const absl::Time start_;

  absl::Mutex mu_;
  int64_t done_ ABSL_GUARDED_BY(mu_) = 0;
  std::string state_ ABSL_GUARDED_BY(mu_);
  absl::Time drawn_ ABSL_GUARDED_BY(mu_);
  bool ever_drawn_ ABSL_GUARDED_BY(mu_) = false;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
};

// The line of a bar, without colours: "put x.npy  [#####-----]  50 %  512.0 MiB  210.0 MiB/s".
std::string ProgressLine(const std::string& what, int64_t done, int64_t total,
                         absl::Duration elapsed, int columns, bool unicode);

}  // namespace tessera::cli
