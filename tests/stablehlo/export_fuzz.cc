// Fuzzes the export to StableHLO: a program that is exported must be readable again, verify, and
// give the same bits.
//
// An input of up to eight bytes is the seed of a random program (tests/ops/programs.h). A longer
// input is the text of a program.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "ir/eval/eval.h"
#include "ir/op_def.h"
#include "ir/ops.h"
#include "ir/ops/rules/comparator.h"
#include "ir/spec.h"
#include "ir/stablehlo/export.h"
#include "ir/stablehlo/import.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/ops/programs.h"

namespace tessera::ir::stablehlo {
namespace {

// Limits for programs that are evaluated: bytes of all values, ops that run, and devices.
constexpr double kBytesMax = 1 << 15;
constexpr int64_t kOpsRunMax = 2000;
constexpr int64_t kDevicesMax = 16;

double BytesOf(const Function& f) {
  double sum = 0;
  for (const Type& type : f.types) {
    double bytes = static_cast<double>(ByteWidth(type.dtype));
    for (const int64_t dim : type.shape) bytes *= static_cast<double>(dim);
    sum += bytes;
  }
  for (const Op& op : f.ops)
    for (const FunctionRef& region : op.regions) sum += BytesOf(*region);
  return sum;
}

// Returns an array of numbers at which implementations of ops are likely to differ.
Array Filled(const Type& type, int64_t which) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kFloats[] = {0.0, -0.0, 1, -1.5, kNan, 0.5, 3, kInf, -7, 0x1p10, -kInf};
  Array out(type.dtype, type.shape);
  for (int64_t i = 0; i < out.num_elements(); ++i) {
    const int64_t k = i * 5 + which;
    out.Set(i, IsInexact(type.dtype) ? kFloats[k % std::size(kFloats)]
               : type.dtype == DType::kBool
                   ? static_cast<double>(k % 3 == 0)
                   : static_cast<double>(k * 7 % 11) - (IsSignedInt(type.dtype) ? 5 : 0));
  }
  return out;
}

// Returns the results, or nullopt if the run takes too many ops or an op fails.
std::optional<std::vector<Array>> ResultsOf(const Function& f, const std::vector<Array>& args,
                                            int64_t ops) {
  EvalOptions options;
  options.check_cancel = [&ops] {
    return --ops > 0 ? absl::OkStatus() : absl::CancelledError("it takes too long");
  };
  absl::StatusOr<std::vector<Array>> results = Evaluator(options).Run(f, args);
  if (!results.ok()) return std::nullopt;
  return *std::move(results);
}

// Returns a sharding with as many dims as the value has, or nullopt if it leaves all dims open.
std::optional<PartitionSpec> InFull(const std::vector<std::optional<PartitionSpec>>& specs,
                                    size_t i, int rank) {
  if (i >= specs.size() || !specs[i]) return std::nullopt;
  PartitionSpec spec = *specs[i];
  spec.dims.resize(rank);
  spec.open.resize(rank);
  const bool nothing = rank > 0 &&
                       std::find(spec.open.begin(), spec.open.end(), false) == spec.open.end() &&
                       std::all_of(spec.dims.begin(), spec.dims.end(),
                                   [](const auto& axes) { return axes.empty(); });
  if (nothing) return std::nullopt;
  return spec;
}
std::string NameOf(const std::vector<std::string>& names, size_t i) {
  return i < names.size() ? names[i] : "";
}

void CheckSignature(const Program& program, const Program& back) {
  TESSERA_CHECK(back.mesh() == program.mesh()) << back.mesh().ToString();
  const auto check = [](const std::vector<Type>& types, const std::vector<Type>& back_types,
                        const auto& specs, const auto& back_specs, const auto& names,
                        const auto& back_names) {
    TESSERA_CHECK_EQ(back_types.size(), types.size());
    for (size_t i = 0; i < types.size(); ++i) {
      TESSERA_CHECK(back_types[i].dtype == types[i].dtype && back_types[i].shape == types[i].shape)
          << i << ": " << back_types[i].ToString();
      TESSERA_CHECK(InFull(back_specs, i, types[i].rank()) == InFull(specs, i, types[i].rank()))
          << "sharding " << i;
      TESSERA_CHECK_EQ(NameOf(back_names, i), NameOf(names, i));
    }
  };
  check(program.entry->param_types(), back.entry->param_types(), program.in_shardings,
        back.in_shardings, program.in_names, back.in_names);
  check(program.entry->result_types(), back.entry->result_types(), program.out_shardings,
        back.out_shardings, program.out_names, back.out_names);
}

// Returns whether a sharding of the program names an unknown axis, or an axis twice.
bool NamesWrongAxes(const Program& program) {
  const auto any = [&](const std::vector<std::optional<PartitionSpec>>& specs,
                       const std::vector<Type>& types) {
    for (size_t i = 0; i < specs.size(); ++i)
      if (specs[i] && FindSpecFault(*specs[i], program.mesh(), types[i].shape)) return true;
    return false;
  };
  return any(program.in_shardings, program.entry->param_types()) ||
         any(program.out_shardings, program.entry->result_types());
}

// Returns whether the program sorts by an order that leaves the position of NaNs open. After export
// and import, the program sorts NaNs last, while the original program orders them in some way, so
// that results may differ.
bool LeavesNansOpen(const Function& f) {
  return std::any_of(f.ops.begin(), f.ops.end(), [](const Op& op) {
    if (op.def == &ops::kSortBy) {
      const std::optional<ops::KeyOrder> order = ops::OrderOf(*op.regions[0]);
      if (order && order->leaves_nans_open) return true;
    }
    return std::any_of(op.regions.begin(), op.regions.end(),
                       [](const FunctionRef& region) { return LeavesNansOpen(*region); });
  });
}

// Exports and imports the program and compares the two programs. A program may be refused for a
// limit, for an op that StableHLO lacks, or for shardings that name wrong axes. The program is
// evaluated only on small values and for a bounded number of ops, because a fuzzer may find loops
// that never end. If `args` is null, Check makes arguments.
void Check(const Program& program, const std::vector<Array>* args) {
  const absl::StatusOr<std::string> bytes = ExportProgram(program);
  if (!bytes.ok()) {
    TESSERA_CHECK(bytes.status().code() == absl::StatusCode::kUnimplemented ||
                  bytes.status().code() == absl::StatusCode::kResourceExhausted ||
                  NamesWrongAxes(program))
        << bytes.status();
    return;
  }
  const absl::StatusOr<Artifact> artifact =
      ReadArtifact({reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()});
  TESSERA_CHECK(artifact.ok()) << artifact.status();
  const absl::StatusOr<Program> back = ImportProgram(*artifact);
  TESSERA_CHECK(back.ok() || back.status().code() == absl::StatusCode::kResourceExhausted)
      << back.status();
  if (!back.ok()) return;
  const absl::Status verified = Verify(*back);
  TESSERA_CHECK(verified.ok() || verified.code() == absl::StatusCode::kResourceExhausted)
      << verified;
  CheckSignature(program, *back);
  std::vector<Array> filled;
  if (args == nullptr) {
    if (BytesOf(*program.entry) > kBytesMax || program.mesh().num_devices() > kDevicesMax) return;
    for (const Type& type : program.entry->param_types())
      filled.push_back(Filled(type, static_cast<int64_t>(filled.size())));
    args = &filled;
  }
  if (LeavesNansOpen(*program.entry)) return;
  const auto want = ResultsOf(*program.entry, *args, kOpsRunMax);
  if (!want) return;
  const auto got = ResultsOf(*back->entry, *args, 50 * kOpsRunMax);
  TESSERA_CHECK(got.has_value()) << "what comes back does not run";
  for (size_t r = 0; r < want->size(); ++r) {
    const std::string difference =
        samples::Difference((*got)[r], (*want)[r], samples::kExact, nullptr);
    TESSERA_CHECK(difference.empty()) << "result " << r << ": " << difference << "\n"
                                      << PrintProgram(program) << PrintProgram(*back);
  }
}

}  // namespace
}  // namespace tessera::ir::stablehlo

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera::ir;
  if (size > 8) {
    const absl::StatusOr<Program> program =
        ParseProgram({reinterpret_cast<const char*>(data), size});
    if (program.ok()) stablehlo::Check(*program, nullptr);
    return 0;
  }
  uint64_t seed = 0;
  for (size_t i = 0; i < size; ++i) seed = seed << 8 | data[i];
  const samples::RandomProgram random = samples::MakeRandomProgram(seed);
  std::vector<Array> args;
  for (const Shards& shards : samples::ArgsOf(random.sample)) args.push_back(shards[0]);
  stablehlo::Check({kOpset, random.sample.regions[0], {}, {}}, &args);
  return 0;
}
