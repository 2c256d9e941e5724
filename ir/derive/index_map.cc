// Evaluates an index map: copies its pieces one after the other.
#include <algorithm>

#include "base/log.h"
#include "ir/op_def.h"
#include "ir/strided.h"

namespace tessera::ir::derive {
namespace {

// The operand's offset, clamped; a value beyond 2^63 counts as large.
int64_t StartOf(const DynamicOffset& shift, absl::Span<const Array> in) {
  const Array& at = in[shift.operand];
  int64_t value = at.IntAt(0);
  if (value < 0 && IsUnsignedInt(at.dtype())) value = shift.max;
  return std::clamp<int64_t>(value, 0, shift.max);
}

int64_t Sum(const std::vector<DynamicOffset>& shifts, absl::Span<const Array> in) {
  int64_t sum = 0;
  for (const DynamicOffset& s : shifts) sum += s.stride * StartOf(s, in);
  return sum;
}

// Whether offset + sum(strides * j) is in [0, n) for every index j of `shape`.
bool Inside(int64_t offset, const Dims& strides, const Dims& shape, int64_t n) {
  int64_t low = offset, high = offset;
  for (size_t d = 0; d < shape.size(); ++d)
    (strides[d] < 0 ? low : high) += strides[d] * (shape[d] - 1);
  return low >= 0 && high < n;
}

// The iota offset + sum(strides * j), as an array in which dims of stride 0 have size 1.
Array Numbers(const IndexPiece& piece, DType dtype) {
  Dims shape = piece.shape;
  for (size_t d = 0; d < shape.size(); ++d)
    if (piece.strides[d] == 0) shape[d] = 1;
  Array out(dtype, shape);
  Dims index(shape.size(), 0);
  int64_t number = piece.offset;
  for (int64_t i = 0; i < out.num_elements(); ++i) {
    out.Set(i, static_cast<double>(number));
    for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
      number += piece.strides[d];
      if (++index[d] < shape[d]) break;
      number -= piece.strides[d] * shape[d];
      index[d] = 0;
    }
  }
  return out;
}

void Copy(const IndexPiece& piece, const Array& from, int64_t offset, const Dims& strides,
          absl::Span<const Array> in, Array* out) {
  const Dims dense = StridesOf(out->shape());
  int64_t at = Sum(piece.write, in);
  Dims steps;
  for (int d = 0; d < out->rank(); ++d) {
    at += piece.start[d] * dense[d];
    steps.push_back(piece.step[d] * dense[d]);
  }
  TESSERA_CHECK(Inside(offset, strides, piece.shape, from.num_elements()) &&
                Inside(at, steps, piece.shape, out->num_elements()))
      << "an index map leaves its operand";
  const int64_t width = ByteWidth(out->dtype());
  CopyStrided(width, piece.shape, from.data() + offset * width, strides,
              out->MutableData() + at * width, steps);
}

}  // namespace

absl::StatusOr<std::vector<Array>> EvalIndexMap(const EvalContext& c, absl::Span<const Array> in) {
  std::vector<Type> types;
  for (const Array& a : in) types.push_back(MakeType(a.dtype(), a.shape()));
  const IndexMap map = c.def.index_map({c.def, c.scope, types, c.attrs, c.regions}, c.out_types);
  const Type& type = c.out_types[0];
  std::optional<Array> out;
  for (const IndexPiece& piece : map.pieces) {
    const bool numbers = piece.source == IndexPiece::kIota;
    if (!numbers && !out && IsWhole(piece, type)) {
      const Array& from = piece.source == IndexPiece::kLiteral ? *map.literal : in[piece.source];
      if (from.num_elements() == type.num_elements()) {  // Shares the bytes.
        out = from.Reshaped(type.shape);
        continue;
      }
    }
    if (!out) out.emplace(type.dtype, type.shape);
    if (std::count(piece.shape.begin(), piece.shape.end(), 0) > 0) continue;
    if (numbers) {
      const Array values = Numbers(piece, type.dtype);
      Dims strides = StridesOf(values.shape());
      for (size_t d = 0; d < strides.size(); ++d)
        if (piece.strides[d] == 0) strides[d] = 0;
      Copy(piece, values, 0, strides, in, &*out);
    } else {
      const Array& from = piece.source == IndexPiece::kLiteral ? *map.literal : in[piece.source];
      Copy(piece, from, piece.offset + Sum(piece.read, in), piece.strides, in, &*out);
    }
  }
  if (!out) out.emplace(type.dtype, type.shape);
  return std::vector<Array>{*std::move(out)};
}

}  // namespace tessera::ir::derive

namespace tessera::ir {

bool IsWhole(const IndexPiece& piece, const Type& out) {
  if (piece.offset != 0 || piece.shape != out.shape || !piece.read.empty() || !piece.write.empty())
    return false;
  const Dims dense = StridesOf(out.shape);
  for (int d = 0; d < out.rank(); ++d)
    if (out.shape[d] > 1 &&
        (piece.start[d] != 0 || piece.step[d] != 1 || piece.strides[d] != dense[d]))
      return false;
  return true;
}

}  // namespace tessera::ir
