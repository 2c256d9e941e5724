// The commands put, get, arrays, reshard, rm, save, load and ls-file. put and get move bytes
// between this machine and the executors. The other commands only make calls; save and load have
// the workers write and read files.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "base/words.h"
#include "client/cli/context.h"
#include "client/cli/mesh_args.h"
#include "client/cli/operations.h"
#include "client/cli/placing.h"
#include "client/cli/values.h"

namespace tessera::cli {
namespace {

// Returns the bytes of the whole array, or 0 for a dtype that this client does not know.
int64_t BytesOf(const Json& spec) {
  const auto dtype = ir::ParseDType(TextOf(spec, "dtype"));
  if (!dtype) return 0;
  return ir::MakeType(*dtype, IntsOf(spec, "shape")).num_bytes();
}

std::string TypeText(const Json& spec) {
  return absl::StrCat(TextOf(spec, "dtype"), "[", ir::DimsToString(IntsOf(spec, "shape")), "]");
}

absl::Status Put(Context& context, const Arguments& arguments) {
  const std::string path = arguments.Text("FILE");
  TESSERA_ASSIGN_OR_RETURN(const ir::Array value, ReadNpy(path));
  TESSERA_ASSIGN_OR_RETURN(const api::Placement placement, PlacementOf(context, arguments));
  TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<api::Service> service, context.Connect());
  const absl::Time start = absl::Now();
  TESSERA_ASSIGN_OR_RETURN(
      const uint64_t array,
      context.RunTransfer<uint64_t>(
          absl::StrCat("put ", path), BytesOn(placement, value.num_bytes()),
          [service, value, placement] { return service->Put(value, placement); }));
  const std::string type = ir::MakeType(value.dtype(), value.shape()).ToString();
  const Json document = {
      {"array", std::to_string(array)}, {"type", type}, {"placement", JsonOf(placement)}};
  context.PrintResult(document, [&] {
    context.Note(absl::StrCat(type, " ", placement.spec.ToString(), " on devices ",
                              IntsText(placement.devices), ", ",
                              BytesText(static_cast<double>(value.num_bytes())), " in ",
                              DurationText(absl::Now() - start)));
    context.terminal().Print(absl::StrCat("arrays/", array, "\n"));
  });
  return absl::OkStatus();
}

// Reads an array and writes it to a file or prints it. The name of the file is checked first, so
// that a wrong name is reported before a long transfer. The call of GetArray gives the size that
// the progress bar needs, and reports a wrong id before the transfer begins.
absl::Status Get(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const uint64_t id, ParseId(arguments.Text("ARRAY"), "arrays"));
  const std::string path = arguments.Text("out");
  if (arguments.Has("out") && !absl::EndsWith(path, ".npy")) {
    return UsageError("--out ", path,
                      ": get writes NumPy files, whose names end in .npy; `tessera "
                      "save` has the workers write .safetensors");
  }
  TESSERA_ASSIGN_OR_RETURN(const Json array,
                           context.Call("ArrayService/GetArray", {{"array", std::to_string(id)}}));
  TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<api::Service> service, context.Connect());
  TESSERA_ASSIGN_OR_RETURN(
      const ir::Array value,
      context.RunTransfer<ir::Array>(
          absl::StrCat("get arrays/", id), BytesOf(ChildOf(array, "spec")),
          [service, id, left = context.left()] { return service->Get(id, left); }));
  Json document = {{"array", std::to_string(id)},
                   {"type", ir::MakeType(value.dtype(), value.shape()).ToString()}};
  if (!path.empty()) {
    TESSERA_RETURN_IF_ERROR(WriteNpy(path, value));
    document["file"] = path;
  } else if (context.json()) {
    TESSERA_ASSIGN_OR_RETURN(document["value"], JsonOfArray(value));
  }
  context.PrintResult(document, [&] {
    context.terminal().Print(
        absl::StrCat(TextOf(document, "type"), " ", path.empty() ? value.ToString() : path, "\n"));
  });
  return absl::OkStatus();
}

// Lists the arrays of a session with their types and places. The sum of bytes in the output leaves
// out arrays that are lost or failed.
absl::Status List(Context& context, const Arguments& arguments) {
  Json request = Json::object();
  if (arguments.Has("session")) request["session"] = arguments.Text("session");
  TESSERA_ASSIGN_OR_RETURN(const Json answer,
                           context.ListAll("ArrayService/ListArrays", request, "arrays"));
  context.PrintResult(answer, [&] {
    Table table({">ARRAY", "TYPE", "STATE", ">BYTES", "SPEC", "MESH", "DEVICES"});
    int64_t bytes = 0;
    for (const Json& a : ChildOf(answer, "arrays")) {
      const Json& spec = ChildOf(a, "spec");
      const Json& placement = ChildOf(spec, "placement");
      const std::string state = TextOf(a, "state");
      // Arrays that are lost or failed take no memory.
      if (state == "READY" || state == "PENDING") bytes += IntOf(a, "bytes");
      table.AddRow({TextOf(a, "id"), TypeText(spec),
                    context.display().Colorize(state == "READY"     ? Style::kGreen
                                               : state == "PENDING" ? Style::kPlain
                                                                    : Style::kRed,
                                               state),
                    BytesText(NumberOf(a, "bytes")), SpecText(ChildOf(placement, "spec")),
                    MeshOfJson(ChildOf(placement, "mesh")).ToString(),
                    IntsText(IntsOf(placement, "devices"))});
    }
    context.PrintTable(table, "no arrays");
    if (table.empty()) return;
    const auto count = static_cast<int64_t>(ChildOf(answer, "arrays").size());
    context.Note(absl::StrCat(Pluralize(count, "array"), ", ",
                              BytesText(static_cast<double>(bytes)), " on devices"));
  });
  return absl::OkStatus();
}

// Deletes arrays by one call. If some ids do not exist, the other arrays are deleted all the same.
// The command then fails with a message that says how many were deleted.
absl::Status Remove(Context& context, const Arguments& arguments) {
  std::vector<std::string> ids;  // ids without duplicates
  for (const std::string& text : arguments.Texts("ARRAY")) {
    TESSERA_ASSIGN_OR_RETURN(const uint64_t id, ParseId(text, "arrays"));
    if (std::find(ids.begin(), ids.end(), std::to_string(id)) == ids.end())
      ids.push_back(std::to_string(id));
  }
  TESSERA_ASSIGN_OR_RETURN(const Json answer,
                           context.Call("ArrayService/DeleteArrays", {{"arrays", ids}}));
  // The call ignores ids that do not exist; the command reports them.
  const auto missing = answer.value("missing", std::vector<std::string>());
  const auto is_missing = [&](const std::string& id) {
    return std::find(missing.begin(), missing.end(), id) != missing.end();
  };
  std::erase_if(ids, is_missing);
  const auto num_deleted = static_cast<int64_t>(ids.size());
  const std::string summary =
      absl::StrCat(Pluralize(num_deleted, "array"), num_deleted == 1 ? " is" : " are", " deleted");
  if (!missing.empty()) {
    return MakeError(
        ErrorKind::kArrayNotFound,
        absl::StrCat(missing.size() == 1 ? "there is no array " : "there are no arrays ",
                     absl::StrJoin(missing, ", "), "; ", summary));
  }
  context.PrintResult({{"arrays", ids}}, [&] { context.Note(summary); });
  return absl::OkStatus();
}

absl::Status Save(Context& context, const Arguments& arguments) {
  Json request = {{"arrays", Json::array()},
                  {"path", arguments.Text("PATH")},
                  {"overwrite", arguments.Flag("overwrite")},
                  {"requestId", NewRequestId()}};
  for (const std::string& text : arguments.Texts("array")) {
    // The text is "w=12", where w is the name in the file, or "12", which stands for "12=12".
    const size_t equals = text.find('=');
    const std::string number = equals == std::string::npos ? text : text.substr(equals + 1);
    TESSERA_ASSIGN_OR_RETURN(const uint64_t id, ParseId(number, "arrays"));
    request["arrays"].push_back(
        {{"name", equals == std::string::npos ? std::to_string(id) : text.substr(0, equals)},
         {"array", std::to_string(id)}});
  }
  TESSERA_ASSIGN_OR_RETURN(const Json operation, context.Call("ArrayService/SaveArrays", request));
  TESSERA_ASSIGN_OR_RETURN(
      const Json ended,
      AwaitOperation(context, absl::StrCat("save ", arguments.Text("PATH")), operation));
  context.PrintResult(ended, [&] {
    const auto count = static_cast<int64_t>(request["arrays"].size());
    context.Note(absl::StrCat(Pluralize(count, "array"), count == 1 ? " is in " : " are in ",
                              arguments.Text("PATH"), " of the workers' folder of files"));
  });
  return absl::OkStatus();
}

absl::Status Reshard(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const uint64_t id, ParseId(arguments.Text("ARRAY"), "arrays"));
  TESSERA_ASSIGN_OR_RETURN(const api::Placement placement, PlacementOf(context, arguments));
  TESSERA_ASSIGN_OR_RETURN(
      Json answer, context.Call("ArrayService/ReshardArray", {{"array", std::to_string(id)},
                                                              {"placement", JsonOf(placement)},
                                                              {"requestId", NewRequestId()}}));
  TESSERA_ASSIGN_OR_RETURN(
      answer["operation"],
      AwaitOperation(context, absl::StrCat("reshard arrays/", id), ChildOf(answer, "operation")));
  context.PrintResult(answer, [&] {
    const Json& copy = ChildOf(answer, "array");
    context.Note(absl::StrCat(TypeText(ChildOf(copy, "spec")), " ", placement.spec.ToString(),
                              " on devices ", IntsText(placement.devices)));
    context.terminal().Print(absl::StrCat("arrays/", TextOf(copy, "id"), "\n"));
  });
  return absl::OkStatus();
}

absl::Status ListFile(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(
      const Json answer, context.Call("ArrayService/GetFile", {{"path", arguments.Text("PATH")}}));
  context.PrintResult(answer, [&] {
    Table table({"NAME", "TYPE", ">BYTES"});
    for (const Json& entry : ChildOf(answer, "arrays")) {
      table.AddRow({ReplaceControlChars(TextOf(entry, "name")), TypeText(entry),
                    BytesText(static_cast<double>(BytesOf(entry)))});
    }
    context.terminal().Print(table.ToText(context.display()));
  });
  return absl::OkStatus();
}

absl::Status Load(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const api::Placement placement, PlacementOf(context, arguments));
  std::vector<std::string> names = arguments.Texts("name");
  const std::string path = arguments.Text("PATH");
  if (names.empty() && !absl::EndsWith(path, ".npy")) {
    return UsageError(path, " may hold several arrays: say which with --name");
  }
  if (names.empty()) names = {""};
  Json request = {{"path", path}, {"arrays", Json::array()}, {"requestId", NewRequestId()}};
  for (const std::string& name : names) {
    request["arrays"].push_back({{"name", name}, {"placement", JsonOf(placement)}});
  }
  TESSERA_ASSIGN_OR_RETURN(Json answer, context.Call("ArrayService/LoadArrays", request));
  TESSERA_ASSIGN_OR_RETURN(answer["operation"], AwaitOperation(context, absl::StrCat("load ", path),
                                                               ChildOf(answer, "operation")));
  context.PrintResult(answer, [&] {
    for (size_t i = 0; i < ChildOf(answer, "arrays").size(); ++i) {
      const Json& a = answer["arrays"][i];
      context.terminal().Print(absl::StrCat("arrays/", TextOf(a, "id"), "  ",
                                            i < names.size() ? ReplaceControlChars(names[i]) : "",
                                            " ", TypeText(ChildOf(a, "spec")), "\n"));
    }
  });
  return absl::OkStatus();
}

const Option kArray =
    Positional("ARRAY", "Id of an array, as put, run --keep and arrays print it.");

}  // namespace

// The rows of these commands. put, reshard and load share the options that place an array, and
// save, load and ls-file the path of a file of the workers.
std::vector<Command> ArrayCommands() {
  const Option mesh = MeshOption(
      "The mesh: 2x2 (axes x and y), data=2,model=2, or the name of a mesh of the cluster "
      "(default: one device).");
  Option arrays = kArray;
  arrays.type = OptionType::kTexts;
  const Option path = Positional("PATH",
                                 "Path of a file below the workers' folder of files (--files-dir); "
                                 "ends in .safetensors or .npy.");
  return {
      {.name = "put",
       .summary = "Copies a NumPy file to devices and prints the array's id.",
       .options = {Positional("FILE", "A .npy file."), mesh, SpecOption(), DevicesOption()},
       .timeout = absl::Minutes(10),
       .details = "The bytes go directly to the workers. The array stays until it is removed.",
       .run = Put},
      {.name = "get",
       .summary = "Reads an array, once it is ready.",
       .options = {kArray,
                   {.name = "out",
                    .short_name = 'o',
                    .value_name = "FILE",
                    .help = "Write the array to this .npy file. Without it, the command prints "
                            "the values, but only some values of a long array."}},
       .timeout = absl::Minutes(10),
       .run = Get},
      {.name = "arrays",
       .summary = "Lists the arrays of a session.",
       .options = {{.name = "session",
                    .type = OptionType::kInt,
                    .value_name = "ID",
                    .help = "Id of the session (default: the tenant's own session)."}},
       .run = List},
      {.name = "reshard",
       .summary = "Copies an array to another placement and prints the id of the copy.",
       .options = {kArray, mesh, SpecOption(), DevicesOption()},
       .timeout = absl::Minutes(10),
       .details = "The bytes go from device to device. The original array stays.",
       .run = Reshard},
      {.name = "rm", .summary = "Deletes arrays.", .options = {arrays}, .run = Remove},
      {.name = "save",
       .summary = "Has the workers write arrays to a file.",
       .options = {path,
                   {.name = "array",
                    .short_name = 'n',
                    .type = OptionType::kTexts,
                    .value_name = "[NAME=]ARRAY",
                    .help = "Array to save, and its name in the file; may be given several times.",
                    .required = true},
                   Flag("overwrite", "Replace the file if it exists.")},
       .timeout = absl::Minutes(10),
       .run = Save},
      {.name = "load",
       .summary = "Has the workers load arrays from a file.",
       .options = {path,
                   {.name = "name",
                    .short_name = 'n',
                    .type = OptionType::kTexts,
                    .value_name = "NAME",
                    .help = "Name of an array in the file; may be given several times."},
                   mesh,
                   SpecOption(),
                   DevicesOption()},
       .timeout = absl::Minutes(10),
       .run = Load},
      {.name = "ls-file",
       .summary = "Lists the arrays of a file, whichever program wrote it.",
       .options = {path},
       .run = ListFile},
  };
}

}  // namespace tessera::cli
