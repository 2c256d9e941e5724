// The address of the coordinator. At most one process serves it, over one disk. Another process may
// follow one that ended or was replaced.
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

// A machine's end of a stream to the coordinator. A message that the machine sends on it reaches
// the process of the coordinator that accepted the stream.
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
  std::shared_ptr<Registration> attached_to_;  // kept for the last reports of an executor
  bool is_daemon_ = false;
};

class Coordinator {
 public:
  Coordinator(World* world, Checker* checker);

  // Returns the process that serves the address, or null if none does. Processes that it has
  // replaced may still live.
  Process* current() { return current_; }
  Disk& disk() { return disk_; }

  void KillFor(absl::Duration time);
  // Makes the disk slow. Then kills the process as soon as a step has begun an irrevocable effect
  // (if `of_save`, that of a save) for an operation that is not on the disk yet or, if no step
  // does, after a while.
  void KillBeforeDurableFor(absl::Duration time, bool of_save);
  void PauseFor(absl::Duration time);
  void StarveFor(absl::Duration time);
  // Returns how much of the time until now does not count for leases, because the coordinator was
  // paused.
  absl::Duration not_counted() const { return not_counted_; }
  // Suspends the process and starts another one in its place. Later the first one continues.
  void ReplaceFor(absl::Duration time);
  void StepWallClock(absl::Duration by) { wall_ahead_ += by; }

  // ---- For machines. ----
  std::shared_ptr<Uplink> Register(Path* path, const api::Registration& registration,
                                   DaemonCallbacks callbacks, Stream::OnEndFn on_end);
  std::shared_ptr<Uplink> Attach(Path* path, const api::Attachment& attachment,
                                 OnCommandFn on_command, Stream::OnEndFn on_end);

 private:
  void Start();
  std::shared_ptr<Uplink> Open(Path* path, Stream::OnEndFn on_end,
                               std::function<void(Uplink* uplink, Process* process)> on_accept);

  World* const world_;
  Checker* const checker_;
  Disk disk_;
  absl::Duration wall_ahead_, not_counted_;
  std::vector<std::unique_ptr<Process>> processes_;
  Process* current_ = nullptr;
};

}  // namespace tessera::sim
