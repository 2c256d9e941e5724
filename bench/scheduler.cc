// Measures the scheduler's step: the time of each common event on a cluster of 1,024 workers with
// one executor each. The cluster holds many arrays and sessions. Three clusters, with a tenth of,
// all of and ten times the arrays and sessions, show which times grow with them.
//
//   bench-scheduler [--samples N] [--one] [--smoke]        --one: only the middle cluster
//
// Nothing but Step runs: no planner, no threads, no network. A time includes the time to destroy
// the effects that the step returns.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "bench/flags.h"
#include "bench/samples.h"
#include "ir/builder.h"
#include "ir/type.h"
#include "server/scheduler/step.h"

namespace tessera::bench {
namespace {

using namespace server::scheduler;  // NOLINT(google-build-using-namespace): every name here is its
namespace core = server::core;

struct ClusterSize {
  int workers = 1024;  // number of workers, with one executor of one device each
  int lost = 128;      // number of workers that are lost at once in the last rows
  int arrays = 100'000;
  int sessions = 1000;
  int samples = 200;
};
constexpr int kGroup = 8;        // executors that hold an array or run a program, for most of them
constexpr int kTenants = 20;     // tenants who share the sessions
constexpr int kRunsOfGroup = 4;  // runs of each group that are live when workers are lost

// A row of the table. Each time is that of one step, or that of several steps divided by their
// number of units.
struct Row {
  const char* name;
  const char* unit;  // what one time stands for: a step, a report, an executor
  Samples times;     // in microseconds
};

ir::Mesh MeshOf(int devices) { return {{{"x", devices}}}; }

class Cluster {
 public:
  explicit Cluster(const ClusterSize& size) : size_(size) {
    Config config;
    config.arrays_max = 100'000'000;
    config.sessions_max = 100'000'000;
    config.ticket_key = config.communicator_secret = "secret";
    state_ = InitialState(config);
    for (int w = 0; w < size.workers; ++w) DoStep(RegisteredEvent(w));
    for (int first = 0; first < size.workers; first += kGroup)
      programs_.push_back(CompileProgram(first, kGroup));
    program_on_all_ = CompileProgram(0, size.workers);
    for (int s = 0; s < size.sessions; ++s) {
      OpenSession open{NewRequest(TenantOf(s)), "bench", absl::Seconds(60)};
      sessions_.push_back(Ask<SessionInfo>(open).id);
    }
    for (int a = 0; a < size.arrays; ++a) arrays_.push_back(MakeArray(a, a % groups(), kGroup));
    array_on_all_ = MakeArray(0, 0, size.workers);
  }

  // Measures all rows. Most rows make one step after another on the same state. The rows whose
  // events remove sessions or workers make their steps on a copy of the state, so that the other
  // rows find the cluster as it was built. The clock moves a little between rows, as it does in a
  // coordinator.
  std::vector<Row> Measure() {
    std::vector<Row> rows;
    const auto add = [&](const char* name, const char* unit, auto measure) {
      rows.push_back({name, unit, {}});
      measure(rows.back().times);
      now_ += absl::Milliseconds(1);
    };
    const auto one_step_of = [&](auto event) {
      return [&, event](Samples& times) {
        for (int i = 0; i < size_.samples; ++i) times.AddValue(TimeSteps({event(i)}));
      };
    };
    MeasureRuns(add);
    MeasureArrays(add);
    add("wait for an ended operation", "step", one_step_of([&](int) -> Event {
          return WaitOperation{NewRequest(), last_operation_, absl::Seconds(1), {}};
        }));
    add("page of 100 arrays", "step", one_step_of([&](int i) -> Event {
          return ListArrays{NewRequest(TenantOf(i)), sessions_[i % sessions_.size()], {0, 100}};
        }));
    add("page of 100 operations", "step", one_step_of([&](int i) -> Event {
          return ListOperations{
              NewRequest(TenantOf(i)), sessions_[i % sessions_.size()], false, false, {0, 100}};
        }));
    add("page of 100 sessions", "step", one_step_of([&](int i) -> Event {
          return ListSessions{NewRequest(TenantOf(i)), {0, 100}};
        }));
    add("page of 100 workers", "step", one_step_of([&](int) -> Event {
          return ListWorkers{NewRequest(), {"", 100}};
        }));
    add("session renewed", "step", one_step_of([&](int i) -> Event {
          return GetSession{NewRequest(TenantOf(i)), sessions_[i % sessions_.size()], true};
        }));
    add("session closed with its arrays", "array", [&](Samples& times) {
      State copy = state_;
      for (int i = 0; i < std::min(size_.samples, size_.sessions); ++i) {
        const auto num_arrays =
            static_cast<double>(copy.ownership.session(sessions_[i]).arrays.size());
        times.AddValue(TimeSteps({CloseSession{NewRequest(TenantOf(i)), sessions_[i]}}, &copy) /
                       num_arrays);
      }
    });
    add("telemetry, the first part", "step", one_step_of([&](int) -> Event {
          return ReadTelemetry{NewRequest(), ReadTelemetry::kEverything, 0};
        }));
    add("telemetry of workers", "step", one_step_of([&](int) -> Event {
          return ReadTelemetry{NewRequest(), ReadTelemetry::kWorkers, 0};
        }));
    add("cordon", "step", one_step_of([&](int i) -> Event {
          return Cordon{NewRequest(), WorkerName(i % size_.workers), "bench", i % 2 == 0};
        }));
    for (int w = 0; w < size_.workers; ++w) DoStep(Cordon{NewRequest(), WorkerName(w), "", false});
    MeasureWorkers(add);
    MeasureLosses(add);
    return rows;
  }

 private:
  static std::string TenantOf(int session) { return absl::StrCat("tenant-", session % kTenants); }
  static std::string WorkerName(int w) { return absl::StrFormat("worker-%04d", w); }
  int groups() const { return size_.workers / kGroup; }
  Request NewRequest(const std::string& tenant = "tenant-0") {
    return {++requests_, {tenant, core::Role::kAdmin, ""}};
  }

  std::vector<Effect> DoStep(const Event& event) { return Step(state_, event, now_); }
  // Steps with the request and returns the body of the reply to it.
  template <class Body, class E>
  Body Ask(const E& request) {
    for (Effect& effect : DoStep(request))
      if (auto* reply = std::get_if<Reply>(&effect);
          reply != nullptr && reply->request == request.request)
        return std::get<Body>(std::move(reply->body));
    TESSERA_CHECK(false) << "no reply";
    return {};
  }
  // Steps with the events and returns the time that all steps took, in microseconds. The steps
  // change `state`, or the cluster's own state if `state` is null.
  double TimeSteps(const std::vector<Event>& events, State* state = nullptr) {
    State& s = state == nullptr ? state_ : *state;
    const auto start = std::chrono::steady_clock::now();
    for (const Event& event : events) Step(s, event, now_);
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::micro>(end - start).count();
  }

  WorkerRegistered RegisteredEvent(int w) {
    api::Registration r;
    r.worker = WorkerName(w);
    r.host = absl::StrCat("host-", w);
    api::ExecutorInfo x;
    x.incarnation = ++incarnations_;
    x.device_kind = "cpu";
    x.memory_bytes = int64_t{1} << 34;
    x.data_endpoint = x.peer_endpoint = x.peer_data_endpoint = absl::StrCat("10.0.0.1:", 7000 + w);
    r.executors.push_back(x);
    connections_[w] = {++registrations_, x.incarnation};
    return {registrations_, std::move(r)};
  }
  WorkerReported ReportedEvent(int w, api::ReportBody body) {
    const auto& [registration_id, incarnation] = connections_.at(w);
    return {registration_id, {0, incarnation, std::move(body)}};
  }

  // Plans and compiles the identity on f32[1024], sharded over the devices, and returns its id.
  uint64_t CompileProgram(int first, int devices) {
    server::scheduler::Compile e{NewRequest(), "identity", {}};
    ir::Builder b({MeshOf(devices), true}, "identity");
    e.body.program.entry = b.Build({b.Param(ir::MakeType(ir::DType::kF32, {1024}))});
    ir::PartitionSpec sharded;
    sharded.dims = {{"x"}};
    e.body.program.in_shardings = e.body.program.out_shardings = {sharded};
    for (int d = 0; d < devices; ++d) e.body.devices.push_back(first + d);
    uint64_t id = 0;
    core::Plan plan;
    for (const Effect& effect : DoStep(e))
      if (const auto* make = std::get_if<MakePlan>(&effect)) id = make->executable;
    TESSERA_CHECK(id != 0);
    plan.device_program = e.body.program.entry;
    plan.mesh = MeshOf(devices);
    plan.in = plan.out = {{ir::DType::kF32, {1024}, sharded}};
    DoStep(Planned{id, plan});
    for (int d = 0; d < devices; ++d)
      DoStep(ReportedEvent(first + d, api::ProgramLoaded{id, absl::OkStatus(), 64}));
    return id;
  }

  CreateArray CreateArrayEvent(int session, int group, int devices) {
    const int s = session % static_cast<int>(sessions_.size());
    CreateArray e{NewRequest(TenantOf(s)), sessions_[s], {}};
    e.spec.shape = {1024};
    e.spec.placement.mesh = MeshOf(devices);
    e.spec.placement.spec.dims = {{"x"}};
    for (int d = 0; d < devices; ++d) e.spec.placement.devices.push_back(group * kGroup + d);
    return e;
  }
  uint64_t MakeArray(int session, int group, int devices) {
    const uint64_t id = Ask<ArrayInfo>(CreateArrayEvent(session, group, devices)).array;
    for (int d = 0; d < devices; ++d)
      DoStep(ReportedEvent(group * kGroup + d, api::BufferWritten{id, 0, absl::OkStatus()}));
    return id;
  }

  // Returns an execute on a group, or on all workers. The request comes from the session that holds
  // the run's argument.
  Execute ExecuteEvent(int i, bool on_all) {
    const int array = i % static_cast<int>(arrays_.size());
    const int session = on_all ? 0 : array % static_cast<int>(sessions_.size());
    Execute e{NewRequest(TenantOf(session)), {}};
    e.body.session = sessions_[session];
    e.body.executable = on_all ? program_on_all_ : programs_[array % groups()];
    e.body.args = {on_all ? array_on_all_ : arrays_[array]};
    return e;
  }

  // Measures an execute, the reports of its executors and the deletion of its result, first on
  // groups of 8 executors and then on all. One loop makes all three steps for each run, because
  // each step needs the state that the step before it leaves; afterwards `add` makes a row of each.
  // With enough samples the first run of each group is left out, because it also opens the
  // communicator.
  template <class Add>
  void MeasureRuns(Add add) {
    for (const bool on_all : {false, true}) {
      Samples reports, deletions;
      const int executors = on_all ? size_.workers : kGroup;
      const int samples = on_all ? std::max(3, size_.samples / 10) : size_.samples;
      add(on_all ? "execute on all executors" : "execute on 8 executors",
          on_all ? "executor" : "step", [&](Samples& times) {
            for (int i = 0; i < samples; ++i) {
              const Execute e = ExecuteEvent(i, on_all);
              const double time = TimeSteps({e});
              // The first run of a group opens its communicator.
              if (i >= (on_all ? 1 : groups()) || size_.samples < groups())
                times.AddValue(on_all ? time / executors : time);
              const Operation& op = state_.order.operation(state_.order.live().back());
              last_operation_ = op.id;
              const uint64_t result = op.results[0];
              std::vector<Event> all;
              const int first =
                  on_all ? 0 : i % static_cast<int>(arrays_.size()) % groups() * kGroup;
              for (int d = 0; d < executors; ++d)
                all.emplace_back(ReportedEvent(
                    first + d, api::LaunchDone{last_operation_, absl::Microseconds(5)}));
              reports.AddValue(TimeSteps(all) / executors);
              TESSERA_CHECK(state_.order.live().empty());
              deletions.AddValue(TimeSteps({DeleteArrays{{++requests_, e.caller}, {result}}}));
            }
          });
      add(on_all ? "its reports" : "its 8 reports", "report",
          [&](Samples& times) { times.Add(reports); });
      if (!on_all) add("its result deleted", "step", [&](Samples& times) { times.Add(deletions); });
    }
  }

  template <class Add>
  void MeasureArrays(Add add) {
    Samples written, deleted;
    add("array created on 8 executors", "step", [&](Samples& times) {
      for (int i = 0; i < size_.samples; ++i) {
        const CreateArray e = CreateArrayEvent(i, i % groups(), kGroup);
        times.AddValue(TimeSteps({e}));
        const uint64_t id = state_.catalogue.arrays().rbegin()->first;
        std::vector<Event> reports;
        for (int d = 0; d < kGroup; ++d)
          reports.emplace_back(ReportedEvent(i % groups() * kGroup + d,
                                             api::BufferWritten{id, 0, absl::OkStatus()}));
        written.AddValue(TimeSteps(reports) / kGroup);
        deleted.AddValue(TimeSteps({DeleteArrays{{++requests_, e.caller}, {id}}}));
      }
    });
    add("its 8 shards written", "report", [&](Samples& times) { times.Add(written); });
    add("it is deleted", "step", [&](Samples& times) { times.Add(deleted); });
  }

  // Measures the steps that workers cause: heartbeats, ticks with and without leases that are due,
  // a registration, the loss of an idle worker, and executes while a worker drains. Steps that
  // remove or drain a worker change a copy of the state, so that the rows after them find all
  // workers.
  template <class Add>
  void MeasureWorkers(Add add) {
    add("heartbeat", "step", [&](Samples& times) {
      for (int i = 0; i < size_.samples; ++i)
        times.AddValue(TimeSteps({ReportedEvent(i % size_.workers, api::Heartbeat{{{0, {}}}})}));
    });
    add("tick, nothing due", "step", [&](Samples& times) {
      for (int i = 0; i < size_.samples; ++i) times.AddValue(TimeSteps({Tick{}}));
    });
    add("tick, leases of all workers and sessions due", "lease", [&](Samples& times) {
      for (int i = 0; i < 3; ++i) {
        // Renews all leases at the last moment: their timers are due, but no lease has expired.
        for (const absl::Duration step : {absl::Milliseconds(1499), absl::Milliseconds(1)}) {
          now_ += i == 0 ? step : step * 40;
          for (int w = 0; w < size_.workers; ++w) DoStep(ReportedEvent(w, api::Heartbeat{}));
          for (size_t s = 0; s < sessions_.size(); ++s)
            DoStep(GetSession{NewRequest(TenantOf(static_cast<int>(s))), sessions_[s], true});
        }
        const int64_t due = state_.timers.NumDue(now_);
        const double time = TimeSteps({Tick{}});
        if (due > 0) times.AddValue(time / static_cast<double>(due));
      }
    });
    Samples lost;
    add("worker registered as the last", "step", [&](Samples& times) {
      State copy = state_;
      const int last = size_.workers - 1;
      const auto connection = connections_.at(last);
      for (int i = 0; i < std::min(size_.samples, 50); ++i) {
        lost.AddValue(
            TimeSteps({WorkerGone{connections_.at(last).first, absl::OkStatus()}}, &copy));
        times.AddValue(TimeSteps({RegisteredEvent(last)}, &copy));
      }
      connections_[last] = connection;
    });
    add("an idle worker lost", "step", [&](Samples& times) { times.Add(lost); });
    add("execute on 8 executors while a worker drains", "step", [&](Samples& times) {
      State copy = state_;
      TimeSteps(
          {ExecuteEvent(0, false), Drain{NewRequest(), WorkerName(0), "bench", absl::Seconds(30)}},
          &copy);
      for (int i = 0; i < size_.samples; ++i)
        if (i % groups() != 0) times.AddValue(TimeSteps({ExecuteEvent(i, false)}, &copy));
    });
  }

  // Measures the loss of `size_.lost` workers at once. The lost workers are neighbours, or they are
  // spread so that each group loses some.
  template <class Add>
  void MeasureLosses(Add add) {
    for (const bool spread : {false, true})
      add(spread ? "128 workers lost, of all groups" : "128 workers lost, of 16 groups", "loss",
          [&](Samples& times) {
            for (int i = 0; i < (size_.arrays > 200'000 ? 1 : 3); ++i) {
              State copy = state_;
              for (int r = 0; r < kRunsOfGroup * groups(); ++r)
                Step(copy, ExecuteEvent(r, false), now_);
              Step(copy, ExecuteEvent(0, true), now_);
              TESSERA_CHECK(copy.order.num_live() == kRunsOfGroup * groups() + 1);
              std::vector<Event> gone;
              for (int w = 0; w < size_.lost; ++w)
                gone.emplace_back(
                    WorkerGone{connections_.at(spread ? w * (size_.workers / size_.lost) : w).first,
                               absl::UnavailableError("its connection ended")});
              times.AddValue(TimeSteps(gone, &copy));
            }
          });
  }

  const ClusterSize size_;
  State state_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  uint64_t requests_ = 0, registrations_ = 0, incarnations_ = 0;
  // worker -> registration id, incarnation
  std::map<int, std::pair<uint64_t, uint64_t>> connections_;
  std::vector<uint64_t> programs_, sessions_, arrays_;
  uint64_t program_on_all_ = 0, array_on_all_ = 0, last_operation_ = 0;
};

// Reads the flags, measures the clusters one after the other and prints one column for each. A row
// thus shows whether its time grows with the number of arrays and sessions. Returns 2 if a flag is
// wrong.
int Main(int argc, char** argv) {
  ClusterSize size;
  bool smoke = false, only_middle = false;
  FlagParser parser("bench-scheduler", "Measures the scheduler's step on 1,024 workers.");
  parser.AddNumber("--samples", &size.samples, "times that each event is measured");
  parser.AddSwitch("--one", &only_middle, "measures only the middle one of the three clusters");
  parser.AddSwitch("--smoke", &smoke, "runs short, as a test");
  if (const std::optional<int> status = parser.Parse(argc, argv)) return *status;
  if (smoke) size = {.workers = 32, .lost = 8, .arrays = 200, .sessions = 10, .samples = 4};
  std::vector<ClusterSize> sizes;
  for (const int tenths : {1, 10, 100}) {
    if (only_middle && tenths != 10) continue;
    ClusterSize s = size;
    s.arrays = size.arrays * tenths / 10;
    s.sessions = size.sessions * tenths / 10;
    sizes.push_back(s);
  }
  std::vector<std::vector<Row>> measured;
  for (const ClusterSize& s : sizes) measured.push_back(Cluster(s).Measure());

  std::printf("%-46s %-9s", "us, median (p99)", "per");
  for (const ClusterSize& s : sizes)
    std::printf(" %20s", absl::StrCat(s.arrays, " / ", s.sessions).c_str());
  std::printf("\n");
  for (size_t r = 0; r < measured[0].size(); ++r) {
    std::printf("%-46s %-9s", measured[0][r].name, measured[0][r].unit);
    for (const auto& rows : measured)
      std::printf(" %20s", rows[r].times.size() == 0
                               ? "-"
                               : absl::StrFormat("%.2f (%.2f)", rows[r].times.Quantile(0.5),
                                                 rows[r].times.Quantile(0.99))
                                     .c_str());
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }
