// The extension through which the Python package tessera_jax calls the plugin.
#pragma once
#include "client/pjrt/abi.h"

namespace tessera::pjrt {

extern const TesseraExtension kTessera;

}  // namespace tessera::pjrt
