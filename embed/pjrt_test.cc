// Proves that the plugin does what a framework expects of each function of PJRT's table. The test
// loads the plugin from its file and calls it only through the table.
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "embed/testing/pjrt_framework.h"
#include "gmock/gmock.h"
#include "ir/stablehlo/export.h"
#include "ir/text.h"

namespace tessera::pjrt {

namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST_F(PjrtTest, NoFunctionIsNullAndAbsentFunctionsReturnNotImplemented) {
  EXPECT_EQ(Table().version.major_version, 0);
  EXPECT_GE(Table().version.minor_version, 29);
  EXPECT_EQ(Table().struct_size, sizeof(Api));
#define TESSERA_PJRT(name) EXPECT_NE(Table().functions[k##name], nullptr);
#define TESSERA_PJRT_ABSENT(name)                                                                 \
  {                                                                                               \
    auto args = MakeArgs<Header>();                                                               \
    int code = 0;                                                                                 \
    EXPECT_THAT(TakeMessage(Call(k##name, &args), &code), HasSubstr("NOT_IMPLEMENTED")) << #name; \
    EXPECT_EQ(code, 12);                                                                          \
  }
#include "client/pjrt/functions.def"
#undef TESSERA_PJRT
#undef TESSERA_PJRT_ABSENT
}

TEST_F(PjrtTest, ErrorsAndMemoriesBeginWithAFunctionTableOrNull) {
  EXPECT_EQ(*reinterpret_cast<void**>(MemoryOf(devices_[0])), nullptr);
  auto lookup = MakeArgs<Client_LookupDevice_Args>();
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
  EXPECT_THAT(TakeMessage(error), HasSubstr("no device 99"));
}

TEST_F(PjrtTest, DevicesDescribeThemselves) {
  auto attributes = MakeArgs<Plugin_Attributes_Args>();
  EXPECT_CALL_OK(kPlugin_Attributes, &attributes);
  for (size_t i = 0; i < attributes.num_attributes; ++i) {
    EXPECT_EQ(attributes.attributes[i].type, kInt64List);
    EXPECT_EQ(attributes.attributes[i].value_size, 3);
  }
  auto platform = MakeArgs<Client_PlatformName_Args>();
  platform.client = client_;
  EXPECT_CALL_OK(kClient_PlatformName, &platform);
  EXPECT_EQ(std::string(platform.platform_name, platform.platform_name_size), "tessera");
  for (size_t i = 0; i < devices_.size(); ++i) {
    auto description = MakeArgs<Device_GetDescription_Args>();
    description.device = devices_[i];
    EXPECT_CALL_OK(kDevice_GetDescription, &description);
    auto id = MakeArgs<DeviceDescription_Id_Args>();
    id.device_description = description.device_description;
    EXPECT_CALL_OK(kDeviceDescription_Id, &id);
    auto lookup = MakeArgs<Client_LookupDevice_Args>();
    lookup.client = client_;
    lookup.id = id.id;
    EXPECT_CALL_OK(kClient_LookupDevice, &lookup);
    EXPECT_EQ(lookup.device, devices_[i]);
    auto about = MakeArgs<DeviceDescription_Attributes_Args>();
    about.device_description = description.device_description;
    EXPECT_CALL_OK(kDeviceDescription_Attributes, &about);
    std::vector<std::string> names;
    for (size_t k = 0; k < about.num_attributes; ++k)
      names.emplace_back(about.attributes[k].name, about.attributes[k].name_size);
    EXPECT_THAT(names, ElementsAre("coords", "worker", "host", "executor", "kind"));
    auto kind = MakeArgs<Memory_Kind_Args>();
    kind.memory = MemoryOf(devices_[i]);
    EXPECT_CALL_OK(kMemory_Kind, &kind);
    EXPECT_EQ(std::string(kind.kind, kind.kind_size), "device");
  }
}

#define ASK(function, field, object) \
  CallWithObject<function##_Args>(k##function, &function##_Args::field, object)

TEST_F(PjrtTest, GettersDescribeTheClient) {
  EXPECT_EQ(ASK(Client_ProcessIndex, client, client_).process_index, 0);
  const auto version = ASK(Client_PlatformVersion, client, client_);
  EXPECT_THAT(std::string(version.platform_version, version.platform_version_size),
              StartsWith("tessera "));
  const auto devices = ASK(Client_AddressableDevices, client, client_);
  EXPECT_THAT(std::vector<Device*>(devices.addressable_devices,
                                   devices.addressable_devices + devices.num_addressable_devices),
              ElementsAreArray(devices_));
  const auto memories = ASK(Client_AddressableMemories, client, client_);
  ASSERT_EQ(memories.num_addressable_memories, devices_.size());
  auto lookup = MakeArgs<Client_LookupAddressableDevice_Args>();
  lookup.client = client_;
  lookup.local_hardware_id = 2;
  EXPECT_CALL_OK(kClient_LookupAddressableDevice, &lookup);
  EXPECT_EQ(lookup.addressable_device, devices_[2]);
  for (const int none : {-1, 4}) {
    lookup.local_hardware_id = none;
    EXPECT_THAT(TakeMessage(Call(kClient_LookupAddressableDevice, &lookup)),
                HasSubstr("no device"));
  }
  std::vector<int> assigned(4, -1);
  auto assignment = MakeArgs<Client_DefaultDeviceAssignment_Args>();
  assignment.client = client_;
  assignment.num_replicas = 1;
  assignment.num_partitions = 3;
  assignment.default_assignment = assigned.data();
  assignment.default_assignment_size = 4;
  EXPECT_CALL_OK(kClient_DefaultDeviceAssignment, &assignment);
  EXPECT_EQ(assigned[3], -1);
  for (const int none : {5, -1}) {
    assignment.num_partitions = none;
    EXPECT_THAT(TakeMessage(Call(kClient_DefaultDeviceAssignment, &assignment)),
                HasSubstr("devices"));
  }
  Topology* const topology = ASK(Client_TopologyDescription, client, client_).topology;
  const auto name = ASK(TopologyDescription_PlatformName, topology, topology);
  EXPECT_EQ(std::string(name.platform_name, name.platform_name_size), "tessera");
  EXPECT_GT(ASK(TopologyDescription_PlatformVersion, topology, topology).platform_version_size, 0);
  EXPECT_EQ(ASK(TopologyDescription_GetDeviceDescriptions, topology, topology).num_descriptions, 4);
  EXPECT_EQ(ASK(TopologyDescription_Attributes, topology, topology).num_attributes, 0);
}

TEST_F(PjrtTest, GettersDescribeDevicesAndMemories) {
  for (int i = 0; i < 4; ++i) {
    Device* const device = devices_[i];
    EXPECT_TRUE(ASK(Device_IsAddressable, device, device).is_addressable);
    EXPECT_EQ(ASK(Device_LocalHardwareId, device, device).local_hardware_id, i);
    const auto attributes = ASK(Device_GetAttributes, device, device);
    EXPECT_EQ(attributes.num_attributes, 5);
    attributes.attributes_deleter(attributes.device_attributes);
    DeviceDescription* const about = ASK(Device_GetDescription, device, device).device_description;
    EXPECT_EQ(ASK(DeviceDescription_ProcessIndex, device_description, about).process_index, 0);
    const auto kind = ASK(DeviceDescription_Kind, device_description, about);
    EXPECT_EQ(std::string(kind.device_kind, kind.device_kind_size), "cpu");
    const auto text = ASK(DeviceDescription_ToString, device_description, about);
    EXPECT_EQ(std::string(text.to_string, text.to_string_size),
              absl::StrCat("TesseraDevice(id=",
                           ASK(DeviceDescription_Id, device_description, about).id, ")"));
    const auto more = ASK(DeviceDescription_DebugString, device_description, about);
    EXPECT_THAT(std::string(more.debug_string, more.debug_string_size),
                HasSubstr("worker=embedded"));
    const auto memories = ASK(Device_AddressableMemories, device, device);
    ASSERT_EQ(memories.num_memories, 1);
    Memory* const memory = memories.memories[0];
    EXPECT_EQ(memory, MemoryOf(device));
    EXPECT_EQ(ASK(Memory_Id, memory, memory).id, i);
    EXPECT_EQ(ASK(Memory_Kind_Id, memory, memory).kind_id, 0);
    EXPECT_GT(ASK(Memory_ToString, memory, memory).to_string_size, 0);
    EXPECT_GT(ASK(Memory_DebugString, memory, memory).debug_string_size, 0);
    const auto by = ASK(Memory_AddressableByDevices, memory, memory);
    ASSERT_EQ(by.num_devices, 1);
    EXPECT_EQ(by.devices[0], device);
  }
}

TEST_F(PjrtTest, GettersDescribeBuffersAndExecutables) {
  Buffer* const buffer = Put({1, 2, 3, 4, 5, 6}, {2, 3}, devices_[1]);
  const auto dims = ASK(Buffer_Dimensions, buffer, buffer);
  EXPECT_THAT(std::vector<int64_t>(dims.dims, dims.dims + dims.num_dims), ElementsAre(2, 3));
  const auto unpadded = ASK(Buffer_UnpaddedDimensions, buffer, buffer);
  EXPECT_THAT(
      std::vector<int64_t>(unpadded.unpadded_dims, unpadded.unpadded_dims + unpadded.num_dims),
      ElementsAre(2, 3));
  EXPECT_EQ(ASK(Buffer_DynamicDimensionIndices, buffer, buffer).num_dynamic_dims, 0);
  EXPECT_EQ(ASK(Buffer_OnDeviceSizeInBytes, buffer, buffer).on_device_size_in_bytes, 24);
  EXPECT_EQ(ASK(Buffer_Memory, buffer, buffer).memory, MemoryOf(devices_[1]));
  EXPECT_FALSE(ASK(Buffer_IsOnCpu, buffer, buffer).is_on_cpu);
  EXPECT_EQ(ASK(Buffer_ElementType, buffer, buffer).type, kF32);
  EXPECT_EQ(Await(ASK(Buffer_ReadyEvent, buffer, buffer).event), "");

  LoadedExecutable* const twice = Compile(kTwiceProgram);
  Executable* const executable =
      ASK(LoadedExecutable_GetExecutable, loaded_executable, twice).executable;
  const auto name = ASK(Executable_Name, executable, executable);
  EXPECT_EQ(std::string(name.executable_name, name.executable_name_size), "main");
  EXPECT_EQ(ASK(Executable_NumReplicas, executable, executable).num_replicas, 1);
  EXPECT_EQ(ASK(Executable_NumOutputs, executable, executable).num_outputs, 1);
  EXPECT_EQ(ASK(Executable_SizeOfGeneratedCodeInBytes, executable, executable).size_in_bytes, 0);
  const auto kinds = ASK(Executable_OutputMemoryKinds, executable, executable);
  ASSERT_EQ(kinds.num_outputs, 1);
  EXPECT_EQ(std::string(kinds.memory_kinds[0], kinds.memory_kind_sizes[0]), "device");
  EXPECT_EQ(ASK(Executable_Fingerprint, executable, executable).executable_fingerprint_size, 64);
  const auto stats = ASK(Executable_GetCompiledMemoryStats, executable, executable);
  EXPECT_EQ(stats.argument_size_in_bytes, 16);
  EXPECT_EQ(stats.output_size_in_bytes, 16);
  EXPECT_GE(stats.peak_memory_in_bytes, 32);
  ASK(Executable_Destroy, executable, executable);
  const auto ids = ASK(LoadedExecutable_AddressableDeviceLogicalIds, executable, twice);
  ASSERT_EQ(ids.num_addressable_device_logical_ids, 1);
  EXPECT_EQ(ids.addressable_device_logical_ids[0].partition, 0);
  const auto assignment = ASK(LoadedExecutable_GetDeviceAssignment, executable, twice);
  // The bytes encode this message:
  //   DeviceAssignment {replica_count: 1 computation_count: 1
  //                     computation_devices {replica_device_ids: ID}}
  EXPECT_EQ(std::string(assignment.serialized_bytes, 4), std::string({0x08, 1, 0x10, 1}));
  assignment.serialized_device_assignment_deleter(assignment.serialized_device_assignment);
  EXPECT_FALSE(ASK(LoadedExecutable_IsDeleted, executable, twice).is_deleted);
  ASK(LoadedExecutable_Delete, executable, twice);
  EXPECT_TRUE(ASK(LoadedExecutable_IsDeleted, executable, twice).is_deleted);
  EXPECT_THAT(Run(twice, {{Put({1, 2, 3, 4}, {2, 2}, devices_[0])}}, 1).error,
              HasSubstr("the executable was deleted"));
}

TEST_F(PjrtTest, LayoutsAreRowMajor) {
  const auto* extension = static_cast<const Extension*>(Table().extension_start);
  while (extension->type != kLayoutsExtension) extension = extension->next;
  const auto& layouts = *static_cast<const LayoutsExtension*>(extension);
  const auto text_of = [&](Layout* layout) {
    auto serialize = MakeArgs<Layout_Serialize_Args>();
    serialize.layout = layout;
    EXPECT_EQ(TakeMessage(layouts.serialize(&serialize)), "");
    std::string text(serialize.serialized_bytes, serialize.serialized_bytes_size);
    serialize.serialized_layout_deleter(serialize.serialized_layout);
    return text;
  };
  auto client = MakeArgs<Client_GetDefaultLayout_Args>();
  client.client = client_;
  client.num_dims = 3;
  EXPECT_EQ(TakeMessage(layouts.client_default(&client)), "");
  EXPECT_EQ(text_of(client.layout), "{2,1,0}");
  auto destroy = MakeArgs<Layout_Destroy_Args>();
  destroy.layout = client.layout;
  EXPECT_EQ(TakeMessage(layouts.destroy(&destroy)), "");
  auto topology = MakeArgs<Topology_GetDefaultLayout_Args>();
  EXPECT_EQ(TakeMessage(layouts.topology_default(&topology)), "");
  EXPECT_EQ(text_of(topology.layout), "{}");
  auto buffer = MakeArgs<Buffer_Layout_Args>();
  buffer.buffer = Put({1, 2}, {2, 1}, devices_[0]);
  EXPECT_EQ(TakeMessage(layouts.buffer_layout(&buffer)), "");
  EXPECT_EQ(text_of(buffer.layout), "{1,0}");
  auto get = MakeArgs<LoadedExecutable_GetExecutable_Args>();
  get.loaded_executable = Compile(kShardedProgram);
  EXPECT_CALL_OK(kLoadedExecutable_GetExecutable, &get);
  auto of = MakeArgs<Executable_Layouts_Args>();
  of.executable = get.executable;
  for (const auto function : {layouts.parameter_layouts, layouts.output_layouts}) {
    EXPECT_EQ(TakeMessage(function(&of)), "");
    ASSERT_EQ(of.num_layouts, 2);
    EXPECT_EQ(text_of(of.layouts[0]), "{0}");
    EXPECT_EQ(text_of(of.layouts[1]), "{}");
  }
  auto end = MakeArgs<Executable_Destroy_Args>();
  end.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_Destroy, &end);
}

TEST_F(PjrtTest, BuffersReturnTheBytesThatWerePut) {
  EXPECT_THAT(Read(Put({1, 2, 3, 4, 5, 6}, {2, 3}, devices_[1])), ElementsAre(1, 2, 3, 4, 5, 6));
  // The values are given column by column.
  EXPECT_THAT(Read(Put({1, 2, 3, 4, 5, 6}, {2, 3}, devices_[1], {4, 8})),
              ElementsAre(1, 3, 5, 2, 4, 6));
  EXPECT_THAT(Read(Put({}, {0, 3}, devices_[0])), IsEmpty());
  EXPECT_THAT(Read(Put({7}, {}, devices_[3])), ElementsAre(7));
}

TEST_F(PjrtTest, AProgramRunsOnADevice) {
  LoadedExecutable* const twice = Compile(kTwiceProgram);
  const RunResult first = Run(twice, {{Put({1, 2, 3, 4}, {2, 2}, devices_[0])}}, 1);
  ASSERT_EQ(first.error, "");
  EXPECT_THAT(Read(first.outputs[0][0]), ElementsAre(2, 4, 6, 8));
  const RunResult second = Run(twice, {{first.outputs[0][0]}}, 1);
  ASSERT_EQ(second.error, "");
  EXPECT_THAT(Read(second.outputs[0][0]), ElementsAre(4, 8, 12, 16));
}

TEST_F(PjrtTest, ReadsInTheRequestedOrderOfDims) {
  const RunResult ran = Run(Compile(kTwiceProgram), {{Put({1, 2, 3, 4}, {2, 2}, devices_[0])}}, 1);
  const int64_t minor_to_major[] = {0, 1};
  auto layout = MakeArgs<MemoryLayout>();
  layout.type = kTiled;
  layout.tiled.minor_to_major = minor_to_major;
  layout.tiled.minor_to_major_size = 2;
  std::vector<float> out(4);
  auto read = MakeArgs<Buffer_ToHostBuffer_Args>();
  read.src = ran.outputs[0][0];
  read.host_layout = &layout;
  read.dst = out.data();
  read.dst_size = 16;
  ASSERT_EQ(TakeMessage(Call(kBuffer_ToHostBuffer, &read)), "");
  EXPECT_EQ(Await(read.event), "");
  EXPECT_THAT(out, ElementsAre(2, 6, 4, 8));
}

TEST_F(PjrtTest, ShardsArePutOneByOneAndUsedAsOneArray) {
  LoadedExecutable* const run = Compile(kShardedProgram);
  std::vector<std::vector<Buffer*>> args;
  for (int k = 0; k < 4; ++k) {
    const auto n = static_cast<float>(2 * k);
    args.push_back({Put({n, n + 1}, {2}, devices_[k]), Put({3}, {}, devices_[k])});
  }
  for (int times = 0; times < 2; ++times) {  // The second time, the shards are arrays already.
    const RunResult ran = Run(run, args, 2);
    ASSERT_EQ(ran.error, "");
    for (int k = 0; k < 4; ++k) {
      const auto n = static_cast<float>(6 * k);
      EXPECT_THAT(Read(ran.outputs[k][0]), ElementsAre(n, n + 3));
      EXPECT_THAT(Read(ran.outputs[k][1]), ElementsAre(84));
    }
  }
  // One shard of an array can be the argument of a program on one device.
  LoadedExecutable* const one = Compile(R"(
func main(%a: f32[2]) -> (f32[2]) {
  %b = negate(%a)
  return %b
}
)");
  const RunResult ran = Run(run, args, 2);
  const RunResult negated = Run(one, {{ran.outputs[3][0]}}, 1);
  ASSERT_EQ(negated.error, "");
  EXPECT_THAT(Read(negated.outputs[0][0]), ElementsAre(-18, -21));
}

TEST_F(PjrtTest, ExecutablesReportTheirTypesAndShardings) {
  LoadedExecutable* const run = Compile(kShardedProgram);
  auto get = MakeArgs<LoadedExecutable_GetExecutable_Args>();
  get.loaded_executable = run;
  EXPECT_CALL_OK(kLoadedExecutable_GetExecutable, &get);
  auto partitions = MakeArgs<Executable_NumPartitions_Args>();
  partitions.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_NumPartitions, &partitions);
  EXPECT_EQ(partitions.num_partitions, 4);
  auto dims = MakeArgs<Executable_OutputDimensions_Args>();
  dims.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_OutputDimensions, &dims);
  ASSERT_EQ(dims.num_outputs, 2);
  EXPECT_EQ(dims.dim_sizes[0], 1);
  EXPECT_EQ(dims.dims[0], 2);
  EXPECT_EQ(dims.dim_sizes[1], 0);
  auto types = MakeArgs<Executable_OutputElementTypes_Args>();
  types.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_OutputElementTypes, &types);
  EXPECT_THAT(std::vector<int>(types.output_types, types.output_types + types.num_output_types),
              ElementsAre(kF32, kF32));
  auto cost = MakeArgs<Executable_GetCostAnalysis_Args>();
  cost.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_GetCostAnalysis, &cost);
  ASSERT_EQ(cost.num_properties, 6);
  EXPECT_EQ(std::string(cost.properties[3].name, cost.properties[3].name_size), "explain");
  EXPECT_THAT(std::string(cost.properties[4].string_value, cost.properties[4].value_size),
              HasSubstr("device 3       │"));
  EXPECT_EQ(std::string(cost.properties[0].name, cost.properties[0].name_size), "flops");
  EXPECT_GE(cost.properties[0].float_value, 2);  // a product of two numbers on each device
  const auto* const shardings = static_cast<const ShardingsExtension*>(Table().extension_start);
  ASSERT_EQ(shardings->type, kShardingsExtension);
  auto out = MakeArgs<Shardings_Args>();
  out.executable = get.executable;
  EXPECT_EQ(TakeMessage(shardings->output_shardings(&out)), "");
  ASSERT_EQ(out.num_shardings, 2);
  // The bytes encode this message:
  //   OpSharding {type: OTHER tile_assignment_dimensions: 4 iota_reshape_dims: 4
  //               iota_transpose_perm: 0}
  EXPECT_EQ(std::string(out.shardings[0], out.sharding_sizes[0]),
            std::string({0x08, 3, 0x1a, 1, 4, 0x4a, 1, 4, 0x52, 1, 0}));
  EXPECT_EQ(out.sharding_sizes[1], 0);  // replicated
  auto destroy = MakeArgs<Executable_Destroy_Args>();
  destroy.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_Destroy, &destroy);
}

TEST_F(PjrtTest, DonatedBuffersAreDeletedUnlessTheCallKeepsThem) {
  // The bytes encode this message:
  //   CompileOptions {executable_build_options {num_partitions: 2 device_assignment {
  //     replica_count: 1 computation_count: 2 computation_devices {replica_device_ids: 3}
  //     computation_devices {replica_device_ids: 1}}}}
  const std::string options = {0x1a, 16,   0x28, 2, 0x4a, 12,   8, 1, 16,
                               2,    0x1a, 2,    8, 3,    0x1a, 2, 8, 1};
  LoadedExecutable* add = nullptr;
  ASSERT_EQ(TakeMessage(TryCompile(ReadArtifactFile("donated"), options, &add)), "");
  auto devices = MakeArgs<LoadedExecutable_AddressableDevices_Args>();
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
    const RunResult ran =
        Run(add, args, 1, keep ? std::vector<int64_t>{0} : std::vector<int64_t>{});
    ASSERT_EQ(ran.error, "");
    EXPECT_THAT(Read(ran.outputs[0][0]), ElementsAre(0, 1));
    EXPECT_THAT(Read(ran.outputs[1][0]), ElementsAre(4, 5));
    for (int k = 0; k < 2; ++k) {
      EXPECT_EQ(IsDeleted(args[k][0]), !keep);
      EXPECT_FALSE(IsDeleted(args[k][1]));
    }
  }
  EXPECT_THAT(Run(add, args, 1).error, HasSubstr("argument 0"));
  // A donated buffer that is passed twice is refused and not deleted.
  for (int k = 0; k < 2; ++k) args[k][0] = args[k][1];
  EXPECT_THAT(Run(add, args, 1).error, HasSubstr("arguments 0 and 1 are the same buffer"));
  EXPECT_FALSE(IsDeleted(args[0][0]));
}

TEST_F(PjrtTest, AProgramWithoutResultsHasOneSharding) {
  LoadedExecutable* const none = Compile("func main(%a: f32[2]) -> () {\n  return\n}\n");
  ASSERT_NE(none, nullptr);
  EXPECT_EQ(Run(none, {{Put({1, 2}, {2}, devices_[0])}}, 0).error, "");
  auto get = MakeArgs<LoadedExecutable_GetExecutable_Args>();
  get.loaded_executable = none;
  EXPECT_CALL_OK(kLoadedExecutable_GetExecutable, &get);
  auto out = MakeArgs<Shardings_Args>();
  out.executable = get.executable;
  const auto* const shardings = static_cast<const ShardingsExtension*>(Table().extension_start);
  EXPECT_EQ(TakeMessage(shardings->output_shardings(&out)), "");
  EXPECT_EQ(out.num_shardings, 1);
  auto destroy = MakeArgs<Executable_Destroy_Args>();
  destroy.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_Destroy, &destroy);
}

TEST_F(PjrtTest, ASerializedExecutableIsLoadedAgain) {
  auto get = MakeArgs<LoadedExecutable_GetExecutable_Args>();
  get.loaded_executable = Compile(kTwiceProgram);
  EXPECT_CALL_OK(kLoadedExecutable_GetExecutable, &get);
  auto serialize = MakeArgs<Executable_Serialize_Args>();
  serialize.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_Serialize, &serialize);
  std::string bytes(serialize.serialized_bytes, serialize.serialized_bytes_size);
  serialize.serialized_executable_deleter(serialize.serialized_executable);
  auto destroy = MakeArgs<Executable_Destroy_Args>();
  destroy.executable = get.executable;
  EXPECT_CALL_OK(kExecutable_Destroy, &destroy);

  auto load = MakeArgs<Executable_DeserializeAndLoad_Args>();
  load.client = client_;
  load.serialized_executable = bytes.data();
  load.serialized_executable_size = bytes.size();
  ASSERT_EQ(TakeMessage(Call(kExecutable_DeserializeAndLoad, &load)), "");
  executables_.push_back(load.loaded_executable);
  const RunResult ran = Run(load.loaded_executable, {{Put({1, 2, 3, 4}, {2, 2}, devices_[0])}}, 1);
  ASSERT_EQ(ran.error, "");
  EXPECT_THAT(Read(ran.outputs[0][0]), ElementsAre(2, 4, 6, 8));

  bytes[2] ^= 1;  // as if another build had serialized it
  EXPECT_THAT(TakeMessage(Call(kExecutable_DeserializeAndLoad, &load)),
              HasSubstr("compile the program anew"));
}

TEST_F(PjrtTest, BuffersMoveFromDeviceToDevice) {
  const RunResult ran = Run(Compile(kTwiceProgram), {{Put({1, 2, 3, 4}, {2, 2}, devices_[0])}}, 1);
  for (Buffer* from : {ran.outputs[0][0], Put({2, 4, 6, 8}, {2, 2}, devices_[0])}) {
    Buffer* copy = nullptr;
    ASSERT_EQ(TryCopy(from, devices_[2], &copy), "");
    auto on = MakeArgs<Buffer_Device_Args>();
    on.buffer = copy;
    EXPECT_CALL_OK(kBuffer_Device, &on);
    EXPECT_EQ(on.device, devices_[2]);
    EXPECT_THAT(Read(copy), ElementsAre(2, 4, 6, 8));
  }
}

TEST_F(PjrtTest, UsesOfADeletedBufferFail) {
  LoadedExecutable* const twice = Compile(kTwiceProgram);
  Buffer* const buffer = Put({1, 2, 3, 4}, {2, 2}, devices_[0]);
  auto deletion = MakeArgs<Buffer_Delete_Args>();
  deletion.buffer = buffer;
  EXPECT_CALL_OK(kBuffer_Delete, &deletion);
  EXPECT_TRUE(IsDeleted(buffer));
  std::vector<float> out;
  EXPECT_THAT(TryRead(buffer, &out), HasSubstr("ARRAY_DELETED"));
  EXPECT_THAT(Run(twice, {{buffer}}, 1).error, HasSubstr("argument 0"));
}

TEST_F(PjrtTest, InvalidArgumentsAndOptionsAreErrors) {
  LoadedExecutable* const twice = Compile(kTwiceProgram);
  EXPECT_THAT(Run(twice, {{Put({1, 2, 3}, {3}, devices_[0])}}, 1).error,
              HasSubstr("takes f32[2,2] on each device, and was given f32[3]"));
  EXPECT_THAT(Run(twice, {{}}, 1).error, HasSubstr("takes 1 arguments on 1 devices"));
  LoadedExecutable* none = nullptr;
  int code = 0;
  EXPECT_THAT(TakeMessage(TryCompile("no artifact", "", &none), &code),
              HasSubstr("MALFORMED_PROGRAM"));
  EXPECT_EQ(code, 3);
  const std::string artifact =
      ir::stablehlo::ExportProgram(ir::ParseProgram(kTwiceProgram).value()).value();
  EXPECT_THAT(TakeMessage(TryCompile(artifact, "\xff\xff", &none)), HasSubstr("do not decode"));
  // The options are {env_option_overrides {key: "hue"}} and {env_option_overrides {key: "xla_x"}}.
  EXPECT_THAT(TakeMessage(TryCompile(artifact, std::string("\x3a\x05\x0a\x03hue"), &none)),
              HasSubstr("No such compile option: 'hue'"));
  EXPECT_EQ(TakeMessage(TryCompile(artifact, std::string("\x3a\x07\x0a\x05xla_x"), &none)), "");
  // The options are {executable_build_options {num_replicas: 2}}.
  EXPECT_THAT(TakeMessage(TryCompile(artifact, {0x1a, 2, 0x20, 2}, &none)),
              HasSubstr("several replicas"));
  // The options are {executable_build_options {num_partitions: 9}}.
  EXPECT_THAT(TakeMessage(TryCompile(artifact, {0x1a, 2, 0x28, 9}, &none)),
              HasSubstr("NOT_ENOUGH_DEVICES"));
  auto put = MakeArgs<Client_BufferFromHostBuffer_Args>();
  put.client = client_;
  put.type = 23;  // the type of a token
  put.memory = MemoryOf(devices_[0]);
  EXPECT_THAT(TakeMessage(Call(kClient_BufferFromHostBuffer, &put)), HasSubstr("PJRT's type 23"));
  const NamedValue options[] = {IntOption("colour", 4)};
  auto create = MakeArgs<Client_Create_Args>();
  create.create_options = options;
  create.num_options = 1;
  EXPECT_THAT(TakeMessage(Call(kClient_Create, &create)), HasSubstr("no option 'colour'"));
}

TEST_F(PjrtTest, AnEventRunsEachCallbackOnce) {
  auto create = MakeArgs<Event_Create_Args>();
  EXPECT_CALL_OK(kEvent_Create, &create);
  int calls = 0;
  auto ready = MakeArgs<Event_OnReady_Args>();
  ready.event = create.event;
  ready.user_arg = &calls;
  ready.callback = [](Error* error, void* p) {
    EXPECT_EQ(TakeMessage(error), "it broke");
    ++*static_cast<int*>(p);
  };
  EXPECT_CALL_OK(kEvent_OnReady, &ready);
  EXPECT_EQ(calls, 0);
  auto set = MakeArgs<Event_Set_Args>();
  set.event = create.event;
  set.error_code = 13;
  set.error_message = "it broke";
  set.error_message_size = 8;
  EXPECT_CALL_OK(kEvent_Set, &set);
  EXPECT_CALL_OK(kEvent_Set, &set);
  EXPECT_EQ(calls, 1);
  EXPECT_CALL_OK(kEvent_OnReady, &ready);  // This calls back at once.
  EXPECT_EQ(calls, 2);
  auto await = MakeArgs<Event_Await_Args>();
  await.event = create.event;
  EXPECT_EQ(TakeMessage(Call(kEvent_Await, &await)), "it broke");
  auto destroy = MakeArgs<Event_Destroy_Args>();
  destroy.event = create.event;
  EXPECT_CALL_OK(kEvent_Destroy, &destroy);
}

TEST_F(PjrtTest, ManyThreadsMayRunAtTheSameTime) {
  LoadedExecutable* const twice = Compile(kTwiceProgram);
  std::vector<Buffer*> inputs;
  for (int i = 0; i < 4; ++i) inputs.push_back(Put({1, 2, 3, 4}, {2, 2}, devices_[0]));
  std::vector<std::thread> threads;
  for (Buffer* input : inputs) {
    threads.emplace_back([&, input] {
      for (int i = 0; i < 20; ++i) {
        const RunResult ran = Run(twice, {{input}}, 1);
        EXPECT_EQ(ran.error, "");
        EXPECT_THAT(Read(ran.outputs[0][0]), ElementsAre(2, 4, 6, 8));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Checks at the end that the tests of this file have called each function of the table.
class EveryFunctionIsCalled : public ::testing::Environment {
 public:
  void TearDown() override {
    if (GTEST_FLAG_GET(filter) != "*") return;
#define TESSERA_PJRT(name) EXPECT_TRUE(CalledFunctions()[k##name]) << #name;
#define TESSERA_PJRT_ABSENT(name)
#include "client/pjrt/functions.def"
#undef TESSERA_PJRT
#undef TESSERA_PJRT_ABSENT
  }
};
[[maybe_unused]] const auto* const every_function_is_called =
    ::testing::AddGlobalTestEnvironment(new EveryFunctionIsCalled);

}  // namespace
}  // namespace tessera::pjrt
