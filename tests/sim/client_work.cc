// The random actions of a client on arrays and operations, and its expectations of the answers. Act
// begins one action at a time; every other function is an action or takes an answer.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status.h"
#include "ir/builder.h"
#include "tests/sim/client_call.h"

namespace tessera::sim {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(20);
constexpr size_t kOpenMax = 12;
constexpr size_t kArraysMax = 40;

// A program f(a, b) = (b, a), or f(a) = a, over a mesh of x times y devices. The results are
// arguments, so the client knows their values. All arrays are sharded over one axis, and replicated
// over the other.
struct TestProgram {
  int x, y;                  // sizes of the mesh's axes; 0 if there is no such axis
  std::vector<int> results;  // index of the argument that each result is
  int arguments;
  const char* sharded_over;  // "" if the arrays are replicated
};
constexpr int kNumTestPrograms = 9;
TestProgram TestProgramOf(int i) {
  const TestProgram sources[kNumTestPrograms] =
      {
          {1, 0, {0}, 1, ""},     {2, 0, {1, 0}, 2, "x"}, {4, 0, {1, 0}, 2, "x"},
          {2, 0, {0}, 1, ""},     {4, 0, {0, 0}, 1, "x"}, {8, 0, {1, 0}, 2, "x"},
          {4, 0, {0}, 1, ""},      // on several executors, each of which has the whole array
          {2, 2, {1, 0}, 2, "y"},  // the replicas of a shard are on different executors
          {2, 2, {0}, 1, "x"}};    // the replicas of a shard are on the same executor
  return sources[i];
}

scheduler::Compile CompileOf(int i) {
  const TestProgram source = TestProgramOf(i);
  scheduler::Compile e;
  e.key = e.body.name = absl::StrCat("f", i);
  ir::Mesh mesh;
  mesh.axes.push_back({"x", source.x});
  if (source.y > 0) mesh.axes.push_back({"y", source.y});
  ir::Builder b({mesh, true}, e.body.name);
  ir::PartitionSpec spec;
  if (*source.sharded_over != '\0') spec.dims = {{source.sharded_over}};
  std::vector<ir::Value> params, results;
  for (int p = 0; p < source.arguments; ++p) {
    params.push_back(b.Param(ir::MakeType(ir::DType::kF32, {8})));
    e.body.program.in_shardings.emplace_back(spec);
  }
  for (int r : source.results) {
    results.push_back(params.at(r));
    e.body.program.out_shardings.emplace_back(spec);
  }
  e.body.program.entry = b.Build(results);
  return e;
}

bool IsGone(const absl::Status& status) {
  return KindOf(status) == ErrorKind::kArrayNotFound || KindOf(status) == ErrorKind::kArrayDeleted;
}

}  // namespace

void Client::Act() {
  Random& random = world_->random();
  world_->After(random.Within(absl::Milliseconds(5), absl::Milliseconds(260)), [this] { Act(); });
  if (stopped_ || open_calls_.size() >= kOpenMax || session_ == 0 || world_->now() < paused_until_)
    return;
  if (programs_.empty() || random.OneIn(60)) return CompileOne();
  if (random.OneIn(25)) return MakeReadOnlyCall();
  if (random.OneIn(30)) return HandlePrograms();
  if (random.OneIn(20)) return HandleFiles();
  const Program program = AnyProgram();
  if (arrays_.size() < 3 || random.OneIn(8)) return Upload(program, [](uint64_t) {});
  const uint64_t array = AnyArray();
  if (arrays_.size() > kArraysMax || random.OneIn(10)) return Delete(array);
  if (random.OneIn(3)) return ActOnArray(array);
  std::vector<uint64_t> args;
  for (size_t i = 0; i < program.in.size(); ++i) args.push_back(AnyArray());
  return Execute(program, args, random.OneIn(5), [](uint64_t) {});
}

void Client::ActOnArray(uint64_t array) {
  Random& random = world_->random();
  switch (random.Below(8)) {
    case 0:
    case 1:
      return Reshard(array);
    case 2:
      if (!operations_.empty()) Wait(*operations_.begin(), /*until_ended=*/true);
      return;
    case 3:
      if (!operations_.empty() && random.OneIn(3)) Cancel(*operations_.rbegin());
      return;
    case 4:
      for (const auto& [donated, by] : donated_)
        if (operations_.count(by.operation) == 0 || random.OneIn(4)) return CheckDonated(donated);
      return Describe(array);
    default:
      return Read(array, [] {});
  }
}

// Makes a call that changes nothing.
void Client::MakeReadOnlyCall() {
  const auto ignore = [](const scheduler::Reply&) {};
  const uint64_t array = arrays_.empty() ? 0 : AnyArray();
  const uint64_t operation = operations_.empty() ? 0 : *operations_.begin();
  switch (world_->random().Below(17)) {
    case 0:
      return Ask("list sessions", scheduler::ListSessions{}, ignore);
    case 1:
      return Ask("list devices", scheduler::ListDevices{}, ignore);
    case 2:
      return Ask("list workers", scheduler::ListWorkers{}, ignore);
    case 3:
      return Ask("get worker", scheduler::GetWorker{{}, "w0"}, ignore);
    case 4:
      return Ask("get topology", scheduler::GetTopology{}, ignore);
    case 5:
      return Ask("list meshes", scheduler::ListMeshes{}, ignore);
    case 6:
      return Ask("list operations", scheduler::ListOperations{}, ignore);
    case 7:
      return Ask("telemetry", scheduler::ReadTelemetry{}, ignore);
    case 8:
      return Ask("get mesh", scheduler::GetMesh{{}, "m"}, ignore);
    case 9:
      if (operation != 0) Ask("explain", scheduler::ExplainPending{{}, operation}, ignore);
      return;
    case 10:
      if (array != 0) Ask("describe upload", scheduler::DescribeUpload{{}, array}, ignore);
      return;
    case 11:
      if (array != 0) Ask("await", scheduler::WaitArray{{}, array, kTimeout}, ignore);
      return;
    case 12:
      return ListOwnArrays();
    case 13:
      return DescribeForeignArray();
    case 14:
      return CheckDeleted();
    default:
      return Administer();
  }
}

// Makes a call of an administrator: meshes, cordons, drains, and the deletion of a worker or of the
// client's own session. Most of these answers are ignored, because the call may be refused for good
// reasons.
void Client::Administer() {
  const auto ignore = [](const scheduler::Reply&) {};
  Random& random = world_->random();
  const std::string worker = absl::StrCat("w", random.Below(3));
  ir::Mesh mesh;
  mesh.axes.push_back({"x", 2});
  switch (random.Below(7)) {
    case 0:
      return Ask("create mesh", scheduler::CreateMesh{{}, "m", mesh, {}}, ignore);
    case 1:
      return Ask("delete mesh", scheduler::DeleteMesh{{}, "m"}, ignore);
    case 2:
      if (!random.OneIn(4)) return;
      Ask("drain", scheduler::Drain{{}, worker, "x", absl::Seconds(2)}, ignore);
      // Without the uncordon, operations that wait for the worker would fill the queue.
      return world_->After(random.Within(absl::Seconds(1), absl::Seconds(10)), [=, this] {
        Ask("uncordon", scheduler::Cordon{{}, worker, "x", false}, ignore);
      });
    case 3:
      return Ask("cordon", scheduler::Cordon{{}, worker, "x", random.OneIn(2)}, ignore);
    case 4:
      // The arrays of the session are deleted with it.
      if (random.OneIn(2)) {
        arrays_.clear();
        donated_.clear();
        const uint64_t session = std::exchange(session_, 0);
        Ask("close the session", scheduler::CloseSession{{}, session}, ignore);
        OpenSession();
      }
      return;
    case 5:
      // The call is refused while the worker is connected.
      return Ask("delete worker", scheduler::DeleteWorker{{}, worker}, ignore);
    default:
      return Ask("uncordon", scheduler::Cordon{{}, worker, "", false}, ignore);
  }
}

const Client::Program& Client::AnyProgram() {
  return programs_[world_->random().Below(static_cast<int64_t>(programs_.size()))];
}

uint64_t Client::AnyArray() {
  auto it = arrays_.begin();
  std::advance(it, world_->random().Below(static_cast<int64_t>(arrays_.size())));
  return it->first;
}

void Client::CompileOne() {
  const int i = static_cast<int>(world_->random().Below(kNumTestPrograms));
  scheduler::Compile e = CompileOf(i);
  e.body.timeout = kTimeout;
  Ask(absl::StrCat("compile f", i), e, [this, i](const scheduler::Reply& reply) {
    if (!reply.status.ok()) return;
    const auto& compiled = std::get<server::core::CompileReply>(reply.body);
    programs_.push_back({compiled.executable, TestProgramOf(i).results, compiled.in, compiled.out});
    if (programs_.size() > 4) programs_.erase(programs_.begin());
  });
}

// ---- Arrays. ------------------------------------------------------------------------------------

void Client::Upload(const Program& program, std::function<void(uint64_t)> then) {
  scheduler::CreateArray e;
  e.spec = program.in[0];
  e.session = session_;
  const double value = static_cast<double>(world_->random().Below(1 << 24));
  const size_t shards = e.spec.placement.devices.size();
  Ask("create", e, [=, this, session = session_](const scheduler::Reply& reply) {
    if (!reply.status.ok()) {
      if (KindOf(reply.status) == ErrorKind::kSessionNotFound) OnSessionLost(session);
      return then(0);
    }
    const auto& info = std::get<scheduler::ArrayInfo>(reply.body);
    checker_->OnAcknowledged("array", info.array);
    checker_->OnOwned(caller_.tenant, info.array);
    if (session != session_) return then(0);
    arrays_[info.array] = {value, *info.spec, session, 0, /*whole=*/false};
    Write(info.array, value, 0, shards, then);
  });
}

// Writes the shards of a new array one after the other, and calls `then` with the array after the
// last one, or with 0 if a write fails. An array counts as whole only after all writes were
// acknowledged; an array that was not written completely is deleted.
void Client::Write(uint64_t array, double value, size_t ordinal, size_t shards,
                   std::function<void(uint64_t)> then) {
  if (ordinal == shards) {
    if (const auto it = arrays_.find(array); it != arrays_.end()) it->second.whole = true;
    return then(array);
  }
  scheduler::WriteShard e;
  e.array = array;
  e.ordinal = static_cast<int>(ordinal);
  e.value = ir::Array(ir::DType::kF32, {1});
  e.value.Set(0, value);
  e.timeout = kTimeout;
  const auto asked = arrays_.find(array);
  const Array was = asked == arrays_.end() ? Array() : asked->second;
  Ask(absl::StrCat("write ", array, ".", ordinal), e, [=, this](const scheduler::Reply& reply) {
    const auto known = arrays_.find(array);
    if (known == arrays_.end()) return then(0);
    // A shard that was written by a call whose answer was lost cannot be written again.
    if (!reply.status.ok() && KindOf(reply.status) != ErrorKind::kValueError) {
      if (IsGone(reply.status)) CheckError(array, was, reply.status);
      if (arrays_.erase(array) > 0) Delete(array);
      return then(0);
    }
    Write(array, value, ordinal + 1, shards, then);
  });
}

void Client::Delete(uint64_t array) {
  scheduler::DeleteArrays e;
  e.arrays = {array};
  arrays_.erase(array);
  Ask(absl::StrCat("delete ", array), e, [this, array](const scheduler::Reply& reply) {
    if (reply.status.ok()) last_deleted_ = array;
  });
}

// An array whose deletion was acknowledged must not come back.
void Client::CheckDeleted() {
  if (last_deleted_ == 0) return;
  Ask("look for a deleted one", scheduler::DescribeArray{{}, last_deleted_},
      [this, array = last_deleted_](const scheduler::Reply& reply) {
        if (reply.status.ok()) world_->Violate("array ", array, " was deleted, and is there");
      });
}

// Checks an error about an array. An array that this client has, and has not given up since it
// asked, must be there while its session lives.
void Client::CheckError(uint64_t array, const Array& was, const absl::Status& status) {
  const ErrorKind kind = KindOf(status);
  if (ReasonOf(status).empty() || kind == ErrorKind::kDeadlineExceeded) return;
  const auto it = arrays_.find(array);
  if (it == arrays_.end() || it->second.returns != was.returns) return;
  const Array known = it->second;
  const bool made = known.producer == 0 ? known.whole : checker_->IsDone(known.producer);
  if (IsGone(status) && IsSafe(known.session))
    world_->Violate("array ", array, " is gone: ", std::string(status.message()));
  if (made && !IsGone(status) && kind != ErrorKind::kWorkerLost)
    world_->Violate("array ", array, " was made, and reads as ", std::string(status.message()));
  arrays_.erase(array);
}

void Client::Read(uint64_t array, std::function<void()> then) {
  scheduler::ReadShard e;
  e.array = array;
  const Array was = arrays_.at(array);
  e.ordinal = static_cast<int>(
      world_->random().Below(static_cast<int64_t>(was.spec.placement.devices.size())));
  e.timeout = kTimeout;
  Ask(absl::StrCat("read ", array), e, [=, this](const scheduler::Reply& reply) {
    if (!reply.status.ok()) return CheckError(array, was, reply.status);
    const double got = std::get<ir::Array>(reply.body).At(0);
    if (got != was.value) world_->Violate("array ", array, " is ", got, ", not ", was.value);
    then();
  });
}

void Client::Describe(uint64_t array) {
  Ask(absl::StrCat("describe ", array), scheduler::DescribeArray{{}, array},
      [this, array, was = arrays_.at(array)](const scheduler::Reply& reply) {
        if (!reply.status.ok()) return CheckError(array, was, reply.status);
        const auto known = arrays_.find(array);
        if (known == arrays_.end()) return;
        const auto state = std::get<scheduler::ArrayInfo>(reply.body).state;
        const Array& is = known->second;
        const bool made = is.producer == 0 ? is.whole : checker_->IsDone(is.producer);
        if (made && state == scheduler::ArrayInfo::State::kFailed)
          world_->Violate("array ", array, " was made, and has failed");
      });
}

// Asks whether a donated array was consumed or is back.
void Client::CheckDonated(uint64_t array) {
  // The answer must say that the array is back only if this was known before the call. The answer
  // may be older than what is known when it comes.
  const bool is_back = donated_.at(array).is_back;
  Ask(absl::StrCat("describe ", array), scheduler::DescribeArray{{}, array},
      [this, array, is_back](const scheduler::Reply& reply) {
        const auto it = donated_.find(array);
        if (it == donated_.end()) return;
        const DonatedArray donated = it->second;
        if (reply.status.ok()) {
          donated_.erase(it);
          checker_->OnGivenBack(donated.operation);
          arrays_[array] = donated.array;
          ++arrays_[array].returns;
        } else if (IsGone(reply.status)) {
          if (is_back && IsSafe(donated.array.session))
            world_->Violate("array ", array, " was consumed by operation ", donated.operation,
                            ", which did not begin");
          donated_.erase(it);
        }
      });
}

void Client::Reshard(uint64_t array) {
  scheduler::ReshardArray e;
  e.session = session_;
  e.array = array;
  e.placement = AnyProgram().in[0].placement;
  const Array was = arrays_.at(array);
  Ask(absl::StrCat("reshard ", array), e, [=, this](const scheduler::Reply& reply) {
    if (!reply.status.ok()) {
      if (KindOf(reply.status) == ErrorKind::kSessionNotFound) return OnSessionLost(e.session);
      if (IsGone(reply.status)) CheckError(array, was, reply.status);
      return;
    }
    const auto& made = std::get<scheduler::PendingArrays>(reply.body);
    checker_->OnAccepted(made.operation.id);
    operations_.insert(made.operation.id);
    const uint64_t result = made.arrays.at(0).array;
    checker_->OnAcknowledged("array", result);
    if (e.session == session_)
      arrays_[result] = {was.value, *made.arrays.at(0).spec, e.session, made.operation.id};
  });
}

void Client::ListOwnArrays() {
  if (session_ == 0) return;
  scheduler::ListArrays e;
  e.session = session_;
  e.page.size = 1000;
  const std::map<uint64_t, Array> before = arrays_;
  Ask("list arrays", e, [=, this](const scheduler::Reply& reply) {
    if (!reply.status.ok()) {
      if (KindOf(reply.status) == ErrorKind::kSessionNotFound) OnSessionLost(e.session);
      return;
    }
    std::set<uint64_t> listed;
    for (const auto& info : std::get<scheduler::Page<scheduler::ArrayInfo>>(reply.body).items)
      listed.insert(info.array);
    for (const auto& [array, known] : before)
      if (const auto it = arrays_.find(array);
          it != arrays_.end() && it->second.returns == known.returns && listed.count(array) == 0 &&
          known.session == e.session)
        world_->Violate("array ", array, " is not listed");
  });
}

// Looks at an array of another tenant, which must not be visible.
void Client::DescribeForeignArray() {
  const uint64_t array = checker_->ArrayOfAnotherTenant(caller_.tenant, world_->random());
  if (array == 0) return;
  Ask("peek", scheduler::DescribeArray{{}, array}, [this, array](const scheduler::Reply& reply) {
    if (reply.status.ok() || KindOf(reply.status) == ErrorKind::kArrayDeleted)
      world_->Violate(caller_.tenant, " sees array ", array, ", which is another tenant's");
  });
}

// ---- Operations. --------------------------------------------------------------------------------

// Runs a program on these arrays, and sometimes donates them or sets a short deadline. Donated
// arrays leave arrays_ before the call, because a call without an answer may have consumed them.
// Each result must later have the value of the argument that it equals.
void Client::Execute(const Program& program, std::vector<uint64_t> args, bool donate,
                     std::function<void(uint64_t)> then) {
  scheduler::Execute e;
  e.body.executable = program.executable;
  e.body.args = args;
  e.body.session = session_;
  if (donate && std::set<uint64_t>(args.begin(), args.end()).size() == args.size())
    e.body.donate.assign(args.size(), true);
  if (!stopped_ && world_->random().OneIn(10))
    e.body.time_limit = world_->random().Within(absl::Milliseconds(5), absl::Seconds(3));
  std::vector<Array> args_before;
  std::map<uint64_t, Array> donated_args;  // donated arguments
  for (uint64_t arg : args) args_before.push_back(arrays_.at(arg));
  if (!e.body.donate.empty())
    for (size_t i = 0; i < args.size(); ++i) {
      donated_args[args[i]] = args_before[i];
      arrays_.erase(args[i]);
    }
  const std::string what =
      absl::StrCat(donated_args.empty() ? "execute " : "execute, donating, ", program.executable);
  Ask(what, e, [=, this, session = session_](const scheduler::Reply& reply) {
    if (!reply.status.ok()) {
      if (session == session_ && !ReasonOf(reply.status).empty())
        TakeBackDonated(donated_args, reply.status);
      if (KindOf(reply.status) == ErrorKind::kSessionNotFound) OnSessionLost(session);
      if (KindOf(reply.status) == ErrorKind::kProgramNotFound)
        std::erase_if(programs_,
                      [&](const Program& p) { return p.executable == program.executable; });
      return then(0);
    }
    const auto& made = std::get<api::ExecuteReply>(reply.body);
    checker_->OnAccepted(made.operation);
    world_->Log(caller_.tenant, " has operation ", made.operation);
    operations_.insert(made.operation);
    for (uint64_t array : made.outputs) checker_->OnAcknowledged("array", array);
    if (session != session_) return then(0);
    for (size_t i = 0; i < args.size(); ++i)
      if (const auto it = donated_args.find(args[i]); it != donated_args.end())
        donated_[args[i]] = {it->second, made.operation};
    if (!donated_args.empty()) Follow(made.operation);
    for (size_t r = 0; r < made.outputs.size(); ++r)
      arrays_[made.outputs[r]] = {args_before.at(program.sources[r]).value, program.out[r], session,
                                  made.operation};
    then(made.outputs.at(0));
  });
}

void Client::Cancel(uint64_t operation) {
  scheduler::CancelOperation e;
  e.operation = operation;
  Ask(absl::StrCat("cancel ", operation), e, [](const scheduler::Reply&) {});
}

// Follows an operation that has donated arguments. Whether it began decides whether they are
// consumed, so some of these operations are cancelled early.
void Client::Follow(uint64_t operation) {
  Random& random = world_->random();
  if (random.OneIn(2)) Wait(operation, /*until_ended=*/true);
  if (stopped_ || !random.OneIn(6)) return;
  world_->After(random.Within(absl::ZeroDuration(), absl::Milliseconds(300)),
                [this, operation, life = life_] {
                  if (life == life_ && operations_.count(operation) > 0) Cancel(operation);
                });
}

// A refused call has consumed nothing.
void Client::TakeBackDonated(const std::map<uint64_t, Array>& donated_args,
                             const absl::Status& status) {
  for (const auto& [array, was] : donated_args) {
    if (IsGone(status) && donated_args.size() == 1 && IsSafe(was.session))
      world_->Violate("array ", array,
                      " was there, and cannot be donated: ", std::string(status.message()));
    arrays_[array] = was;
  }
}

void Client::Wait(uint64_t operation, bool until_ended) {
  scheduler::WaitOperation e;
  e.operation = operation;
  e.timeout = kTimeout;
  Ask(absl::StrCat("wait ", operation), e, [=, this](const scheduler::Reply& reply) {
    if (reply.status.ok()) OnOperationSeen(std::get<api::Operation>(reply.body));
    if (KindOf(reply.status) == ErrorKind::kOperationNotFound && !reply.status.ok()) {
      checker_->OnForgotten(operation);
      operations_.erase(operation);
      api::Operation forgotten;
      forgotten.id = operation;
      UpdateFiles(forgotten, /*known=*/false);
    }
    if (until_ended && operations_.count(operation) > 0)
      world_->After(absl::Milliseconds(100), [this, operation, life = life_] {
        if (life == life_ && operations_.count(operation) > 0) Wait(operation, true);
      });
  });
}

void Client::OnOperationSeen(const api::Operation& operation) {
  if (operation.state < api::OperationState::kDone) return;
  world_->Log("operation ", operation.id,
              " has ended: ", operation.error.ok() ? "OK" : std::string(operation.error.message()));
  checker_->OnEnded(operation.id, operation.state, operation.error);
  operations_.erase(operation.id);
  UpdateFiles(operation, /*known=*/true);
  if (operation.state == api::OperationState::kDone || operation.started != absl::InfiniteFuture())
    return;
  for (auto& [array, donated] : donated_) {
    if (donated.operation != operation.id) continue;
    donated.is_back = true;
    CheckDonated(array);
  }
}

// ---- The end. -----------------------------------------------------------------------------------

void Client::Audit() {
  for (const auto& [array, known] : std::map<uint64_t, Array>(arrays_)) Read(array, [] {});
  for (const auto& [array, donated] : std::map<uint64_t, DonatedArray>(donated_))
    CheckDonated(array);
  for (uint64_t operation : std::set<uint64_t>(operations_)) Wait(operation, true);
  for (const auto& [sha256, bytes] : uploaded_programs_) FindProgram(sha256);
  for (const auto& [path, file] : files_) DescribeSavedFile(path);
  for (int w = 0; w < 3; ++w)
    Ask("uncordon", scheduler::Cordon{{}, absl::StrCat("w", w), "", false},
        [](const scheduler::Reply&) {});
}

void Client::Probe() {
  programs_.clear();
  // Each client probes another number of devices.
  constexpr int kProbes[] = {1, 2, 5};
  const int source = kProbes[static_cast<size_t>(index_) % std::size(kProbes)];
  scheduler::Compile e = CompileOf(source);
  e.body.timeout = kTimeout;
  Ask("probe: compile", e, [this, source](const scheduler::Reply& reply) {
    if (!reply.status.ok())
      return world_->Violate("after the faults: ", std::string(reply.status.message()));
    const auto& compiled = std::get<server::core::CompileReply>(reply.body);
    const Program program{compiled.executable, TestProgramOf(source).results, compiled.in,
                          compiled.out};
    Upload(program, [this, program](uint64_t array) {
      if (array == 0) return world_->Violate("after the faults an upload fails");
      Execute(program, {array, array}, false, [this](uint64_t result) {
        if (result == 0) return world_->Violate("after the faults a run is refused");
        Read(result, [this] { probed_ = true; });
      });
    });
  });
}

}  // namespace tessera::sim
