// Indexing as in numpy and jax.numpy. x[i] and x[{i, Slice{1, 5}, None, ids}] read.
// x.at({...}).set(v) and its kin return x with some elements changed.
//
// Numbers and slices must be within the bounds that numpy allows. Arrays of integers may hold any
// numbers; a negative entry counts from the end, once. A read out of bounds gives the nearest
// element; an update out of bounds is dropped. All throw tessera::Error.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "client/array.h"
#include "client/mesh.h"

namespace tessera {

// start:stop:step. A bound that is left out reaches to the end.
struct Slice {
  std::optional<int64_t> start = std::nullopt, stop = std::nullopt;
  int64_t step = 1;
};
// Stands for as many whole dims as are left.
struct Ellipsis {};
inline constexpr Ellipsis ellipsis;

// One entry of an index, with the call site.
struct Index {
  std::variant<int64_t, Array, Slice, NoneType, Ellipsis> what;
  Site site;

  // NOLINTBEGIN(google-explicit-constructor): conversion is intended
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Index(T i, Site s = Site::Here())
      : Index(std::in_place, static_cast<int64_t>(i), s) {}
  Index(const Array& integers, Site s = Site::Here());
  Index(Slice slice, Site s = Site::Here());
  Index(NoneType none, Site s = Site::Here());  // adds a new dim of size 1
  Index(Ellipsis all, Site s = Site::Here());
  Index(const Index&);
  Index(Index&&) noexcept;
  Index& operator=(const Index&);
  Index& operator=(Index&&) noexcept;
  ~Index();

 private:
  Index(std::in_place_t, int64_t i, Site s);
  // NOLINTEND(google-explicit-constructor)
};

// The elements of an array at an index, which its methods update: Array::at returns it. Each method
// returns the whole array, with these elements combined with `v`. `v` broadcasts to their shape,
// and its dtype must be promotable to the array's. If an index names an element twice, both updates
// are applied; after two sets, the element has one of the two values. `out_sharding` decides the
// sharding on Explicit axes if the types of array, index and update leave it open. If the sharding
// is open and there is no `out_sharding`, the array that an update returns keeps the sharding of
// the old one (client/sharding.h: strict_sharding), and `get` throws. Errors: VALUE_ERROR,
// TYPE_ERROR, SHARDING_TYPE_ERROR.
class IndexUpdateRef {
 public:
  IndexUpdateRef(Array array, std::vector<Index> index)
      : array_(std::move(array)), index_(std::move(index)) {}
  Array get(const OutSharding& out_sharding = {}) const;
  Array set(const Arg& v, const OutSharding& out_sharding = {}) const;
  Array add(const Arg& v, const OutSharding& out_sharding = {}) const;
  Array subtract(const Arg& v, const OutSharding& out_sharding = {}) const;
  Array multiply(const Arg& v, const OutSharding& out_sharding = {}) const;
  Array mul(const Arg& v, const OutSharding& out_sharding = {}) const {
    return multiply(v, out_sharding);
  }
  Array divide(const Arg& v, const OutSharding& out_sharding = {}) const;
  Array power(const Arg& v, const OutSharding& out_sharding = {}) const;
  Array min(const Arg& v, const OutSharding& out_sharding = {}) const;
  Array max(const Arg& v, const OutSharding& out_sharding = {}) const;
  // Replaces each element by `func` of it, as often as the index names the element. `func` takes
  // and returns a scalar, and must not use an array from outside. There is no derivative if the
  // index has arrays.
  Array apply(absl::FunctionRef<Array(const Array&)> func,
              const OutSharding& out_sharding = {}) const;

 private:
  Array array_;
  std::vector<Index> index_;
};

}  // namespace tessera
