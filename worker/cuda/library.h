// Shared libraries that are found at run time. They stay loaded for the life of the process, as
// NVIDIA's libraries require.
#pragma once
#include <atomic>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>

#include "worker/cuda/error.h"

namespace tessera::worker::cuda {

class Library {
 public:
  // Opens the first of `names` that can be opened, by the path of libraries or in the packages of
  // NVIDIA that pip has installed. If the environment variable `override_variable` is set, opens
  // only the file that it names. If none opens, the result is not ok(), and error() has the
  // reasons.
  static Library Open(const char* override_variable, std::initializer_list<const char*> names);

  // Returns whether the variable names a file.
  static bool IsOverridden(const char* override_variable);

  bool ok() const { return handle_ != nullptr; }
  const std::string& name() const { return name_; }
  const std::string& error() const { return error_; }

  // Returns null if there is no such symbol.
  template <class F>
  F Find(const char* symbol) const {
    return reinterpret_cast<F>(FindAddress(symbol));
  }

 private:
  void* FindAddress(const char* symbol) const;
  // Looks for the file in the packages of NVIDIA in the folders of Python's packages.
  void OpenInPackages(const char* name);

  void* handle_ = nullptr;
  std::string name_;
  std::string error_;
};

// A library's functions as a T. The first call of Get that succeeds loads them, once per process.
// They are kept until the process ends, because handles that are destroyed at its end still need
// them. Thread-safe.
template <class T, int (*kLoad)(T*)>
class LoadedOnce {
 public:
  int Get(const T** loaded) {
    if ((*loaded = get()) != nullptr) return TESSERA_OK;
    const std::lock_guard<std::mutex> lock(mutex_);
    if ((*loaded = get()) != nullptr) return TESSERA_OK;
    auto made = std::make_unique<T>();
    TESSERA_CUDA_TRY(kLoad(made.get()));
    *loaded = made.release();
    loaded_.store(*loaded, std::memory_order_release);
    return TESSERA_OK;
  }
  // Returns null before the first successful Get.
  const T* get() const { return loaded_.load(std::memory_order_acquire); }

 private:
  std::atomic<const T*> loaded_{nullptr};
  std::mutex mutex_;
};

// Returns "13.1.0" for 130100. NCCL and cuBLASLt number their versions in this way.
inline std::string VersionText(size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace tessera::worker::cuda
