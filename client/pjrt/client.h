// The client of the framework: a session, and a snapshot of the cluster's devices that is taken
// when it is made.
//
// Everything a getter tells is kept here or in what it tells it of: no getter calls the service or
// fails, as the framework ends the process when one does. Owned by the framework; thread-safe.
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
#include "client/pjrt/calls.h"
#include "client/pjrt/event.h"
#include "client/pjrt/functions.h"
#include "client/pjrt/runs.h"
#include "client/session.h"

namespace tessera::pjrt {

inline constexpr char kPlatform[] = "tessera";
// The memory of a device, by the name that JAX takes for granted.
inline constexpr char kDeviceMemory[] = "device";

// Names and values that the framework reads; they own their texts.
class Attributes {
 public:
  void Add(std::string name, std::string value);
  void Add(std::string name, std::vector<int64_t> values);
  void Add(std::string name, float value);
  const std::vector<NamedValue>& values() const { return values_; }

 private:
  NamedValue& Make(std::string name);

  std::deque<std::string> texts_;
  std::deque<std::vector<int64_t>> lists_;
  std::vector<NamedValue> values_;
};

struct DeviceDescription {
  int id = 0;
  std::string kind;
  std::string text;   // TesseraDevice(id=0)
  std::string debug;  // with where it is
  Attributes attributes;
};

struct Memory {
  // The framework reads the first word as a table of functions, if there is one.
  const void* functions = nullptr;
  int id = 0;
  Device* device = nullptr;
  std::string text, debug;
};

struct Device {
  Client* client = nullptr;
  int64_t id = 0;  // the service's
  int local_id = 0;
  DeviceDescription description;
  Memory memory;
  Memory* memories[1] = {&memory};
  Device* self[1] = {this};
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

  Device* Find(int64_t id) const;

  const std::shared_ptr<Session> session;
  const bool embedded;  // a call costs no more than what it does
  std::atomic<bool> closing{false};
  std::string version;
  std::deque<Device> storage;
  std::vector<Device*> devices;
  std::vector<Memory*> memories;
  std::map<int64_t, Device*> by_id;
  Topology topology;
  // Waits for runs and transfers. The last members: their threads use the others.
  SizedPool waiters;
  CallsInOrder calls;
  RunQueue runs;
};

// How a client is made: options of the call, then the environment.
struct ClientOptions {
  std::string address;  // of a coordinator; TESSERA_ADDRESS
  int embedded = 0;     // devices of a cluster in this process; TESSERA_EMBEDDED
  int min_devices = 1;  // TESSERA_MIN_DEVICES: waits until the cluster has as many
};
// VALUE_ERROR for an option that is not known or makes no sense, and where neither address nor
// embedded devices are given.
absl::StatusOr<ClientOptions> ReadClientOptions(absl::Span<const NamedValue> given,
                                                const EnvLookup& env);

}  // namespace tessera::pjrt
