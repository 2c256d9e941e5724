// The plugin as a framework uses it: loaded from its file, and called through its table only, in
// the order in which JAX calls it, with the traps that its interface has.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "client/pjrt/abi.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ir/stablehlo/export.h"
#include "ir/text.h"

namespace tessera::pjrt {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsNan;

enum Index : int {
#define TESSERA_PJRT(name) k##name,
#define TESSERA_PJRT_ABSENT(name) k##name,
#include "client/pjrt/functions.def"
#undef TESSERA_PJRT
#undef TESSERA_PJRT_ABSENT
};
static_assert(kError_ForEachPayload == 132);
static_assert(kTopologyDescription_GetMemorySpaceKindIds + 1 == kNumFunctions);

constexpr int kPred = 1, kF32 = 11;

const Api& Table() {
  static const Api* const api = [] {
    void* const plugin = dlopen(TESSERA_PJRT_PLUGIN, RTLD_LAZY | RTLD_LOCAL);
    EXPECT_NE(plugin, nullptr) << dlerror();
    return reinterpret_cast<const Api* (*)()>(dlsym(plugin, "GetPjrtApi"))();
  }();
  return *api;
}

// An argument struct as a caller makes it.
template <class Args>
Args Make() {
  Args args;
  std::memset(static_cast<void*>(&args), 0, sizeof(args));
  args.struct_size = sizeof(args);
  return args;
}

template <class Args>
Error* Call(Index index, Args* args) {
  return reinterpret_cast<Error* (*)(Args*)>(Table().functions[index])(args);
}

// The message of an error, which is given back; "" for none.
std::string Take(Error* error, int* code = nullptr) {
  if (error == nullptr) return "";
  auto message = Make<Error_Message_Args>();
  message.error = error;
  Call(kError_Message, &message);
  std::string text(message.message, message.message_size);
  auto get = Make<Error_GetCode_Args>();
  get.error = error;
  EXPECT_EQ(Call(kError_GetCode, &get), nullptr);
  if (code != nullptr) *code = get.code;
  auto payloads = Make<Error_ForEachPayload_Args>();
  payloads.error = error;
  payloads.visitor = [](const char*, size_t, const char*, size_t, void*) {};
  EXPECT_EQ(Call(kError_ForEachPayload, &payloads), nullptr);
  auto destroy = Make<Error_Destroy_Args>();
  destroy.error = error;
  Call(kError_Destroy, &destroy);
  return text;
}
#define EXPECT_CALL_OK(index, args) EXPECT_EQ(Take(Call(index, args)), "")

NamedValue Option(const char* name, int64_t value) {
  auto option = Make<NamedValue>();
  option.name = name;
  option.name_size = std::strlen(name);
  option.type = kInt64;
  option.int64_value = value;
  option.value_size = 1;
  return option;
}

// Waits for an event and destroys it; its error.
std::string Await(Event* event) {
  absl::Notification done;
  struct State {
    absl::Notification* done;
    std::string error;
  } state{&done, ""};
  auto ready = Make<Event_OnReady_Args>();
  ready.event = event;
  ready.user_arg = &state;
  ready.callback = [](Error* error, void* p) {
    static_cast<State*>(p)->error = Take(error);
    static_cast<State*>(p)->done->Notify();
  };
  EXPECT_CALL_OK(kEvent_OnReady, &ready);
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Minutes(1)));
  auto is_ready = Make<Event_IsReady_Args>();
  is_ready.event = event;
  EXPECT_CALL_OK(kEvent_IsReady, &is_ready);
  EXPECT_TRUE(is_ready.is_ready);
  auto error = Make<Event_Error_Args>();
  error.event = event;
  EXPECT_EQ(Take(Call(kEvent_Error, &error)), state.error);
  auto destroy = Make<Event_Destroy_Args>();
  destroy.event = event;
  EXPECT_CALL_OK(kEvent_Destroy, &destroy);
  return state.error;
}

class PjrtTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto initialize = Make<Plugin_Initialize_Args>();
    EXPECT_CALL_OK(kPlugin_Initialize, &initialize);
    const NamedValue options[] = {Option("embedded", 4)};
    auto create = Make<Client_Create_Args>();
    create.create_options = options;
    create.num_options = 1;
    ASSERT_EQ(Take(Call(kClient_Create, &create)), "");
    client_ = create.client;
    auto devices = Make<Client_Devices_Args>();
    devices.client = client_;
    EXPECT_CALL_OK(kClient_Devices, &devices);
    devices_.assign(devices.devices, devices.devices + devices.num_devices);
    ASSERT_EQ(devices_.size(), 4);
  }
  void TearDown() override {
    for (Buffer* buffer : buffers_) {
      auto destroy = Make<Buffer_Destroy_Args>();
      destroy.buffer = buffer;
      EXPECT_CALL_OK(kBuffer_Destroy, &destroy);
    }
    for (LoadedExecutable* executable : executables_) {
      auto destroy = Make<LoadedExecutable_Destroy_Args>();
      destroy.executable = executable;
      EXPECT_CALL_OK(kLoadedExecutable_Destroy, &destroy);
    }
    auto destroy = Make<Client_Destroy_Args>();
    destroy.client = client_;
    EXPECT_CALL_OK(kClient_Destroy, &destroy);
  }

  Memory* MemoryOf(Device* device) {
    auto memory = Make<Device_DefaultMemory_Args>();
    memory.device = device;
    EXPECT_CALL_OK(kDevice_DefaultMemory, &memory);
    return memory.memory;
  }

  Buffer* Put(const std::vector<float>& values, std::vector<int64_t> dims, Device* device,
              std::vector<int64_t> byte_strides = {}) {
    auto put = Make<Client_BufferFromHostBuffer_Args>();
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

  Buffer* PutBool(bool value) {
    auto put = Make<Client_BufferFromHostBuffer_Args>();
    put.client = client_;
    put.data = &value;
    put.type = kPred;
    put.memory = MemoryOf(devices_[0]);
    EXPECT_CALL_OK(kClient_BufferFromHostBuffer, &put);
    EXPECT_EQ(Await(put.done_with_host_buffer), "");
    Keep(put.buffer);
    return put.buffer;
  }

  std::string ReadError(Buffer* buffer, std::vector<float>* out) {
    auto read = Make<Buffer_ToHostBuffer_Args>();
    read.src = buffer;
    if (std::string error = Take(Call(kBuffer_ToHostBuffer, &read)); !error.empty()) return error;
    out->assign(read.dst_size / sizeof(float), -1);
    if (out->empty()) return "";  // no memory to name
    read.dst = out->data();
    if (std::string error = Take(Call(kBuffer_ToHostBuffer, &read)); !error.empty()) return error;
    return Await(read.event);
  }
  std::vector<float> Read(Buffer* buffer) {
    std::vector<float> out;
    EXPECT_EQ(ReadError(buffer, &out), "");
    return out;
  }

  Error* TryCompile(const std::string& code, const std::string& options,
                    LoadedExecutable** executable) {
    auto program = Make<ProgramBytes>();
    std::string bytes = code;
    program.code = bytes.data();
    program.code_size = bytes.size();
    program.format = "mlir";
    program.format_size = 4;
    auto compile = Make<Client_Compile_Args>();
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
  // For the first devices, as many as the program's mesh has.
  LoadedExecutable* Compile(const std::string& text) {
    const ir::Program program = ir::ParseProgram(text).value();
    const int64_t devices = program.mesh().num_devices();
    // CompileOptions {executable_build_options {num_partitions: N}}.
    const std::string options = {0x1a, 2, 0x28, static_cast<char>(devices)};
    LoadedExecutable* executable = nullptr;
    EXPECT_EQ(Take(TryCompile(ir::stablehlo::ExportProgram(program).value(), options, &executable)),
              "");
    return executable;
  }

  struct Ran {
    std::vector<std::vector<Buffer*>> outputs;  // by device
    std::string error;
  };
  // `args`: by device.
  Ran Run(LoadedExecutable* executable, const std::vector<std::vector<Buffer*>>& args,
          size_t num_outputs, const std::vector<int64_t>& keep = {}) {
    auto options = Make<ExecuteOptions>();
    options.non_donatable_input_indices = keep.data();
    options.num_non_donatable_input_indices = keep.size();
    std::vector<Buffer* const*> lists;
    for (const auto& list : args) lists.push_back(list.data());
    Ran out;
    out.outputs.assign(args.size(), std::vector<Buffer*>(num_outputs));
    std::vector<Buffer**> output_lists;
    for (auto& list : out.outputs) output_lists.push_back(list.data());
    std::vector<Event*> complete(args.size());
    auto run = Make<LoadedExecutable_Execute_Args>();
    run.executable = executable;
    run.options = &options;
    run.argument_lists = lists.data();
    run.num_devices = args.size();
    run.num_args = args.empty() ? 0 : args[0].size();
    run.output_lists = output_lists.data();
    run.device_complete_events = complete.data();
    out.error = Take(Call(kLoadedExecutable_Execute, &run));
    if (!out.error.empty()) return out;
    for (Event* event : complete) out.error = Await(event);
    for (const auto& list : out.outputs) {
      for (Buffer* buffer : list) Keep(buffer);
    }
    return out;
  }

  bool IsDeleted(Buffer* buffer) {
    auto deleted = Make<Buffer_IsDeleted_Args>();
    deleted.buffer = buffer;
    EXPECT_CALL_OK(kBuffer_IsDeleted, &deleted);
    return deleted.is_deleted;
  }

  // Until the test ends.
  void Keep(Buffer* buffer) {
    absl::MutexLock lock(&mu_);
    buffers_.push_back(buffer);
  }

  Client* client_ = nullptr;
  std::vector<Device*> devices_;
  absl::Mutex mu_;
  std::vector<Buffer*> buffers_;
  std::vector<LoadedExecutable*> executables_;
};

constexpr char kDouble[] = R"(
func main(%a: f32[2,2]) -> (f32[2,2]) {
  %b = add(%a, %a)
  return %b
}
)";
constexpr char kSharded[] = R"(
mesh (x=4)
func main(%a: f32[8] P('x'), %b: f32[]) -> (f32[8] P('x'), f32[]) {
  %c = broadcast_in_dim(%b) {shape=[8], broadcast_dimensions=[]}
  %d = multiply(%a, %c)
  %s = reduce_sum(%d) {dimensions=[0]}
  return %d, %s
}
)";

TEST_F(PjrtTest, NoFunctionIsNullAndThoseThatAreAbsentSaySo) {
  EXPECT_EQ(Table().version.major_version, 0);
  EXPECT_GE(Table().version.minor_version, 29);
  EXPECT_EQ(Table().struct_size, sizeof(Api));
#define TESSERA_PJRT(name) EXPECT_NE(Table().functions[k##name], nullptr);
#define TESSERA_PJRT_ABSENT(name)                                                          \
  {                                                                                        \
    auto args = Make<Header>();                                                            \
    int code = 0;                                                                          \
    EXPECT_THAT(Take(Call(k##name, &args), &code), HasSubstr("NOT_IMPLEMENTED")) << #name; \
    EXPECT_EQ(code, 12);                                                                   \
  }
#include "client/pjrt/functions.def"
#undef TESSERA_PJRT
#undef TESSERA_PJRT_ABSENT
}

TEST_F(PjrtTest, TheFirstWordsOfErrorsAndMemoriesAreTablesOrNull) {
  EXPECT_EQ(*reinterpret_cast<void**>(MemoryOf(devices_[0])), nullptr);
  auto lookup = Make<Client_LookupDevice_Args>();
  lookup.client = client_;
  lookup.id = 99;
  Error* const error = Call(kClient_LookupDevice, &lookup);
  ASSERT_NE(error, nullptr);
  struct Functions {
    size_t struct_size, instance_size;
    void* extension_start;
    void* functions[4];
  };
  const Functions* const functions = *reinterpret_cast<const Functions**>(error);
  ASSERT_EQ(functions->struct_size, sizeof(Functions));
  for (void* f : functions->functions) EXPECT_NE(f, nullptr);
  EXPECT_THAT(Take(error), HasSubstr("no device 99"));
}

TEST_F(PjrtTest, DevicesSayWhatAndWhereTheyAre) {
  auto attributes = Make<Plugin_Attributes_Args>();
  EXPECT_CALL_OK(kPlugin_Attributes, &attributes);
  for (size_t i = 0; i < attributes.num_attributes; ++i) {
    EXPECT_EQ(attributes.attributes[i].type, kInt64List);
    EXPECT_EQ(attributes.attributes[i].value_size, 3);
  }
  auto platform = Make<Client_PlatformName_Args>();
  platform.client = client_;
  EXPECT_CALL_OK(kClient_PlatformName, &platform);
  EXPECT_EQ(std::string(platform.platform_name, platform.platform_name_size), "tessera");
  for (size_t i = 0; i < devices_.size(); ++i) {
    auto description = Make<Device_GetDescription_Args>();
    description.device = devices_[i];
    EXPECT_CALL_OK(kDevice_GetDescription, &description);
    auto id = Make<DeviceDescription_Id_Args>();
    id.device_description = description.device_description;
    EXPECT_CALL_OK(kDeviceDescription_Id, &id);
    auto lookup = Make<Client_LookupDevice_Args>();
    lookup.client = client_;
    lookup.id = id.id;
    EXPECT_CALL_OK(kClient_LookupDevice, &lookup);
    EXPECT_EQ(lookup.device, devices_[i]);
    auto about = Make<DeviceDescription_Attributes_Args>();
    about.device_description = description.device_description;
    EXPECT_CALL_OK(kDeviceDescription_Attributes, &about);
    std::vector<std::string> names;
    for (size_t k = 0; k < about.num_attributes; ++k)
      names.emplace_back(about.attributes[k].name, about.attributes[k].name_size);
    EXPECT_THAT(names, ElementsAre("coords", "worker", "host", "executor", "kind"));
    auto kind = Make<Memory_Kind_Args>();
    kind.memory = MemoryOf(devices_[i]);
    EXPECT_CALL_OK(kMemory_Kind, &kind);
    EXPECT_EQ(std::string(kind.kind, kind.kind_size), "device");
  }
}

TEST_F(PjrtTest, BytesComeBackAsTheyWereGiven) {
  EXPECT_THAT(Read(Put({1, 2, 3, 4, 5, 6}, {2, 3}, devices_[1])), ElementsAre(1, 2, 3, 4, 5, 6));
  // Columns first.
  EXPECT_THAT(Read(Put({1, 2, 3, 4, 5, 6}, {2, 3}, devices_[1], {4, 8})),
              ElementsAre(1, 3, 5, 2, 4, 6));
  EXPECT_THAT(Read(Put({}, {0, 3}, devices_[0])), IsEmpty());
  EXPECT_THAT(Read(Put({7}, {}, devices_[3])), ElementsAre(7));
}

TEST_F(PjrtTest, AProgramRunsOnADevice) {
  LoadedExecutable* const twice = Compile(kDouble);
  const Ran first = Run(twice, {{Put({1, 2, 3, 4}, {2, 2}, devices_[0])}}, 1);
  ASSERT_EQ(first.error, "");
  EXPECT_THAT(Read(first.outputs[0][0]), ElementsAre(2, 4, 6, 8));
  const Ran second = Run(twice, {{first.outputs[0][0]}}, 1);
  ASSERT_EQ(second.error, "");
  EXPECT_THAT(Read(second.outputs[0][0]), ElementsAre(4, 8, 12, 16));
}

TEST_F(PjrtTest, ReadsInTheOrderThatIsAskedFor) {
  const Ran ran = Run(Compile(kDouble), {{Put({1, 2, 3, 4}, {2, 2}, devices_[0])}}, 1);
  const int64_t minor_to_major[] = {0, 1};
  auto layout = Make<MemoryLayout>();
  layout.type = kTiled;
  layout.tiled.minor_to_major = minor_to_major;
  layout.tiled.minor_to_major_size = 2;
  std::vector<float> out(4);
  auto read = Make<Buffer_ToHostBuffer_Args>();
  read.src = ran.outputs[0][0];
  read.host_layout = &layout;
  read.dst = out.data();
  read.dst_size = 16;
  ASSERT_EQ(Take(Call(kBuffer_ToHostBuffer, &read)), "");
  EXPECT_EQ(Await(read.event), "");
  EXPECT_THAT(out, ElementsAre(2, 6, 4, 8));
}

TEST_F(PjrtTest, ShardsComeOneByOneAndLeaveAsOneArray) {
  LoadedExecutable* const run = Compile(kSharded);
  std::vector<std::vector<Buffer*>> args;
  for (int k = 0; k < 4; ++k) {
    const auto n = static_cast<float>(2 * k);
    args.push_back({Put({n, n + 1}, {2}, devices_[k]), Put({3}, {}, devices_[k])});
  }
  for (int times = 0; times < 2; ++times) {  // the second time they are arrays
    const Ran ran = Run(run, args, 2);
    ASSERT_EQ(ran.error, "");
    for (int k = 0; k < 4; ++k) {
      const auto n = static_cast<float>(6 * k);
      EXPECT_THAT(Read(ran.outputs[k][0]), ElementsAre(n, n + 3));
      EXPECT_THAT(Read(ran.outputs[k][1]), ElementsAre(84));
    }
  }
  // A shard of many is an argument of a program of one device.
  LoadedExecutable* const one = Compile(R"(
func main(%a: f32[2]) -> (f32[2]) {
  %b = negate(%a)
  return %b
}
)");
  const Ran ran = Run(run, args, 2);
  const Ran negated = Run(one, {{ran.outputs[3][0]}}, 1);
  ASSERT_EQ(negated.error, "");
  EXPECT_THAT(Read(negated.outputs[0][0]), ElementsAre(-18, -21));
}

TEST_F(PjrtTest, ExecutablesTellTheirTypesAndShardings) {
  LoadedExecutable* const run = Compile(kSharded);
  auto get = Make<LoadedExecutable_GetExecutable_Args>();
  get.loaded_executable = run;
  EXPECT_CALL_OK(kLoadedExecutable_GetExecutable, &get);
  auto partitions = Make<Executable_NumPartitions_Args>();
  partitions.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_NumPartitions, &partitions);
  EXPECT_EQ(partitions.num_partitions, 4);
  auto dims = Make<Executable_OutputDimensions_Args>();
  dims.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_OutputDimensions, &dims);
  ASSERT_EQ(dims.num_outputs, 2);
  EXPECT_EQ(dims.dim_sizes[0], 1);
  EXPECT_EQ(dims.dims[0], 2);
  EXPECT_EQ(dims.dim_sizes[1], 0);
  auto types = Make<Executable_OutputElementTypes_Args>();
  types.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_OutputElementTypes, &types);
  EXPECT_THAT(std::vector<int>(types.output_types, types.output_types + types.num_output_types),
              ElementsAre(kF32, kF32));
  auto cost = Make<Executable_GetCostAnalysis_Args>();
  cost.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_GetCostAnalysis, &cost);
  ASSERT_EQ(cost.num_properties, 4);
  EXPECT_EQ(std::string(cost.properties[3].name, cost.properties[3].name_size), "explain");
  EXPECT_EQ(std::string(cost.properties[0].name, cost.properties[0].name_size), "flops");
  EXPECT_GE(cost.properties[0].float_value, 2);  // a product of two numbers on each device
  const auto* const shardings = static_cast<const ShardingsExtension*>(Table().extension_start);
  ASSERT_EQ(shardings->type, kShardingsExtension);
  auto out = Make<Shardings_Args>();
  out.executable = get.executable;
  EXPECT_EQ(Take(shardings->output_shardings(&out)), "");
  ASSERT_EQ(out.num_shardings, 2);
  // OpSharding {type: OTHER tile_assignment_dimensions: 4 tile_assignment_devices: [0, 1, 2, 3]}.
  EXPECT_EQ(std::string(out.shardings[0], out.sharding_sizes[0]),
            std::string({0x08, 3, 0x1a, 1, 4, 0x22, 4, 0, 1, 2, 3}));
  EXPECT_EQ(out.sharding_sizes[1], 0);  // replicated
  auto destroy = Make<Executable_Destroy_Args>();
  destroy.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_Destroy, &destroy);
}

TEST_F(PjrtTest, DonatedBuffersAreDeletedUnlessTheCallKeepsThem) {
  std::ifstream in(TESSERA_SOURCE_DIR "/tests/fuzz/stablehlo/donated.mlirbc", std::ios::binary);
  const std::string artifact{std::istreambuf_iterator<char>(in), {}};
  // CompileOptions {executable_build_options {num_partitions: 2 device_assignment {replica_count: 1
  // computation_count: 2 computation_devices {replica_device_ids: 3}
  // computation_devices {replica_device_ids: 1}}}}.
  const std::string options = {0x1a, 16,   0x28, 2, 0x4a, 12,   8, 1, 16,
                               2,    0x1a, 2,    8, 3,    0x1a, 2, 8, 1};
  LoadedExecutable* add = nullptr;
  ASSERT_EQ(Take(TryCompile(artifact, options, &add)), "");
  auto devices = Make<LoadedExecutable_AddressableDevices_Args>();
  devices.executable = add;
  EXPECT_CALL_OK(kLoadedExecutable_AddressableDevices, &devices);
  EXPECT_THAT(std::vector<Device*>(devices.addressable_devices, devices.addressable_devices + 2),
              ElementsAre(devices_[3], devices_[1]));
  std::vector<std::vector<Buffer*>> args;
  for (int k = 0; k < 2; ++k) {
    Device* const device = devices.addressable_devices[k];
    const auto n = static_cast<float>(2 * k);
    args.push_back({Put({n, n + 1}, {2}, device), Put({n, n}, {2}, device)});
  }
  for (const bool keep : {true, false}) {
    const Ran ran = Run(add, args, 1, keep ? std::vector<int64_t>{0} : std::vector<int64_t>{});
    ASSERT_EQ(ran.error, "");
    EXPECT_THAT(Read(ran.outputs[0][0]), ElementsAre(0, 1));
    EXPECT_THAT(Read(ran.outputs[1][0]), ElementsAre(4, 5));
    for (int k = 0; k < 2; ++k) {
      EXPECT_EQ(IsDeleted(args[k][0]), !keep);
      EXPECT_FALSE(IsDeleted(args[k][1]));
    }
  }
  EXPECT_THAT(Run(add, args, 1).error, HasSubstr("argument 0"));
}

TEST_F(PjrtTest, AProgramWithoutResultsHasOneSharding) {
  LoadedExecutable* const none = Compile("func main(%a: f32[2]) -> () {\n  return\n}\n");
  ASSERT_NE(none, nullptr);
  EXPECT_EQ(Run(none, {{Put({1, 2}, {2}, devices_[0])}}, 0).error, "");
  auto get = Make<LoadedExecutable_GetExecutable_Args>();
  get.loaded_executable = none;
  EXPECT_CALL_OK(kLoadedExecutable_GetExecutable, &get);
  auto out = Make<Shardings_Args>();
  out.executable = get.executable;
  const auto* const shardings = static_cast<const ShardingsExtension*>(Table().extension_start);
  EXPECT_EQ(Take(shardings->output_shardings(&out)), "");
  EXPECT_EQ(out.num_shardings, 1);
  auto destroy = Make<Executable_Destroy_Args>();
  destroy.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_Destroy, &destroy);
}

// What the host was called with, and which callbacks are held; the plugin's own thread writes it.
struct Calls {
  absl::Mutex mu;
  std::vector<std::string> made;
  std::vector<std::string> held;
};
Calls& AllCalls() {
  static auto* const calls = new Calls;
  return *calls;
}

void SetCallbacks(HostCallback callback) {
  const auto* extension = static_cast<const Extension*>(Table().extension_start);
  while (extension->type != kHostCallbackExtension) extension = extension->next;
  static_cast<const HostCallbackExtension*>(extension)->set_callbacks(
      callback, [](const char* id, bool held) {
        absl::MutexLock lock(&AllCalls().mu);
        AllCalls().held.push_back(absl::StrCat(id, held ? " held" : " released"));
      });
}
std::string Artifact(const std::string& name) {
  std::ifstream in(absl::StrCat(TESSERA_SOURCE_DIR "/tests/fuzz/stablehlo/", name, ".mlirbc"),
                   std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
const float* Floats(const HostValue& value) {
  EXPECT_EQ(value.type, kF32);
  return static_cast<const float*>(value.data);
}

TEST_F(PjrtTest, ProgramsCallTheHostAndTokensAreNoArrays) {
  SetCallbacks([](const char* id, size_t num_values, const HostValue* values, size_t num_results,
                  const HostValue*, char*, size_t) {
    std::string text = absl::StrCat(id, ":");
    EXPECT_EQ(num_results, 0);
    EXPECT_EQ(num_values, 2);
    absl::StrAppend(&text, " ", *static_cast<const int32_t*>(values[0].data));
    EXPECT_EQ(values[1].num_dims, 1);
    for (int64_t i = 0; i < values[1].dims[0]; ++i)
      absl::StrAppend(&text, " ", Floats(values[1])[i]);
    absl::MutexLock lock(&AllCalls().mu);
    AllCalls().made.push_back(text);
    return 0;
  });
  // Three turns of a loop, each of which calls with its number and x, and adds one to x.
  LoadedExecutable* run = nullptr;
  ASSERT_EQ(Take(TryCompile(Artifact("host_callback"), "", &run)), "");
  Buffer* token = Put({0}, {}, devices_[0]);  // whatever it is
  for (int times = 0; times < 2; ++times) {
    const Ran ran = Run(run, {{token, Put({1, 2}, {2}, devices_[0])}}, 2);
    ASSERT_EQ(ran.error, "");
    token = ran.outputs[0][0];
    auto type = Make<Buffer_ElementType_Args>();
    type.buffer = token;
    EXPECT_CALL_OK(kBuffer_ElementType, &type);
    EXPECT_EQ(type.type, 23);
    EXPECT_THAT(Read(ran.outputs[0][1]), ElementsAre(4, 5));
    absl::MutexLock lock(&AllCalls().mu);  // The run has ended, so the calls have been made.
    EXPECT_THAT(AllCalls().made, ElementsAre("0--0: 0 1 2", "0--0: 1 2 3", "0--0: 2 3 4"));
    AllCalls().made.clear();
  }
  auto destroy = Make<LoadedExecutable_Destroy_Args>();
  destroy.executable = run;
  EXPECT_CALL_OK(kLoadedExecutable_Destroy, &destroy);
  executables_.clear();
  absl::MutexLock lock(&AllCalls().mu);
  EXPECT_THAT(AllCalls().held, ElementsAre("0--0 held", "0--0 released"));
  AllCalls().held.clear();
}

TEST_F(PjrtTest, ProgramsGoOnWithWhatTheHostReturns) {
  // f(f(x)) and x, where f(x) is twice what a call of x + 1 returns.
  LoadedExecutable* run = nullptr;
  ASSERT_EQ(Take(TryCompile(Artifact("host_callback_asks"), "", &run)), "");
  SetCallbacks([](const char*, size_t num_values, const HostValue* values, size_t num_results,
                  const HostValue* results, char*, size_t) {
    EXPECT_EQ(num_values, 1);
    EXPECT_EQ(num_results, 1);
    EXPECT_EQ(results[0].dims[0], 2);
    for (int i = 0; i < 2; ++i) static_cast<float*>(results[0].data)[i] = 10 * Floats(values[0])[i];
    return 0;
  });
  const Ran ran = Run(run, {{Put({0, 1}, {2}, devices_[0])}}, 2);
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(Read(ran.outputs[0][0]), ElementsAre(420, 820));
  EXPECT_THAT(Read(ran.outputs[0][1]), ElementsAre(0, 1));
  SetCallbacks([](const char*, size_t, const HostValue*, size_t, const HostValue*, char* error,
                  size_t size) {
    std::fill_n(error, size, 'x');  // also without its end
    return 1;
  });
  EXPECT_THAT(Run(run, {{Put({0, 1}, {2}, devices_[0])}}, 2).error, HasSubstr("xxx"));
  SetCallbacks(nullptr);
  EXPECT_THAT(Run(run, {{Put({0, 1}, {2}, devices_[0])}}, 2).error,
              HasSubstr("nothing any more that a program can call"));
}

TEST_F(PjrtTest, ACallInABranchMayOnlyFail) {
  LoadedExecutable* run = nullptr;
  ASSERT_EQ(Take(TryCompile(Artifact("host_callback_late"), "", &run)), "");
  const auto run_with = [&](bool called) {
    return Run(run, {{Put({3, 4}, {2}, devices_[0]), PutBool(called)}}, 1);
  };
  SetCallbacks([](const char*, size_t, const HostValue* values, size_t num_results,
                  const HostValue*, char* error, size_t size) {
    EXPECT_EQ(num_results, 1);
    std::snprintf(error, size, "no good: %g", Floats(values[0])[1]);
    return 1;
  });
  const Ran ran = run_with(false);
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(Read(ran.outputs[0][0]), ElementsAre(3, 4));
  const Ran failed = run_with(true);
  EXPECT_EQ(failed.error, "no good: 4");
  // What it would have made has failed, and what takes that.
  std::vector<float> nothing;
  EXPECT_EQ(ReadError(failed.outputs[0][0], &nothing), "no good: 4");
  const Ran next = Run(run, {{failed.outputs[0][0], PutBool(false)}}, 1);
  EXPECT_EQ(next.error, "no good: 4");
  EXPECT_EQ(ReadError(next.outputs[0][0], &nothing), "no good: 4");
  auto copy = Make<Buffer_CopyToMemory_Args>();
  copy.buffer = failed.outputs[0][0];
  copy.dst_memory = MemoryOf(devices_[1]);
  ASSERT_EQ(Take(Call(kBuffer_CopyToMemory, &copy)), "");
  Keep(copy.dst_buffer);
  EXPECT_EQ(ReadError(copy.dst_buffer, &nothing), "no good: 4");
  SetCallbacks(
      [](const char*, size_t, const HostValue*, size_t, const HostValue* results, char*, size_t) {
        std::fill_n(static_cast<float*>(results[0].data), 2, std::nanf(""));
        return 0;
      });
  const Ran guessed = run_with(true);  // it went on with that
  ASSERT_EQ(guessed.error, "");
  EXPECT_THAT(Read(guessed.outputs[0][0]), Each(IsNan()));
  SetCallbacks(
      [](const char*, size_t, const HostValue*, size_t, const HostValue* results, char*, size_t) {
        std::fill_n(static_cast<float*>(results[0].data), 2, 0.f);
        return 0;
      });
  EXPECT_THAT(run_with(true).error, HasSubstr("call it outside of them"));
  SetCallbacks(nullptr);
}

TEST_F(PjrtTest, ASerializedExecutableIsLoadedAgain) {
  auto get = Make<LoadedExecutable_GetExecutable_Args>();
  get.loaded_executable = Compile(kDouble);
  EXPECT_CALL_OK(kLoadedExecutable_GetExecutable, &get);
  auto serialize = Make<Executable_Serialize_Args>();
  serialize.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_Serialize, &serialize);
  std::string bytes(serialize.serialized_bytes, serialize.serialized_bytes_size);
  serialize.serialized_executable_deleter(serialize.serialized_executable);
  auto destroy = Make<Executable_Destroy_Args>();
  destroy.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_Destroy, &destroy);

  auto load = Make<Executable_DeserializeAndLoad_Args>();
  load.client = client_;
  load.serialized_executable = bytes.data();
  load.serialized_executable_size = bytes.size();
  ASSERT_EQ(Take(Call(kExecutable_DeserializeAndLoad, &load)), "");
  executables_.push_back(load.loaded_executable);
  const Ran ran = Run(load.loaded_executable, {{Put({1, 2, 3, 4}, {2, 2}, devices_[0])}}, 1);
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(Read(ran.outputs[0][0]), ElementsAre(2, 4, 6, 8));

  bytes[2] ^= 1;  // of another build
  EXPECT_THAT(Take(Call(kExecutable_DeserializeAndLoad, &load)), HasSubstr("compile it anew"));
}

TEST_F(PjrtTest, BuffersMoveFromDeviceToDevice) {
  const Ran ran = Run(Compile(kDouble), {{Put({1, 2, 3, 4}, {2, 2}, devices_[0])}}, 1);
  for (Buffer* from : {ran.outputs[0][0], Put({2, 4, 6, 8}, {2, 2}, devices_[0])}) {
    auto copy = Make<Buffer_CopyToMemory_Args>();
    copy.buffer = from;
    copy.dst_memory = MemoryOf(devices_[2]);
    ASSERT_EQ(Take(Call(kBuffer_CopyToMemory, &copy)), "");
    Keep(copy.dst_buffer);
    auto on = Make<Buffer_Device_Args>();
    on.buffer = copy.dst_buffer;
    EXPECT_CALL_OK(kBuffer_Device, &on);
    EXPECT_EQ(on.device, devices_[2]);
    EXPECT_THAT(Read(copy.dst_buffer), ElementsAre(2, 4, 6, 8));
  }
}

TEST_F(PjrtTest, WhatIsDeletedSaysSo) {
  LoadedExecutable* const twice = Compile(kDouble);
  Buffer* const buffer = Put({1, 2, 3, 4}, {2, 2}, devices_[0]);
  auto deletion = Make<Buffer_Delete_Args>();
  deletion.buffer = buffer;
  EXPECT_CALL_OK(kBuffer_Delete, &deletion);
  EXPECT_TRUE(IsDeleted(buffer));
  std::vector<float> out;
  EXPECT_THAT(ReadError(buffer, &out), HasSubstr("ARRAY_DELETED"));
  EXPECT_THAT(Run(twice, {{buffer}}, 1).error, HasSubstr("argument 0"));
}

TEST_F(PjrtTest, WhatIsWrongIsAnError) {
  LoadedExecutable* const twice = Compile(kDouble);
  EXPECT_THAT(Run(twice, {{Put({1, 2, 3}, {3}, devices_[0])}}, 1).error,
              HasSubstr("takes f32[2,2] on each device, and was given f32[3]"));
  EXPECT_THAT(Run(twice, {{}}, 1).error, HasSubstr("takes 1 arguments on 1 devices"));
  LoadedExecutable* none = nullptr;
  int code = 0;
  EXPECT_THAT(Take(TryCompile("no artifact", "", &none), &code), HasSubstr("MALFORMED_PROGRAM"));
  EXPECT_EQ(code, 3);
  const std::string artifact =
      ir::stablehlo::ExportProgram(ir::ParseProgram(kDouble).value()).value();
  EXPECT_THAT(Take(TryCompile(artifact, "\xff\xff", &none)), HasSubstr("do not decode"));
  // {env_option_overrides {key: "hue"}}, {env_option_overrides {key: "xla_x"}}
  EXPECT_THAT(Take(TryCompile(artifact, std::string("\x3a\x05\x0a\x03hue"), &none)),
              HasSubstr("No such compile option: 'hue'"));
  EXPECT_EQ(Take(TryCompile(artifact, std::string("\x3a\x07\x0a\x05xla_x"), &none)), "");
  // {executable_build_options {num_replicas: 2}}
  EXPECT_THAT(Take(TryCompile(artifact, {0x1a, 2, 0x20, 2}, &none)), HasSubstr("several replicas"));
  // {executable_build_options {num_partitions: 9}}
  EXPECT_THAT(Take(TryCompile(artifact, {0x1a, 2, 0x28, 9}, &none)),
              HasSubstr("NOT_ENOUGH_DEVICES"));
  auto put = Make<Client_BufferFromHostBuffer_Args>();
  put.client = client_;
  put.type = 23;  // a token
  put.memory = MemoryOf(devices_[0]);
  EXPECT_THAT(Take(Call(kClient_BufferFromHostBuffer, &put)), HasSubstr("PJRT's type 23"));
  const NamedValue options[] = {Option("colour", 4)};
  auto create = Make<Client_Create_Args>();
  create.create_options = options;
  create.num_options = 1;
  EXPECT_THAT(Take(Call(kClient_Create, &create)), HasSubstr("no option 'colour'"));
}

TEST_F(PjrtTest, EventsCallBackOnceWhoeverSettlesThem) {
  auto create = Make<Event_Create_Args>();
  EXPECT_CALL_OK(kEvent_Create, &create);
  int calls = 0;
  auto ready = Make<Event_OnReady_Args>();
  ready.event = create.event;
  ready.user_arg = &calls;
  ready.callback = [](Error* error, void* p) {
    EXPECT_EQ(Take(error), "it broke");
    ++*static_cast<int*>(p);
  };
  EXPECT_CALL_OK(kEvent_OnReady, &ready);
  EXPECT_EQ(calls, 0);
  auto set = Make<Event_Set_Args>();
  set.event = create.event;
  set.error_code = 13;
  set.error_message = "it broke";
  set.error_message_size = 8;
  EXPECT_CALL_OK(kEvent_Set, &set);
  EXPECT_CALL_OK(kEvent_Set, &set);
  EXPECT_EQ(calls, 1);
  EXPECT_CALL_OK(kEvent_OnReady, &ready);  // at once
  EXPECT_EQ(calls, 2);
  auto await = Make<Event_Await_Args>();
  await.event = create.event;
  EXPECT_EQ(Take(Call(kEvent_Await, &await)), "it broke");
  auto destroy = Make<Event_Destroy_Args>();
  destroy.event = create.event;
  EXPECT_CALL_OK(kEvent_Destroy, &destroy);
}

TEST_F(PjrtTest, ManyThreadsRunAtOnce) {
  LoadedExecutable* const twice = Compile(kDouble);
  std::vector<Buffer*> inputs;
  for (int i = 0; i < 4; ++i) inputs.push_back(Put({1, 2, 3, 4}, {2, 2}, devices_[0]));
  std::vector<std::thread> threads;
  for (Buffer* input : inputs) {
    threads.emplace_back([&, input] {
      for (int i = 0; i < 20; ++i) {
        const Ran ran = Run(twice, {{input}}, 1);
        EXPECT_EQ(ran.error, "");
        EXPECT_THAT(Read(ran.outputs[0][0]), ElementsAre(2, 4, 6, 8));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tessera::pjrt
