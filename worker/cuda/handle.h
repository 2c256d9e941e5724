// Owns one handle of the driver: a stream, an event or a graph. Move-only. The driver's function
// `kDestroy` destroys the handle. It does not wait for work in progress, and its errors are
// ignored.
#pragma once
#include <utility>

#include "worker/cuda/driver.h"

namespace tessera::worker::cuda {

template <class T, CUresult (*DriverApi::*kDestroy)(T)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      Reset();
      value_ = std::exchange(other.value_, nullptr);
    }
    return *this;
  }
  ~Handle() { Reset(); }

  T get() const { return value_; }
  // The place where the driver writes a new handle. Requires that no handle is held.
  T* out() { return &value_; }
  T Release() { return std::exchange(value_, nullptr); }
  void Reset() {
    if (value_ != nullptr) (Cu().*kDestroy)(std::exchange(value_, nullptr));
  }

 private:
  T value_ = nullptr;
};

using StreamHandle = Handle<CUstream, &DriverApi::cuStreamDestroy_v2>;
using EventHandle = Handle<CUevent, &DriverApi::cuEventDestroy_v2>;
using GraphHandle = Handle<CUgraph, &DriverApi::cuGraphDestroy>;
using GraphExecHandle = Handle<CUgraphExec, &DriverApi::cuGraphExecDestroy>;

}  // namespace tessera::worker::cuda
