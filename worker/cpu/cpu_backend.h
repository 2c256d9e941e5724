// N CPU devices in one process, which run device programs op by op.
//
// The reference evaluator walks the lane; products go to oneDNN on the calling thread, collectives
// to Collectives, everything else is the evaluator's. The cancel word is looked at between ops, and
// the op in flight is recorded with the user's file and line. Enqueue runs to the end before it
// returns.
#pragma once
#include <cstdint>
#include <memory>

#include "worker/runtime/backend.h"

namespace tessera::worker {

struct CpuBackendOptions {
  int num_devices = 1;
  int64_t memory_bytes = 0;  // per device; 0: the machine's memory shared evenly
};

std::unique_ptr<Backend> MakeCpuBackend(const CpuBackendOptions& options);

}  // namespace tessera::worker
