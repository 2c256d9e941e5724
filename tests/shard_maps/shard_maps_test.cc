// Compares random shard_map programs with a plain loop over the devices: the values on every
// device, the derivatives, and both under vmap. Programs with a deliberate mistake must fail with
// the right error. The programs run on an embedded cluster of eight devices.
//
// TESSERA_SHARD_MAPS gives the range of seeds; the default is "1-120". scripts/random_shard_maps
// runs more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/shard_maps/on_sdk.h"
#include "tests/shard_maps/plain_loop.h"
#include "tests/shard_maps/program.h"

namespace tessera::shard_maps {
namespace {

// The largest difference that is allowed for computing in another order, relative to the largest
// intermediate number.
constexpr double kRelativeTolerance = 1e-10;

using Blocks = std::vector<Block<double>>;
using D = Dual<double>;

std::pair<uint64_t, uint64_t> Seeds() {
  uint64_t first = 1, last = 120;
  if (const char* range = std::getenv("TESSERA_SHARD_MAPS")) {
    const std::pair<std::string, std::string> seeds =
        absl::StrSplit(range, absl::MaxSplits('-', 1));
    if (!absl::SimpleAtoi(seeds.first, &first) || !absl::SimpleAtoi(seeds.second, &last))
      ADD_FAILURE() << "TESSERA_SHARD_MAPS is " << range << "; expected FIRST-LAST, two seeds";
  }
  return {first, last};
}

std::string Compare(const std::string& what, const std::vector<double>& got,
                    const std::vector<double>& want, double tolerance) {
  if (got.size() != want.size())
    return absl::StrCat(what, " has ", got.size(), " elements, expected ", want.size());
  for (size_t k = 0; k < want.size(); ++k)
    if (!(std::abs(got[k] - want[k]) <= tolerance))
      return absl::StrCat(what, " is ", absl::StrJoin(got, " "), "\nexpected ",
                          absl::StrJoin(want, " "), "\nelement ", k, " differs by ",
                          got[k] - want[k], ", more than ", tolerance);
  return "";
}

// The checks of one program.
class ProgramCheck {
 public:
  explicit ProgramCheck(const Program& p) : p_(p), random_(p.seed), xs_(InputArrays(p)) {
    for (size_t i = 0; i < p.inputs.size(); ++i) {
      inputs_.push_back({p.inputs[i], p.input_numbers[i]});
      directions_.push_back({p.inputs[i], RandomNumbers(Count(p.inputs[i]))});
      tangents_.push_back(OnMesh(directions_[i], p.in_specs[i]));
    }
    for (const Block<double>& r : PlainLoop<double>(p).Run(inputs_)) {
      weights_.push_back({r.shape, RandomNumbers(Count(r.shape))});
      weight_arrays_.push_back(array(weights_.back().data, r.shape));
    }
    want_ = RunPlainLoop(inputs_);
  }

  // Runs all checks. Returns why the program fails, or "" if it passes.
  std::string Run() {
    const std::string why = FirstFailure();
    return why.empty() ? "" : absl::StrCat(kWayLabels[way()], why);
  }

 private:
  // Compares the value and the gradient of the program with those of the plain loop, and then the
  // results of one transform, which the seed chooses. The first difference ends the comparison,
  // because later differences often follow from it.
  std::string FirstFailure() {
    if (want_.mistyped_id >= 0)
      return absl::StrCat("in the plain loop, v", want_.mistyped_id,
                          " has another type than in the program");
    const Fn f = EmbedInCaller(ShardMapOf(p_, true)),
             unchecked = EmbedInCaller(ShardMapOf(p_, false));
    std::string why = CheckValues("the value", f);
    if (why.empty() && p_.valid_unchecked)
      why = CheckValues("without check_vma, the value", unchecked);
    if (why.empty()) why = CheckGradient("the gradient", f);
    if (!why.empty()) return why;
    switch (p_.seed % 7) {
      case 0:
        return CheckVmap(f);
      case 1:
        return CheckJvp(f);
      case 2:
        return CheckVmapOfGradient(f);
      case 3:
        return CheckSecondDerivative(f);
      case 4:
        return CheckVjp(f);
      case 5:
        return p_.valid_unchecked ? CheckGradient("without check_vma, the gradient", unchecked)
                                  : "";
      default:
        return CheckGradient("under checkpoint, the gradient", checkpoint(f));
    }
  }
  using Fn = std::function<Arrays(const Arrays&)>;

  std::vector<double> RandomNumbers(int64_t n) {
    std::vector<double> out;
    for (int64_t k = 0; k < n; ++k) out.push_back(static_cast<double>(random_() % 2001) / 1000 - 1);
    return out;
  }
  Array OnMesh(const Block<double>& whole, const Spec& spec) const {
    const Array x = array(whole.data, whole.shape);
    return p_.is_explicit ? put(x, MeshOf(p_), SpecOf(p_, spec)) : x;
  }
  Array LossOf(const Arrays& results) const {
    Array loss;
    for (size_t r = 0; r < results.size(); ++r) {
      const Array part = sum(results[r] * weight_arrays_[r]);
      loss = r == 0 ? part : loss + part;
    }
    return loss;
  }

  // ---- The program around the shard_map. A shard_map is called alone, or as a part of a larger
  // function. ----
  enum Way : uint8_t { kCalled, kTwice, kScanned, kBranch };
  static constexpr absl::string_view kWayLabels[] = {
      "", "called twice with sin(x + 0.01 loss) between: ",
      "after a scan of two steps sin(x + 0.01 loss): ",
      "in a cond, alone or after sin(x + 0.01 loss): "};
  static constexpr double kLossFactor = 0.01, kThreshold = 0.1234;
  Way way() const {
    const uint64_t n = p_.seed * 2654435761u % 100;
    return n < 55 ? kCalled : n < 70 ? kTwice : n < 85 ? kScanned : kBranch;
  }
  // Returns the larger function of which f is a part, as way() says. Every call of f but the first
  // gets results of f, so that shardings and derivatives pass from one shard_map to another.
  Fn EmbedInCaller(Fn f) const {
    const auto next = [this, f](const Arrays& xs) {
      const Array loss = LossOf(f(xs));
      Arrays out;
      for (const Array& x : xs) out.push_back(sin(x + kLossFactor * loss));
      return out;
    };
    switch (way()) {
      case kCalled:
        return f;
      case kTwice:
        return [=](const Arrays& xs) { return f(next(xs)); };
      case kScanned:
        return [=](const Arrays& xs) {
          const auto step = [&](const Arrays& carry, NoneType) {
            return std::pair(next(carry), None);
          };
          return f(scan(step, xs, None, {.length = 2}).first);
        };
      case kBranch:
        break;
    }
    return [=](const Arrays& xs) {
      return cond(
          sum(xs[0]) > kThreshold, f, [=](const Arrays& ys) { return f(next(ys)); }, xs);
    };
  }
  template <class T>
  struct PlainRun {
    std::vector<Block<T>> results;
    double tolerance = 0;
    int mistyped_id = -1;
  };
  template <class T>
  PlainRun<T> RunPlainLoop(std::vector<Block<T>> xs) const {
    PlainLoop<T> loop(p_);
    T sum_of_first(0);
    for (const T& x : xs[0].data) sum_of_first = sum_of_first + x;
    int64_t num_repeats = 0;
    if (way() == kTwice) num_repeats = 1;
    if (way() == kScanned) num_repeats = 2;
    if (way() == kBranch) num_repeats = ValueOf(sum_of_first) > kThreshold ? 0 : 1;
    for (; num_repeats > 0; --num_repeats) {
      const T loss = LossOf(loop.Run(xs), weights_);
      for (Block<T>& x : xs)
        for (T& e : x.data) e = Sin(e + T(kLossFactor) * loss);
    }
    PlainRun<T> out{loop.Run(xs), 0, loop.mistyped_id()};
    out.tolerance = kRelativeTolerance * (1 + loop.largest());
    return out;
  }

  // Compares the value of each result, and of each of its shards, with the plain loop.
  std::string CheckValues(const std::string& what, const Fn& f) {
    const auto jitted = jit(f);
    for (int call = 0; call < 2; ++call) {
      const Arrays got = jitted(xs_);
      for (size_t r = 0; r < want_.results.size(); ++r) {
        const std::string name = absl::StrCat(what, " ", r);
        std::string why =
            Compare(name, got[r].get<double>(), want_.results[r].data, want_.tolerance);
        if (why.empty() && got[r].shape() != want_.results[r].shape)
          why = absl::StrCat(name, " is of type ", got[r].type().ToString());
        if (why.empty()) why = CheckShards(name, got[r], want_.results[r]);
        if (!why.empty()) return why;
      }
    }
    return jitted.num_compiled() == 1
               ? ""
               : absl::StrCat("jit compiled it ", jitted.num_compiled(), " times");
  }
  std::string CheckShards(const std::string& name, const Array& got,
                          const Block<double>& want) const {
    const api::Placement& placement = got.placement();
    std::vector<Axis> mesh;
    for (const ir::MeshAxis& a : placement.mesh.axes) mesh.push_back({a.name, a.size});
    Spec spec(want.shape.size());
    for (size_t d = 0; d < placement.spec.dims.size(); ++d)
      for (const std::string& axis : placement.spec.dims[d])
        for (size_t a = 0; a < mesh.size(); ++a)
          if (mesh[a].name == axis) spec[d].push_back(static_cast<int>(a));
    const Devices devices(mesh, (AxisSet{1} << mesh.size()) - 1);
    for (size_t i = 0; i < placement.devices.size(); ++i) {
      const ir::Array shard = got.shard(static_cast<int>(i));
      const Block<double> block = BlockOn(want, spec, devices, static_cast<int64_t>(i));
      std::string why = Compare(absl::StrCat(name, " on device ", i), shard.ToDoubles(), block.data,
                                want_.tolerance);
      if (!why.empty()) return why;
    }
    return "";
  }

  // One element of an input. The plain loop needs a whole run for the derivative of the loss by one
  // element, so only some elements are compared.
  struct Element {
    size_t input, k;
  };
  std::vector<Element> SomeElements() {
    std::vector<Element> all;
    for (size_t i = 0; i < inputs_.size(); ++i)
      for (size_t k = 0; k < inputs_[i].data.size(); ++k) all.push_back({i, k});
    std::shuffle(all.begin(), all.end(), random_);
    const size_t limit = p_.Has(StepKind::kGrad) ? 12 : 40;
    if (all.size() > limit) all.resize(limit);
    return all;
  }
  template <class T>
  static T LossOf(const std::vector<Block<T>>& results, const Blocks& weights) {
    T loss(0);
    for (size_t r = 0; r < results.size(); ++r)
      for (size_t k = 0; k < results[r].data.size(); ++k)
        loss = loss + T(weights[r].data[k]) * results[r].data[k];
    return loss;
  }
  std::string ComparePlainGradient(const std::string& what, const Arrays& got,
                                   const Blocks& inputs) {
    std::vector<std::vector<double>> all;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (got[i].shape() != inputs[i].shape)
        return absl::StrCat(what, " by input ", i, " is of type ", got[i].type().ToString());
      all.push_back(got[i].get<double>());
    }
    for (const Element& e : SomeElements()) {
      std::vector<Block<D>> duals;
      for (const Block<double>& x : inputs)
        duals.push_back({x.shape, std::vector<D>(x.data.begin(), x.data.end())});
      duals[e.input].data[e.k].d = 1;
      const PlainRun<D> run = RunPlainLoop(duals);
      const double want = LossOf(run.results, weights_).d;
      std::string why = Compare(absl::StrCat(what, " by element ", e.k, " of input ", e.input),
                                {all[e.input][e.k]}, {want}, run.tolerance);
      if (!why.empty()) return why;
    }
    return "";
  }
  std::string CheckGradient(const std::string& what, const Fn& f) {
    const auto gradient = jit(grad([&](const Arrays& xs) { return LossOf(f(xs)); }));
    return ComparePlainGradient(what, gradient(xs_), inputs_);
  }
  // Computes a vjp without jit, so that the residuals of the derivative leave the shard_map as
  // arrays.
  std::string CheckVjp(const Fn& f) {
    const auto [results, pull] = vjp(f, xs_);
    Arrays cotangents;
    for (size_t r = 0; r < results.size(); ++r)
      cotangents.push_back(p_.is_explicit ? OnMesh(weights_[r], p_.out_specs[r])
                                          : weight_arrays_[r]);
    return ComparePlainGradient("vjp", std::get<0>(pull(cotangents)), inputs_);
  }
  // Compares values and tangents of a jvp along random directions.
  std::string CheckJvp(const Fn& f) {
    const auto [results, tangents] = jit([&](const Arrays& xs, const Arrays& ts) {
      return jvp(f, std::tuple(xs), std::tuple(ts));
    })(xs_, tangents_);
    std::vector<Block<D>> duals;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      duals.push_back({inputs_[i].shape, {}});
      for (size_t k = 0; k < inputs_[i].data.size(); ++k)
        duals[i].data.push_back({inputs_[i].data[k], directions_[i].data[k]});
    }
    const PlainRun<D> run = RunPlainLoop(duals);
    const std::vector<Block<D>>& want = run.results;
    for (size_t r = 0; r < want.size(); ++r) {
      std::vector<double> v, d;
      for (const D& x : want[r].data) {
        v.push_back(x.v);
        d.push_back(x.d);
      }
      const double tolerance = run.tolerance;
      std::string why =
          Compare(absl::StrCat("jvp's result ", r), results[r].get<double>(), v, tolerance);
      if (why.empty())
        why = Compare(absl::StrCat("the tangent of result ", r), tangents[r].get<double>(), d,
                      tolerance);
      if (!why.empty()) return why;
    }
    return "";
  }
  // Compares the derivative of the gradient along a random direction.
  std::string CheckSecondDerivative(const Fn& f) {
    if (p_.Has(StepKind::kGrad)) return "";
    const auto gradient = grad([&](const Arrays& xs) { return LossOf(f(xs)); });
    const auto [first, second] = jit([&](const Arrays& xs, const Arrays& ts) {
      return jvp(gradient, std::tuple(xs), std::tuple(ts));
    })(xs_, tangents_);
    for (const Element& e : SomeElements()) {
      std::vector<Block<Dual<D>>> duals;
      for (size_t i = 0; i < inputs_.size(); ++i) {
        duals.push_back({inputs_[i].shape, {}});
        for (size_t k = 0; k < inputs_[i].data.size(); ++k)
          duals[i].data.push_back(
              {D(inputs_[i].data[k], directions_[i].data[k]), D(i == e.input && k == e.k ? 1 : 0)});
      }
      const PlainRun<Dual<D>> run = RunPlainLoop(duals);
      const D want = LossOf(run.results, weights_).d;
      const double tolerance = run.tolerance;
      const std::string at = absl::StrCat(" by element ", e.k, " of input ", e.input);
      std::string why =
          Compare("the gradient" + at, {first[e.input].get<double>()[e.k]}, {want.v}, tolerance);
      if (why.empty())
        why = Compare("the second derivative" + at, {second[e.input].get<double>()[e.k]}, {want.d},
                      tolerance);
      if (!why.empty()) return why;
    }
    return "";
  }

  // The inputs of a vmap. Some inputs have one part for each member, along any dim; the other
  // inputs are shared by all members.
  struct Members {
    int64_t count = 0;
    Prefix<int> in_axes;
    VmapOptions options;  // may name an axis over which the members are sharded
    Arrays xs;
    std::vector<Blocks> inputs;  // inputs of each member
  };
  // Makes two or three members, or a multiple of the size of a mesh axis over which they are
  // sharded.
  Members MakeMembers() {
    Members m;
    m.count = 2 + static_cast<int64_t>(random_() % 2);
    const AxisSet rest = p_.mesh_axes() & ~p_.manual;
    for (size_t a = 0; a < p_.mesh.size(); ++a) {
      if (!(rest >> a & 1) || p_.Has(StepKind::kNested) || p_.Has(StepKind::kConstrain)) continue;
      m.count = p_.mesh[a].size * (1 + static_cast<int64_t>(random_() % 2));
      m.options.spmd_axis_name = {p_.mesh[a].name};
    }
    m.inputs.assign(m.count, inputs_);
    Prefix<int> list;
    list.kind = Prefix<int>::kList;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (i > 0 && random_() % 2 == 0) {
        list.children.emplace_back("", None);
        m.xs.push_back(xs_[i]);
        continue;
      }
      const auto dim = static_cast<int64_t>(random_() % (inputs_[i].shape.size() + 1));
      Block<double> all;
      all.shape = inputs_[i].shape;
      all.shape.insert(all.shape.begin() + dim, m.count);
      all.data = RandomNumbers(Count(all.shape));
      for (int64_t member = 0; member < m.count; ++member)
        m.inputs[member][i] = MakeBlock<double>(inputs_[i].shape, [&](Dims at) {
          at.insert(at.begin() + dim, member);
          return all(at);
        });
      Spec spec = p_.in_specs[i];
      spec.insert(spec.begin() + dim, Axes{});
      m.xs.push_back(OnMesh(all, spec));
      list.children.emplace_back("", static_cast<int>(dim));
    }
    m.in_axes.kind = Prefix<int>::kList;
    m.in_axes.children.emplace_back("", list);
    return m;
  }
  std::string CheckVmap(const Fn& f) {
    const Members m = MakeMembers();
    const Arrays got = jit(vmap(f, m.in_axes, 0, m.options))(m.xs);
    for (int64_t member = 0; member < m.count; ++member) {
      const PlainRun<double> run = RunPlainLoop(m.inputs[member]);
      const Blocks& want = run.results;
      for (size_t r = 0; r < want.size(); ++r) {
        const std::vector<double> all = got[r].get<double>();
        const auto n = static_cast<int64_t>(want[r].data.size());
        if (static_cast<int64_t>(all.size()) != m.count * n)
          return absl::StrCat("under vmap, result ", r, " is of type ", got[r].type().ToString());
        std::string why = Compare(absl::StrCat("under vmap, member ", member, " of result ", r),
                                  {all.begin() + member * n, all.begin() + (member + 1) * n},
                                  want[r].data, run.tolerance);
        if (!why.empty()) return why;
      }
    }
    return "";
  }
  std::string CheckVmapOfGradient(const Fn& f) {
    const Members m = MakeMembers();
    const auto gradient = grad([&](const Arrays& xs) { return LossOf(f(xs)); });
    const Arrays got = jit(vmap(gradient, m.in_axes, 0, m.options))(m.xs);
    for (int64_t member = 0; member < m.count; ++member) {
      Arrays member_gradient;
      for (const Array& g : got) {
        const std::vector<double> all = g.get<double>();
        const auto n = static_cast<int64_t>(all.size()) / m.count;
        member_gradient.push_back(
            array(std::vector<double>(all.begin() + member * n, all.begin() + (member + 1) * n),
                  Dims(g.shape().begin() + 1, g.shape().end())));
      }
      std::string why =
          ComparePlainGradient(absl::StrCat("under vmap, the gradient of member ", member),
                               member_gradient, m.inputs[member]);
      if (!why.empty()) return why;
    }
    return "";
  }

  const Program& p_;
  std::mt19937_64 random_;
  const Arrays xs_;
  Blocks inputs_, directions_, weights_;
  PlainRun<double> want_;
  Arrays tangents_, weight_arrays_;
};

// Returns why a program fails, or "". An exception is a failure, too.
std::string WhyFails(const Program& p) {
  try {
    return ProgramCheck(p).Run();
  } catch (const Error& e) {
    return absl::StrCat(std::string(e.reason()), ": ", e.what());
  } catch (const std::logic_error& e) {
    return e.what();
  }
}

class ShardMapsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { Session::SetDefault(Session::Embedded({.devices = 8})); }
  static void TearDownTestSuite() { Session::SetDefault(nullptr); }
};

TEST_F(ShardMapsTest, ProgramsEqualAPlainLoopOverTheDevices) {
  const auto [first, last] = Seeds();
  int failed = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const Program p = MakeProgram(seed);
    const std::string why = WhyFails(p);
    if (why.empty()) continue;
    ++failed;
    ADD_FAILURE() << "TESSERA_SHARD_MAPS=" << seed << "-" << seed << ": " << why << "\n"
                  << ToText(p);
    if (failed > 3) continue;  // enough to read
    for (const Program& small : SmallerPrograms(p)) {
      const std::string still = WhyFails(small);
      if (still.empty()) continue;
      ADD_FAILURE() << "a smaller program fails, too: " << still << "\n" << ToText(small);
      break;
    }
  }
}

std::vector<ErrorKind> ErrorsOf(Fault fault) {
  switch (fault) {
    case Fault::kUnboundAxis:
      return {ErrorKind::kNameError};
    case Fault::kCarryVariesMore:
    case Fault::kBranchesDiffer:
      return {ErrorKind::kTypeError};
    case Fault::kGradOfPmax:
      return {ErrorKind::kNotImplemented};
    default:
      return {ErrorKind::kValueError};
  }
}

// Compares the kind of the error, not its message.
TEST_F(ShardMapsTest, AMistakeFailsWithItsError) {
  const auto [first, last] = Seeds();
  for (uint64_t seed = first; seed <= last; seed += 3) {
    const Program p = MakeWrongProgram(seed);
    std::string outcome = "no error";
    try {
      const auto f = ShardMapOf(p, true);
      if (p.fault == Fault::kGradOfPmax) {
        const auto loss = [&](const Arrays& xs) {
          Array all = sum(f(xs)[0]);
          const Arrays results = f(xs);
          for (const Array& r : results) all = all + sum(r);
          return all;
        };
        jit(grad(loss))(InputArrays(p));
      } else {
        jit(f)(InputArrays(p));
      }
    } catch (const Error& e) {
      const std::vector<ErrorKind> expected = ErrorsOf(p.fault);
      if (std::count(expected.begin(), expected.end(), e.kind())) continue;
      outcome = absl::StrCat(std::string(e.reason()), ": ", e.what());
    }
    ADD_FAILURE() << "with mistake " << static_cast<int>(p.fault) << ": " << outcome << "\n"
                  << ToText(p);
  }
}

}  // namespace
}  // namespace tessera::shard_maps
