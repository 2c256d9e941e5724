// The client that the framework (such as JAX) has: a session, and a snapshot of the cluster's
// devices that is taken when the client is made.
//
// Everything that a getter returns is kept in the client or in the object that the getter is asked
// about. So no getter calls the service or fails; the framework would end the process if one did.
// Owned by the framework; thread-safe.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/options.h"
#include "base/sized_pool.h"
#include "client/pjrt/call_queue.h"
#include "client/pjrt/device_states.h"
#include "client/pjrt/event.h"
#include "client/pjrt/functions.h"
#include "client/pjrt/live_runs.h"
#include "client/pjrt/runs.h"
#include "client/session.h"

namespace tessera::pjrt {

inline constexpr char kPlatform[] = "tessera";
// The kind of the memory of a device. JAX relies on this name.
inline constexpr char kDeviceMemory[] = "device";

// A list of names and values that the framework reads. Owns their texts.
class Attributes {
 public:
  void Add(std::string name, std::string value);
  void Add(std::string name, std::vector<int64_t> values);
  void Add(std::string name, float value);
  const std::vector<NamedValue>& values() const { return values_; }

 private:
  // Appends a value with this name, which the caller fills in.
  NamedValue& Append(std::string name);

  std::deque<std::string> texts_;
  std::deque<std::vector<int64_t>> lists_;
  std::vector<NamedValue> values_;
};

struct DeviceDescription {
  int id = 0;
  std::string kind;
  std::string text;   // for example TesseraDevice(id=0)
  std::string debug;  // the text, with the device's kind, worker, host and executor
  Attributes attributes;
};

struct Memory {
  // The framework reads the first word as a pointer to a table of functions, unless it is null.
  const void* functions = nullptr;
  int id = 0;
  Device* device = nullptr;
  std::string text, debug;
};

struct Device {
  Client* client = nullptr;
  int64_t id = 0;  // the id of the device at the service
  int local_id = 0;
  DeviceDescription description;
  Memory memory;
  Memory* memories[1] = {&memory};
  Device* self[1] = {this};  // the devices that can address `memory`
};

struct Topology {
  std::vector<DeviceDescription*> descriptions;
  Attributes attributes;
};

struct Client {
  Client(std::shared_ptr<Session> opened, bool in_process, const std::vector<api::Device>& found);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Device* FindDevice(int64_t id) const;

  const std::shared_ptr<Session> session;
  const bool embedded;  // true if the cluster is in this process, so that a call has no round trip
  std::atomic<bool> closing{false};
  const std::shared_ptr<LiveRuns> live_runs;
  const std::shared_ptr<DeviceStates> device_states;
  std::string version;
  std::deque<Device> device_storage;
  std::vector<Device*> devices;
  std::vector<Memory*> memories;
  std::map<int64_t, Device*> devices_by_id;
  Topology topology;
  // The threads that wait for runs and transfers. These members are last, because their threads use
  // the other members.
  SizedPool waiters;
  CallQueue call_queue;
  RunQueue run_queue;
};

// How a client is made. An option that the framework gives takes precedence over the environment
// variable in parentheses.
struct ClientOptions {
  std::string address;  // address of a coordinator (TESSERA_ADDRESS)
  int embedded = 0;     // number of devices of a cluster in this process (TESSERA_EMBEDDED)
  int min_devices = 1;  // number of devices that Connect waits for (TESSERA_MIN_DEVICES)
  // How long calls wait for a coordinator that is away (TESSERA_RECONNECT, in seconds).
  absl::Duration reconnect = ConnectOptions().reconnect;
};
// Reads the options `given` and the environment. Returns VALUE_ERROR for an option that is not
// known or makes no sense, and if neither an address nor embedded devices are given.
absl::StatusOr<ClientOptions> ReadClientOptions(absl::Span<const NamedValue> given,
                                                const EnvLookup& env);

}  // namespace tessera::pjrt
