// Runs samples on worker backends, with one thread for each shard, and compares the results with
// those of the evaluator. A sample, or row, is one op with given attributes and operands: a test
// case (samples.h).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/ops/samples.h"
#include "worker/runtime/backend.h"

namespace tessera::ir::samples {

// The device that runs one shard. Several shards may share a backend.
struct ShardDevice {
  std::shared_ptr<worker::Backend> backend;
  int device = 0;
};

// Runs a device program. Shard i takes args[argument][i], runs on the device on[i], and acts as
// device devices[i] of the mesh. Returns the results as [result][shard]. Throws StatusException.
std::vector<Shards> RunOnBackends(const std::vector<ShardDevice>& on, const FunctionRef& f,
                                  const std::vector<Shards>& args,
                                  const std::vector<int64_t>& devices);

// Returns whether the row is a contraction or a convolution in f32, at a precision that lets a
// device round the factors to TF32.
bool MayRoundToTf32(const Sample& s);

// Runs the row on the devices that `devices_for` returns for its number of shards. Returns the
// first difference from the evaluator, or "" if there is none or if `devices_for` returns no
// devices. If the row's tolerance is in units in the last place, it is raised to at least
// `ulps_min`; an `ulps_min` of 0 demands equal bits instead. `tf32` says that the devices round
// factors to TF32. A row for which MayRoundToTf32 is true may then be off by the error of that
// rounding. Throws StatusException.
std::string DifferenceOnBackends(
    const Sample& s, double ulps_min,
    const std::function<std::vector<ShardDevice>(int shards)>& devices_for, bool tf32 = false);

}  // namespace tessera::ir::samples
