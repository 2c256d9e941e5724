#include "server/store/directory_store.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/secret.h"
#include "base/status.h"

namespace tessera::server::store {
namespace {

constexpr char kExecutorsFile[] = "/executors";
constexpr size_t kExecutorsBytesMax = 64 << 20;

absl::Status StateError(const std::string& why) {
  return MakeError(ErrorKind::kValueError, absl::StrCat("state_dir: ", why));
}

// The number of earlier starts of the coordinator.
absl::StatusOr<uint64_t> ReadStarts(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return 0;
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  uint64_t starts = 0;
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &starts))
    return StateError(absl::StrCat(path, " holds no number; restore it, or give another folder"));
  if (starts >= core::kStartsMax)
    return StateError(absl::StrCat(path, " has counted ", starts, " starts, at most ",
                                   core::kStartsMax, " are; give another folder"));
  return starts;
}

constexpr int64_t kDevicesMax = int64_t{1} << 32;  // ids; far beyond what is ever given

absl::StatusOr<std::vector<core::KnownExecutor>> ReadExecutors(const std::string& path) {
  std::error_code error;
  std::vector<core::KnownExecutor> out;
  if (!std::filesystem::exists(path, error) && !error) return out;
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kExecutorsBytesMax));
  int64_t next = 0;  // ids rise from line to line
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 4));
    core::KnownExecutor x;
    if (words.size() != 5 || !absl::SimpleAtoi(words[0], &x.first_device) ||
        !absl::SimpleAtoi(words[1], &x.num_devices) || !absl::SimpleAtoi(words[2], &x.index) ||
        x.num_devices < 1 || x.index < 0 || x.first_device < next ||
        x.first_device > kDevicesMax - x.num_devices || words[4].empty())
      return StateError(
          absl::StrCat(path, ": '", line,
                       "' is no executor; restore the file, or delete it: devices then get "
                       "other ids"));
    x.device_kind = words[3];
    x.worker = words[4];
    next = x.first_device + x.num_devices;
    out.push_back(std::move(x));
  }
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DirectoryStore>> DirectoryStore::Open(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string lock_file = folder + "/lock";
  UniqueFd lock(error ? -1
                      : open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.ok())
    return StateError(
        absl::StrCat("cannot use ", folder, ": ", error ? error.message() : std::strerror(errno)));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return StateError(absl::StrCat("another coordinator uses ", folder, "; give each its own"));
  const std::string epoch_file = folder + "/epoch";
  TESSERA_ASSIGN_OR_RETURN(const uint64_t starts, ReadStarts(epoch_file));
  TESSERA_ASSIGN_OR_RETURN(auto executors, ReadExecutors(folder + kExecutorsFile));
  TESSERA_RETURN_IF_ERROR(
      ReplaceFile(epoch_file, absl::StrCat(starts + 1, "\n"), /*is_private=*/true));
  return std::unique_ptr<DirectoryStore>(new DirectoryStore(
      folder, std::move(lock), core::LifeOfStart(starts + 1), std::move(executors)));
}

absl::Status DirectoryStore::KeepExecutors(const std::vector<core::KnownExecutor>& executors) {
  std::string text;
  for (const core::KnownExecutor& x : executors)
    absl::StrAppend(&text, x.first_device, " ", x.num_devices, " ", x.index, " ", x.device_kind,
                    " ", x.worker, "\n");
  return ReplaceFile(folder_ + kExecutorsFile, text, /*is_private=*/true);
}

}  // namespace tessera::server::store
