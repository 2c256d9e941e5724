// Converts the enums of ir to the enums of device_api.h. This is the only place that maps them.
#pragma once
#include "ir/collective.h"
#include "ir/dtype.h"
#include "worker/device/device_api.h"

namespace tessera::worker::device {

constexpr tessera_dtype ApiValue(ir::DType dtype) {
  switch (dtype) {
#define TESSERA_X(ir_name, api_name) \
  case ir::DType::ir_name:           \
    return api_name;
    TESSERA_X(kBool, TESSERA_BOOL)
    TESSERA_X(kS8, TESSERA_S8)
    TESSERA_X(kS16, TESSERA_S16)
    TESSERA_X(kS32, TESSERA_S32)
    TESSERA_X(kS64, TESSERA_S64)
    TESSERA_X(kU8, TESSERA_U8)
    TESSERA_X(kU16, TESSERA_U16)
    TESSERA_X(kU32, TESSERA_U32)
    TESSERA_X(kU64, TESSERA_U64)
    TESSERA_X(kF16, TESSERA_F16)
    TESSERA_X(kBF16, TESSERA_BF16)
    TESSERA_X(kF32, TESSERA_F32)
    TESSERA_X(kF64, TESSERA_F64)
    TESSERA_X(kC64, TESSERA_C64)
    TESSERA_X(kC128, TESSERA_C128)
    TESSERA_X(kF8E4M3FN, TESSERA_F8E4M3FN)
    TESSERA_X(kF8E5M2, TESSERA_F8E5M2)
#undef TESSERA_X
    // Step programs have no other dtypes: values of a dtype without kernels are held in a dtype
    // that has them.
    default:
      return -1;
  }
}

// No collective reduces by kNone, kArgMax or kArgMin. They become -1, which every plugin rejects.
constexpr tessera_reduce ApiValue(ir::ReduceKind reduce) {
  switch (reduce) {
    case ir::ReduceKind::kSum:
      return TESSERA_SUM;
    case ir::ReduceKind::kProd:
      return TESSERA_PROD;
    case ir::ReduceKind::kMax:
      return TESSERA_MAX;
    case ir::ReduceKind::kMin:
      return TESSERA_MIN;
    case ir::ReduceKind::kAnd:
      return TESSERA_AND;
    case ir::ReduceKind::kOr:
      return TESSERA_OR;
    case ir::ReduceKind::kNone:
    case ir::ReduceKind::kArgMax:
    case ir::ReduceKind::kArgMin:
      return -1;
  }
  return -1;
}

// Both enums have the order of base/collective_kinds.def. A plugin rejects unknown kinds.
constexpr tessera_collective_kind ApiValue(ir::CollectiveKind kind) {
  return static_cast<tessera_collective_kind>(kind);
}
static_assert(ApiValue(ir::CollectiveKind::kAllReduce) == TESSERA_ALL_REDUCE);
static_assert(ApiValue(ir::CollectiveKind::kAllGather) == TESSERA_ALL_GATHER);
static_assert(ApiValue(ir::CollectiveKind::kReduceScatter) == TESSERA_REDUCE_SCATTER);
static_assert(ApiValue(ir::CollectiveKind::kAllToAll) == TESSERA_ALL_TO_ALL);
static_assert(ApiValue(ir::CollectiveKind::kPermute) == TESSERA_PERMUTE);

}  // namespace tessera::worker::device
