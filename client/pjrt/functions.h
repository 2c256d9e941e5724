// Declares the functions of the PJRT C API that the plugin has. Each is defined in the file of this
// folder that its subject belongs to.
//
// Each function returns null or an error, which the framework owns.
#pragma once
#include "client/pjrt/abi.h"

namespace tessera::pjrt {

#define TESSERA_PJRT(name) Error* name(name##_Args* args);
#define TESSERA_PJRT_ABSENT(name)
#include "client/pjrt/functions.def"
#undef TESSERA_PJRT
#undef TESSERA_PJRT_ABSENT

}  // namespace tessera::pjrt
