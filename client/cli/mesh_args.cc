// Parsers of option values that several commands take (placing.cc, programs.cc, arrays.cc). Every
// error is a usage error that repeats the text and says which forms are expected.
#include "client/cli/mesh_args.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "client/cli/commands.h"

namespace tessera::cli {
namespace {

constexpr char kDefaultAxisNames[] = "xyzw";
constexpr size_t kIntsMax = 65'536;

absl::Status MeshUsageError(const std::string& text) {
  return UsageError("mesh '", text, "': 2x2, data=2,model=2 or the name of a mesh is expected");
}

// Parses the mesh of a program's line "mesh (x=2, y=2:explicit)". Sets `rest` to the part of the
// line behind the parenthesis.
absl::StatusOr<ir::Mesh> ParseMeshLine(const std::string& line, std::string* rest) {
  const size_t open = line.find('('), close = line.find(')');
  if (open == std::string::npos || close == std::string::npos || close < open) {
    return UsageError("the program's mesh is not on one line, so --mesh cannot change it");
  }
  *rest = line.substr(close + 1);
  ir::Mesh mesh;
  for (absl::string_view part :
       absl::StrSplit(line.substr(open + 1, close - open - 1), ',', absl::SkipWhitespace())) {
    const std::vector<std::string> fields =  // name, size and, if not auto, type
        absl::StrSplit(absl::StripAsciiWhitespace(part), absl::ByAnyChar("=:"));
    ir::MeshAxis axis;
    if (fields.size() < 2 || !absl::SimpleAtoi(fields[1], &axis.size)) {
      return UsageError("cannot parse the program's mesh line: ", line);
    }
    axis.name = std::string(absl::StripAsciiWhitespace(fields[0]));
    for (const ir::AxisType type : {ir::AxisType::kExplicit, ir::AxisType::kManual}) {
      if (fields.size() > 2 && fields[2] == ir::AxisTypeName(type)) axis.type = type;
    }
    mesh.axes.push_back(std::move(axis));
  }
  return mesh;
}

}  // namespace

// A text with '=' has names and sizes, one that begins with a digit has sizes only, and anything
// else is a name. An axis keeps the type that it has in `like`, because --mesh changes the sizes of
// a program's mesh, and not who decides the shardings.
absl::StatusOr<std::optional<ir::Mesh>> ParseMesh(const std::string& text, const ir::Mesh& like) {
  ir::Mesh mesh;
  if (absl::StrContains(text, '=')) {
    for (absl::string_view part : absl::StrSplit(text, ',')) {
      const std::vector<std::string> fields = absl::StrSplit(part, '=');
      int64_t size = 0;
      if (fields.size() != 2 || !internal::IsAxisName(fields[0]) ||
          !absl::SimpleAtoi(fields[1], &size)) {
        return MeshUsageError(text);
      }
      const int at = like.IndexOf(fields[0]);
      mesh.axes.push_back({fields[0], size, at < 0 ? ir::AxisType::kAuto : like.axes[at].type});
    }
  } else if (!text.empty() && std::isdigit(static_cast<unsigned char>(text[0]))) {
    for (absl::string_view part : absl::StrSplit(text, 'x')) {
      int64_t size = 0;
      if (!absl::SimpleAtoi(part, &size)) return MeshUsageError(text);
      mesh.axes.push_back({"", size, ir::AxisType::kAuto});
    }
    const bool use_like = like.axes.size() == mesh.axes.size();
    if (!like.empty() && !use_like) {
      return UsageError("mesh '", text, "' has ", mesh.axes.size(), " axes; the program's mesh ",
                        like.ToString(), " has ", like.axes.size());
    }
    if (!use_like && mesh.axes.size() > sizeof(kDefaultAxisNames) - 1) return MeshUsageError(text);
    for (size_t i = 0; i < mesh.axes.size(); ++i) {
      mesh.axes[i].name = use_like ? like.axes[i].name : std::string(1, kDefaultAxisNames[i]);
      if (use_like) mesh.axes[i].type = like.axes[i].type;
    }
  } else if (!text.empty()) {
    return std::optional<ir::Mesh>();
  } else {
    return MeshUsageError(text);
  }
  if (const absl::Status status = CheckMesh(mesh); !status.ok()) {
    return UsageError("mesh '", text, "': ", status.message());
  }
  return std::optional<ir::Mesh>(std::move(mesh));
}

absl::StatusOr<ir::PartitionSpec> ParseSpec(const std::string& text) {
  if (absl::StartsWith(text, "P(")) {
    if (std::optional<ir::PartitionSpec> spec = internal::ParseSpec(text)) return *std::move(spec);
    return UsageError("spec ", text, ": P('x', None, ('y','z')) is expected");
  }
  ir::PartitionSpec out;
  if (text.empty()) return out;
  for (absl::string_view dim : absl::StrSplit(text, ',')) {
    out.dims.emplace_back();
    if (dim == "-") continue;
    for (absl::string_view axis : absl::StrSplit(dim, '+')) {
      if (!internal::IsAxisName(axis)) {
        return UsageError("spec '", text,
                          "': data,-,x+y or P('data', None, ('x','y'))"
                          " is expected");
      }
      out.dims.back().emplace_back(axis);
    }
  }
  return out;
}

absl::StatusOr<std::vector<int64_t>> ParseInts(const std::string& text) {
  std::vector<int64_t> out;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<std::string> ends = absl::StrSplit(part, '-');
    int64_t first = 0, last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends[0], &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last < first ||
        last - first >= static_cast<int64_t>(kIntsMax - out.size())) {
      return UsageError("'", text, "': numbers are expected, such as 0,2,4-7");
    }
    for (int64_t i = first; i <= last; ++i) out.push_back(i);
  }
  return out;
}

absl::StatusOr<uint64_t> ParseId(const std::string& text, const std::string& collection) {
  const size_t slash = text.rfind('/');
  uint64_t id = 0;
  const std::string digits = slash == std::string::npos ? text : text.substr(slash + 1);
  const std::string before = slash == std::string::npos ? "" : text.substr(0, slash);
  if (!absl::SimpleAtoi(digits, &id) || id == 0 ||
      (!before.empty() && before != collection && !absl::EndsWith(before, "/" + collection))) {
    return UsageError("'", text, "': a number, or ", collection, "/NUMBER, is expected");
  }
  return id;
}

absl::StatusOr<std::string> WithMesh(const std::string& program, const std::string& mesh_text) {
  // The mesh line, if there is one, is the first line that is neither empty nor a comment.
  std::vector<std::string> lines = absl::StrSplit(program, '\n');
  const auto line = std::find_if(lines.begin(), lines.end(), [](absl::string_view text) {
    text = absl::StripAsciiWhitespace(text);
    return !text.empty() && text[0] != '#';
  });
  ir::Mesh current;
  const bool has_mesh = line != lines.end() && absl::StartsWith(*line, "mesh ");
  std::string rest;  // the part of the line behind its mesh
  if (has_mesh) {
    TESSERA_ASSIGN_OR_RETURN(current, ParseMeshLine(*line, &rest));
  } else if (line != lines.end()) {
    rest = absl::StrCat(" ", *line);
  }
  TESSERA_ASSIGN_OR_RETURN(const std::optional<ir::Mesh> mesh, ParseMesh(mesh_text, current));
  // Put the mesh on an existing line, so that the line numbers in errors stay those of the program.
  if (mesh && line != lines.end()) *line = absl::StrCat("mesh ", mesh->ToString(), rest);
  return absl::StrJoin(lines, "\n");
}

}  // namespace tessera::cli
