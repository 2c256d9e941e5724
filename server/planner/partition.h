// Partition: turns the logical program, with a sharding for every value, into the one program that
// all devices run: the body of a manual_computation over all mesh axes, at the types of shards.
// Pure. The time does not depend on the number of devices: mesh axes stay symbolic.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "server/planner/explicit_form.h"
#include "server/planner/propagate.h"

namespace tessera::server::planner {

// The explanation of one op, in the order of the program, with those of regions after their op.
struct OpExplanation {
  std::string op;  // wire name
  Site site;
  int depth = 0;                     // of nested regions
  std::vector<std::string> results;  // global type and sharding of each result
  std::string why;                   // what decided the first result's sharding
  std::vector<std::string> moves;    // its reshards and gathers, with operand and bytes
  std::string name = {};             // of a checkpoint_name
  std::vector<ir::Type> types = {};  // of each result, and its sharding
  std::vector<ir::PartitionSpec> specs = {};
  ir::AxisList manual = {};         // the axes of the shard_maps that it stands in
  ExplicitForm explicit_form = {};  // not of ops with regions
};

// The program that every device runs, its arguments' and results' shardings, and notes for explain.
struct PartitionedProgram {
  ir::FunctionRef fn;  // scope: all axes Manual, check_vma off
  std::vector<ir::PartitionSpec> in, out;
  std::vector<OpExplanation> notes;
};

// Requires: `s` is the result of Propagate. Notes take as long as all else. `cuts`, unless it is
// null, receives a line for each op: how it is cut; where the function fails, up to the op that
// fails.
absl::StatusOr<PartitionedProgram> Partition(const ir::Program& program, const FunctionShardings& s,
                                             bool with_notes, std::string* cuts = nullptr);

}  // namespace tessera::server::planner
