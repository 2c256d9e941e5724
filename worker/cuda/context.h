// A device in this process: the driver's primary context, which NCCL and cuBLASLt share, and the
// resources to be destroyed once the device has finished with them.
//
// Thread-safe. Owned by the caller of Open; outlives its streams, events, modules, graphs, matmuls
// and communicators.
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

  // Makes this the calling thread's context, which every function that enqueues or creates does
  // first. Fails once the context is lost.
  int MakeCurrent();

  // As FromDriver; records a sticky error, which all later calls return.
  int Check(CUresult result, const char* call);

  // `libraries` is appended to the driver's version: ", NCCL 2.28.9".
  int Info(tessera_device_info* info, const std::string& libraries);

  // The streams whose work DestroyLater waits for.
  void AddStream(CUstream stream);
  void RemoveStream(CUstream stream);

  // Called before a capture begins on any stream, and after it has ended.
  void OnCaptureBegin();
  void OnCaptureEnd();

  // The matmul library of this context: the first result of `start` that is not null.
  std::shared_ptr<const void> MatmulLibrary(
      const std::function<std::shared_ptr<const void>()>& start);

  // Runs `destroy` in a call of Reap, once the work that is enqueued now on any stream has ended.
  // What is left when the context closes is freed with the driver's context.
  void DestroyLater(std::function<void()> destroy);
  // Calls `ended` now and in later calls of Reap until it returns true.
  void PollLater(std::function<bool()> ended);
  // Destroys what the device has finished with. Does not wait.
  void Reap();

 private:
  // An event at the point that a stream had reached.
  using Mark = std::shared_ptr<tessera::worker::cuda::EventHandle>;
  explicit tessera_context(CUdevice device) : device_(device) {}
  int Query(tessera::worker::cuda::CUdevice_attribute attribute, int32_t* value);
  static Mark MarkOf(CUstream stream);
  static bool IsReached(const Mark& mark);
  // Records a mark on each stream. Returns false while one is being captured, as the event would
  // become part of the graph.
  bool TakeMarks(std::vector<Mark>* marks);

  const CUdevice device_;
  CUcontext context_ = nullptr;

  std::atomic<bool> sticky_{false};

  std::mutex mutex_;         // Guards what follows.
  std::string sticky_text_;  // Written once, before sticky_ is set.
  std::vector<CUstream> streams_;
  std::vector<Mark> removed_marks_;  // The last marks of removed streams.
  std::vector<std::function<bool()>> pending_;
  int captures_ = 0;

  std::mutex matmul_library_mutex_;  // Guards what follows. Held while the library starts.
  std::shared_ptr<const void> matmul_library_;
};
