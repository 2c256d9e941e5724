// The table that the framework looks up, and nothing else of the plugin is visible.
#include "client/pjrt/calls.h"
#include "client/pjrt/executable.h"
#include "client/pjrt/status.h"

namespace tessera::pjrt {
namespace {

Error* Absent(Header*) {
  return ErrorOf(MakeError(ErrorKind::kNotImplemented,
                           "this function of PJRT is not one that Tessera's plugin has"));
}

HostCallbackExtension host_callback_extension = {
    {sizeof(HostCallbackExtension), kHostCallbackExtension, nullptr},
    SetHostCallbacks,
};
ShardingsExtension shardings_extension = {
    {sizeof(ShardingsExtension), kShardingsExtension, &host_callback_extension},
    ParameterShardings,
    OutputShardings,
};

template <class Args>
AnyFunction Any(Error* (*f)(Args*)) {
  return reinterpret_cast<AnyFunction>(f);
}

const Api kApi = {
    {sizeof(Api), &shardings_extension},
    {{sizeof(ApiVersion), nullptr}, kMajor, kMinor},
    {
#define TESSERA_PJRT(name) Any(name),
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
