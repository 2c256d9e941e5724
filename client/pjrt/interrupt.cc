// The handler of SIGINT, and the thread that it wakes. A signal handler may call almost nothing, so
// OnInterrupt only wakes the thread, which asks the filter and cancels the runs.
//
// Python replaces the handler of a signal whenever the program sets one, so the plugin installs its
// own again at the beginning of each wait.
#include "client/pjrt/interrupt.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/thread_name.h"

namespace tessera::pjrt {
namespace {

// The time between SIGINT and the cancellation. JAX looks for signals every 200 ms while it waits.
// By the end of this time it has raised KeyboardInterrupt, so the program gets that exception and
// not the error of the cancelled run.
constexpr absl::Duration kInterruptGrace = absl::Milliseconds(250);

std::atomic<InterruptFilter> filter{nullptr};
std::atomic<FindInterrupted> find_interrupted{nullptr};
std::atomic<int64_t> num_interrupts{0};  // those that the filter has let through

// ---- State of the signal handler. ---------------------------------------------------------------
std::atomic<int> num_waits{0};
std::atomic<int64_t> last_run{0};               // the result of the last NextRunNumber
std::atomic<int64_t> last_run_at_interrupt{0};  // `last_run` at the last SIGINT in a wait
std::atomic<pid_t> watcher_pid{0};              // the process that has the thread
sem_t wake;
struct sigaction
    process_action;  // the action that OnInterrupt stands before; set before it is used

// Looks here whether the main thread waits. By the time that the thread has woken up, the program
// may have gone on, and may wait for something else.
void OnInterrupt(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  // A forked child has this handler, but not the thread.
  if (watcher_pid.load() == getpid() && num_waits.load() > 0) {
    last_run_at_interrupt.store(last_run.load());
    sem_post(&wake);
  }
  errno = saved_errno;
  if ((process_action.sa_flags & SA_SIGINFO) != 0) {
    process_action.sa_sigaction(signal, info, context);
  } else {
    process_action.sa_handler(signal);
  }
}

[[noreturn]] void Watch() {
  NameThread("tessera-ctrl-c");
  while (true) {
    while (sem_wait(&wake) != 0) continue;
    const FindInterrupted find = find_interrupted.load();
    const std::function<void()> cancel =
        find != nullptr ? find(last_run_at_interrupt.load()) : [] {};
    const InterruptFilter let_through = filter.load();
    if (let_through == nullptr || !let_through()) continue;
    num_interrupts.fetch_add(1);
    absl::SleepFor(kInterruptGrace);
    cancel();
  }
}

bool IsOurs(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == OnInterrupt;
}

bool HasHandler(const struct sigaction& action) {
  if ((action.sa_flags & SA_SIGINFO) != 0) return action.sa_sigaction != nullptr;
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

bool HasSameHandler(const struct sigaction& a, const struct sigaction& b) {
  if (((a.sa_flags ^ b.sa_flags) & SA_SIGINFO) != 0) return false;
  return (a.sa_flags & SA_SIGINFO) != 0 ? a.sa_sigaction == b.sa_sigaction
                                        : a.sa_handler == b.sa_handler;
}

ABSL_CONST_INIT absl::Mutex install_mu(absl::kConstInit);
bool has_process_action ABSL_GUARDED_BY(install_mu) = false;

// Puts OnInterrupt before the handler of the process. Leaves a signal alone that has no handler,
// since it then ends the process or is ignored. The handler of the process is remembered once: a
// foreign handler that comes later may itself call OnInterrupt, which must then not call it.
void Install() ABSL_LOCKS_EXCLUDED(install_mu) {
  struct sigaction current = {};
  if (sigaction(SIGINT, nullptr, &current) != 0 || IsOurs(current) || !HasHandler(current)) return;
  absl::MutexLock lock(&install_mu);
  if (has_process_action && !HasSameHandler(current, process_action)) return;
  if (!has_process_action) process_action = current;
  has_process_action = true;
  struct sigaction ours = current;
  ours.sa_sigaction = OnInterrupt;
  ours.sa_flags |= SA_SIGINFO;
  sigaction(SIGINT, &ours, nullptr);
}

// Starts the thread, which blocks all signals, so that they are delivered to the program's threads.
void StartWatcher() {
  if (watcher_pid.exchange(getpid()) == getpid()) return;
  sem_init(&wake, /*pshared=*/0, 0);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(Watch).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

bool IsMainThread() {
  static thread_local const bool is_main = syscall(SYS_gettid) == getpid();
  return is_main;
}

void SetInterruptFilter(InterruptFilter new_filter) {
  if (new_filter != nullptr) StartWatcher();
  filter.store(new_filter);
}

int64_t NextRunNumber() { return last_run.fetch_add(1) + 1; }

void SetFindInterrupted(FindInterrupted find) { find_interrupted.store(find); }

MainThreadWait::MainThreadWait()
    : counted_(IsMainThread() && filter.load() != nullptr),
      interrupts_before_(num_interrupts.load()) {
  if (!counted_) return;
  num_waits.fetch_add(1);
  Install();
}

MainThreadWait::~MainThreadWait() {
  if (counted_) num_waits.fetch_sub(1);
}

bool MainThreadWait::interrupted() const {
  return counted_ && num_interrupts.load() != interrupts_before_;
}

}  // namespace tessera::pjrt
