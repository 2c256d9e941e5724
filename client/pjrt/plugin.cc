// The function table of the plugin. The framework loads the plugin's library and looks up
// GetPjrtApi, which returns the table; no other symbol of the plugin is visible (exports.map).
#include <cstring>

#include "client/pjrt/executable.h"
#include "client/pjrt/layouts_extension.h"
#include "client/pjrt/status.h"
#include "client/pjrt/tessera_extension.h"

namespace tessera::pjrt {
namespace {

Error* Absent(Header*) {
  return ErrorOf(MakeError(ErrorKind::kNotImplemented,
                           "Tessera's plugin does not implement this function of PJRT"));
}

TesseraExtension tessera_extension = kTessera;
LayoutsExtension layouts_extension = [] {
  LayoutsExtension extension = kLayouts;
  extension.next = &tessera_extension;
  return extension;
}();
ShardingsExtension shardings_extension = {
    {sizeof(ShardingsExtension), kShardingsExtension, &layouts_extension},
    ParameterShardings,
    OutputShardings,
};

// Adapts a function for callers of any version. If the caller's struct has fewer fields than ours,
// the function sees zeros in the missing fields, and what it writes there is lost.
template <class Args, Error* (*kFunction)(Args*)>
Error* CallSized(Args* args) {
  const size_t size = args->struct_size;
  if (size >= sizeof(Args)) return kFunction(args);
  Args all_fields;
  std::memset(static_cast<void*>(&all_fields), 0, sizeof(all_fields));
  std::memcpy(static_cast<void*>(&all_fields), static_cast<const void*>(args), size);
  Error* const error = kFunction(&all_fields);
  std::memcpy(static_cast<void*>(args), static_cast<const void*>(&all_fields), size);
  return error;
}

const Api kApi = {
    {sizeof(Api), &shardings_extension},
    {{sizeof(ApiVersion), nullptr}, kMajor, kMinor},
    {
#define TESSERA_PJRT(name) reinterpret_cast<AnyFunction>(CallSized<name##_Args, name>),
#define TESSERA_PJRT_ABSENT(name) Absent,
#include "client/pjrt/functions.def"
#undef TESSERA_PJRT
#undef TESSERA_PJRT_ABSENT
    },
};

}  // namespace
}  // namespace tessera::pjrt

extern "C" __attribute__((visibility("default"))) const tessera::pjrt::Api* GetPjrtApi() {
  return &tessera::pjrt::kApi;
}
