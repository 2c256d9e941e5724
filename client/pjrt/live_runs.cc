// Cancels the runs that nobody needs, and those that the user wants to end. execute.cc adds a run
// at each call of the framework. interrupt.cc cancels at Ctrl-C, and the Python package through
// CancelAllRuns.
//
// A LiveRun is not told that its run has ended. So a run stays in the list, and its makers with it,
// until the list has grown to a certain size. The list then has at most twice as many runs as are
// under way.
#include "client/pjrt/live_runs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/base/const_init.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "client/pjrt/interrupt.h"

namespace tessera::pjrt {
namespace {

constexpr int kCancelThreads = 4;
// The size of a list at which it is first searched for runs that have ended.
constexpr size_t kDropAtMin = 64;
// How long CancelAllRuns waits for the coordinator.
constexpr absl::Duration kCancelAllWait = absl::Seconds(10);

// All LiveRuns of the process, for Ctrl-C and CancelAllRuns, which know no client.
ABSL_CONST_INIT absl::Mutex all_mu(absl::kConstInit);
std::vector<std::weak_ptr<LiveRuns>>& All() ABSL_EXCLUSIVE_LOCKS_REQUIRED(all_mu) {
  static auto* const all = new std::vector<std::weak_ptr<LiveRuns>>;
  return *all;
}

std::vector<std::shared_ptr<LiveRuns>> AllLiveRuns() ABSL_LOCKS_EXCLUDED(all_mu) {
  std::vector<std::shared_ptr<LiveRuns>> out;
  absl::MutexLock lock(&all_mu);
  for (const std::weak_ptr<LiveRuns>& one : All())
    if (std::shared_ptr<LiveRuns> live = one.lock()) out.push_back(std::move(live));
  return out;
}

// Returns the runs that the main thread has requested or waits for, and the runs that make their
// arguments, of all clients of this process. The runs are not known to have ended, and their
// numbers are at most `last`.
std::vector<LiveRunRef> RunsOfMainThread(int64_t last) {
  std::vector<LiveRunRef> out;
  std::set<const LiveRun*> found;
  for (const std::shared_ptr<LiveRuns>& live : AllLiveRuns())
    for (LiveRunRef& run : live->Unended())
      if (run->number() <= last && run->ConcernsMainThread() && found.insert(run.get()).second)
        out.push_back(std::move(run));
  for (size_t i = 0; i < out.size(); ++i)
    for (LiveRunRef& maker : out[i]->makers())
      if (!maker->HasEnded() && found.insert(maker.get()).second) out.push_back(std::move(maker));
  return out;
}

// Returns a function that cancels the runs of the main thread.
std::function<void()> FindInterruptedRuns(int64_t last) {
  return [runs = RunsOfMainThread(last)] {
    for (const LiveRunRef& run : runs) LiveRuns::Cancel(run);
  };
}

// A run to cancel, and the service to ask.
struct Cancellation {
  std::shared_ptr<LiveRuns> live;
  uint64_t operation = 0;
};

// Returns whether the operation has not ended.
absl::StatusOr<bool> IsUnended(api::Service& service, uint64_t operation) {
  const absl::StatusOr<api::Operation> found = service.GetOperation(operation);
  if (KindOf(found.status()) == ErrorKind::kOperationNotFound) return false;
  TESSERA_RETURN_IF_ERROR(found.status());
  return !internal::HasEnded(*found);
}

absl::StatusOr<bool> CancelOperation(api::Service& service, uint64_t operation) {
  TESSERA_RETURN_IF_ERROR(service.Cancel(operation));
  return true;
}

// Makes a call for each of `runs`, at the same time, and waits for them until `end`. Keeps in
// `runs` those for which the call returns true. Returns the first error of a call.
absl::Status CallForEach(absl::StatusOr<bool> (*call)(api::Service&, uint64_t), absl::Time end,
                         std::vector<Cancellation>* runs) {
  struct Calls {
    absl::Mutex mu;
    size_t under_way ABSL_GUARDED_BY(mu) = 0;
    std::vector<bool> answers ABSL_GUARDED_BY(mu);
    absl::Status error ABSL_GUARDED_BY(mu);
  };
  const auto calls = std::make_shared<Calls>();  // the calls may outlive the wait
  {
    absl::MutexLock lock(&calls->mu);
    calls->under_way = runs->size();
    calls->answers.resize(runs->size());
  }
  for (size_t i = 0; i < runs->size(); ++i) {
    const Cancellation& run = (*runs)[i];
    run.live->CallLater([call, session = run.live->session(), operation = run.operation, i, calls] {
      const absl::StatusOr<bool> answer = call(session->service(), operation);
      absl::MutexLock lock(&calls->mu);
      --calls->under_way;
      calls->answers[i] = answer.ok() && *answer;
      if (calls->error.ok()) calls->error = answer.status();
    });
  }
  absl::MutexLock lock(&calls->mu);
  const auto done = [&]() ABSL_SHARED_LOCKS_REQUIRED(calls->mu) { return calls->under_way == 0; };
  if (!calls->mu.AwaitWithTimeout(absl::Condition(&done), end - SteadyNow())) {
    return MakeError(
        ErrorKind::kDeadlineExceeded,
        absl::StrCat("cancel: the coordinator has not answered within ",
                     absl::FormatDuration(kCancelAllWait), " for ", calls->under_way, " of ",
                     runs->size(), " runs; check that it runs, and call again"));
  }
  size_t n = 0;
  for (size_t i = 0; i < runs->size(); ++i)
    if (calls->answers[i]) (*runs)[n++] = (*runs)[i];
  runs->resize(n);
  return calls->error;
}

}  // namespace

// ---- One run. -----------------------------------------------------------------------------------

LiveRun::LiveRun(std::weak_ptr<LiveRuns> owner, std::shared_ptr<Session> session,
                 std::vector<LiveRunRef> makers)
    : owner_(std::move(owner)),
      session_(std::move(session)),
      number_(NextRunNumber()),
      by_main_thread_(IsMainThread()),
      makers_(std::move(makers)) {}

LiveRun::~LiveRun() {
  const uint64_t operation = operation_.load();
  if (detached_ || cancelled_.load() || operation == 0 || HasEnded()) return;
  if (const std::shared_ptr<LiveRuns> owner = owner_.lock()) owner->CancelLater(operation);
}

void LiveRun::SetOutcome(const std::shared_ptr<Outcome>& outcome) {
  absl::MutexLock lock(&mu_);
  outcome_ = outcome;
}

// NoteAccepted and MarkCancelled may run at the same time. Each sets its member before it reads the
// other's, so that at least one of them sees both, and the operation is cancelled.
void LiveRun::NoteAccepted(uint64_t operation) {
  if (operation == 0) return NoteEnded();
  operation_.store(operation);
  if (!cancelled_.load()) return;
  if (const std::shared_ptr<LiveRuns> owner = owner_.lock()) owner->CancelLater(operation);
}

uint64_t LiveRun::MarkCancelled() {
  cancelled_.store(true);
  return operation_.load();
}

void LiveRun::NoteEnded() {
  std::vector<LiveRunRef> makers;  // destroyed without the lock
  ended_.store(true);
  absl::MutexLock lock(&mu_);
  makers.swap(makers_);
}

// Looks at the outcome first. The service has a lock that its own threads need.
bool LiveRun::HasEnded() {
  if (ended_.load()) return true;
  const std::shared_ptr<Outcome> outcome = this->outcome();
  if (outcome == nullptr || !outcome->settled()) {
    const uint64_t operation = operation_.load();
    if (operation == 0 || !session_->service().HasEnded(operation)) return false;
  }
  NoteEnded();
  return true;
}

bool LiveRun::ConcernsMainThread() const {
  if (by_main_thread_) return true;
  const std::shared_ptr<Outcome> outcome = this->outcome();
  return outcome != nullptr && outcome->MainThreadWaits();
}

std::shared_ptr<Outcome> LiveRun::outcome() const {
  absl::MutexLock lock(&mu_);
  return outcome_.lock();
}

std::vector<LiveRunRef> LiveRun::makers() const {
  absl::MutexLock lock(&mu_);
  return makers_;
}

// ---- The runs of a client. ----------------------------------------------------------------------

LiveRuns::LiveRuns(std::shared_ptr<Session> session)
    : session_(std::move(session)), drop_at_(kDropAtMin), pool_({.threads = kCancelThreads}) {}

LiveRuns::~LiveRuns() = default;

LiveRunRef LiveRuns::Add(std::vector<LiveRunRef> makers) {
  std::erase_if(makers, [](const LiveRunRef& run) { return run->IsKnownEnded(); });
  auto run = std::make_shared<LiveRun>(weak_from_this(), session_, std::move(makers));
  {
    absl::MutexLock lock(&mu_);
    runs_.push_back(run);
    if (runs_.size() < drop_at_) return run;
  }
  DropEnded();
  return run;
}

void LiveRuns::DropEnded() {
  std::vector<LiveRunRef> seen = Unended();  // asks about each run; destroyed without the lock
  absl::MutexLock lock(&mu_);
  std::erase_if(runs_, [&](const std::weak_ptr<LiveRun>& one) {
    const LiveRunRef& run = seen.emplace_back(one.lock());
    return run == nullptr || run->IsKnownEnded();
  });
  drop_at_ = std::max(kDropAtMin, 2 * runs_.size());
}

std::vector<LiveRunRef> LiveRuns::Unended() {
  std::vector<LiveRunRef> runs;
  {
    absl::MutexLock lock(&mu_);
    for (const std::weak_ptr<LiveRun>& one : runs_)
      if (LiveRunRef run = one.lock()) runs.push_back(std::move(run));
  }
  std::erase_if(runs, [](const LiveRunRef& run) { return run->HasEnded(); });
  return runs;
}

void LiveRuns::Cancel(const LiveRunRef& run) {
  if (run->HasEnded()) return;
  const uint64_t operation = run->MarkCancelled();
  const std::shared_ptr<LiveRuns> owner = run->owner_.lock();
  if (operation != 0 && owner != nullptr) owner->CancelLater(operation);
}

// If the call fails, the run goes on until it ends by itself.
void LiveRuns::CancelLater(uint64_t operation) {
  CallLater(
      [session = session_, operation] { session->service().Cancel(operation).IgnoreError(); });
}

// ---- All clients. -------------------------------------------------------------------------------

std::shared_ptr<LiveRuns> MakeLiveRuns(std::shared_ptr<Session> session) {
  SetFindInterrupted(FindInterruptedRuns);
  auto made = std::make_shared<LiveRuns>(std::move(session));
  absl::MutexLock lock(&all_mu);
  std::vector<std::weak_ptr<LiveRuns>>& all = All();
  std::erase_if(all, [](const std::weak_ptr<LiveRuns>& one) { return one.expired(); });
  all.push_back(made);
  return made;
}

// Asks about all runs before it cancels one: when a run is cancelled, the runs that take its
// results end by themselves. A run that is not accepted yet counts as cancelled, because the code
// that requests it finds the mark.
absl::StatusOr<int64_t> CancelAllRuns() {
  const absl::Time end = SteadyNow() + kCancelAllWait;
  int64_t num_unaccepted = 0;
  std::vector<Cancellation> runs;
  for (const std::shared_ptr<LiveRuns>& live : AllLiveRuns()) {
    for (const LiveRunRef& run : live->Unended()) {
      const uint64_t operation = run->MarkCancelled();
      if (operation == 0) {
        ++num_unaccepted;
      } else {
        runs.push_back({live, operation});
      }
    }
  }
  TESSERA_RETURN_IF_ERROR(CallForEach(IsUnended, end, &runs));
  TESSERA_RETURN_IF_ERROR(CallForEach(CancelOperation, end, &runs));
  return num_unaccepted + static_cast<int64_t>(runs.size());
}

}  // namespace tessera::pjrt
