// The folder of --dump: programs as text, a subfolder for each program and in it a numbered file
// for each stage of planning or compiling.
//
//   FOLDER/program_0a1b2c3d4e5f_train_step/04_partition.txt
//
// A dump is a debugging aid and fails nothing: the first file that cannot be written is logged. The
// bounds are those of one DumpFolder, of which a process has one. At a bound it says so once in the
// log and writes no more. Thread-safe.
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
    int64_t bytes = int64_t{1} << 30;  // written, also in place of an earlier file
  };
  // Makes the folder. An empty `path` means that nothing is written.
  explicit DumpFolder(std::string path) : DumpFolder(std::move(path), Bounds()) {}
  DumpFolder(std::string path, Bounds bounds);
  DumpFolder(const DumpFolder&) = delete;
  DumpFolder& operator=(const DumpFolder&) = delete;

  bool enabled() const { return !path_.empty(); }

 private:
  friend class ProgramDump;
  void Write(const std::string& program, int number, std::string_view stage, std::string_view text)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Whether a file of the program with so many bytes may be written. Counts it, if so.
  bool TakeRoom(const std::string& program, size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  void LogFailure(const std::string& file, int error) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string path_;
  const Bounds bounds_;
  absl::Mutex mu_;
  std::set<std::string> programs_ ABSL_GUARDED_BY(mu_);
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t files_ ABSL_GUARDED_BY(mu_) = 0;
  bool full_ ABSL_GUARDED_BY(mu_) = false;  // a bound has been logged
  bool failure_logged_ ABSL_GUARDED_BY(mu_) = false;
};

// The files of one program. Not thread-safe.
class ProgramDump {
 public:
  // The files numbered in one subfolder at most; later stages are not written.
  static constexpr int kStagesMax = 99;

  // `folder` outlives the dump; null, or without a path, means that nothing is written. `program`
  // names the subfolder, with '_' for what is no letter, digit, '-', '_' or '.'.
  ProgramDump(DumpFolder* folder, std::string_view program);

  bool enabled() const { return folder_ != nullptr; }
  // Writes the next file, in place of an earlier dump's. A reader sees the whole text or none.
  void Write(std::string_view stage, std::string_view text);

 private:
  DumpFolder* const folder_;
  const std::string program_;
  int stages_ = 0;
};

}  // namespace tessera
