// The coordinator's disk: rows that outlast its process. Commits become durable in order, each as a
// whole, and some time after they were made. Commits that wait at the same time become durable
// together. A commit that is not durable when the process ends is lost.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/core/life.h"
#include "server/scheduler/effects.h"
#include "server/scheduler/testing/durable.h"
#include "tests/sim/world.h"

namespace tessera::sim {

namespace scheduler = server::scheduler;

class Disk {
 public:
  // One life's access to the disk, like server/store/store.h. A life is the time from a start of
  // the coordinator to the next.
  class Store {
   public:
    std::function<void(uint64_t commit)> on_durable;
    std::function<void(const absl::Status& why)> on_failing;

    const server::core::Life& life() const { return life_; }
    // Returns whether no other store has been opened since.
    bool is_newest() const { return life_.epoch == disk_->num_starts_; }
    void Commit(scheduler::SharedCommit commit);
    // The process has ended. The rows that were being written may or may not be on the disk.
    void Die();

   private:
    friend class Disk;
    explicit Store(Disk* disk, uint64_t start);
    void Write();
    void EndWrite();

    Disk* const disk_;
    const server::core::Life life_;
    std::deque<scheduler::SharedCommit> waiting_;
    bool writing_ = false, dead_ = false, stale_ = false;
    size_t batch_size_ = 0;  // number of commits in waiting_ that are being written
  };

  explicit Disk(World* world) : world_(world) {}

  // Opens the store of a new start. Older stores become stale.
  Store* Open();
  // Returns the durable rows.
  const scheduler::CommittedRows& rows() const { return rows_; }
  // Returns the durable rows. On every few starts they are encoded to bytes and decoded again.
  std::vector<scheduler::RowChange> Load();

  void SlowFor(absl::Duration time) { slow_until_ = world_->now() + time; }
  // Writes that are under way during this time complete only at its end.
  void HangFor(absl::Duration time) { hangs_until_ = world_->now() + time; }
  void FillFor(absl::Duration time) { full_until_ = world_->now() + time; }

 private:
  World* const world_;
  scheduler::CommittedRows rows_;
  uint64_t num_starts_ = 0;
  std::vector<std::unique_ptr<Store>> stores_;
  absl::Time hangs_until_ = absl::InfinitePast();
  absl::Time slow_until_ = absl::InfinitePast(), full_until_ = absl::InfinitePast();
};

}  // namespace tessera::sim
