// Opens shared libraries and finds symbols in them. driver.cc, comm.cc and matmul.cc open NVIDIA's
// libraries by it, so that the plugin itself needs none of them to be loaded.
#include "worker/cuda/library.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <vector>

namespace tessera::worker::cuda {

bool Library::IsOverridden(const char* override_variable) {
  const char* given = getenv(override_variable);
  return given != nullptr && *given != '\0';
}

Library Library::Open(const char* override_variable, std::initializer_list<const char*> names) {
  std::vector<const char*> candidates(names);
  if (IsOverridden(override_variable)) candidates = {getenv(override_variable)};
  Library library;
  for (const char* name : candidates) {
    library.handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    library.name_ = name;
    const char* const why = library.handle_ == nullptr ? dlerror() : nullptr;
    const bool is_path = strchr(name, '/') != nullptr;
    if (library.handle_ == nullptr && !is_path) library.OpenInPackages(name);
    if (library.handle_ != nullptr) return library;
    if (!library.error_.empty()) library.error_ += "; ";
    library.error_ += why != nullptr ? why : name;
  }
  return library;
}

// The wheels of CUDA 12 put each library into a folder of its own (nvidia/nccl/lib), and those of
// CUDA 13 put most of them into one (nvidia/cu13/lib).
void Library::OpenInPackages(const char* name) {
  std::string folders;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* folder = getenv(variable); folder != nullptr && *folder != '\0')
      folders += std::string(folder) + "/lib/python3*/site-packages\n";
  if (const char* home = getenv("HOME"); home != nullptr && *home != '\0')
    folders += std::string(home) + "/.local/lib/python3*/site-packages\n";
  folders += "/usr/local/lib/python3*/dist-packages\n/usr/local/lib/python3*/site-packages\n";
  std::istringstream lines(folders);
  for (std::string folder; handle_ == nullptr && std::getline(lines, folder);) {
    glob_t found = {};
    if (glob((folder + "/nvidia/*/lib/" + name).c_str(), 0, nullptr, &found) == 0) {
      for (size_t i = 0; handle_ == nullptr && i < found.gl_pathc; ++i) {
        handle_ = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
        if (handle_ != nullptr) name_ = found.gl_pathv[i];
      }
    }
    globfree(&found);
  }
}

void* Library::FindAddress(const char* symbol) const { return dlsym(handle_, symbol); }

}  // namespace tessera::worker::cuda
