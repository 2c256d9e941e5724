// Partition: from the logical program and a sharding for every value to the one device program, the
// body of a manual_computation over all axes at local types.
//
// Pure.  The work does not depend on the number of devices: meshes stay symbolic.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/program.h"
#include "server/planner/propagate.h"

namespace tessera::server::planner {

// What was done to one op, for explain; parallel to the walk of the program, regions in place.
struct OpNote {
  std::string op;  // wire name
  Site site;
  int depth = 0;                     // of regions
  std::vector<std::string> results;  // global type and sharding of each result
  std::string why;                   // who decided the first result's sharding
  std::vector<std::string> moves;    // reshards and gathers done for it, with operand and bytes
};

struct DeviceProgram {
  ir::FunctionRef fn;  // scope: all axes Manual, check_vma off
  std::vector<ir::PartitionSpec> in, out;
  std::vector<OpNote> notes;
};

// `out_shardings[i]`: what result i must have, nullopt to take what propagation gave it.
absl::StatusOr<DeviceProgram> Partition(const ir::Program& program, const FunctionShardings& s);

}  // namespace tessera::server::planner
