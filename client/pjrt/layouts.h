// Layouts as the framework asks for them. All values are row-major: a layout tells its rank.
//
// Immutable, and one for each rank: nobody owns them.
#pragma once
#include <cstddef>

#include "client/pjrt/abi.h"

namespace tessera::pjrt {

// Of a value with so many dims.
Layout* RowMajor(size_t rank);

extern const LayoutsExtension kLayouts;

}  // namespace tessera::pjrt
