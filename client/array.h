// Array: the user's value. An array is concrete (a session owns it, and its shards are on devices),
// traced (a value of the function that is being recorded) or abstract (only a type, to trace with).
//
// Reference-counted: copies share the value, which is deleted on the server with the last copy.
// Thread-safe, except for a traced array, which belongs to the thread that traces.
#pragma once
#include <complex>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/site.h"
#include "client/error.h"
#include "client/mesh.h"
#include "ir/api/service.h"
#include "ir/array.h"
#include "ir/convert.h"
#include "ir/type.h"

namespace tessera {

using ir::Dims;
using ir::DType;
using ir::Type;
inline constexpr DType kBool = DType::kBool, kS8 = DType::kS8, kS16 = DType::kS16,
                       kS32 = DType::kS32, kS64 = DType::kS64, kU8 = DType::kU8, kU16 = DType::kU16,
                       kU32 = DType::kU32, kU64 = DType::kU64, kF16 = DType::kF16,
                       kBF16 = DType::kBF16, kF32 = DType::kF32, kF64 = DType::kF64,
                       kC64 = DType::kC64, kC128 = DType::kC128;

class Session;
struct Index;
class IndexUpdateRef;
namespace internal {
struct ArrayState;
struct ConcreteState;
struct TracedState;
}  // namespace internal

// The dtype of arrays whose elements have the C++ type T.
template <class T>
constexpr DType DTypeOf() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, bool>) {
    return DType::kBool;
  } else if constexpr (std::is_same_v<U, float>) {
    return DType::kF32;
  } else if constexpr (std::is_same_v<U, double>) {
    return DType::kF64;
  } else if constexpr (std::is_same_v<U, std::complex<float>>) {
    return DType::kC64;
  } else if constexpr (std::is_same_v<U, std::complex<double>>) {
    return DType::kC128;
  } else if constexpr (std::is_integral_v<U> && std::is_signed_v<U>) {
    return sizeof(U) == 1   ? DType::kS8
           : sizeof(U) == 2 ? DType::kS16
           : sizeof(U) == 4 ? DType::kS32
                            : DType::kS64;
  } else {
    static_assert(std::is_integral_v<U>, "an element type of arrays is expected");
    return sizeof(U) == 1   ? DType::kU8
           : sizeof(U) == 2 ? DType::kU16
           : sizeof(U) == 4 ? DType::kU32
                            : DType::kU64;
  }
}

class Array {
 public:
  Array() = default;  // an array without a value; using it throws TYPE_ERROR
  Array(const Array&);
  Array(Array&&) noexcept = default;
  Array& operator=(const Array&);
  Array& operator=(Array&&) noexcept;
  ~Array();
  bool valid() const { return state_ != nullptr; }

  // These members work on concrete, traced and abstract arrays.
  const Type& type() const;  // prints as f32[8@data,512]{V:model}
  const Dims& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int rank() const { return type().rank(); }
  int64_t dim(int d) const;  // a negative `d` counts from the end; VALUE_ERROR if out of bounds
  int64_t size() const { return type().num_elements(); }

  bool is_concrete() const;
  bool is_traced() const;

  // value(), get() and item() block until the array is ready, but not beyond the `deadline` in
  // scope (client/session.h). They throw the error of the launch that computes the array, and
  // TYPE_ERROR while tracing. get() returns the elements in row-major order, converted to T.
  ir::Array value(Site site = Site::Here()) const;
  template <class T>
  std::vector<T> get(Site site = Site::Here()) const {
    const ir::Array v = value(site);
    if constexpr (!std::is_arithmetic_v<T>) {
      const ir::Array numbers = ir::ConvertArray(v, DTypeOf<T>());
      return {numbers.As<T>().begin(), numbers.As<T>().end()};
    } else {
      std::vector<T> out(v.num_elements());
      for (int64_t i = 0; i < v.num_elements(); ++i) {
        if constexpr (std::is_integral_v<T>) {
          out[i] = ir::IsFloat(v.dtype()) ? static_cast<T>(v.At(i)) : static_cast<T>(v.IntAt(i));
        } else {
          out[i] = static_cast<T>(v.At(i));
        }
      }
      return out;
    }
  }
  // Returns the only element. Throws TYPE_ERROR unless size() == 1.
  template <class T>
  T item(Site site = Site::Here()) const {
    CheckOneElement(site);
    return get<T>(site)[0];
  }
  // Returns the shard on devices()[index]. Blocks and throws as value() does.
  ir::Array shard(int index, Site site = Site::Here()) const;

  // Asynchronous execution: calls return arrays before they are computed.
  // Returns whether the launch that computes the array has ended, successfully or not.
  bool is_ready(Site site = Site::Here()) const;
  // Blocks until the array is ready, like jax.block_until_ready, but at most for `timeout` and
  // until the `deadline` in scope. Throws the error of the launch, or DEADLINE_EXCEEDED.
  const Array& wait(absl::Duration timeout = absl::InfiniteDuration(),
                    Site site = Site::Here()) const;
  void cancel(Site site = Site::Here()) const;  // cancels the launch that computes the array

  // The placement of the array: mesh, partition spec and devices. Throws TYPE_ERROR unless the
  // array is concrete.
  const api::Placement& placement(Site site = Site::Here()) const;
  std::vector<int64_t> devices(Site site = Site::Here()) const;
  PartitionSpec sharding(Site site = Site::Here()) const;
  // Frees the device memory now, like jax.Array.delete. Later uses throw ARRAY_DELETED.
  void Delete();

  // Returns the type as text. For a concrete array outside a trace it waits for the contents, and
  // adds them or the error of the launch.
  std::string to_string() const;

  Array astype(DType dtype, Site site = Site::Here()) const;
  Array reshape(Dims shape, Site site = Site::Here()) const;  // one size may be -1, and is inferred
  Array reshape(Dims shape, const OutSharding& out_sharding, Site site = Site::Here()) const;
  Array T(Site site = Site::Here()) const;  // reverses the dims
  // operator[] returns the elements at an index, and at() updates them in a copy of the array: see
  // client/indexing.h.
  Array operator[](const Index& index) const;
  Array operator[](std::initializer_list<Index> index) const;
  IndexUpdateRef at(const Index& index) const;
  IndexUpdateRef at(std::initializer_list<Index> index) const;

  // Used by the SDK only.
  explicit Array(std::shared_ptr<const internal::ArrayState> state) : state_(std::move(state)) {}
  const std::shared_ptr<const internal::ArrayState>& state() const { return state_; }

 private:
  void CheckOneElement(const Site& site) const;
  std::shared_ptr<const internal::ArrayState> state_;
};

}  // namespace tessera
// This template is compiled once, in array.cc.
extern template class std::vector<tessera::Array>;
namespace tessera {

namespace internal {
// Throws TYPE_ERROR for an Array without a value.
void ThrowIfNoValue(const Array& a, const Site& site);
}  // namespace internal

// Return abstract arrays, like jax.ShapeDtypeStruct: a shape and a dtype without contents.
Array abstract(Dims shape, DType dtype = DType::kF32);
Array abstract_of(const Type& type);
// Returns an abstract array with the placement that put would give it on `mesh`, like a
// jax.ShapeDtypeStruct with a sharding.
Array abstract(Dims shape, DType dtype, const Mesh& mesh, const PartitionSpec& spec,
               Site site = Site::Here());

// An operand of an op: an array or a C++ number, together with the call site. A number takes the
// dtype of the other operands, as a weakly typed literal does in JAX.
struct Arg {
  std::optional<Array> array;
  double number = 0;
  int64_t integer = 0;
  enum Kind : uint8_t { kArray, kReal, kInteger, kBoolean } kind = kArray;
  Site site;

  // NOLINTBEGIN(google-explicit-constructor): conversion is intended
  // Throws TYPE_ERROR for an Array without a value.
  Arg(const Array& a, Site s = Site::Here());
  Arg(const Arg&);
  Arg(Arg&&) noexcept;
  Arg& operator=(const Arg&);
  Arg& operator=(Arg&&) noexcept;
  ~Arg();
  template <class T>
  requires std::is_arithmetic_v<T> Arg(T v, Site s = Site::Here())
      : number(static_cast<double>(v)), site(s) {
    if constexpr (std::is_same_v<T, bool>) {
      kind = kBoolean;
      integer = v;
    } else if constexpr (std::is_integral_v<T>) {
      kind = kInteger;
      integer = static_cast<int64_t>(v);
    } else {
      kind = kReal;
    }
    // NOLINTEND(google-explicit-constructor)
  }
};

}  // namespace tessera
