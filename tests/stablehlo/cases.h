// StableHLO's conformance cases, which lie beside the checkout (TESSERA_SHARED), and the file that
// says of how many Tessera gives the right results.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ir/array.h"
#include "ir/program.h"
#include "nlohmann/json.hpp"
#include "worker/program/step_program.h"

namespace tessera::ir::stablehlo {

// A case that upstream itself runs.
struct Case {
  std::string name;      // "add/add_op_test_f32", "dot_general_float32_4_3_float32_3_6"
  std::string family;    // what it tests: "add", "dot_general"
  std::string artifact;  // bytes
  std::vector<Array> args, expected;
  std::string problem;    // why it cannot be run: of a dtype that Tessera lacks
  nlohmann::json checks;  // how near each result must be
};

// Where they lie; nullopt: nowhere.
std::optional<std::string> CasesFolder();
// Calls `f` for every case.
void ForEachCase(const std::string& folder, const std::function<void(const Case&)>& f);
// The same for those of record_ops.py, which lie in recorded/ops.jsonl.
void ForEachRecordedCase(const std::function<void(const Case&)>& f);

absl::StatusOr<Program> ProgramOf(const Case& test);
// "" or what is wrong with result `r` of the case, or with its block in `got`, of which `expected`
// is the block. `is_cut`: sums of updates may come in another order.
std::string Mismatch(const Case& test, size_t r, const Array& got, const Array& expected,
                     bool is_cut = false);
// "" or what is wrong with the results.
std::string Mismatch(const Case& test, absl::Span<const Array> got);

// Whether its compiled form has no step that the evaluator runs.
bool IsCodeAlone(const Program& program, const worker::program::BuildOptions& options);

// The columns of counts.txt. What each counts is said there.
class Counts {
 public:
  // `one` of the family is so, or not.
  void Add(const std::string& column, const std::string& family, bool one);
  // Fails for each family of which fewer are so than the file says, and for what is more, until
  // that is written down: with --rewrite numbers grow, and never shrink. Prints the totals.
  void Expect() const;

 private:
  std::map<std::string, std::map<std::string, int>> columns_;  // column -> family -> how many
};

}  // namespace tessera::ir::stablehlo
