// The text of explain_as_explicit and of `tessera explain --as-explicit`. The input is a PlanView,
// which visualize.cc and the command line make from a plan.
#include "client/show/explicit_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace tessera::internal {
namespace {

using Row = std::vector<std::string>;

bool IsCpp(absl::string_view site) {
  const absl::string_view file = site.substr(0, site.rfind(':'));
  return absl::EndsWith(file, ".cc") || absl::EndsWith(file, ".cpp") ||
         absl::EndsWith(file, ".cxx") || absl::EndsWith(file, ".h") || absl::EndsWith(file, ".hpp");
}

bool HasAxes(const ir::PartitionSpec& spec) {
  return std::any_of(spec.dims.begin(), spec.dims.end(),
                     [](const ir::AxisList& axes) { return !axes.empty(); });
}

// Appends each distinct row once, with the number of rows that equal it, in the order of first
// occurrence. The columns are aligned.
void AppendRows(const std::vector<Row>& rows, std::string* out) {
  std::vector<std::pair<Row, int>> distinct;
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    const auto same = std::find_if(distinct.begin(), distinct.end(),
                                   [&](const auto& other) { return other.first == row; });
    if (same != distinct.end()) {
      ++same->second;
      continue;
    }
    distinct.emplace_back(row, 1);
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  for (const auto& [row, count] : distinct) {
    std::string line = " ";
    for (size_t c = 0; c < row.size(); ++c) {
      absl::StrAppend(&line, " ", row[c]);
      if (c + 1 < row.size()) line.append(widths[c] - row[c].size() + 1, ' ');
    }
    absl::StrAppend(out, line, count > 1 ? absl::StrCat("  (", count, " times)") : "", "\n");
  }
}

std::string TypeText(const PlanArray& value) {
  return ir::MakeType(value.type.dtype, value.type.shape).ToString();
}

std::vector<Row> ArrayRows(const std::vector<PlanArray>& arrays, bool cpp) {
  std::vector<Row> rows;
  for (const PlanArray& a : arrays) {
    rows.push_back({a.count == 1 ? a.name : absl::StrCat(a.name, " (", a.count, ")"), TypeText(a),
                    SpecText(a.spec, cpp)});
  }
  return rows;
}

// Returns rows for the values that the last op of each line computes, if they are sharded.
std::vector<Row> ConstraintRows(const PlanView& plan) {
  std::vector<Row> rows;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const PlanView::Op& op = plan.ops[i];
    const bool is_last_of_line = i + 1 == plan.ops.size() || plan.ops[i + 1].site != op.site ||
                                 plan.ops[i + 1].depth != op.depth;
    if (op.site.empty() || !is_last_of_line) continue;
    for (const PlanArray& value : op.values) {
      if (!HasAxes(value.spec)) continue;
      rows.push_back({op.site, op.op, TypeText(value),
                      absl::StrCat("with_sharding_constraint(_, ",
                                   SpecText(value.spec, IsCpp(op.site)), ")")});
    }
  }
  return rows;
}

// Returns rows for the places where the types of Explicit axes do not imply the plan's choice.
std::vector<Row> ExplicitRows(const PlanView& plan) {
  std::vector<Row> rows;
  for (const PlanView::Op& op : plan.ops) {
    const bool cpp = IsCpp(op.site);
    const std::string site = op.site.empty() ? "(no line)" : op.site;
    for (const auto& [operand, spec] : op.reshard_operands) {
      rows.push_back({site, op.op, absl::StrCat("operand ", operand),
                      absl::StrCat("reshard(_, ", SpecText(spec, cpp), ")")});
    }
    if (op.out_sharding) {
      rows.push_back({site, op.op, TypeText(op.values.at(0)),
                      absl::StrCat("out_sharding = ", SpecText(*op.out_sharding, cpp))});
    }
    for (const auto& [result, spec] : op.reshard_results) {
      if (result >= static_cast<int>(op.values.size())) continue;
      rows.push_back({site, op.op, TypeText(op.values[static_cast<size_t>(result)]),
                      absl::StrCat("reshard(_, ", SpecText(spec, cpp), ")")});
    }
  }
  return rows;
}

}  // namespace

std::string SpecText(const ir::PartitionSpec& spec, bool cpp) {
  std::string text = spec.ToString();
  if (!cpp) return text;
  // The parenthesis of P stays; the parentheses of dims with several axes become braces.
  text = absl::StrReplaceAll(text.substr(2, text.size() - 3),
                             {{"','", "\", \""}, {"'", "\""}, {"(", "{"}, {")", "}"}});
  return absl::StrCat("P(", text, ")");
}

std::string ExplicitText(const PlanView& plan) {
  const std::vector<Row> constraint_rows = ConstraintRows(plan), explicit_rows = ExplicitRows(plan);
  const bool cpp = std::any_of(plan.ops.begin(), plan.ops.end(),
                               [](const PlanView::Op& op) { return IsCpp(op.site); });
  std::string out =
      absl::StrCat("shardings of ", plan.program, " on mesh ", plan.mesh.ToString(), "\n");
  if (!plan.arguments.empty()) out += "arguments:\n";
  AppendRows(ArrayRows(plan.arguments, cpp), &out);
  out += constraint_rows.empty()
             ? "lines: no line computes a sharded value\n"
             : "lines, with constraints that fix their shardings on Auto axes:\n";
  AppendRows(constraint_rows, &out);
  if (!plan.results.empty()) out += "results:\n";
  AppendRows(ArrayRows(plan.results, cpp), &out);
  out += explicit_rows.empty()
             ? "on Explicit axes all shardings follow from the types of the arguments\n"
             : "on Explicit axes the shardings follow from the types of the arguments "
               "and from these specs:\n";
  AppendRows(explicit_rows, &out);
  return out;
}

}  // namespace tessera::internal
