// Provides the table of the plugin by loading the plugin from its file, as a framework does.
#include <dlfcn.h>

#include "base/testing/datadriven.h"
#include "embed/testing/pjrt_framework.h"

namespace tessera::pjrt {

const Api& Table() {
  static const Api* const api = [] {
    void* const plugin = dlopen(SourcePath(TESSERA_PJRT_PLUGIN).c_str(), RTLD_LAZY | RTLD_LOCAL);
    EXPECT_NE(plugin, nullptr) << dlerror();
    return reinterpret_cast<const Api* (*)()>(dlsym(plugin, "GetPjrtApi"))();
  }();
  return *api;
}

}  // namespace tessera::pjrt
