// MLIR bytecode, versions 0 to 6, read into flat tables.  Knows the container only; what the
// attributes, the types and the ops mean is decoded by artifact.h.
//
// References: MLIR's BytecodeFormat.md, and what artifacts of StableHLO and JAX hold that it does
// not say: from version 4 the dialects' section has the count of all op names; the regions of an
// isolated op share one section; a region's values are numbered after all of its parent's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/stablehlo/cursor.h"

namespace tessera::ir::stablehlo {

// What a reader accepts.  Together they bound its memory; real artifacts are far below.
struct ReadLimits {
  size_t bytes = size_t{256} << 20;
  size_t ops = 1'000'000;  // and regions
  size_t values = 4'000'000;
  size_t entries = 4'000'000;  // attributes and types; strings; properties
  size_t names = 65'536;       // dialects; op names
  // Of regions: that of the root, a module's, a function's, 64 as our programs may have, and one
  // that only StableHLO has, of a reduction.
  int nesting = 68;
};

inline constexpr uint32_t kNone = UINT32_MAX;

// Some neighbours in a table.
struct Range {
  uint32_t begin = 0;
  uint32_t size = 0;
};
template <typename T>
absl::Span<const T> Slice(const std::vector<T>& table, Range range) {
  return absl::MakeConstSpan(table).subspan(range.begin, range.size);
}

// An attribute or a type, as it is encoded.
struct Entry {
  uint32_t dialect = 0;
  bool custom = false;  // Encoded by its dialect; otherwise MLIR's text.
  Bytes bytes;
};

struct OpName {
  uint32_t dialect = 0;
  std::string_view name;   // "add_v1"
  bool registered = true;  // Its properties are in a form of its own; otherwise an attribute.
};

// Ops lie in the order in which they are written, each before those in its regions.
struct RawOp {
  uint32_t name = 0;            // in op_names
  uint32_t location = 0;        // in attrs
  uint32_t attrs = kNone;       // in attrs: a dictionary
  uint32_t properties = kNone;  // in properties, or in attrs for a name that is not registered
  uint32_t end = 0;             // past its last op: where the next of its block lies
  Range results;                // in value_types
  Range operands;               // in operands
  Range regions;                // in regions
  bool isolated = false;        // Its regions use no values of outside.
};

// A region of at most one block: StableHLO has no others.
struct RawRegion {
  bool has_block = false;
  Range args;                  // in value_types
  uint32_t arg_locations = 0;  // of the first: in arg_locations
  uint32_t begin = 0;          // Its ops: begin, ops[begin].end and so on, up to end.
  uint32_t end = 0;
  // The values that it and the regions within it define: from first_value up to end_value.
  uint32_t first_value = 0, end_value = 0;
};

// Views borrow the bytes that were read.
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
  std::vector<uint32_t> value_types;    // in types, of each value
  std::vector<uint32_t> arg_locations;  // in attrs, of each region's arguments; kNone: it has none
  std::vector<uint32_t> operands;       // values; each is defined before it is used
};

// MALFORMED_PROGRAM with the section and the byte, LIMIT_EXCEEDED with the limit, or
// NOT_IMPLEMENTED for a version of the container after 6, blocks that branch, and resources kept
// apart.
absl::StatusOr<Bytecode> ReadBytecode(Bytes bytes, const ReadLimits& limits = {});

}  // namespace tessera::ir::stablehlo
