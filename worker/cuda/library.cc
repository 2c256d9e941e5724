// Opens shared libraries and finds symbols in them. driver.cc, comm.cc and matmul.cc open NVIDIA's
// libraries by it, so that the plugin itself needs none of them to be loaded.
#include "worker/cuda/library.h"

#include <dlfcn.h>

#include <cstdlib>
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
    if (library.handle_ != nullptr) {
      library.name_ = name;
      return library;
    }
    const char* why = dlerror();
    if (!library.error_.empty()) library.error_ += "; ";
    library.error_ += why != nullptr ? why : name;
  }
  return library;
}

void* Library::FindAddress(const char* symbol) const { return dlsym(handle_, symbol); }

}  // namespace tessera::worker::cuda
