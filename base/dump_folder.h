// Writes the folder of --dump, which holds programs as text. It has a subfolder for each program,
// and in the subfolder a numbered file for each stage of planning or compiling.
//
//   FOLDER/program_0a1b2c3d4e5f_train_step/04_partition.txt
//
// A dump is a debugging aid and never makes a call fail: a file that cannot be written is skipped,
// and only the first such failure is logged. A process has one DumpFolder, so the bounds below are
// bounds of the process. When a bound is reached, the DumpFolder says so once in the log and writes
// no more. Thread-safe.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tessera {

class DumpFolder {
 public:
  struct Bounds {
    size_t programs = 1000;
    int64_t bytes = int64_t{1} << 30;  // total size of all writes, replaced files included
  };
  // Creates the folder. An empty `path` means that nothing is written.
  explicit DumpFolder(std::string path) : DumpFolder(std::move(path), Bounds()) {}
  DumpFolder(std::string path, Bounds bounds);
  DumpFolder(const DumpFolder&) = delete;
  DumpFolder& operator=(const DumpFolder&) = delete;

  bool enabled() const { return !path_.empty(); }

 private:
  friend class ProgramDump;
  void Write(const std::string& program, int number, std::string_view stage, std::string_view text)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether a file of this size may be written for the program. If so, counts the file
  // towards the bounds.
  bool TryReserve(const std::string& program, size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  void LogFailure(const std::string& file, int error) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string path_;
  const Bounds bounds_;
  absl::Mutex mu_;
  std::set<std::string> programs_ ABSL_GUARDED_BY(mu_);
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  bool full_ ABSL_GUARDED_BY(mu_) = false;  // whether a bound was reached and logged
  bool failure_logged_ ABSL_GUARDED_BY(mu_) = false;
};

// Writes the files of one program. Not thread-safe.
class ProgramDump {
 public:
  // The largest number of files of one program; later stages are not written.
  static constexpr int kStagesMax = 99;

  // `folder` must outlive the dump. If it is null or has no path, nothing is written. `program` is
  // the name of the subfolder; every character other than a letter, a digit, '-', '_' and '.' is
  // replaced by '_'.
  ProgramDump(DumpFolder* folder, std::string_view program);

  bool enabled() const { return folder_ != nullptr; }
  // Writes the next file. It replaces the file that an earlier dump of the program has left there.
  // A reader sees either the whole text or no file.
  void Write(std::string_view stage, std::string_view text);

 private:
  DumpFolder* const folder_;
  const std::string program_;
  int stages_ = 0;
};

}  // namespace tessera
