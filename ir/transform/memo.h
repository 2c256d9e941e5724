// Keeps the results of transforms for as long as the outermost transform on this thread runs. The
// rules of loops transform their bodies several times, until the set of active or batched carries
// no longer grows. Without the kept results, a nest of loops would take a time exponential in its
// depth. Internal to ir/.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"

namespace tessera::ir::walk {

// A scope in which results are kept. At the end of the outermost scope of a thread they are
// forgotten.
class MemoScope {
 public:
  MemoScope() { ++depth(); }
  ~MemoScope() {
    if (--depth() > 0) return;
    for (void (*clear)() : std::exchange(clearers(), {})) clear();
  }
  MemoScope(const MemoScope&) = delete;
  MemoScope& operator=(const MemoScope&) = delete;

  // Registers `clear`, which is called at the end of the outermost scope.
  static void AtEnd(void (*clear)()) { clearers().push_back(clear); }

 private:
  static int& depth() {
    thread_local int depth = 0;
    return depth;
  }
  static std::vector<void (*)()>& clearers() {
    thread_local std::vector<void (*)()> clearers;
    return clearers;
  }
};

// Returns the result of a transform for (f, key): the kept one, or else the one that `compute`, ()
// -> absl::StatusOr<Result>, makes. `Tag` distinguishes transforms whose types are equal. Errors
// are not kept, nor are results for a function that no FunctionRef owns.
template <class Tag, class Result, class Key, class Compute>
absl::StatusOr<Result> Memoized(const Function& f, const Key& key, Compute compute) {
  using Kept = std::map<std::pair<const Function*, Key>, std::pair<FunctionRef, Result>>;
  thread_local Kept kept;
  const MemoScope scope;
  FunctionRef owner = f.weak_from_this().lock();
  if (owner == nullptr) return compute();
  if (const auto known = kept.find({&f, key}); known != kept.end()) return known->second.second;
  absl::StatusOr<Result> result = compute();
  if (!result.ok()) return result;
  if (kept.empty()) MemoScope::AtEnd([] { kept.clear(); });
  kept.try_emplace({&f, key}, std::move(owner), *result);
  return result;
}

}  // namespace tessera::ir::walk
