// The table of the element types that Tessera has, with their numbers in the PJRT C API. Buffers,
// executables and host callbacks of the plugin use it to tell the framework their types.
#include "client/pjrt/types.h"

#include <algorithm>
#include <iterator>

namespace tessera::pjrt {
namespace {

using ir::DType;

struct Row {
  int type;
  DType dtype;
};
// Source: PJRT_Buffer_Type.
constexpr Row kRows[] = {
    {1, DType::kBool},        {2, DType::kS8},          {3, DType::kS16},
    {4, DType::kS32},         {5, DType::kS64},         {6, DType::kU8},
    {7, DType::kU16},         {8, DType::kU32},         {9, DType::kU64},
    {10, DType::kF16},        {11, DType::kF32},        {12, DType::kF64},
    {13, DType::kBF16},       {14, DType::kC64},        {15, DType::kC128},
    {16, DType::kF8E5M2},     {17, DType::kF8E4M3FN},   {18, DType::kF8E4M3B11FNUZ},
    {19, DType::kF8E5M2FNUZ}, {20, DType::kF8E4M3FNUZ}, {21, DType::kS4},
    {22, DType::kU4},         {24, DType::kS2},         {25, DType::kU2},
    {26, DType::kF8E4M3},     {27, DType::kF8E3M4},     {28, DType::kF8E8M0FNU},
    {29, DType::kF4E2M1FN},
};
static_assert(std::size(kRows) == ir::kNumDTypes);

}  // namespace

std::optional<DType> DTypeOfPjrtType(int type) {
  const auto* const row = std::find_if(std::begin(kRows), std::end(kRows),
                                       [&](const Row& r) { return r.type == type; });
  if (row == std::end(kRows)) return std::nullopt;
  return row->dtype;
}

int PjrtTypeOfDType(DType dtype) {
  return std::find_if(std::begin(kRows), std::end(kRows),
                      [&](const Row& r) { return r.dtype == dtype; })
      ->type;
}

}  // namespace tessera::pjrt
