// The functions of the PJRT C API about the client, its devices, memories and topology.
// Client_Create connects to a coordinator, or starts a cluster in this process, and takes a
// snapshot of the devices. All getters answer from this snapshot.
#include "client/pjrt/client.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/build.h"
#include "base/clock.h"
#include "base/options.h"
#include "base/status.h"
#include "client/pjrt/interrupt.h"
#include "client/pjrt/status.h"

namespace tessera::pjrt {
namespace {

// The number of threads that wait for runs and transfers. If there are more runs and transfers,
// they get a thread when one is free. The number is high because a thread that waits costs little.
constexpr int kWaitersMax = 32;
constexpr int kReconnectSecondsMax = 86'400;

// How long a process waits for a cluster to which it could not connect before.
constexpr absl::Duration kLaterConnectWait = absl::Seconds(5);

std::string TextOf(const NamedValue& value) { return {value.string_value, value.value_size}; }

absl::StatusOr<int> ParseNumber(std::string_view name, std::string_view text, int max) {
  int value = 0;
  if (!absl::SimpleAtoi(ToAbsl(text), &value) || value < 0 || value > max) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat(ToAbsl(name), ": a number from 0 to ", max, " is expected, not '",
                                  ToAbsl(text), "'"));
  }
  return value;
}

absl::Status SetOption(ClientOptions* out, std::string_view name, const std::string& value) {
  if (name == "address") {
    out->address = value;
    return absl::OkStatus();
  }
  if (name == "embedded") {
    TESSERA_ASSIGN_OR_RETURN(out->embedded, ParseNumber(name, value, kEmbeddedDevicesMax));
    return absl::OkStatus();
  }
  if (name == "min_devices") {
    TESSERA_ASSIGN_OR_RETURN(out->min_devices,
                             ParseNumber(name, value, std::numeric_limits<int>::max()));
    return absl::OkStatus();
  }
  if (name == "reconnect") {
    TESSERA_ASSIGN_OR_RETURN(const int seconds, ParseNumber(name, value, kReconnectSecondsMax));
    out->reconnect = absl::Seconds(seconds);
    return absl::OkStatus();
  }
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat("the plugin has no option '", ToAbsl(name),
                                "': address, embedded, min_devices and reconnect are known"));
}

// Tells the user about a wait for the cluster, and lets Ctrl-C end it.
class ConnectWait {
 public:
  // Returns whether to go on waiting for `what`. After kSilentWait, says on stderr what that is and
  // how long the wait may take, once for the coordinator and once for the devices.
  bool GoOn(const std::string& what, absl::Duration left) {
    if (wait_.interrupted()) return false;
    const std::string thing = what.substr(0, what.find(','));
    if (SteadyNow() - began_ < kSilentWait || thing == said_) return true;
    said_ = thing;
    std::fprintf(stderr, "tessera: waiting for %s, at most %s more; Ctrl-C ends the wait\n",
                 what.c_str(), absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))).c_str());
    std::fflush(stderr);
    return true;
  }

 private:
  static constexpr absl::Duration kSilentWait = absl::Seconds(2);
  const MainThreadWait wait_;
  const absl::Time began_ = SteadyNow();
  std::string said_;
};

// Connects to the cluster, or starts one in this process. If the program catches the error and
// looks for devices again, the second attempt waits only for kLaterConnectWait, because the user
// has already waited.
std::shared_ptr<Session> OpenSession(const ClientOptions& options) {
  static std::atomic<bool> has_failed{false};
  if (!options.address.empty()) {
    ConnectWait wait;
    ConnectOptions connect;
    if (has_failed.exchange(true)) connect.timeout = kLaterConnectWait;
    connect.min_devices = options.min_devices;
    connect.on_wait = [&wait](const std::string& what, absl::Duration left) {
      return wait.GoOn(what, left);
    };
    connect.reconnect = options.reconnect;
    std::shared_ptr<Session> session = Session::Connect(options.address, connect, Site{});
    session->RunAhead();
    has_failed.store(false);
    return session;
  }
  return Session::Embedded({.devices = options.embedded}, Site{});
}

}  // namespace

NamedValue& Attributes::Append(std::string name) {
  texts_.push_back(std::move(name));
  NamedValue& value = values_.emplace_back();
  value.struct_size = sizeof(NamedValue);
  value.extension_start = nullptr;
  value.name = texts_.back().data();
  value.name_size = texts_.back().size();
  return value;
}

void Attributes::Add(std::string name, std::string text) {
  texts_.push_back(std::move(text));
  const std::string& kept = texts_.back();
  NamedValue& value = Append(std::move(name));
  value.type = kString;
  value.string_value = kept.data();
  value.value_size = kept.size();
}

void Attributes::Add(std::string name, std::vector<int64_t> numbers) {
  lists_.push_back(std::move(numbers));
  NamedValue& value = Append(std::move(name));
  value.type = kInt64List;
  value.int64_array_value = lists_.back().data();
  value.value_size = lists_.back().size();
}

void Attributes::Add(std::string name, float number) {
  NamedValue& value = Append(std::move(name));
  value.type = kFloat;
  value.float_value = number;
  value.value_size = 1;
}

// Reads the environment first, so that options of the call replace the values from it. If the call
// asks for an embedded cluster and names no address, the address in the environment is ignored,
// because an address would otherwise win over embedded devices.
absl::StatusOr<ClientOptions> ReadClientOptions(absl::Span<const NamedValue> given,
                                                const EnvLookup& env) {
  ClientOptions out;
  if (const auto address = env("TESSERA_ADDRESS")) out.address = *address;
  for (const auto& [variable, option] :
       {std::pair("TESSERA_EMBEDDED", "embedded"), std::pair("TESSERA_MIN_DEVICES", "min_devices"),
        std::pair("TESSERA_RECONNECT", "reconnect")}) {
    const std::optional<std::string> value = env(variable);
    if (!value || value->empty()) continue;
    TESSERA_RETURN_IF_ERROR(Annotate(SetOption(&out, option, *value), variable));
  }
  bool named_address = false, named_embedded = false;
  for (const NamedValue& value : given) {
    const std::string_view name(value.name, value.name_size);
    if (value.type != kString && value.type != kInt64) {
      return MakeError(ErrorKind::kValueError, absl::StrCat("option '", ToAbsl(name),
                                                            "': a text or an integer is expected"));
    }
    const std::string text =
        value.type == kString ? TextOf(value) : absl::StrCat(value.int64_value);
    TESSERA_RETURN_IF_ERROR(SetOption(&out, name, text));
    named_address |= name == "address";
    named_embedded |= name == "embedded";
  }
  // The options of the call take precedence over the environment.
  if (named_embedded && !named_address) out.address.clear();
  if (out.address.empty() && out.embedded == 0) {
    return MakeError(ErrorKind::kValueError,
                     "no cluster is named: set TESSERA_ADDRESS to a coordinator's HOST:PORT, or "
                     "TESSERA_EMBEDDED to the number of CPU devices of a cluster in this process");
  }
  return out;
}

// Makes the descriptions of all devices in advance, since the getters return pointers into them.
// The coords of a device are the index of its worker and its index among that worker's devices, so
// that JAX's mesh utilities put devices of one worker next to each other.
Client::Client(std::shared_ptr<Session> opened, bool in_process,
               const std::vector<api::Device>& found)
    : session(std::move(opened)),
      embedded(in_process),
      live_runs(MakeLiveRuns(session)),
      device_states(MakeDeviceStates(session)),
      version(absl::StrCat("tessera ", BuildText(ThisBuild()))),
      waiters({.threads = kWaitersMax}) {
  std::map<std::string, int64_t> worker_indices;  // the index of each worker, by its name
  std::map<std::string, int64_t>
      num_devices_of_worker;  // the number of devices of each worker so far
  for (const api::Device& d : found) {
    const int64_t worker = worker_indices.emplace(d.worker, worker_indices.size()).first->second;
    Device& device = device_storage.emplace_back();
    device.client = this;
    device.id = d.id;
    device.local_id = static_cast<int>(devices.size());
    DeviceDescription& description = device.description;
    description.id = static_cast<int>(d.id);
    description.kind = d.kind;
    description.text = absl::StrCat("TesseraDevice(id=", d.id, ")");
    description.debug =
        absl::StrCat("TesseraDevice(id=", d.id, ", kind=", d.kind, ", worker=", d.worker,
                     ", host=", d.host, ", executor=", d.executor, ")");
    description.attributes.Add("coords",
                               std::vector<int64_t>{worker, num_devices_of_worker[d.worker]++});
    description.attributes.Add("worker", d.worker);
    description.attributes.Add("host", d.host);
    description.attributes.Add("executor", d.executor);
    description.attributes.Add("kind", d.kind);
    device.memory.id = device.local_id;
    device.memory.device = &device;
    device.memory.text = absl::StrCat("TesseraMemory(id=", device.local_id, ")");
    device.memory.debug =
        absl::StrCat("TesseraMemory(id=", device.local_id, ", of ", description.text, ")");
    devices.push_back(&device);
    memories.push_back(&device.memory);
    devices_by_id.emplace(d.id, &device);
    topology.descriptions.push_back(&description);
  }
}

Client::~Client() { closing.store(true); }

Device* Client::FindDevice(int64_t id) const {
  const auto it = devices_by_id.find(id);
  return it == devices_by_id.end() ? nullptr : it->second;
}

Error* Plugin_Initialize(Plugin_Initialize_Args*) { return nullptr; }

Error* Plugin_Attributes(Plugin_Attributes_Args* args) {
  // The versions of StableHLO and Shardy that the plugin reads. The framework writes artifacts in
  // the older of this version and its own. So artifacts contain no ops and forms of later versions
  // until these numbers are raised.
  static const auto* const attributes = [] {
    auto* const made = new Attributes;
    made->Add("stablehlo_current_version", std::vector<int64_t>{1, 15, 0});
    made->Add("stablehlo_minimum_version", std::vector<int64_t>{0, 9, 0});
    made->Add("sdy_current_version", std::vector<int64_t>{0, 0, 1});
    return made;
  }();
  args->attributes = attributes->values().data();
  args->num_attributes = attributes->values().size();
  return nullptr;
}

Error* Client_Create(Client_Create_Args* args) {
  return Guarded([args]() -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        const ClientOptions options,
        ReadClientOptions(absl::MakeConstSpan(args->create_options, args->num_options),
                          ProcessEnv()));
    std::shared_ptr<Session> session = OpenSession(options);
    std::vector<api::Device> found;
    for (api::Device& d : session->devices(Site{})) {
      // The framework has no way to express that a device is not healthy, so such a device is left
      // out.
      if (d.healthy && d.id <= std::numeric_limits<int>::max()) found.push_back(std::move(d));
    }
    if (found.empty()) {
      return MakeError(ErrorKind::kNotEnoughDevices,
                       absl::StrCat("the cluster at ", options.address,
                                    " has no healthy device: `tessera devices` says why"));
    }
    args->client = new Client(std::move(session), options.address.empty(), found);
    return absl::OkStatus();
  });
}

Error* Client_Destroy(Client_Destroy_Args* args) {
  delete args->client;
  return nullptr;
}

Error* Client_PlatformName(Client_PlatformName_Args* args) {
  args->platform_name = kPlatform;
  args->platform_name_size = sizeof(kPlatform) - 1;
  return nullptr;
}

Error* Client_ProcessIndex(Client_ProcessIndex_Args* args) {
  args->process_index = 0;
  return nullptr;
}

Error* Client_PlatformVersion(Client_PlatformVersion_Args* args) {
  args->platform_version = args->client->version.data();
  args->platform_version_size = args->client->version.size();
  return nullptr;
}

Error* Client_Devices(Client_Devices_Args* args) {
  args->devices = args->client->devices.data();
  args->num_devices = args->client->devices.size();
  return nullptr;
}

Error* Client_AddressableDevices(Client_AddressableDevices_Args* args) {
  args->addressable_devices = args->client->devices.data();
  args->num_addressable_devices = args->client->devices.size();
  return nullptr;
}

Error* Client_LookupDevice(Client_LookupDevice_Args* args) {
  args->device = args->client->FindDevice(args->id);
  if (args->device != nullptr) return nullptr;
  return ErrorOf(MakeError(ErrorKind::kNotEnoughDevices,
                           absl::StrCat("the cluster has no device ", args->id)));
}

Error* Client_LookupAddressableDevice(Client_LookupAddressableDevice_Args* args) {
  const std::vector<Device*>& devices = args->client->devices;
  const int id = args->local_hardware_id;
  args->addressable_device =
      id >= 0 && static_cast<size_t>(id) < devices.size() ? devices[id] : nullptr;
  if (args->addressable_device != nullptr) return nullptr;
  return ErrorOf(MakeError(ErrorKind::kNotEnoughDevices,
                           absl::StrCat("the cluster has no device at place ", id)));
}

Error* Client_AddressableMemories(Client_AddressableMemories_Args* args) {
  args->addressable_memories = args->client->memories.data();
  args->num_addressable_memories = args->client->memories.size();
  return nullptr;
}

Error* Client_DefaultDeviceAssignment(Client_DefaultDeviceAssignment_Args* args) {
  const std::vector<Device*>& devices = args->client->devices;
  const int64_t wanted = int64_t{args->num_replicas} * args->num_partitions;
  if (wanted < 0 || static_cast<size_t>(wanted) > devices.size() ||
      static_cast<size_t>(wanted) > args->default_assignment_size) {
    return ErrorOf(MakeError(
        ErrorKind::kNotEnoughDevices,
        absl::StrCat(wanted, " devices are asked for; the cluster has ", devices.size())));
  }
  for (int64_t i = 0; i < wanted; ++i) args->default_assignment[i] = devices[i]->description.id;
  return nullptr;
}

Error* Client_TopologyDescription(Client_TopologyDescription_Args* args) {
  args->topology = &args->client->topology;
  return nullptr;
}

Error* DeviceDescription_Id(DeviceDescription_Id_Args* args) {
  args->id = args->device_description->id;
  return nullptr;
}

Error* DeviceDescription_ProcessIndex(DeviceDescription_ProcessIndex_Args* args) {
  args->process_index = 0;
  return nullptr;
}

Error* DeviceDescription_Attributes(DeviceDescription_Attributes_Args* args) {
  const std::vector<NamedValue>& values = args->device_description->attributes.values();
  args->attributes = values.data();
  args->num_attributes = values.size();
  return nullptr;
}

Error* DeviceDescription_Kind(DeviceDescription_Kind_Args* args) {
  args->device_kind = args->device_description->kind.data();
  args->device_kind_size = args->device_description->kind.size();
  return nullptr;
}

Error* DeviceDescription_DebugString(DeviceDescription_DebugString_Args* args) {
  args->debug_string = args->device_description->debug.data();
  args->debug_string_size = args->device_description->debug.size();
  return nullptr;
}

Error* DeviceDescription_ToString(DeviceDescription_ToString_Args* args) {
  args->to_string = args->device_description->text.data();
  args->to_string_size = args->device_description->text.size();
  return nullptr;
}

Error* Device_GetDescription(Device_GetDescription_Args* args) {
  args->device_description = &args->device->description;
  return nullptr;
}

Error* Device_IsAddressable(Device_IsAddressable_Args* args) {
  args->is_addressable = true;
  return nullptr;
}

Error* Device_LocalHardwareId(Device_LocalHardwareId_Args* args) {
  args->local_hardware_id = args->device->local_id;
  return nullptr;
}

Error* Device_AddressableMemories(Device_AddressableMemories_Args* args) {
  args->memories = args->device->memories;
  args->num_memories = std::size(args->device->memories);
  return nullptr;
}

Error* Device_DefaultMemory(Device_DefaultMemory_Args* args) {
  args->memory = &args->device->memory;
  return nullptr;
}

Error* Device_GetAttributes(Device_GetAttributes_Args* args) {
  const std::vector<NamedValue>& values = args->device->description.attributes.values();
  args->attributes = values.data();
  args->num_attributes = values.size();
  args->device_attributes = nullptr;
  args->attributes_deleter = [](void*) {};  // the device owns the attributes
  return nullptr;
}

Error* Memory_Id(Memory_Id_Args* args) {
  args->id = args->memory->id;
  return nullptr;
}

Error* Memory_Kind(Memory_Kind_Args* args) {
  args->kind = kDeviceMemory;
  args->kind_size = sizeof(kDeviceMemory) - 1;
  return nullptr;
}

Error* Memory_Kind_Id(Memory_Kind_Id_Args* args) {
  args->kind_id = 0;
  return nullptr;
}

Error* Memory_DebugString(Memory_DebugString_Args* args) {
  args->debug_string = args->memory->debug.data();
  args->debug_string_size = args->memory->debug.size();
  return nullptr;
}

Error* Memory_ToString(Memory_ToString_Args* args) {
  args->to_string = args->memory->text.data();
  args->to_string_size = args->memory->text.size();
  return nullptr;
}

Error* Memory_AddressableByDevices(Memory_AddressableByDevices_Args* args) {
  args->devices = args->memory->device->self;
  args->num_devices = std::size(args->memory->device->self);
  return nullptr;
}

Error* TopologyDescription_PlatformName(TopologyDescription_PlatformName_Args* args) {
  args->platform_name = kPlatform;
  args->platform_name_size = sizeof(kPlatform) - 1;
  return nullptr;
}

Error* TopologyDescription_PlatformVersion(TopologyDescription_PlatformVersion_Args* args) {
  static constexpr char kVersion[] = "tessera";
  args->platform_version = kVersion;
  args->platform_version_size = sizeof(kVersion) - 1;
  return nullptr;
}

Error* TopologyDescription_GetDeviceDescriptions(
    TopologyDescription_GetDeviceDescriptions_Args* args) {
  args->descriptions = args->topology->descriptions.data();
  args->num_descriptions = args->topology->descriptions.size();
  return nullptr;
}

Error* TopologyDescription_Attributes(TopologyDescription_Attributes_Args* args) {
  args->attributes = args->topology->attributes.values().data();
  args->num_attributes = args->topology->attributes.values().size();
  return nullptr;
}

}  // namespace tessera::pjrt
