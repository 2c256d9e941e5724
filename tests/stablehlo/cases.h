// Reads StableHLO's conformance cases, compares results with them, and keeps counts.txt, which
// counts the cases for which Tessera gives the right results. The cases are in a folder outside of
// the repository, which the environment variable TESSERA_SHARED names.
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
#include "worker/program/build_options.h"

namespace tessera::ir::stablehlo {

// A conformance case that StableHLO's own project runs.
struct Case {
  std::string name;      // "add/add_op_test_f32", "dot_general_float32_4_3_float32_3_6"
  std::string family;    // op that it tests: "add", "dot_general"
  std::string artifact;  // bytes of the artifact
  std::vector<Array> args, expected;
  std::string problem;    // why the case cannot run, such as a dtype that Tessera lacks; or empty
  nlohmann::json checks;  // tolerance of each result
};

// Returns the folder of the cases, or nullopt if TESSERA_SHARED does not name one.
std::optional<std::string> CasesFolder();
// Calls `f` for every case. Fails the test if a file of the folder cannot be read to its end.
void ForEachCase(const std::string& folder, const std::function<void(const Case&)>& f);
// Calls `f` for every case that record_ops.py has written to recorded/ops.jsonl.
void ForEachRecordedCase(const std::function<void(const Case&)>& f);

// Imports the artifact of a case as a program.
absl::StatusOr<Program> ProgramOf(const Case& test);
// Compares `got` with `expected`. `got` is result `r` of the case, or a block of this result.
// Returns "" or the first difference. `is_cut` says that the plan cuts operands, so that updates
// may be summed in another order.
std::string Mismatch(const Case& test, size_t r, const Array& got, const Array& expected,
                     bool is_cut = false);
// Compares all results of the case with the expected ones. Returns "" or the first difference.
std::string Mismatch(const Case& test, absl::Span<const Array> got);

// Returns whether the worker compiles a program to code alone: whether its compiled form has no
// host step, in which the evaluator would run a part of it.
bool IsCodeAlone(const Program& program, const worker::program::BuildOptions& options);

// The columns of counts.txt. The head of that file says what each column counts.
class Counts {
 public:
  // Counts one case of the family if `one` is true. Otherwise only records that the family has
  // cases.
  void Add(const std::string& column, const std::string& family, bool one);
  // Compares the counts with the file. Fails for each family with a smaller count. Fails for a
  // larger count, too, until that count is written to the file: --rewrite writes larger counts, and
  // never smaller ones. Prints the totals.
  void Expect() const;

 private:
  std::map<std::string, std::map<std::string, int>> columns_;  // column -> family -> count
};

}  // namespace tessera::ir::stablehlo
