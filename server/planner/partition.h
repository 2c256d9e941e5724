// Turns a program, given a sharding for each of its values, into the one program that all devices
// run: code for one shard, as in the body of a manual_computation over all mesh axes. Pure. How
// long this takes does not depend on the number of devices, because mesh axes stay symbolic.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "server/planner/explicit_form.h"
#include "server/planner/propagate.h"

namespace tessera::server::planner {

// The explanation of one op. Explanations are in the order of the program; the ops of regions
// follow the op that has the regions.
struct OpExplanation {
  std::string op;  // wire name of the op
  Site site;
  int depth = 0;                              // number of regions around the op
  std::vector<std::string> results;           // global type and sharding of each result, as text
  std::string decided_by;                     // what decided the first result's sharding
  std::vector<std::string> moves;             // reshards of its operands and results, as text
  std::string name = {};                      // name that a checkpoint_name gives
  std::vector<ir::Type> types = {};           // type of each result
  std::vector<ir::PartitionSpec> specs = {};  // sharding of each result
  ir::AxisList manual = {};                   // axes of the shard_maps around the op
  ExplicitForm explicit_form = {};            // empty for ops with regions
};

// The program that every device runs, the shardings of its arguments and results, and the
// explanations of the ops.
struct PartitionedProgram {
  ir::FunctionRef fn;  // device program, whose scope has only Manual axes and no check_vma
  std::vector<ir::PartitionSpec> in, out;
  std::vector<OpExplanation> explanations;
};

// Partitions the program. Requires: `s` is the result of Propagate. Making the explanations
// (`with_explanations`) doubles the time. If `cut_lines` is not null, it receives a line for each
// op that says how the op is cut. If the function fails, the lines end with the op that fails.
absl::StatusOr<PartitionedProgram> Partition(const ir::Program& program, const FunctionShardings& s,
                                             bool with_explanations,
                                             std::string* cut_lines = nullptr);

}  // namespace tessera::server::planner
