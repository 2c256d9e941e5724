// A session: the way from this process to a cluster, and the cache of what it has compiled.
//
// Thread-safe.  Arrays keep their session alive; the last release of both closes it.  The default
// session is the embedded cluster, or the one that TESSERA_ADDRESS names.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/keepalive.h"
#include "client/array.h"
#include "client/embedded.h"
#include "client/mesh.h"
#include "ir/api/service.h"

namespace tessera {

struct ConnectOptions {
  absl::Duration timeout = absl::Seconds(30);  // to reach the coordinator
  std::string token;                           // empty: TESSERA_TOKEN
  std::string ca_file;    // empty: TESSERA_CA_FILE, else plain text on loopback
  bool insecure = false;  // plain text beyond loopback
  // Waits, within `timeout` too, until the cluster has as many healthy devices; NOT_ENOUGH_DEVICES
  // if it does not get them.  Workers of a cluster that is starting come one by one.
  int min_devices = 0;
  // Told, from any thread, of bytes of arrays that have moved between here and the devices. False:
  // the transfer is given up, with CANCELLED.
  std::function<bool(int64_t bytes)> on_bytes = nullptr;
  Keepalive keepalive = {};  // how soon a connection that is dead is noticed
  // Arrays and runs belong to a session at the coordinator, which ends with this one, and with the
  // process: when it exits, and at SIGINT and SIGTERM where the program leaves these to their
  // default. Should it die otherwise, its runs are cancelled soon (session_grace_ms), and its
  // arrays freed after the lease.  Named: one that somebody else has opened, which stays; 0 is the
  // tenant's own, where arrays stay until they are deleted.
  std::optional<uint64_t> session = std::nullopt;
  absl::Duration lease = absl::ZeroDuration();  // 0: the server's choice
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  static std::shared_ptr<Session> Connect(const std::string& address, ConnectOptions options = {},
                                          Site site = Site::Here());
  static std::shared_ptr<Session> Embedded(EmbeddedOptions options = {}, Site site = Site::Here());
  // Over any implementation of api::Service.
  static std::shared_ptr<Session> Over(std::shared_ptr<api::Service> service);
  // Made on first use.
  static std::shared_ptr<Session> Default(Site site = Site::Here());
  // What Default() returns from then on, in this process; null: a session is made on next use.
  static void SetDefault(std::shared_ptr<Session> session);
  ~Session();

  std::vector<api::Device> devices(Site site = Site::Here());
  api::Service& service() { return *service_; }

  // ---- For the SDK's own files. ----
  struct Executable {
    api::CompileReply reply;
    ir::Mesh mesh;
    std::vector<ir::Type> out_types;
    std::string name;
  };
  // Cached by everything but `site`. Equal programs from two source lines are two, since errors and
  // plans name the lines of ops.
  std::shared_ptr<const Executable> Compile(const ir::Program& program,
                                            const std::vector<int64_t>& devices,
                                            const std::string& name, bool explain,
                                            const Site& site);
  // Only plans, for devices of so much memory each, which need not exist.
  api::CompileReply PlanForAbsent(const ir::Program& program, int64_t device_memory_bytes,
                                  const std::string& name, const Site& site);
  // `donate` is empty or as long as args.
  std::vector<Array> Run(const Executable& executable, const std::vector<Array>& args,
                         std::vector<bool> donate, const Site& site);
  Array Put(const ir::Array& value, const Mesh& mesh, const PartitionSpec& spec, const Site& site);
  // `x`, a concrete array of this session, with this sharding: `x` itself if it has it already.
  Array Reshard(const Array& x, const Mesh& mesh, const PartitionSpec& spec, const Site& site);
  // Returns when the file is there.
  void Save(const std::string& path, const std::vector<api::ArrayToSave>& arrays, bool overwrite,
            const Site& site);
  struct Wanted {
    std::string name;
    DType dtype = DType::kF32;
    Dims shape;
    Mesh mesh;
    PartitionSpec spec;
  };
  std::vector<Array> Load(const std::string& path, const std::vector<Wanted>& wanted,
                          const Site& site);
  // Deletes soon: with the next put, or with the next run once the released are many or large.
  void Release(uint64_t array, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // The same for an array that was donated. The service has deleted it, unless the run ended before
  // it began, so this deletion is sent only along with others.
  void ReleaseDonated(uint64_t array) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit Session(std::shared_ptr<api::Service> service);
  // Waits, within bounds, while the queue is full.
  absl::StatusOr<api::ExecuteReply> ExecuteWhenAccepted(const api::ExecuteRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  void FlushReleased() ABSL_LOCKS_EXCLUDED(mu_);
  // Checks that the spec fits, and chooses devices where the mesh has none.
  api::Placement Place(const std::string& what, const Dims& shape, const Mesh& mesh,
                       const PartitionSpec& spec, const Site& site);
  // The handle to what the service has made.
  Array Made(uint64_t id, const Type& type, api::Placement placement, uint64_t operation,
             const std::string& name);

  const int process_;  // that made the service; a forked child must not use it
  const std::shared_ptr<api::Service> service_;
  absl::Mutex mu_;
  uint64_t last_operation_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, std::shared_ptr<const Executable>> executables_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> oldest_first_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> released_ ABSL_GUARDED_BY(mu_);
  int64_t released_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

// Every run started in scope must end within `limit`; scopes nest, the earliest end holds.  A wait
// in scope ends half a second after that at the latest: the service ends a late run by itself, and
// its error, which says where the run stood, is worth more than one that the wait was too short.
// Belongs to the thread that made it.
class [[nodiscard]] deadline {
 public:
  explicit deadline(absl::Duration limit);
  ~deadline();
  deadline(const deadline&) = delete;
  deadline& operator=(const deadline&) = delete;

 private:
  absl::Time saved_;
};

namespace internal {
absl::Time CurrentDeadline();  // InfiniteFuture when there is none
// The minimum of `wanted`, the time to the deadline in scope, and the longest wait we allow.
absl::Duration BoundedWait(absl::Duration wanted);
// The same for a wait for a run's results: the run's own error may come after the deadline.
absl::Duration BoundedResultWait(absl::Duration wanted);
}  // namespace internal

// Copies `value` to devices: onto the mesh in context or the given one, cut as `spec` says.
Array put(const ir::Array& value, Site site = Site::Here());
Array put(const ir::Array& value, const Mesh& mesh, const PartitionSpec& spec,
          Site site = Site::Here());
// From numbers, in row-major order.
template <class T>
Array array(const std::vector<T>& values, Dims shape, DType dtype = DTypeOf<T>(),
            Site site = Site::Here());
template <class T>
Array array(const std::vector<T>& values, Site site = Site::Here()) {
  return array<T>(values, Dims{static_cast<int64_t>(values.size())}, DTypeOf<T>(), site);
}
template <class T>
requires std::is_arithmetic_v<T> Array scalar(T value, DType dtype = DTypeOf<T>(),
                                              Site site = Site::Here()) {
  return put(std::is_integral_v<T> && !ir::IsFloat(dtype)
                 ? ir::Array::ScalarInt(dtype, static_cast<int64_t>(value))
                 : ir::Array::Scalar(dtype, static_cast<double>(value)),
             site);
}
// A concrete array with another sharding: its bytes go from device to device, not by this process.
// One that has the sharding already is returned as it is, as by jax.device_put: donating the result
// donates `x`.
Array put(const Array& x, const Mesh& mesh, const PartitionSpec& spec, Site site = Site::Here());

template <class T>
Array array(const std::vector<T>& values, Dims shape, DType dtype, Site site) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  if (n != static_cast<int64_t>(values.size())) {
    internal::ThrowError(ErrorKind::kValueError,
                         "array: " + std::to_string(values.size()) + " values do not fill shape (" +
                             ir::DimsToString(shape) + "), which has " + std::to_string(n),
                         site);
  }
  ir::Array host(dtype, std::move(shape));
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>) {
      if (dtype == DTypeOf<T>()) {
        host.MutableAs<T>()[i] = values[i];
        continue;
      }
    }
    host.Set(i, static_cast<double>(values[i]));
  }
  return put(host, site);
}

}  // namespace tessera
