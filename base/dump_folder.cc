// Writes programs as text files when --dump names a folder. The planner and the backends call it
// after each of their stages with the program that the stage has made.
#include "base/dump_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/log.h"

namespace tessera {
namespace {

constexpr size_t kNameMax = 80;

// Returns the text as a file or folder name that cannot lead to another folder. This matters
// because the name of a stage may come from a jailed process, and the name of a program from a
// client.
std::string FileName(std::string_view text) {
  std::string name(text.substr(0, kNameMax));
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.') c = '_';
  if (name.empty() || name[0] == '.') name.insert(0, "_");
  return name;
}

}  // namespace

DumpFolder::DumpFolder(std::string path, Bounds bounds) : path_(std::move(path)), bounds_(bounds) {
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) LogFailure(path_, error.value());
}

void DumpFolder::LogFailure(const std::string& file, int error) {
  {
    absl::MutexLock lock(&mu_);
    if (std::exchange(failure_logged_, true)) return;
  }
  TESSERA_LOG(WARNING) << "a dump cannot be written; further failures are not logged"
                       << Field("file", file) << Field("why", std::strerror(error));
}

bool DumpFolder::TryReserve(const std::string& program, size_t bytes) {
  {
    absl::MutexLock lock(&mu_);
    const bool is_known = programs_.contains(program);
    if (!full_ && (is_known || programs_.size() < bounds_.programs) &&
        static_cast<int64_t>(bytes) <= bounds_.bytes - bytes_) {
      programs_.insert(program);
      bytes_ += static_cast<int64_t>(bytes);
      return true;
    }
    if (std::exchange(full_, true)) return false;
  }
  TESSERA_LOG(WARNING) << "the dumps of this process have reached their bound; it writes no more"
                       << Field("folder", path_) << Field("programs_max", bounds_.programs)
                       << Field("bytes_max", bounds_.bytes);
  return false;
}

// Writes outside the lock, because several programs are planned and compiled at the same time. Two
// processes may write the same file; each then replaces it as a whole.
void DumpFolder::Write(const std::string& program, int number, std::string_view stage,
                       std::string_view text) {
  if (!TryReserve(program, text.size())) return;
  const std::string folder = absl::StrCat(path_, "/", program);
  const std::string file =
      absl::StrCat(folder, "/", absl::StrFormat("%02d", number), "_", FileName(stage), ".txt");
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return LogFailure(folder, errno);
  const int error = TryReplaceFile(file, text, {.access = FileAccess::kOwner, .is_durable = false});
  if (error != 0) LogFailure(file, error);
}

ProgramDump::ProgramDump(DumpFolder* folder, std::string_view program)
    : folder_(folder != nullptr && folder->enabled() ? folder : nullptr),
      program_(FileName(program)) {}

void ProgramDump::Write(std::string_view stage, std::string_view text) {
  if (folder_ == nullptr || stages_ >= kStagesMax) return;
  folder_->Write(program_, ++stages_, stage, text);
}

}  // namespace tessera
