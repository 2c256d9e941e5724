// The construction of functions. Tracing, the transforms, the planner and all readers of programs
// emit their ops here, so type inference, attribute checks and call sites are handled in one place.
#include "ir/builder.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "base/status_exception.h"
#include "ir/op_def.h"
#include "ir/walk.h"

namespace tessera::ir {
namespace {

// Returns whether the message already ends in "(file:line)".
bool HasSite(absl::string_view message) {
  const size_t open = message.rfind('(');
  return open != message.npos && message.back() == ')' && message.find(':', open) != message.npos &&
         message.find(' ', open) == message.npos;
}

// Returns `status` with the source location appended, unless an inner op has already appended one.
absl::Status WithSite(const absl::Status& status, const Site& site) {
  if (status.ok() || !site.valid() || HasSite(status.message())) return status;
  absl::Status out(status.code(), absl::StrCat(status.message(), " (", site.ToString(), ")"));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& p) { out.SetPayload(url, p); });
  return out;
}

absl::Status CheckAttrs(const OpDef& def, const Attrs& attrs) {
  auto error = [&](std::string_view name, const char* what) {
    return MakeError(ErrorKind::kMalformedProgram,
                     absl::StrCat(ToAbsl(def.name), ": attribute '", ToAbsl(name), "' ", what));
  };
  for (const AttrSpec& spec : def.attrs) {
    auto it = attrs.map().find(spec.name);
    if (it == attrs.map().end()) {
      if (spec.required) return error(spec.name, "is missing");
    } else if (it->second.index() != static_cast<size_t>(spec.kind)) {
      return error(spec.name, "has another kind than the op expects");
    }
  }
  for (const auto& [name, value] : attrs.map())
    if (std::none_of(def.attrs.begin(), def.attrs.end(),
                     [&n = name](const AttrSpec& s) { return s.name == n; }))
      return error(name, "is not one of this op's attributes");
  return absl::OkStatus();
}

// Applies the op's rule, or `derived` if the op's rule is derived. `kind` names the rule in errors:
// "sharding" or "varying".
absl::Status ApplyTypeRule(absl::string_view kind, const Rule<TypeFn>& rule, TypeFn derived,
                           const InferContext& c, std::vector<Type>* out) {
  if (rule.refused())
    return MakeError(ErrorKind::kNotImplemented,
                     absl::StrCat(kind, " rule for ", ToAbsl(c.def.lax_name),
                                  " is not implemented: ", ToAbsl(rule.reason)));
  return rule.written() ? rule.fn(c, out) : derived(c, out);
}

bool AnySharded(absl::Span<const Type> types) {
  return std::any_of(types.begin(), types.end(), [](const Type& t) { return t.is_sharded(); });
}

}  // namespace

const Type& Value::type() const { return builder_->type(id_); }

// Checks the counts of operands and regions and the attributes, then applies the op's inference,
// sharding and varying rules, and finally checks the resulting types in the scope's mesh. Emit and
// the verifier both call this, so a program that was built and one that was received obey the same
// rules. The rules may throw (docs/decisions/0001); this function turns that into a status. The
// derived sharding rule is skipped when no operand is sharded, which is the common case.
absl::StatusOr<std::vector<Type>> InferTypes(const OpDef& def, const Scope& scope,
                                             absl::Span<const Type> in, const Attrs& attrs,
                                             absl::Span<const FunctionRef> regions) {
  if (def.num_operands >= 0 && static_cast<int>(in.size()) != def.num_operands)
    return MakeError(ErrorKind::kMalformedProgram,
                     absl::StrCat(ToAbsl(def.lax_name), ": takes ", def.num_operands,
                                  " operands, got ", in.size()));
  const size_t wanted = def.regions.size();
  if (def.repeats_region ? regions.size() < wanted : regions.size() != wanted)
    return MakeError(
        ErrorKind::kMalformedProgram,
        absl::StrCat(ToAbsl(def.lax_name), ": takes ", wanted, def.repeats_region ? " or more" : "",
                     " regions, got ", regions.size()));
  TESSERA_RETURN_IF_ERROR(CheckAttrs(def, attrs));
  const InferContext c{def, scope, in, attrs, regions};
  const auto infer = [&] {
    std::vector<Type> types = ValueOrThrow(def.infer(c));
    if (!def.sharding.derived() || AnySharded(in))
      ThrowIfError(ApplyTypeRule("sharding", def.sharding, derive::ShardingByFactors, c, &types));
    if (scope.check_vma)
      ThrowIfError(ApplyTypeRule("varying", def.varying, derive::VaryingAllEqual, c, &types));
    return types;
  };
  TESSERA_ASSIGN_OR_RETURN(std::vector<Type> types, CatchStatusOr(infer));
  for (Type& t : types) {
    if (!scope.check_vma) t.varying = t.unreduced = t.reduced = {};
    Normalize(&t);
    TESSERA_RETURN_IF_ERROR(Annotate(CheckType(t, scope.mesh), def.lax_name));
  }
  return types;
}

Builder::Builder(Scope scope, std::string name) {
  f_.scope = std::move(scope);
  f_.name = std::move(name);
}

Value Builder::Param(Type type) {
  if (!f_.scope.check_vma) type.varying = type.unreduced = type.reduced = {};
  Normalize(&type);
  ThrowIfError(WithSite(CheckType(type, f_.scope.mesh), site_));
  const ValueId id = static_cast<ValueId>(types_.size());
  types_.push_back(std::move(type));
  def_of_.push_back(-1);
  params_.push_back(id);
  return {this, id};
}

// Appends one op after InferTypes has accepted it. An operand that belongs to another builder is
// our own bug and fails a CHECK; errors of a user are thrown with the current site. The attributes
// and regions are stored only after inference has succeeded, so a failed call leaves the function
// unchanged.
std::vector<Value> Builder::Emit(const OpDef& def, Values operands, Attrs attrs,
                                 std::vector<FunctionRef> regions) {
  Op op;
  op.def = &def;
  std::vector<Type> in;
  for (const Value& v : operands) {
    TESSERA_CHECK(v.valid() && &v.builder() == this)
        << std::string(def.name) << ": an operand is absent or belongs to another function";
    op.operands.push_back(v.id());
    in.push_back(v.type());
  }
  absl::StatusOr<std::vector<Type>> out = InferTypes(def, f_.scope, in, attrs, regions);
  ThrowIfError(WithSite(out.status(), site_));
  op.attrs = std::move(attrs);
  op.regions = std::move(regions);
  std::vector<Value> results;
  for (Type& t : *out) {
    const ValueId id = static_cast<ValueId>(types_.size());
    types_.push_back(std::move(t));
    def_of_.push_back(static_cast<int>(f_.ops.size()));
    op.results.push_back(id);
    results.emplace_back(this, id);
  }
  f_.ops.push_back(std::move(op));
  f_.sites.push_back(site_);
  return results;
}

Value Builder::Emit1(const OpDef& def, Values operands, Attrs attrs,
                     std::vector<FunctionRef> regions) {
  return Emit(def, operands, std::move(attrs), std::move(regions)).at(0);
}

const Op* Builder::DefiningOp(Value v) const {
  const int i = def_of_[v.id()];
  return i < 0 ? nullptr : &f_.ops[i];
}

FunctionRef Builder::Build(Values results) {
  std::vector<ValueId> ids;
  for (const Value& v : results) {
    TESSERA_CHECK(v.valid() && &v.builder() == this) << "a result belongs to another function";
    ids.push_back(v.id());
  }
  f_.types.assign(std::make_move_iterator(types_.begin()), std::make_move_iterator(types_.end()));
  FunctionRef out = walk::Extract(std::exchange(f_, Function()), params_, ids);
  types_.clear();
  params_.clear();
  def_of_.clear();
  return out;
}

std::vector<Value> Inline(Builder& b, const Function& f, Values args) {
  TESSERA_CHECK(static_cast<int>(args.size()) == f.num_params)
      << "inlining " << f.name << ": " << args.size() << " arguments for " << f.num_params
      << " params";
  std::vector<Value> env(f.types.size());
  std::copy(args.begin(), args.end(), env.begin());
  for (size_t i = 0; i < f.ops.size(); ++i) {
    const Op& op = f.ops[i];
    SiteScope site(b, f.sites[i]);
    const std::vector<Value> out =
        b.Emit(*op.def, ElementsAt(env, op.operands), op.attrs,
               walk::RegionsUnder(*op.def, op.regions, b.scope().mapped));
    for (size_t r = 0; r < out.size(); ++r) env[op.results[r]] = out[r];
  }
  return ElementsAt(env, f.results);
}

std::vector<Type> TypesOf(Values values) {
  std::vector<Type> types;
  for (const Value& v : values) types.push_back(v.type());
  return types;
}

}  // namespace tessera::ir
