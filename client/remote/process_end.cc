#include "client/remote/process_end.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"

namespace tessera::remote {

struct AtProcessEnd::Entry {
  std::function<void(absl::Time)> close;
  pid_t process = 0;
  enum class State { kPending, kRunning, kDone } state = State::kPending;
};

namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

// ---- State of the signal handler. ---------------------------------------------------------------
std::atomic<pid_t> watched_process{0};
std::atomic<int> caught_signal{0};
sem_t wake;

void DieBySignal(int signal) {
  ::signal(signal, SIG_DFL);
  raise(signal);
}

void OnSignal(int signal) {
  const int saved = errno;
  int none = 0;
  // A forked child has no watcher thread, and a second signal ends the process at once.
  if (watched_process.load() != getpid() || !caught_signal.compare_exchange_strong(none, signal)) {
    DieBySignal(signal);
  } else {
    sem_post(&wake);
  }
  errno = saved;
}

bool IsHandledBy(int signal, void (*handler)(int)) {
  struct sigaction now = {};
  sigaction(signal, nullptr, &now);
  return (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == handler;
}

[[noreturn]] void Watch() {
  while (true) {
    while (sem_wait(&wake) != 0) continue;
    AtProcessEnd::RunAll();
    const int signal = caught_signal.load();
    if (IsHandledBy(signal, OnSignal)) ::signal(signal, SIG_DFL);
    kill(getpid(), signal);
  }
}

// Called once per process. Handles only the signals that have the default action.
void WatchSignals() {
  std::vector<int> unhandled;
  // OnSignal is the handler of a forked child too, which inherits it.
  for (int signal : kSignals)
    if (IsHandledBy(signal, SIG_DFL) || IsHandledBy(signal, OnSignal)) unhandled.push_back(signal);
  if (unhandled.empty()) return;
  sem_init(&wake, /*pshared=*/0, 0);
  caught_signal = 0;
  // The watcher thread blocks all signals, so that those that the program waits for reach it.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(Watch).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  for (int signal : unhandled) {
    struct sigaction action = {};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
  }
}

struct Registry {
  absl::Mutex mu;
  std::vector<std::shared_ptr<AtProcessEnd::Entry>> entries ABSL_GUARDED_BY(mu);
};
// Never destroyed: it is used while static objects are destroyed.
Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

}  // namespace

AtProcessEnd::AtProcessEnd(std::function<void(absl::Time)> close)
    : entry_(std::make_shared<Entry>()) {
  entry_->close = std::move(close);
  entry_->process = getpid();
  {
    Registry& registry = TheRegistry();
    absl::MutexLock lock(&registry.mu);
    registry.entries.push_back(entry_);
  }
  // Registered at the first connection, so that earlier static objects are destroyed after RunAll.
  static const int registered = atexit([] { RunAll(); });
  (void)registered;
  if (watched_process.exchange(entry_->process) != entry_->process) WatchSignals();
}

AtProcessEnd::~AtProcessEnd() {
  // In a forked child the lock may be held by a thread that exists only in the parent.
  if (entry_->process != getpid()) return;
  Registry& registry = TheRegistry();
  absl::MutexLock lock(&registry.mu);
  const auto not_running = [this] { return entry_->state != Entry::State::kRunning; };
  registry.mu.Await(absl::Condition(&not_running));
  registry.entries.erase(std::remove(registry.entries.begin(), registry.entries.end(), entry_),
                         registry.entries.end());
}

void AtProcessEnd::RunAll() {
  if (watched_process.load() != getpid()) return;
  const absl::Time by = SteadyNow() + kCloseTimeout;
  Registry& registry = TheRegistry();
  while (true) {
    std::shared_ptr<Entry> next;
    {
      absl::MutexLock lock(&registry.mu);
      const auto none_running = [&registry]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry.mu) {
        return std::none_of(registry.entries.begin(), registry.entries.end(),
                            [](const auto& e) { return e->state == Entry::State::kRunning; });
      };
      // Waits for another thread that is running a callback.
      if (!registry.mu.AwaitWithTimeout(absl::Condition(&none_running), by - SteadyNow())) return;
      for (const auto& entry : registry.entries)
        if (entry->state == Entry::State::kPending && entry->process == getpid()) next = entry;
      if (next == nullptr) return;
      next->state = Entry::State::kRunning;
    }
    next->close(by);
    absl::MutexLock lock(&registry.mu);
    next->state = Entry::State::kDone;
  }
}

}  // namespace tessera::remote
