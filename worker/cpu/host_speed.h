// How fast this machine is for this process, with all its cores at once.
#pragma once

namespace tessera::worker {

struct HostSpeed {
  double flops_per_second = 0;         // of f32 matmuls
  double memory_bytes_per_second = 0;  // of copies: read and written
};
// Measured by the first call in the process, which takes some 20 ms; the same ever after. Another
// program that is busy meanwhile makes it less. Any thread.
const HostSpeed& MeasuredHostSpeed();

}  // namespace tessera::worker
