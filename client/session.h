// A session: the connection of this process to a cluster, and the cache of its executables.
//
// Thread-safe. Arrays keep their session alive; it closes with its last reference. The default
// session is the cluster at TESSERA_ADDRESS, or else an embedded one.
#pragma once
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
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
  // Waits, at most for `timeout`, until the cluster has this many healthy devices (workers of a
  // cluster that is starting register one by one); else NOT_ENOUGH_DEVICES.
  int min_devices = 0;
  // Called on any thread with the number of array bytes transferred. Return false to cancel the
  // transfer.
  std::function<bool(int64_t bytes)> on_bytes = nullptr;
  Keepalive keepalive = {};  // how soon a dead connection is detected
  // How long calls wait for a coordinator that has gone away, each within its own timeout; then,
  // and until it is back, they fail with UNREACHABLE within a few seconds. The session, its arrays
  // and its runs stay valid meanwhile.
  absl::Duration reconnect = absl::Seconds(30);
  // Unset: a session is opened at the coordinator, which owns the arrays and runs. It ends with
  // this object and with the process: at exit, and at SIGINT and SIGTERM if the program does not
  // handle them. If the process is killed, its runs are cancelled after session_grace_ms and its
  // arrays freed after the lease. Set: the id of an open session, which is not ended; 0 is the
  // tenant's own session, where arrays persist until they are deleted.
  std::optional<uint64_t> session = std::nullopt;
  absl::Duration lease = absl::ZeroDuration();  // 0: the server's choice
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  static std::shared_ptr<Session> Connect(const std::string& address, ConnectOptions options = {},
                                          Site site = Site::Here());
  static std::shared_ptr<Session> Embedded(EmbeddedOptions options = {}, Site site = Site::Here());
  // A session on any implementation of api::Service.
  static std::shared_ptr<Session> FromService(std::shared_ptr<api::Service> service);
  // Created on first use.
  static std::shared_ptr<Session> Default(Site site = Site::Here());
  // Sets what Default() returns in this process; null: the next use creates a session.
  static void SetDefault(std::shared_ptr<Session> session);
  ~Session();

  std::vector<api::Device> devices(Site site = Site::Here());
  api::Service& service() { return *service_; }

  // ---- Used by the SDK only. ----
  // The ids of the first `max` healthy devices, or of all if there are fewer.
  std::vector<int64_t> HealthyDevices(int64_t max, const Site& site);
  struct Executable {
    api::CompileReply reply;
    ir::Mesh mesh;
    std::vector<ir::Type> out_types;
    std::vector<std::shared_ptr<const api::Placement>> out_placements;
    std::string name;
    // What is printed after a run, of its last results, which the caller does not get; or null.
    ir::FunctionRef prints;
    int num_printed = 0;

    size_t num_results() const { return out_types.size() - num_printed; }
  };
  // Cached by all arguments except `site`. The call sites of ops are part of the program, as errors
  // and plans name them.
  std::shared_ptr<const Executable> Compile(const ir::Program& program,
                                            const std::vector<int64_t>& devices,
                                            const std::string& name, bool explain,
                                            const Site& site);
  // Plans, without compiling, for absent devices with this much memory each.
  api::CompileReply PlanForAbsent(const ir::Program& program, int64_t device_memory_bytes,
                                  const std::string& name, const Site& site);
  // From now on, runs are not waited for until they are accepted: what a run that is refused would
  // have made has the error. To be called before the first run.
  void RunAhead() { ahead_ = true; }
  // `donate` is empty or has one entry per argument.
  std::vector<Array> Run(const Executable& executable, absl::Span<const Array> args,
                         std::vector<bool> donate, const Site& site);
  Array Put(const ir::Array& value, const Mesh& mesh, const PartitionSpec& spec, const Site& site);
  // Reshards `x`, a concrete array of this session; returns `x` itself if it has this sharding.
  Array Reshard(const Array& x, const Mesh& mesh, const PartitionSpec& spec, const Site& site);
  // Returns when the file is complete.
  void Save(const std::string& path, const std::vector<api::ArrayToSave>& arrays, bool overwrite,
            const Site& site);
  struct LoadRequest {
    std::string name;
    DType dtype = DType::kF32;
    Dims shape;
    Mesh mesh;
    PartitionSpec spec;
  };
  std::vector<Array> Load(const std::string& path, const std::vector<LoadRequest>& requests,
                          const Site& site);
  // Deletes the array later: with the next put, or with the next run once a batch has accumulated.
  void Release(uint64_t array, int64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // The same for a donated array. The server has deleted it, unless its run ended before it began,
  // so this deletion alone is not worth a call.
  void ReleaseDonated(uint64_t array) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit Session(std::shared_ptr<api::Service> service);
  // Retries, for a bounded time, while the queue is full.
  absl::StatusOr<api::ExecuteReply> ExecuteWhenAccepted(const api::ExecuteRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  void FlushReleased() ABSL_LOCKS_EXCLUDED(mu_);
  // Checks the spec, and chooses devices if the mesh has none.
  api::Placement Place(const std::string& what, const Dims& shape, const Mesh& mesh,
                       const PartitionSpec& spec, const Site& site);
  // The array of an id that the service has returned.
  Array MakeArray(uint64_t id, const Type& type, std::shared_ptr<const api::Placement> placement,
                  uint64_t operation, const std::string& name);

  const int process_;  // the pid that created the service; a forked child must not use it
  const std::shared_ptr<api::Service> service_;
  bool ahead_ = false;
  absl::Mutex mu_;
  std::atomic<uint64_t> last_operation_ = 0;
  std::map<std::string, std::shared_ptr<const Executable>> executables_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> oldest_first_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> released_ ABSL_GUARDED_BY(mu_);
  int64_t released_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

// Sets a deadline for all runs started in scope, on this thread, and for arrays put there; of
// nested scopes the earliest holds. Waits in scope end at most half a second later: the server ends
// a late run itself, and its error, which says what the run was doing, is more useful than that of
// the wait.
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
bool HasEnded(const api::Operation& operation);
// Of one call of api::Service; below the default of result_wait_ms_max, which bounds it.
inline constexpr absl::Duration kMaxWaitPerCall = absl::Seconds(20);
// Waits, at most for `limit`, until the operation has ended.
absl::StatusOr<api::Operation> WaitForOperation(api::Service& service, uint64_t id,
                                                absl::Duration limit);
absl::Time CurrentDeadline();  // InfiniteFuture if there is none
// The minimum of `wanted`, the time to the deadline in scope, and the longest wait allowed.
absl::Duration BoundedWait(absl::Duration wanted);
// The same for a wait for a run's results: the run's own error may come after the deadline.
absl::Duration BoundedResultWait(absl::Duration wanted);
}  // namespace internal

// Copies `value` to the devices of the mesh in context, or of `mesh`, sharded by `spec`.
Array put(const ir::Array& value, Site site = Site::Here());
Array put(const ir::Array& value, const Mesh& mesh, const PartitionSpec& spec,
          Site site = Site::Here());
// An array of numbers in row-major order.
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
// Reshards a concrete array: bytes move from device to device, not through this process. Returns
// `x` itself if it has this sharding, as jax.device_put does: donating the result then donates `x`.
Array put(const Array& x, const Mesh& mesh, const PartitionSpec& spec, Site site = Site::Here());

template <class T>
Array array(const std::vector<T>& values, Dims shape, DType dtype, Site site) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  if (n != static_cast<int64_t>(values.size())) {
    internal::ThrowError(ErrorKind::kValueError, site,
                         "array: " + std::to_string(values.size()) + " values do not fill shape (" +
                             ir::DimsToString(shape) + "), which has " + std::to_string(n));
  }
  if constexpr (!std::is_arithmetic_v<T>) {  // complex
    ir::Array numbers(DTypeOf<T>(), std::move(shape));
    std::copy(values.begin(), values.end(), numbers.MutableAs<T>().begin());
    return put(ir::ConvertArray(numbers, dtype), site);
  } else {
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
}

}  // namespace tessera
