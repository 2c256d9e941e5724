// Runs callbacks before the process ends; Lease registers one that deletes its session. A signal
// handler may call almost nothing, so OnSignal only wakes a watcher thread, which runs the
// callbacks and then lets the signal take its default action.
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
  std::function<void(absl::Time)> callback;
  pid_t process = 0;
  enum class State { kPending, kRunning, kDone } state = State::kPending;
};

namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

// ---- State of the signal handler. ---------------------------------------------------------------
std::atomic<pid_t> watcher_pid{0};  // the process that last called WatchSignals
std::atomic<int> caught_signal{0};
sem_t wake;

void DieBySignal(int signal) {
  ::signal(signal, SIG_DFL);
  raise(signal);
}

void OnSignal(int signal) {
  const int saved_errno = errno;
  int none = 0;
  // A forked child has no watcher thread, and a second signal ends the process at once.
  if (watcher_pid.load() != getpid() || !caught_signal.compare_exchange_strong(none, signal)) {
    DieBySignal(signal);
  } else {
    sem_post(&wake);
  }
  errno = saved_errno;
}

bool IsHandledBy(int signal, void (*handler)(int)) {
  struct sigaction current = {};
  sigaction(signal, nullptr, &current);
  return (current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler == handler;
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

// Called once in each process that has an AtProcessEnd, so a forked child calls it again. Installs
// OnSignal for the signals whose action is the default. In a forked child the action may be the
// inherited OnSignal, which is kept.
void WatchSignals() {
  std::vector<int> signals;  // signals to handle
  for (int signal : kSignals)
    if (IsHandledBy(signal, SIG_DFL) || IsHandledBy(signal, OnSignal)) signals.push_back(signal);
  if (signals.empty()) return;
  sem_init(&wake, /*pshared=*/0, 0);
  caught_signal = 0;
  // The watcher thread blocks all signals, so that they are delivered to the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(Watch).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  for (int signal : signals) {
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
// The registry is never destroyed, because it is used while static objects are destroyed.
Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

}  // namespace

AtProcessEnd::AtProcessEnd(std::function<void(absl::Time)> callback)
    : entry_(std::make_shared<Entry>()) {
  entry_->callback = std::move(callback);
  entry_->process = getpid();
  {
    Registry& registry = TheRegistry();
    absl::MutexLock lock(&registry.mu);
    registry.entries.push_back(entry_);
  }
  // Register RunAll at the first AtProcessEnd, so that static objects that were made earlier are
  // destroyed after RunAll.
  static const int registered = atexit([] { RunAll(); });
  (void)registered;
  if (watcher_pid.exchange(entry_->process) != entry_->process) WatchSignals();
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

// Runs the pending callbacks one after the other. It may run on several threads at once, say at
// exit and after a signal: each callback is marked as running before it is called, and a thread
// that finds one running waits for it, so that no thread ends the process while a callback runs.
// All waits end at the deadline.
void AtProcessEnd::RunAll() {
  if (watcher_pid.load() != getpid()) return;
  const absl::Time deadline = SteadyNow() + kCloseTimeout;
  Registry& registry = TheRegistry();
  while (true) {
    // Like atexit, the callback that was registered last runs first.
    std::shared_ptr<Entry> last;
    {
      absl::MutexLock lock(&registry.mu);
      const auto none_running = [&registry]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(registry.mu) {
        return std::none_of(registry.entries.begin(), registry.entries.end(),
                            [](const auto& e) { return e->state == Entry::State::kRunning; });
      };
      // If another thread is running a callback, wait until it has returned.
      if (!registry.mu.AwaitWithTimeout(absl::Condition(&none_running), deadline - SteadyNow()))
        return;
      for (const auto& entry : registry.entries)
        if (entry->state == Entry::State::kPending && entry->process == getpid()) last = entry;
      if (last == nullptr) return;
      last->state = Entry::State::kRunning;
    }
    last->callback(deadline);
    absl::MutexLock lock(&registry.mu);
    last->state = Entry::State::kDone;
  }
}

}  // namespace tessera::remote
