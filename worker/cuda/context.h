// A device as this process uses it: the driver's primary context, which NCCL and cuBLASLt share,
// and resources to be destroyed once the device has finished with them.
//
// Any thread. Owned by the caller of Open, and outlives its streams, events, modules, graphs,
// matmuls and communicators.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "worker/cuda/driver.h"
#include "worker/cuda/handle.h"
#include "worker/device/device_api.h"

struct tessera_context {
 public:
  using CUcontext = tessera::worker::cuda::CUcontext;
  using CUdevice = tessera::worker::cuda::CUdevice;
  using CUresult = tessera::worker::cuda::CUresult;
  using CUstream = tessera::worker::cuda::CUstream;

  static int Open(int32_t device, tessera_context** context);
  ~tessera_context();
  tessera_context(const tessera_context&) = delete;
  tessera_context& operator=(const tessera_context&) = delete;

  CUdevice device() const { return device_; }

  // Makes this the calling thread's context. The first call of every function that enqueues or
  // creates; fails once the context is lost.
  int MakeCurrent();

  // FromDriver; remembers an error that ends the context.
  int Check(CUresult result, const char* call);

  // `libraries` are the versions of what was opened beside the driver: ", NCCL 2.28.9".
  int Info(tessera_device_info* info, const std::string& libraries);

  // The streams that may have work under way.
  void AddStream(CUstream stream);
  void RemoveStream(CUstream stream);

  // Captures under way on any stream, from before they begin until they have ended.
  void BeginCapture();
  void EndCapture();

  // The matmul library as it was started for this context: what `start` has returned before or, if
  // that was null, returns now.
  std::shared_ptr<const void> MatmulLibrary(
      const std::function<std::shared_ptr<const void>()>& start);

  // Runs `destroy` once every stream has passed the point it has reached now: at a later call, for
  // nothing here waits. What is left when the context closes goes with the driver's context.
  void DestroyLater(std::function<void()> destroy);
  // Calls `ended` now and at later calls until it says true.
  void PollLater(std::function<bool()> ended);
  // Destroys what the device has finished with.
  void Reap();

 private:
  using Mark = std::shared_ptr<tessera::worker::cuda::EventHandle>;
  explicit tessera_context(CUdevice device) : device_(device) {}
  int Query(tessera::worker::cuda::CUdevice_attribute attribute, int32_t* value);
  static Mark MarkOf(CUstream stream);
  static bool IsReached(const Mark& mark);
  // The point that each stream has reached now. False while one is being captured, for then what is
  // enqueued would become part of the graph.
  bool TakeMarks(std::vector<Mark>* marks);

  const CUdevice device_;
  CUcontext context_ = nullptr;

  std::atomic<bool> sticky_{false};

  std::mutex mutex_;         // Guards what follows.
  std::string sticky_text_;  // Written once, before sticky_ is set.
  std::vector<CUstream> streams_;
  std::vector<Mark> orphans_;  // The last points of destroyed streams.
  std::vector<std::function<bool()>> pending_;
  int captures_ = 0;

  std::mutex matmul_library_mutex_;  // Guards what follows. Held while the library starts.
  std::shared_ptr<const void> matmul_library_;
};
