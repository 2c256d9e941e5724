// Layouts of values in memory, in the form in which the framework (such as JAX) asks for them. All
// values are row-major, so a layout depends on the rank only.
//
// Layouts are immutable and live as long as the process; there is one for each rank.
#pragma once
#include <cstddef>

#include "client/pjrt/abi.h"

namespace tessera::pjrt {

// Returns the layout of a value with `rank` dims.
Layout* RowMajor(size_t rank);

extern const LayoutsExtension kLayouts;

}  // namespace tessera::pjrt
