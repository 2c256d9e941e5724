// Implements the calls that a framework such as JAX makes through the function table of a PJRT
// plugin, for the tests of our plugin. The helpers check as they go that no call fails
// unexpectedly.
#include "embed/testing/pjrt_framework.h"

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/testing/datadriven.h"
#include "ir/stablehlo/export.h"
#include "ir/text.h"

namespace tessera::pjrt {

const char kTwiceProgram[] = R"(
func main(%a: f32[2,2]) -> (f32[2,2]) {
  %b = add(%a, %a)
  return %b
}
)";
const char kShardedProgram[] = R"(
mesh (x=4)
func main(%a: f32[8] P('x'), %b: f32[]) -> (f32[8] P('x'), f32[]) {
  %c = broadcast_in_dim(%b) {shape=[8], broadcast_dimensions=[]}
  %d = multiply(%a, %c)
  %s = reduce_sum(%d) {dimensions=[0]}
  return %d, %s
}
)";

std::array<std::atomic<bool>, kNumFunctions>& CalledFunctions() {
  static std::array<std::atomic<bool>, kNumFunctions> called;
  return called;
}

std::string TakeMessage(Error* error, int* code) {
  if (error == nullptr) return "";
  auto message = MakeArgs<Error_Message_Args>();
  message.error = error;
  Call(kError_Message, &message);
  std::string text(message.message, message.message_size);
  auto get = MakeArgs<Error_GetCode_Args>();
  get.error = error;
  EXPECT_EQ(Call(kError_GetCode, &get), nullptr);
  if (code != nullptr) *code = get.code;
  auto payloads = MakeArgs<Error_ForEachPayload_Args>();
  payloads.error = error;
  payloads.visitor = [](const char*, size_t, const char*, size_t, void*) {};
  EXPECT_EQ(Call(kError_ForEachPayload, &payloads), nullptr);
  auto destroy = MakeArgs<Error_Destroy_Args>();
  destroy.error = error;
  Call(kError_Destroy, &destroy);
  return text;
}

NamedValue IntOption(const char* name, int64_t value) {
  auto option = MakeArgs<NamedValue>();
  option.name = name;
  option.name_size = std::strlen(name);
  option.type = kInt64;
  option.int64_value = value;
  option.value_size = 1;
  return option;
}

// Waits by a callback, as JAX does, and then reads the event's state by the two other functions of
// the table, IsReady and Error. So each test also checks that all three agree.
std::string Await(Event* event) {
  absl::Notification done;
  struct State {
    absl::Notification* done;
    std::string error;
  } state{&done, ""};
  auto ready = MakeArgs<Event_OnReady_Args>();
  ready.event = event;
  ready.user_arg = &state;
  ready.callback = [](Error* error, void* p) {
    static_cast<State*>(p)->error = TakeMessage(error);
    static_cast<State*>(p)->done->Notify();
  };
  EXPECT_CALL_OK(kEvent_OnReady, &ready);
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Minutes(1)));
  auto is_ready = MakeArgs<Event_IsReady_Args>();
  is_ready.event = event;
  EXPECT_CALL_OK(kEvent_IsReady, &is_ready);
  EXPECT_TRUE(is_ready.is_ready);
  auto error = MakeArgs<Event_Error_Args>();
  error.event = event;
  EXPECT_EQ(TakeMessage(Call(kEvent_Error, &error)), state.error);
  auto destroy = MakeArgs<Event_Destroy_Args>();
  destroy.event = event;
  EXPECT_CALL_OK(kEvent_Destroy, &destroy);
  return state.error;
}

std::string ReadArtifactFile(const std::string& name) {
  std::ifstream in(SourcePath("tests/fuzz/stablehlo/" + name + ".mlirbc"), std::ios::binary);
  EXPECT_TRUE(in.good()) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

Client* PjrtTest::OpenClient() {
  const NamedValue options[] = {IntOption("embedded", 4)};
  auto create = MakeArgs<Client_Create_Args>();
  create.create_options = options;
  create.num_options = 1;
  EXPECT_CALL_OK(kClient_Create, &create);
  return create.client;
}

void PjrtTest::SetUp() {
  auto initialize = MakeArgs<Plugin_Initialize_Args>();
  EXPECT_CALL_OK(kPlugin_Initialize, &initialize);
  client_ = OpenClient();
  ASSERT_NE(client_, nullptr);
  auto devices = MakeArgs<Client_Devices_Args>();
  devices.client = client_;
  EXPECT_CALL_OK(kClient_Devices, &devices);
  devices_.assign(devices.devices, devices.devices + devices.num_devices);
  ASSERT_EQ(devices_.size(), 4);
}

void PjrtTest::Close() {
  if (client_ == nullptr) return;
  {
    absl::MutexLock lock(&mu_);
    for (Buffer* buffer : buffers_) {
      auto destroy = MakeArgs<Buffer_Destroy_Args>();
      destroy.buffer = buffer;
      EXPECT_CALL_OK(kBuffer_Destroy, &destroy);
    }
    buffers_.clear();
  }
  for (LoadedExecutable* executable : executables_) {
    auto destroy = MakeArgs<LoadedExecutable_Destroy_Args>();
    destroy.executable = executable;
    EXPECT_CALL_OK(kLoadedExecutable_Destroy, &destroy);
  }
  executables_.clear();
  auto destroy = MakeArgs<Client_Destroy_Args>();
  destroy.client = client_;
  EXPECT_CALL_OK(kClient_Destroy, &destroy);
  client_ = nullptr;
}

Memory* PjrtTest::MemoryOf(Device* device) {
  auto memory = MakeArgs<Device_DefaultMemory_Args>();
  memory.device = device;
  EXPECT_CALL_OK(kDevice_DefaultMemory, &memory);
  return memory.memory;
}

Buffer* PjrtTest::Put(const std::vector<float>& values, std::vector<int64_t> dims, Device* device,
                      std::vector<int64_t> byte_strides) {
  auto put = MakeArgs<Client_BufferFromHostBuffer_Args>();
  put.client = client_;
  put.data = values.data();
  put.type = kF32;
  put.dims = dims.data();
  put.num_dims = dims.size();
  put.byte_strides = byte_strides.empty() ? nullptr : byte_strides.data();
  put.num_byte_strides = byte_strides.size();
  put.memory = MemoryOf(device);
  EXPECT_CALL_OK(kClient_BufferFromHostBuffer, &put);
  EXPECT_EQ(Await(put.done_with_host_buffer), "");
  Keep(put.buffer);
  return put.buffer;
}

Buffer* PjrtTest::PutBool(bool value) {
  auto put = MakeArgs<Client_BufferFromHostBuffer_Args>();
  put.client = client_;
  put.data = &value;
  put.type = kPred;
  put.memory = MemoryOf(devices_[0]);
  EXPECT_CALL_OK(kClient_BufferFromHostBuffer, &put);
  EXPECT_EQ(Await(put.done_with_host_buffer), "");
  Keep(put.buffer);
  return put.buffer;
}

std::string PjrtTest::TryRead(Buffer* buffer, std::vector<float>* out) {
  auto read = MakeArgs<Buffer_ToHostBuffer_Args>();
  read.src = buffer;
  if (std::string error = TakeMessage(Call(kBuffer_ToHostBuffer, &read)); !error.empty())
    return error;
  out->assign(read.dst_size / sizeof(float), -1);
  if (out->empty()) return "";  // An empty vector has no memory to pass as the destination.
  read.dst = out->data();
  if (std::string error = TakeMessage(Call(kBuffer_ToHostBuffer, &read)); !error.empty())
    return error;
  return Await(read.event);
}
std::vector<float> PjrtTest::Read(Buffer* buffer) {
  std::vector<float> out;
  EXPECT_EQ(TryRead(buffer, &out), "");
  return out;
}

Error* PjrtTest::TryCompile(const std::string& code, const std::string& options,
                            LoadedExecutable** executable) {
  auto program = MakeArgs<ProgramBytes>();
  std::string bytes = code;
  program.code = bytes.data();
  program.code_size = bytes.size();
  program.format = "mlir";
  program.format_size = 4;
  auto compile = MakeArgs<Client_Compile_Args>();
  compile.client = client_;
  compile.program = &program;
  compile.compile_options = options.data();
  compile.compile_options_size = options.size();
  Error* const error = Call(kClient_Compile, &compile);
  if (error == nullptr) {
    *executable = compile.executable;
    executables_.push_back(compile.executable);
  }
  return error;
}
Error* PjrtTest::TryCompileText(const std::string& text, LoadedExecutable** executable) {
  const ir::Program program = ir::ParseProgram(text).value();
  const int64_t devices = program.mesh().num_devices();
  // The bytes encode CompileOptions {executable_build_options {num_partitions: N}}.
  const std::string options = {0x1a, 2, 0x28, static_cast<char>(devices)};
  return TryCompile(ir::stablehlo::ExportProgram(program).value(), options, executable);
}

LoadedExecutable* PjrtTest::Compile(const std::string& text) {
  LoadedExecutable* executable = nullptr;
  EXPECT_EQ(TakeMessage(TryCompileText(text, &executable)), "");
  return executable;
}

// Builds the nested lists of pointers that the table takes: one list of arguments and one list of
// outputs for each device. The outputs are kept even if the run fails later, because a framework
// must destroy them as well.
PjrtTest::RunResult PjrtTest::Run(LoadedExecutable* executable,
                                  const std::vector<std::vector<Buffer*>>& args, size_t num_outputs,
                                  const std::vector<int64_t>& keep, bool wait) {
  auto options = MakeArgs<ExecuteOptions>();
  options.non_donatable_input_indices = keep.data();
  options.num_non_donatable_input_indices = keep.size();
  std::vector<Buffer* const*> lists;
  for (const auto& list : args) lists.push_back(list.data());
  RunResult out;
  out.outputs.assign(args.size(), std::vector<Buffer*>(num_outputs));
  std::vector<Buffer**> output_lists;
  for (auto& list : out.outputs) output_lists.push_back(list.data());
  std::vector<Event*> complete(args.size());
  auto run = MakeArgs<LoadedExecutable_Execute_Args>();
  run.executable = executable;
  run.options = &options;
  run.argument_lists = lists.data();
  run.num_devices = args.size();
  run.num_args = args.empty() ? 0 : args[0].size();
  run.output_lists = output_lists.data();
  run.device_complete_events = complete.data();
  out.error = TakeMessage(Call(kLoadedExecutable_Execute, &run));
  if (!out.error.empty()) {
    out.outputs.clear();
    return out;
  }
  for (Event* event : complete) {
    if (wait) {
      out.error = Await(event);
    } else {
      CallWithObject<Event_Destroy_Args>(kEvent_Destroy, &Event_Destroy_Args::event, event);
    }
  }
  for (const auto& list : out.outputs) {
    for (Buffer* buffer : list) Keep(buffer);
  }
  return out;
}

bool PjrtTest::IsDeleted(Buffer* buffer) {
  auto deleted = MakeArgs<Buffer_IsDeleted_Args>();
  deleted.buffer = buffer;
  EXPECT_CALL_OK(kBuffer_IsDeleted, &deleted);
  return deleted.is_deleted;
}

void PjrtTest::Keep(Buffer* buffer) {
  absl::MutexLock lock(&mu_);
  buffers_.push_back(buffer);
}

std::string PjrtTest::TryCopy(Buffer* from, Device* to, Buffer** copied) {
  auto copy = MakeArgs<Buffer_CopyToMemory_Args>();
  copy.buffer = from;
  copy.dst_memory = MemoryOf(to);
  if (std::string error = TakeMessage(Call(kBuffer_CopyToMemory, &copy)); !error.empty())
    return error;
  Keep(copy.dst_buffer);
  *copied = copy.dst_buffer;
  return "";
}

}  // namespace tessera::pjrt
