// Writes the planner's stages as text. MakePlan calls this between its stages when a dump is
// wanted.
#include "server/planner/stages.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "ir/text.h"

namespace tessera::server::planner {
namespace {

// Returns the remarks as comment lines. Remarks contain names from clients, in which there may be
// line breaks.
std::string Commented(std::string_view remarks) {
  std::string out;
  if (remarks.empty()) return out;
  const absl::string_view lines = absl::StripSuffix(ToAbsl(remarks), "\n");
  for (const absl::string_view line : absl::StrSplit(lines, '\n'))
    absl::StrAppend(&out, line.empty() ? "#" : "# ", line, "\n");
  return out;
}

void AppendShardings(const ir::Function& f, const FunctionShardings& s, int depth,
                     std::string* out) {
  const std::string indent(2 * depth, ' ');
  const auto append = [&](ir::ValueId v, std::string_view made_by) {
    const std::string who = OriginText(s, v);
    absl::StrAppend(out, indent, "%", v, ": ", ShardedTypeText(f.types[v], s.shardings[v]),
                    ToAbsl(made_by), who.empty() ? "" : ", by ", who, "\n");
  };
  for (int i = 0; i < f.num_params; ++i) append(i, "");
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const ir::Op& op = f.ops[i];
    const auto regions = s.regions.find(static_cast<int>(i));
    for (size_t k = 0; regions != s.regions.end() && k < regions->second.size(); ++k) {
      absl::StrAppend(out, indent, "region ", k, " of ", ToAbsl(op.def->name), "\n");
      AppendShardings(*op.regions[k], *regions->second[k], depth + 1, out);
    }
    for (const ir::ValueId v : op.results) append(v, absl::StrCat(" of ", ToAbsl(op.def->name)));
  }
}

}  // namespace

std::string ShardedTypeText(const ir::Type& type, const ir::DimAxes& sharding) {
  ir::Type shown = ir::MakeType(type.dtype, type.shape);
  shown.sharding = sharding;
  ir::Normalize(&shown);
  return shown.ToString();
}

std::string ShardingsText(const ir::Function& f, const FunctionShardings& s) {
  std::string out;
  AppendShardings(f, s, 0, &out);
  return out;
}

void StageReporter::Report(std::string_view stage, const ir::Program& program,
                           std::string_view remarks) const {
  if (!wanted()) return;
  request_.on_stage({std::string(stage),
                     absl::StrCat(Commented(remarks), ir::PrintProgram(program, {.sites = true}))});
}

void StageReporter::Report(std::string_view stage, const ir::FunctionRef& device_program,
                           std::string_view remarks) const {
  if (!wanted()) return;
  ir::Program program;
  program.entry = device_program;
  Report(stage, program, remarks);
}

}  // namespace tessera::server::planner
