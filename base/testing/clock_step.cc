// A library for LD_PRELOAD that steps the wall clock of the processes that load it. The environment
// variable CLOCK_STEP_FILE names a file with an int64: the size of the step in seconds. The file
// may change at any time. Monotonic clocks are not changed.
//
// If the clock is stepped during a wait until a time of the wall clock, the wait ends earlier or
// later by the size of the step. For this, such waits are cut into slices, and the file is read
// again after each slice.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace {

constexpr int64_t kNanos = 1'000'000'000, kSlice = kNanos / 5;

using ClockGetTime = int (*)(clockid_t, timespec*);
// The type of the arguments and results of libc's syscall().
using Word = long;  // NOLINT(google-runtime-int): libc's
using Syscall = Word (*)(Word, ...);
using CondTimedWait = int (*)(pthread_cond_t*, pthread_mutex_t*, const timespec*);

template <class F>
F NextDefinition(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}
ClockGetTime RealClockGettime() {
  static const auto found = NextDefinition<ClockGetTime>("clock_gettime");
  return found;
}

int64_t StepNanos() {
  static const std::atomic<int64_t>* const seconds = [] {
    const char* path = getenv("CLOCK_STEP_FILE");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    // If the file is too short, extend it with zeros, which mean no step.
    struct stat about = {};
    constexpr off_t kBytes = sizeof(int64_t);
    if (fd >= 0 &&
        (fstat(fd, &about) != 0 || (about.st_size < kBytes && ftruncate(fd, kBytes) != 0))) {
      close(fd);
      fd = -1;
    }
    void* at = fd < 0 ? MAP_FAILED : mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    return at == MAP_FAILED ? nullptr : static_cast<const std::atomic<int64_t>*>(at);
  }();
  return seconds ? seconds->load(std::memory_order_relaxed) * kNanos : 0;
}

int64_t ToNanos(const timespec& t) { return t.tv_sec * kNanos + t.tv_nsec; }
timespec ToTime(int64_t nanos) { return {nanos / kNanos, nanos % kNanos}; }

int64_t RealNow() {
  timespec now;
  RealClockGettime()(CLOCK_REALTIME, &now);
  return ToNanos(now);
}
// Returns when the next slice of a wait until `deadline` ends, as a time of the real wall clock.
int64_t SliceEnd(int64_t deadline, int64_t now) {
  const int64_t real_deadline = deadline - StepNanos();
  return real_deadline < now + kSlice ? real_deadline : now + kSlice;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t id, timespec* out) {
  const int result = RealClockGettime()(id, out);
  if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
    *out = ToTime(ToNanos(*out) + StepNanos());
  return result;
}

int gettimeofday(timeval* out, void* /*zone*/) {
  const int64_t now = RealNow() + StepNanos();
  *out = {now / kNanos, now % kNanos / 1000};
  return 0;
}

time_t time(time_t* out) {
  const time_t now = (RealNow() + StepNanos()) / kNanos;
  if (out) *out = now;
  return now;
}

// The condition may be signalled between two slices, while no thread waits for it. So each slice
// ends like a spurious wake-up, after which the caller checks its predicate again.
int pthread_cond_timedwait(pthread_cond_t* cond, pthread_mutex_t* mutex, const timespec* deadline) {
  static const auto real = NextDefinition<CondTimedWait>("pthread_cond_timedwait");
  // The bit with which glibc marks a condition whose deadlines are times of the monotonic clock.
  // That clock does not step.
  constexpr unsigned kMonotonic = 2;
  if ((cond->__data.__wrefs & kMonotonic) != 0) return real(cond, mutex, deadline);
  const int64_t now = RealNow(), end = SliceEnd(ToNanos(*deadline), now);
  const timespec slice = ToTime(end);
  const int result = real(cond, mutex, &slice);
  return result == ETIMEDOUT && RealNow() + StepNanos() < ToNanos(*deadline) ? 0 : result;
}

// Replaces syscall(), because Abseil makes the system call futex directly. Waits by the wall clock
// are cut into slices here too; all other calls pass through.
Word syscall(Word number, ...) {
  static const auto real = NextDefinition<Syscall>("syscall");
  Word a[6];
  va_list list;
  va_start(list, number);
  for (Word& word : a) word = va_arg(list, Word);
  va_end(list);
  constexpr Word kByWallClock = FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME;
  const auto* deadline = reinterpret_cast<const timespec*>(a[3]);
  if (number != SYS_futex || (a[1] & kByWallClock) != kByWallClock || deadline == nullptr)
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  while (true) {
    const timespec slice = ToTime(SliceEnd(ToNanos(*deadline), RealNow()));
    const Word result = real(number, a[0], a[1], a[2], &slice, a[4], a[5]);
    if (result == 0 || errno != ETIMEDOUT || RealNow() + StepNanos() >= ToNanos(*deadline))
      return result;
  }
}

}  // extern "C"
