// Imports the ops between custom calls at which values become shards and shards become values
// again. These calls are SPMDFullToShardShape and SPMDShardToFullShape of GSPMD, and those that
// Shardy writes for XLA. The ops become the body of a manual_computation. Internal to this folder;
// thread-compatible.
#pragma once
#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {

class ShardCodeImporter {
 public:
  explicit ShardCodeImporter(Importer& importer) : in_(importer), a_(importer.a_) {}

  // Returns whether a custom call with this target begins or ends shards.
  static bool IsBoundary(std::string_view target);
  // Returns whether values become shards at this op.
  static bool BeginsAt(const Artifact& artifact, uint32_t op);
  // Takes the next op of the region into the computation, or emits it if it uses no shards. Returns
  // false if the op comes after the computation.
  bool Take(uint32_t op);
  // Emits the computation. The results of the computation then stand for the assembled values.
  void Emit();

 private:
  void Enter(uint32_t op, std::string_view target);
  void Leave(uint32_t op, std::string_view target);
  void AddToBody(uint32_t op, const std::vector<uint32_t>& uses);
  // Returns the values that an op and the ops in its regions use but do not define.
  std::vector<uint32_t> UsesOf(uint32_t op) const;
  // Returns the sharding that the custom call `op` carries.
  PartitionSpec CarriedSpec(uint32_t op, std::string_view what) const;

  Importer& in_;
  const Artifact& a_;
  AxisList manual_;
  std::vector<uint32_t> outer_args_, shard_args_;       // the arguments outside, and inside
  std::vector<uint32_t> body_ops_;                      // the ops of the body
  std::vector<uint32_t> constants_;                     // values from outside that the body uses
  std::vector<uint32_t> body_results_, outer_results_;  // the results inside, and outside
  std::vector<PartitionSpec> in_specs_, out_specs_;
  std::set<uint32_t> shard_values_;     // values that are shards
  std::set<uint32_t> later_values_;     // values that exist only after the computation
  std::set<uint32_t> known_constants_;  // the values in constants_
};

}  // namespace tessera::ir::stablehlo
