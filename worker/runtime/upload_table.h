// Uploads of shards: running uploads, and interrupted ones that may be resumed.
//
// A shard has at most one upload at a time. The stream that opened it last writes it; earlier
// streams are rejected from then on. Bytes are committed in order from the first. Committed
// bytes outlive the stream, until the upload has not been resumed for `resume_timeout`, the array
// is deleted, or the shard is complete. The memory of the whole shard is reserved from the first
// Open until then.
//
// Thread-safe; the calls of one stream come one at a time. The executor outlives the table. If a
// stream has sent nothing for `idle_timeout`, a thread of the table calls the stream's Cut, without
// a lock.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "ir/api/ticket.h"
#include "worker/runtime/executor.h"

namespace tessera::worker {

// A stream that writes an upload.
class UploadStream {
 public:
  virtual ~UploadStream() = default;
  // Ends the stream with `why`, unless it is already ending.
  virtual void Cut(const absl::Status& why) = 0;
};

class UploadTable {
 public:
  struct Options {
    absl::Duration idle_timeout = absl::Seconds(30);
    absl::Duration resume_timeout = absl::Minutes(5);
  };
  struct Progress {
    int64_t committed_bytes = 0;
    bool complete = false;
  };
  struct CommitResult {
    int64_t bytes = 0;
    uint32_t crc32c = 0;
  };
  // Totals since the start.
  struct Counts {
    int64_t bytes = 0;
    int64_t resumed = 0;   // streams that resumed an upload
    int64_t corrupt = 0;   // chunks that did not match their checksum
    int64_t idle_cut = 0;  // streams that were cut because they were idle
    int64_t dropped = 0;   // uploads that were dropped because they were not resumed
  };

  class Upload;
  using UploadRef = std::shared_ptr<Upload>;
  // A stream's exclusive right to write the upload. A later writer revokes it.
  struct UploadWriter {
    UploadRef upload;
    uint64_t number = 0;
  };

  UploadTable(Executor* executor, const Options& options);
  UploadTable(const UploadTable&) = delete;
  UploadTable& operator=(const UploadTable&) = delete;
  // Requires that no stream is open.
  ~UploadTable();

  // Resumes the upload at `offset`; 0 restarts it. `ticket` has been checked, and allows writing.
  absl::StatusOr<UploadWriter> Open(const api::Ticket& ticket, int64_t offset,
                                    std::weak_ptr<UploadStream> stream) ABSL_LOCKS_EXCLUDED(mu_);
  // Appends the next chunk, which is the concatenation of `data`.
  absl::Status Append(const UploadWriter& writer, int64_t offset,
                      absl::Span<const absl::string_view> data, uint32_t crc32c);
  // Commits the shard, which must be complete.
  absl::StatusOr<CommitResult> Commit(const UploadWriter& writer) ABSL_LOCKS_EXCLUDED(mu_);
  // Must be the last call for the writer, when its stream has ended.
  void Leave(const UploadWriter& writer);

  absl::StatusOr<Progress> ProgressOf(const api::Ticket& ticket) ABSL_LOCKS_EXCLUDED(mu_);
  Counts counts() const;

 private:
  void Run();
  // Makes the thread sweep again, since the time at which an upload is due has changed: a stream
  // has begun or ended.
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);
  // Cuts idle streams and drops old uploads. Returns when to call it again.
  absl::Time Sweep(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // Removes the upload from the table, unless another one has taken its place.
  void Drop(const UploadRef& upload) ABSL_LOCKS_EXCLUDED(mu_);
  UploadRef Find(const BufferId& id) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the shard's upload. If there is none, makes a new one and reserves its memory.
  absl::StatusOr<UploadRef> FindOrMake(const api::Ticket& ticket) ABSL_LOCKS_EXCLUDED(mu_);

  // Shared with the callbacks, which may run after the table has been destroyed.
  struct Guard {
    absl::Mutex mu;
    UploadTable* table ABSL_GUARDED_BY(mu) = nullptr;
  };

  Executor* const executor_;
  const Options options_;
  const std::shared_ptr<Guard> guard_;
  std::atomic<int64_t> bytes_{0}, resumed_{0}, corrupt_{0}, idle_cut_{0}, dropped_{0};

  absl::Mutex mu_;
  std::map<BufferId, UploadRef> uploads_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool wake_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace tessera::worker
