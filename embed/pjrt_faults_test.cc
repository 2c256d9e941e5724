// Proves that the plugin handles a service that fails. A typical session of a framework is
// repeated, and each time another call of the service fails. Either only that call fails, or all
// calls from it on, or the call is accepted and fails when its results are requested.
//
// Whichever call fails, each function of the table either does its task or returns an error with
// the reason, every event is settled, and all objects that were made can be destroyed.
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
class FaultyService final : public api::Service {
 public:
  explicit FaultyService(std::shared_ptr<api::Service> real) : real_(std::move(real)) {}

  void FailAt(int call, Fault fault, ErrorKind kind) {
    fault_ = fault;
    kind_ = kind;
    made_ = 0;
    at_ = call;
  }
  // The number of calls since FailAt.
  int num_calls() const { return made_; }
  bool has_failed() const { return made_ > at_; }

  absl::StatusOr<std::vector<api::Device>> ListDevices() override { return real_->ListDevices(); }
  absl::StatusOr<api::CompileReply> Compile(const api::CompileRequest& request) override {
    TESSERA_RETURN_IF_ERROR(Next());
    absl::StatusOr<api::CompileReply> reply = real_->Compile(request);
    absl::MutexLock lock(&mu_);
    if (reply.ok()) num_results_[reply->executable] = reply->out.size();
    return reply;
  }
  absl::StatusOr<api::ExecuteReply> Execute(const api::ExecuteRequest& request) override {
    bool later = false;
    absl::Status next = Next(&later);
    for (const uint64_t arg : request.args) later |= arg >= kNobodys;
    if (!later) {
      TESSERA_RETURN_IF_ERROR(next);
      return real_->Execute(request);
    }
    api::ExecuteReply reply{++last_, {}};
    absl::MutexLock lock(&mu_);
    reply.outputs.resize(num_results_.at(request.executable));
    for (uint64_t& output : reply.outputs) output = ++last_;
    return reply;
  }
  absl::StatusOr<uint64_t> Put(const ir::Array& value, const api::Placement& placement,
                               absl::Duration timeout) override {
    TESSERA_RETURN_IF_ERROR(Next());
    return real_->Put(value, placement, timeout);
  }
  absl::StatusOr<ir::Array> Get(uint64_t array, absl::Duration timeout) override {
    TESSERA_RETURN_IF_ERROR(NextOf(array));
    return real_->Get(array, timeout);
  }
  absl::StatusOr<ir::Array> GetShard(uint64_t array, int ordinal, absl::Duration timeout) override {
    TESSERA_RETURN_IF_ERROR(NextOf(array));
    return real_->GetShard(array, ordinal, timeout);
  }
  absl::StatusOr<api::ArraySpec> Describe(uint64_t array) override {
    TESSERA_RETURN_IF_ERROR(NextOf(array));
    return real_->Describe(array);
  }
  absl::StatusOr<api::PendingArrays> Reshard(uint64_t array,
                                             const api::Placement& placement) override {
    bool later = array >= kNobodys;
    absl::Status next = Next(&later);
    if (later) return api::PendingArrays{++last_, {++last_}, {}};
    TESSERA_RETURN_IF_ERROR(next);
    return real_->Reshard(array, placement);
  }
  absl::StatusOr<uint64_t> Save(const std::string& path,
                                const std::vector<api::ArrayToSave>& arrays,
                                bool overwrite) override {
    return real_->Save(path, arrays, overwrite);
  }
  absl::StatusOr<api::PendingArrays> Load(const std::string& path,
                                          const std::vector<api::ArrayToLoad>& arrays) override {
    return real_->Load(path, arrays);
  }
  absl::StatusOr<std::vector<api::FileArrayInfo>> DescribeFile(const std::string& path) override {
    return real_->DescribeFile(path);
  }
  absl::Status Delete(absl::Span<const uint64_t> arrays) override { return real_->Delete(arrays); }
  absl::StatusOr<api::Operation> GetOperation(uint64_t operation) override {
    TESSERA_RETURN_IF_ERROR(NextOf(operation));
    return real_->GetOperation(operation);
  }
  absl::StatusOr<api::Operation> WaitOperation(uint64_t operation,
                                               absl::Duration timeout) override {
    TESSERA_RETURN_IF_ERROR(NextOf(operation));
    return real_->WaitOperation(operation, timeout);
  }
  absl::Status Cancel(uint64_t operation) override { return real_->Cancel(operation); }

 private:
  // Ids from here on are given to arrays and operations of calls that were accepted and fail later;
  // the real service does not know them.
  static constexpr uint64_t kNobodys = uint64_t{1} << 60;

  absl::Status Error() const { return MakeError(kind_, "injected by the test"); }
  // Counts a call and returns the injected error if the call shall fail now. A method whose results
  // can fail in its place passes `later`, which is set to true if they shall fail.
  absl::Status Next(bool* later = nullptr) {
    const int call = made_++;
    if (fault_ == Fault::kForever ? call < at_ : call != at_) return absl::OkStatus();
    if (fault_ == Fault::kLater && later != nullptr) *later = true;
    return Error();
  }
  absl::Status NextOf(uint64_t id) { return id >= kNobodys ? Error() : Next(); }

  const std::shared_ptr<api::Service> real_;
  std::atomic<int> made_ = 0, at_ = std::numeric_limits<int>::max();
  std::atomic<Fault> fault_ = Fault::kOnce;
  std::atomic<ErrorKind> kind_ = ErrorKind::kUnreachable;
  std::atomic<uint64_t> last_ = kNobodys;
  absl::Mutex mu_;
  std::map<uint64_t, size_t> num_results_ ABSL_GUARDED_BY(mu_);  // by executable
};

// The tests run in both modes of the client: runs are made on the caller's thread, as with an
// embedded cluster, or they are queued and made while the caller goes on.
class FaultsTest : public PjrtTest, public ::testing::WithParamInterface<bool> {
 protected:
  Client* Open() override {
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
    auto devices = Make<Client_Devices_Args>();
    devices.client = client_;
    EXPECT_CALL_OK(kClient_Devices, &devices);
    devices_.assign(devices.devices, devices.devices + devices.num_devices);
  }

  // Returns whether there was no error. Keeps an error, whose reason is checked at the end.
  bool Good(const std::string& error) {
    if (error.empty()) return true;
    errors_.push_back(error);
    return false;
  }
  // Reads the buffer and checks that it holds these numbers, unless a call fails.
  void Expect(Buffer* buffer, const std::vector<float>& wanted) {
    if (buffer == nullptr) return;
    auto ready = Make<Buffer_ReadyEvent_Args>();
    ready.buffer = buffer;
    EXPECT_CALL_OK(kBuffer_ReadyEvent, &ready);
    Good(Await(ready.event));
    std::vector<float> got;
    if (!Good(ReadError(buffer, &got))) return;
    EXPECT_EQ(got, wanted);
  }
  // Returns output `i` of the run on device `k`; null if there is none.
  static Buffer* Out(const Ran& ran, size_t k, size_t i) {
    return k < ran.outputs.size() ? ran.outputs[k][i] : nullptr;
  }

  // Makes the calls that a framework makes in a session: it compiles and runs programs on one and
  // on several devices, donates, copies buffers, and calls the host.
  void Session1() {
    errors_.clear();
    LoadedExecutable *twice = nullptr, *sharded = nullptr, *donating = nullptr, *asking = nullptr;
    if (Good(Take(TryCompileText(kDouble, &twice)))) {
      const Ran ran = Run(twice, {{Put({1, 2, 3, 4}, {2, 2}, devices_[0])}}, 1);
      Good(ran.error);
      if (Buffer* const out = Out(ran, 0, 0)) {
        const Ran again = Run(twice, {{out}}, 1);
        Good(again.error);
        Expect(Out(again, 0, 0), {4, 8, 12, 16});
        Expect(out, {2, 4, 6, 8});
        Buffer* copy = nullptr;
        if (Good(TryCopy(out, devices_[2], &copy))) Expect(copy, {2, 4, 6, 8});
      }
    }
    if (Good(Take(TryCompileText(kSharded, &sharded)))) {
      std::vector<std::vector<Buffer*>> args;
      for (int k = 0; k < 4; ++k) {
        const auto n = static_cast<float>(2 * k);
        args.push_back({Put({n, n + 1}, {2}, devices_[k]), Put({3}, {}, devices_[k])});
      }
      for (int times = 0; times < 2; ++times) {
        const Ran ran = Run(sharded, args, 2);
        Good(ran.error);
        for (int k = 0; k < 4; ++k) {
          const auto n = static_cast<float>(6 * k);
          Expect(Out(ran, k, 0), {n, n + 3});
          Expect(Out(ran, k, 1), {84});
        }
        // The copy of one shard is an array of its own on another device.
        Buffer* copy = nullptr;
        if (Buffer* const shard = Out(ran, 1, 0))
          if (Good(TryCopy(shard, devices_[3], &copy))) Expect(copy, {6, 9});
      }
    }
    const std::string two = {0x1a, 2, 0x28, 2};
    if (Good(Take(TryCompile(Artifact("donated"), two, &donating)))) {
      std::vector<std::vector<Buffer*>> args;
      for (int k = 0; k < 2; ++k) {
        const auto n = static_cast<float>(2 * k);
        args.push_back({Put({n, n + 1}, {2}, devices_[k]), Put({n, n}, {2}, devices_[k])});
      }
      const Ran ran = Run(donating, args, 1);
      Good(ran.error);
      Expect(Out(ran, 0, 0), {0, 1});
      Expect(Out(ran, 1, 0), {4, 5});
    }
    if (Good(Take(TryCompile(Artifact("host_callback_asks"), "", &asking)))) {
      const Ran ran = Run(asking, {{Put({0, 1}, {2}, devices_[0])}}, 2);
      Good(ran.error);
      Expect(Out(ran, 0, 0), {420, 820});
      auto get = Make<LoadedExecutable_GetExecutable_Args>();
      get.loaded_executable = asking;
      EXPECT_CALL_OK(kLoadedExecutable_GetExecutable, &get);
      auto cost = Make<Executable_GetCostAnalysis_Args>();
      cost.executable = get.executable;
      if (Good(Take(Call(kExecutable_GetCostAnalysis, &cost)))) {
        EXPECT_EQ(cost.num_properties, 6);
      }
      auto destroy = Make<Executable_Destroy_Args>();
      destroy.executable = get.executable;
      EXPECT_CALL_OK(kExecutable_Destroy, &destroy);
    }
  }

  void FailEachCall(Fault fault, ErrorKind kind) {
    SetHostCallback();
    service_->FailAt(std::numeric_limits<int>::max(), fault, kind);
    Session1();
    ASSERT_THAT(errors_, ElementsAre());
    const int calls = service_->num_calls();
    ASSERT_GT(calls, 20);
    for (int call = 0; call < calls; ++call) {
      SCOPED_TRACE(absl::StrCat("call ", call, " of ", calls));
      Reopen();
      service_->FailAt(call, fault, kind);
      Session1();
      if (!service_->has_failed()) continue;  // this time, fewer calls were made
      EXPECT_FALSE(errors_.empty());
      for (const std::string& error : errors_)
        EXPECT_THAT(error, HasSubstr("injected by the test"));
      if (HasFailure()) return;
    }
  }

  static void SetHostCallback() {
    const auto* extension = static_cast<const Extension*>(Table().extension_start);
    while (extension->type != kHostCallbackExtension) extension = extension->next;
    static_cast<const HostCallbackExtension*>(extension)->set_callbacks(
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

TEST_P(FaultsTest, OneCallFails) { FailEachCall(Fault::kOnce, ErrorKind::kUnreachable); }
TEST_P(FaultsTest, TheClusterGoesAway) { FailEachCall(Fault::kForever, ErrorKind::kUnreachable); }
TEST_P(FaultsTest, TheDevicesHaveNoMemoryLeft) {
  FailEachCall(Fault::kForever, ErrorKind::kOutOfMemory);
}
TEST_P(FaultsTest, ARunFailsWhenItsResultsAreAskedFor) {
  FailEachCall(Fault::kLater, ErrorKind::kWorkerLost);
}

// The caller is older and knows fewer fields of a struct than the plugin does.
TEST_P(FaultsTest, NothingIsWrittenBeyondTheStructOfAnOlderCaller) {
  LoadedExecutable* const twice = Compile(kDouble);
  auto get = Make<LoadedExecutable_GetExecutable_Args>();
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
  auto destroy = Make<Executable_Destroy_Args>();
  destroy.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_Destroy, &destroy);
}

TEST_P(FaultsTest, ABufferWithMoreBytesThanThereAreIsAnError) {
  auto put = Make<Client_BufferFromHostBuffer_Args>();
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
    EXPECT_THAT(Take(Call(kClient_BufferFromHostBuffer, &put)), HasSubstr("VALUE_ERROR"));
  }
}

TEST_P(FaultsTest, ThreadsRunAtOnceAndAhead) {
  LoadedExecutable* const twice = Compile(kDouble);
  std::vector<Buffer*> inputs;
  for (int i = 0; i < 4; ++i) inputs.push_back(Put({1, 2, 3, 4}, {2, 2}, devices_[0]));
  std::vector<std::thread> threads;
  for (Buffer* input : inputs) {
    threads.emplace_back([&, input] {
      // There are more runs than may wait at a time, so this thread waits for some of them.
      Buffer* last = input;
      for (int i = 0; i < 100; ++i) {
        const bool look = i % 30 == 0;
        const Ran ran = Run(twice, {{look ? input : last}}, 1, {}, /*wait=*/look);
        ASSERT_EQ(ran.error, "");
        last = ran.outputs[0][0];
      }
      EXPECT_THAT(Read(last), ElementsAre(1024, 2048, 3072, 4096));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(FaultsTest, AClientIsDestroyedWhileItsRunsWait) {
  LoadedExecutable* const twice = Compile(kDouble);
  Buffer* last = Put({1, 2, 3, 4}, {2, 2}, devices_[0]);
  for (int i = 0; i < 50; ++i) last = Run(twice, {{last}}, 1, {}, /*wait=*/false).outputs[0][0];
  Close();
}

INSTANTIATE_TEST_SUITE_P(Runs, FaultsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Here" : "Ahead"; });

}  // namespace
}  // namespace tessera::pjrt
