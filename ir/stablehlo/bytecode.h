// Reads MLIR bytecode, versions 0 to 6, into flat tables. It knows the container only; artifact.h
// decodes the meaning of attributes, types and ops. Thread-compatible.
//
// References: MLIR's BytecodeFormat.md. Artifacts of StableHLO and JAX follow some rules that the
// document does not mention: from version 4 on, the section of dialects has the count of all op
// names; the regions of an isolated op share one section; a region's values are numbered after all
// values of its parent.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/stablehlo/cursor.h"

namespace tessera::ir::stablehlo {

// The limits of a reader. Together they bound its memory; real artifacts are far below them.
struct ReadLimits {
  size_t bytes = size_t{256} << 20;
  size_t ops = 1'000'000;  // the number of ops, and of regions
  size_t values = 4'000'000;
  // The number of attributes and types together, of strings, and of properties.
  size_t entries = 4'000'000;
  size_t names = 65'536;  // the number of dialects, and of op names
  // The nesting of regions: the root, a module, a function, 64 as our programs may have, and one
  // that only StableHLO has, for a reduction.
  int nesting = 68;
};

inline constexpr uint32_t kNone = UINT32_MAX;

// A range of neighbouring entries in a table.
struct Range {
  uint32_t begin = 0;
  uint32_t size = 0;
};
template <typename T>
absl::Span<const T> Slice(const std::vector<T>& table, Range range) {
  return absl::MakeConstSpan(table).subspan(range.begin, range.size);
}

// An attribute or a type in its encoded form.
struct Entry {
  uint32_t dialect = 0;
  // Whether the entry is in the encoding of its dialect. Otherwise it is MLIR's text.
  bool is_custom = false;
  Bytes bytes;
};

struct OpName {
  uint32_t dialect = 0;
  std::string_view name;  // "add_v1"
  // Whether the properties of ops with this name have a form of their own; otherwise they are an
  // attribute.
  bool registered = true;
};

// Ops are stored in the order in which they are written. An op comes before the ops in its regions.
struct RawOp {
  uint32_t name = 0;       // index into op_names
  uint32_t location = 0;   // index into attrs
  uint32_t attrs = kNone;  // index into attrs: a dictionary
  // Index into Bytecode::properties, or into attrs if the op's name is not registered.
  uint32_t properties = kNone;
  uint32_t end = 0;       // index of the op's successor in its block, behind the ops in its regions
  Range results;          // range of value_types
  Range operands;         // range of operands
  Range regions;          // range of regions
  bool isolated = false;  // its regions use no values from outside
};

// A region of at most one block. StableHLO has no regions with more blocks.
struct RawRegion {
  bool has_block = false;
  Range args;                  // range of value_types
  uint32_t arg_locations = 0;  // index of the first argument's location in arg_locations
  // The region's ops are begin, ops[begin].end and so on, up to end.
  uint32_t begin = 0;
  uint32_t end = 0;
  // The values that the region and the regions nested in it define: from first_value up to, but not
  // including, end_value.
  uint32_t first_value = 0, end_value = 0;
};

// The tables of an artifact. The views borrow the bytes that were read.
struct Bytecode {
  uint64_t version = 0;
  std::string_view producer;  // "StableHLO_v1.18.0"
  std::vector<std::string_view> strings;
  std::vector<std::string_view> dialects;
  std::vector<OpName> op_names;
  std::vector<Entry> attrs;
  std::vector<Entry> types;
  std::vector<Bytes> properties;
  std::vector<RawOp> ops;
  std::vector<RawRegion> regions;
  std::vector<uint32_t> value_types;  // for each value, an index into types
  // For each argument of a region, an index into attrs, or kNone.
  std::vector<uint32_t> arg_locations;
  // For each operand of an op, an index into value_types. A value is defined before it is used.
  std::vector<uint32_t> operands;
};

// Errors: MALFORMED_PROGRAM with the section and the byte; LIMIT_EXCEEDED with the limit;
// NOT_IMPLEMENTED for a version of the container after 6, for blocks that branch, and for resources
// in a section of their own.
absl::StatusOr<Bytecode> ReadBytecode(Bytes bytes, const ReadLimits& limits = {});

}  // namespace tessera::ir::stablehlo
