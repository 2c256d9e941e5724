// A StableHLO portable artifact: its ops by name, with their attributes and types decoded.
//
// Attributes and types are decoded into flat tables whose records refer to each other by index. A
// record may mean itself or a later one, so whoever follows the references bounds how far.  What is
// not known stays opaque, and is an error only for who needs it.
//
// Versions: an op's version is part of its name in the artifact (add_v1).  Here the name is without
// it, and an attribute that an older version lacks is absent, which means what the op did then.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/dtype.h"
#include "ir/stablehlo/bytecode.h"

namespace tessera::ir::stablehlo {

enum class AttrKind : uint8_t {
  // Attributes.  kOpaque is any that is not known.
  kOpaque,
  kArray,
  kBool,
  kDense,
  kDenseArray,
  kDictionary,
  kFloat,
  kInteger,
  kString,
  kSymbol,
  kType,
  kUnit,
  // Enumerations and records of StableHLO.
  kComparisonDirection,
  kComparisonType,
  kCustomCallApiVersion,
  kFftType,
  kOutputOperandAlias,
  kPrecision,
  kResultAccuracy,
  kResultAccuracyMode,
  kRngAlgorithm,
  kRngDistribution,
  kTranspose,
  kTypeExtensions,
  // Meshes and shardings, of VHLO and of Shardy.
  kAllToAllParam,
  kAllToAllParams,
  kAxisRef,
  kAxisRefLists,
  kAxisRefs,
  kDimMapping,
  kDimensionSharding,
  kManualAxes,
  kMesh,
  kMeshAxis,
  kReplicaGroupMeshAxes,
  kShardingPerValue,
  kShardingRule,
  kSubAxis,
  kTensorMapping,
  kTensorSharding,
  // Locations.
  kCallSite,
  kFileLine,
  kFileLineRange,
  kFused,
  kNamed,
  kUnknownLocation,
};
enum class TypeKind : uint8_t {
  kOpaque,
  kBuffer,
  kComplex,
  kEncodedTensor,
  kFunction,
  kFuture,
  kIndex,
  kInteger,
  kNone,
  kOtherScalar,
  kQuantized,
  kQuantizedPerAxis,
  kScalar,
  kTensor,
  kToken,
  kTuple,
  kUnrankedTensor,
  kWitness,
};

// The fields of an attribute or a type, as entries.def lists them: references to attributes and
// types in `refs` (kNone for one that is absent), numbers in `ints`, where the length of a list
// stands before it, and a text or bytes.
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
struct TypeOf : Fields {
  TypeKind kind = TypeKind::kOpaque;
  DType dtype = DType::kBool;  // of a kScalar
};

struct NamedAttr {
  std::string_view name;
  uint32_t attr = kNone;
};

// What an op name of the artifact means.
struct OpForm {
  std::string_view dialect;  // "vhlo", "sdy", "builtin"
  std::string_view name;     // "add"
  int version = 0;           // 0 for an op without one
  bool known = false;
};

struct Artifact {
  Bytecode code;
  std::vector<Attr> attrs;      // of code.attrs
  std::vector<TypeOf> types;    // of code.types
  std::vector<OpForm> forms;    // of code.op_names
  std::vector<Range> op_attrs;  // of code.ops: their own attributes, in named
  std::vector<NamedAttr> named;
  std::vector<uint32_t> refs;
  std::vector<int64_t> ints;

  const OpForm& form(const RawOp& op) const { return forms[op.name]; }
  // An attribute of the op's own by name, or kNone.  Those that it carries for others
  // (mhlo.frontend_attributes, sdy.sharding) are in the dictionary code.ops[op].attrs.
  uint32_t Find(uint32_t op, std::string_view name) const;
  // The value under `name` in a dictionary, or kNone: also for an attribute that is no dictionary.
  // Of a larger one than kDictionaryMax the first entries are seen.
  uint32_t InDictionary(uint32_t attr, std::string_view name) const;
};
inline constexpr size_t kDictionaryMax = 256;

// Errors: those of ReadBytecode; MALFORMED_PROGRAM for fields that do not decode; NOT_IMPLEMENTED
// for artifacts of other dialects and for ops that a later StableHLO has, with the version of who
// wrote. Borrows the bytes.
absl::StatusOr<Artifact> ReadArtifact(Bytes bytes, const ReadLimits& limits = {});

// An untrusted text for a message: escaped and cut.
std::string Quoted(std::string_view text);

// "add", "sdy.mesh".
std::string NameOf(const OpForm& form);
// How many there are of each op, by NameOf: in alphabetical order.
std::vector<std::pair<std::string, int64_t>> CountOps(const Artifact& artifact);

}  // namespace tessera::ir::stablehlo
