// Evaluates a contraction: adds up the products that its map names. It is the reference for the
// matmuls and kernels of the backends, and the evaluator runs it where no hook does.
#include <algorithm>
#include <cstring>

#include "ir/convert.h"
#include "ir/element.h"
#include "ir/op_def.h"
#include "ir/strided.h"

namespace tessera::ir {

Dims PaddedShape(const ContractionMap& map, const Dims& shape) {
  Dims padded = shape;
  for (size_t d = 0; d < map.low.size(); ++d)
    padded[d] += map.low[d] + map.high[d] + std::max<int64_t>(shape[d] - 1, 0) * map.interior[d];
  return padded;
}

namespace derive {
namespace {

using Strides = absl::Span<const int64_t>;
using Offsets = std::vector<int64_t>;

// Returns, for each index below `sizes` in row-major order, the offset of its element in the flat
// array.
Offsets OffsetsOf(const Dims& sizes, Strides strides) {
  Offsets offsets = {0};
  for (size_t d = sizes.size(); d-- > 0;) {
    Offsets outer;
    outer.reserve(offsets.size() * static_cast<size_t>(std::max<int64_t>(sizes[d], 0)));
    for (int64_t i = 0; i < sizes[d]; ++i)
      for (const int64_t inner : offsets) outer.push_back(i * strides[d] + inner);
    offsets = std::move(outer);
  }
  return offsets;
}

// The offsets of the elements of a, b and c. The element of a at (b, m, k) is at a_batch[b] +
// a_m[m] + a_k[k], and so on.
struct ElementOffsets {
  Offsets a_batch, a_m, a_k, b_batch, b_k, b_n, c_batch, c_m, c_n;

  explicit ElementOffsets(const ContractionMap& map) {
    const size_t nb = map.batch.size(), nm = map.m.size(), nn = map.n.size(), nk = map.k.size();
    const Strides a = map.a_strides, b = map.b_strides, c = map.c_strides;
    a_batch = OffsetsOf(map.batch, a.first(nb));
    a_m = OffsetsOf(map.m, a.subspan(nb, nm));
    a_k = OffsetsOf(map.k, a.subspan(nb + nm));
    b_batch = OffsetsOf(map.batch, b.first(nb));
    b_k = OffsetsOf(map.k, b.subspan(nb, nk));
    b_n = OffsetsOf(map.n, b.subspan(nb + nk));
    c_batch = OffsetsOf(map.batch, c.first(nb));
    c_m = OffsetsOf(map.m, c.subspan(nb, nm));
    c_n = OffsetsOf(map.n, c.subspan(nb + nm, nn));
  }
};

// Computes four rows of the result at a time, so that they share each row of b.
template <class Acc, class In, class Store>
void Multiply(const ElementOffsets& offsets, const In* a, const In* b, Store store) {
  constexpr size_t kRows = 4;
  const size_t m = offsets.a_m.size(), n = offsets.b_n.size(), num_k = offsets.a_k.size();
  std::vector<Acc> sums(kRows * n), row(n);
  // The start of a sum. A single product is not a sum: starting from 0 would turn -0 into 0.
  const Acc initial = num_k == 1 ? -Acc{} : Acc{};
  for (size_t batch = 0; batch < offsets.a_batch.size(); ++batch) {
    for (size_t i = 0; i < m; i += kRows) {
      const size_t rows = std::min(kRows, m - i);
      std::fill(sums.begin(), sums.end(), initial);
      for (size_t k = 0; k < num_k; ++k) {
        const In* const first = b + offsets.b_batch[batch] + offsets.b_k[k];
        for (size_t j = 0; j < n; ++j) row[j] = static_cast<Acc>(first[offsets.b_n[j]]);
        for (size_t r = 0; r < rows; ++r) {
          const Acc x =
              static_cast<Acc>(a[offsets.a_batch[batch] + offsets.a_m[i + r] + offsets.a_k[k]]);
          Acc* const to = sums.data() + r * n;
          for (size_t j = 0; j < n; ++j) to[j] += x * row[j];
        }
      }
      for (size_t r = 0; r < rows; ++r)
        for (size_t j = 0; j < n; ++j)
          store(offsets.c_batch[batch] + offsets.c_m[i + r] + offsets.c_n[j], sums[r * n + j]);
    }
  }
}

// Returns the operand in the dtype that elements are computed in, with the zeros that the map
// inserts.
Array Prepared(const ContractionMap& map, int operand, const Array& x) {
  Array wide = ConvertArray(x, ComputeDType(x.dtype()));
  if (operand != 0 || map.low.empty()) return wide;
  const Dims shape = PaddedShape(map, wide.shape());
  Array padded(wide.dtype(), shape);
  const std::optional<IndexPiece> piece = PadPiece(wide.shape(), shape, map.low, map.interior);
  if (!piece) return padded;
  Dims steps = StridesOf(shape);
  int64_t write = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    write += piece->start[d] * steps[d];
    steps[d] *= piece->step[d];
  }
  const int64_t width = ByteWidth(wide.dtype());
  CopyStrided(width, piece->shape, wide.data() + piece->offset * width, piece->strides,
              padded.MutableData() + write * width, steps);
  return padded;
}

}  // namespace

// Evaluates any contraction by its index map, for the reference evaluator. Floats are added up in
// f64 and rounded once, which is the most exact answer that a backend can be compared with.
// Integers are added up in u64, because a sum modulo a power of two does not depend on the order.
absl::StatusOr<std::vector<Array>> EvalContraction(const EvalContext& c,
                                                   absl::Span<const Array> in) {
  std::vector<Type> types;
  for (const Array& x : in) types.push_back(MakeType(x.dtype(), x.shape()));
  const ContractionMap map =
      c.def.contraction_map({c.def, c.scope, types, c.attrs, c.regions}, c.out_types);
  Array out(c.out_types[0].dtype, c.out_types[0].shape);
  if (out.num_elements() == 0) return std::vector<Array>{out};
  const ElementOffsets offsets(map);
  const Array x = Prepared(map, map.a, in[map.a]), y = Prepared(map, 1 - map.a, in[1 - map.a]);
  const int64_t width = ByteWidth(out.dtype());
  std::byte* const to = out.MutableData();
  VisitDType(x.dtype(), [&]<DType kD>(DTypeTag<kD>) {
    using T = ComputeType<kD>;
    if constexpr (std::is_floating_point_v<T> && sizeof(StorageType<kD>) == sizeof(T)) {
      Multiply<double>(offsets, x.As<T>().data(), y.As<T>().data(),
                       [&](int64_t i, double v) { out.Set(i, v); });
    } else if constexpr (kIsComputable<kD> && std::is_integral_v<T> && kD != DType::kBool) {
      // The low `width` bytes of the sum come first in memory. They are the sum modulo 2^(8 *
      // width).
      Multiply<uint64_t>(offsets, x.As<T>().data(), y.As<T>().data(),
                         [&](int64_t i, uint64_t v) { std::memcpy(to + i * width, &v, width); });
    }
  });
  return std::vector<Array>{out};
}

}  // namespace derive
}  // namespace tessera::ir
