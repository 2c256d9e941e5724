// Proves that the plugin handles a service that fails. A typical session of a framework is
// repeated, and each time another call of the service fails. There are three kinds of faults: only
// that call fails, that call and all later calls fail, or the call is accepted and its results fail
// when they are requested.
//
// Whichever call fails, each function of the plugin's function table either does its task or
// returns an error with the reason. Every event is settled, and all objects that were made can be
// destroyed. Some other tests of the plugin need the same two modes of the client, and no faults.
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/pjrt/client.h"
#include "client/session.h"
#include "embed/testing/forwarding_service.h"
#include "embed/testing/pjrt_framework.h"
#include "gmock/gmock.h"

namespace tessera::pjrt {

const Api& Table() { return *GetPjrtApi(); }

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// How a call of the service fails.
enum class Fault {
  kOnce,     // only this call fails
  kForever,  // this call and all later calls fail
  kLater,    // the run or copy is accepted, but fails when its results are requested
};

// A service that fails at the call with a given number, in one of these ways.
class FaultyService final : public testing::ForwardingService {
 public:
  using ForwardingService::ForwardingService;

  void FailAt(int call, Fault fault, ErrorKind kind) {
    fault_ = fault;
    kind_ = kind;
    num_calls_ = 0;
    fail_at_ = call;
  }
  // The number of calls since FailAt.
  int num_calls() const { return num_calls_; }
  bool has_failed() const { return num_calls_ > fail_at_; }

  absl::StatusOr<api::CompileReply> Compile(const api::CompileRequest& request) override {
    TESSERA_RETURN_IF_ERROR(NextCall());
    absl::StatusOr<api::CompileReply> reply = real_->Compile(request);
    absl::MutexLock lock(&mu_);
    if (reply.ok()) num_results_[reply->executable] = reply->out.size();
    return reply;
  }
  absl::StatusOr<api::ExecuteReply> Execute(const api::ExecuteRequest& request) override {
    bool later = false;
    absl::Status next = NextCall(&later);
    for (const uint64_t arg : request.args) later |= arg >= kFirstFakeId;
    if (!later) {
      TESSERA_RETURN_IF_ERROR(next);
      return real_->Execute(request);
    }
    api::ExecuteReply reply{++last_fake_id_, {}};
    absl::MutexLock lock(&mu_);
    reply.outputs.resize(num_results_.at(request.executable));
    for (uint64_t& output : reply.outputs) output = ++last_fake_id_;
    return reply;
  }
  absl::StatusOr<uint64_t> Put(const ir::Array& value, const api::Placement& placement,
                               absl::Duration timeout) override {
    TESSERA_RETURN_IF_ERROR(NextCall());
    return real_->Put(value, placement, timeout);
  }
  absl::StatusOr<ir::Array> Get(uint64_t array, absl::Duration timeout) override {
    TESSERA_RETURN_IF_ERROR(NextCallOn(array));
    return real_->Get(array, timeout);
  }
  absl::StatusOr<ir::Array> GetShard(uint64_t array, int ordinal, absl::Duration timeout) override {
    TESSERA_RETURN_IF_ERROR(NextCallOn(array));
    return real_->GetShard(array, ordinal, timeout);
  }
  absl::StatusOr<api::ArraySpec> Describe(uint64_t array) override {
    TESSERA_RETURN_IF_ERROR(NextCallOn(array));
    return real_->Describe(array);
  }
  absl::StatusOr<api::PendingArrays> Reshard(uint64_t array,
                                             const api::Placement& placement) override {
    bool later = array >= kFirstFakeId;
    absl::Status next = NextCall(&later);
    if (later) return api::PendingArrays{++last_fake_id_, {++last_fake_id_}, {}};
    TESSERA_RETURN_IF_ERROR(next);
    return real_->Reshard(array, placement);
  }
  absl::StatusOr<api::Operation> GetOperation(uint64_t operation) override {
    TESSERA_RETURN_IF_ERROR(NextCallOn(operation));
    return real_->GetOperation(operation);
  }
  absl::StatusOr<api::Operation> WaitOperation(uint64_t operation,
                                               absl::Duration timeout) override {
    TESSERA_RETURN_IF_ERROR(NextCallOn(operation));
    return real_->WaitOperation(operation, timeout);
  }

 private:
  // The ids from this one on are fake: they are given to arrays and operations of calls that were
  // accepted and fail later, and the real service does not know them.
  static constexpr uint64_t kFirstFakeId = uint64_t{1} << 60;

  absl::Status Error() const { return MakeError(kind_, "injected by the test"); }
  // Counts a call, and returns the injected error if this call is the one to fail. A method whose
  // calls may be accepted and fail later passes `later`. If this call shall fail in that way,
  // *later is set to true.
  absl::Status NextCall(bool* later = nullptr) {
    const int call = num_calls_++;
    if (fault_ == Fault::kForever ? call < fail_at_ : call != fail_at_) return absl::OkStatus();
    if (fault_ == Fault::kLater && later != nullptr) *later = true;
    return Error();
  }
  absl::Status NextCallOn(uint64_t id) { return id >= kFirstFakeId ? Error() : NextCall(); }

  std::atomic<int> num_calls_ = 0, fail_at_ = std::numeric_limits<int>::max();
  std::atomic<Fault> fault_ = Fault::kOnce;
  std::atomic<ErrorKind> kind_ = ErrorKind::kUnreachable;
  std::atomic<uint64_t> last_fake_id_ = kFirstFakeId;
  absl::Mutex mu_;
  std::map<uint64_t, size_t> num_results_ ABSL_GUARDED_BY(mu_);  // by executable
};

TEST(ClientOptionsTest, TheTimeForWhichCallsWaitForACoordinatorIsAnOption) {
  const auto options = [](const char* seconds, absl::Span<const NamedValue> given = {}) {
    return ReadClientOptions(given,
                             [seconds](const std::string& name) -> std::optional<std::string> {
                               if (name == "TESSERA_ADDRESS") return "127.0.0.1:8470";
                               if (name == "TESSERA_RECONNECT" && seconds != nullptr)
                                 return seconds;
                               return std::nullopt;
                             });
  };
  EXPECT_EQ(options(nullptr)->reconnect, absl::Seconds(30));
  EXPECT_EQ(options("")->reconnect, absl::Seconds(30));
  EXPECT_EQ(options("2")->reconnect, absl::Seconds(2));
  EXPECT_EQ(options("2", {IntOption("reconnect", 7)})->reconnect, absl::Seconds(7));
  const absl::Status wrong = options("soon").status();
  EXPECT_EQ(ReasonOf(wrong), "VALUE_ERROR");
  EXPECT_THAT(std::string(wrong.message()),
              HasSubstr("TESSERA_RECONNECT: reconnect: a number from 0 to 86400 is expected"));
}

// The tests run in both modes of the client. In one, runs are requested on the caller's thread, as
// with an embedded cluster. In the other they are queued, and requested while the caller continues.
class BothModesTest : public PjrtTest, public ::testing::WithParamInterface<bool> {
 protected:
  Client* OpenClient() override {
    TesseraStartEmbedded({.devices = 4}, &real_);
    EXPECT_TRUE(real_.ok()) << real_.status();
    return OpenOn(std::make_shared<FaultyService>(*real_));
  }
  Client* OpenOn(std::shared_ptr<FaultyService> service) {
    service_ = std::move(service);
    const std::shared_ptr<Session> session = Session::FromService(service_);
    return new Client(session, /*in_process=*/GetParam(), session->devices());
  }
  // Replaces the client by a new one of the same cluster, which has no compiled programs yet.
  void Reopen() {
    Close();
    client_ = OpenOn(std::make_shared<FaultyService>(*real_));
    auto devices = MakeArgs<Client_Devices_Args>();
    devices.client = client_;
    EXPECT_CALL_OK(kClient_Devices, &devices);
    devices_.assign(devices.devices, devices.devices + devices.num_devices);
  }

  // Returns whether `error` is "", which means success. Appends any other error to errors_, which
  // FailEachCall checks at the end.
  bool OkOrRecord(const std::string& error) {
    if (error.empty()) return true;
    errors_.push_back(error);
    return false;
  }
  // Reads the buffer and checks that it holds these numbers, unless a call fails.
  void ExpectContents(Buffer* buffer, const std::vector<float>& wanted) {
    if (buffer == nullptr) return;
    auto ready = MakeArgs<Buffer_ReadyEvent_Args>();
    ready.buffer = buffer;
    EXPECT_CALL_OK(kBuffer_ReadyEvent, &ready);
    OkOrRecord(Await(ready.event));
    std::vector<float> got;
    if (!OkOrRecord(TryRead(buffer, &got))) return;
    EXPECT_EQ(got, wanted);
  }
  // Returns output `i` of the run on device `k`; null if there is none.
  static Buffer* Out(const RunResult& ran, size_t k, size_t i) {
    return k < ran.outputs.size() ? ran.outputs[k][i] : nullptr;
  }

  // Makes the calls that a framework makes in a session: it compiles and runs programs on one and
  // on several devices, donates, copies buffers, and calls the host.
  void RunTypicalSession() {
    errors_.clear();
    LoadedExecutable *twice = nullptr, *sharded = nullptr, *donating = nullptr, *asking = nullptr;
    if (OkOrRecord(TakeMessage(TryCompileText(kTwiceProgram, &twice)))) {
      const RunResult ran = Run(twice, {{Put({1, 2, 3, 4}, {2, 2}, devices_[0])}}, 1);
      OkOrRecord(ran.error);
      if (Buffer* const out = Out(ran, 0, 0)) {
        const RunResult again = Run(twice, {{out}}, 1);
        OkOrRecord(again.error);
        ExpectContents(Out(again, 0, 0), {4, 8, 12, 16});
        ExpectContents(out, {2, 4, 6, 8});
        Buffer* copy = nullptr;
        if (OkOrRecord(TryCopy(out, devices_[2], &copy))) ExpectContents(copy, {2, 4, 6, 8});
      }
    }
    if (OkOrRecord(TakeMessage(TryCompileText(kShardedProgram, &sharded)))) {
      std::vector<std::vector<Buffer*>> args;
      for (int k = 0; k < 4; ++k) {
        const auto n = static_cast<float>(2 * k);
        args.push_back({Put({n, n + 1}, {2}, devices_[k]), Put({3}, {}, devices_[k])});
      }
      for (int times = 0; times < 2; ++times) {
        const RunResult ran = Run(sharded, args, 2);
        OkOrRecord(ran.error);
        for (int k = 0; k < 4; ++k) {
          const auto n = static_cast<float>(6 * k);
          ExpectContents(Out(ran, k, 0), {n, n + 3});
          ExpectContents(Out(ran, k, 1), {84});
        }
        // The copy of one shard is an array of its own on another device.
        Buffer* copy = nullptr;
        if (Buffer* const shard = Out(ran, 1, 0))
          if (OkOrRecord(TryCopy(shard, devices_[3], &copy))) ExpectContents(copy, {6, 9});
      }
    }
    const std::string two_partitions = {0x1a, 2, 0x28, 2};
    if (OkOrRecord(
            TakeMessage(TryCompile(ReadArtifactFile("donated"), two_partitions, &donating)))) {
      std::vector<std::vector<Buffer*>> args;
      for (int k = 0; k < 2; ++k) {
        const auto n = static_cast<float>(2 * k);
        args.push_back({Put({n, n + 1}, {2}, devices_[k]), Put({n, n}, {2}, devices_[k])});
      }
      const RunResult ran = Run(donating, args, 1);
      OkOrRecord(ran.error);
      ExpectContents(Out(ran, 0, 0), {0, 1});
      ExpectContents(Out(ran, 1, 0), {4, 5});
    }
    if (OkOrRecord(TakeMessage(TryCompile(ReadArtifactFile("host_callback_asks"), "", &asking)))) {
      const RunResult ran = Run(asking, {{Put({0, 1}, {2}, devices_[0])}}, 2);
      OkOrRecord(ran.error);
      ExpectContents(Out(ran, 0, 0), {420, 820});
      auto get = MakeArgs<LoadedExecutable_GetExecutable_Args>();
      get.loaded_executable = asking;
      EXPECT_CALL_OK(kLoadedExecutable_GetExecutable, &get);
      auto cost = MakeArgs<Executable_GetCostAnalysis_Args>();
      cost.executable = get.executable;
      if (OkOrRecord(TakeMessage(Call(kExecutable_GetCostAnalysis, &cost)))) {
        EXPECT_EQ(cost.num_properties, 6);
      }
      auto destroy = MakeArgs<Executable_Destroy_Args>();
      destroy.executable = get.executable;
      EXPECT_CALL_OK(kExecutable_Destroy, &destroy);
    }
  }

  void FailEachCall(Fault fault, ErrorKind kind) {
    SetHostCallback();
    service_->FailAt(std::numeric_limits<int>::max(), fault, kind);
    RunTypicalSession();
    ASSERT_THAT(errors_, ElementsAre());
    const int calls = service_->num_calls();
    ASSERT_GT(calls, 20);
    for (int call = 0; call < calls; ++call) {
      SCOPED_TRACE(absl::StrCat("call ", call, " of ", calls));
      Reopen();
      service_->FailAt(call, fault, kind);
      RunTypicalSession();
      if (!service_->has_failed()) continue;  // this time, fewer calls were made
      EXPECT_FALSE(errors_.empty());
      for (const std::string& error : errors_)
        EXPECT_THAT(error, HasSubstr("injected by the test"));
      if (HasFailure()) return;
    }
  }

  static void SetHostCallback() {
    const auto* extension = static_cast<const Extension*>(Table().extension_start);
    while (extension->type != kTesseraExtension) extension = extension->next;
    static_cast<const TesseraExtension*>(extension)->set_callbacks(
        [](const char*, size_t, const HostValue* values, size_t, const HostValue* results, char*,
           size_t) {
          for (int i = 0; i < 2; ++i) {
            static_cast<float*>(results[0].data)[i] =
                10 * static_cast<const float*>(values[0].data)[i];
          }
          return 0;
        },
        [](const char*, bool) {});
  }

  absl::StatusOr<std::shared_ptr<api::Service>> real_ = absl::UnknownError("not started");
  std::shared_ptr<FaultyService> service_;
  std::vector<std::string> errors_;
};

TEST_P(BothModesTest, OneCallFails) { FailEachCall(Fault::kOnce, ErrorKind::kUnreachable); }
TEST_P(BothModesTest, TheClusterGoesAway) {
  FailEachCall(Fault::kForever, ErrorKind::kUnreachable);
}
TEST_P(BothModesTest, TheDevicesHaveNoMemoryLeft) {
  FailEachCall(Fault::kForever, ErrorKind::kOutOfMemory);
}
TEST_P(BothModesTest, ResultsFailWhenTheyAreRequested) {
  FailEachCall(Fault::kLater, ErrorKind::kWorkerLost);
}

// The caller is older and knows fewer fields of a struct than the plugin does.
TEST_P(BothModesTest, NothingIsWrittenBeyondTheStructOfAnOlderCaller) {
  LoadedExecutable* const twice = Compile(kTwiceProgram);
  auto get = MakeArgs<LoadedExecutable_GetExecutable_Args>();
  get.loaded_executable = twice;
  EXPECT_CALL_OK(kLoadedExecutable_GetExecutable, &get);
  // The size of the struct up to and including output_size_in_bytes.
  constexpr size_t kOlder = sizeof(Header) + sizeof(Executable*) + 3 * sizeof(int64_t);
  // Allocate only as much as the caller knows, so that a sanitizer notices a write beyond it.
  const std::unique_ptr<char[]> bytes(new char[kOlder]);
  auto* const args = reinterpret_cast<Executable_GetCompiledMemoryStats_Args*>(bytes.get());
  std::memset(bytes.get(), 0, kOlder);
  args->struct_size = kOlder;
  args->executable = get.executable;
  EXPECT_CALL_OK(kExecutable_GetCompiledMemoryStats, args);
  EXPECT_EQ(args->argument_size_in_bytes, 16);
  EXPECT_EQ(args->struct_size, kOlder);
  auto destroy = MakeArgs<Executable_Destroy_Args>();
  destroy.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_Destroy, &destroy);
}

TEST_P(BothModesTest, ABufferWithTooManyBytesIsAnError) {
  auto put = MakeArgs<Client_BufferFromHostBuffer_Args>();
  put.client = client_;
  put.type = kF32;
  put.memory = MemoryOf(devices_[0]);
  float number = 1;
  put.data = &number;
  constexpr int64_t kMany = int64_t{1} << 40;
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{kMany << 22}, {kMany, kMany}, {-1}}) {
    put.dims = dims.data();
    put.num_dims = dims.size();
    EXPECT_THAT(TakeMessage(Call(kClient_BufferFromHostBuffer, &put)), HasSubstr("VALUE_ERROR"));
  }
}

TEST_P(BothModesTest, ThreadsRunProgramsConcurrently) {
  LoadedExecutable* const twice = Compile(kTwiceProgram);
  std::vector<Buffer*> inputs;
  for (int i = 0; i < 4; ++i) inputs.push_back(Put({1, 2, 3, 4}, {2, 2}, devices_[0]));
  std::vector<std::thread> threads;
  for (Buffer* input : inputs) {
    threads.emplace_back([&, input] {
      // The threads start more runs than the queue may hold. Each thread awaits every 30th run.
      Buffer* last = input;
      for (int i = 0; i < 100; ++i) {
        const bool wait = i % 30 == 0;
        const RunResult ran = Run(twice, {{wait ? input : last}}, 1, {}, wait);
        ASSERT_EQ(ran.error, "");
        last = ran.outputs[0][0];
      }
      EXPECT_THAT(Read(last), ElementsAre(1024, 2048, 3072, 4096));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(BothModesTest, AClientMayBeDestroyedWhileItsRunsWait) {
  LoadedExecutable* const twice = Compile(kTwiceProgram);
  Buffer* last = Put({1, 2, 3, 4}, {2, 2}, devices_[0]);
  for (int i = 0; i < 50; ++i) last = Run(twice, {{last}}, 1, {}, /*wait=*/false).outputs[0][0];
  Close();
}

INSTANTIATE_TEST_SUITE_P(Runs, BothModesTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "OnCaller" : "Queued"; });

}  // namespace
}  // namespace tessera::pjrt
