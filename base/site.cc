// Prints call sites for errors and plans, and keeps the file names that programs from clients bring
// along.
#include "base/site.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"

namespace tessera {

std::string Site::ToString() const {
  if (!valid()) return "";
  std::string_view name = file;
  if (const size_t slash = name.rfind('/'); slash != std::string_view::npos) {
    name.remove_prefix(slash + 1);
  }
  return absl::StrCat(ToAbsl(name), ":", line);
}

const char* InternFile(std::string_view file) {
  // Both objects are never freed, because sites may be printed while the process ends. The nodes of
  // a set never move, so the pointers stay valid.
  static absl::Mutex* const mu = new absl::Mutex;
  static auto* const files = new std::set<std::string, std::less<>>;
  absl::MutexLock lock(mu);
  const auto found = files->find(file);
  if (found != files->end()) return found->c_str();
  if (files->size() >= kInternedFilesMax) return "(another file)";
  return files->emplace(file).first->c_str();
}

}  // namespace tessera
