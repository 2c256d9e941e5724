// Translates between dtypes and the numbers of element types in the PJRT C API. Stateless;
// thread-safe.
#pragma once
#include <optional>

#include "ir/dtype.h"

namespace tessera::pjrt {

inline constexpr int kTokenType = 23;

// Returns nullopt if Tessera has no such type.
std::optional<ir::DType> DTypeOfPjrtType(int type);
int PjrtTypeOfDType(ir::DType dtype);

}  // namespace tessera::pjrt
