#include "worker/cpu/dot.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace tessera::worker {
namespace {

using ir::Array;
using ir::Dims;

// Dims of an operand that act as one.
struct Group {
  int64_t size = 1, stride = 1;
};

// One size and stride that walks `dims` of a dense array in order, if there is one.
std::optional<Group> Merge(const Dims& shape, const Dims& strides, const Dims& dims) {
  Group group;
  bool first = true;
  for (auto it = dims.rbegin(); it != dims.rend(); ++it) {
    if (shape[*it] == 1) continue;
    if (first) {
      group = {shape[*it], strides[*it]};
      first = false;
    } else if (strides[*it] == group.size * group.stride) {
      group.size *= shape[*it];
    } else {
      return std::nullopt;
    }
  }
  return group;
}

// The dims that neither list names.
Dims Others(int rank, const Dims& a, const Dims& b) {
  Dims others;
  for (int64_t d = 0; d < rank; ++d) {
    if (std::count(a.begin(), a.end(), d) == 0 && std::count(b.begin(), b.end(), d) == 0) {
      others.push_back(d);
    }
  }
  return others;
}

// The array with its dims in `order`.
Array Transposed(const Array& x, const Dims& order) {
  const Dims strides = ir::StridesOf(x.shape());
  Dims shape, step;
  for (int64_t d : order) {
    shape.push_back(x.shape()[d]);
    step.push_back(strides[d]);
  }
  Array out(x.dtype(), shape);
  const int64_t width = ir::ByteWidth(x.dtype());
  const std::byte* from = x.data();
  std::byte* to = out.MutableData();
  Dims index(shape.size(), 0);
  int64_t offset = 0;
  for (int64_t i = 0; i < out.num_elements(); ++i) {
    std::memcpy(to + i * width, from + offset * width, width);
    for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
      offset += step[d];
      if (++index[d] < shape[d]) break;
      offset -= step[d] * shape[d];
      index[d] = 0;
    }
  }
  return out;
}

// An operand seen as batch x rows x columns.
struct Matrices {
  Array array;
  Group groups[3];
};

Matrices View(const Array& x, const Dims& batch, const Dims& rows, const Dims& columns) {
  const Dims strides = ir::StridesOf(x.shape());
  const std::optional<Group> merged[3] = {Merge(x.shape(), strides, batch),
                                          Merge(x.shape(), strides, rows),
                                          Merge(x.shape(), strides, columns)};
  if (merged[0] && merged[1] && merged[2] &&
      (merged[1]->stride == 1 || merged[2]->stride == 1 || merged[1]->size == 1 ||
       merged[2]->size == 1)) {
    Matrices view{x, {*merged[0], *merged[1], *merged[2]}};
    // oneDNN wants one of the two strides to be 1; of a dim of size 1 it may be anything.
    Group &r = view.groups[1], &c = view.groups[2];
    if (r.stride != 1 && c.stride != 1) (c.size == 1 ? c : r).stride = 1;
    if (c.size == 1 && r.stride != 1) c.stride = 1;
    const bool usable = (c.stride == 1 && r.stride >= c.size) ||
                        (r.stride == 1 && c.stride >= r.size) || (r.size == 1 || c.size == 1);
    if (usable) {
      if (r.size == 1 && c.stride == 1) r.stride = c.size;
      if (c.size == 1 && r.stride == 1 && r.size > 1) c.stride = r.size;
      return view;
    }
  }
  Dims order = batch;
  order.insert(order.end(), rows.begin(), rows.end());
  order.insert(order.end(), columns.begin(), columns.end());
  const auto product = [&](const Dims& dims) {
    int64_t size = 1;
    for (int64_t d : dims) size *= x.shape()[d];
    return size;
  };
  const int64_t b = product(batch), r = product(rows), c = product(columns);
  return {Transposed(x, order), {{b, r * c}, {r, c}, {c, 1}}};
}

}  // namespace

std::optional<Array> DotGeneral(OneDnnMatmul& matmul, const ir::Op& op, const ir::Type& out,
                                absl::Span<const Array> in) {
  const Array &lhs = in[0], &rhs = in[1];
  const bool known = (lhs.dtype() == ir::DType::kF32 && out.dtype == ir::DType::kF32) ||
                     (lhs.dtype() == ir::DType::kBF16 &&
                      (out.dtype == ir::DType::kBF16 || out.dtype == ir::DType::kF32));
  if (!known || rhs.dtype() != lhs.dtype() || lhs.num_elements() == 0 || rhs.num_elements() == 0) {
    return std::nullopt;
  }
  const Dims& lhs_batch = op.attrs.Ints("lhs_batching_dimensions");
  const Dims& rhs_batch = op.attrs.Ints("rhs_batching_dimensions");
  const Dims& lhs_contract = op.attrs.Ints("lhs_contracting_dimensions");
  const Dims& rhs_contract = op.attrs.Ints("rhs_contracting_dimensions");
  const Matrices a =
      View(lhs, lhs_batch, Others(lhs.rank(), lhs_batch, lhs_contract), lhs_contract);
  const Matrices b =
      View(rhs, rhs_batch, rhs_contract, Others(rhs.rank(), rhs_batch, rhs_contract));
  MatmulShape shape;
  shape.batch = a.groups[0].size;
  shape.m = a.groups[1].size;
  shape.k = a.groups[2].size;
  shape.n = b.groups[2].size;
  for (int i = 0; i < 3; ++i) {
    shape.a_strides[i] = a.groups[i].stride;
    shape.b_strides[i] = b.groups[i].stride;
  }
  shape.in = lhs.dtype();
  shape.out = out.dtype;
  // The stride of a single batch means nothing; one value makes equal shapes share a primitive.
  if (shape.batch == 1) {
    shape.a_strides[0] = shape.m * shape.k;
    shape.b_strides[0] = shape.k * shape.n;
  }
  Array result(out.dtype, out.shape);
  if (!matmul.Run(shape, a.array.data(), b.array.data(), result.MutableData())) {
    return std::nullopt;
  }
  return result;
}

}  // namespace tessera::worker
