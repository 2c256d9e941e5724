// The command inspect: reads a program inside this process and describes it. It needs no cluster,
// and also describes artifacts that Tessera cannot run.
#include "ir/stablehlo/inspect.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/words.h"
#include "client/cli/context.h"
#include "client/cli/values.h"
#include "ir/stablehlo/import.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace tessera::cli {
namespace {

using ir::stablehlo::Inspection;
using ir::stablehlo::OpCounts;
using ir::stablehlo::ValueInfo;

struct InspectedFile {
  Inspection inspection;
  bool is_artifact = false;
  int64_t bytes = 0;
  std::string problem;  // the reason why the program does not run; empty if it runs
};

absl::StatusOr<InspectedFile> ReadAndInspect(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  InspectedFile out;
  out.bytes = static_cast<int64_t>(bytes.size());
  out.is_artifact = ir::stablehlo::IsArtifact(bytes);
  if (!out.is_artifact) {
    const absl::StatusOr<ir::Program> program = ir::ParseProgram(bytes);
    if (!program.ok()) return Annotate(program.status(), path);
    out.inspection = ir::stablehlo::Inspect(*program);
    return out;
  }
  const absl::StatusOr<ir::stablehlo::Artifact> artifact =
      ir::stablehlo::ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  if (!artifact.ok()) return Annotate(artifact.status(), path);
  out.inspection = ir::stablehlo::Inspect(*artifact);
  const absl::StatusOr<ir::Program> program = ir::stablehlo::ImportProgram(*artifact);
  const absl::Status status = program.ok() ? ir::Verify(*program) : program.status();
  out.problem = std::string(status.message());
  return out;
}

// ---- Text. --------------------------------------------------------------------------------------
void AddValueRows(const std::string& what, const std::vector<ValueInfo>& values, Table* table) {
  for (size_t i = 0; i < values.size(); ++i)
    table->AddRow({absl::StrCat(what, " ", i), values[i].name, values[i].type, values[i].sharding});
}

// Returns a table of the ops and how often each occurs, the most frequent op first.
std::string CountsText(OpCounts counts, const Display& display) {
  std::stable_sort(counts.begin(), counts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  Table table({">times", "op"});
  for (const auto& [name, count] : counts) table.AddRow({absl::StrCat(count), name});
  return table.ToText(display);
}

// Returns a description of the program: its form, signature, meshes and ops, the ops that Tessera
// lacks, and whether it runs. The last line, whether it runs, is what most users look for, so that
// line is coloured.
std::string DescriptionText(const InspectedFile& file, const Display& display) {
  const Inspection& in = file.inspection;
  const auto heading = [&](const std::string& text) {
    return absl::StrCat("\n", display.Colorize(Style::kBold, text), "\n");
  };
  std::string form = "a program in the text form";
  if (file.is_artifact) {
    form = "a StableHLO artifact";
    if (!in.version.empty())
      absl::StrAppend(&form, " for StableHLO ", in.version, " or newer");
    else if (!in.producer.empty())
      absl::StrAppend(&form, " by ", in.producer);
  }
  std::string out = absl::StrCat(display.Colorize(Style::kCyan, in.name), ": ", form, ", ",
                                 file.bytes, " bytes\n");
  Table values({"", "name", "type", "sharding"});
  AddValueRows("argument", in.main.params, &values);
  AddValueRows("result", in.main.results, &values);
  if (!values.empty()) absl::StrAppend(&out, heading("signature"), values.ToText(display));
  if (!in.meshes.empty()) {
    Table meshes({"name", "axes"});
    for (const auto& [name, mesh] : in.meshes)
      meshes.AddRow({name.empty() ? "" : absl::StrCat("@", name), mesh.ToString()});
    absl::StrAppend(&out, heading("mesh"), meshes.ToText(display));
  }
  int64_t ops = 0;
  for (const auto& [name, count] : in.ops) ops += count;
  absl::StrAppend(&out, heading(Pluralize(ops, "op")), CountsText(in.ops, display));
  if (!in.lacking.empty())
    absl::StrAppend(&out, heading("ops that Tessera lacks"), CountsText(in.lacking, display));
  absl::StrAppend(
      &out, "\n",
      file.problem.empty()
          ? display.Colorize(Style::kGreen, "Tessera runs it.")
          : display.Colorize(Style::kRed, absl::StrCat("Tessera does not run it: ", file.problem)),
      "\n");
  return out;
}

// ---- JSON in the form of InspectProgramResponse. ------------------------------------------------
Json JsonOf(const std::vector<ValueInfo>& values) {
  Json out = Json::array();
  for (const ValueInfo& value : values)
    out.push_back({{"type", value.type}, {"name", value.name}, {"sharding", value.sharding}});
  return out;
}

Json JsonOf(const OpCounts& counts) {
  Json out = Json::object();
  for (const auto& [name, count] : counts) out[name] = std::to_string(count);
  return out;
}

Json JsonOf(const InspectedFile& file) {
  const Inspection& in = file.inspection;
  Json meshes = Json::array();
  for (const auto& [name, mesh] : in.meshes) {
    Json axes = Json::array();
    for (const ir::MeshAxis& axis : mesh.axes)
      axes.push_back({{"name", axis.name}, {"size", std::to_string(axis.size)}});
    meshes.push_back({{"name", name}, {"mesh", {{"axes", std::move(axes)}}}});
  }
  return {{"format", file.is_artifact ? "PROGRAM_FORMAT_STABLEHLO" : "PROGRAM_FORMAT_TESSERA"},
          {"name", in.name},
          {"params", JsonOf(in.main.params)},
          {"results", JsonOf(in.main.results)},
          {"ops", JsonOf(in.ops)},
          {"meshes", std::move(meshes)},
          {"stablehloVersion", in.version},
          {"producer", in.producer},
          {"lacking", JsonOf(in.lacking)},
          {"problem", file.problem}};
}

absl::Status InspectFile(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const InspectedFile file, ReadAndInspect(arguments.Text("PROGRAM")));
  context.PrintResult(JsonOf(file),
                      [&] { context.terminal().Print(DescriptionText(file, context.display())); });
  return absl::OkStatus();
}

}  // namespace

std::vector<Command> InspectCommands() {
  return {
      {.name = "inspect",
       .summary = "Shows the parameters, results and ops of a program.",
       .options = {Positional("PROGRAM",
                              "The program, as for run: a StableHLO artifact (docs/from_jax.md) or "
                              "text; - reads standard input.")},
       .details =
           "The program is read inside this process, and nothing runs. An artifact is described\n"
           "even if it has ops that Tessera lacks; these ops are listed by name.",
       .run = InspectFile}};
}

}  // namespace tessera::cli
