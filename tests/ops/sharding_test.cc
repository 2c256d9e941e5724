// Proves that sharded runs give the results of one device. A sample, or row, is one op with given
// attributes and operands: a test case (samples.h). For every factor of every row, the planner cuts
// the factor over 2 and 4 devices, and the evaluator runs the device program on all of these
// devices. The results must be the blocks of the result of a single device.
#include <algorithm>
#include <cctype>
#include <map>

#include "absl/strings/str_join.h"
#include "ir/op_def.h"
#include "ir/text.h"
#include "ir/transform/transform.h"
#include "tests/ops/op_test.h"
#include "tests/ops/planned.h"

namespace tessera::ir::samples {
namespace {

using Specs = std::vector<std::optional<PartitionSpec>>;
// Maps a factor to the axes that cut it.
using Cut = std::map<int, AxisList>;

Mesh MeshOf(std::vector<MeshAxis> axes) { return {std::move(axes)}; }

// Returns a function on `mesh` that runs the row's op. The regions are retyped for the mesh.
FunctionRef FunctionOn(const Sample& s, const Mesh& mesh, const std::vector<Type>& params) {
  const Scope scope{mesh};
  Builder b(scope);
  std::vector<Value> in;
  for (const Type& t : params) in.push_back(b.Param(t));
  std::vector<FunctionRef> regions = s.regions;
  if (s.scope.mesh.empty() && (s.def->has_planned_regions() || s.def->has_rules()))
    for (FunctionRef& r : regions) r = ValueOrThrow(Rescope(*r, scope, r->param_types()));
  return b.Build(b.Emit(*s.def, in, s.attrs, regions));
}

// Returns the axes of each dim of a value whose factors are cut as `cut` says. A dim can be cut
// along a minor factor only if its major factors are cut completely; otherwise the minor factor is
// left whole.
PartitionSpec SpecUnder(const TensorFactors& dims, const Type& type, const Signature& s,
                        const Cut& cut, const Mesh& mesh) {
  PartitionSpec spec;
  AxisSet used;
  for (int d = 0; d < type.rank(); ++d) {
    AxisList axes;
    for (int f : dims[d]) {
      if (s.factors[f].size == 1) continue;
      const auto it = cut.find(f);
      if (it == cut.end()) break;
      for (const std::string& a : it->second)
        if (used.insert(a).second) axes.push_back(a);
      if (mesh.SizeOf(axes) != s.factors[f].size) break;
    }
    if (type.shape[d] % mesh.SizeOf(axes) != 0) axes.clear();
    spec.dims.push_back(std::move(axes));
  }
  return spec;
}

bool CutsAny(const Specs& specs) {
  return std::any_of(specs.begin(), specs.end(), [](const std::optional<PartitionSpec>& s) {
    return s && std::any_of(s->dims.begin(), s->dims.end(),
                            [](const AxisList& a) { return !a.empty(); });
  });
}

std::string SpecsText(const Specs& specs) {
  return absl::StrJoin(specs, " ", [](std::string* o, const std::optional<PartitionSpec>& s) {
    *o += s ? s->ToString() : "-";
  });
}

struct Outcome {
  server::core::Plan plan;
  std::vector<Shards> got;  // results: [result][device]
};
Outcome PlanAndRun(const Program& program, const std::vector<Shards>& args) {
  std::vector<Array> whole;
  for (const Shards& shards : args) whole.push_back(shards[0]);
  Planned p = PlanOf(program, whole);
  std::vector<Shards> got =
      ValueOrThrow(Evaluator().RunOnDevices(p.devices, *p.plan.device_program, p.args));
  return {std::move(p.plan), std::move(got)};
}

class Checker {
 public:
  explicit Checker(const Sample& s) : s_(s), args_(ArgsOf(s)) {
    want_ = ValueOrThrow(RunShards(*FunctionOf(s), args_));
    if (s.tolerance.kind == Tolerance::kReordered)
      magnitudes_ = ValueOrThrow(MagnitudesOf(s, args_));
  }

  // Plans and runs `f` with these specs and compares the results with those of one device. They
  // must be equal bit for bit, unless `sums_cut` says that a sum may be cut and thereby reordered.
  std::string Check(const FunctionRef& f, const Specs& in, const Specs& out, bool sums_cut) {
    const std::string where = absl::StrCat("in ", SpecsText(in), ", out ", SpecsText(out), " on ",
                                           f->scope.mesh.ToString(), ": ");
    try {
      const Outcome o = PlanAndRun({kOpset, f, in, out}, args_);
      for (size_t i = 0; i < in.size(); ++i)
        if (in[i] && o.plan.in[i].spec.dims != Padded(*in[i], o.plan.in[i]))
          return absl::StrCat(where, "operand ", i, " is planned as ",
                              o.plan.in[i].spec.ToString());
      for (size_t r = 0; r < out.size(); ++r)
        if (out[r] && o.plan.out[r].spec.dims != Padded(*out[r], o.plan.out[r]))
          return absl::StrCat(where, "result ", r, " is planned as ",
                              o.plan.out[r].spec.ToString());
      const std::string why = Compare(o, sums_cut);
      return why.empty() ? ""
                         : absl::StrCat(where, why, "\n", PrintFunction(*o.plan.device_program));
    } catch (const StatusException& e) {
      return absl::StrCat(where, e.status().ToString());
    }
  }

 private:
  static DimAxes Padded(const PartitionSpec& spec, const server::core::PlanValue& v) {
    DimAxes dims = spec.dims;
    dims.resize(v.shape.size());
    return dims;
  }
  std::string Compare(const Outcome& o, bool sums_cut) {
    const bool reordered = sums_cut && s_.tolerance.kind == Tolerance::kReordered;
    const bool scaled = sums_cut && s_.tolerance.kind == Tolerance::kScaled;
    for (size_t r = 0; r < want_.size(); ++r)
      for (size_t d = 0; d < o.got[r].size(); ++d) {
        const PartitionSpec& spec = o.plan.out[r].spec;
        const auto device = static_cast<int64_t>(d);
        const Array want = BlockOf(want_[r][0], spec, o.plan.mesh, device);
        Array magnitude;
        if (reordered) magnitude = BlockOf(magnitudes_[r][0], spec, o.plan.mesh, device);
        const std::string why =
            Difference(o.got[r][d], want, reordered || scaled ? s_.tolerance : kExact,
                       reordered ? &magnitude : nullptr);
        if (!why.empty()) return absl::StrCat("result ", r, " on device ", d, ": ", why);
      }
    return "";
  }

  const Sample& s_;
  std::vector<Shards> args_, want_, magnitudes_;
};

// Returns the cuts to check: each factor over the one axis of a mesh, every pair of factors over
// two axes (one each), and each factor over both axes.
std::vector<std::pair<Mesh, Cut>> Cuts(const Sample& s, const Signature& signature) {
  const int n = static_cast<int>(signature.factors.size());
  std::vector<std::pair<Mesh, Cut>> out;
  auto divides = [&](int f, int64_t by) { return signature.factors[f].size % by == 0; };
  if (s.scope.mesh.empty())
    for (int64_t devices : {2, 4})
      for (int f = 0; f < n; ++f)
        if (divides(f, devices)) out.push_back({MeshOf({{"d", devices}}), {{f, {"d"}}}});
  const Mesh square = s.scope.mesh.empty() ? MeshOf({{"x", 2}, {"y", 2}}) : s.scope.mesh;
  for (int f = 0; f < n; ++f)
    for (int g = 0; g < n; ++g)
      if (f != g && divides(f, 2) && divides(g, 2))
        out.push_back({square, {{f, {"x"}}, {g, {"y"}}}});
  for (int f = 0; f < n; ++f)
    if (divides(f, 4)) {
      out.push_back({square, {{f, {"x", "y"}}}});
      out.push_back({square, {{f, {"y", "x"}}}});
    }
  if (out.empty()) out.push_back({square, {}});
  return out;
}

// Returns whether the op, or an op in its regions, sums or multiplies elements.
bool SumsElements(const OpDef& def, const std::vector<FunctionRef>& regions) {
  if (def.reduce == ReduceKind::kSum || def.reduce == ReduceKind::kProd) return true;
  return std::any_of(regions.begin(), regions.end(), [](const FunctionRef& r) {
    return std::any_of(r->ops.begin(), r->ops.end(),
                       [](const Op& op) { return SumsElements(*op.def, op.regions); });
  });
}
// Returns whether this cut may change the order of a sum. It may if it cuts the factor over which
// the op sums. For an op with regions, the factors of its regions are not known here, so any sum in
// a region counts.
bool CutsSums(const Sample& s, const Signature& signature, const Cut& cut) {
  if (!s.regions.empty()) return SumsElements(*s.def, s.regions);
  return std::any_of(cut.begin(), cut.end(), [&](const auto& at) {
    const FactorKind kind = signature.factors[at.first].kind;
    return kind == FactorKind::kReduction || kind == FactorKind::kPermutation;
  });
}

Signature SignatureOf(const Sample& s) {
  const FunctionRef f = FunctionOf(s);
  const std::vector<Type> in = f->param_types(), out = f->result_types();
  std::vector<Type> results;  // types of all results of the op, also of unused ones
  results = ValueOrThrow(InferTypes(*s.def, s.scope, in, s.attrs, s.regions));
  return s.def->factors({*s.def, s.scope, in, s.attrs, s.regions}, results);
}

// Returns a key that is equal for rows that differ only in their dtypes: the text of the row's
// program and its name without dtypes, and whether the row's dtype is a float.
std::string KeyWithoutDTypes(const Sample& s) {
  std::string shape = IsFloat(s.dtype()) ? "float " : "", word;
  for (const char c : PrintFunction(*FunctionOf(s)) + s.name + "\n") {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      word += c;
      continue;
    }
    shape += ParseDType(word) ? "dtype" : word;
    shape += c;
    word.clear();
  }
  return shape;
}

class ShardingTest : public OpTest {
 protected:
  // Returns the cuts to check for this row. Sharding rules hardly depend on dtypes. So for rows
  // that differ only in their dtypes, the first row checks all cuts and each later row checks one
  // of them.
  std::vector<std::pair<Mesh, Cut>> CutsToCheck(const Sample& s, const Signature& signature) {
    std::vector<std::pair<Mesh, Cut>> cuts = Cuts(s, signature);
    const int earlier = rows_of_shape_[KeyWithoutDTypes(s)]++;
    if (earlier > 0) cuts = {cuts[earlier % cuts.size()]};
    return cuts;
  }

 private:
  std::map<std::string, int> rows_of_shape_;
};

// Checks each cut with four choices of specs: for the operands only, for operands and results, for
// the operands with whole results, and for the results only.
TEST_P(ShardingTest, PlansGiveTheResultsOfOneDevice) {
  int64_t cut_rows = 0, rows = 0;
  ForEachSample(CheckKind::kSharded, [&](const Sample& s) -> std::string {
    ++rows;
    const Signature signature = SignatureOf(s);
    Checker checker(s);
    bool any = false;
    for (const auto& [mesh, cut] : CutsToCheck(s, signature)) {
      std::vector<Type> params;
      for (const Operand& o : s.operands) params.push_back(o.type);
      const FunctionRef f = FunctionOn(s, mesh, params);
      const std::vector<Type> results = f->result_types();
      Specs in, out;
      for (size_t i = 0; i < params.size(); ++i)
        in.push_back(SpecUnder(signature.operands[i], params[i], signature, cut, mesh));
      for (size_t r = 0; r < results.size(); ++r)
        out.push_back(SpecUnder(signature.results[r], results[r], signature, cut, mesh));
      const Specs open_in(in.size()), open_out(out.size()), whole_out(out.size(), PartitionSpec{});
      any = any || CutsAny(in) || CutsAny(out);
      for (const auto& [from, to] :
           {std::pair(in, open_out), {in, out}, {in, whole_out}, {open_in, out}}) {
        std::string why = checker.Check(f, from, to, CutsSums(s, signature, cut));
        if (!why.empty()) return why;
      }
    }
    cut_rows += any;
    return "";
  });
  EXPECT_TRUE(rows == 0 || cut_rows > 0) << "no row of " << op().name << " could be cut";
}

// Like the test above, but with the shardings in the types. Either the op refuses the types with a
// sharding error, or the plan keeps the shardings of the types.
TEST_P(ShardingTest, ExplicitTypesAreKept) {
  ForEachSample(CheckKind::kSharded, [&](const Sample& s) -> std::string {
    if (s.def->has_planned_regions() || s.def->has_rules() || !s.scope.mesh.empty()) return "";
    const Signature signature = SignatureOf(s);
    Checker checker(s);
    for (const auto& [auto_mesh, cut] : CutsToCheck(s, signature)) {
      Mesh mesh = auto_mesh;
      for (MeshAxis& a : mesh.axes) a.type = AxisType::kExplicit;
      std::vector<Type> params;
      for (size_t i = 0; i < s.operands.size(); ++i) {
        Type t = s.operands[i].type;
        t.sharding = SpecUnder(signature.operands[i], t, signature, cut, mesh).dims;
        Normalize(&t);
        params.push_back(t);
      }
      FunctionRef f;
      if (const absl::Status status = CatchStatus([&] { f = FunctionOn(s, mesh, params); });
          !status.ok()) {
        const std::string_view reason = ReasonOf(status);
        if (reason == "SHARDING_TYPE_ERROR" || reason == "NOT_IMPLEMENTED" ||
            reason == "INDIVISIBLE")
          continue;
        return absl::StrCat("is refused otherwise than as a sharding: ", status.ToString());
      }
      Specs in, out;
      for (const Type& t : params) in.push_back(SpecOf(t));
      for (const Type& t : f->result_types()) out.push_back(SpecOf(t));
      std::string why = checker.Check(f, in, out, CutsSums(s, signature, cut));
      if (!why.empty()) return why;
    }
    return "";
  });
}
TESSERA_FOR_EVERY_OP(ShardingTest);

}  // namespace
}  // namespace tessera::ir::samples
