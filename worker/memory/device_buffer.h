// The bytes of one shard in the memory of a device, in the form of the backend that made it.
//
// A buffer is immutable once made, and is shared by all its readers. The memory of a buffer may be
// reused when the last reference is gone. Work on an asynchronous device that reads the buffer
// therefore holds a reference until the event of that work is done.
#pragma once
#include <cstdint>
#include <memory>

#include "ir/dtype.h"
#include "ir/type.h"

namespace tessera::worker {

class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual ir::DType dtype() const = 0;
  virtual const ir::Dims& shape() const = 0;
  virtual int64_t num_bytes() const = 0;
};
using DeviceBufferRef = std::shared_ptr<const DeviceBuffer>;

}  // namespace tessera::worker
