// The layouts extension of the PJRT C API, through which the framework (such as JAX) asks for the
// layouts of buffers, arguments and results.
#pragma once
#include "client/pjrt/abi.h"

namespace tessera::pjrt {

extern const LayoutsExtension kLayouts;

}  // namespace tessera::pjrt
