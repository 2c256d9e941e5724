// The verifier of programs. The text parser, the coordinator's admission, its jail (a process that
// reads untrusted programs first, docs/decisions/0019) and the client's tools call it, so a program
// from outside is trusted only after it has passed here.
#include "ir/verify.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/builder.h"
#include "ir/op_def.h"

namespace tessera::ir {
namespace {

template <class... Parts>
absl::Status Malformed(const Function& f, const Parts&... parts) {
  return MakeError(ErrorKind::kMalformedProgram, absl::StrCat("function ", f.name, ": ", parts...));
}
template <class... Parts>
absl::Status OverLimit(const Parts&... parts) {
  return MakeError(ErrorKind::kLimitExceeded, absl::StrCat("program: ", parts...));
}

absl::Status AnnotatedWithSite(absl::Status status, const Site& site) {
  return status.ok() || !site.valid() ? status : Annotate(status, site.ToString());
}

class Verifier {
 public:
  explicit Verifier(const Limits& limits) : limits_(limits) {}

  // Checks one function and, through CheckOp, its regions. The bounds on depth, ops and mesh are
  // tested before any work that grows with them. `defined` tracks SSA order: an op may use only
  // values that came before it, and in the end every value has a definition.
  absl::Status CheckFunction(const Function& f, int64_t depth) {
    if (depth > limits_.region_depth)
      return OverLimit("regions nest deeper than ", limits_.region_depth);
    if ((ops_ += static_cast<int64_t>(f.ops.size())) > limits_.ops)
      return OverLimit("more than ", limits_.ops, " ops");
    if (!f.scope.mapped.empty())
      return Malformed(f, "it is the body of a vmap over ", f.scope.mapped.back().ToString(),
                       ", which has not been batched; expected a program without mapped axes");
    TESSERA_RETURN_IF_ERROR(CheckMesh(f.scope.mesh));
    if (f.scope.mesh.num_devices() > limits_.mesh_devices)
      return OverLimit("mesh ", f.scope.mesh.ToString(), " has more than ", limits_.mesh_devices,
                       " devices");
    if (f.num_params < 0 || f.num_params > static_cast<int>(f.types.size()) ||
        f.sites.size() != f.ops.size())
      return Malformed(f, "the tables of the function disagree in size");
    for (const Type& t : f.types) {
      if (t.rank() > limits_.rank) return OverLimit("a value has rank ", t.rank());
      TESSERA_RETURN_IF_ERROR(CheckType(t, f.scope.mesh));
    }
    std::vector<bool> defined(f.types.size(), false);
    std::fill(defined.begin(), defined.begin() + f.num_params, true);
    for (size_t i = 0; i < f.ops.size(); ++i)
      TESSERA_RETURN_IF_ERROR(AnnotatedWithSite(CheckOp(f, f.ops[i], &defined, depth), f.sites[i]));
    for (size_t v = 0; v < defined.size(); ++v)
      if (!defined[v]) return Malformed(f, "value %", v, " has a type and no definition");
    for (ValueId v : f.results)
      if (!IsDefined(v, defined)) return Malformed(f, "result %", v, " is not defined");
    return absl::OkStatus();
  }

 private:
  static bool IsDefined(ValueId v, const std::vector<bool>& defined) {
    return v >= 0 && v < static_cast<ValueId>(defined.size()) && defined[v];
  }

  // Checks one op: the sizes against the limits, the operands, its regions, and then that inference
  // gives the types that the program states. Regions are checked before inference, because the
  // rules rely on well-formed regions. Result values are marked as defined only after their types
  // agree.
  absl::Status CheckOp(const Function& f, const Op& op, std::vector<bool>* defined, int64_t depth) {
    if (op.def == nullptr) return Malformed(f, "an op has no definition");
    if (static_cast<int64_t>(std::max(op.operands.size(), op.results.size())) >
        limits_.values_per_op)
      return OverLimit(ToAbsl(op.def->name), " has more than ", limits_.values_per_op,
                       " operands or results");
    for (const auto& [name, value] : op.attrs.map())
      if (const Array* a = std::get_if<Array>(&value); a && a->num_bytes() > limits_.attr_bytes)
        return OverLimit("attribute ", name, " holds ", a->num_bytes(), " bytes");
    std::vector<Type> in;
    for (ValueId v : op.operands) {
      if (!IsDefined(v, *defined))
        return Malformed(f, "operand %", v, " is not defined before its use");
      in.push_back(f.types[v]);
    }
    if (static_cast<int64_t>(op.regions.size()) > limits_.values_per_op)
      return OverLimit(ToAbsl(op.def->name), " has more than ", limits_.values_per_op, " regions");
    // Count each region as one op more: even a region without ops takes some work.
    ops_ += static_cast<int64_t>(op.regions.size());
    for (const FunctionRef& r : op.regions) {
      if (r == nullptr) return Malformed(f, "an op has an empty region");
      TESSERA_RETURN_IF_ERROR(CheckFunction(*r, depth + 1));
    }
    absl::StatusOr<std::vector<Type>> out = InferTypes(*op.def, f.scope, in, op.attrs, op.regions);
    TESSERA_RETURN_IF_ERROR(out);
    if (out->size() != op.results.size())
      return Malformed(f, ToAbsl(op.def->name), " has ", out->size(),
                       " results, but the program gives it ", op.results.size());
    for (size_t r = 0; r < out->size(); ++r) {
      const ValueId v = op.results[r];
      if (v < 0 || v >= static_cast<ValueId>(defined->size()) || (*defined)[v])
        return Malformed(f, "value %", v, " is defined twice or out of range");
      if (f.types[v] != (*out)[r])
        return Malformed(f, ToAbsl(op.def->name), ": %", v, " is typed ", f.types[v].ToString(),
                         ", inference gives ", (*out)[r].ToString());
      (*defined)[v] = true;
    }
    return absl::OkStatus();
  }

  Limits limits_;
  int64_t ops_ = 0;
};

absl::Status CheckSpecs(const std::vector<std::optional<PartitionSpec>>& specs,
                        const std::vector<Type>& types, const char* what) {
  if (!specs.empty() && specs.size() != types.size())
    return MakeError(ErrorKind::kMalformedProgram,
                     absl::StrCat("program has ", specs.size(), " ", what, " shardings for ",
                                  types.size(), " values"));
  for (size_t i = 0; i < specs.size(); ++i)
    if (specs[i] && static_cast<int>(specs[i]->dims.size()) > types[i].rank())
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat(what, " sharding ", i, " ", specs[i]->ToString(),
                                    " is too long for ", types[i].ToString()));
  return absl::OkStatus();
}

absl::Status CheckNames(const std::vector<std::string>& names, size_t values, const char* what) {
  if (!names.empty() && names.size() != values)
    return MakeError(
        ErrorKind::kMalformedProgram,
        absl::StrCat("program has ", names.size(), " ", what, " names for ", values, " values"));
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].size() > kValueNameMax)
      return OverLimit("the name of ", what, " ", i, " has ", names[i].size(), " bytes, at most ",
                       kValueNameMax, " are accepted");
    for (char c : names[i])
      if (c < 0x20 || c > 0x7e)
        return MakeError(ErrorKind::kMalformedProgram,
                         absl::StrCat("the name of ", what, " ", i,
                                      " holds a byte that is not printable ASCII"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyFunction(const Function& f, const Limits& limits) {
  return Verifier(limits).CheckFunction(f, 0);
}

absl::Status Verify(const Program& program, const Limits& limits) {
  if (program.entry == nullptr)
    return MakeError(ErrorKind::kMalformedProgram, "program has no entry function");
  if (program.opset < 1 || program.opset > kOpset)
    return MakeError(ErrorKind::kUnknownOp, absl::StrCat("program is of opset ", program.opset,
                                                         "; this build reads up to ", kOpset));
  TESSERA_RETURN_IF_ERROR(VerifyFunction(*program.entry, limits));
  return VerifySignature(program);
}

absl::Status VerifySignature(const Program& program) {
  const Function& f = *program.entry;
  TESSERA_RETURN_IF_ERROR(CheckSpecs(program.in_shardings, f.param_types(), "in"));
  TESSERA_RETURN_IF_ERROR(CheckSpecs(program.out_shardings, f.result_types(), "out"));
  TESSERA_RETURN_IF_ERROR(
      CheckNames(program.in_names, static_cast<size_t>(f.num_params), "argument"));
  return CheckNames(program.out_names, f.results.size(), "result");
}

}  // namespace tessera::ir
