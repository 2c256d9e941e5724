// The words for ops: the generated tables of docs/programs.md (ir_docs_test writes them) and the
// hints that the readers of programs add to the error about an unknown op.
#include "ir/op_usage.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "base/words.h"
#include "ir/op_def.h"
#include "ir/registry.h"

namespace tessera::ir {
namespace {

constexpr OpUsage kUsages[] = {
#define TESSERA_USAGE(name, operands, summary) {name, operands, summary},
#include "ir/op_usage.def"
#undef TESSERA_USAGE
};

// The names of the families, in the order of the enum Family.
constexpr std::string_view kFamilies[] = {
    "",         "Elementwise",  "Reductions", "Contractions", "Data movement",
    "Indexing", "Control flow", "Random",     "Collectives",  "Casts",
};
static_assert(std::size(kFamilies) == static_cast<size_t>(Family::kCast) + 1);

// The names of the kinds of attributes, in the order of the enum AttrKind.
constexpr std::string_view kAttrKinds[] = {
    "bool",  "int",   "float",   "string",   "ints",      "strings",
    "bools", "dtype", "literal", "sharding", "shardings",
};
static_assert(std::size(kAttrKinds) == static_cast<size_t>(AttrKind::kSpecs) + 1);

std::string AttrsText(const OpDef& op) {
  return absl::StrJoin(op.attrs, ", ", [](std::string* out, const AttrSpec& a) {
    absl::StrAppend(out, "`", ToAbsl(a.name), "` ", ToAbsl(kAttrKinds[static_cast<size_t>(a.kind)]),
                    a.required ? "" : " (optional)");
  });
}

}  // namespace

absl::Span<const OpUsage> OpUsages() { return kUsages; }

std::string OpsMarkdown() {
  std::string out =
      "Generated from `ir/ops.def` and `ir/op_usage.def`; to change it: `ir_docs_test --rewrite`.\n"
      "Where lax has another name for an op, that name is in brackets. An attribute is required\n"
      "unless it is marked as optional.\n";
  for (size_t family = 1; family < std::size(kFamilies); ++family) {
    std::string rows;
    for (size_t i = 0; i < AllOps().size() && i < std::size(kUsages); ++i) {
      const OpDef& op = *AllOps()[i];
      if (op.family != static_cast<Family>(family)) continue;
      const std::string lax =
          op.lax_name == op.name ? "" : absl::StrCat(" (", ToAbsl(op.lax_name), ")");
      absl::StrAppend(&rows, "| `", ToAbsl(op.name), "(", ToAbsl(kUsages[i].operands), ")`", lax,
                      " | ", AttrsText(op), " | ", ToAbsl(kUsages[i].summary), " |\n");
    }
    if (rows.empty()) continue;
    absl::StrAppend(&out, "\n### ", ToAbsl(kFamilies[family]),
                    "\n\n| op | attributes | result |\n|---|---|---|\n", rows);
  }
  return out;
}

std::string SuggestOps(std::string_view unknown) {
  std::string meant;
  std::vector<std::string> names;
  for (const OpDef* op : AllOps()) {
    if (op->lax_name == unknown) meant = absl::StrCat("; did you mean ", ToAbsl(op->name), "?");
    names.emplace_back(op->name);
  }
  if (meant.empty()) meant = DidYouMean(unknown, names);
  return absl::StrCat(meant, meant.empty() ? ";" : "", " docs/programs.md lists the ops");
}

}  // namespace tessera::ir
