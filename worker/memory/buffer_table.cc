// The state of each shard that an executor holds. The executor (worker/runtime/executor*.cc) adds,
// takes and deletes buffers, its streams report the ends of their producers, and readers of the
// data port wait here. Callbacks and destructors run outside the lock, since they may call the
// table again or take long.
#include "worker/memory/buffer_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::worker {
namespace {

absl::Status DeletedError(const BufferId& id) {
  return MakeError(ErrorKind::kArrayDeleted,
                   absl::StrCat(ToString(id), " has been deleted or donated"));
}

absl::Status NotFoundError(const BufferId& id) {
  return MakeError(ErrorKind::kArrayNotFound, absl::StrCat(ToString(id), " is not here"));
}

void CallAll(std::map<uint64_t, BufferTable::Callback> waiters,
             const absl::StatusOr<DeviceBufferRef>& result) {
  for (auto& [waiter_id, callback] : waiters) callback(result);
}

}  // namespace

std::string ToString(const BufferId& id) {
  return absl::StrCat("array ", id.array, " on device ", id.device);
}

bool BufferTable::IsDeletedLocked(const BufferId& id) const {
  return deleted_ids_.contains(id) || older_deleted_ids_.contains(id);
}

absl::Status BufferTable::Expect(const BufferId& id) {
  absl::MutexLock lock(&mu_);
  if (IsDeletedLocked(id)) return DeletedError(id);
  Entry& entry = entries_[id];
  if (entry.state != State::kUnknown) {
    return MakeError(ErrorKind::kInternal, absl::StrCat(ToString(id), " is made twice"));
  }
  entry.state = State::kExpected;
  return absl::OkStatus();
}

// Ends a buffer's production: stores it and calls its waiters. Two races end differently. If the
// buffer was taken while its producer still ran, it is not stored, because its taker has it. If it
// was deleted, the buffer is dropped, but readers that came before the delete of an enqueued buffer
// still get it.
absl::Status BufferTable::SetReady(const BufferId& id, DeviceBufferRef buffer) {
  std::map<uint64_t, Callback> waiters;
  DeviceBufferRef for_waiters, freed;  // destroyed without the lock
  {
    absl::MutexLock lock(&mu_);
    if (taken_early_.erase(id) > 0) return DeletedError(id);
    auto it = entries_.find(id);
    // A buffer that is in the table is not deleted.
    if (it == entries_.end()) {
      if (IsDeletedLocked(id)) return DeletedError(id);
      it = entries_.try_emplace(id).first;
    }
    Entry& entry = it->second;
    if (entry.state == State::kFailed) return entry.error;
    if (entry.state == State::kReady) {
      return MakeError(ErrorKind::kInternal, absl::StrCat(ToString(id), " is written twice"));
    }
    waiters.swap(entry.waiters);
    entry.buffer = std::move(buffer);
    if (!waiters.empty()) for_waiters = NewReader(entry);
    if (entry.delete_pending) {
      freed = std::move(entry.buffer);
      entries_.erase(id);
      AddTombstone(id);
    } else {
      entry.state = State::kReady;
      entry.outcome = nullptr;
    }
  }
  CallAll(std::move(waiters), std::move(for_waiters));
  return absl::OkStatus();
}

void BufferTable::SetEnqueued(const BufferId& id, DeviceBufferRef buffer, OutcomeRef outcome) {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(id);
  // There is no expected buffer: it was deleted before it was enqueued, or its launch has failed on
  // another device.
  if (it == entries_.end() || it->second.state != State::kExpected) return;
  it->second.buffer = std::move(buffer);
  it->second.outcome = std::move(outcome);
}

void BufferTable::SetFailed(const BufferId& id, const absl::Status& why) {
  std::map<uint64_t, Callback> waiters;
  DeviceBufferRef freed;  // destroyed without the lock
  {
    absl::MutexLock lock(&mu_);
    taken_early_.erase(id);
    if (IsDeletedLocked(id)) return;
    Entry& entry = entries_[id];
    if (entry.state == State::kFailed) return;  // only the first failure is reported
    entry.state = State::kFailed;
    entry.error = why;
    freed = std::move(entry.buffer);
    entry.outcome = nullptr;
    waiters.swap(entry.waiters);
    if (entry.delete_pending) {
      entries_.erase(id);
      AddTombstone(id);
    }
  }
  CallAll(std::move(waiters), why);
}

absl::StatusOr<DeviceBufferRef> BufferTable::GetLocked(const BufferId& id) const {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return IsDeletedLocked(id) ? DeletedError(id) : NotFoundError(id);
  const Entry& entry = it->second;
  if (entry.state == State::kUnknown) return NotFoundError(id);
  if (entry.state == State::kFailed) return entry.error;
  if (entry.state == State::kExpected) {
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat(ToString(id), " is used before the launch that produces it"));
  }
  return entry.buffer;
}

DeviceBufferRef BufferTable::NewReader(Entry& entry) {
  if (entry.readers == nullptr) entry.readers = std::make_shared<std::atomic<int64_t>>(0);
  entry.readers->fetch_add(1, std::memory_order_relaxed);
  // The release pairs with the acquire in Take: the accesses of this reader come before those of
  // the work to which the buffer is donated.
  return DeviceBufferRef(entry.buffer.get(),
                         [buffer = entry.buffer, readers = entry.readers](const DeviceBuffer*) {
                           readers->fetch_sub(1, std::memory_order_release);
                         });
}

absl::StatusOr<DeviceBufferRef> BufferTable::Get(const BufferId& id) const {
  absl::MutexLock lock(&mu_);
  TESSERA_RETURN_IF_ERROR(GetLocked(id).status());
  return NewReader(entries_.at(id));
}

absl::StatusOr<BufferTable::EnqueuedBuffer> BufferTable::GetEnqueued(const BufferId& id) const {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(id);
  if (it != entries_.end() && (it->second.outcome != nullptr || it->second.state == State::kReady))
    return EnqueuedBuffer{it->second.buffer, it->second.outcome};
  TESSERA_ASSIGN_OR_RETURN(DeviceBufferRef buffer, GetLocked(id));
  return EnqueuedBuffer{std::move(buffer), nullptr};
}

// Takes a buffer for a donation. The buffer leaves the table only if nobody else can read its
// memory: readers outside the device hold references, which the entry counts, and waiters will get
// references. Readers on the device itself do not count, because work there runs in the order in
// which it was enqueued. A buffer whose producer still runs may be taken, too.
absl::StatusOr<BufferTable::EnqueuedBuffer> BufferTable::Take(const BufferId& id) {
  TESSERA_ASSIGN_OR_RETURN(EnqueuedBuffer taken, GetEnqueued(id));
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(id);
  // The buffer was deleted or has failed meanwhile, so nothing is left to take.
  if (it == entries_.end() || it->second.buffer != taken.buffer) return taken;
  Entry& entry = it->second;
  if (!entry.waiters.empty() ||
      (entry.readers != nullptr && entry.readers->load(std::memory_order_acquire) > 0)) {
    return taken;
  }
  taken.outcome = entry.outcome;
  taken.taken = true;
  if (taken.outcome != nullptr) taken_early_.insert(id);
  entries_.erase(it);
  AddTombstone(id);
  return taken;
}

void BufferTable::UndoTake(const BufferId& id, EnqueuedBuffer taken) {
  if (!taken.taken) return;
  absl::MutexLock lock(&mu_);
  deleted_ids_.erase(id);
  older_deleted_ids_.erase(id);
  Entry& entry = entries_[id];
  if (taken_early_.erase(id) > 0) {
    // The producer has not ended yet and will call SetReady or SetFailed.
    entry.state = State::kExpected;
    entry.outcome = std::move(taken.outcome);
  } else if (absl::Status status =
                 taken.outcome == nullptr ? absl::OkStatus() : taken.outcome->status();
             !status.ok()) {
    entry.state = State::kFailed;
    entry.error = std::move(status);
    return;
  } else {
    entry.state = State::kReady;
  }
  entry.buffer = std::move(taken.buffer);
}

DeviceBufferRef BufferTable::GetIfReady(const BufferId& id) const {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(id);
  if (it == entries_.end() || it->second.state != State::kReady) return nullptr;
  return NewReader(it->second);
}

uint64_t BufferTable::WhenReady(const BufferId& id, Callback callback) {
  absl::StatusOr<DeviceBufferRef> result = NotFoundError(id);
  uint64_t waiter_id = 0;
  {
    absl::MutexLock lock(&mu_);
    waiter_id = next_waiter_id_++;
    if (IsDeletedLocked(id)) {
      result = DeletedError(id);
    } else {
      Entry& entry = entries_[id];
      if (entry.state == State::kUnknown || entry.state == State::kExpected) {
        entry.waiters.emplace(waiter_id, std::move(callback));
        return waiter_id;
      }
      result = GetLocked(id);
      if (result.ok()) result = NewReader(entry);
    }
  }
  callback(std::move(result));
  return waiter_id;
}

bool BufferTable::CancelWait(const BufferId& id, uint64_t waiter_id) {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(id);
  if (it == entries_.end() || it->second.waiters.erase(waiter_id) == 0) return false;
  if (it->second.state == State::kUnknown && it->second.waiters.empty()) entries_.erase(it);
  return true;
}

bool BufferTable::IsKnown(const BufferId& id) const {
  absl::MutexLock lock(&mu_);
  const auto it = entries_.find(id);
  return IsDeletedLocked(id) || (it != entries_.end() && it->second.state != State::kUnknown);
}

void BufferTable::AddTombstone(const BufferId& id) {
  deleted_ids_.insert(id);
  if (deleted_ids_.size() < kTombstonesMin) return;
  older_deleted_ids_ = std::exchange(deleted_ids_, {});
  deleted_ids_.reserve(kTombstonesMin);
}

void BufferTable::Delete(const BufferId& id) {
  Entry freed;  // destroyed without the lock
  {
    absl::MutexLock lock(&mu_);
    if (const auto it = entries_.find(id); it != entries_.end()) {
      if (it->second.outcome != nullptr) {
        it->second.delete_pending = true;
        return;
      }
      freed = std::move(it->second);
      entries_.erase(it);
    }
    AddTombstone(id);
  }
  if (!freed.waiters.empty()) CallAll(std::move(freed.waiters), DeletedError(id));
}

void BufferTable::FailWaiters(const absl::Status& why) {
  std::vector<std::map<uint64_t, Callback>> waiters;
  {
    absl::MutexLock lock(&mu_);
    for (auto& [id, entry] : entries_) waiters.push_back(std::exchange(entry.waiters, {}));
  }
  for (auto& callbacks : waiters) CallAll(std::move(callbacks), why);
}

int64_t BufferTable::num_buffers() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(entries_.size());
}

BufferTable::Listing BufferTable::List() const {
  Listing listing;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [id, entry] : entries_) {
      if (entry.delete_pending || entry.state == State::kUnknown) continue;
      (entry.state == State::kReady      ? listing.ready
       : entry.state == State::kExpected ? listing.expected
                                         : listing.failed)
          .push_back(id);
    }
  }
  for (std::vector<BufferId>* ids : {&listing.ready, &listing.expected, &listing.failed})
    std::sort(ids->begin(), ids->end());
  return listing;
}

}  // namespace tessera::worker
