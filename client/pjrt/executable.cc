// Executables of the plugin: compilation, serialization, and everything that the framework asks
// about arguments and results. An artifact becomes a program in this process, as its shapes and
// donations are needed here, and the service plans the program
// (docs/decisions/0027-the-plugin-is-a-client-of-the-sdk.md).
#include "client/pjrt/executable.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/build.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status.h"
#include "client/pjrt/layouts.h"
#include "client/pjrt/status.h"
#include "client/pjrt/types.h"
#include "client/pjrt/xla.pb.h"
#include "client/show/visualize.h"
#include "client/transform/stages.h"
#include "ir/api/placement.h"
#include "ir/stablehlo/import.h"
#include "ir/stablehlo/inspect.h"
#include "ir/text.h"

namespace tessera::pjrt {
namespace {

constexpr std::string_view kToken = "token";  // the ValueInfo::type of a token

std::vector<std::string> ShardingsOf(const std::vector<Boundary>& values,
                                     const std::vector<Device*>& devices) {
  std::vector<std::string> out;
  for (const Boundary& value : values) out.push_back(ShardingBytes(value, devices));
  return out;
}

// Returns a boundary for each of `values`, the arguments or results of the artifact, tokens
// included. `specs` has one entry per array, without tokens. `sums` and `other_placements` have one
// entry per array, too, or are empty.
std::vector<Boundary> BoundariesOf(
    const std::vector<ir::stablehlo::ValueInfo>& values, const std::vector<api::ArraySpec>& specs,
    const std::vector<ir::AxisList>& sums,
    const std::vector<std::optional<ir::stablehlo::OtherPlacement>>& other_placements,
    const std::vector<Device*>& devices) {
  std::vector<Boundary> out;
  size_t next = 0;  // index of the next array in `specs`
  for (const ir::stablehlo::ValueInfo& value : values) {
    Boundary& boundary = out.emplace_back();
    if (value.type == kToken) {
      boundary.is_token = true;
      boundary.spec.dtype = ir::DType::kBool;
      continue;
    }
    const api::ArraySpec& spec = specs.at(next);
    boundary.spec = spec;
    if (next < sums.size()) boundary.sum_axes = sums[next];
    if (next < other_placements.size() && other_placements[next]) {
      const ir::stablehlo::OtherPlacement& at = *other_placements[next];
      api::Placement& placement = boundary.other_placement.emplace();
      placement.mesh = at.mesh;
      placement.spec = at.spec;
      for (const int64_t partition : at.devices)
        placement.devices.push_back(devices.at(partition)->id);
    }
    boundary.local_shape = api::LocalShape(boundary.placement(), spec.shape);
    const std::vector<int64_t>& placed = boundary.placement().devices;
    for (const Device* device : devices) {
      const auto it = std::find(placed.begin(), placed.end(), device->id);
      boundary.ordinals.push_back(static_cast<int>(it - placed.begin()));
    }
    ++next;
  }
  return out;
}

// Returns whether the artifact's values, apart from tokens, correspond to the program's arrays.
// They do not correspond if the artifact has tuples, because in the program the parts of a tuple
// are separate arrays.
bool MatchArrays(const std::vector<ir::stablehlo::ValueInfo>& values, size_t num_arrays) {
  return static_cast<size_t>(std::count_if(values.begin(), values.end(), [](const auto& value) {
           return value.type != kToken;
         })) == num_arrays;
}

// Returns whether the option is one of the XLA compiler, which is not part of Tessera.
bool IsXlaOption(std::string_view name) {
  constexpr std::string_view kOthers[] = {"exec_time_optimization_effort", "memory_fitting_effort",
                                          "memory_fitting_level", "optimization_level"};
  return name.substr(0, 4) == "xla_" ||
         std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers);
}

absl::StatusOr<v1::CompileOptions> ParseOptions(std::string_view bytes) {
  v1::CompileOptions options;
  if (!options.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return MakeError(ErrorKind::kValueError, "the compile options do not decode");
  if (options.executable_build_options().num_replicas() > 1) {
    return MakeError(ErrorKind::kNotImplemented,
                     "programs with several replicas are not supported; use partitions instead");
  }
  for (const auto& [name, value] : options.env_option_overrides()) {
    if (IsXlaOption(name)) continue;
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("No such compile option: '", name,
                                  "'. Tessera has no compile options; XLA's options (xla_...) are "
                                  "accepted and have no effect"));
  }
  return options;
}

// Returns the device of each partition.
absl::StatusOr<std::vector<Device*>> DevicesOf(const Client& client,
                                               const v1::ExecutableBuildOptions& options) {
  const int64_t partitions = std::max<int64_t>(options.num_partitions(), 1);
  std::vector<Device*> out;
  if (!options.has_device_assignment()) {
    if (static_cast<size_t>(partitions) > client.devices.size()) {
      return MakeError(ErrorKind::kNotEnoughDevices,
                       absl::StrCat("the program is for ", partitions, " devices; the client has ",
                                    client.devices.size()));
    }
    out.assign(client.devices.begin(), client.devices.begin() + partitions);
    return out;
  }
  for (const auto& partition : options.device_assignment().computation_devices()) {
    if (partition.replica_device_ids_size() != 1)
      return MakeError(ErrorKind::kNotImplemented,
                       "programs with several replicas are not supported");
    Device* const device = client.FindDevice(partition.replica_device_ids(0));
    if (device == nullptr) {
      return MakeError(ErrorKind::kNotEnoughDevices,
                       absl::StrCat("the client has no device ", partition.replica_device_ids(0)));
    }
    out.push_back(device);
  }
  if (static_cast<int64_t>(out.size()) != partitions) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("the program is for ", partitions, " partitions, and ",
                                  out.size(), " devices are assigned"));
  }
  return out;
}

// Returns the ids of the devices of the program's mesh, row-major.
absl::StatusOr<std::vector<int64_t>> MeshDeviceIds(const ir::stablehlo::Artifact& artifact,
                                                   const ir::Program& program,
                                                   const std::vector<Device*>& devices) {
  const int64_t mesh_devices = program.mesh().num_devices();
  if (mesh_devices != static_cast<int64_t>(devices.size())) {
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat("the program's mesh ", program.mesh().ToString(), " has ", mesh_devices,
                     " devices, and it is compiled for ", devices.size()));
  }
  TESSERA_ASSIGN_OR_RETURN(std::vector<int64_t> partitions, ir::stablehlo::DevicesOfMesh(artifact));
  if (partitions.empty()) {
    partitions.resize(mesh_devices);
    std::iota(partitions.begin(), partitions.end(), 0);
  }
  std::vector<int64_t> out;
  for (const int64_t partition : partitions) out.push_back(devices.at(partition)->id);
  return out;
}

std::string AssignmentBytes(const std::vector<Device*>& devices) {
  v1::DeviceAssignment assignment;
  assignment.set_replica_count(1);
  assignment.set_computation_count(static_cast<int>(devices.size()));
  for (const Device* device : devices)
    assignment.add_computation_devices()->add_replica_device_ids(device->description.id);
  return assignment.SerializeAsString();
}

// Writes the artifact, the program and the plan to files under $TESSERA_JAX_DUMP, if that is set. A
// failure to write is logged, and does not fail the compilation.
class CompileDump {
 public:
  explicit CompileDump(const std::string& name) {
    const char* const folder = std::getenv("TESSERA_JAX_DUMP");
    if (folder == nullptr || *folder == '\0') return;
    static std::atomic<int> last{0};
    std::error_code ignored;
    std::filesystem::create_directories(folder, ignored);
    stem_ = absl::StrCat(folder, "/", absl::StrFormat("%04d", ++last), "_", name);
  }
  bool wanted() const { return !stem_.empty(); }
  void Write(const char* suffix, std::string_view text) const {
    if (!wanted()) return;
    const int error = TryReplaceFile(absl::StrCat(stem_, suffix), text,
                                     {.access = FileAccess::kByUmask, .is_durable = false});
    if (error != 0) TESSERA_LOG(WARNING) << "TESSERA_JAX_DUMP: cannot write " << stem_ << suffix;
  }

 private:
  std::string stem_;  // path of the files without suffix; empty if no dump is wanted
};

}  // namespace

Texts::Texts(std::vector<std::string> texts) : texts_(std::move(texts)) {
  for (const std::string& text : texts_) {
    data_.push_back(text.data());
    sizes_.push_back(text.size());
  }
  if (texts_.empty()) {
    data_.push_back("");
    sizes_.push_back(0);
  }
}

namespace {

// Adds the order of the devices to the sharding. `placed` lists the partitions, ordered by tile,
// then by copy, then by summand. If this order is a transposition of the mesh, it is written in
// that form, because the framework reads back no other form.
void AddDeviceOrder(const ir::Mesh& mesh, const ir::AxisList& axes, const ir::AxisList& unreduced,
                    const std::vector<int64_t>& placed, v1::OpSharding* out) {
  const auto is_among = [](const ir::AxisList& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  ir::AxisList order = axes;
  for (const ir::MeshAxis& axis : mesh.axes) {
    if (!is_among(axes, axis.name) && !is_among(unreduced, axis.name)) order.push_back(axis.name);
  }
  order.insert(order.end(), unreduced.begin(), unreduced.end());
  bool transposed = true;
  for (int64_t device = 0; device < mesh.num_devices(); ++device)
    transposed = transposed && placed[mesh.IndexAlong(device, order)] == device;
  if (!transposed) {
    for (const int64_t partition : placed) out->add_tile_assignment_devices(partition);
    return;
  }
  for (const ir::MeshAxis& axis : mesh.axes) out->add_iota_reshape_dims(axis.size);
  for (const std::string& axis : order) out->add_iota_transpose_perm(mesh.IndexOf(axis));
}

}  // namespace

// Translates a placement into XLA's form. OpSharding has no mesh axes: it cuts dims into tiles, and
// may say that the devices of a tile hold copies or the summands of a pending sum. So the axes of
// the mesh are split into the axes that shard dims, the axes along which the devices hold summands,
// and the other axes, along which the devices hold copies.
std::string ShardingBytes(const Boundary& boundary, const std::vector<Device*>& devices) {
  const api::ArraySpec& spec = boundary.spec;
  v1::OpSharding out;
  if (boundary.is_token) return out.SerializeAsString();  // replicated
  const api::Placement& placement = boundary.placement();
  const ir::Mesh& mesh = placement.mesh;
  ir::AxisList axes;  // axes that shard dims, in the order of the dims
  int64_t tiles = 1;
  std::vector<int64_t> tiles_per_dim(spec.shape.size(), 1);
  for (size_t d = 0; d < placement.spec.dims.size() && d < tiles_per_dim.size(); ++d) {
    for (const std::string& axis : placement.spec.dims[d]) axes.push_back(axis);
    tiles_per_dim[d] = mesh.SizeOf(placement.spec.dims[d]);
    tiles *= tiles_per_dim[d];
  }
  ir::AxisList unreduced = placement.spec.unreduced;
  unreduced.insert(unreduced.end(), boundary.sum_axes.begin(), boundary.sum_axes.end());
  const int64_t summands = mesh.SizeOf(unreduced);
  const int64_t copies = static_cast<int64_t>(devices.size()) / (tiles * summands);
  if (tiles * summands == 1) return out.SerializeAsString();  // replicated
  if (tiles * copies == 1) {
    out.set_type(v1::OpSharding::UNREDUCED);
    return out.SerializeAsString();
  }
  out.set_type(v1::OpSharding::OTHER);
  for (const int64_t n : tiles_per_dim) out.add_tile_assignment_dimensions(n);
  if (copies > 1) out.add_tile_assignment_dimensions(copies);
  if (summands > 1) {
    out.add_tile_assignment_dimensions(summands);
    if (copies > 1) out.add_last_tile_dims(v1::OpSharding::REPLICATED);
    out.add_last_tile_dims(v1::OpSharding::UNREDUCED);
  } else {
    out.set_replicate_on_last_tile_dim(copies > 1);
  }
  // Partitions, by tile, by copy and by summand.
  std::vector<int64_t> placed(devices.size(), -1), copies_seen(tiles * summands, 0);
  for (size_t i = 0; i < placement.devices.size(); ++i) {
    const auto partition = std::find_if(devices.begin(), devices.end(), [&](const Device* d) {
      return d->id == placement.devices[i];
    });
    const auto position = static_cast<int64_t>(i);
    const int64_t tile = mesh.IndexAlong(position, axes);
    const int64_t summand = mesh.IndexAlong(position, unreduced);
    const int64_t copy = copies_seen[tile * summands + summand]++;
    placed[(tile * copies + copy) * summands + summand] = partition - devices.begin();
  }
  AddDeviceOrder(mesh, axes, unreduced, placed, &out);
  return out.SerializeAsString();
}

CompiledProgram::CompiledProgram(Client* of, internal::SentProgram whole,
                                 std::vector<CallBeforeRun> calls,
                                 const ir::stablehlo::HostProgram& imported,
                                 const ir::stablehlo::Signature& main,
                                 std::shared_ptr<const Session::Executable> made,
                                 std::vector<Device*> on)
    : client(of),
      sent(std::move(whole)),
      callbacks(imported.callbacks),
      calls_before_run(std::move(calls)),
      nested_calls(imported.nested_calls),
      executable(std::move(made)),
      devices(std::move(on)),
      in(BoundariesOf(main.params, executable->reply.in, imported.in_sums,
                      imported.in_other_placements, devices)),
      out(BoundariesOf(main.results, executable->reply.out, imported.out_sums, {}, devices)),
      in_shardings(ShardingsOf(in, devices)),
      out_shardings(ShardingsOf(out, devices)),
      out_memory_kinds(std::vector<std::string>(out.size(), kDeviceMemory)),
      assignment(AssignmentBytes(devices)) {
  for (size_t k = 0; k < devices.size(); ++k) logical_ids.push_back({0, static_cast<int>(k)});
  for (const Boundary& result : out) {
    out_types.push_back(result.is_token ? kTokenType : PjrtTypeOfDType(result.spec.dtype));
    out_dims.insert(out_dims.end(), result.local_shape.begin(), result.local_shape.end());
    out_ranks.push_back(result.local_shape.size());
    out_layouts.push_back(RowMajorLayout(result.local_shape.size()));
  }
  for (const Boundary& param : in) in_layouts.push_back(RowMajorLayout(param.local_shape.size()));
}

// Reads the artifact as a program, takes its prints and its calls of the host out, and has the
// service plan what is left. The parts that were taken out stay in this process. The serialized
// form keeps the artifact and the options and not the plan, as a plan is bound to devices of one
// cluster.
absl::StatusOr<std::shared_ptr<const CompiledProgram>> CompileArtifact(
    Client* client, std::string_view code, std::string_view options_bytes) {
  TESSERA_ASSIGN_OR_RETURN(const v1::CompileOptions options, ParseOptions(options_bytes));
  TESSERA_ASSIGN_OR_RETURN(std::vector<Device*> devices,
                           DevicesOf(*client, options.executable_build_options()));
  TESSERA_ASSIGN_OR_RETURN(
      const ir::stablehlo::Artifact artifact,
      ir::stablehlo::ReadArtifact({reinterpret_cast<const uint8_t*>(code.data()), code.size()}));
  TESSERA_ASSIGN_OR_RETURN(ir::stablehlo::HostProgram imported,
                           ir::stablehlo::ImportForHost(artifact));
  const ir::stablehlo::Signature main = ir::stablehlo::SignatureOf(artifact);
  size_t num_params = imported.program.entry->num_params;
  size_t num_results = imported.program.entry->results.size();
  for (const ir::stablehlo::HostCall& call : imported.calls) {
    num_params -= call.results.size();
    num_results -= call.num_operands;
  }
  if (!MatchArrays(main.params, num_params) || !MatchArrays(main.results, num_results)) {
    return MakeError(
        ErrorKind::kNotImplemented,
        "programs with tuples, or with thousands of arguments or results, are not supported");
  }
  internal::SentProgram sent = internal::SplitPrints(imported.program, Site{});
  TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> mesh_device_ids,
                           MeshDeviceIds(artifact, sent.program, devices));
  const std::string& name = imported.program.entry->name;
  TESSERA_ASSIGN_OR_RETURN(
      std::vector<CallBeforeRun> calls_before_run,
      SplitCalls(*client, imported.calls, mesh_device_ids, sent.num_printed, &sent.program));
  const CompileDump dump(name);
  dump.Write(".mlirbc", code);
  if (dump.wanted()) dump.Write(".program.txt", ir::PrintProgram(sent.program));
  std::shared_ptr<const Session::Executable> executable = client->session->Compile(
      sent.program, mesh_device_ids, name, /*explain=*/dump.wanted(), Site{});
  dump.Write(".plan.txt", executable->reply.explain_text);
  dump.Write(".plan.json", executable->reply.explain_json);
  auto out =
      std::make_shared<CompiledProgram>(client, std::move(sent), std::move(calls_before_run),
                                        imported, main, std::move(executable), std::move(devices));
  for (const ir::stablehlo::ValueInfo& param : main.params) out->donated.push_back(param.donated);
  out->donates = std::find(out->donated.begin(), out->donated.end(), true) != out->donated.end();
  v1::SerializedExecutable serialized;
  serialized.set_build(BuildText(ThisBuild()));
  serialized.set_code(code.data(), code.size());
  serialized.set_compile_options(options_bytes.data(), options_bytes.size());
  out->serialized = serialized.SerializeAsString();
  out->fingerprint = Sha256Hex(out->serialized);
  return std::shared_ptr<const CompiledProgram>(std::move(out));
}

Error* Client_Compile(Client_Compile_Args* args) {
  return Guarded([args]() -> absl::Status {
    const std::string_view format(args->program->format, args->program->format_size);
    if (format != "mlir") {
      return MakeError(ErrorKind::kNotImplemented,
                       absl::StrCat("programs in the format '", ToAbsl(format),
                                    "' are not supported; use StableHLO artifacts ('mlir')"));
    }
    TESSERA_ASSIGN_OR_RETURN(
        std::shared_ptr<const CompiledProgram> compiled,
        CompileArtifact(args->client, {args->program->code, args->program->code_size},
                        {args->compile_options, args->compile_options_size}));
    args->executable = new LoadedExecutable{std::move(compiled)};
    return absl::OkStatus();
  });
}

Error* Executable_DeserializeAndLoad(Executable_DeserializeAndLoad_Args* args) {
  return Guarded([args]() -> absl::Status {
    v1::SerializedExecutable stored;
    if (!stored.ParseFromArray(args->serialized_executable,
                               static_cast<int>(args->serialized_executable_size))) {
      return MakeError(ErrorKind::kValueError, "the serialized executable does not decode");
    }
    if (stored.build() != BuildText(ThisBuild())) {
      return MakeError(
          ErrorKind::kValueError,
          absl::StrCat("the executable was serialized by ", stored.build(), ", but this client is ",
                       BuildText(ThisBuild()), ": compile the program anew"));
    }
    std::string_view options = stored.compile_options();
    if (args->overridden_serialized_compile_options != nullptr) {
      options = {args->overridden_serialized_compile_options,
                 args->overridden_serialized_compile_options_size};
    }
    TESSERA_ASSIGN_OR_RETURN(std::shared_ptr<const CompiledProgram> compiled,
                             CompileArtifact(args->client, stored.code(), options));
    args->loaded_executable = new LoadedExecutable{std::move(compiled)};
    return absl::OkStatus();
  });
}

Error* Executable_Destroy(Executable_Destroy_Args* args) {
  delete args->executable;
  return nullptr;
}

Error* Executable_Name(Executable_Name_Args* args) {
  const std::string& name = args->executable->compiled->executable->name;
  args->executable_name = name.data();
  args->executable_name_size = name.size();
  return nullptr;
}

Error* Executable_NumReplicas(Executable_NumReplicas_Args* args) {
  args->num_replicas = 1;
  return nullptr;
}

Error* Executable_NumPartitions(Executable_NumPartitions_Args* args) {
  args->num_partitions = args->executable->compiled->devices.size();
  return nullptr;
}

Error* Executable_NumOutputs(Executable_NumOutputs_Args* args) {
  args->num_outputs = args->executable->compiled->out.size();
  return nullptr;
}

// Returns 0, because the code of an executable is on the executors.
Error* Executable_SizeOfGeneratedCodeInBytes(Executable_SizeOfGeneratedCodeInBytes_Args* args) {
  args->size_in_bytes = 0;
  return nullptr;
}

Error* Executable_OutputMemoryKinds(Executable_OutputMemoryKinds_Args* args) {
  const Texts& kinds = args->executable->compiled->out_memory_kinds;
  args->num_outputs = kinds.size();
  args->memory_kinds = kinds.data();
  args->memory_kind_sizes = kinds.sizes();
  return nullptr;
}

Error* Executable_Serialize(Executable_Serialize_Args* args) {
  return Guarded([args]() -> absl::Status {
    auto* const kept = new std::string(args->executable->compiled->serialized);
    args->serialized_bytes = kept->data();
    args->serialized_bytes_size = kept->size();
    args->serialized_executable = kept;
    args->serialized_executable_deleter = [](void* p) { delete static_cast<std::string*>(p); };
    return absl::OkStatus();
  });
}

Error* Executable_OutputElementTypes(Executable_OutputElementTypes_Args* args) {
  const std::vector<int>& types = args->executable->compiled->out_types;
  args->output_types = const_cast<int*>(types.data());
  args->num_output_types = types.size();
  return nullptr;
}

Error* Executable_OutputDimensions(Executable_OutputDimensions_Args* args) {
  const CompiledProgram& compiled = *args->executable->compiled;
  args->num_outputs = compiled.out_ranks.size();
  args->dims = compiled.out_dims.data();
  args->dim_sizes = compiled.out_ranks.data();
  return nullptr;
}

Error* Executable_Fingerprint(Executable_Fingerprint_Args* args) {
  const std::string& fingerprint = args->executable->compiled->fingerprint;
  args->executable_fingerprint = fingerprint.data();
  args->executable_fingerprint_size = fingerprint.size();
  return nullptr;
}

Error* Executable_GetCompiledMemoryStats(Executable_GetCompiledMemoryStats_Args* args) {
  const CompiledProgram& compiled = *args->executable->compiled;
  std::vector<bool> donate;
  for (size_t i = 0; i < compiled.in.size(); ++i)
    if (!compiled.in[i].is_token) donate.push_back(compiled.donated[i]);
  donate.resize(compiled.executable->reply.in.size());
  const stages::CompiledMemoryStats found =
      stages::MemoryOfPlan(compiled.executable->reply, donate);
  args->generated_code_size_in_bytes = 0;
  args->argument_size_in_bytes = found.argument_size_in_bytes;
  args->output_size_in_bytes = found.output_size_in_bytes;
  args->alias_size_in_bytes = found.alias_size_in_bytes;
  args->temp_size_in_bytes = found.temp_size_in_bytes;
  args->host_generated_code_size_in_bytes = 0;
  args->host_argument_size_in_bytes = 0;
  args->host_output_size_in_bytes = 0;
  args->host_alias_size_in_bytes = 0;
  args->host_temp_size_in_bytes = 0;
  args->peak_memory_in_bytes = found.peak_memory_in_bytes;
  args->total_size_in_bytes = found.peak_memory_in_bytes;
  return nullptr;
}

// Reads the costs from the explanation of the plan. The explanation is made at the first call,
// since only users who want to know the costs call this function.
Error* Executable_GetCostAnalysis(Executable_GetCostAnalysis_Args* args) {
  return Guarded([args]() -> absl::Status {
    const CompiledProgram& compiled = *args->executable->compiled;
    absl::MutexLock lock(&compiled.cost_mu);
    if (compiled.cost.values().empty()) {
      const std::shared_ptr<const Session::Executable> explained =
          compiled.client->session->Compile(compiled.sent.program,
                                            compiled.executable->reply.devices,
                                            compiled.executable->name, /*explain=*/true, Site{});
      const stages::CostAnalysis found = stages::CostOfPlan(explained->reply.explain_json);
      compiled.cost.Add("flops", static_cast<float>(found.flops));
      compiled.cost.Add("bytes accessed", static_cast<float>(found.bytes_accessed));
      compiled.cost.Add("optimal_seconds", static_cast<float>(found.optimal_seconds));
      compiled.cost.Add("explain", explained->reply.explain_text);
      compiled.cost.Add("visualize", internal::PlanTextOf(compiled.sent.program, explained->reply));
      compiled.cost.Add("visualize_svg",
                        internal::PlanSvgOf(compiled.sent.program, explained->reply));
    }
    args->properties = compiled.cost.values().data();
    args->num_properties = compiled.cost.values().size();
    return absl::OkStatus();
  });
}

Error* LoadedExecutable_Destroy(LoadedExecutable_Destroy_Args* args) {
  delete args->executable;
  return nullptr;
}

Error* LoadedExecutable_GetExecutable(LoadedExecutable_GetExecutable_Args* args) {
  args->executable = new Executable{args->loaded_executable->compiled};
  return nullptr;
}

Error* LoadedExecutable_AddressableDevices(LoadedExecutable_AddressableDevices_Args* args) {
  args->addressable_devices = args->executable->compiled->devices.data();
  args->num_addressable_devices = args->executable->compiled->devices.size();
  return nullptr;
}

Error* LoadedExecutable_AddressableDeviceLogicalIds(
    LoadedExecutable_AddressableDeviceLogicalIds_Args* args) {
  const std::vector<LogicalDeviceIds>& ids = args->executable->compiled->logical_ids;
  args->addressable_device_logical_ids = const_cast<LogicalDeviceIds*>(ids.data());
  args->num_addressable_device_logical_ids = ids.size();
  return nullptr;
}

Error* LoadedExecutable_Delete(LoadedExecutable_Delete_Args* args) {
  args->executable->deleted.store(true);
  return nullptr;
}

Error* LoadedExecutable_IsDeleted(LoadedExecutable_IsDeleted_Args* args) {
  args->is_deleted = args->executable->deleted.load();
  return nullptr;
}

Error* LoadedExecutable_GetDeviceAssignment(LoadedExecutable_GetDeviceAssignment_Args* args) {
  const std::string& assignment = args->executable->compiled->assignment;
  args->serialized_bytes = assignment.data();
  args->serialized_bytes_size = assignment.size();
  args->serialized_device_assignment = nullptr;
  args->serialized_device_assignment_deleter = [](void*) {};  // the executable owns the bytes
  return nullptr;
}

namespace {
// Stores the shardings in the results of the call.
Error* SetShardings(const Texts& shardings, Shardings_Args* args) {
  args->num_shardings = shardings.size();
  args->shardings = shardings.data();
  args->sharding_sizes = shardings.sizes();
  return nullptr;
}
}  // namespace

Error* ParameterShardings(Shardings_Args* args) {
  return SetShardings(args->executable->compiled->in_shardings, args);
}
// Returns at least one sharding, because the framework wants one even if a program has no results.
Error* OutputShardings(Shardings_Args* args) {
  SetShardings(args->executable->compiled->out_shardings, args);
  args->num_shardings = std::max<size_t>(args->num_shardings, 1);
  return nullptr;
}

}  // namespace tessera::pjrt
