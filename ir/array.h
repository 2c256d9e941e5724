// A dense row-major array in host memory: what literals, the evaluator and host transfers use.
// Copying shares the bytes; MutableData() makes them unique first. Thread-compatible.
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
  Array(DType dtype, Dims shape);  // zeros
  // Copies `bytes`.  Requires: bytes.size() is the size the shape implies.
  Array(DType dtype, Dims shape, absl::Span<const std::byte> bytes);
  // Shares `bytes`.  Requires: at least as many as the shape implies.
  Array(DType dtype, Dims shape, std::shared_ptr<std::byte[]> bytes);

  // Converts each value: floats are rounded once, to nearest even; integers are cut towards zero,
  // and one that is too large keeps its low bits.
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
  double At(int64_t flat_index) const;           // as double
  double ImaginaryAt(int64_t flat_index) const;  // 0 unless complex
  int64_t IntAt(int64_t flat_index) const;       // exact for integers
  void Set(int64_t flat_index, double value);
  std::vector<double> ToDoubles() const;
  // The shared bytes, which nobody may write.
  const std::shared_ptr<std::byte[]>& bytes() const { return bytes_; }
  // The same bytes under another shape with as many elements.
  Array Reshaped(Dims shape) const;
  bool operator==(const Array& other) const;  // dtype, shape and bits
  std::string ToString() const;               // [[1, 2], [3, 4]], long ones elided
  // The same with the text of the element at each flat index.
  std::string ToString(absl::FunctionRef<std::string(int64_t flat_index)> element) const;

 private:
  DType dtype_;
  Dims shape_;
  int64_t num_elements_;
  std::shared_ptr<std::byte[]> bytes_;
};

// The shards of one array, one for each device of a mesh in row-major order, or one alone.
using Shards = absl::InlinedVector<Array, 1>;

// Row-major strides of a shape, in elements. Those of a shape without elements lead nowhere.
Dims StridesOf(const Dims& shape);
// The subarray of `global` at `starts` with `shape`; and the inverse, which overwrites one in
// `*global`.  Requires: it is within bounds.
Array SliceBlock(const Array& global, const Dims& starts, const Dims& shape);
void WriteBlock(Array* global, const Dims& starts, const Array& block);

}  // namespace tessera::ir
