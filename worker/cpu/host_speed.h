// The speed of this machine for this process, with all its cores at work at once.
#pragma once

namespace tessera::worker {

struct HostSpeed {
  double flops_per_second = 0;         // speed of f32 matmuls
  double memory_bytes_per_second = 0;  // speed of copies, counting bytes read and written
};
// Returns the speed, which the first call in the process measures in some 20 ms. All later calls
// return the same numbers. Another program that is busy during the measurement makes them lower.
// Any thread may call this.
const HostSpeed& MeasuredHostSpeed();

}  // namespace tessera::worker
