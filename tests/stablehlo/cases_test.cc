// StableHLO's conformance cases: each artifact is read, and gives what it is said to give,
// evaluated, as code, and planned with its inputs cut along every dim that two devices divide.
//
// The cases lie beside the checkout (TESSERA_SHARED); without them the test is skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "base/testing/status_matchers.h"
#include "ir/eval/eval.h"
#include "ir/stablehlo/import.h"
#include "ir/transform/transform.h"
#include "ir/verify.h"
#include "nlohmann/json.hpp"
#include "tests/ops/planned.h"
#include "worker/cpu/cpu_backend.h"

namespace tessera::ir::stablehlo {
namespace {

using nlohmann::json;

std::optional<std::string> Shared() {
  const char* const shared = std::getenv("TESSERA_SHARED");
  if (shared == nullptr) return std::nullopt;
  const std::string folder = absl::StrCat(shared, "/stablehlo/cases/");
  return std::filesystem::is_directory(folder) ? std::optional(folder) : std::nullopt;
}

// Calls `f` for each line of a compressed file.
template <typename F>
void ForEachLine(const std::string& path, F f) {
  const std::unique_ptr<FILE, int (*)(FILE*)> in(
      popen(absl::StrCat("gzip -dc '", path, "'").c_str(), "r"), pclose);
  ASSERT_NE(in, nullptr);
  char* line = nullptr;
  size_t size = 0;
  while (true) {
    const ssize_t length = getline(&line, &size, in.get());
    if (length < 0) break;
    f(std::string(line, length));
  }
  std::free(line);
}

// MLIR's names of element types.
std::optional<DType> DTypeOf(const std::string& name) {
  if (name == "i1") return DType::kBool;
  if (name == "complex<f32>") return DType::kC64;
  if (name == "complex<f64>") return DType::kC128;
  if (absl::StartsWith(name, "ui")) return ParseDType(absl::StrCat("u", name.substr(2)));
  if (absl::StartsWith(name, "i")) return ParseDType(absl::StrCat("s", name.substr(1)));
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return std::tolower(c); });
  return ParseDType(lower);
}

std::optional<Array> ArrayOf(const json& value) {
  const std::optional<DType> dtype = DTypeOf(value["dtype"]);
  if (!dtype) return std::nullopt;
  std::string bytes;
  if (!absl::Base64Unescape(value["data"].get<std::string>(), &bytes)) return std::nullopt;
  const auto shape = value["shape"].get<std::vector<int64_t>>();
  return Array(*dtype, Dims(shape.begin(), shape.end()),
               {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
}

// How far two are apart, in units of the last place of the larger, or of `at_least`.
double UlpsBetween(DType dtype, double a, double b, double at_least = 0) {
  const int mantissa = dtype == DType::kF64    ? 52
                       : dtype == DType::kF32  ? 23
                       : dtype == DType::kBF16 ? 7
                                               : 10;
  int exponent = 0;
  std::frexp(std::max({std::abs(a), std::abs(b), at_least}), &exponent);
  return std::abs(a - b) / std::ldexp(1.0, exponent - 1 - mantissa);
}

// Sums are expected in the order of another backend: where much cancels they may differ by units of
// the largest element rather than of their own. Those of updates only where the updates are cut.
bool IsOfSums(const std::string& name, bool is_cut) {
  return absl::StartsWith(name, "dot_general") || absl::StartsWith(name, "cumsum") ||
         (is_cut && absl::StartsWith(name, "scatter_add"));
}
double LargestOf(const Array& array) {
  double largest = 0;
  for (int64_t i = 0; i < array.num_elements(); ++i)
    if (std::isfinite(array.At(i))) largest = std::max(largest, std::abs(array.At(i)));
  return largest;
}
// "" or the first element that is not as expected.
std::string Mismatch(const std::string& name, const Array& got, const Array& expected,
                     const json& check, bool is_cut = false) {
  if (got.dtype() != expected.dtype() || got.shape() != expected.shape())
    return absl::StrCat("has the type ", DTypeName(got.dtype()).data());
  const std::string kind = check["kind"];
  const double unit = IsOfSums(name, is_cut) ? LargestOf(expected) : 0;
  const double max =
      check.contains("max") && !check["max"].is_null() ? check["max"].get<double>() : 0;
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    if (!IsFloat(got.dtype())) {
      const size_t width = ByteWidth(got.dtype());
      if (std::memcmp(got.data() + i * width, expected.data() + i * width, width) == 0) continue;
      return absl::StrCat("element ", i, " is ", got.IntAt(i), ", not ", expected.IntAt(i));
    }
    const double g = got.At(i), e = expected.At(i);
    if (g == e || (std::isnan(g) && std::isnan(e))) continue;
    const bool near = std::isfinite(g) && std::isfinite(e) &&
                      (kind == "ulp"   ? UlpsBetween(got.dtype(), g, e, unit) <= max
                       : kind == "abs" ? std::abs(g - e) <= max
                                       : false);
    if (!near)
      return absl::StrCat("element ", i, " is ", g, ", not ", e, " (", kind, " ", max, ")");
  }
  return "";
}

struct Counts {
  int all = 0, right = 0;
  int cut = 0;                         // plans for two devices
  std::map<std::string, int> lacking;  // by what is said of them
  std::vector<std::string> wrong;
};

absl::StatusOr<std::vector<Array>> RunCompiled(worker::Backend& backend, const Program& program,
                                               const std::vector<Array>& args) {
  TESSERA_ASSIGN_OR_RETURN(const auto executable, backend.Compile(program));
  std::vector<worker::DeviceBufferRef> in;
  for (const Array& arg : args) {
    TESSERA_ASSIGN_OR_RETURN(in.emplace_back(), backend.FromHost(0, arg));
  }
  worker::CancelToken cancel;
  worker::RunContext context;
  context.cancel = &cancel;
  TESSERA_ASSIGN_OR_RETURN(const worker::Enqueued enqueued,
                           backend.Enqueue(*executable, context, in));
  std::vector<Array> out;
  for (const worker::DeviceBufferRef& result : enqueued.results) {
    TESSERA_ASSIGN_OR_RETURN(out.emplace_back(), backend.ToHost(*result));
  }
  return out;
}

// The program with inputs that are cut along dim `dim`, those of which two devices divide it;
// nullopt if there is none.
std::optional<Program> CutAlong(int dim, const Program& program) {
  const Mesh mesh{{{"x", 2, AxisType::kAuto}}};
  const Function& f = *program.entry;
  Program cut{kOpset, ValueOrThrow(Rescope(f, Scope{mesh}, f.param_types())), {}, {}};
  cut.in_shardings.resize(f.num_params);
  bool any = false;
  for (int i = 0; i < f.num_params; ++i) {
    const Type& t = f.types[i];
    if (t.rank() <= dim || t.shape[dim] % 2 != 0 || t.num_elements() == 0) continue;
    PartitionSpec spec;
    spec.dims.resize(t.rank());
    spec.dims[dim] = {"x"};
    cut.in_shardings[i] = std::move(spec);
    any = true;
  }
  if (!any) return std::nullopt;
  return cut;
}
// "" or what differs on two devices.
std::string MismatchOnDevices(const std::string& name, const Program& program,
                              const std::vector<Array>& args, const std::vector<Array>& expected,
                              const json& checks) {
  const samples::Planned planned = samples::PlanOf(program, args);
  const std::vector<Shards> got = ValueOrThrow(
      Evaluator().RunOnDevices(planned.devices, *planned.plan.device_program, planned.args));
  for (size_t r = 0; r < expected.size(); ++r)
    for (const int64_t d : planned.devices) {
      const Array want =
          samples::BlockOf(expected[r], planned.plan.out[r].spec, planned.plan.mesh, d);
      const std::string mismatch = Mismatch(name, got[r][d], want, checks[r], /*is_cut=*/true);
      if (!mismatch.empty()) return absl::StrCat("result ", r, " on device ", d, ": ", mismatch);
    }
  return "";
}

void RunCase(const json& test, worker::Backend& backend, Counts* counts) {
  ++counts->all;
  const std::string name = test["name"];
  const auto wrong = [&](std::string_view what) {
    counts->wrong.push_back(absl::StrCat(name, ": ", ToAbsl(what)));
  };
  std::string bytes;
  if (!absl::Base64Unescape(test["program"].get<std::string>(), &bytes)) return wrong("no base64");
  const absl::StatusOr<Artifact> artifact =
      ReadArtifact({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  if (!artifact.ok()) return wrong(artifact.status().message().data());
  const absl::StatusOr<Program> program = ImportProgram(*artifact);
  if (!program.ok()) {
    EXPECT_NE(ReasonOf(program.status()), "") << name << ": " << program.status();
    ++counts->lacking[std::string(program.status().message())];
    return;
  }
  if (const absl::Status ok = Verify(*program); !ok.ok()) return wrong(ok.ToString());
  std::vector<Array> args, expected;
  for (const auto& [list, from] : {std::pair(&args, "inputs"), std::pair(&expected, "expected")}) {
    for (const json& value : test[from]) {
      const std::optional<Array> array = ArrayOf(value);
      if (!array) return wrong(absl::StrCat("has a value of dtype ", value["dtype"].dump()));
      list->push_back(*array);
    }
  }
  const auto compare = [&](absl::StatusOr<std::vector<Array>> got, std::string_view how) {
    if (!got.ok()) {
      wrong(absl::StrCat(ToAbsl(how), ": ", got.status().ToString()));
      return false;
    }
    if (got->size() != expected.size()) {
      wrong(absl::StrCat(ToAbsl(how), ": has ", got->size(), " results"));
      return false;
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      const std::string mismatch = Mismatch(name, (*got)[i], expected[i], test["checks"][i]);
      if (mismatch.empty()) continue;
      wrong(absl::StrCat(ToAbsl(how), ": result ", i, ": ", mismatch));
      return false;
    }
    return true;
  };
  if (!compare(Evaluator().Run(*program->entry, args), "evaluated")) return;
  if (!compare(RunCompiled(backend, *program, args), "compiled")) return;
  constexpr int kDims = 4;
  for (int dim = 0; dim < kDims && program->mesh().empty(); ++dim) {
    std::string differs;
    const absl::Status status = CatchStatus([&] {
      const std::optional<Program> cut = CutAlong(dim, *program);
      if (!cut) return;
      ++counts->cut;
      differs = MismatchOnDevices(name, *cut, args, expected, test["checks"]);
    });
    if (!status.ok()) differs = status.ToString();
    if (!differs.empty()) return wrong(absl::StrCat("cut along dim ", dim, ": ", differs));
  }
  ++counts->right;
}

TEST(CasesTest, EveryCaseThatIsReadGivesWhatItSays) {
  const std::optional<std::string> folder = Shared();
  if (!folder) GTEST_SKIP() << "TESSERA_SHARED does not name the cases";
  worker::CpuBackendOptions options;
  options.kernels = worker::CpuBackendOptions::Kernels::kAlways;
  const std::unique_ptr<worker::Backend> backend = worker::MakeCpuBackend(options);
  // How many of each file's are right; more, as Tessera gets more ops.
  constexpr std::pair<const char*, int> kFiles[] = {
      {"interpret", 214}, {"quantized", 37}, {"testdata", 1427}};
  for (const auto& [file, right] : kFiles) {
    Counts counts;
    ForEachLine(absl::StrCat(*folder, file, ".jsonl.gz"), [&](const std::string& line) {
      const json test = json::parse(line);
      if (test.contains("upstream_disabled")) return;
      RunCase(test, *backend, &counts);
    });
    std::cout << file << ": " << counts.right << " of " << counts.all << " right, with "
              << counts.cut << " plans for two devices\n";
    for (const auto& [what, n] : counts.lacking) std::cout << "  " << n << "  " << what << "\n";
    for (const std::string& what : counts.wrong) ADD_FAILURE() << what;
    EXPECT_EQ(counts.right, right) << file;
  }
}

}  // namespace
}  // namespace tessera::ir::stablehlo
