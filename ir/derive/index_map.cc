// Evaluates an index map by copying its pieces one after the other. It is the reference for the
// backends' copies and views, and the evaluator runs it where no hook does.
#include <algorithm>
#include <limits>

#include "base/log.h"
#include "ir/op_def.h"
#include "ir/strided.h"

namespace tessera::ir::derive {
namespace {

// The sum of the offsets at a point. `clamped` says whether an offset had to be clamped. An
// unsigned element of 2^63 or more counts as a large number, and not as a negative one.
struct Shift {
  int64_t sum = 0;
  bool clamped = false;
};
Shift ShiftAt(const std::vector<DynamicOffset>& shifts, const Dims& index,
              absl::Span<const Array> in) {
  Shift shift;
  for (const DynamicOffset& s : shifts) {
    int64_t at = s.offset;
    for (size_t d = 0; d < s.strides.size(); ++d) at += s.strides[d] * index[d];
    int64_t value = in[s.operand].IntAt(at);
    if (value < 0 && IsUnsignedInt(in[s.operand].dtype()))
      value = std::numeric_limits<int64_t>::max();
    const int64_t start = std::clamp<int64_t>(value, 0, s.max);
    shift.clamped |= start != value;
    shift.sum += s.stride * start;
  }
  return shift;
}

// Returns whether offset + sum(strides * j) is in [0, n) for every index j of `shape`.
bool Inside(int64_t offset, const Dims& strides, const Dims& shape, int64_t n) {
  int64_t low = offset, high = offset;
  for (size_t d = 0; d < shape.size(); ++d)
    (strides[d] < 0 ? low : high) += strides[d] * (shape[d] - 1);
  return low >= 0 && high < n;
}

// Returns the iota offset + sum(strides * j) as an array in which dims of stride 0 have size 1.
Array IotaArray(const IndexPiece& piece, DType dtype) {
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

// Copies one piece. It copies a box for each index of those dims along which the run-time offsets
// differ, since within a box the copy is strided. All bounds are checked, because the offsets come
// from the data.
void CopyPiece(const IndexPiece& piece, const Array& from, int64_t offset, const Dims& strides,
               const Array* fill, absl::Span<const Array> in, Array* out) {
  const Dims dense = StridesOf(out->shape());
  Dims index(piece.shape.size(), 0);
  int64_t at = ShiftAt(piece.write, index, in).sum;
  Dims steps;
  for (int d = 0; d < out->rank(); ++d) {
    at += piece.start[d] * dense[d];
    steps.push_back(piece.step[d] * dense[d]);
  }
  TESSERA_CHECK(Inside(at, steps, piece.shape, out->num_elements()))
      << "an index map leaves its result";
  Dims box = piece.shape;
  for (const DynamicOffset& s : piece.read) {
    if (s.strides.empty()) continue;
    TESSERA_CHECK(Inside(s.offset, s.strides, piece.shape, in[s.operand].num_elements()))
        << "an index map leaves its indices";
    for (size_t d = 0; d < box.size(); ++d)
      if (s.strides[d] != 0) box[d] = 1;
  }
  const int64_t width = ByteWidth(out->dtype());
  std::byte* const to = out->MutableData();
  const Dims zeros(box.size(), 0);
  bool has_next = true;
  while (has_next) {
    const Shift shift = ShiftAt(piece.read, index, in);
    int64_t source = offset + shift.sum, target = at;
    for (size_t d = 0; d < box.size(); ++d) {
      source += strides[d] * index[d];
      target += steps[d] * index[d];
    }
    if (fill != nullptr && shift.clamped) {
      CopyStrided(width, box, fill->data(), zeros, to + target * width, steps);
    } else {
      TESSERA_CHECK(Inside(source, strides, box, from.num_elements()))
          << "an index map leaves its operand";
      CopyStrided(width, box, from.data() + source * width, strides, to + target * width, steps);
    }
    has_next = false;
    for (size_t d = box.size(); d-- > 0 && !has_next;) {
      if (box[d] == piece.shape[d]) continue;
      has_next = ++index[d] < piece.shape[d];
      if (!has_next) index[d] = 0;
    }
  }
}

}  // namespace

std::optional<IndexPiece> PadPiece(const Dims& from, const Dims& to, const Dims& low,
                                   const Dims& interior) {
  IndexPiece piece;
  piece.source = 0;
  piece.strides = StridesOf(from);
  for (size_t d = 0; d < from.size(); ++d) {
    const int64_t stride = from[d] <= 1 ? 1 : interior[d] + 1;
    // The elements first .. last go to the indices low + i * stride, within the result.
    const int64_t first = low[d] >= 0 ? 0 : (-low[d] + stride - 1) / stride;
    const int64_t room = to[d] - 1 - low[d];
    const int64_t last = room < 0 ? -1 : std::min(from[d] - 1, room / stride);
    if (last < first) return std::nullopt;
    piece.offset += first * piece.strides[d];
    piece.start.push_back(low[d] + first * stride);
    piece.step.push_back(stride);
    piece.shape.push_back(last - first + 1);
  }
  return piece;
}

namespace {

// Evaluates the map on arrays of the real and imaginary parts, which have one more dim than the
// complex ones.
std::vector<Array> EvalOnParts(const EvalContext& c, const IndexMap& map,
                               absl::Span<const Array> in) {
  const auto parts_type = [](const Type& t) {
    if (!IsComplex(t.dtype)) return t;
    Type parts = MakeType(PartDType(t.dtype), t.shape);
    parts.shape.push_back(2);
    return parts;
  };
  std::vector<Array> parts;
  for (const Array& a : in) {
    const Type t = parts_type(MakeType(a.dtype(), a.shape()));
    parts.emplace_back(t.dtype, t.shape, a.bytes());
  }
  const Type& type = c.out_types[0];
  const Type written = parts_type(type);
  Array out(written.dtype, written.shape);
  for (const IndexPiece& piece : map.pieces) {
    if (std::count(piece.shape.begin(), piece.shape.end(), 0) > 0) continue;
    CopyPiece(piece, parts[piece.source], piece.offset, piece.strides, /*fill=*/nullptr, parts,
              &out);
  }
  return {Array(type.dtype, type.shape, out.bytes())};
}

}  // namespace

// Builds the result piece by piece. If the first piece is the whole of its source, the result
// shares the source's bytes, so that reshapes and constants copy nothing. Only a map without such a
// piece allocates first.
absl::StatusOr<std::vector<Array>> EvalIndexMap(const EvalContext& c, absl::Span<const Array> in) {
  std::vector<Type> types;
  for (const Array& a : in) types.push_back(MakeType(a.dtype(), a.shape()));
  const IndexMap map = c.def.index_map({c.def, c.scope, types, c.attrs, c.regions}, c.out_types);
  if (map.indexes_complex_parts) return EvalOnParts(c, map, in);
  const Type& type = c.out_types[0];
  std::optional<Array> out;
  for (const IndexPiece& piece : map.pieces) {
    const bool is_iota = piece.source == IndexPiece::kIota;
    if (!is_iota && !out && IsWhole(piece, type)) {
      const Array& from = piece.source == IndexPiece::kLiteral ? *map.literal : in[piece.source];
      // The result shares the bytes of its source.
      if (from.num_elements() == type.num_elements()) {
        out = from.Reshaped(type.shape);
        continue;
      }
    }
    if (!out) out.emplace(type.dtype, type.shape);
    if (std::count(piece.shape.begin(), piece.shape.end(), 0) > 0) continue;
    if (is_iota) {
      const Array values = IotaArray(piece, type.dtype);
      Dims strides = StridesOf(values.shape());
      for (size_t d = 0; d < strides.size(); ++d)
        if (piece.strides[d] == 0) strides[d] = 0;
      CopyPiece(piece, values, 0, strides, /*fill=*/nullptr, in, &*out);
    } else {
      const Array& from = piece.source == IndexPiece::kLiteral ? *map.literal : in[piece.source];
      const Array* const fill = piece.fills ? &*map.literal : nullptr;
      CopyPiece(piece, from, piece.offset, piece.strides, fill, in, &*out);
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
