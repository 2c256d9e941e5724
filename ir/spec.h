// Checks whether a PartitionSpec fits a mesh and the shape of an array. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "ir/mesh.h"
#include "ir/type.h"

namespace tessera::ir {

// Returns whether `axes` begins with all of `prefix`.
bool IsPrefix(const AxisList& prefix, const AxisList& axes);

// The first reason why a spec does not fit. The caller writes the text of the error, since it knows
// whether the spec belongs to a program, a placement or a call.
struct SpecFault {
  enum Kind : uint8_t {
    kTooLong,      // the spec has more dims than the shape
    kUnknownAxis,  // the mesh has no axis named `axis`
    kAxisTwice,    // `axis` occurs more than once
    kIndivisible,  // the size of `dim` is not divisible by `shards`
  } kind = kTooLong;
  size_t dim = 0;
  std::string axis;
  int64_t shards = 1;
};
// Returns the first fault, or nullopt if the spec fits. Checks the dims in order, and the axes of
// each dim before its size.
std::optional<SpecFault> FindSpecFault(const PartitionSpec& spec, const Mesh& mesh,
                                       const Dims& shape);

}  // namespace tessera::ir
