// A StableHLO portable artifact, decoded: its ops by name, with their attributes and types.
//
// Attributes and types are decoded into flat tables whose records refer to each other by index. A
// record may refer to itself or to a later record, so code that follows the references must bound
// its depth. Unknown attributes and types stay opaque; they are an error only for code that needs
// them.
//
// Versions: an op's version is part of its name in the artifact (add_v1). OpForm has the name
// without it. Where an older version of an op lacks an attribute, the attribute is absent, and its
// absence means what the op did in that version. Thread-compatible; safe to read from several
// threads.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/dtype.h"
#include "ir/stablehlo/bytecode.h"
#include "ir/stablehlo/kinds.h"

namespace tessera::ir::stablehlo {

// The fields of an attribute or a type, in the order of entries.def. `refs` holds references to
// attributes and types (kNone for an absent one). `ints` holds numbers; the length of a list stands
// before the elements of the list. `bytes` holds a text or bytes.
struct Fields {
  Range refs;
  Range ints;
  Bytes bytes;
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};
struct Attr : Fields {
  AttrKind kind = AttrKind::kOpaque;
};
struct DecodedType : Fields {
  TypeKind kind = TypeKind::kOpaque;
  DType dtype = DType::kBool;  // dtype of a kScalar
};

struct NamedAttr {
  std::string_view name;
  uint32_t attr = kNone;  // index into Artifact::attrs
};

// The decoded form of an op name of the artifact.
struct OpForm {
  std::string_view dialect;  // "vhlo", "sdy", "builtin"
  std::string_view name;     // "add"
  int version = 0;           // 0 for an op without a version
  bool known = false;
};

struct Artifact {
  Bytecode code;
  std::vector<Attr> attrs;         // decoded code.attrs
  std::vector<DecodedType> types;  // decoded code.types
  std::vector<OpForm> forms;       // decoded code.op_names
  std::vector<Range> op_attrs;     // for each of code.ops, the range of its own `named_attrs`
  std::vector<NamedAttr> named_attrs;
  std::vector<uint32_t> refs;
  std::vector<int64_t> ints;

  const OpForm& form(const RawOp& op) const { return forms[op.name]; }
  // Returns one of the op's own attributes by its name, or kNone. Attributes that other tools have
  // attached to the op (mhlo.frontend_attributes, sdy.sharding) are in the dictionary
  // code.ops[op].attrs.
  uint32_t Find(uint32_t op, std::string_view name) const;
  // Returns the value under `name` in a dictionary, or kNone, also if `attr` is not a dictionary.
  // Only the first kDictionaryMax entries are searched.
  uint32_t InDictionary(uint32_t attr, std::string_view name) const;
};
inline constexpr size_t kDictionaryMax = 256;

// Reads an artifact. Borrows the bytes. Errors are those of ReadBytecode, MALFORMED_PROGRAM for
// fields that do not decode, and NOT_IMPLEMENTED for artifacts of other dialects and for ops of a
// later StableHLO; that error names the version of the writer.
absl::StatusOr<Artifact> ReadArtifact(Bytes bytes, const ReadLimits& limits = {});

// Returns an untrusted text for a message, escaped and truncated.
std::string Quoted(std::string_view text);

// Returns the name of an op: "add", "sdy.mesh".
std::string NameOf(const OpForm& form);
// Returns how often each op occurs, by its NameOf, in alphabetical order.
std::vector<std::pair<std::string, int64_t>> CountOps(const Artifact& artifact);

}  // namespace tessera::ir::stablehlo
