// Reads StableHLO's conformance cases, which lie beside the checkout (TESSERA_SHARED), compares
// results with them, and keeps the file that counts the cases for which Tessera gives the right
// results.
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

// A conformance case that StableHLO's own project runs.
struct Case {
  std::string name;      // "add/add_op_test_f32", "dot_general_float32_4_3_float32_3_6"
  std::string family;    // op that it tests: "add", "dot_general"
  std::string artifact;  // bytes of the artifact
  std::vector<Array> args, expected;
  std::string problem;    // why it cannot be run, such as a dtype that Tessera lacks; else empty
  nlohmann::json checks;  // tolerance of each result
};

// Returns the folder of the cases, or nullopt if TESSERA_SHARED does not name one.
std::optional<std::string> CasesFolder();
// Calls `f` for every case.
void ForEachCase(const std::string& folder, const std::function<void(const Case&)>& f);
// Calls `f` for every case that record_ops.py has written to recorded/ops.jsonl.
void ForEachRecordedCase(const std::function<void(const Case&)>& f);

// Imports the artifact of a case as a program.
absl::StatusOr<Program> ProgramOf(const Case& test);
// Compares `got`, which is result `r` of the case or a block of it, with `expected`. Returns "" or
// the first difference. `is_cut` says that the plan cuts operands, so that sums of updates may come
// in another order.
std::string Mismatch(const Case& test, size_t r, const Array& got, const Array& expected,
                     bool is_cut = false);
// Compares all results of the case with the expected ones. Returns "" or the first difference.
std::string Mismatch(const Case& test, absl::Span<const Array> got);

// Returns whether the compiled form of a program has no host step, that is, whether the evaluator
// runs no part of it.
bool IsCodeAlone(const Program& program, const worker::program::BuildOptions& options);

// The columns of counts.txt. The head of that file says what each column counts.
class Counts {
 public:
  // Counts one case of the family if `one` is true. Otherwise only records that the family has
  // cases.
  void Add(const std::string& column, const std::string& family, bool one);
  // Compares the counts with the file. Fails for each family with a smaller count, and also for a
  // larger count until it is written to the file: with --rewrite, counts grow and never shrink.
  // Prints the totals.
  void Expect() const;

 private:
  std::map<std::string, std::map<std::string, int>> columns_;  // column -> family -> count
};

}  // namespace tessera::ir::stablehlo
