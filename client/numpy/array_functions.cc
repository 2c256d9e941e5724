// The members of Array that make a new array by an op: astype, reshape and T. Indexing, which is a
// member as well, is in indexing.cc.
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "client/apply/apply.h"
#include "client/apply/reshard.h"
#include "client/array.h"
#include "client/error.h"
#include "ir/ops.h"

namespace tessera {

Array Array::astype(DType dtype, Site site) const {
  return internal::Apply1("astype", site, {*this}, [&](ir::Builder&, std::vector<ir::Value> v) {
    // jax.numpy compares the number with zero; lax.convert_element_type ignores the imaginary part.
    if (ir::IsComplex(v[0].dtype()) && dtype == DType::kBool)
      return ir::Compare(v[0], ir::FullLike(v[0], 0), "NE");
    return ir::Convert(v[0], dtype);
  });
}

Array Array::reshape(Dims shape, Site site) const { return reshape(std::move(shape), {}, site); }
Array Array::reshape(Dims shape, const OutSharding& out_sharding, Site site) const {
  int64_t known = 1, holes = 0;
  for (int64_t d : shape) d == -1 ? void(++holes) : void(known *= d);
  if (holes > 1 || (holes == 1 && (known == 0 || size() % known != 0))) {
    internal::ThrowError(ErrorKind::kValueError, site, "reshape: cannot infer the -1 of shape (",
                         ir::DimsToString(shape), ") for ", type().ToString());
  }
  for (int64_t& d : shape) {
    if (d == -1) d = size() / known;
  }
  return internal::Apply1("reshape", site, {*this}, [&](ir::Builder&, std::vector<ir::Value> v) {
    if (!out_sharding) return ir::Reshape(v[0], shape);
    const PartitionSpec spec =
        internal::FitToRank("reshape", *out_sharding, static_cast<int>(shape.size()), site);
    return v[0].builder().Emit1(ir::ops::kReshape, {v[0]},
                                {{"shape", shape}, {"out_sharding", spec}});
  });
}

Array Array::T(Site site) const {
  std::vector<int64_t> order(rank());
  std::iota(order.rbegin(), order.rend(), 0);
  return internal::Apply1("transpose", site, {*this}, [&](ir::Builder&, std::vector<ir::Value> v) {
    return ir::Transpose(v[0], order);
  });
}

}  // namespace tessera
