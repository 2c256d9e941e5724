#include "tests/sim/client.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/status.h"
#include "ir/builder.h"

namespace tessera::sim {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(20);
// The latest answer to anything: the longest wait of the scheduler's own, and its lateness.
constexpr absl::Duration kAnswerMax = absl::Seconds(130);
constexpr int64_t kOpenMax = 12;
constexpr size_t kArraysMax = 40;

// f(a, b) = (b, a), or f(a) = a, over `devices` devices.
struct Source {
  int devices;
  std::vector<int> results;  // of the arguments
  int arguments;
  bool sharded;
};
constexpr int kSources = 6;
Source SourceOf(int i) {
  const Source sources[kSources] = {{1, {0}, 1, false}, {2, {1, 0}, 2, true}, {4, {1, 0}, 2, true},
                                    {2, {0}, 1, false}, {4, {0, 0}, 1, true}, {8, {1, 0}, 2, true}};
  return sources[i];
}

scheduler::Compile CompileOf(int i) {
  const Source source = SourceOf(i);
  scheduler::Compile e;
  e.key = e.body.name = absl::StrCat("f", i);
  ir::Mesh mesh;
  mesh.axes.push_back({"x", source.devices});
  ir::Builder b({mesh, true}, e.body.name);
  ir::PartitionSpec spec;
  if (source.sharded) spec.dims = {{"x"}};
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

}  // namespace

Client::Client(World* world, Coordinator* coordinator, std::string tenant)
    : world_(world), coordinator_(coordinator) {
  caller_.tenant = std::move(tenant);
  caller_.role = server::core::Role::kUser;
  Act();
}

template <class E>
void Client::Call(const std::string& what, E event, std::function<void(scheduler::Reply)> then) {
  event.caller = caller_;
  ++open_;
  const absl::Time sent = world_->now();
  Random& random = world_->random();
  const auto delay = [&] { return random.Within(absl::Microseconds(50), absl::Milliseconds(3)); };
  const absl::Duration back = delay();
  world_->After(delay(), [=, this, event = std::move(event)] {
    coordinator_->Call(event, [=, this](scheduler::Reply reply) {
      world_->After(back, [=, this] {
        --open_;
        world_->Log(caller_.tenant, " ", what, ": ",
                    reply.status.ok() ? "OK" : std::string(ReasonOf(reply.status)));
        if (world_->now() - sent > kAnswerMax)
          world_->Violate(what, " was answered after ", absl::FormatDuration(world_->now() - sent));
        if (!reply.status.ok() && KindOf(reply.status) == ErrorKind::kInternal)
          world_->Violate(what, " failed: ", std::string(reply.status.message()));
        then(reply);
      });
    });
  });
}

void Client::Act() {
  Random& random = world_->random();
  world_->After(random.Within(absl::Milliseconds(5), absl::Milliseconds(400)), [this] { Act(); });
  if (stopped_ || open_ >= kOpenMax) return;
  if (programs_.empty() || random.OneIn(40)) return CompileOne();
  const Program program = AnyProgram();
  if (arrays_.size() < 3 || random.OneIn(8)) return Upload(program, [](uint64_t) {});
  const uint64_t array = AnyArray();
  if (arrays_.size() > kArraysMax || random.OneIn(8)) {
    scheduler::DeleteArrays e;
    e.arrays = {array};
    arrays_.erase(array);
    return Call(absl::StrCat("delete ", array), e, [](const scheduler::Reply&) {});
  }
  switch (random.Below(8)) {
    case 0:
      return Move(array);
    case 1:
      if (!recent_.empty()) Wait(recent_[random.Below(static_cast<int64_t>(recent_.size()))]);
      return;
    case 2:
      if (!recent_.empty() && random.OneIn(4)) {
        scheduler::CancelOperation e;
        e.operation = recent_.back();
        Call(absl::StrCat("cancel ", e.operation), e, [](const scheduler::Reply&) {});
      }
      return;
    case 3:
    case 4:
      return Read(array, [] {});
    default: {
      std::vector<uint64_t> args;
      for (size_t i = 0; i < program.in.size(); ++i) args.push_back(AnyArray());
      return Execute(program, args, random.OneIn(6), [](uint64_t) {});
    }
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
  const int i = static_cast<int>(world_->random().Below(kSources));
  scheduler::Compile e = CompileOf(i);
  e.body.timeout = kTimeout;
  Call(absl::StrCat("compile f", i), e, [this, i](const scheduler::Reply& reply) {
    if (!reply.status.ok()) return;
    const auto& compiled = std::get<api::CompileReply>(reply.body);
    programs_.push_back({compiled.executable, SourceOf(i).results, compiled.in, compiled.out});
    if (programs_.size() > 4) programs_.erase(programs_.begin());
  });
}

void Client::Upload(const Program& program, std::function<void(uint64_t)> then) {
  scheduler::CreateArray e;
  e.spec = program.in[0];
  const double value = static_cast<double>(world_->random().Below(1 << 24));
  const size_t shards = e.spec.placement.devices.size();
  Call("create", e, [=, this](const scheduler::Reply& reply) {
    if (!reply.status.ok()) return then(0);
    const uint64_t id = std::get<scheduler::ArrayInfo>(reply.body).array;
    arrays_[id] = {value, std::get<scheduler::ArrayInfo>(reply.body).spec};
    Write(id, value, 0, shards, then);
  });
}

void Client::Write(uint64_t array, double value, size_t ordinal, size_t shards,
                   std::function<void(uint64_t)> then) {
  if (ordinal == shards) return then(array);
  scheduler::WriteShard e;
  e.array = array;
  e.ordinal = static_cast<int>(ordinal);
  e.value = ir::Array(ir::DType::kF32, {1});
  e.value.Set(0, value);
  e.timeout = kTimeout;
  Call(absl::StrCat("write ", array, ".", ordinal), e, [=, this](const scheduler::Reply& reply) {
    if (!reply.status.ok()) {
      arrays_.erase(array);
      return then(0);
    }
    Write(array, value, ordinal + 1, shards, then);
  });
}

void Client::Execute(const Program& program, std::vector<uint64_t> args, bool donate,
                     std::function<void(uint64_t)> then) {
  scheduler::Execute e;
  e.body.executable = program.executable;
  e.body.args = args;
  if (donate && std::set<uint64_t>(args.begin(), args.end()).size() == args.size())
    e.body.donate.assign(args.size(), true);
  if (!stopped_ && world_->random().OneIn(10))
    e.body.deadline = world_->random().Within(absl::Milliseconds(5), absl::Seconds(3));
  std::vector<double> values;
  for (uint64_t arg : args) values.push_back(arrays_.at(arg).value);
  if (!e.body.donate.empty())
    for (uint64_t arg : args) arrays_.erase(arg);
  Call(absl::StrCat("execute ", program.executable), e, [=, this](const scheduler::Reply& reply) {
    if (!reply.status.ok()) return then(0);
    ++operations_;
    const auto& made = std::get<api::ExecuteReply>(reply.body);
    for (size_t r = 0; r < made.outputs.size(); ++r)
      arrays_[made.outputs[r]] = {values.at(program.sources[r]), program.out[r]};
    recent_.push_back(made.operation);
    if (recent_.size() > 8) recent_.erase(recent_.begin());
    then(made.outputs.at(0));
  });
}

void Client::Read(uint64_t array, std::function<void()> then) {
  scheduler::ReadShard e;
  e.array = array;
  const Array known = arrays_.at(array);
  e.ordinal = static_cast<int>(
      world_->random().Below(static_cast<int64_t>(known.spec.placement.devices.size())));
  e.timeout = kTimeout;
  Call(absl::StrCat("read ", array), e, [=, this](const scheduler::Reply& reply) {
    if (!reply.status.ok()) {
      if (KindOf(reply.status) != ErrorKind::kDeadlineExceeded) arrays_.erase(array);
      return;
    }
    const double got = std::get<ir::Array>(reply.body).At(0);
    if (got != known.value) world_->Violate("array ", array, " is ", got, ", not ", known.value);
    then();
  });
}

void Client::Move(uint64_t array) {
  scheduler::ReshardArray e;
  e.array = array;
  e.placement = AnyProgram().in[0].placement;
  const Array known = arrays_.at(array);
  Call(absl::StrCat("reshard ", array), e, [=, this](const scheduler::Reply& reply) {
    if (!reply.status.ok()) return;
    ++operations_;
    const auto& made = std::get<scheduler::Making>(reply.body);
    arrays_[made.arrays.at(0).array] = {known.value, made.arrays.at(0).spec};
    recent_.push_back(made.operation.id);
  });
}

void Client::Wait(uint64_t operation) {
  scheduler::WaitOperation e;
  e.operation = operation;
  e.timeout = kTimeout;
  Call(absl::StrCat("wait ", operation), e, [](const scheduler::Reply&) {});
}

void Client::Probe() {
  programs_.clear();
  scheduler::Compile e = CompileOf(1);
  e.body.timeout = kTimeout;
  Call("probe: compile", e, [this](const scheduler::Reply& reply) {
    if (!reply.status.ok())
      return world_->Violate("after the faults: ", std::string(reply.status.message()));
    const auto& compiled = std::get<api::CompileReply>(reply.body);
    const Program program{compiled.executable, SourceOf(1).results, compiled.in, compiled.out};
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
