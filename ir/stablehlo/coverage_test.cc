// Proves that docs/stablehlo.md lists every op that an artifact may contain, and that each op is
// either imported or has a reason why not. `--rewrite` regenerates the list.
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/testing/datadriven.h"
#include "gtest/gtest.h"
#include "ir/stablehlo/encodings.h"
#include "ir/stablehlo/importer.h"

namespace tessera::ir::stablehlo {
namespace {

constexpr char kPage[] = "docs/stablehlo.md";
constexpr char kList[] = "## Every op\n\n";

// Entries of an artifact that no row imports, because they are not ops of a function.
constexpr std::string_view kStructuralOps[] = {"func", "return", "sdy.mesh", "sdy.return"};

// The limits within which an op is imported.
constexpr std::pair<std::string_view, std::string_view> kNotes[] = {
    {"collective_broadcast", "the root is the same in each group, and known"},
    {"collective_permute", "along axes of the mesh"},
    {"composite", "as its decomposition"},
    {"cross-replica-sum", "of the one replica that there is"},
    {"custom_call",
     "of the targets by which JAX says shardings, LAPACK's routines and approximate top k"},
    {"dynamic_conv", "the padding is a constant"},
    {"dynamic_gather", "the sizes are a constant"},
    {"dynamic_pad", "the amounts are constants"},
    {"einsum", "without diagonals and `...`"},
    {"real_dynamic_slice", "the strides are constants, and 1 if the bounds are not constants"},
    {"reduce_scatter", "of sums, and of booleans"},
    {"replica_id", "0"},
    {"rng_bit_generator", "Philox, the default"},
    {"set_dimension_size", "to all of the dim"},
    {"unary_einsum", "without diagonals and `...`"},
    {"sdy.sharding_group", "a hint, which is left out"},
};

std::string NoteOf(std::string_view name) {
  for (const auto& [of, note] : kNotes)
    if (of == name) return std::string(note);
  return "";
}

std::string Markdown() {
  std::map<std::string, std::string> rows;  // by name
  for (const OpRow& row : kOpRows) {
    const std::string name = row.dialect == "vhlo"
                                 ? std::string(row.name)
                                 : absl::StrCat(ToAbsl(row.dialect), ".", ToAbsl(row.name));
    const bool is_structural = std::find(std::begin(kStructuralOps), std::end(kStructuralOps),
                                         name) != std::end(kStructuralOps);
    if (row.dialect == "builtin" || is_structural) continue;
    const bool read = FindImport(row.dialect, row.name) != nullptr;
    const std::string_view why = WhyNotImported(row.name);
    EXPECT_EQ(read, why.empty()) << name << " is read, or there is a reason, and not both";
    rows[name] = absl::StrCat("| `", name, "` | ", read ? "yes" : "no", " | ",
                              read ? NoteOf(name) : std::string(why), " |\n");
  }
  std::string out =
      "Generated from `ir/stablehlo`; to change it: `ir_stablehlo_coverage_test --rewrite`.\n\n"
      "| op | read | |\n|---|---|---|\n";
  for (const auto& [name, row] : rows) out += row;
  return out;
}

TEST(CoverageTest, ThePageListsEveryOp) {
  std::ifstream file(SourcePath(kPage));
  std::stringstream text;
  text << file.rdbuf();
  const std::string page = text.str();
  const size_t list = page.find(kList);
  ASSERT_NE(list, std::string::npos) << kPage << " has no list of ops";
  ExpectFileHolds(kPage, page.substr(0, list + std::size(kList) - 1) + Markdown());
}

TEST(CoverageTest, EachNoteIsAboutAnOpThatIsImported) {
  for (const auto& [name, note] : kNotes) {
    const size_t dot = name.find("sdy.");
    EXPECT_NE(FindImport(dot == 0 ? "sdy" : "vhlo", dot == 0 ? name.substr(4) : name), nullptr)
        << name;
  }
}

}  // namespace
}  // namespace tessera::ir::stablehlo
