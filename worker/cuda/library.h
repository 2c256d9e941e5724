// A shared library found at run time. It stays loaded for the life of the process, as NVIDIA's
// libraries want it. A plain value; any thread.
#pragma once
#include <initializer_list>
#include <string>

namespace tessera::worker::cuda {

class Library {
 public:
  // The first of `names` that opens or, if the environment variable `override_variable` is set,
  // the file that it names and no other. Not ok() if none opens: error() says why.
  static Library Open(const char* override_variable, std::initializer_list<const char*> names);

  // Whether the variable names a file.
  static bool IsOverridden(const char* override_variable);

  bool ok() const { return handle_ != nullptr; }
  const std::string& name() const { return name_; }
  const std::string& error() const { return error_; }

  // Null if it has no such symbol.
  template <class F>
  F Find(const char* symbol) const {
    return reinterpret_cast<F>(FindAddress(symbol));
  }

 private:
  void* FindAddress(const char* symbol) const;

  void* handle_ = nullptr;
  std::string name_;
  std::string error_;
};

}  // namespace tessera::worker::cuda
