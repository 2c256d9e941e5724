// Output to a terminal: colours, tables, progress.
//
// Results go to stdout, everything else goes to stderr. Progress is thread-safe; everything else is
// thread-compatible.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/show/display.h"

namespace tessera::cli {

using internal::Display;
using internal::PadOrTruncate;
using internal::Style;
using internal::Truncate;
using internal::WidthOf;

// A table of rows of cells. A column is as wide as its widest cell. The last column is not padded.
class Table {
 public:
  // A name that begins with '>' makes its column right-aligned.
  explicit Table(std::vector<std::string> header);
  void AddRow(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // Returns the lines of the table, each ending in "\n". If stdout is a terminal, no line is longer
  // than `display.columns`.
  std::string ToText(const Display& display) const;

 private:
  std::vector<std::string> header_;
  std::vector<bool> right_aligned_;  // by column
  std::vector<std::vector<std::string>> rows_;
};

class Terminal {
 public:
  explicit Terminal(Display display) : display_(display) {}
  const Display& display() const { return display_; }

  void Print(const std::string& text);  // prints to stdout, verbatim
  void Note(const std::string& text);   // prints a line to stderr
  void Clear();                         // clears the screen, if stdout is a terminal

 private:
  const Display display_;
};

// Shows the progress of a step of a command, a transfer or a wait, on stderr. A terminal shows one
// line, which is drawn again and again. Any other stderr gets a line every few seconds, and a line
// at the end. A step of less than 0.3 s shows nothing, unless it is a large transfer on a terminal.
class Progress {
 public:
  // `what` names the step. If `bytes_total` is 0, the step is a wait, and the elapsed time is shown
  // in place of a bar.
  Progress(const Display& display, std::string what, int64_t bytes_total, bool shown);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Add(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Sets the text that says what the step is waiting for.
  void SetState(const std::string& state) ABSL_LOCKS_EXCLUDED(mu_);
  // Draws the progress for the last time. The destructor does so, too.
  void Finish() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Draw(bool last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Display display_;
  const std::string what_;
  const int64_t bytes_total_;
  const bool shown_;
  const absl::Time started_at_;

  absl::Mutex mu_;
  int64_t bytes_done_ ABSL_GUARDED_BY(mu_) = 0;
  std::string state_ ABSL_GUARDED_BY(mu_);
  absl::Time last_drawn_at_ ABSL_GUARDED_BY(mu_);
  bool ever_drawn_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

// Returns the line of a progress bar, without colours: "put x.npy  [#####-----]   50 %  512.0 MiB
// of 1.0 GiB  210.0 MiB/s".
std::string ProgressLine(const std::string& what, int64_t bytes_done, int64_t bytes_total,
                         absl::Duration elapsed, int columns, bool unicode);

}  // namespace tessera::cli
