// Calls of the host for execute.cc: MakeCallsBeforeRun makes the calls before a run, CallsInOrder
// those after it. Both call one C function with the name of the callback and its operands. The
// Python package tessera_jax sets this function when it loads the plugin.
#include "client/pjrt/calls.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "base/thread_name.h"
#include "client/pjrt/buffer.h"
#include "client/pjrt/executable.h"
#include "client/pjrt/status.h"
#include "client/pjrt/types.h"
#include "client/prints.h"
#include "client/trace.h"
#include "ir/debug_print.h"
#include "ir/op_def.h"
#include "ir/transform/transform.h"

namespace tessera::pjrt {
namespace {

constexpr size_t kErrorSize = 16 << 10;  // room for the error text of a call that fails

std::atomic<HostCallback> host_callback{nullptr};
std::atomic<HoldCallback> hold_callback{nullptr};

void Hold(const std::vector<std::string>& names, bool held) {
  const HoldCallback hold = hold_callback.load();
  if (hold == nullptr) return;
  for (const std::string& name : names) hold(name.c_str(), held);
}

HostValue ValueOf(const ir::Array& a, void* data) {
  return {data, NumberOfDType(a.dtype()), a.shape().data(), a.shape().size()};
}

// Calls the host. If the call fails, the error is INTERNAL, as in JAX on CPUs, with the text that
// the call wrote.
absl::Status Call(const std::string& id, absl::Span<const ir::Array> arrays,
                  absl::Span<ir::Array> results) {
  std::vector<HostValue> values, wanted;
  for (const ir::Array& a : arrays) values.push_back(ValueOf(a, const_cast<std::byte*>(a.data())));
  for (ir::Array& a : results) {
    std::byte* const data = a.MutableData();
    wanted.push_back(ValueOf(a, data));
  }
  std::vector<char> error(kErrorSize, '\0');
  const HostCallback callback = host_callback.load();
  if (callback == nullptr) {
    if (results.empty()) return absl::OkStatus();
    return absl::InternalError("the process has already dropped the functions that programs call");
  }
  if (callback(id.c_str(), values.size(), values.data(), wanted.size(), wanted.data(), error.data(),
               error.size()) == 0)
    return absl::OkStatus();
  error.back() = '\0';
  return absl::InternalError(error.data());
}

absl::StatusOr<std::vector<ir::Array>> ReadAll(const Client& client,
                                               absl::Span<const tessera::Array> arrays) {
  std::vector<ir::Array> values;
  for (const tessera::Array& array : arrays) {
    TESSERA_RETURN_IF_ERROR(AwaitRun(client, array));
    TESSERA_ASSIGN_OR_RETURN(
        values.emplace_back(),
        client.session->service().Get(internal::AsConcrete(array)->id, internal::kMaxWaitPerCall));
  }
  return values;
}

auto FindCall(const std::vector<ir::stablehlo::HostCall>& calls, const std::string& name) {
  return std::find_if(calls.begin(), calls.end(),
                      [&](const ir::stablehlo::HostCall& call) { return call.name == name; });
}

std::vector<ir::Array> ZerosOf(const std::vector<ir::Type>& types) {
  std::vector<ir::Array> out;
  for (const ir::Type& type : types) out.emplace_back(type.dtype, type.shape);
  return out;
}

// Returns whether all elements are NaN or, in an integer array, zero. A program that cannot wait
// for a call goes on with these values in place of the call's results.
bool IsGuess(const ir::Array& a) {
  const bool nan = ir::IsInexact(a.dtype());
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    if (nan ? !std::isnan(a.At(i)) : a.At(i) != 0) return false;
  }
  return true;
}

// Makes the calls of a run that has ended: the reference evaluator runs the part of the program
// that has effects, and `call` gets each of them in order. Where a nested call returns something,
// the program went on with placeholders (IsGuess). If a nested call returns anything else, or if
// the operands of some calls are not known, the results of the run are wrong, and the function
// returns an error.
absl::Status MakeCalls(const Compiled& compiled, const std::vector<tessera::Array>& arrays) {
  TESSERA_ASSIGN_OR_RETURN(std::vector<ir::Array> values, ReadAll(*compiled.client, arrays));
  absl::Status status;  // the error of the first call that fails
  const auto call = [&](const std::string& id, absl::Span<const ir::Array> shown) {
    if (!status.ok()) return;
    if (id == ir::kTurnsLeftOut) {
      std::puts(
          absl::StrReplaceAll(ToAbsl(ir::kTurnsLeftOut), {{"{}", absl::StrCat(shown[0].IntAt(0))}})
              .c_str());
      std::fflush(stdout);
      if (compiled.nested_calls_in_long_loop)
        status = MakeError(ErrorKind::kNotImplemented,
                           "a callback that returns a value was called in a loop that made more "
                           "than 1,000 turns, and their number was not known in advance: the "
                           "arguments of some of the calls are not known");
      return;
    }
    std::vector<ir::Array> results;
    const auto nested = FindCall(compiled.nested_calls, id);
    if (nested != compiled.nested_calls.end()) results = ZerosOf(nested->results);
    status = Call(id, shown, absl::MakeSpan(results));
    if (status.ok() && !std::all_of(results.begin(), results.end(), IsGuess))
      status = MakeError(
          ErrorKind::kNotImplemented,
          "a callback in a loop, a branch or a shard_map returned a value that the program needed "
          "in order to go on; call it outside of loops, branches and shard_map");
  };
  TESSERA_RETURN_IF_ERROR(internal::RunPrints(*compiled.sent.prints, std::move(values), call));
  return status;
}

// Returns the program with only the results whose indices are `results`, and without ops that these
// do not need. Sets `kept` to whether each param is left.
ir::Program WithResults(const ir::Program& program, const std::vector<size_t>& results,
                        bool keep_params, std::vector<bool>* kept) {
  ir::Function f = *program.entry;
  ir::Program out = program;
  f.results.clear();
  out.out_shardings.clear();
  out.out_names.clear();
  for (const size_t r : results) {
    f.results.push_back(program.entry->results[r]);
    if (!program.out_shardings.empty()) out.out_shardings.push_back(program.out_shardings[r]);
    if (!program.out_names.empty()) out.out_names.push_back(program.out_names[r]);
  }
  out.entry = ir::Dce(f, keep_params, kept);
  if (keep_params) return out;
  const auto keep = [&](auto& of_params) {
    size_t n = 0;
    for (size_t i = 0; i < of_params.size(); ++i)
      if ((*kept)[i]) of_params[n++] = of_params[i];
    of_params.resize(n);
  };
  keep(out.in_shardings);
  keep(out.in_names);
  return out;
}

void FindCalls(const ir::Function& f, const std::vector<ir::stablehlo::HostCall>& calls,
               bool* named, bool* left_out) {
  for (const ir::Op& op : f.ops) {
    if (op.def->name == "debug_print") {
      const std::string& id = op.attrs.Str("format");
      *named |= FindCall(calls, id) != calls.end();
      *left_out |= id == ir::kTurnsLeftOut;
    }
    for (const ir::FunctionRef& region : op.regions) FindCalls(*region, calls, named, left_out);
  }
}

}  // namespace

// The importer has put the operands of all calls behind the ordinary results of the program. For
// each call, the program with these operands as its only results is compiled as a small program of
// its own. The whole program then computes these values again, so that its run need not be
// interrupted.
absl::StatusOr<std::vector<CallBeforeRun>> SplitCalls(
    Client& client, const std::vector<ir::stablehlo::HostCall>& calls,
    const std::vector<int64_t>& devices, int num_printed, ir::Program* program) {
  std::vector<CallBeforeRun> out;
  if (calls.empty()) return out;
  const size_t num_results = program->entry->results.size();
  size_t first_operand = num_results - num_printed;
  for (const ir::stablehlo::HostCall& call : calls) first_operand -= call.num_operands;
  size_t next = first_operand;
  for (const ir::stablehlo::HostCall& call : calls) {
    std::vector<size_t> operands(call.num_operands);
    std::iota(operands.begin(), operands.end(), next);
    next += operands.size();
    CallBeforeRun made{call.name, call.results, nullptr, {}};
    const ir::Program part = WithResults(*program, operands, /*keep_params=*/false, &made.takes);
    made.executable =
        client.session->Compile(part, devices, absl::StrCat(program->entry->name, " callback"),
                                /*explain=*/false, Site{});
    out.push_back(std::move(made));
  }
  std::vector<size_t> rest;
  for (size_t r = 0; r < num_results; ++r)
    if (r < first_operand || r >= next) rest.push_back(r);
  *program = WithResults(*program, rest, /*keep_params=*/true, nullptr);
  return out;
}

absl::StatusOr<std::vector<tessera::Array>> MakeCallsBeforeRun(
    const Compiled& compiled, absl::Span<const tessera::Array> args) {
  Client& client = *compiled.client;
  std::vector<tessera::Array> all(args.begin(), args.end());
  for (const CallBeforeRun& call : compiled.calls_before_run) {
    std::vector<tessera::Array> given;
    for (size_t i = 0; i < all.size(); ++i)
      if (call.takes[i]) given.push_back(all[i]);
    // A part whose operands depend on constants only has no arguments; it runs on the program's
    // devices all the same.
    const std::vector<tessera::Array> operands =
        client.session->Run(*call.executable, given, {}, Site{});
    TESSERA_ASSIGN_OR_RETURN(const std::vector<ir::Array> values, ReadAll(client, operands));
    std::vector<ir::Array> results = ZerosOf(call.results);
    TESSERA_RETURN_IF_ERROR(Call(call.name, values, absl::MakeSpan(results)));
    for (const ir::Array& result : results) {
      const api::Placement& placement = compiled.executable->reply.in[all.size()].placement;
      all.push_back(client.session->Put(result, Mesh{placement.mesh, placement.devices},
                                        placement.spec, Site{}));
    }
  }
  return std::vector<tessera::Array>(all.begin() + static_cast<ptrdiff_t>(args.size()), all.end());
}

bool InLongLoop(const ir::Function& prints, const std::vector<ir::stablehlo::HostCall>& calls) {
  for (const ir::Op& op : prints.ops) {
    bool named = false, left_out = false;
    for (const ir::FunctionRef& region : op.regions) FindCalls(*region, calls, &named, &left_out);
    if (named && left_out) return true;
  }
  return false;
}

void SetHostCallbacks(HostCallback callback, HoldCallback hold) {
  host_callback.store(callback);
  hold_callback.store(hold);
}

HeldCallbacks::HeldCallbacks(std::vector<std::string> names) : names_(std::move(names)) {
  Hold(names_, /*held=*/true);
}
HeldCallbacks::~HeldCallbacks() { Hold(names_, /*held=*/false); }

CallsInOrder::~CallsInOrder() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void CallsInOrder::Make(std::shared_ptr<const Compiled> compiled,
                        std::vector<tessera::Array> arrays, std::shared_ptr<Outcome> outcome) {
  auto settler = std::make_shared<Settler>(std::move(outcome));
  absl::MutexLock lock(&mu_);
  waiting_.emplace_back([compiled = std::move(compiled), arrays = std::move(arrays),
                         settler = std::move(settler)]() mutable {
    const absl::Status status = Caught([&] { return MakeCalls(*compiled, arrays); });
    // Release the program and the arrays before the outcome is settled. After that the framework's
    // process may be ending, and must not be called any more.
    compiled.reset();
    arrays.clear();
    settler->Settle(status);
  });
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

void CallsInOrder::Run() {
  NameThread("tessera-calls");
  while (true) {
    std::function<void()> next;
    {
      absl::MutexLock lock(&mu_);
      const auto work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
        return stopping_ || !waiting_.empty();
      };
      mu_.Await(absl::Condition(&work));
      if (stopping_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    next();
  }
}

}  // namespace tessera::pjrt
