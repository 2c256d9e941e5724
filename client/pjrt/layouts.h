// Layouts of values in memory, in the form in which the framework (such as JAX) asks for them. All
// values are row-major, so a layout depends on the rank only.
//
// Layouts are immutable and live as long as the process; there is one for each rank.
#pragma once
#include <cstddef>
#include <string>

#include "client/pjrt/abi.h"

namespace tessera::pjrt {

struct Layout {
  std::string text;  // the dims from the innermost to the outermost, as "{1,0}"
};

// Returns the layout of a value with `rank` dims.
Layout* RowMajorLayout(size_t rank);

}  // namespace tessera::pjrt
