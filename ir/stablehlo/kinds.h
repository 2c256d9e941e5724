// The kinds of attributes and types in an artifact. Constants; thread-safe.
#pragma once
#include <cstdint>

namespace tessera::ir::stablehlo {

enum class AttrKind : uint8_t {
  // Attributes. kOpaque is an unknown attribute.
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

}  // namespace tessera::ir::stablehlo
