// The commands run, explain and export, for a program that is a text or a StableHLO artifact. `run`
// and `explain` use the cluster at the address, or one inside this process; `export` writes an
// artifact.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/options.h"
#include "base/status.h"
#include "client/cli/context.h"
#include "client/cli/mesh_args.h"
#include "client/cli/placing.h"
#include "client/cli/values.h"
#include "client/embedded.h"
#include "client/plan/plan_view.h"
#include "client/remote/json_client.h"
#include "client/show/explicit_text.h"
#include "client/show/picture.h"
#include "ir/api/run.h"
#include "ir/stablehlo/export.h"
#include "ir/stablehlo/import.h"
#include "ir/stablehlo/inspect.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace tessera::cli {
namespace {

constexpr absl::Duration kInterruptPollInterval = absl::Milliseconds(500);  // checks for Ctrl-C

// A program that a command line names, and where it runs.
struct LoadedProgram {
  ir::Program program;
  std::vector<int64_t> devices;  // from a named mesh or --devices; may be empty
};

absl::StatusOr<ir::Program> ProgramOfArtifact(std::string_view bytes) {
  TESSERA_ASSIGN_OR_RETURN(
      const ir::stablehlo::Artifact artifact,
      ir::stablehlo::ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  return ir::stablehlo::ImportProgram(artifact);
}

// Reads the program and applies --mesh and --devices. --mesh changes the program's text before it
// is parsed, so that all checks see the final sizes. An artifact has no such text and fixes its
// mesh.
absl::StatusOr<LoadedProgram> LoadProgram(Context& context, const Arguments& arguments) {
  const std::string path = arguments.Text("PROGRAM");
  TESSERA_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  LoadedProgram out;
  const bool is_artifact = ir::stablehlo::IsArtifact(text);
  if (is_artifact && arguments.Has("mesh")) {
    return UsageError("--mesh: ", path,
                      " is a StableHLO artifact, which runs on the mesh that it names; choose its "
                      "devices with --devices");
  }
  if (arguments.Has("mesh")) {
    const std::string mesh = arguments.Text("mesh");
    // A text that begins with a digit or contains '=' gives sizes, not a name.
    const bool gives_sizes = absl::StrContains(mesh, '=') ||
                             (!mesh.empty() && std::isdigit(static_cast<unsigned char>(mesh[0])));
    if (gives_sizes) {
      TESSERA_ASSIGN_OR_RETURN(text, WithMesh(text, mesh));
    } else {
      TESSERA_ASSIGN_OR_RETURN(NamedMesh named, FindMesh(context, mesh));
      out.devices = std::move(named.devices);
      const std::string axes = absl::StrJoin(
          named.mesh.axes, ",",
          [](std::string* o, const ir::MeshAxis& a) { absl::StrAppend(o, a.name, "=", a.size); });
      TESSERA_ASSIGN_OR_RETURN(text, WithMesh(text, axes));
    }
  }
  // The call sites of ops are the lines of the text, or the call sites in the artifact.
  absl::StatusOr<ir::Program> program =
      is_artifact   ? ProgramOfArtifact(text)
      : path == "-" ? ir::ParseProgram(text)
                    : ir::ParseProgram(text, {}, InternFile(path.substr(path.rfind('/') + 1)));
  if (!program.ok()) return Annotate(program.status(), path);
  out.program = *std::move(program);
  if (arguments.Has("devices")) {
    TESSERA_ASSIGN_OR_RETURN(out.devices, ParseInts(arguments.Text("devices")));
  }
  return out;
}

// Returns the cluster at the address, or one inside this process with enough devices for the
// program. `advice` is appended to the error for a mesh that is too large for this process.
absl::StatusOr<std::shared_ptr<api::Service>> ConnectForProgram(Context& context,
                                                                const LoadedProgram& loaded,
                                                                Context::SessionScope scope,
                                                                const std::string& advice = "") {
  int64_t count = loaded.program.mesh().num_devices();
  for (int64_t d : loaded.devices) count = std::max(count, d + 1);
  if (!context.has_address() && count > kEmbeddedDevicesMax) {
    return MakeError(
        ErrorKind::kNotEnoughDevices,
        absl::StrCat("mesh ", loaded.program.mesh().ToString(), ": ", count,
                     " devices are needed; a cluster inside this process has at most ",
                     kEmbeddedDevicesMax, ". Give the address of a larger one", advice));
  }
  return context.Connect(scope, static_cast<int>(std::min<int64_t>(count, kEmbeddedDevicesMax)));
}

absl::StatusOr<std::vector<ir::Array>> InputsOf(Context& context, const Arguments& arguments,
                                                const ir::Program& program) {
  const std::vector<ir::Type> types = program.entry->param_types();
  std::vector<std::string> texts = arguments.Texts("input");
  if (texts.empty() && !types.empty()) {
    context.Note("no --input: every parameter is filled with 0, 1, 2, ...");
    texts.assign(types.size(), "count");
  }
  if (texts.size() != types.size()) {
    return UsageError("the program takes ", types.size(), " inputs; ", texts.size(),
                      " were given with --input");
  }
  std::vector<ir::Array> out;
  for (size_t i = 0; i < types.size(); ++i) {
    absl::StatusOr<ir::Array> input = InputOf(texts[i], types[i]);
    if (!input.ok()) {
      return Annotate(input.status(),
                      std::string(absl::StrCat("input ", i, " (", types[i].ToString(), ")")));
    }
    out.push_back(*std::move(input));
  }
  return out;
}

// Waits for the run in short slices, so that Ctrl-C is noticed soon. Cancels the run at Ctrl-C and
// at the deadline, so that no run goes on after its user has given it up.
absl::Status Await(Context& context, const std::shared_ptr<api::Service>& service,
                   uint64_t operation) {
  Progress progress(context.display(), absl::StrCat("operation ", operation), 0,
                    context.shows_progress());
  while (true) {
    if (Context::Interrupted()) {
      TESSERA_RETURN_IF_ERROR(service->Cancel(operation));
      progress.Finish();
      return Context::InterruptedError(
          absl::StrCat("interrupted: operation ", operation, " was cancelled"));
    }
    absl::StatusOr<api::Operation> record =
        service->WaitOperation(operation, std::min(kInterruptPollInterval, context.left()));
    TESSERA_RETURN_IF_ERROR(record);
    switch (record->state) {
      case api::OperationState::kDone:
        return absl::OkStatus();
      case api::OperationState::kFailed:
      case api::OperationState::kCancelled:
        return record->error;
      case api::OperationState::kPending:
        progress.SetState(absl::StrCat("waits: ", ReplaceControlChars(record->pending_reason)));
        break;
      case api::OperationState::kRunning:
        progress.SetState("runs");
        break;
    }
    if (context.left() == absl::ZeroDuration()) {
      TESSERA_RETURN_IF_ERROR(service->Cancel(operation));
      return MakeError(ErrorKind::kDeadlineExceeded,
                       absl::StrCat("operation ", operation, " was not done within ",
                                    absl::FormatDuration(context.globals().timeout),
                                    " and was cancelled. Give it more time with --timeout"));
    }
  }
}

// Writes each result to a file if --out is given. Returns the JSON document of the command, which
// has the names of the files or, without --out, the values.
absl::StatusOr<Json> SaveResults(const Arguments& arguments, const std::vector<ir::Array>& results,
                                 bool json) {
  Json document = Json::object();
  const std::string folder = arguments.Text("out");
  if (!folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return UsageError(folder, ": ", error.message());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    document["types"].push_back(ir::MakeType(results[i].dtype(), results[i].shape()).ToString());
    if (!folder.empty()) {
      const std::string file = absl::StrCat(folder, "/result", i, ".npy");
      TESSERA_RETURN_IF_ERROR(WriteNpy(file, results[i]));
      document["files"].push_back(file);
    } else if (json) {
      TESSERA_ASSIGN_OR_RETURN(Json values, JsonOfArray(results[i]));
      document["outputs"].push_back(std::move(values));
    }
  }
  return document;
}

std::string ResultsText(const Display& display, const api::RunResult& result, bool keep,
                        const Json& document) {
  std::string out;
  for (size_t i = 0; i < result.run.outputs.size(); ++i) {
    const api::ArraySpec& spec = result.plan.out[i];
    absl::StrAppend(&out, display.Colorize(Style::kGreen, absl::StrCat("result ", i)), " ",
                    ir::MakeType(spec.dtype, spec.shape).ToString());
    if (keep) absl::StrAppend(&out, "  arrays/", result.run.outputs[i]);
    if (document.contains("files")) {
      absl::StrAppend(&out, "  ", document["files"][i].get<std::string>());
    } else if (i < result.values.size()) {
      const std::string text = result.values[i].ToString();
      absl::StrAppend(&out, text.find('\n') == std::string::npos ? " " : "\n", text);
    }
    out += "\n";
  }
  return out;
}

// Runs the program by api::RunProgram, which the coordinator's RPC RunProgram uses as well. The
// callbacks add what a command needs: each blocking step can be interrupted, uploads show their
// progress, and the wait shows why the run waits. With --keep the session is the tenant's own, so
// that the results outlive the command.
absl::Status Run(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const LoadedProgram loaded, LoadProgram(context, arguments));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<ir::Array> inputs,
                           InputsOf(context, arguments, loaded.program));
  const bool keep = arguments.Flag("keep");
  if (keep && !context.has_address()) {
    return UsageError("--keep needs a cluster that outlives the command: give --address");
  }
  TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<api::Service> service,
                           ConnectForProgram(context, loaded,
                                             keep ? Context::SessionScope::kPersistent
                                                  : Context::SessionScope::kCommand));
  api::CompileRequest compile;
  compile.program = loaded.program;
  compile.devices = loaded.devices;
  compile.name =
      arguments.Has("name") ? arguments.Text("name") : std::string(loaded.program.entry->name);
  std::optional<TransferMeter> meter;  // set while inputs are put
  api::RunOptions options;
  options.deadline = context.deadline();
  options.keep = keep;
  options.fetch = !keep || arguments.Has("out");
  options.carry_out = [&context, service](const std::string& what,
                                          const std::function<absl::Status()>& step) {
    return context.RunInterruptible(what, [service, step] { return step(); });
  };
  options.on_plan = [&](const api::CompileReply& plan) {
    int64_t bytes = 0;
    for (size_t i = 0; i < inputs.size(); ++i)
      bytes += BytesOn(plan.in[i].placement, inputs[i].num_bytes());
    meter.emplace(context, "inputs", bytes);
  };
  options.await = [&](uint64_t operation) {
    meter.reset();
    return Await(context, service, operation);
  };
  TESSERA_ASSIGN_OR_RETURN(const api::RunResult result,
                           api::RunProgram(*service, compile, inputs, options));
  TESSERA_ASSIGN_OR_RETURN(Json document, SaveResults(arguments, result.values, context.json()));
  document["operation"] = std::to_string(result.run.operation);
  if (keep) {
    for (uint64_t output : result.run.outputs) document["arrays"].push_back(std::to_string(output));
  }
  context.PrintResult(document, [&] {
    context.terminal().Print(ResultsText(context.display(), result, keep, document));
  });
  return absl::OkStatus();
}

// Returns the plan in the form of the response of ExplainProgram. The coordinator plans without
// compiling. Inside this process the plan comes with a compiled executable, unless `device_memory`
// is not 0: then the plan is for absent devices with this much memory each.
absl::StatusOr<Json> RequestPlan(Context& context, const LoadedProgram& loaded,
                                 int64_t device_memory) {
  if (context.has_address()) {
    TESSERA_ASSIGN_OR_RETURN(Json program,
                             ParseJson(remote::JsonOf(loaded.program), "the program"));
    Json request = {{"program", std::move(program)}};
    if (!loaded.devices.empty()) request["devices"] = loaded.devices;
    if (device_memory > 0) request["deviceMemoryBytes"] = std::to_string(device_memory);
    return context.Call("ProgramService/ExplainProgram", request);
  }
  TESSERA_ASSIGN_OR_RETURN(
      const std::shared_ptr<api::Service> service,
      device_memory > 0
          ? context.Connect(Context::SessionScope::kCommand, 1)
          : ConnectForProgram(
                context, loaded, Context::SessionScope::kCommand,
                ", or say --device-memory 80GiB to plan for devices that are absent"));
  api::CompileRequest compile;
  compile.plan_only = device_memory > 0;
  compile.device_memory_bytes = device_memory;
  compile.program = loaded.program;
  compile.devices = loaded.devices;
  compile.name = loaded.program.entry->name;
  compile.explain = true;
  TESSERA_ASSIGN_OR_RETURN(const api::CompileReply plan,
                           context.RunInterruptible<api::CompileReply>(
                               "plan", [service, compile] { return service->Compile(compile); }));
  Json out = {{"text", plan.explain_text},
              {"json", plan.explain_json},
              {"memoryBoundBytes", std::to_string(plan.memory_bound_bytes)}};
  out["devices"] = Json::array();
  for (const auto* specs : {&plan.in, &plan.out}) {
    if (!out["devices"].empty() || specs->empty()) continue;
    for (int64_t d : (*specs)[0].placement.devices) out["devices"].push_back(std::to_string(d));
  }
  out["pendingReasons"] = Json::array();
  return out;
}

// Returns the memory of an absent device, from --device-memory. 0 means that the plan is for
// devices of the cluster.
absl::StatusOr<int64_t> DeviceMemoryOf(const Arguments& arguments) {
  if (!arguments.Has("device-memory")) return 0;
  const std::string text = arguments.Text("device-memory");
  const std::optional<int64_t> bytes = ParseBytes(text);
  if (!bytes || *bytes < 1) {
    return UsageError("--device-memory '", text,
                      "': 80GiB, 512MiB or a number of bytes is expected");
  }
  return *bytes;
}

// Gets the plan and prints it as a picture, as text, as explicit shardings or as JSON. The picture
// groups devices by worker, which takes another call to the coordinator, so that call is made only
// for output that people read.
absl::Status Explain(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const int64_t device_memory, DeviceMemoryOf(arguments));
  TESSERA_ASSIGN_OR_RETURN(const LoadedProgram loaded, LoadProgram(context, arguments));
  if (device_memory > 0 && !loaded.devices.empty()) {
    return UsageError(
        "--device-memory is for devices that are absent; --devices, or a mesh of the cluster, "
        "names devices that exist");
  }
  TESSERA_ASSIGN_OR_RETURN(const Json answer, RequestPlan(context, loaded, device_memory));
  const Json& json = ChildOf(answer, "json");
  TESSERA_ASSIGN_OR_RETURN(
      internal::PlanView plan,
      internal::MakePlanView(loaded.program, json.is_string() ? json.get<std::string>() : ""));
  plan.devices = IntsOf(answer, "devices");
  if (static_cast<int64_t>(plan.devices.size()) != plan.mesh.num_devices()) plan.devices.clear();
  if (context.has_address() && !context.json() && !plan.devices.empty()) {
    TESSERA_ASSIGN_OR_RETURN(plan.worker_of, WorkersOfDevices(context));
  }
  if (arguments.Has("svg"))
    TESSERA_RETURN_IF_ERROR(WriteFile(arguments.Text("svg"), internal::SvgOf(plan)));
  context.PrintResult(answer, [&] {
    std::string out = arguments.Flag("text") ? TextOf(answer, "text")
                      : arguments.Flag("as-explicit")
                          ? internal::ExplicitText(plan)
                          : internal::PlanPicture(plan, context.display());
    const Json& reasons = ChildOf(answer, "pendingReasons");
    if (!reasons.empty()) {
      absl::StrAppend(&out, context.display().Colorize(Style::kYellow, " it would wait"), "\n");
    }
    for (const Json& r : reasons) {
      absl::StrAppend(&out, "   ", TextOf(r, "code"), ": ", TextOf(r, "message"), "\n");
    }
    context.terminal().Print(out);
  });
  return absl::OkStatus();
}

absl::Status Export(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const LoadedProgram loaded, LoadProgram(context, arguments));
  TESSERA_RETURN_IF_ERROR(ir::Verify(loaded.program));
  TESSERA_ASSIGN_OR_RETURN(const std::string bytes, ir::stablehlo::ExportProgram(loaded.program));
  TESSERA_ASSIGN_OR_RETURN(
      const ir::stablehlo::Artifact artifact,
      ir::stablehlo::ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  const std::string version = ir::stablehlo::Inspect(artifact).version;
  const std::string path = arguments.Text("out");
  TESSERA_RETURN_IF_ERROR(WriteFile(path, bytes));
  const Json document = {
      {"file", path}, {"bytes", std::to_string(bytes.size())}, {"stablehloVersion", version}};
  context.PrintResult(document, [&] {
    context.terminal().Print(absl::StrCat(path, ": a StableHLO artifact for StableHLO ", version,
                                          " or newer, ", bytes.size(), " bytes\n"));
  });
  return absl::OkStatus();
}

const Option kProgram =
    Positional("PROGRAM",
               "The program's text (docs/programs.md), or a StableHLO artifact, as jax.export "
               "writes it (docs/from_jax.md); - reads standard input.");

}  // namespace

// The rows of these commands. All three take the same PROGRAM, so that a command line that explains
// a program also runs or exports it.
std::vector<Command> ProgramCommands() {
  const Option mesh = MeshOption(
      "Mesh to use instead of the program's: sizes of its axes, 2x2 or data=2,model=2, or the name "
      "of a mesh of the cluster.");
  return {
      {.name = "run",
       .summary = "Runs a program and shows its results.",
       .options =
           {kProgram,
            {.name = "input",
             .short_name = 'i',
             .type = OptionType::kTexts,
             .value_name = "VALUE",
             .help = "Value of a parameter, one per parameter and in order: FILE.npy, FILE.json, "
                     "JSON such as [1, 2], or zeros, ones, count. Without any, every parameter is "
                     "count: 0, 1, 2, ..."},
            mesh,
            DevicesOption(),
            {.name = "out",
             .short_name = 'o',
             .value_name = "DIR",
             .help = "Write each result to DIR/resultN.npy."},
            Flag("keep", "Leave the results on the devices and print their ids."),
            {.name = "name",
             .value_name = "NAME",
             .help =
                 "Name of the program in top, ps and errors (default: the name of the function)."}},
       .timeout = absl::Minutes(10),
       .details =
           "Without an address the program runs on a cluster inside this process, with as many\n"
           "CPU devices as the mesh has. Ctrl-C, and the end of --timeout, cancel the run.",
       .run = Run},
      {.name = "explain",
       .summary =
           "Draws the plan of a program: where its arrays lie and what the devices exchange.",
       .options = {kProgram,
                   mesh,
                   DevicesOption(),
                   {.name = "device-memory",
                    .value_name = "SIZE",
                    .help = "Plan for absent devices, as many as the mesh has, each with this much "
                            "memory: 80GiB."},
                   Flag("text",
                        "Print the plan op by op, with the reason of each decision, instead of the "
                        "picture."),
                   Flag("as-explicit",
                        "Print the sharding of each line, to be written into the program, instead "
                        "of the picture."),
                   {.name = "svg",
                    .value_name = "FILE",
                    .help = "Draw the arguments and results into this SVG file as well."}},
       .timeout = absl::Minutes(5),
       .details =
           "The command compiles nothing for the cluster and runs nothing. Without an address\n"
           "the plan is for a cluster inside this process. With --device-memory the plan shows\n"
           "what the program would need and exchange on devices that are absent, or the command\n"
           "reports that the program does not fit (OUT_OF_MEMORY):\n"
           "--mesh data=64,model=8 --device-memory 80GiB.\n"
           "--as-explicit prints the PartitionSpecs that the planner chose: for each line a\n"
           "with_sharding_constraint that fixes its result on Auto axes, and the reshards and\n"
           "out_shardings that a program on Explicit axes needs for the same plan.",
       .run = Explain},
      {.name = "export",
       .summary = "Writes a program as a StableHLO artifact.",
       .options = {kProgram,
                   mesh,
                   {.name = "out",
                    .short_name = 'o',
                    .value_name = "FILE",
                    .help = "The file to write, such as model.mlirbc.",
                    .required = true}},
       .details =
           "JAX and other tools read the file. It uses the oldest version of StableHLO, 1.0 or\n"
           "newer, that can express the program. Derivative rules are left out. If StableHLO\n"
           "cannot express an op, the error is NOT_IMPLEMENTED.",
       .run = Export},
  };
}

}  // namespace tessera::cli
