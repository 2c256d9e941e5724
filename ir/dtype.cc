// Answers questions about dtypes from the rows of dtypes.def. Every layer asks here instead of
// switching on the dtype.
#include "ir/dtype.h"

#include <array>

namespace tessera::ir {
namespace {

enum class DTypeClass { kBool, kSigned, kUnsigned, kFloat, kComplex };
struct Row {
  std::string_view name;
  int bits;
  DTypeClass cls;
  bool computable;
};
constexpr std::array<Row, kNumDTypes> kRows = {{
#define TESSERA_COMPUTED(symbol, name, cls, bits, ...) {name, bits, DTypeClass::cls, true},
#define TESSERA_STORED(symbol, name, cls, bits, ...) {name, bits, DTypeClass::cls, false},
#include "ir/dtypes.def"
#undef TESSERA_COMPUTED
#undef TESSERA_STORED
}};
static_assert(!kRows.back().name.empty(), "kNumDTypes counts the rows of dtypes.def");
const Row& RowOf(DType dtype) { return kRows[static_cast<int>(dtype)]; }

}  // namespace

int64_t ByteWidth(DType dtype) { return (RowOf(dtype).bits + 7) / 8; }
int BitWidth(DType dtype) { return RowOf(dtype).bits; }
std::string_view DTypeName(DType dtype) { return RowOf(dtype).name; }
std::optional<DType> ParseDType(std::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i)
    if (kRows[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}
bool IsFloat(DType dtype) { return RowOf(dtype).cls == DTypeClass::kFloat; }
bool IsComplex(DType dtype) { return RowOf(dtype).cls == DTypeClass::kComplex; }
DType PartDType(DType dtype) { return dtype == DType::kC64 ? DType::kF32 : DType::kF64; }
bool IsInexact(DType dtype) { return IsFloat(dtype) || IsComplex(dtype); }
bool IsSignedInt(DType dtype) { return RowOf(dtype).cls == DTypeClass::kSigned; }
bool IsUnsignedInt(DType dtype) { return RowOf(dtype).cls == DTypeClass::kUnsigned; }
bool IsInteger(DType dtype) { return IsSignedInt(dtype) || IsUnsignedInt(dtype); }
bool IsComputable(DType dtype) { return RowOf(dtype).computable; }
DType ComputeDType(DType dtype) {
  return IsFloat(dtype) && BitWidth(dtype) < 32 ? DType::kF32 : dtype;
}

}  // namespace tessera::ir
