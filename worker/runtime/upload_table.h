// Uploads of shards: those that come in, and those that broke off and may go on.
//
// One shard has one upload. The stream that opened it last writes it; an earlier one is refused
// from then on. Bytes are committed in order from the first; what is committed stays when a stream
// ends, until nobody has gone on with it for `keep`, the array is deleted, or the shard is whole.
// The memory of the whole shard is reserved from the first chunk to that end.
//
// Thread-safe; a stream's own calls come one at a time. The executor outlives it. Cut is called
// without a lock, on a thread of the table, for a stream that brought nothing for `idle`.
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

// Who writes.
class UploadStream {
 public:
  virtual ~UploadStream() = default;
  // Ends the stream with `why`, unless it is ending.
  virtual void Cut(const absl::Status& why) = 0;
};

class UploadTable {
 public:
  struct Options {
    absl::Duration idle = absl::Seconds(30);
    absl::Duration keep = absl::Minutes(5);
  };
  struct Progress {
    int64_t committed_bytes = 0;
    bool complete = false;
  };
  struct Committed {
    int64_t bytes = 0;
    uint32_t crc32c = 0;
  };
  // What has happened so far.
  struct Counts {
    int64_t bytes = 0;
    int64_t resumed = 0;   // streams that went on with an upload
    int64_t corrupt = 0;   // chunks that did not match their checksum
    int64_t idle_cut = 0;  // streams
    int64_t dropped = 0;   // uploads that nobody went on with
  };

  class Upload;
  using UploadRef = std::shared_ptr<Upload>;
  // A stream's right to write.
  struct Turn {
    UploadRef upload;
    uint64_t number = 0;
  };

  UploadTable(Executor* executor, const Options& options);
  UploadTable(const UploadTable&) = delete;
  UploadTable& operator=(const UploadTable&) = delete;
  // No stream is open any more.
  ~UploadTable();

  // Goes on at `offset`; 0 starts over. `ticket` was checked, and is for writing.
  absl::StatusOr<Turn> Open(const api::Ticket& ticket, int64_t offset,
                            std::weak_ptr<UploadStream> stream) ABSL_LOCKS_EXCLUDED(mu_);
  // The next chunk: `data`, one piece after the other.
  absl::Status Append(const Turn& turn, int64_t offset, absl::Span<const absl::string_view> data,
                      uint32_t crc32c);
  // The shard is to be whole.
  absl::StatusOr<Committed> Commit(const Turn& turn) ABSL_LOCKS_EXCLUDED(mu_);
  // The stream has ended, however it did; the last call for the turn.
  void Leave(const Turn& turn);

  absl::StatusOr<Progress> ProgressOf(const api::Ticket& ticket) ABSL_LOCKS_EXCLUDED(mu_);
  Counts counts() const;

 private:
  void Run();
  // Cuts and drops what is due; when to look again.
  absl::Time Sweep(absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // Forgets the upload, if it still is the one of its id.
  void Drop(const UploadRef& upload) ABSL_LOCKS_EXCLUDED(mu_);
  UploadRef Find(const BufferId& id) ABSL_LOCKS_EXCLUDED(mu_);

  // What outlives the table, for the callbacks that may come late.
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
  std::thread thread_;  // Last.
};

}  // namespace tessera::worker
