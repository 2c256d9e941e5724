// The uploads of shards over the data port. The data server (worker/rpc/data_server.cc) opens a
// writer for each stream, appends the chunks and commits. The table's own thread cuts idle streams
// and drops uploads that nobody resumes, since an upload holds memory for the whole shard.
#include "worker/runtime/upload_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "ir/api/crc32c.h"

namespace tessera::worker {
namespace {

constexpr int64_t kChunkBytesMax = 4 << 20;

absl::Status SupersededError(const BufferId& id) {
  return MakeError(ErrorKind::kCancelled,
                   absl::StrCat("write: another stream goes on with ", ToString(id)));
}

}  // namespace

class UploadTable::Upload {
 public:
  Upload(const BufferId& id, ir::Array memory, Reservation reservation)
      : id(id),
        size(memory.num_bytes()),
        memory(std::move(memory)),
        reservation(std::move(reservation)) {}

  const BufferId id;
  const int64_t size;

  absl::Mutex mu;
  // The id of the callback that ends the upload when the array is written or deleted. The first
  // Open sets it; 0 before.
  uint64_t waiter_id ABSL_GUARDED_BY(mu) = 0;
  ir::Array memory ABSL_GUARDED_BY(mu);
  Reservation reservation ABSL_GUARDED_BY(mu);
  int64_t committed_bytes ABSL_GUARDED_BY(mu) = 0;
  uint32_t crc32c ABSL_GUARDED_BY(mu) = 0;         // checksum of the committed bytes
  uint64_t writer_number ABSL_GUARDED_BY(mu) = 0;  // number of the writer that may write
  bool has_writer ABSL_GUARDED_BY(mu) = false;     // whether that writer has not left yet
  bool ended ABSL_GUARDED_BY(mu) = false;          // whether the memory has been given back
  // When bytes last arrived, or the writer left.
  absl::Time last_activity ABSL_GUARDED_BY(mu) = SteadyNow();
  std::weak_ptr<UploadStream> stream ABSL_GUARDED_BY(mu);

  absl::Status CheckWriter(const UploadWriter& writer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (writer_number != writer.number) return SupersededError(id);
    if (!ended) return absl::OkStatus();
    return MakeError(ErrorKind::kArrayDeleted, absl::StrCat(ToString(id), " was deleted"));
  }
  uint64_t WaiterId() ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    return waiter_id;
  }
  // Gives the memory back. Later writes find that the upload has ended.
  void End() ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    EndLocked();
  }
  void EndLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    ended = true;
    memory = ir::Array();
    reservation.Release();
  }
};

UploadTable::UploadTable(Executor* executor, const Options& options)
    : executor_(executor), options_(options), guard_(std::make_shared<Guard>()) {
  absl::MutexLock lock(&guard_->mu);
  guard_->table = this;
  thread_ = std::thread([this] { Run(); });
}

UploadTable::~UploadTable() {
  {
    absl::MutexLock lock(&guard_->mu);
    guard_->table = nullptr;
  }
  std::map<BufferId, UploadRef> uploads;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    uploads.swap(uploads_);
  }
  thread_.join();
  for (const auto& [id, upload] : uploads) executor_->CancelRead(id, upload->WaiterId());
}

UploadTable::UploadRef UploadTable::Find(const BufferId& id) {
  absl::MutexLock lock(&mu_);
  const auto it = uploads_.find(id);
  return it == uploads_.end() ? nullptr : it->second;
}

absl::StatusOr<UploadTable::UploadRef> UploadTable::FindOrMake(const api::Ticket& ticket) {
  const BufferId id{ticket.array, ticket.device};
  if (UploadRef found = Find(id); found != nullptr) return found;
  const int64_t bytes = ir::MakeType(ticket.dtype, ticket.shape).num_bytes();
  TESSERA_ASSIGN_OR_RETURN(Reservation reservation, executor_->ReserveShard(id, bytes));
  // The memory is not cleared, because it cannot be read before every byte of it has been written.
  ir::Array memory(ticket.dtype, ticket.shape, executor_->NewShardMemory(bytes));
  auto new_upload = std::make_shared<Upload>(id, std::move(memory), std::move(reservation));
  absl::MutexLock lock(&mu_);
  UploadRef& entry = uploads_[id];
  if (entry == nullptr) {
    entry = new_upload;
    wake_ = true;
  }
  return entry;
}

// Makes the stream the writer of the shard's upload, and begins the upload if there is none. Only
// the writer with the highest number may write. The stream of an earlier writer may still be
// running, since a client that lost its connection resumes before the server notices the loss. The
// first Open also registers a callback for the array itself, so that a deletion, or a write in
// another way, ends the upload and frees its memory.
absl::StatusOr<UploadTable::UploadWriter> UploadTable::Open(const api::Ticket& ticket,
                                                            int64_t offset,
                                                            std::weak_ptr<UploadStream> stream) {
  const BufferId id{ticket.array, ticket.device};
  TESSERA_RETURN_IF_ERROR(executor_->CheckNotDeleting(id));
  if (const absl::Status status = executor_->buffers().Get(id).status(); status.ok()) {
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat("write: ", ToString(id), " is written already and cannot be changed"));
  } else if (KindOf(status) == ErrorKind::kArrayDeleted) {
    return status;
  }
  TESSERA_ASSIGN_OR_RETURN(const UploadRef upload, FindOrMake(ticket));
  bool has_waiter = false;
  UploadWriter writer{upload, 0};
  {
    absl::MutexLock lock(&upload->mu);
    has_waiter = upload->writer_number != 0;
    // The upload is being dropped, or the array has just been written; a retry finds out which.
    if (upload->ended) return SupersededError(id);
    if (offset < 0 || offset > upload->committed_bytes) {
      return MakeError(
          ErrorKind::kValueError,
          absl::StrCat("write: cannot go on at byte ", offset, " of ", ToString(id),
                       ", of which only ", upload->committed_bytes, " bytes have arrived"));
    }
    if (offset < upload->committed_bytes) {
      upload->committed_bytes = offset;
      upload->crc32c = api::Crc32c(0, upload->memory.data(), static_cast<size_t>(offset));
    }
    if (offset > 0) {
      ++resumed_;
      executor_->metrics().RecordTransferRetry();
    }
    writer.number = ++upload->writer_number;
    upload->has_writer = true;
    upload->last_activity = SteadyNow();
    upload->stream = std::move(stream);
  }
  Wake();
  if (has_waiter) return writer;
  // The upload ends when the array is deleted or written in another way. The callback may run at
  // once, so no lock is held here.
  const uint64_t waiter_id = executor_->AwaitShard(
      id, [guard = guard_, weak = std::weak_ptr<Upload>(upload)](const absl::Status&) {
        const UploadRef ended_upload = weak.lock();
        if (ended_upload == nullptr) return;
        ended_upload->End();
        absl::MutexLock lock(&guard->mu);
        if (guard->table != nullptr) guard->table->Drop(ended_upload);
      });
  absl::MutexLock lock(&upload->mu);
  upload->waiter_id = waiter_id;
  return writer;
}

// Appends one chunk and checks it. Chunks must come in order without gaps, so that the committed
// bytes are a prefix and one number says how to resume. The checksum is computed while copying,
// because a second pass over the bytes would cost as much again. A chunk with a wrong checksum is
// not committed, and the next one overwrites it.
absl::Status UploadTable::Append(const UploadWriter& writer, int64_t offset,
                                 absl::Span<const absl::string_view> data, uint32_t crc32c) {
  int64_t size = 0;
  for (const absl::string_view piece : data) size += static_cast<int64_t>(piece.size());
  Upload& upload = *writer.upload;
  absl::MutexLock lock(&upload.mu);
  TESSERA_RETURN_IF_ERROR(upload.CheckWriter(writer));
  if (size > kChunkBytesMax) {
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat("write: a chunk of ", size, " bytes; expected at most ", kChunkBytesMax));
  }
  if (offset != upload.committed_bytes || size > upload.size - upload.committed_bytes) {
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat("write: ", size, " bytes at offset ", offset, "; expected offset ",
                     upload.committed_bytes, " of ", upload.size, " bytes"));
  }
  // If the bytes do not match their checksum, the next chunk overwrites them.
  if (api::CopyWithCrc32c(data, upload.memory.MutableData() + offset) != crc32c) {
    ++corrupt_;
    executor_->metrics().RecordChecksumError(TransferKind::kPut);
    return MakeError(
        ErrorKind::kChecksumMismatch,
        absl::StrCat("write: the chunk at offset ", offset, " of ", ToString(upload.id),
                     " does not match its checksum; go on from ", upload.committed_bytes));
  }
  upload.crc32c = api::Crc32cCombine(upload.crc32c, crc32c, static_cast<uint64_t>(size));
  upload.committed_bytes += size;
  upload.last_activity = SteadyNow();
  bytes_ += size;
  return absl::OkStatus();
}

absl::StatusOr<UploadTable::CommitResult> UploadTable::Commit(const UploadWriter& writer) {
  Upload& upload = *writer.upload;
  ir::Array value;
  Reservation reservation;
  CommitResult result;
  {
    absl::MutexLock lock(&upload.mu);
    TESSERA_RETURN_IF_ERROR(upload.CheckWriter(writer));
    if (upload.committed_bytes != upload.size) {
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("write: the stream ended after ", upload.committed_bytes,
                                    " bytes of ", upload.size));
    }
    result = {upload.committed_bytes, upload.crc32c};
    value = std::move(upload.memory);
    reservation = std::move(upload.reservation);
    upload.EndLocked();
  }
  const absl::Status status =
      executor_->WriteShard(upload.id, std::move(value), std::move(reservation));
  Drop(writer.upload);
  TESSERA_RETURN_IF_ERROR(status);
  return result;
}

void UploadTable::Leave(const UploadWriter& writer) {
  if (writer.upload == nullptr) return;
  {
    absl::MutexLock lock(&writer.upload->mu);
    if (writer.upload->writer_number != writer.number) return;
    writer.upload->has_writer = false;
    writer.upload->last_activity = SteadyNow();
  }
  Wake();
}

absl::StatusOr<UploadTable::Progress> UploadTable::ProgressOf(const api::Ticket& ticket) {
  const BufferId id{ticket.array, ticket.device};
  const absl::Status status = executor_->buffers().Get(id).status();
  if (status.ok()) return Progress{ir::MakeType(ticket.dtype, ticket.shape).num_bytes(), true};
  if (KindOf(status) == ErrorKind::kArrayDeleted) return status;
  const UploadRef upload = Find(id);
  if (upload == nullptr) return Progress{};
  absl::MutexLock lock(&upload->mu);
  return Progress{upload->ended ? 0 : upload->committed_bytes, false};
}

UploadTable::Counts UploadTable::counts() const {
  return {bytes_, resumed_, corrupt_, idle_cut_, dropped_};
}

void UploadTable::Drop(const UploadRef& upload) {
  {
    absl::MutexLock lock(&mu_);
    const auto it = uploads_.find(upload->id);
    if (it == uploads_.end() || it->second != upload) return;
    uploads_.erase(it);
  }
  executor_->CancelRead(upload->id, upload->WaiterId());
}

void UploadTable::Wake() {
  absl::MutexLock lock(&mu_);
  wake_ = true;
}

// Looks at all uploads: an open stream that has sent nothing for `idle_timeout` is cut, and an
// upload without a stream is dropped after `resume_timeout`. The lock of the table is not held
// while an upload is locked, because Drop and Cut take other locks. Returns the earliest time at
// which another upload is due.
absl::Time UploadTable::Sweep(absl::Time now) {
  std::vector<UploadRef> all;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [id, upload] : uploads_) all.push_back(upload);
  }
  absl::Time next = absl::InfiniteFuture();
  for (const UploadRef& upload : all) {
    std::shared_ptr<UploadStream> idle_stream;
    bool must_drop = false;
    {
      absl::MutexLock lock(&upload->mu);
      const absl::Time due = upload->last_activity +
                             (upload->has_writer ? options_.idle_timeout : options_.resume_timeout);
      if (due > now) {
        next = std::min(next, due);
        continue;
      }
      if (upload->has_writer) {
        idle_stream = upload->stream.lock();
        upload->has_writer = false;
        ++upload->writer_number;  // the stream may write no more
        upload->last_activity = now;
        next = std::min(next, now + options_.resume_timeout);
      } else {
        upload->EndLocked();
        must_drop = true;
      }
    }
    if (must_drop) {
      ++dropped_;
      TESSERA_LOG(INFO) << "an upload that broke off is dropped" << Field("array", upload->id.array)
                        << Field("device", upload->id.device);
      Drop(upload);
    } else if (idle_stream != nullptr) {
      ++idle_cut_;
      idle_stream->Cut(MakeError(ErrorKind::kDeadlineExceeded,
                                 absl::StrCat("write: ", ToString(upload->id), ": no bytes for ",
                                              absl::FormatDuration(options_.idle_timeout),
                                              "; ask GetShardStatus and go on")));
    }
  }
  return next;
}

void UploadTable::Run() {
  NameThread("uploads");
  while (true) {
    const absl::Time next = Sweep(SteadyNow());
    absl::MutexLock lock(&mu_);
    const auto woken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || wake_; };
    mu_.AwaitWithTimeout(absl::Condition(&woken), next - SteadyNow());
    if (stopping_) return;
    wake_ = false;
  }
}

}  // namespace tessera::worker
