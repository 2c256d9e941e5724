// A C++ client for kill_loop.py and soak.py. It does the same work as the Python clients of
// load.py, over the SDK's own connection, which recovers by itself when processes are killed.
//
//   load_client ADDRESS CA_FILE SEED PLACE...   (the token is in TESSERA_TOKEN)
//
// A PLACE, such as "w0,w1:0,1,4,5", names the workers and devices where an array may lie. The
// client writes what it does and sees to stdout, one line for each event, with fields separated by
// tabs. Times are readings of CLOCK_MONOTONIC:
//
//   acknowledged OPERATION
//   ended OPERATION BEGAN AT WORKERS ARGUMENT STATE REASON ERROR
//   refused WHAT BEGAN AT WORKERS ARGUMENT REASON ERROR
//   read ARRAY BORN AT WORKERS right|wrong
//   unread ARRAY BORN AT WORKERS ARGUMENT REASON lost|else ERROR
//   did WHAT          for the statistics
//
// ARGUMENT is the array that was passed to the run, and the time at which the client began to make
// that array, such as "12@3456e-6". It is "-" if there was no argument.
//
// The client works until it reads a line from stdin. Then it reads every array that it keeps, asks
// again for the end of every run, prints "finished", and exits when its input ends.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/tessera.h"
#include "ir/text.h"

namespace tessera {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);  // longest time to wait for a run or a read
constexpr char kNoArgument[] = "-";
constexpr size_t kKeptMax = 25;
constexpr size_t kReleaseBatch = 8;
constexpr size_t kRepeatedRunsMax = 200;

constexpr char kAdd[] = R"(mesh (x=N)
func main(%a: f32[8] P('x')) -> (f32[8]) {
  %ones = constant() {value=dense<f32[8]: 1>}
  %b = add(%a, %ones)
  return %b
}
)";
constexpr char kSum[] = R"(mesh (x=N)
func main(%a: f32[8] P('x')) -> (f32[]) {
  %s = reduce_sum(%a) {dimensions=[0]}
  return %s
}
)";

std::string SecondsText(std::chrono::steady_clock::time_point time) {
  return absl::StrCat(
      std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count(),
      "e-6");
}
using Time = std::chrono::steady_clock::time_point;
Time Now() { return std::chrono::steady_clock::now(); }

std::string OneField(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\n", " "}, {"\r", " "}, {"\t", " "}});
}

template <class... Fields>
void Say(const Fields&... fields) {
  std::puts(absl::StrJoin({std::string(absl::StrCat(fields))...}, "\t").c_str());
}

struct Place {
  std::string workers;  // "w0,w1"
  std::vector<int64_t> devices;

  api::Placement ShardedPlacement() const {
    api::Placement out;
    out.mesh.axes = {{"x", static_cast<int64_t>(devices.size())}};
    out.spec.dims = {{"x"}};
    out.devices = devices;
    return out;
  }
};

// An array that the client holds, with the value that it must have.
struct KeptArray {
  uint64_t array = 0;
  ir::Array value;
  const Place* place = nullptr;
  std::string workers;  // workers on which the array depends
  Time born_at;
  // array from which a reshard makes this array; until this array could be read, it may be lost
  // with its source
  std::string made_from = kNoArgument;

  std::string AsArgument() const { return absl::StrCat(array, "@", SecondsText(born_at)); }
};

struct AcknowledgedRun {
  uint64_t operation;
  std::string workers;
  Time began_at;
  std::string argument;
};

class Client {
 public:
  Client(std::shared_ptr<Session> session, std::vector<Place> places, uint32_t seed)
      : session_(std::move(session)), places_(std::move(places)), random_(seed) {}

  void Act() {
    if (kept_.size() < 3 || Chance() < 0.1) return Put();
    if (!acknowledged_.empty() && Chance() < 0.05) {
      AwaitEnd(acknowledged_[random_() % acknowledged_.size()]);
      return;
    }
    const KeptArray kept = kept_[random_() % kept_.size()];
    const double choice = Chance();
    if (choice < 0.45) {
      Increment(kept, /*donate=*/true);
    } else if (choice < 0.6) {
      Increment(kept, /*donate=*/false);
    } else if (choice < 0.7) {
      Reduce(kept);
    } else if (choice < 0.78) {
      Reshard(kept);
    } else if (choice < 0.9) {
      Read(kept);
    } else {
      Delete(kept);
    }
    while (kept_.size() > kKeptMax) Delete(KeptArray(kept_.front()));
  }

  void Finish() {
    for (const KeptArray& kept : std::vector<KeptArray>(kept_)) Read(kept);
    for (const AcknowledgedRun& run : acknowledged_) AwaitEnd(run);
  }

 private:
  api::Service& service() { return session_->service(); }
  double Chance() { return static_cast<double>(random_() - random_.min()) / (random_.max() - 1.0); }
  const Place& AnyPlace() { return places_[random_() % places_.size()]; }

  static void SayRefused(const char* what, Time began_at, const std::string& workers,
                         const absl::Status& error, const std::string& argument = kNoArgument) {
    Say("refused", what, SecondsText(began_at), SecondsText(Now()), workers, argument,
        std::string(ReasonOf(error)), OneField(error.message()));
  }

  // Returns the executable of a program at a place, or 0 if it could not be compiled.
  uint64_t ExecutableFor(const char* text, const Place& place) {
    uint64_t& executable = programs_[{text, &place}];
    if (executable != 0) return executable;
    const Time began_at = Now();
    api::CompileRequest request;
    absl::StatusOr<ir::Program> program = ir::ParseProgram(
        absl::StrReplaceAll(text, {{"x=N", absl::StrCat("x=", place.devices.size())}}));
    if (!program.ok()) throw std::runtime_error(std::string(program.status().message()));
    request.program = *std::move(program);
    request.devices = place.devices;
    const absl::StatusOr<api::CompileReply> reply = service().Compile(request);
    if (reply.ok()) {
      executable = reply->executable;
    } else {
      SayRefused("compile", began_at, place.workers, reply.status());
    }
    return executable;
  }

  void StopKeeping(uint64_t array) {
    kept_.erase(std::remove_if(kept_.begin(), kept_.end(),
                               [&](const KeptArray& kept) { return kept.array == array; }),
                kept_.end());
  }

  void Put() {
    const Place& place = AnyPlace();
    const ir::Array value =
        ir::Array::Of(kF32, {8}, std::vector<double>(8, static_cast<double>(random_() % 1000)));
    const Time began_at = Now();
    const absl::StatusOr<uint64_t> array = service().Put(value, place.ShardedPlacement());
    if (!array.ok()) return SayRefused("put", began_at, place.workers, array.status());
    Say("did", "puts");
    kept_.push_back({*array, value, &place, place.workers, began_at});
  }

  struct RunResult {
    std::vector<uint64_t> outputs;  // empty if the run was refused
    bool done = false;
  };
  // Starts a run and waits for its end.
  RunResult Submit(const char* text, const KeptArray& kept, bool donate) {
    api::ExecuteRequest request;
    request.executable = ExecutableFor(text, *kept.place);
    if (request.executable == 0) return {};
    request.args = {kept.array};
    request.donate = {donate};
    if (released_.size() >= kReleaseBatch) request.release.swap(released_);
    const Time began_at = Now();
    const absl::StatusOr<api::ExecuteReply> reply = service().Execute(request);
    if (!reply.ok()) {
      // The call was refused, so these arrays may still exist.
      released_.insert(released_.end(), request.release.begin(), request.release.end());
      SayRefused("execute", began_at, kept.workers, reply.status(), kept.AsArgument());
      return {};
    }
    Say("did", "runs");
    Say("acknowledged", reply->operation);
    acknowledged_.push_back({reply->operation, kept.workers, began_at, kept.AsArgument()});
    if (acknowledged_.size() > kRepeatedRunsMax) acknowledged_.pop_front();
    return {reply->outputs, AwaitEnd(acknowledged_.back())};
  }

  // Waits for the end of the run. Returns whether it has ended successfully.
  bool AwaitEnd(const AcknowledgedRun& run) {
    const Time asked_at = Now();
    const absl::StatusOr<api::Operation> end =
        internal::WaitForOperation(service(), run.operation, kPatience);
    if (!end.ok()) {
      SayRefused("wait", asked_at, run.workers, end.status(), run.argument);
      return false;
    }
    if (!internal::HasEnded(*end)) {
      SayRefused(
          "wait", asked_at, run.workers,
          absl::DeadlineExceededError(absl::StrCat("it has not ended: ", end->pending_reason)),
          run.argument);
      return false;
    }
    const bool done = end->state == api::OperationState::kDone;
    Say("ended", run.operation, SecondsText(run.began_at), SecondsText(Now()), run.workers,
        run.argument,
        done                                            ? "DONE"
        : end->state == api::OperationState::kCancelled ? "CANCELLED"
                                                        : "FAILED",
        std::string(ReasonOf(end->error)), OneField(end->error.message()));
    return done;
  }

  void Increment(const KeptArray& kept, bool donate) {
    const Time born_at = Now();
    const RunResult run = Submit(kAdd, kept, donate);
    // A refused run leaves its argument unchanged, unless the argument itself is lost. Read it to
    // see.
    if (run.outputs.empty()) return Read(kept);
    if (donate && run.done) {
      StopKeeping(kept.array);
    } else if (donate) {
      // A failed run gives its donated argument back, unless a process that held it was killed.
      Read(kept);
    }
    if (!run.done) return;
    std::vector<double> incremented = kept.value.ToDoubles();
    for (double& value : incremented) value += 1;
    kept_.push_back(
        {run.outputs[0], ir::Array::Of(kF32, {8}, incremented), kept.place, kept.workers, born_at});
  }

  void Reduce(const KeptArray& kept) {
    const Time born_at = Now();
    const RunResult run = Submit(kSum, kept, /*donate=*/false);
    if (!run.done) return;
    double sum = 0;
    for (const double value : kept.value.ToDoubles()) sum += value;
    Read({run.outputs[0], ir::Array::Scalar(kF32, sum), kept.place, kept.workers, born_at});
    released_.push_back(run.outputs[0]);
  }

  void Reshard(const KeptArray& kept) {
    const Place& place = AnyPlace();
    std::vector<std::string> both_workers = absl::StrSplit(kept.workers, ',');
    for (const absl::string_view worker : absl::StrSplit(place.workers, ','))
      both_workers.emplace_back(worker);
    std::sort(both_workers.begin(), both_workers.end());
    both_workers.erase(std::unique(both_workers.begin(), both_workers.end()), both_workers.end());
    const Time born_at = Now();
    const absl::StatusOr<api::PendingArrays> pending =
        service().Reshard(kept.array, place.ShardedPlacement());
    const std::string workers = absl::StrJoin(both_workers, ",");
    if (!pending.ok())
      return SayRefused("reshard", born_at, workers, pending.status(), kept.AsArgument());
    Say("did", "reshards");
    kept_.push_back(
        {pending->arrays.at(0), kept.value, &place, workers, born_at, kept.AsArgument()});
    Read(KeptArray(kept_.back()));
    for (KeptArray& moved : kept_) {
      // Now that the array could be read, it depends only on the workers where it lies.
      if (moved.array != pending->arrays.at(0)) continue;
      moved.workers = place.workers;
      moved.made_from = kNoArgument;
    }
  }

  // Reads an array and compares it with its expected value. Stops keeping an array that cannot be
  // read or is wrong.
  void Read(const KeptArray& kept) {
    const absl::StatusOr<ir::Array> value = service().Get(kept.array, kPatience);
    const bool right = value.ok() && *value == kept.value;
    if (!right) {
      StopKeeping(kept.array);
      released_.push_back(kept.array);
    }
    if (value.ok()) {
      Say("did", "reads");
      Say("read", kept.array, SecondsText(kept.born_at), SecondsText(Now()), kept.workers,
          right ? "right" : "wrong");
      return;
    }
    const std::string error = OneField(value.status().message());
    // If the error names another array, the argument of this array's reshard was lost. That array
    // may be older.
    const bool lost = absl::StrContains(error, absl::StrCat("array ", kept.array, " is lost"));
    Say("unread", kept.array, SecondsText(kept.born_at), SecondsText(Now()), kept.workers,
        kept.made_from, std::string(ReasonOf(value.status())), lost ? "lost" : "else", error);
  }

  void Delete(const KeptArray& kept) {
    StopKeeping(kept.array);
    const Time began_at = Now();
    const absl::Status deleted = service().Delete({kept.array});
    if (!deleted.ok()) return SayRefused("delete", began_at, kept.workers, deleted);
    Say("did", "deletes");
  }

  const std::shared_ptr<Session> session_;
  const std::vector<Place> places_;
  std::minstd_rand random_;
  std::vector<KeptArray> kept_;
  std::deque<AcknowledgedRun> acknowledged_;  // the last kRepeatedRunsMax runs
  std::vector<uint64_t> released_;            // arrays to delete with one of the next runs
  std::map<std::pair<const char*, const Place*>, uint64_t> programs_;
};

bool HasInput(int timeout_ms) {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, timeout_ms) > 0;
}

void Main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  std::vector<Place> places;
  for (int i = 4; i < argc; ++i) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(argv[i], ':');
    Place place{parts.first, {}};
    for (const absl::string_view device : absl::StrSplit(parts.second, ','))
      place.devices.push_back(std::atoll(std::string(device).c_str()));
    places.push_back(std::move(place));
  }
  ConnectOptions options;
  options.ca_file = argv[2];
  Client client(Session::Connect(argv[1], options), std::move(places),
                static_cast<uint32_t>(std::atoll(argv[3])));
  while (!HasInput(0)) client.Act();
  for (int c = std::getchar(); c != EOF && c != '\n'; c = std::getchar()) {
  }
  client.Finish();
  Say("finished");
  // load.py looks at the session of this client before it closes the input.
  while (std::getchar() != EOF) {
  }
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fputs("usage: load_client ADDRESS CA_FILE SEED PLACE...\n", stderr);
    return 2;
  }
  try {
    tessera::Main(argc, argv);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "load_client: %s\n", e.what());
    return 1;
  }
}
