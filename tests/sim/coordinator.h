// The coordinator's address: at most one process serves it, over one disk. A process that ended or
// was replaced may be followed by another.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "tests/sim/checker.h"
#include "tests/sim/disk.h"
#include "tests/sim/network.h"
#include "tests/sim/process.h"
#include "tests/sim/world.h"

namespace tessera::sim {

// A machine's end of a stream: what is sent up reaches the process that took the stream.
class Uplink : public std::enable_shared_from_this<Uplink> {
 public:
  explicit Uplink(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  Stream& stream() { return *stream_; }
  void Send(uint64_t epoch, const api::Report& report);

 private:
  friend class Coordinator;
  const std::shared_ptr<Stream> stream_;
  Process* process_ = nullptr;
  std::weak_ptr<Registration> registration_;
  bool of_daemon_ = false;
};

class Coordinator {
 public:
  Coordinator(World* world, Checker* checker);

  // Who serves the address; null: nobody. Others may live that it has replaced.
  Process* current() { return current_; }
  Process* AnyAlive();
  Disk& disk() { return disk_; }

  void KillFor(absl::Duration time);
  // The disk becomes slow, and the process is killed when a step has begun what cannot be taken
  // back for an operation that is not on the disk yet, or after a while.
  void KillBeforeDiskFor(absl::Duration time);
  void PauseFor(absl::Duration time);
  void StarveFor(absl::Duration time);
  // How much of the time until now does not count for leases, as the coordinator was paused.
  absl::Duration not_counted() const { return not_counted_; }
  // The process is suspended, and another takes its place; then the first goes on.
  void ReplaceFor(absl::Duration time);
  void StepWall(absl::Duration by) { wall_ahead_ += by; }

  // ---- Of machines. ----
  std::shared_ptr<Uplink> Register(Path* path, const api::Registration& registration, DaemonEnd end,
                                   Stream::Ended ended);
  std::shared_ptr<Uplink> Attach(Path* path, const api::Attachment& attachment, ExecutorEnd end,
                                 Stream::Ended ended);

 private:
  void Start();
  std::shared_ptr<Uplink> Open(Path* path, Stream::Ended ended,
                               std::function<void(Uplink* uplink, Process* process)> first);

  World* const world_;
  Checker* const checker_;
  Disk disk_;
  absl::Duration wall_ahead_, not_counted_;
  std::vector<std::unique_ptr<Process>> processes_;
  Process* current_ = nullptr;
};

}  // namespace tessera::sim
