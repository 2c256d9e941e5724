// The functions that the plugin has, in the folder's files by what they are about.
//
// Each returns null or an error that the framework owns.
#pragma once
#include "client/pjrt/abi.h"

namespace tessera::pjrt {

#define TESSERA_PJRT(name) Error* name(name##_Args* args);
#define TESSERA_PJRT_ABSENT(name)
#include "client/pjrt/functions.def"
#undef TESSERA_PJRT
#undef TESSERA_PJRT_ABSENT

}  // namespace tessera::pjrt
