#include "ir/dtype.h"

#include <array>

namespace tessera::ir {
namespace {

enum class Class { kBool, kSigned, kUnsigned, kFloat, kComplex };
struct Row {
  std::string_view name;
  int width;
  Class cls;
  bool computable;
};
constexpr std::array<Row, kNumDTypes> kRows = {{
    {"bool", 1, Class::kBool, true},
    {"s8", 1, Class::kSigned, false},
    {"s16", 2, Class::kSigned, false},
    {"s32", 4, Class::kSigned, true},
    {"s64", 8, Class::kSigned, true},
    {"u8", 1, Class::kUnsigned, false},
    {"u16", 2, Class::kUnsigned, false},
    {"u32", 4, Class::kUnsigned, true},
    {"u64", 8, Class::kUnsigned, false},
    {"f16", 2, Class::kFloat, false},
    {"bf16", 2, Class::kFloat, true},
    {"f32", 4, Class::kFloat, true},
    {"f64", 8, Class::kFloat, true},
    {"c64", 8, Class::kComplex, false},
    {"c128", 16, Class::kComplex, false},
    {"f8e4m3fn", 1, Class::kFloat, false},
    {"f8e5m2", 1, Class::kFloat, false},
}};
const Row& RowOf(DType dtype) { return kRows[static_cast<int>(dtype)]; }

}  // namespace

int64_t ByteWidth(DType dtype) { return RowOf(dtype).width; }
std::string_view DTypeName(DType dtype) { return RowOf(dtype).name; }
std::optional<DType> ParseDType(std::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i)
    if (kRows[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}
bool IsFloat(DType dtype) { return RowOf(dtype).cls == Class::kFloat; }
bool IsComplex(DType dtype) { return RowOf(dtype).cls == Class::kComplex; }
bool IsInexact(DType dtype) { return IsFloat(dtype) || IsComplex(dtype); }
bool IsSignedInt(DType dtype) { return RowOf(dtype).cls == Class::kSigned; }
bool IsUnsignedInt(DType dtype) { return RowOf(dtype).cls == Class::kUnsigned; }
bool IsInteger(DType dtype) { return IsSignedInt(dtype) || IsUnsignedInt(dtype); }
bool IsComputable(DType dtype) { return RowOf(dtype).computable; }

}  // namespace tessera::ir
