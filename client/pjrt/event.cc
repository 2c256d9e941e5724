// Outcomes, and the functions of the PJRT C API for the events that refer to them. Runs, transfers
// and callbacks of the host settle outcomes; the framework polls, awaits or is called back. The
// wait for a run starts only when its outcome is asked for, because the framework never asks for
// the outcomes of many runs.
#include "client/pjrt/event.h"

#include "absl/strings/string_view.h"
#include "client/pjrt/status.h"

namespace tessera::pjrt {

void Outcome::SetLazyStart(std::function<void()> start) {
  {
    absl::MutexLock lock(&mu_);
    if (!asked_) {
      start_ = std::move(start);
      return;
    }
  }
  start();
}

void Outcome::Start() {
  std::function<void()> start;
  {
    absl::MutexLock lock(&mu_);
    asked_ = true;
    start.swap(start_);
  }
  if (start) start();
}

void Outcome::Settle(const absl::Status& status) {
  std::vector<std::pair<OnReadyCallback, void*>> callbacks;
  {
    absl::MutexLock lock(&mu_);
    if (settled_) return;
    settled_ = true;
    status_ = status;
    callbacks.swap(callbacks_);
    main_wait_.reset();
  }
  for (const auto& [callback, user_arg] : callbacks) callback(ErrorOf(status), user_arg);
}

bool Outcome::AskIfSettled() {
  Start();
  absl::MutexLock lock(&mu_);
  return settled_;
}

bool Outcome::settled() const {
  absl::MutexLock lock(&mu_);
  return settled_;
}

absl::Status Outcome::status() const {
  absl::MutexLock lock(&mu_);
  return status_;
}

absl::Status Outcome::Await() {
  const MainThreadWait wait;
  Start();
  absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(&settled_));
  return status_;
}

void Outcome::OnSettled(OnReadyCallback callback, void* user_arg) {
  {
    absl::ReleasableMutexLock lock(&mu_);
    if (settled_) {
      const absl::Status status = status_;
      lock.Release();
      return callback(ErrorOf(status), user_arg);
    }
    callbacks_.emplace_back(callback, user_arg);
  }
  Start();
}

void Outcome::NoteWait() {
  if (!IsMainThread()) return;
  absl::MutexLock lock(&mu_);
  if (!settled_ && !main_wait_) main_wait_.emplace();
}

bool Outcome::MainThreadWaits() const {
  absl::MutexLock lock(&mu_);
  return main_wait_.has_value();
}

std::shared_ptr<Outcome> SettledOutcome() {
  static Outcome* const settled = new Outcome(absl::OkStatus());
  // The shared_ptr owns nothing, so that copying it does not count references.
  return {std::shared_ptr<Outcome>(), settled};
}

Error* Event_Destroy(Event_Destroy_Args* args) {
  delete args->event;
  return nullptr;
}

Error* Event_IsReady(Event_IsReady_Args* args) {
  args->is_ready = args->event->outcome->AskIfSettled();
  return nullptr;
}

Error* Event_Error(Event_Error_Args* args) { return ErrorOf(args->event->outcome->status()); }

Error* Event_Await(Event_Await_Args* args) { return ErrorOf(args->event->outcome->Await()); }

Error* Event_OnReady(Event_OnReady_Args* args) {
  args->event->outcome->OnSettled(args->callback, args->user_arg);
  return nullptr;
}

Error* Event_Create(Event_Create_Args* args) {
  args->event = new Event{std::make_shared<Outcome>()};
  return nullptr;
}

Error* Event_Set(Event_Set_Args* args) {
  args->event->outcome->Settle(
      absl::Status(static_cast<absl::StatusCode>(args->error_code),
                   absl::string_view(args->error_message, args->error_message_size)));
  return nullptr;
}

}  // namespace tessera::pjrt
