// Implements cases.h for cases_test.cc, device_cases_test.cc and served_cases_test.cc: reads the
// compressed files of cases, compares results under the tolerances of the cases, and reads and
// writes counts.txt.
#include "tests/stablehlo/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/testing/datadriven.h"
#include "base/testing/status_matchers.h"
#include "ir/stablehlo/import.h"
#include "worker/program/build.h"
#include "worker/program/step_program.h"

namespace tessera::ir::stablehlo {
namespace {

using nlohmann::json;

constexpr const char* kFiles[] = {"interpret", "quantized", "testdata"};
constexpr char kCountsFile[] = "tests/stablehlo/counts.txt";

// Calls `f` for each line of a compressed file. Fails the test if gzip cannot read the whole file.
template <typename F>
void ForEachLine(const std::string& path, F f) {
  std::unique_ptr<FILE, int (*)(FILE*)> in(
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
  EXPECT_EQ(pclose(in.release()), 0) << "gzip does not read all of " << path;
}

// Returns the dtype for MLIR's name of an element type.
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

// Returns the distance of two numbers in units in the last place of the larger one, or of
// `at_least` if that is larger.
double UlpsBetween(DType dtype, double a, double b, double at_least = 0) {
  const int mantissa = dtype == DType::kF64    ? 52
                       : dtype == DType::kF32  ? 23
                       : dtype == DType::kBF16 ? 7
                                               : 10;
  int exponent = 0;
  std::frexp(std::max({std::abs(a), std::abs(b), at_least}), &exponent);
  return std::abs(a - b) / std::ldexp(1.0, exponent - 1 - mantissa);
}

// Returns whether the results of a case are sums. Expected sums come from another backend, which
// adds in another order. If large terms cancel, a sum may differ by units of the largest element
// rather than by units of its own. Sums of scattered updates count as sums only if a plan cuts the
// updates.
bool IsOfSums(const std::string& name, bool is_cut) {
  for (const char* of_sums :
       {"dot_general", "conv_general_dilated", "cumsum", "cumlogsumexp", "reduce_window_add"})
    if (absl::StartsWith(name, of_sums)) return true;
  return is_cut && absl::StartsWith(name, "scatter_add");
}
double LargestOf(const Array& array) {
  double largest = 0;
  for (int64_t i = 0; i < array.num_elements(); ++i)
    if (std::isfinite(array.At(i))) largest = std::max(largest, std::abs(array.At(i)));
  return largest;
}
// Returns the real and imaginary parts of a complex array along a new last dim.
Array AsParts(const Array& x) {
  Dims shape = x.shape();
  shape.push_back(2);
  const int64_t bytes = x.num_elements() * ByteWidth(x.dtype());
  return Array(x.dtype() == DType::kC64 ? DType::kF32 : DType::kF64, std::move(shape),
               {x.data(), static_cast<size_t>(bytes)});
}
// Returns "" or the first element that differs from the expected one by more than the tolerance.
std::string MismatchOf(const std::string& name, const Array& got, const Array& expected,
                       const json& check, bool is_cut) {
  if (got.dtype() != expected.dtype() || got.shape() != expected.shape())
    return absl::StrCat("has the type ", DTypeName(got.dtype()).data());
  if (IsComplex(got.dtype()))
    return MismatchOf(name, AsParts(got), AsParts(expected), check, is_cut);
  const std::string kind = check["kind"];
  const double unit = IsOfSums(name, is_cut) ? LargestOf(expected) : 0;
  const double max =
      check.contains("max") && !check["max"].is_null() ? check["max"].get<double>() : 0;
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    if (!IsFloat(got.dtype())) {
      const size_t width = ByteWidth(got.dtype());
      // The unused bits of an element of less than a byte do not matter.
      if (BitWidth(got.dtype()) < 8 && got.IntAt(i) == expected.IntAt(i)) continue;
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

// Returns the op with which the name of a case begins: the part before the slash, or before the
// first dtype.
std::string FamilyOf(const std::string& name) {
  size_t end = name.find('/');
  if (end == std::string::npos) {
    end = name.size();
    for (const char* dtype :
         {"_bool", "_int", "_uint", "_float", "_bfloat", "_complex", "_unknown"})
      end = std::min(end, name.find(dtype));
  }
  std::string family = name.substr(0, end);
  while (family.size() > 1 && family.back() == '_') family.pop_back();
  for (char& c : family)
    if (c == ' ') c = '_';
  return family;
}

Case CaseOf(const json& test) {
  Case out;
  out.name = test["name"];
  out.family = FamilyOf(out.name);
  out.checks = test["checks"];
  if (!absl::Base64Unescape(test["program"].get<std::string>(), &out.artifact))
    out.problem = "its program is not base64";
  for (const auto& [list, from] :
       {std::pair(&out.args, "inputs"), std::pair(&out.expected, "expected")}) {
    for (const json& value : test[from]) {
      const std::optional<Array> array = ArrayOf(value);
      if (array) {
        list->push_back(*array);
      } else if (out.problem.empty()) {
        out.problem = absl::StrCat("has a value of dtype ", value["dtype"].dump());
      }
    }
  }
  return out;
}

// ---- The file of counts. ------------------------------------------------------------------------

struct CountsFile {
  std::vector<std::string> comments, columns;
  std::map<std::string, std::map<std::string, int>> rows;  // family -> column -> count
};

CountsFile ReadCounts() {
  CountsFile file;
  std::ifstream in(SourcePath(kCountsFile));
  for (std::string line; std::getline(in, line);) {
    if (absl::StartsWith(line, "#")) {
      file.comments.push_back(line);
      continue;
    }
    std::istringstream words(line);
    std::string first, word;
    if (!(words >> first)) continue;
    if (file.columns.empty()) {  // the line with the names of the columns
      while (words >> word) file.columns.push_back(word);
      continue;
    }
    for (const std::string& column : file.columns) words >> file.rows[first][column];
    EXPECT_TRUE(words) << kCountsFile << ": " << line;
  }
  return file;
}

std::string TextOf(const CountsFile& file) {
  std::string text;
  for (const std::string& line : file.comments) absl::StrAppend(&text, line, "\n");
  const auto add_row = [&](const std::string& first, const auto& cell) {
    absl::StrAppend(&text, absl::StrFormat("%-36s", first));
    for (const std::string& column : file.columns)
      absl::StrAppend(&text, absl::StrFormat(" %7s", cell(column)));
    absl::StrAppend(&text, "\n");
  };
  add_row("family", [](const std::string& column) { return column; });
  for (const auto& [family, counts] : file.rows)
    add_row(family, [&counts = counts](const std::string& column) {
      const auto it = counts.find(column);
      return absl::StrCat(it == counts.end() ? 0 : it->second);
    });
  return text;
}

}  // namespace

std::optional<std::string> CasesFolder() {
  const char* const shared = std::getenv("TESSERA_SHARED");
  if (shared == nullptr) return std::nullopt;
  const std::string folder = absl::StrCat(shared, "/stablehlo/cases/");
  return std::filesystem::is_directory(folder) ? std::optional(folder) : std::nullopt;
}

void ForEachCase(const std::string& folder, const std::function<void(const Case&)>& f) {
  for (const char* file : kFiles)
    ForEachLine(absl::StrCat(folder, file, ".jsonl.gz"), [&](const std::string& line) {
      const json test = json::parse(line);
      if (!test.contains("upstream_disabled")) f(CaseOf(test));
    });
}

void ForEachRecordedCase(const std::function<void(const Case&)>& f) {
  std::ifstream lines(SourcePath("tests/stablehlo/recorded/ops.jsonl"));
  for (std::string line; std::getline(lines, line);) f(CaseOf(json::parse(line)));
}

absl::StatusOr<Program> ProgramOf(const Case& test) {
  TESSERA_ASSIGN_OR_RETURN(
      const Artifact artifact,
      ReadArtifact({reinterpret_cast<const uint8_t*>(test.artifact.data()), test.artifact.size()}));
  return ImportProgram(artifact);
}

std::string Mismatch(const Case& test, size_t r, const Array& got, const Array& expected,
                     bool is_cut) {
  return MismatchOf(test.name, got, expected, test.checks[r], is_cut);
}

std::string Mismatch(const Case& test, absl::Span<const Array> got) {
  if (got.size() != test.expected.size()) return absl::StrCat("has ", got.size(), " results");
  for (size_t r = 0; r < got.size(); ++r) {
    const std::string mismatch = Mismatch(test, r, got[r], test.expected[r]);
    if (!mismatch.empty()) return absl::StrCat("result ", r, ": ", mismatch);
  }
  return "";
}

bool IsCodeAlone(const Program& program, const worker::program::BuildOptions& options) {
  const absl::StatusOr<worker::program::StepProgram> built =
      worker::program::Build(*program.entry, options);
  EXPECT_THAT(built.status(), IsOk());
  bool alone = built.ok();
  if (!alone) return false;
  worker::program::ForEachStep(built->steps, [&](const worker::program::Step& step) {
    alone &= !std::holds_alternative<worker::program::HostStep>(step.what);
  });
  return alone;
}

void Counts::Add(const std::string& column, const std::string& family, bool one) {
  columns_[column][family] += one ? 1 : 0;
}

void Counts::Expect() const {
  CountsFile file = ReadCounts();
  bool more = false;
  for (const auto& [column, families] : columns_) {
    ASSERT_NE(std::find(file.columns.begin(), file.columns.end(), column), file.columns.end())
        << kCountsFile << " has no column " << column;
    int total = 0;
    for (const auto& [family, n] : families) {
      int& before = file.rows[family][column];
      EXPECT_GE(n, before) << "of " << family << " fewer are \"" << column << "\" than before";
      more |= n > before;
      before = std::max(before, n);
      total += n;
    }
    for (const auto& [family, row] : file.rows)
      EXPECT_TRUE(row.at(column) == 0 || families.count(family) > 0) << family << " is gone";
    std::cout << column << ": " << total << "\n";
  }
  if (more) ExpectFileHolds(kCountsFile, TextOf(file));
}

}  // namespace tessera::ir::stablehlo
