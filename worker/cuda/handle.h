// Owns one handle of the driver: a stream, an event, a graph. Move-only; destroyed by the driver's
// function `kDestroy`, which does not wait for work in progress, and whose errors are ignored.
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
  // Where the driver writes a new handle. Requires: none is held.
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
