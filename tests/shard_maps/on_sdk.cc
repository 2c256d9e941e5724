// Translates a random program (program.h) into calls of the SDK, step by step, while shard_map
// traces its body. shard_maps_test.cc runs the result and compares it with the plain loop
// (plain_loop.h).
#include "tests/shard_maps/on_sdk.h"

#include <memory>
#include <stdexcept>

#include "absl/strings/str_cat.h"

namespace tessera::shard_maps {
namespace {

std::string NameOfAxis(const Program& p, int axis) {
  return axis == kUnknownAxis ? "nowhere" : p.mesh[axis].name;
}
ir::AxisList NamesOfAxes(const Program& p, const Axes& axes) {
  ir::AxisList names;
  for (const int a : axes) names.push_back(NameOfAxis(p, a));
  return names;
}
Prefix<PartitionSpec> ListOf(const Program& p, const std::vector<Spec>& specs) {
  Prefix<PartitionSpec> list;
  list.kind = Prefix<PartitionSpec>::kList;
  for (const Spec& spec : specs) list.children.emplace_back("", SpecOf(p, spec));
  return list;
}
// Returns the in_specs of a function whose only argument is a list of arrays.
Prefix<PartitionSpec> InSpecsOf(const Program& p, const std::vector<Spec>& specs) {
  Prefix<PartitionSpec> argument;
  argument.kind = Prefix<PartitionSpec>::kList;
  argument.children.emplace_back("", ListOf(p, specs));
  return argument;
}
template <class T>
Prefix<T> ListOf(const std::vector<std::optional<T>>& leaves) {
  Prefix<T> list;
  list.kind = Prefix<T>::kList;
  for (const std::optional<T>& leaf : leaves)
    list.children.emplace_back("", leaf ? Prefix<T>(*leaf) : Prefix<T>(None));
  return list;
}

class BodyTracer {
 public:
  BodyTracer(const Program& p, bool check_vma)
      : p_(p), check_vma_(check_vma), env_(p.types.size()) {}

  Arrays Call(const Body& body, const Arrays& params) {
    for (size_t i = 0; i < params.size(); ++i) CheckAndSet(body.params[i], params[i]);
    for (const Step& s : body.steps) RunStep(s);
    Arrays out;
    for (const int id : body.results) out.push_back(env_[id]);
    return out;
  }
  // Makes the constant arrays before anything is traced, so that the body captures them instead of
  // making them.
  void MakeConstants(const Body& body) {
    for (const Step& s : body.steps) {
      if (s.kind == StepKind::kConstant && !s.ints.empty())
        constants_[s.out[0]] = array(s.numbers, s.ints);
      for (const Body& inner : s.bodies) MakeConstants(inner);
    }
  }

 private:
  void CheckAndSet(int id, const Array& x) {
    const ValueType& expected = p_.types[id];
    ir::AxisSet varying;
    for (size_t a = 0; a < p_.mesh.size(); ++a)
      if (check_vma_ && (expected.varying >> a & 1)) varying.insert(p_.mesh[a].name);
    const Type& type = x.type();
    if (p_.fault == Fault::kNone &&
        (type.dtype != kF64 || type.shape != expected.shape || type.varying != varying ||
         !type.unreduced.empty() || !type.reduced.empty()))
      throw std::logic_error(absl::StrCat("v", id, " is a ", type.ToString()));
    env_[id] = x;
  }
  void RunStep(const Step& s);

  const Program& p_;
  const bool check_vma_;
  Arrays env_;
  std::map<int, Array> constants_;
};

// Performs one step with the SDK's functions and checks the type of its result. Where the SDK has
// two ways to write a step, such as ppermute and pshuffle, the seed decides which one is used.
void BodyTracer::RunStep(const Step& s) {
  using enum StepKind;
  const auto x = [&](size_t i = 0) -> const Array& { return env_[s.in[i]]; };
  const auto number = [&] { return s.numbers[0]; };
  const int dim = s.ints.empty() ? 0 : static_cast<int>(s.ints[0]);
  const lax::AxisNames axes(NamesOfAxes(p_, s.axes));
  const auto index = [&] { return lax::axis_index(axes); };
  const auto starts = [&](const Array& at) {
    std::vector<Arg> all(x().rank(), Arg(0));
    all[dim] = at;
    return all;
  };
  // Returns a body as a function of a list of arrays.
  const auto body_function = [&](size_t body) {
    return [this, &s, body](const Arrays& params) { return Call(s.bodies[body], params); };
  };
  const auto operands = [&](size_t from) {
    Arrays all;
    for (size_t i = from; i < s.in.size(); ++i) all.push_back(x(i));
    return all;
  };
  const auto set = [&](const Array& y) { CheckAndSet(s.out[0], y); };
  const auto set_all = [&](const Arrays& ys) {
    for (size_t i = 0; i < s.out.size(); ++i) CheckAndSet(s.out[i], ys.at(i));
  };
  switch (s.kind) {
    case kConstant:
      // A constant of rank 0 is a number in C++; others are arrays from outside.
      return set(s.ints.empty() ? lax::full({}, number(), kF64) : constants_.at(s.out[0]));
    case kSin:
      return set(lax::sin(x()));
    case kCos:
      return set(lax::cos(x()));
    case kTanh:
      return set(lax::tanh(x()));
    case kLogistic:
      return set(lax::logistic(x()));
    case kNegate:
      return set(-x());
    case kSquare:
      return set(lax::square(x()));
    case kScale:
      return set(x() * number());
    case kShift:
      return set(number() + x());
    case kStopGradient:
      return set(lax::stop_gradient(x()));
    case kAdd:
      return set(x() + x(1));
    case kSubtract:
      return set(x() - x(1));
    case kMultiply:
      return set(lax::mul(x(), x(1)));
    case kDivide:
      return set(x() / (2 + x(1) * x(1)));
    case kMax:
      return set(lax::max(x(), x(1)));
    case kMin:
      return set(lax::min(x(), x(1)));
    case kSelect:
      return set(lax::select(lax::lt(x(), x(1)), x(2), x(3)));
    case kReshape:
      return set(x().reshape(s.ints));
    case kTranspose:
      return set(lax::transpose(x(), s.ints));
    case kBroadcast: {
      const auto rank = static_cast<int64_t>(s.ints.size()) - x().rank();
      return set(lax::broadcast_in_dim(x(), Dims(s.ints.begin(), s.ints.begin() + rank),
                                       Dims(s.ints.begin() + rank, s.ints.end())));
    }
    case kSlice: {
      const auto middle = s.ints.begin() + x().rank();
      return set(lax::slice(x(), Dims(s.ints.begin(), middle), Dims(middle, s.ints.end())));
    }
    case kConcatenate:
      return set(lax::concatenate({x(), x(1)}, dim));
    case kPad: {
      const auto middle = s.ints.begin() + x().rank();
      return set(lax::pad(x(), number(), Dims(s.ints.begin(), middle), Dims(middle, s.ints.end())));
    }
    case kReverse:
      return set(lax::rev(x(), s.ints));
    case kCumsum:
      return set(lax::cumsum(x(), dim));
    case kSort:
      return set(lax::sort(x(), dim));
    case kDynamicSlice: {
      const Array at = index();
      Dims sizes = x().shape();
      sizes[dim] = s.ints[1];
      return set(lax::dynamic_slice(x(), starts(at), sizes));
    }
    case kDynamicUpdate: {
      const Array at = index();
      return set(lax::dynamic_update_slice(x(), x(1), starts(at)));
    }
    case kSum:
      return set(lax::reduce_sum(x(), s.ints));
    case kProduct:
      return set(lax::reduce_prod(x(), s.ints));
    case kLargest:
      return set(lax::reduce_max(x(), s.ints));
    case kDot:
      return set(lax::dot_general(x(), x(1), lax::DotDimensions{{s.ints[0]}, {s.ints[1]}, {}, {}}));
    case kPsum:
      return set(lax::psum(x(), axes));
    case kPmean:
      return set(lax::pmean(x(), axes));
    case kPmax:
      return set(lax::pmax(x(), axes));
    case kPmin:
      return set(lax::pmin(x(), axes));
    case kAllGather:
      return set(lax::all_gather(x(), axes, dim, s.tiled));
    case kGatherInvarying:
      return set(lax::all_gather(x(), axes, dim, s.tiled, "invarying"));
    case kGatherReduced: {
      const Array reduced = lax::all_gather(x(), axes, dim, s.tiled, "reduced");
      return set(lax::pcast(reduced, axes, "varying"));
    }
    case kPsumScatter:
      return set(lax::psum_scatter(x(), axes, dim, s.tiled));
    case kPsumUnreduced:
      return set(lax::psum(lax::pcast(x(), axes, "unreduced"), axes));
    case kScatterUnreduced:
      return set(lax::psum_scatter(lax::pcast(x(), axes, "unreduced"), axes, dim, s.tiled));
    case kThroughReduced:
      return set(lax::pcast(lax::pcast(x(), axes, "reduced"), axes, "varying"));
    case kAllToAll:
      if (!s.tiled && s.ints[0] == s.ints[1]) return set(lax::pswapaxes(x(), axes, dim));
      return set(lax::all_to_all(x(), axes, dim, static_cast<int>(s.ints[1]), s.tiled));
    case kPermute: {
      std::vector<std::pair<int64_t, int64_t>> pairs;
      for (size_t i = 0; i < s.ints.size(); i += 2) pairs.emplace_back(s.ints[i], s.ints[i + 1]);
      // If every device receives a block, half of the programs use pshuffle instead of ppermute.
      if (p_.fault == Fault::kNone && p_.seed % 2 == 0 &&
          static_cast<int64_t>(pairs.size()) == lax::axis_size(axes)) {
        std::vector<int64_t> sources(pairs.size());
        for (const auto& [source, destination] : pairs) sources[destination] = source;
        return set(lax::pshuffle(x(), axes, sources));
      }
      return set(lax::ppermute(x(), axes, pairs));
    }
    case kPbroadcast:
      return set(lax::pbroadcast(x(), axes, s.ints[0]));
    case kAxisIndex:
      return set(index().astype(kF64));
    case kPvary:
      return set(lax::pcast(x(), axes, "varying"));
    case kScan: {
      const Body& body = s.bodies[0];
      const ScanOptions options = {.length = s.ints[0], .reverse = s.ints[1] != 0};
      const auto step = [&](const Array& carry, const Array& element) {
        Arrays params = {carry};
        if (element.valid()) params.push_back(element);
        const Arrays out = Call(body, params);
        return std::pair(out[0], Arrays(out.begin() + 1, out.end()));
      };
      if (s.in.size() > 1) {
        const auto [carry, ys] = scan(step, x(), x(1), options);
        Arrays all = {carry};
        all.insert(all.end(), ys.begin(), ys.end());
        return set_all(all);
      }
      const auto step_without_element = [&](const Array& carry, NoneType) {
        return step(carry, Array());
      };
      const auto [carry, ys] = scan(step_without_element, x(), None, options);
      Arrays all = {carry};
      all.insert(all.end(), ys.begin(), ys.end());
      return set_all(all);
    }
    case kFori:
      return set(fori_loop(
          0, s.ints[0],
          [&](const Array& i, const Array& carry) {
            return Call(s.bodies[0], {carry, i.astype(kF64)})[0];
          },
          x()));
    case kBranch: {
      if (s.numbers.size() == 1) {
        return set_all(
            cond(lax::gt(x(), number()), body_function(1), body_function(0), operands(1)));
      }
      const Array first = lax::gt(x(), number()).astype(kS32);
      const Array second = lax::gt(x(), s.numbers[1]).astype(kS32);
      return set_all(switch_(first + second,
                             std::tuple(body_function(0), body_function(1), body_function(2)),
                             operands(1)));
    }
    case kJit:
      return set_all(jit(body_function(0))(operands(0)));
    case kCheckpoint:
      return set_all(checkpoint(body_function(0))(operands(0)));
    case kVmap: {
      std::vector<std::optional<int>> dims;
      for (size_t i = 0; i < s.in.size(); ++i) {
        if (s.ints[i] < 0)
          dims.emplace_back();
        else
          dims.emplace_back(static_cast<int>(s.ints[i]));
      }
      Prefix<int> in_axes;
      in_axes.kind = Prefix<int>::kList;
      in_axes.children.emplace_back("", ListOf(dims));
      VmapOptions options;
      if (!s.axes.empty()) options.axis_name = NameOfAxis(p_, s.axes[0]);
      return set_all(
          vmap(body_function(0), in_axes, static_cast<int>(s.ints.back()), options)(operands(0)));
    }
    case kConstrain:
      return set(lax::with_sharding_constraint(x(), SpecOf(p_, s.specs[0])));
    case kGrad:
      return set(grad([&](const Array& w) { return Call(s.bodies[0], {w})[0]; })(x()));
    case kNested: {
      ir::AxisList rest;
      for (size_t a = 0; a < p_.mesh.size(); ++a)
        if ((p_.mesh_axes() & ~p_.manual) >> a & 1) rest.push_back(p_.mesh[a].name);
      const std::vector<Spec> in_specs(s.specs.begin(), s.specs.end() - 1);
      const auto inner =
          shard_map(body_function(0), Mesh(), InSpecsOf(p_, in_specs), ListOf(p_, {s.specs.back()}),
                    {.axis_names = rest, .check_vma = check_vma_});
      return set_all(inner(operands(0)));
    }
  }
}

}  // namespace

Mesh MeshOf(const Program& p) {
  std::vector<int64_t> shape;
  std::vector<std::string> names;
  for (const Axis& a : p.mesh) {
    if (a.mapped) continue;
    names.push_back(a.name);
    shape.push_back(a.size);
  }
  return make_mesh(
      shape, names,
      std::vector<AxisType>(names.size(), p.is_explicit ? AxisType::kExplicit : AxisType::kAuto));
}
PartitionSpec SpecOf(const Program& p, const Spec& spec) {
  PartitionSpec out;
  for (const Axes& axes : spec) out.dims.push_back(NamesOfAxes(p, axes));
  return out;
}

std::function<Arrays(const Arrays&)> ShardMapOf(const Program& p, bool check_vma) {
  const auto tracer = std::make_shared<BodyTracer>(p, check_vma);
  tracer->MakeConstants(p.body);
  ir::AxisList manual;
  for (size_t a = 0; a < p.mesh.size(); ++a)
    if (p.manual >> a & 1) manual.push_back(p.mesh[a].name);
  return shard_map([tracer, &p](const Arrays& blocks) { return tracer->Call(p.body, blocks); },
                   MeshOf(p), InSpecsOf(p, p.in_specs), ListOf(p, p.out_specs),
                   {.axis_names = manual, .check_vma = check_vma});
}

Arrays InputArrays(const Program& p) {
  const Mesh mesh = MeshOf(p);
  Arrays out;
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const Array x = array(p.input_numbers[i], p.inputs[i]);
    const Spec& at = p.is_explicit ? p.in_specs[i] : p.input_shardings[i];
    out.push_back(at.empty() ? x : put(x, mesh, SpecOf(p, at)));
  }
  return out;
}

}  // namespace tessera::shard_maps
