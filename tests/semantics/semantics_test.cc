// Proves that the SDK gives the results and the errors that JAX gave. A row (rows.h) is a program
// in Python, which scripts/record_semantics.py ran in JAX, and its twin: the same program in C++
// with the SDK. Each test runs one twin on a cluster and compares its results or its error with the
// recording.
//
// Two lists hold the exceptions. pending.txt has the rows that the SDK cannot express yet, and
// which so have no twin. differs.txt has the rows whose twin gives another result than JAX, with
// the reason. A row that stays in a list without need fails its test, so that the lists shrink as
// the SDK grows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/testing/datadriven.h"
#include "tests/semantics/rows.h"

namespace tessera::semantics {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::map<std::string, json>& AllRecorded() {
  static const std::map<std::string, json> kAll = [] {
    std::map<std::string, json> all;
    std::ifstream in(SourcePath("tests/semantics/recorded.jsonl"));
    for (std::string line; std::getline(in, line);) {
      json j = json::parse(line);
      if (j.contains("name")) all[j["name"]] = j;
    }
    return all;
  }();
  return kAll;
}

// Reads pending.txt or differs.txt, whose lines are "name of a row: reason". Returns a map from the
// name to the reason.
std::map<std::string, std::string> Listed(const std::string& file) {
  std::map<std::string, std::string> out;
  std::ifstream in(SourcePath("tests/semantics/" + file));
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(": ", 1));
    EXPECT_TRUE(out.emplace(parts).second) << file << " has " << line << " twice";
  }
  return out;
}

// Returns the names of the Python exception classes that count as the error `e` of the SDK. Most
// error kinds of the SDK have the name of their Python class; the switch lists the others.
std::set<std::string> PythonClasses(const Error& e) {
  const std::string name(InfoOf(e.kind()).name);
  switch (e.kind()) {
    // JAX has its own class for a spec that names an axis twice, and two classes for the use of a
    // deleted array.
    case ErrorKind::kValueError:
      return {name, "DuplicateSpecError"};
    case ErrorKind::kNotImplemented:
      return {"NotImplementedError"};
    case ErrorKind::kIndivisible:
    case ErrorKind::kUnknownAxis:
      return {"ValueError"};
    case ErrorKind::kArrayDeleted:
      return {"RuntimeError", "ValueError"};
    default:
      return {name};
  }
}

double Unit(DType dtype, double at) {
  const int digits = dtype == kF64 || dtype == kC128 ? 52
                     : dtype == kF16                 ? 10
                     : dtype == kBF16                ? 7
                                                     : 23;
  return std::ldexp(std::fabs(at), -digits);
}

double NumberOf(const json& j) {
  return j.is_string() ? std::stod(j.get<std::string>()) : j.get<double>();
}

// Returns how a leaf of the result differs from the recorded one, or "".
std::string Difference(const Row& row, const Leaf& got, const json& want) {
  if (want.contains("text")) {
    const std::string text = want.at("text").get<std::string>();
    if (got.array.valid()) return absl::StrCat("an array, expected ", text);
    return got.text == text ? "" : absl::StrCat(got.text, ", expected ", text);
  }
  // In JAX, the gradient by an integer argument has the dtype float0 and no values. In the SDK it
  // is an Array without a value.
  if (want.at("dtype") == "float0")
    return got.array.valid() ? absl::StrCat(got.array.type().ToString(), ", expected no value")
                             : "";
  if (!got.array.valid()) return absl::StrCat(got.text, ", expected an array");
  const Array& x = got.array;
  if (ir::DTypeName(x.dtype()) != want.at("dtype").get<std::string>() ||
      x.shape() != want.at("shape").get<Dims>())
    return absl::StrCat(x.type().ToString(), ", expected ", want.at("dtype").dump(),
                        want.at("shape").dump());
  // Whether a bool is weak does not matter: JAX marks some bools as weak and others not.
  if (x.dtype() != kBool && x.type().weak != want.at("weak").get<bool>())
    return absl::StrCat(x.type().ToString(), ", expected weak: ", want.at("weak").dump());
  if (row.placed && want.contains("sharding")) {
    ir::DimAxes axes = x.sharding().dims;
    axes.resize(x.rank());
    if (axes != want.at("sharding").get<ir::DimAxes>())
      return absl::StrCat("sharded as ", json(axes).dump(), ", expected ",
                          want.at("sharding").dump());
  }
  std::vector<double> numbers;  // a complex number counts as two
  for (const json& v : want.at("values")) {
    if (v.is_boolean()) {
      numbers.push_back(v.get<bool>());
    } else if (v.is_array()) {
      for (const json& part : v) numbers.push_back(NumberOf(part));
    } else {
      numbers.push_back(NumberOf(v));
    }
  }
  ir::Array value = x.value();
  if (ir::IsComplex(value.dtype())) {
    value =
        ir::Array(value.dtype() == kC64 ? kF32 : kF64, {2 * value.num_elements()}, value.bytes());
  }
  const std::vector<double> have = value.ToDoubles();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (have.at(i) == numbers[i] || (std::isnan(have[i]) && std::isnan(numbers[i]))) continue;
    if (std::fabs(have[i] - numbers[i]) <= row.ulps * Unit(x.dtype(), numbers[i])) continue;
    return absl::StrCat("element ", i, " is ", have[i], ", expected ", numbers[i]);
  }
  return "";
}

// Runs the twin of a row. Returns how its results or its error differ from the recording, or "" if
// they agree. Errors agree if the class matches and the message contains the row's phrases; the
// rest of the message may differ.
std::string Difference(const Row& row, const json& want) {
  try {
    const std::vector<Leaf> got = row.program();
    if (row.fails) return absl::StrCat("no error, expected ", want.at("error").dump());
    const json& results = want.at("results");
    if (got.size() != results.size())
      return absl::StrCat(got.size(), " results, expected ", results.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const std::string difference = Difference(row, got[i], results[i]);
      if (!difference.empty()) return absl::StrCat("result ", i, ": ", difference);
    }
    return "";
  } catch (const Error& e) {
    const std::string said = absl::StrCat(ToAbsl(InfoOf(e.kind()).name), ": ", e.what());
    if (!row.fails) return said;
    const std::set<std::string> ours = PythonClasses(e);
    bool same = false;
    for (const json& theirs : want.at("error"))
      same = same || ours.count(theirs.get<std::string>());
    if (!same) return absl::StrCat(said, "\nexpected ", want.at("error").dump());
    for (const std::string& phrase : {row.phrase, row.phrase2}) {
      if (std::string(e.what()).find(phrase) == std::string::npos)
        return absl::StrCat(said, "\nlacks: ", phrase);
    }
    return "";
  }
}

// All rows run on one cluster of 8 devices. It is the cluster at TESSERA_SUITE_ADDRESS, over gRPC,
// or an embedded one if the variable is not set.
class SemanticsTest : public ::testing::TestWithParam<const Row*> {
 protected:
  static void SetUpTestSuite() {
    const char* address = std::getenv("TESSERA_SUITE_ADDRESS");
    ConnectOptions options;
    options.min_devices = 8;
    Session::SetDefault(address ? Session::Connect(address, options)
                                : Session::Embedded({.devices = 8}));
  }
  static void TearDownTestSuite() { Session::SetDefault(nullptr); }
};

// A row must be in pending.txt exactly if it has no twin, and in differs.txt exactly if its twin
// gives another result than JAX.
TEST_P(SemanticsTest, IsAsInJax) {
  static const auto* const pending = new auto(Listed("pending.txt"));
  static const auto* const differs = new auto(Listed("differs.txt"));
  const Row& row = *GetParam();
  const auto found = AllRecorded().find(row.name);
  ASSERT_NE(found, AllRecorded().end()) << "not recorded; run scripts/record_semantics.py";
  ASSERT_EQ(found->second.at("python"), row.python)
      << "recorded for another program; run scripts/record_semantics.py";
  if (row.does_not_compile) {
    EXPECT_TRUE(row.fails && !row.program && !pending->count(row.name));
    return;
  }
  if (!row.program) {
    EXPECT_TRUE(pending->count(row.name)) << "has no twin in C++, and is not in pending.txt";
    return;
  }
  EXPECT_FALSE(pending->count(row.name)) << "has a twin: take it out of pending.txt";
  const std::string difference = Difference(row, found->second);
  const auto reason = differs->find(row.name);
  if (reason == differs->end()) {
    EXPECT_EQ(difference, "") << row.python;
  } else {
    EXPECT_NE(difference, "") << "is as in JAX now: take it out of differs.txt";
    EXPECT_NE(reason->second, "") << "differs.txt gives a reason";
  }
}

std::vector<const Row*> Pointers() {
  std::vector<const Row*> out;
  for (const Row& row : Rows()) out.push_back(&row);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Rows, SemanticsTest, ::testing::ValuesIn(Pointers()),
                         [](const auto& info) {
                           return absl::StrReplaceAll(info.param->name, {{"/", "_"}});
                         });

TEST(SemanticsTest, NamesAreUniqueAndAllAreRecorded) {
  std::set<std::string> names;
  for (const Row& row : Rows()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
  EXPECT_EQ(AllRecorded().size(), names.size());
  for (const std::string file : {"pending.txt", "differs.txt"}) {
    for (const auto& [name, why] : Listed(file))
      EXPECT_TRUE(names.count(name)) << file << ": " << name;
  }
}

TEST(SemanticsTest, EveryAcceptanceProgramIsARow) {
  std::set<std::string> programs;
  for (const Row& row : Rows()) {
    for (const std::string& id : row.acceptance) programs.insert(id);
  }
  std::vector<std::string> missing;
  for (int i = 1; i <= 26; ++i) {
    const std::string id = absl::StrCat("A", i < 10 ? "0" : "", i);
    if (!programs.count(id)) missing.push_back(id);
  }
  EXPECT_THAT(missing, IsEmpty());
}

}  // namespace
}  // namespace tessera::semantics
