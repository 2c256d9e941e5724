// Counts the bytes that the collectives of sharded training steps send, in Tessera's plans and in
// JAX's optimised HLO.
//
//   bench-collectives --jax PYTHON [--explain WORD]
//
// The steps are written in JAX. collectives_jax.py exports each step as an artifact, and this
// program imports and plans the artifact. Bytes are counted as ring algorithms send them, as in
// `tessera explain`.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status.h"
#include "bench/flags.h"
#include "ir/stablehlo/import.h"
#include "server/planner/planner.h"
#include "server/planner/uses.h"

namespace tessera::bench {
namespace {

constexpr size_t kArtifactBytesMax = size_t{1} << 30;

absl::StatusOr<server::core::Plan> PlanOf(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(path, kArtifactBytesMax));
  TESSERA_ASSIGN_OR_RETURN(
      const auto artifact,
      ir::stablehlo::ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
  server::core::PlanRequest request;
  TESSERA_ASSIGN_OR_RETURN(request.program, ir::stablehlo::ImportProgram(artifact));
  request.cluster.devices.resize(request.program.mesh().num_devices());
  return server::planner::MakePlan(request);
}

// Runs collectives_jax.py, which prints one line per program, and prints a row for each line as it
// arrives. Returns 1 if Tessera's plan of any program sends more bytes than JAX's, if a program
// cannot be planned, or if the script fails, so that the benchmark can serve as a check. Prints the
// plans of the programs whose name contains `explain_word`.
int Run(const std::string& python, const std::string& explain_word) {
  const std::string folder =
      std::filesystem::temp_directory_path() / absl::StrCat("bench_collectives.", getpid());
  const std::string command =
      absl::StrCat("'", python, "' '", TESSERA_SOURCE_DIR, "/bench/collectives_jax.py' ", folder);
  FILE* const output = popen(command.c_str(), "r");
  if (output == nullptr) return 1;
  std::printf("%-32s %14s %14s %8s\n", "program", "bytes", "JAX: bytes", "ratio");
  int num_worse = 0;
  char line[512];
  while (std::fgets(line, sizeof line, output) != nullptr) {
    const std::vector<std::string> fields = absl::StrSplit(absl::StripAsciiWhitespace(line), '\t');
    int64_t jax_bytes = 0;
    if (fields.size() != 3 || !absl::SimpleAtoi(fields[2], &jax_bytes)) continue;
    const absl::StatusOr<server::core::Plan> plan = PlanOf(folder + "/" + fields[1]);
    if (!plan.ok()) {
      std::cerr << fields[0] << ": " << plan.status() << "\n";
      ++num_worse;
      continue;
    }
    int64_t our_bytes = 0;
    for (const auto& use : server::planner::CollectivesOf(*plan->device_program))
      our_bytes += use.bytes;
    if (!explain_word.empty() && fields[0].find(explain_word) != std::string::npos)
      std::cout << plan->explain_text;
    const double ratio = static_cast<double>(our_bytes) / static_cast<double>(jax_bytes);
    num_worse += ratio > 1;
    std::printf("%-32s %14ld %14ld %8.3f\n", fields[0].c_str(), static_cast<long>(our_bytes),
                static_cast<long>(jax_bytes), ratio);
    std::fflush(stdout);
  }
  const int status = pclose(output);
  std::filesystem::remove_all(folder);
  return status != 0 || num_worse > 0 ? 1 : 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  std::string python, explain_word;
  tessera::bench::FlagParser parser(
      "bench-collectives", "Counts the bytes that the collectives of sharded training steps send.");
  parser.AddText("--jax", "PYTHON", &python, "the Python with JAX that exports the steps");
  parser.SetRequired("--jax");
  parser.AddText("--explain", "WORD", &explain_word,
                 "prints the plans of the steps with this word");
  if (const std::optional<int> status = parser.Parse(argc, argv)) return *status;
  return tessera::bench::Run(python, explain_word);
}
