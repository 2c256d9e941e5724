// A device in this process: the driver's primary context, which NCCL and cuBLASLt share, and the
// resources that wait to be destroyed until the device has finished with them.
//
// Thread-safe. The caller of Open owns it. It outlives its streams, events, modules, graphs,
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

  // Makes this the calling thread's context. Every function that enqueues or creates something
  // calls it first. Fails once the context is lost.
  int MakeCurrent();

  // Like CheckDriver, but records a sticky error, which all later calls return.
  int Check(CUresult result, const char* call);

  // Fills in `info`.
  int Info(tessera_device_info* info);

  // Add and remove a stream whose work DestroyLater waits for.
  void AddStream(CUstream stream);
  void RemoveStream(CUstream stream);

  // Called before a capture begins on any stream, and after it has ended.
  void OnCaptureBegin();
  void OnCaptureEnd();

  // Returns the matmul library of this context: the first result of `start` that is not null.
  std::shared_ptr<const void> MatmulLibrary(
      const std::function<std::shared_ptr<const void>()>& start);

  // Runs `destroy`, now or in a later call of Reap, once all work that is enqueued now on any
  // stream has ended. If this context is closed earlier, `destroy` is not run, and the driver frees
  // the resource together with its own context.
  void DestroyLater(std::function<void()> destroy);
  // Calls `ended` now, and again in each later call of Reap until it returns true.
  void PollLater(std::function<bool()> ended);
  // Destroys the resources that the device has finished with. Does not wait.
  void Reap();

 private:
  // An event at the point that a stream had reached when the event was recorded.
  using Mark = std::shared_ptr<tessera::worker::cuda::EventHandle>;
  explicit tessera_context(CUdevice device) : device_(device) {}
  int Query(tessera::worker::cuda::CUdevice_attribute attribute, int32_t* value);
  static Mark RecordMark(CUstream stream);
  static bool IsReached(const Mark& mark);
  // Records a mark on each stream. Returns false while a stream is being captured, because the
  // event would become part of the graph.
  bool RecordMarks(std::vector<Mark>* marks);

  const CUdevice device_;
  CUcontext context_ = nullptr;

  std::atomic<bool> sticky_{false};

  std::mutex mutex_;         // guards the members that follow
  std::string sticky_text_;  // written once, before sticky_ is set
  std::vector<CUstream> streams_;
  // The last marks of streams that were removed.
  std::vector<Mark> removed_marks_;
  std::vector<std::function<bool()>> deferred_polls_;  // for the next Reap, by PollLater
  int active_captures_ = 0;

  // Guards the member that follows. It is held while the library starts.
  std::mutex matmul_library_mutex_;
  std::shared_ptr<const void> matmul_library_;
};
