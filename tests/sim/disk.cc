// Writes the commits of the coordinator's process after a delay, or fails them. process.cc commits
// rows here. A new process reads the rows that have survived.
#include "tests/sim/disk.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#ifdef TESSERA_SIM_ROWS
#include "server/rows/rows.h"
#endif

namespace tessera::sim {
namespace {

constexpr absl::Duration kRetryInterval = absl::Milliseconds(250);  // time after a failed attempt
#ifdef TESSERA_SIM_ROWS
// One start in this many decodes bytes, because this takes longer than the rest of a start.
constexpr uint64_t kStartsPerRead = 3;
#endif

}  // namespace

Disk::Store::Store(Disk* disk, uint64_t start)
    : disk_(disk), life_(server::core::LifeOfStart(start)) {}

void Disk::Store::Commit(scheduler::SharedCommit commit) {
  waiting_.push_back(std::move(commit));
  Write();
}

void Disk::Store::Write() {
  if (writing_ || dead_ || stale_ || waiting_.empty()) return;
  writing_ = true;
  batch_size_ = waiting_.size();
  World& world = *disk_->world_;
  const bool slow = world.now() < disk_->slow_until_;
  const absl::Duration time =
      slow ? world.random().Within(absl::Milliseconds(20), absl::Milliseconds(1500))
           : world.random().Within(absl::Microseconds(200), absl::Milliseconds(4));
  world.After(std::max(time, disk_->hangs_until_ - world.now()), [this] { EndWrite(); });
}

void Disk::Store::EndWrite() {
  if (dead_) return;
  writing_ = false;
  World& world = *disk_->world_;
  if (!is_newest()) {
    stale_ = true;
    return on_failing(MakeError(ErrorKind::kStaleEpoch, "another coordinator has taken over"));
  }
  if (world.now() < disk_->full_until_) {
    on_failing(MakeError(ErrorKind::kDiskFull, "the disk is full"));
    return world.After(kRetryInterval, [this] { Write(); });
  }
  uint64_t last = 0;
  for (; batch_size_ > 0; --batch_size_) {
    last = waiting_.front().number;
    disk_->rows_.Apply(waiting_.front());
    waiting_.pop_front();
  }
  on_durable(last);
  Write();
}

void Disk::Store::Die() {
  const bool fresh = is_newest() && disk_->world_->now() >= disk_->full_until_;
  if (!dead_ && writing_ && fresh && disk_->world_->random().OneIn(2))
    for (size_t i = 0; i < batch_size_; ++i) disk_->rows_.Apply(waiting_.at(i));
  dead_ = true;
  waiting_.clear();
}

Disk::Store* Disk::Open() {
  stores_.push_back(std::unique_ptr<Store>(new Store(this, ++num_starts_)));
  return stores_.back().get();
}

std::vector<scheduler::RowChange> Disk::Load() {
#ifdef TESSERA_SIM_ROWS
  if (num_starts_ % kStartsPerRead == 0) {
    auto read = server::rows::Decode(server::rows::Encode(rows_.All()));
    if (read.ok()) return *std::move(read);
    world_->Violate("the rows do not read: ", std::string(read.status().message()));
  }
#endif
  return rows_.All();
}

}  // namespace tessera::sim
