// The bytes of one shard in the memory of a device, in the form of the backend that made it.
//
// A buffer is immutable once made, and is shared by all its readers. On an asynchronous device the
// memory may be reused after the event of the last work that reads it. That work ensures this by
// holding a reference until then.
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
