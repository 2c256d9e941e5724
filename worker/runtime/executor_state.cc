// The launches of an executor and the buffers that they retain, apart from the executor itself. The
// executor (executor.cc, executor_run.cc, executor_files.cc) creates, changes and ends them.
#include "worker/runtime/executor_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::worker {

std::string LaunchState::Name() const {
  if (program == nullptr) return absl::StrCat("transfer ", id);
  return absl::StrCat("launch ", id, " of ", *program->name);
}

bool LaunchState::UsesCollectives() const {
  if (program == nullptr) return false;
  // A program that is not compiled yet may turn out to use collectives.
  return !program->compiled.HasBeenNotified() ||
         (program->executable.ok() && (*program->executable)->has_collectives());
}

bool LaunchState::DonatesExclusively(size_t arg) const {
  return donates(arg) && std::count(args.begin(), args.end(), args[arg]) == 1;
}

std::shared_ptr<RetainedBuffer> RetainedBuffer::Retain(BufferTable& buffers, const BufferId& id) {
  const auto retained = std::make_shared<RetainedBuffer>();
  buffers.WhenReady(id, [retained](absl::StatusOr<DeviceBufferRef> buffer) {
    absl::MutexLock lock(&retained->mu_);
    retained->buffer_ = std::move(buffer);
    retained->done_ = true;
  });
  return retained;
}

absl::StatusOr<DeviceBufferRef> RetainedBuffer::Await(CancelToken& cancel) {
  // This wakes the wait below: a Mutex evaluates its conditions whenever its lock is released.
  const int64_t listener = cancel.AddListener([this] { absl::MutexLock lock(&mu_); });
  absl::StatusOr<DeviceBufferRef> buffer = absl::UnknownError("");
  {
    absl::MutexLock lock(&mu_);
    const auto over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return done_ || cancel.cancelled();
    };
    mu_.Await(absl::Condition(&over));
    buffer = done_ ? buffer_ : cancel.status();
  }
  cancel.RemoveListener(listener);
  return buffer;
}

}  // namespace tessera::worker
