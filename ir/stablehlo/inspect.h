// What an artifact says of itself, also one that Tessera cannot run; and a program of ours.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/mesh.h"
#include "ir/program.h"
#include "ir/stablehlo/artifact.h"

namespace tessera::ir::stablehlo {

// MLIR's bytecode begins so; no text and no message of ours does.
bool IsArtifact(std::string_view bytes);

// A parameter or a result of "main".
struct ValueInfo {
  std::string type;  // "f32[8,4]"; what Tessera lacks is "?"
  std::string name;  // "args[0]['w']": printable ASCII, at most kValueNameMax; "" if it has none
  std::string sharding;  // "@mesh, [{x, y}, {}]" as Shardy writes it, "P('x')"; "" if it has none
  bool donated = false;  // a parameter whose memory the run may take (tf.aliasing_output,
                         // jax.buffer_donor)
};

struct Signature {
  std::vector<ValueInfo> params, results;
};
// Of any artifact that was read; empty if it has no "main".  What is not as it must be is left out.
Signature SignatureOf(const Artifact& artifact);

using OpCounts = std::vector<std::pair<std::string, int64_t>>;

// Texts are printable ASCII and bounded, whatever the artifact says.
struct Inspection {
  std::string name;      // of the module, "jit_f", or of the entry function
  std::string producer;  // "StableHLO_v1.13.0"
  std::string version;   // of StableHLO, that reads it: "1.13.0"; "" if it does not say
  Signature main;
  OpCounts ops;      // as CountOps, without functions, what ends them and MLIR's own
  OpCounts lacking;  // of these what Tessera lacks; "custom_call @target" by its target
  std::vector<std::pair<std::string, Mesh>> meshes;  // by name
};

// As SignatureOf.
Inspection Inspect(const Artifact& artifact);
// Lacks nothing; its mesh has no name.
Inspection Inspect(const Program& program);

}  // namespace tessera::ir::stablehlo
