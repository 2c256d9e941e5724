// Describes an artifact, even one that Tessera cannot run, or a program of ours. Stateless;
// thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/mesh.h"
#include "ir/program.h"
#include "ir/stablehlo/artifact.h"

namespace tessera::ir::stablehlo {

// Returns whether the bytes begin like MLIR bytecode. None of our texts and messages do.
bool IsArtifact(std::string_view bytes);

// A parameter or a result of "main".
struct ValueInfo {
  std::string type;  // "f32[8,4]"; "?" for a type that Tessera lacks
  // "args[0]['w']": printable ASCII, at most kValueNameMax long, or "" if it has no name.
  std::string name;
  // "@mesh, [{x, y}, {}]" as Shardy writes it, or "P('x')"; "" if it has none.
  std::string sharding;
  // A parameter whose memory the run may take (tf.aliasing_output, jax.buffer_donor).
  bool donated = false;
};

struct Signature {
  std::vector<ValueInfo> params, results;
};
// Returns the signature of an artifact; empty if it has no "main". Malformed parts are left out.
Signature SignatureOf(const Artifact& artifact);

using OpCounts = std::vector<std::pair<std::string, int64_t>>;

// The description of an artifact or a program. The texts are printable ASCII and bounded, whatever
// the artifact contains.
struct Inspection {
  std::string name;      // name of the module ("jit_f") or of the entry function
  std::string producer;  // "StableHLO_v1.13.0"
  // The version of StableHLO for which the artifact was written: "1.13.0"; "" if it does not say.
  std::string version;
  Signature main;
  // The counts of CountOps, without functions, terminators and MLIR's own ops.
  OpCounts ops;
  // The subset of `ops` that Tessera lacks. A "custom_call @target" is listed by its target.
  OpCounts lacking;
  std::vector<std::pair<std::string, Mesh>> meshes;  // by name
};

// Describes an artifact. Malformed parts are left out, as by SignatureOf.
Inspection Inspect(const Artifact& artifact);
// Describes a program. It lacks nothing, and its mesh has no name.
Inspection Inspect(const Program& program);

}  // namespace tessera::ir::stablehlo
