// Takes over a state folder of a build without a database. SqliteStore::Open reads the files before
// it opens the database, and retires them once their contents are durable there.
#include "server/store/legacy_files.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/state_file.h"
#include "base/status.h"

namespace tessera::server::store {
namespace {

constexpr char kEpochFile[] = "/epoch";
constexpr char kExecutorsFile[] = "/executors";
constexpr size_t kExecutorsBytesMax = 64 << 20;
constexpr int64_t kDevicesMax = int64_t{1} << 32;  // bound on device ids, never reached in practice

std::string SupersededText() { return absl::StrCat("in ", state_file::kName); }

absl::Status StateError(const std::string& why) {
  return MakeError(ErrorKind::kValueError, absl::StrCat("state_dir: ", why));
}

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error) || error;
}

absl::StatusOr<std::vector<core::KnownExecutor>> ReadExecutors(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kExecutorsBytesMax));
  std::vector<core::KnownExecutor> out;
  int64_t next_device = 0;  // the ids in the next line must not be smaller
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 4));
    core::KnownExecutor x;
    if (words.size() != 5 || !absl::SimpleAtoi(words[0], &x.first_device) ||
        !absl::SimpleAtoi(words[1], &x.num_devices) || !absl::SimpleAtoi(words[2], &x.index) ||
        x.num_devices < 1 || x.index < 0 || x.first_device < next_device ||
        x.first_device > kDevicesMax - x.num_devices || words[4].empty())
      return StateError(absl::StrCat(
          path, ": '", line,
          "' does not describe an executor; restore the file, or delete it: devices then get "
          "other ids"));
    x.device_kind = words[3];
    x.worker = words[4];
    next_device = x.first_device + x.num_devices;
    out.push_back(std::move(x));
  }
  return out;
}

}  // namespace

absl::StatusOr<LegacyFiles> ReadLegacyFiles(const std::string& folder) {
  LegacyFiles files;
  const std::string epoch = folder + kEpochFile, executors = folder + kExecutorsFile;
  if (Exists(epoch)) {
    TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(epoch));
    const absl::string_view word = absl::StripAsciiWhitespace(text);
    files.is_superseded = word == SupersededText();
    if (!files.is_superseded && !absl::SimpleAtoi(word, &files.starts))
      return StateError(
          absl::StrCat(epoch, " does not contain a number; restore it, or give another folder"));
    if (files.starts > core::kStartsMax)
      return StateError(absl::StrCat(epoch, " has counted ", files.starts, " starts, at most ",
                                     core::kStartsMax, " are allowed; give another folder"));
  }
  if (Exists(executors)) {
    TESSERA_ASSIGN_OR_RETURN(files.executors, ReadExecutors(executors));
  }
  return files;
}

absl::Status SupersedeEpochFile(const std::string& folder, const LegacyFiles& legacy) {
  if (legacy.is_superseded) return absl::OkStatus();
  return ReplaceFile(folder + kEpochFile, SupersededText() + "\n", /*is_private=*/true);
}

void RemoveExecutorsFile(const std::string& folder) { unlink((folder + kExecutorsFile).c_str()); }

}  // namespace tessera::server::store
