// Keeps one layout for each rank. Compilation (executable.cc) and the layouts extension
// (layouts_extension.cc) take their layouts from here.
#include "client/pjrt/layouts.h"

#include <deque>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace tessera::pjrt {
namespace {

// The layouts of all ranks up to the highest that was asked for. They are in a deque, because the
// elements of a deque stay where they are when it grows.
struct Layouts {
  absl::Mutex mu;
  std::deque<Layout> by_rank ABSL_GUARDED_BY(mu);
};

}  // namespace

Layout* RowMajorLayout(size_t rank) {
  static auto* const layouts = new Layouts;
  absl::MutexLock lock(&layouts->mu);
  while (layouts->by_rank.size() <= rank) {
    std::string text = "{";
    for (size_t d = layouts->by_rank.size(); d > 0; --d)
      absl::StrAppend(&text, d - 1, d > 1 ? "," : "");
    layouts->by_rank.push_back({absl::StrCat(text, "}")});
  }
  return &layouts->by_rank[rank];
}

}  // namespace tessera::pjrt
