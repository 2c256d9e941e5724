// A value of a function under construction: a param, or a result of an op. Rules and transforms
// compute with values. A Value borrows its Builder (builder.h) and is valid until the builder has
// built the function. Cheap to copy; belongs to the thread of its builder.
#pragma once
#include <cstdint>

#include "absl/types/span.h"
#include "ir/program.h"

namespace tessera::ir {

class Builder;

// A value of a function under construction, together with its builder, so that rules read as
// formulas. A default Value is "none": it stands for a symbolic zero among tangents or for an
// absent cotangent.
class Value {
 public:
  Value() = default;
  Value(Builder* builder, ValueId id) : builder_(builder), id_(id) {}
  bool valid() const { return builder_ != nullptr; }
  explicit operator bool() const { return valid(); }
  Builder& builder() const { return *builder_; }
  ValueId id() const { return id_; }
  // Returns the type, which the builder holds. Defined in builder.cc.
  const Type& type() const;
  const Dims& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int rank() const { return type().rank(); }
  int64_t dim(int d) const { return type().shape[d]; }
  bool operator==(const Value&) const = default;

 private:
  Builder* builder_ = nullptr;
  ValueId id_ = -1;
};
using Values = absl::Span<const Value>;

}  // namespace tessera::ir
