// Handles of the fakes are never freed, so that use after destruction can be recognised.
#pragma once
#include <mutex>
#include <utility>
#include <vector>

namespace tessera::fakes {

// Returns a new T that is never destroyed. Thread-safe.
template <class T, class... Args>
T* KeepNew(Args&&... args) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<T*>;
  auto* const made = new T{std::forward<Args>(args)...};
  const std::lock_guard<std::mutex> lock(mutex);
  kept->push_back(made);
  return made;
}

}  // namespace tessera::fakes
