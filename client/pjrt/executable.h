// Executables: programs that are planned for devices, with everything that the framework (such as
// JAX) may ask about them.
//
// Owned by the framework. Immutable, except for the mark that they are deleted. Thread-safe.
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
#include "client/pjrt/host_callbacks.h"
#include "client/trace/prints.h"
#include "ir/stablehlo/import.h"
#include "ir/stablehlo/inspect.h"

namespace tessera::pjrt {

// Texts that the framework reads as two lists: one of pointers, one of lengths.
class Texts {
 public:
  explicit Texts(std::vector<std::string> texts = {});
  Texts(const Texts&) = delete;
  Texts& operator=(const Texts&) = delete;
  size_t size() const { return texts_.size(); }
  // Has at least one entry, because the framework reads one even if a program has no values.
  const char* const* data() const { return data_.data(); }
  const size_t* sizes() const { return sizes_.data(); }

 private:
  const std::vector<std::string> texts_;
  std::vector<const char*> data_;
  std::vector<size_t> sizes_;
};

// The shape and the placement of an argument or a result. The framework may take the value for a
// pending sum along `sum_axes`, although the service holds the sum itself. The plugin then shows
// the framework the sum as the first summand, and zeros as all other summands.
struct Boundary {
  // True for a token, which is no array. Tokens order effects, which are in order anyhow.
  bool is_token = false;
  api::ArraySpec spec;
  // The placement that the framework gives an argument, if the program takes it elsewhere
  // (ir/stablehlo/other_placement.h).
  std::optional<api::Placement> other_placement;
  ir::AxisList sum_axes;
  // The shape of each shard and, by partition, the ordinal of its shard. Both describe the
  // placement that the framework knows.
  ir::Dims local_shape;
  std::vector<int> ordinals;

  const api::Placement& placement() const {
    return other_placement ? *other_placement : spec.placement;
  }
  // Returns whether the summand of this partition is zero.
  bool IsZero(size_t partition) const {
    return !sum_axes.empty() && placement().mesh.IndexAlong(ordinals[partition], sum_axes) != 0;
  }
};

// A program that is planned for devices. Executables and loaded executables share it.
struct CompiledProgram {
  CompiledProgram(Client* of, internal::SentProgram whole, std::vector<CallBeforeRun> calls,
                  const ir::stablehlo::HostProgram& imported, const ir::stablehlo::Signature& main,
                  std::shared_ptr<const Session::Executable> made, std::vector<Device*> on);

  Client* const client;
  // The program in the form that is sent. The last results of the program are the record of its
  // calls of the host; the framework does not get them.
  const internal::SentProgram sent;
  const HeldCallbacks callbacks;
  // The calls that are made before a run. The results of these calls are the last arguments of the
  // program.
  const std::vector<CallBeforeRun> calls_before_run;
  const std::vector<ir::stablehlo::HostCall> nested_calls;  // see HostProgram::nested_calls
  const std::shared_ptr<const Session::Executable> executable;
  const std::vector<Device*> devices;  // the device of each partition
  std::vector<LogicalDeviceIds> logical_ids;
  std::string fingerprint;
  std::vector<Boundary> in, out;
  std::vector<bool> donated;  // by argument, whether it is donated
  bool donates = false;       // whether any argument is donated
  // The answers to the framework's questions about results and arguments.
  std::vector<int> out_types;
  std::vector<int64_t> out_dims;
  std::vector<size_t> out_ranks;
  std::vector<Layout*> in_layouts, out_layouts;
  const Texts in_shardings, out_shardings, out_memory_kinds;
  std::string assignment;  // serialized DeviceAssignment
  std::string serialized;  // SerializedExecutable
  mutable absl::Mutex cost_mu;
  mutable Attributes cost ABSL_GUARDED_BY(cost_mu);  // empty until the framework asks for the cost
};

struct Executable {
  std::shared_ptr<const CompiledProgram> compiled;
};

struct LoadedExecutable {
  std::shared_ptr<const CompiledProgram> compiled;
  std::atomic<bool> deleted{false};
};

// Plans the StableHLO artifact `code`. `options` is a serialized CompileOptions.
//
// Errors: VALUE_ERROR for options that make no sense or are not known; NOT_IMPLEMENTED for several
// replicas and for tuples among arguments or results; NOT_ENOUGH_DEVICES for a device that the
// client does not have; the errors of reading, importing and compiling the artifact.
absl::StatusOr<std::shared_ptr<const CompiledProgram>> CompileArtifact(Client* client,
                                                                       std::string_view code,
                                                                       std::string_view options);

// Returns the sharding of the value as a serialized OpSharding, which numbers devices by partition.
std::string ShardingBytes(const Boundary& boundary, const std::vector<Device*>& devices);

Error* ParameterShardings(Shardings_Args* args);
Error* OutputShardings(Shardings_Args* args);

}  // namespace tessera::pjrt
