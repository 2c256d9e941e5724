// A row of samples on backends of workers, one shard on a thread each: what it gives beside what
// the evaluator gives.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/ops/samples.h"
#include "worker/runtime/backend.h"

namespace tessera::ir::samples {

// The device of a backend that runs one shard; backends may be shared.
struct ShardDevice {
  std::shared_ptr<worker::Backend> backend;
  int device = 0;
};

// Runs a device program: shard i, args[argument][i], on on[i] as device devices[i] of the mesh. The
// answer is [result][shard]. Throws StatusException.
std::vector<Shards> RunOnBackends(const std::vector<ShardDevice>& on, const FunctionRef& f,
                                  const std::vector<Shards>& args,
                                  const std::vector<int64_t>& devices);

// Whether a row is a product of f32 whose precision lets devices round what they multiply to TF32.
bool MayRoundToTf32(const Sample& s);

// Runs the row on the devices that `devices_for` gives for its number of shards; none: "".
// Tolerances in units of the last place are at least `ulps_min`; 0 makes them exact. On devices
// that round to TF32 a row which MayRoundToTf32 may be as far off as that makes it. "" or the first
// difference. Throws StatusException.
std::string DifferenceOnBackends(
    const Sample& s, double ulps_min,
    const std::function<std::vector<ShardDevice>(int shards)>& devices_for, bool tf32 = false);

}  // namespace tessera::ir::samples
