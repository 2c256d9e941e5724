// The bytes of one shard in the memory of a device, in the form of the backend that made it.
//
// A buffer is immutable once made, and is shared by all its readers. The memory of a buffer may be
// reused when the last reference is gone. Work on an asynchronous device that reads the buffer
// therefore holds a reference until the event of that work is done.
//
// A buffer holds the reservation of its memory in the account of its device. Whatever keeps the
// memory therefore keeps its bytes reserved, and the account never says that memory is free which
// is not.
#pragma once
#include <cstdint>
#include <memory>

#include "ir/dtype.h"
#include "ir/type.h"
#include "worker/memory/memory_account.h"

namespace tessera::worker {

class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual ir::DType dtype() const = 0;
  virtual const ir::Dims& shape() const = 0;
  virtual int64_t num_bytes() const = 0;

  // The reservation of the buffer's memory, which is empty until the owner of the account sets it.
  // Buffers that share memory share it. It is set before another thread gets the buffer.
  Reservation& reservation() const { return *reservation_; }

 protected:
  // Makes a buffer with memory of its own or, if `sharer` is not null, in the memory of `sharer`.
  explicit DeviceBuffer(const DeviceBuffer* sharer = nullptr)
      : reservation_(sharer == nullptr ? std::make_shared<Reservation>() : sharer->reservation_) {}
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

 private:
  const std::shared_ptr<Reservation> reservation_;
};
using DeviceBufferRef = std::shared_ptr<const DeviceBuffer>;

}  // namespace tessera::worker
