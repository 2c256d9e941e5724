// Prints the samples of one family, or of all families, as JSON lines. A sample is one op with
// given attributes and operands (samples.h). scripts/record_samples.py runs this program and
// records what JAX computes for each line. The family `programs` consists of random programs.
//
//   dump_samples [family]
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "tests/ops/programs.h"
#include "tests/ops/sample_json.h"

int main(int argc, char** argv) {
  namespace samples = tessera::ir::samples;
  const std::string only = argc > 1 ? argv[1] : "";
  bool found = only.empty();
  const auto print = [](const samples::Sample& s) {
    const absl::Status status =
        tessera::CatchStatus([&] { std::puts(samples::ToJson(s).c_str()); });
    if (!status.ok()) std::fprintf(stderr, "%s: %s\n", s.name.c_str(), status.ToString().c_str());
    return status.ok();
  };
  for (const samples::SampleFamily& family : samples::Families()) {
    if (!only.empty() && family.name != only) continue;
    found = true;
    for (const samples::Sample& s : family.samples)
      if (!print(s)) return 1;
  }
  if (only.empty() || only == "programs") {
    found = true;
    for (const samples::RandomProgram& p : samples::RandomPrograms())
      if (!print(p.sample)) return 1;
  }
  if (!found) std::fprintf(stderr, "no family is called %s\n", only.c_str());
  return found ? 0 : 1;
}
