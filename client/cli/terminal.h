// Output to a terminal: colours, tables, progress.
//
// Results go to stdout, everything else to stderr. Thread-compatible, except Progress, which is
// thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/display.h"

namespace tessera::cli {

using internal::Display;
using internal::PadOrTruncate;
using internal::Style;
using internal::Truncate;
using internal::WidthOf;

// Rows of cells; a column is as wide as its widest cell. The last column is not padded.
class Table {
 public:
  // A name that begins with '>' makes its column right-aligned.
  explicit Table(std::vector<std::string> header);
  void Row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // Lines end in "\n"; none is longer than `display.columns` where stdout is a terminal.
  std::string Draw(const Display& display) const;

 private:
  std::vector<std::string> header_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

class Terminal {
 public:
  explicit Terminal(Display display) : display_(display) {}
  const Display& display() const { return display_; }

  void Print(const std::string& text);  // to stdout, verbatim
  void Note(const std::string& text);   // a line to stderr
  void Clear();                         // clears the screen, if stdout is a terminal

 private:
  const Display display_;
};

// Progress on stderr: a bar on a terminal, else a line every few seconds and one at the end. Short
// and small steps show nothing.
class Progress {
 public:
  // `total` in bytes; 0: unknown, and the elapsed time is shown in place of a bar.
  Progress(const Display& display, std::string what, int64_t total, bool shown);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Add(int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Sets the text that says what the step waits for.
  void SetState(const std::string& state) ABSL_LOCKS_EXCLUDED(mu_);
  void Done() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Draw(bool last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Display display_;
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

// The line of a progress bar, without colours: "put x.npy  [#####-----]  50 %  512.0 MiB  210.0
// MiB/s".
std::string ProgressLine(const std::string& what, int64_t done, int64_t total,
                         absl::Duration elapsed, int columns, bool unicode);

}  // namespace tessera::cli
