// Ops between custom calls that say where values become shards, and where these become values
// again: SPMDFullToShardShape and SPMDShardToFullShape of GSPMD, and those that Shardy writes for
// XLA. They become the body of a manual_computation.  Internal to this folder.
#pragma once
#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {

class OnShards {
 public:
  explicit OnShards(Importer& importer) : in_(importer), a_(importer.a_) {}

  // Whether a custom call of this target says where shards begin or end.
  static bool Knows(std::string_view target);
  // Whether values become shards at this op.
  static bool BeginsAt(const Artifact& artifact, uint32_t op);
  // Takes the next op of the region in, emits it if it is of no shard; false if it comes after.
  bool Take(uint32_t op);
  // Emits the computation, whose results are then the values that it gives.
  void Emit();

 private:
  void Enter(uint32_t op, std::string_view target);
  void Leave(uint32_t op, std::string_view target);
  void Add(uint32_t op, const std::vector<uint32_t>& uses);
  // The values that an op and those in its regions use and do not define.
  std::vector<uint32_t> UsesOf(uint32_t op) const;
  // What the custom call `op` carries.
  PartitionSpec CarriedBy(uint32_t op, std::string_view what) const;

  Importer& in_;
  const Artifact& a_;
  AxisList manual_;
  std::vector<uint32_t> whole_, shards_;     // the arguments outside, and inside
  std::vector<uint32_t> body_;               // ops
  std::vector<uint32_t> constants_;          // values of outside that the body uses
  std::vector<uint32_t> given_, assembled_;  // the results inside, and outside
  std::vector<PartitionSpec> in_specs_, out_specs_;
  // Values: of shards; that only the computation gives; those of constants_.
  std::set<uint32_t> inside_, after_, known_;
};

}  // namespace tessera::ir::stablehlo
