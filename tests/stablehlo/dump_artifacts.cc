// Writes the op samples and the edge programs as StableHLO artifacts for run_artifacts.py, one file
// each in FOLDER. samples.jsonl beside them lists the operands of each artifact, the expected
// results, and their tolerances.
//
//   dump_artifacts FOLDER RECORDED    RECORDED is tests/ops/recorded
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_exception.h"
#include "ir/op_def.h"
#include "ir/stablehlo/export.h"
#include "tests/ops/sample_json.h"
#include "tests/stablehlo/edges.h"
#include "tests/stablehlo/exports.h"

namespace tessera::ir::stablehlo {
namespace {

using Json = nlohmann::ordered_json;

Json ArrayJson(const Array& a) {
  return {{"dtype", samples::N(a.dtype())},
          {"shape", a.shape()},
          {"hex", absl::BytesToHexString(
                      absl::string_view(reinterpret_cast<const char*>(a.data()), a.num_bytes()))}};
}
Json ArraysJson(const std::vector<Array>& values) {
  Json out = Json::array();
  for (const Array& value : values) out.push_back(ArrayJson(value));
  return out;
}

// Describes a sample. The expected results are those that JAX recorded for the op, so that the
// artifact is compared with JAX's own op and not with our evaluator.
Json ToJson(const ExportedSample& e, const samples::Recording& recording) {
  const samples::Sample& s = *e.sample;
  Json j = {{"sample", s.name},
            {"op", s.def->name},
            {"operands", ArraysJson(e.args)},
            {"devices", s.scope.mesh.num_devices()}};
  const auto recorded = recording.samples.find(s.name);
  if (s.Excludes(samples::CheckKind::kRecorded) || recorded == recording.samples.end()) {
    j["excluded"] = s.Excludes(samples::CheckKind::kRecorded)
                        ? s.excluded.at(samples::CheckKind::kRecorded)
                        : "nothing is recorded";
    return j;
  }
  j["expected"] = ArraysJson(ResultsOfEntry(s, recorded->second.results));
  if (!e.ulps_of_xla.empty()) {
    j["ulps"] = e.ulps_of_xla;
  } else if (s.tolerance.kind == samples::Tolerance::kUlps) {
    j["ulps"] = std::vector<double>(recorded->second.results.size(), s.tolerance.bound);
  } else if (s.tolerance.kind == samples::Tolerance::kScaled) {
    j["scaled"] = s.tolerance.bound;
  } else if (s.tolerance.kind == samples::Tolerance::kReordered) {
    j["terms"] = s.tolerance.bound;
    j["magnitudes"] =
        ArraysJson(ResultsOfEntry(s, ValueOrThrow(samples::MagnitudesOf(s, samples::ArgsOf(s)))));
  }
  return j;
}

// Describes an edge program. The expected results are those of the evaluator.
Json ToJson(const EdgeProgram& edge) {
  Json j = {{"sample", absl::StrCat("edge/", edge.name)},
            {"op", "edge"},
            {"operands", ArraysJson(edge.args)},
            {"devices", edge.program.mesh().num_devices()}};
  if (edge.not_xla.empty()) {
    j["expected"] = ArraysJson(ValueOrThrow(Evaluator().Run(*edge.program.entry, edge.args)));
  } else {
    j["excluded"] = edge.not_xla;
  }
  return j;
}

// Writes all artifacts. Skips the samples that StableHLO cannot express, which export_test.cc
// counts; an edge program that cannot be exported is an error.
absl::Status Dump(const std::filesystem::path& folder, const std::string& recorded) {
  std::filesystem::create_directories(folder);
  std::map<std::string, samples::Recording> recordings;
  std::ofstream lines(folder / "samples.jsonl");
  int n = 0;
  const auto write = [&](Json j, const std::string& artifact) {
    const std::string file = absl::StrCat(n++, ".mlirbc");
    j["file"] = file;
    std::ofstream(folder / file, std::ios::binary) << artifact;
    lines << j.dump() << "\n";
  };
  const auto dump = [&](const ExportedSample& e) {
    if (!e.artifact.ok()) return;
    const auto [at, is_new] = recordings.try_emplace(e.family);
    if (is_new)
      at->second =
          ValueOrThrow(samples::ReadRecording(absl::StrCat(recorded, "/", e.family, ".jsonl")));
    write(ToJson(e, at->second), *e.artifact);
  };
  TESSERA_RETURN_IF_ERROR(CatchStatus([&] {
    ForEachExport(dump);
    for (const EdgeProgram& edge : EdgePrograms())
      write(ToJson(edge), ValueOrThrow(ExportProgram(edge.program)));
  }));
  lines.flush();
  if (!lines) return MakeError(ErrorKind::kValueError, "the folder cannot be written");
  std::printf("%d artifacts\n", n);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tessera::ir::stablehlo

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: dump_artifacts FOLDER RECORDED\n");
    return 2;
  }
  const absl::Status status = tessera::ir::stablehlo::Dump(argv[1], argv[2]);
  if (!status.ok()) std::fprintf(stderr, "dump_artifacts: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
