// A dense row-major array in host memory. Literals, the evaluator and host transfers use it. A copy
// shares the bytes with the original; MutableData() makes them unique first. Thread-compatible.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "ir/type.h"

namespace tessera::ir {

class Array {
 public:
  Array() : Array(DType::kF32, {0}) {}
  Array(DType dtype, Dims shape);  // all elements are zero
  // Copies `bytes`. Requires: bytes.size() is the size that the shape implies.
  Array(DType dtype, Dims shape, absl::Span<const std::byte> bytes);
  // Shares `bytes`. Requires: `bytes` holds at least the size that the shape implies.
  Array(DType dtype, Dims shape, std::shared_ptr<std::byte[]> bytes);

  // Converts each value to `dtype`. A float is rounded once, to nearest even. For an integer dtype
  // the value is truncated towards zero, and a value that is too large keeps its low bits.
  static Array Of(DType dtype, Dims shape, absl::Span<const double> values);
  static Array Scalar(DType dtype, double value);
  static Array ScalarInt(DType dtype, int64_t value);  // exact for 64-bit integers

  DType dtype() const { return dtype_; }
  const Dims& shape() const { return shape_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  int64_t num_elements() const { return num_elements_; }
  int64_t num_bytes() const { return num_elements_ * ByteWidth(dtype_); }
  const std::byte* data() const { return bytes_.get(); }
  std::byte* MutableData();
  template <class T>
  absl::Span<const T> As() const {
    return {reinterpret_cast<const T*>(data()), static_cast<size_t>(num_elements_)};
  }
  template <class T>
  absl::Span<T> MutableAs() {
    return {reinterpret_cast<T*>(MutableData()), static_cast<size_t>(num_elements_)};
  }
  // Returns an element as a double. For a complex dtype that is the real part of the element.
  double At(int64_t flat_index) const;
  double ImaginaryAt(int64_t flat_index) const;  // 0 unless the dtype is complex
  int64_t IntAt(int64_t flat_index) const;       // exact for integers
  void Set(int64_t flat_index, double value);
  std::vector<double> ToDoubles() const;
  // Returns the shared bytes, which nobody may write.
  const std::shared_ptr<std::byte[]>& bytes() const { return bytes_; }
  // Returns an array with the same bytes and another shape. Requires: the numbers of elements
  // agree.
  Array Reshaped(Dims shape) const;
  bool operator==(const Array& other) const;  // compares dtype, shape and bits
  std::string ToString() const;               // [[1, 2], [3, 4]]; long dims are elided
  // Like ToString(), but takes the text of the element at each flat index from `element`.
  std::string ToString(absl::FunctionRef<std::string(int64_t flat_index)> element) const;

 private:
  DType dtype_;
  Dims shape_;
  int64_t num_elements_;
  std::shared_ptr<std::byte[]> bytes_;
};

// The shards of one array: one for each device of a mesh in row-major order, or a single shard.
using Shards = absl::InlinedVector<Array, 1>;

// Returns the row-major strides of a shape, in elements. For a shape without elements the strides
// have no meaning.
Dims StridesOf(const Dims& shape);

}  // namespace tessera::ir
