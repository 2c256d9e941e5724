// debug_nans. jit and InProgram call RunCheckingNans in place of a plain run. RunCheckingNans adds
// a result to the program that says whether an op made a NaN. If one did, RunCheckingNans runs
// variants of the program until it has found this op.
#include "client/debug.h"

#include <cmath>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/trace/compile.h"
#include "client/trace/prints.h"
#include "client/trace/trace.h"
#include "ir/eval/eval.h"
#include "ir/op_def.h"
#include "ir/transform/transform.h"

namespace tessera {
namespace internal {
namespace {

enum : int { kFromEnvironment, kOff, kOn };
thread_local int nans_in_scope = kFromEnvironment;

// If the operands of an op with regions have at most this many bytes together, they are fetched,
// and the op is evaluated in this process to find the op in its regions that made the NaN.
constexpr int64_t kEvaluatedBytesMax = int64_t{256} << 20;

template <class T>
bool IsNan(const std::complex<T>& z) {
  return std::isnan(z.real()) || std::isnan(z.imag());
}
bool IsNan(const ir::Array& a, int64_t i) {
  if (a.dtype() == DType::kC64) return IsNan(a.As<std::complex<float>>()[i]);
  if (a.dtype() == DType::kC128) return IsNan(a.As<std::complex<double>>()[i]);
  return std::isnan(a.At(i));
}
std::optional<int64_t> FindNan(const ir::Array& a) {
  if (!ir::IsInexact(a.dtype())) return std::nullopt;
  for (int64_t i = 0; i < a.num_elements(); ++i)
    if (IsNan(a, i)) return i;
  return std::nullopt;
}
bool HasNan(const std::vector<ir::Array>& arrays) {
  for (const ir::Array& a : arrays)
    if (FindNan(a)) return true;
  return false;
}

std::string IndexText(int64_t i, const Dims& shape) {
  std::vector<int64_t> index(shape.size());
  for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
    index[d] = i % shape[d];
    i /= shape[d];
  }
  return absl::StrCat("[", absl::StrJoin(index, ", "), "]");
}
// Returns "element [3, 1] of f32[8,4]" for the first NaN of `result`. If all operands have the
// result's shape, the text also has the operands' values at this element.
std::string DescribeFirstNan(const ir::Array& result, const std::vector<ir::Array>& operands) {
  const int64_t i = *FindNan(result);
  std::string text = result.shape().empty()
                         ? absl::StrCat("the scalar ", ToAbsl(ir::DTypeName(result.dtype())))
                         : absl::StrCat("element ", IndexText(i, result.shape()), " of ",
                                        ToAbsl(ir::DTypeName(result.dtype())), "[",
                                        ir::DimsToString(result.shape()), "]");
  std::vector<std::string> operand_values;
  for (const ir::Array& operand : operands)
    if (operand.shape() == result.shape() && !ir::IsComplex(operand.dtype()))
      operand_values.push_back(absl::StrCat(operand.At(i)));
  if (!operand_values.empty() && operand_values.size() == operands.size())
    absl::StrAppend(&text, ", of ", absl::StrJoin(operand_values, " and "));
  return text;
}

// Describes the op in the regions of `op` that made the NaN: ", where log made element ...".
// Returns "" if no single op made it.
std::string DescribeNanInRegions(const ir::Op& op, const ir::Scope& scope, const Site& site,
                                 const std::vector<Type>& types,
                                 const std::vector<ir::Array>& operands) {
  std::string found;
  ir::EvalOptions options;
  options.observe = [&](const ir::Op& inner, const Site& at, absl::Span<const int64_t> devices,
                        const std::vector<ir::Shards>& in, const std::vector<ir::Shards>& out) {
    for (size_t shard = 0; found.empty() && shard < devices.size(); ++shard) {
      std::vector<ir::Array> operand_values;
      for (const ir::Shards& shards : in) operand_values.push_back(shards[shard]);
      if (inner.def == op.def || HasNan(operand_values)) continue;
      for (const ir::Shards& shards : out) {
        if (!FindNan(shards[shard])) continue;
        found = absl::StrCat(
            ", where ", ToAbsl(inner.def->lax_name), " made ",
            DescribeFirstNan(shards[shard], operand_values),
            devices.size() > 1 ? absl::StrCat(", at place ", devices[shard], " of the mesh") : "",
            at.valid() ? absl::StrCat(" (", at.ToString(), ")") : "");
        break;
      }
    }
  };
  const absl::Status status = CatchStatus([&] {
    ir::Builder b(scope);
    std::vector<ir::Value> params;
    for (const Type& t : types) params.push_back(b.Param(t));
    const ir::FunctionRef f = b.Build(b.Emit(*op.def, params, op.attrs, op.regions));
    OrThrow(ir::Evaluator(options).Run(*f, operands), site);
  });
  return status.ok() ? found : "";
}

// Finds the op that made a NaN, and throws an error that names it.
class NanFinder {
 public:
  NanFinder(const TracedProgram& traced, const std::vector<Array>& args, const std::string& name,
            const Site& site)
      : traced_(traced),
        args_(args),
        name_(name),
        site_(site),
        session_(SessionOf(args, site)),
        fn_(OrThrow(ir::DropRules(ir::DropEffects(traced.program.entry)), site)) {}

  [[noreturn]] void Throw() const {
    const std::vector<Array> first = Run(ir::FirstNanSearch(*fn_));
    const int op = first[0].item<int>(site_), param = first[1].item<int>(site_);
    if (op >= 0) ThrowForOp(op);
    const auto& names = traced_.program.in_names;
    ThrowError(ErrorKind::kFloatingPointError, site_, "invalid value (nan) encountered in ", name_,
               param < 0
                   ? std::string(", but no op produced one when the program ran again")
                   : absl::StrCat(": no op produced one; argument ",
                                  static_cast<size_t>(param) < names.size() ? names[param]
                                                                            : absl::StrCat(param),
                                  " already contains one"));
  }

 private:
  std::vector<Array> Run(ir::FunctionRef entry) const {
    ir::Program program = traced_.program;
    program.entry = std::move(entry);
    program.out_shardings.clear();
    program.out_names.clear();
    return session_->Run(*session_->Compile(program, traced_.mesh.devices, name_ + ", for NaNs",
                                            /*explain=*/false, site_),
                         args_, /*donate=*/{}, site_);
  }

  // Runs the program once more with the results and operands of op `index` as its results, because
  // the earlier runs told only the index. Large operands are not fetched, and the message is then
  // less detailed.
  [[noreturn]] void ThrowForOp(int index) const {
    const ir::Op& op = fn_->ops[index];
    ir::Function f = *fn_;
    f.results = op.results;
    f.results.insert(f.results.end(), op.operands.begin(), op.operands.end());
    const std::vector<Array> values = Run(ir::Dce(f));
    const size_t num_results = op.results.size();
    std::string text = "nowhere";
    int64_t bytes = 0;
    std::vector<ir::Array> operands;
    std::vector<Type> types;
    for (size_t i = num_results; i < values.size(); ++i) {
      bytes += values[i].type().num_bytes();
      types.push_back(fn_->type(op.operands[i - num_results]));
    }
    if (bytes <= kEvaluatedBytesMax)
      for (size_t i = num_results; i < values.size(); ++i)
        operands.push_back(values[i].value(site_));
    for (size_t r = 0; r < num_results; ++r) {
      const ir::Array result = values[r].value(site_);
      if (!FindNan(result)) continue;
      text = absl::StrCat(DescribeFirstNan(result, operands), DeviceText(values[r]));
      break;
    }
    if (!op.regions.empty() && bytes <= kEvaluatedBytesMax)
      absl::StrAppend(&text, DescribeNanInRegions(op, fn_->scope, site_, types, operands));
    const Site& at = fn_->sites[index];
    ThrowError(ErrorKind::kFloatingPointError, at.valid() ? at : site_,
               "invalid value (nan) encountered in ", ToAbsl(op.def->lax_name), ", ", text,
               "; no operand contains one");
  }

  // Returns ", on device 2" for the first device that holds a NaN of `a`. Returns "" if only one
  // device holds the array.
  std::string DeviceText(const Array& a) const {
    const std::vector<int64_t> devices = a.devices(site_);
    for (size_t i = 0; devices.size() > 1 && i < devices.size(); ++i)
      if (FindNan(a.shard(static_cast<int>(i), site_)))
        return absl::StrCat(", on device ", devices[i]);
    return "";
  }

  const TracedProgram& traced_;
  const std::vector<Array>& args_;
  const std::string& name_;
  const Site& site_;
  const std::shared_ptr<Session> session_;
  const ir::FunctionRef fn_;
};

}  // namespace

bool DebugNans() {
  static const bool from_environment = [] {
    const char* const text = std::getenv("TESSERA_DEBUG_NANS");
    return text != nullptr && std::strcmp(text, "1") == 0;
  }();
  return nans_in_scope == kFromEnvironment ? from_environment : nans_in_scope == kOn;
}

std::vector<Array> RunCheckingNans(const TracedProgram& traced, const std::vector<Array>& args,
                                   const std::string& name, const Site& site) {
  ir::Program program = traced.program;
  program.entry = ir::WithNanFlag(*program.entry);
  if (!program.out_shardings.empty()) program.out_shardings.push_back(std::nullopt);
  if (!program.out_names.empty()) program.out_names.push_back("has_nan");
  const SentProgram sent = SplitPrints(program, site);
  const std::shared_ptr<Session> session = SessionOf(args, site);
  if (!traced.inspections.empty()) CompileTraced(*session, traced, name, /*with_plan=*/true, site);
  std::vector<Array> out = session->Run(
      *session->Compile(sent.program, traced.mesh.devices, name, /*explain=*/false, site), args,
      /*donate=*/{}, site);
  if (sent.prints) PrintResults(*sent.prints, &out, site);
  if (out.back().item<int>(site) != 0) NanFinder(traced, args, name, site).Throw();
  out.pop_back();
  return out;
}

}  // namespace internal

debug_nans::debug_nans(bool enabled) : saved_(internal::nans_in_scope) {
  internal::nans_in_scope = enabled ? internal::kOn : internal::kOff;
}
debug_nans::~debug_nans() { internal::nans_in_scope = saved_; }

}  // namespace tessera
