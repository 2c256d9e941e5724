// Tells the thread sanitizer how Abseil's mutexes, notifications and counters order the accesses of
// threads. It is linked only in the tsan preset.
//
// The packaged Abseil is built without the sanitizer, which therefore sees no order between the
// critical sections of an absl::Mutex and reports every guarded member as a race. The linker sends
// our calls to the functions below (--wrap, see base/CMakeLists.txt). A function that wakes or
// admits other threads, such as Unlock, tells the sanitizer before the real call that this thread's
// writes are released. A function that waits for other threads, such as Lock, tells it after the
// real call that their writes are acquired. The real call may evaluate a Condition on whichever
// thread holds the lock at that time, so memory accesses within the real call are not checked.
//
// Compiled by itself: other files of base call the functions that are wrapped here.
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}

namespace {

class IgnoreAccesses {
 public:
  IgnoreAccesses() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~IgnoreAccesses() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
};

// Turns off Abseil's own detection of deadlocks, which has a lock that the sanitizer does not see
// either.
[[maybe_unused]] const bool no_deadlock_detection = [] {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return true;
}();

enum class Before { kNothing, kRelease };
enum class After { kNothing, kAcquire };

template <Before before, After after, typename Call>
auto Ordered(void* address, Call call) {
  struct AcquireAtEnd {
    void* address;
    ~AcquireAtEnd() {
      if (after == After::kAcquire) __tsan_acquire(address);
    }
  } acquire{address};
  if (before == Before::kRelease) __tsan_release(address);
  IgnoreAccesses ignore;
  return call();
}

}  // namespace

// Defines the wrapper of one member function by its mangled name. `order` is the object whose
// address carries the order: the lock, or the notification.
#define TESSERA_WRAP(result, mangled, order, before, after, params, args)                       \
  extern "C" result __real_##mangled params;                                                    \
  extern "C" result __wrap_##mangled params;                                                    \
  result __wrap_##mangled params {                                                              \
    return Ordered<Before::before, After::after>(order, [&] { return __real_##mangled args; }); \
  }

#define TESSERA_ABSL_NAME(tail) _ZN4absl7debian3##tail
#define TESSERA_ABSL_CONST_NAME(tail) _ZNK4absl7debian3##tail
#define TESSERA_WRAP_(...) TESSERA_WRAP(__VA_ARGS__)

// -- Mutex: locking acquires, unlocking releases, awaiting does both.
#define TESSERA_LOCK(result, tail, params, args) \
  TESSERA_WRAP_(result, TESSERA_ABSL_NAME(tail), self, kNothing, kAcquire, params, args)
#define TESSERA_UNLOCK(tail) \
  TESSERA_WRAP_(void, TESSERA_ABSL_NAME(tail), self, kRelease, kNothing, (void* self), (self))
#define TESSERA_AWAIT(result, tail, order, params, args) \
  TESSERA_WRAP_(result, TESSERA_ABSL_NAME(tail), order, kRelease, kAcquire, params, args)

using absl::Condition;
using absl::Duration;
using absl::Time;

TESSERA_LOCK(void, 5Mutex4LockEv, (void* self), (self))
TESSERA_LOCK(void, 5Mutex10ReaderLockEv, (void* self), (self))
TESSERA_LOCK(bool, 5Mutex7TryLockEv, (void* self), (self))
TESSERA_LOCK(bool, 5Mutex13ReaderTryLockEv, (void* self), (self))
TESSERA_LOCK(void, 5Mutex8LockWhenERKNS0_9ConditionE, (void* self, const Condition& c), (self, c))
TESSERA_LOCK(void, 5Mutex14ReaderLockWhenERKNS0_9ConditionE, (void* self, const Condition& c),
             (self, c))
TESSERA_LOCK(bool, 5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE,
             (void* self, const Condition& c, Duration t), (self, c, t))
TESSERA_LOCK(bool, 5Mutex25ReaderLockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE,
             (void* self, const Condition& c, Duration t), (self, c, t))
TESSERA_LOCK(bool, 5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE,
             (void* self, const Condition& c, Time t), (self, c, t))
TESSERA_LOCK(bool, 5Mutex26ReaderLockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE,
             (void* self, const Condition& c, Time t), (self, c, t))
TESSERA_UNLOCK(5Mutex6UnlockEv)
TESSERA_UNLOCK(5Mutex12ReaderUnlockEv)
TESSERA_AWAIT(void, 5Mutex5AwaitERKNS0_9ConditionE, self, (void* self, const Condition& c),
              (self, c))
TESSERA_AWAIT(bool, 5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE, self,
              (void* self, const Condition& c, Duration t), (self, c, t))
TESSERA_AWAIT(bool, 5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE, self,
              (void* self, const Condition& c, Time t), (self, c, t))

// -- CondVar: the order is carried by the lock, `mu`.
TESSERA_AWAIT(void, 7CondVar4WaitEPNS0_5MutexE, mu, (void* self, void* mu), (self, mu))
TESSERA_AWAIT(bool, 7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE, mu,
              (void* self, void* mu, Duration t), (self, mu, t))
TESSERA_AWAIT(bool, 7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE, mu,
              (void* self, void* mu, Time t), (self, mu, t))

// -- Status: the sanitizer does not see the count of references. So when the last owner deletes the
// status, the deletion looks like a race with the reads of the owners that released the status
// before.
TESSERA_WRAP_(void, TESSERA_ABSL_NAME(6Status15UnrefNonInlinedEm), self, kNothing, kNothing,
              (void* self), (self))

// -- Notification, BlockingCounter, Barrier.
#define TESSERA_WAIT_CONST(result, tail, params, args) \
  TESSERA_WRAP_(result, TESSERA_ABSL_CONST_NAME(tail), self, kNothing, kAcquire, params, args)

TESSERA_UNLOCK(12Notification6NotifyEv)
TESSERA_WAIT_CONST(void, 12Notification19WaitForNotificationEv, (void* self), (self))
TESSERA_WAIT_CONST(bool, 12Notification30WaitForNotificationWithTimeoutENS0_8DurationE,
                   (void* self, Duration t), (self, t))
TESSERA_WAIT_CONST(bool, 12Notification31WaitForNotificationWithDeadlineENS0_4TimeE,
                   (void* self, Time t), (self, t))
TESSERA_AWAIT(bool, 15BlockingCounter14DecrementCountEv, self, (void* self), (self))
TESSERA_LOCK(void, 15BlockingCounter4WaitEv, (void* self), (self))
TESSERA_AWAIT(bool, 7Barrier5BlockEv, self, (void* self), (self))
