// A session: the connection of this process to a cluster, and the cache of its executables.
//
// Thread-safe. Arrays keep their session alive; it closes with its last reference. The default
// session is connected to the cluster at TESSERA_ADDRESS, or else to an embedded one. In the first
// case TESSERA_RECONNECT sets ConnectOptions::reconnect, in seconds.
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
#include "ir/api/kept_program.h"
#include "ir/api/service.h"

namespace tessera::ir {
struct RecordedEffects;
}  // namespace tessera::ir

namespace tessera {

// Options of Session::Connect.
struct ConnectOptions {
  absl::Duration timeout = absl::Seconds(30);  // longest wait for the coordinator
  std::string token;  // authentication token; if empty, TESSERA_TOKEN is used
  // file with the certificates of the cluster's CA. If it is empty, TESSERA_CA_FILE is used.
  // Without both, the connection is plain text, which is allowed on loopback only.
  std::string ca_file;
  bool insecure = false;  // allows plain text beyond loopback
  // Connect waits, at most for `timeout`, until the cluster has this many healthy devices, because
  // the workers of a starting cluster register one by one. If there are still fewer, Connect throws
  // NOT_ENOUGH_DEVICES.
  int min_devices = 0;
  // Called several times a second while Connect waits for the coordinator or for devices: with what
  // it waits for, as in "waiting for ...", and how much longer it waits at most. Return false to
  // give up; Connect then throws CANCELLED.
  std::function<bool(const std::string& thing, absl::Duration left)> on_wait = nullptr;
  // Called on any thread with the number of array bytes transferred since the last call. Return
  // false to cancel the transfer.
  std::function<bool(int64_t bytes)> on_bytes = nullptr;
  Keepalive keepalive = {};  // how soon a dead connection is detected
  // How long calls wait for a coordinator that has gone away or does not answer, and transfers for
  // an executor, each within its own timeout. After this time, and until the coordinator is back,
  // calls fail with UNREACHABLE within a few seconds. The session, its arrays and its runs stay
  // valid meanwhile.
  absl::Duration reconnect = absl::Seconds(30);
  // The id of an open session to use. The session goes on when this object is destroyed. 0 is the
  // tenant's own session, where arrays persist until they are deleted.
  //
  // Without a value, a new session is opened at the coordinator, and the arrays and runs belong to
  // that session. It ends with this object or with the process: at exit, and at SIGINT and SIGTERM
  // if the program does not handle them. If the process is killed, the coordinator cancels the
  // session's runs after session_grace_ms, and frees its arrays when the lease runs out.
  std::optional<uint64_t> session = std::nullopt;
  absl::Duration lease = absl::ZeroDuration();  // lease of a new session; 0 lets the server choose
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  // Connects to the coordinator at `address`. Throws NOT_IMPLEMENTED in a program that does not
  // link tessera_client_remote, the library that calls the coordinator by gRPC.
  static std::shared_ptr<Session> Connect(const std::string& address, ConnectOptions options = {},
                                          Site site = Site::Here());
  // Starts a cluster inside this process. Throws NOT_IMPLEMENTED in a program that does not link
  // tessera_embed.
  static std::shared_ptr<Session> Embedded(EmbeddedOptions options = {}, Site site = Site::Here());
  // Returns a session on any implementation of api::Service.
  static std::shared_ptr<Session> FromService(std::shared_ptr<api::Service> service);
  // Returns the default session of this process, which the first call creates.
  static std::shared_ptr<Session> Default(Site site = Site::Here());
  // Sets the session that Default() returns in this process. After null, the next call of Default()
  // creates a session.
  static void SetDefault(std::shared_ptr<Session> session);
  ~Session();

  // Returns all devices of the cluster, healthy or not.
  std::vector<api::Device> devices(Site site = Site::Here());
  api::Service& service() { return *service_; }

  // ---- Used by the SDK only. ----
  // Returns the ids of the first `max` healthy devices, or of all if there are fewer.
  std::vector<int64_t> HealthyDevices(int64_t max, const Site& site);
  struct Executable {
    api::CompileReply reply;
    ir::Mesh mesh;
    std::vector<ir::Type> out_types;
    std::vector<std::shared_ptr<const api::Placement>> out_placements;
    std::string name;
    // The prints that are made after a run, or null if the program prints nothing. The last
    // `num_printed` results are the record of the prints, which the caller does not get.
    std::shared_ptr<const ir::RecordedEffects> prints;
    int num_printed = 0;
    // The program and the present id of the executable, which changes when the service has dropped
    // the executable: `reply` keeps the first id.
    std::shared_ptr<api::KeptProgram> kept_program;

    size_t num_results() const { return out_types.size() - num_printed; }
  };
  // Returns the executable of a program, from the cache if it has been compiled for the same
  // devices and name. A compilation with `explain` always asks the server. The call sites of ops
  // are part of the program, because errors and plans name them.
  std::shared_ptr<const Executable> Compile(const ir::Program& program,
                                            const std::vector<int64_t>& devices,
                                            const std::string& name, bool explain,
                                            const Site& site);
  // Plans the program for absent devices with this much memory each, without compiling it.
  api::CompileReply PlanForAbsent(const ir::Program& program, int64_t device_memory_bytes,
                                  const std::string& name, const Site& site);
  // Lets all later runs return before the server has accepted them. If such a run is refused, its
  // results carry the error. Call before the first run.
  void RunAhead() { ahead_ = true; }
  // Starts a run and returns its results, which may not be ready. `donate` is empty or has one
  // entry per argument.
  std::vector<Array> Run(const Executable& executable, absl::Span<const Array> args,
                         std::vector<bool> donate, const Site& site);
  // Copies `value` to the devices of the mesh.
  Array Put(const ir::Array& value, const Mesh& mesh, const PartitionSpec& spec, const Site& site);
  // Reshards `x`, a concrete array of this session. Returns `x` itself if it has this sharding.
  Array Reshard(const Array& x, const Mesh& mesh, const PartitionSpec& spec, const Site& site);
  // Writes the arrays to a file. Returns when the file is complete.
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
  // Like Release, for an array that was donated to a run. The server has already deleted the array,
  // unless the run failed or was cancelled before it began, so this deletion alone is not worth a
  // call.
  void ReleaseDonated(uint64_t array) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  explicit Session(std::shared_ptr<api::Service> service);
  // Calls Execute, and retries for a bounded time while the server's queue is full.
  absl::StatusOr<api::ExecuteReply> ExecuteWhenAccepted(const api::ExecuteRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Like ExecuteWhenAccepted, and fills in the executable. If the service has dropped the
  // executable, compiles the program again and calls Execute once more.
  absl::StatusOr<api::ExecuteReply> ExecuteKept(api::KeptProgram& program,
                                                api::ExecuteRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Sends the accumulated deletions to the server.
  void FlushReleased() ABSL_LOCKS_EXCLUDED(mu_);
  // Checks the spec, and chooses devices if the mesh has none.
  api::Placement Place(const std::string& what, const Dims& shape, const Mesh& mesh,
                       const PartitionSpec& spec, const Site& site);
  // Makes the array for an id that the service has returned.
  Array MakeArray(uint64_t id, const Type& type, std::shared_ptr<const api::Placement> placement,
                  uint64_t operation, const std::string& name);

  // pid of the process that created the service; a forked child must not use the service
  const int process_;
  const std::shared_ptr<api::Service> service_;
  bool ahead_ = false;
  absl::Mutex mu_;
  std::atomic<uint64_t> last_operation_ = 0;
  std::map<std::string, std::shared_ptr<const Executable>> executables_ ABSL_GUARDED_BY(mu_);
  // keys of executables_, oldest first
  std::vector<std::string> oldest_first_ ABSL_GUARDED_BY(mu_);
  // ids of arrays whose deletion has not been sent yet, and their bytes in all
  std::vector<uint64_t> released_ ABSL_GUARDED_BY(mu_);
  int64_t released_bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

// Sets a deadline for all runs that this thread starts in scope, and for arrays that it puts. If
// scopes are nested, the earliest deadline counts. Waits in scope end at most half a second after
// the deadline: the server itself ends a late run, and its error, which says what the run was
// doing, is more useful than the error of the wait.
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
// Returns whether the operation has ended: done, failed or cancelled.
bool HasEnded(const api::Operation& operation);
// The longest wait of one call of api::Service. The server bounds such a wait by
// result_wait_ms_max, whose default is longer.
inline constexpr absl::Duration kMaxWaitPerCall = absl::Seconds(20);
// Waits, at most for `limit`, until the operation has ended. Returns its latest state.
absl::StatusOr<api::Operation> WaitForOperation(api::Service& service, uint64_t id,
                                                absl::Duration limit);
absl::Time CurrentDeadline();  // InfiniteFuture if there is no deadline
// Returns the minimum of `wanted`, the time to the deadline in scope, and the longest wait allowed.
absl::Duration BoundedWait(absl::Duration wanted);
// Like BoundedWait, for a wait for a run's results. It allows half a second more, because the run's
// own error may come after the deadline.
absl::Duration BoundedResultWait(absl::Duration wanted);
}  // namespace internal

// Copies `value` to the devices of the mesh in context, or of `mesh`, sharded by `spec`. Throws
// VALUE_ERROR, UNKNOWN_AXIS or INDIVISIBLE if the spec does not fit.
Array put(const ir::Array& value, Site site = Site::Here());
Array put(const ir::Array& value, const Mesh& mesh, const PartitionSpec& spec,
          Site site = Site::Here());
// Returns an array of `values`, in row-major order, converted to `dtype`. Throws VALUE_ERROR unless
// they fill the shape. Without a shape, the array has one dim.
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
// Reshards a concrete array. Bytes move from device to device, not through this process. Returns
// `x` itself if it has this sharding, like jax.device_put; donating the result then donates `x`.
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
