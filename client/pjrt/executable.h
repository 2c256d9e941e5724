// Executables: programs that are planned for devices, with all that the framework asks of them.
//
// Owned by the framework; immutable but for whether they are deleted; thread-safe.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/pjrt/calls.h"
#include "client/pjrt/client.h"
#include "client/prints.h"
#include "ir/stablehlo/import.h"
#include "ir/stablehlo/inspect.h"

namespace tessera::pjrt {

// Texts that the framework reads as two lists, of where they are and how long they are.
class Texts {
 public:
  explicit Texts(std::vector<std::string> texts = {});
  Texts(const Texts&) = delete;
  Texts& operator=(const Texts&) = delete;
  size_t size() const { return texts_.size(); }
  // At least one, as the framework reads one of a program without values.
  const char* const* data() const { return data_.data(); }
  const size_t* sizes() const { return sizes_.data(); }

 private:
  const std::vector<std::string> texts_;
  std::vector<const char*> data_;
  std::vector<size_t> sizes_;
};

// Where an argument or a result is. One that the framework knows as a pending sum along some axes
// is the sum, which is the first term there; the others are zero.
struct Boundary {
  bool token = false;  // no array at all: it orders effects, which are in order anyhow
  api::ArraySpec spec;
  // Where the framework has an argument that is not where the program takes it (Elsewhere).
  std::optional<api::Placement> elsewhere;
  ir::AxisList sum;
  // Of where the framework has it: the shape of each shard, and the ordinal of each partition's.
  ir::Dims local;
  std::vector<int> ordinals;

  const api::Placement& placement() const { return elsewhere ? *elsewhere : spec.placement; }
  // Whether the term of this partition is zero.
  bool IsZero(size_t partition) const {
    return !sum.empty() && placement().mesh.IndexAlong(ordinals[partition], sum) != 0;
  }
};

struct Compiled {
  Compiled(Client* of, internal::SentProgram whole, std::vector<AskedCall> calls,
           const ir::stablehlo::HostProgram& imported, const ir::stablehlo::Signature& main,
           std::shared_ptr<const Session::Executable> made, std::vector<Device*> on);

  Client* const client;
  const internal::SentProgram sent;  // whose last results only its calls of the host see
  const HeldCallbacks callbacks;
  const std::vector<AskedCall> asked;               // what they return is the last arguments
  const std::vector<ir::stablehlo::HostCall> late;  // see HostProgram
  const bool late_in_long_loop;
  const std::shared_ptr<const Session::Executable> executable;
  const std::vector<Device*> devices;  // by partition
  std::vector<LogicalDeviceIds> logical_ids;
  std::string fingerprint;
  std::vector<Boundary> in, out;
  std::vector<bool> donated;  // by argument
  bool donates = false;       // whether any is
  // What is told of results.
  std::vector<int> out_types;
  std::vector<int64_t> out_dims;
  std::vector<size_t> out_ranks;
  std::vector<Layout*> in_layouts, out_layouts;
  const Texts in_shardings, out_shardings, out_memory_kinds;
  std::string assignment;  // serialized DeviceAssignment
  std::string serialized;  // SerializedExecutable
  mutable absl::Mutex cost_mu;
  mutable Attributes cost ABSL_GUARDED_BY(cost_mu);  // empty until it is asked for
};

struct Executable {
  std::shared_ptr<const Compiled> compiled;
};

struct LoadedExecutable {
  std::shared_ptr<const Compiled> compiled;
  std::atomic<bool> deleted{false};
};

// Plans an artifact. `options`: a serialized CompileOptions.
//
// VALUE_ERROR for options that make no sense or are nobody's; NOT_IMPLEMENTED for several replicas
// and for tuples at the boundary; NOT_ENOUGH_DEVICES for a device that the client does not have;
// the errors of reading, importing and compiling the artifact.
absl::StatusOr<std::shared_ptr<const Compiled>> CompileArtifact(Client* client,
                                                                std::string_view code,
                                                                std::string_view options);

// A serialized OpSharding: how the value lies on devices, which are told by their partition.
std::string ShardingBytes(const Boundary& boundary, const std::vector<Device*>& devices);

Error* ParameterShardings(Shardings_Args* args);
Error* OutputShardings(Shardings_Args* args);

}  // namespace tessera::pjrt
