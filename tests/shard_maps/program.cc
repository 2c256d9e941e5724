// Makes random shard_map programs for shard_maps_test.cc. A ProgramMaker draws steps one after the
// other and gives each result its type, as JAX would. It keeps values bounded, so that rounding
// errors stay small, and can add a deliberate mistake.
#include "tests/shard_maps/program.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace tessera::shard_maps {
namespace {

constexpr int64_t kDevicesMax = 8;
constexpr int64_t kBlockMax = 32, kInputMax = 64;  // limits of the number of elements
constexpr double kBoundMax = 50;                   // limit of ValueType::bound

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed * 0x9e3779b97f4a7c15u + 1) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(bits_() % static_cast<uint64_t>(n)); }
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool Chance(int percent) { return Below(100) < percent; }
  // Returns a number with five decimals. It can be printed exactly, and sums of such numbers are
  // hardly ever equal. If two numbers were equal, their rounding would decide the derivative of a
  // max or a min of them.
  double Number(double low, double high) {
    constexpr int kDecimals = 100'000;
    const double at = low + (high - low) * static_cast<double>(Below(kDecimals)) / kDecimals;
    return std::round(at * kDecimals) / kDecimals;
  }
  template <class T>
  const T& PickFrom(const std::vector<T>& choices) {
    return choices[Below(static_cast<int64_t>(choices.size()))];
  }
  template <class T>
  void Shuffle(std::vector<T>* v) {
    for (size_t i = v->size(); i > 1; --i)
      std::swap((*v)[i - 1], (*v)[Below(static_cast<int64_t>(i))]);
  }

 private:
  std::mt19937_64 bits_;
};

class ProgramMaker {
 public:
  explicit ProgramMaker(uint64_t seed) : random_(seed) { p_.seed = seed; }

  Program Make() {
    MakeMesh();
    MakeInputs();
    body_ = &p_.body;
    active_ = allowed_ = p_.manual;
    for (const int id : p_.body.params) pool_.push_back(id);
    MakeSteps(random_.Between(3, 11));
    MakeResults();
    return p_;
  }
  // Like Make, but adds a mistake. Returns nullopt if the program has no place for this mistake.
  std::optional<Program> MakeWithFault(Fault fault) {
    Make();
    p_.fault = fault;
    p_.is_explicit = false;
    p_.input_shardings.assign(p_.inputs.size(), Spec());
    if (!AddFault(fault)) return std::nullopt;
    return std::move(p_);
  }

 private:
  // ---- The mesh, the inputs and the results. ----
  void MakeMesh() {
    const int64_t rank = random_.Chance(25) ? 3 : random_.Chance(60) ? 2 : 1;
    int64_t left = kDevicesMax;
    for (int64_t a = 0; a < rank; ++a) {
      int64_t size = random_.PickFrom<int64_t>({1, 2, 2, 2, 3, 4});
      while (size > left) size = random_.PickFrom<int64_t>({1, 2, 3});
      left /= size;
      p_.mesh.push_back({std::string(1, "xyz"[a]), size});
    }
    p_.manual = p_.mesh_axes();
    if (rank > 1 && random_.Chance(25))
      p_.manual =
          static_cast<AxisSet>(random_.Between(1, static_cast<int64_t>(p_.mesh_axes()) - 1));
    p_.is_explicit = p_.manual == p_.mesh_axes() && random_.Chance(25);
  }
  Dims AnyShape(int64_t rank_max = 3) {
    Dims shape(random_.Between(0, rank_max));
    for (int64_t& d : shape) d = random_.PickFrom<int64_t>({1, 2, 2, 3, 4});
    while (Count(shape) > 24) shape.pop_back();
    return shape;
  }
  // Returns a spec that assigns each axis of the set to a random dim with a probability of
  // `percent`.
  Spec AnySpec(size_t rank, AxisSet axes, int percent) {
    Spec spec(rank);
    if (rank == 0) return spec;
    for (const int a : Shuffled(axes))
      if (random_.Chance(percent)) spec[random_.Below(static_cast<int64_t>(rank))].push_back(a);
    return spec;
  }
  Axes AxesOf(AxisSet set) const {
    Axes axes;
    for (int a = 0; a < static_cast<int>(p_.mesh.size()); ++a)
      if (set >> a & 1) axes.push_back(a);
    return axes;
  }
  Axes Shuffled(AxisSet set) {
    Axes axes = AxesOf(set);
    random_.Shuffle(&axes);
    return axes;
  }
  int NewValue(ValueType type) {
    // Types do not track whether a value varies along the axis of a vmap.
    type.varying &= p_.mesh_axes();
    p_.types.push_back(std::move(type));
    return static_cast<int>(p_.types.size()) - 1;
  }
  void MakeInputs() {
    const int64_t n = random_.Between(1, 3);
    for (int64_t i = 0; i < n; ++i) {
      Dims block = AnyShape();
      Spec spec = AnySpec(block.size(), p_.manual, i == 0 ? 80 : 45);
      Dims whole = block;
      const auto grow = [&] {
        whole = block;
        for (size_t d = 0; d < spec.size(); ++d) whole[d] *= p_.SizeOf(spec[d]);
      };
      for (grow(); Count(whole) > kInputMax; grow()) {
        block.pop_back();
        spec.pop_back();
      }
      p_.inputs.push_back(whole);
      p_.in_specs.push_back(spec);
      p_.input_shardings.push_back(random_.Chance(50) ? AnyFittingSpec(whole, p_.mesh_axes())
                                                      : Spec());
      p_.input_numbers.emplace_back();
      for (int64_t k = 0; k < Count(whole); ++k)
        p_.input_numbers.back().push_back(random_.Number(-1.5, 1.5));
      p_.body.params.push_back(NewValue({block, SetOf(spec), 1.5}));
    }
  }
  void MakeResults() {
    std::vector<int> results;
    std::vector<int> unread;
    for (const int id : pool_)
      if (!read_ids_.count(id)) unread.push_back(id);
    while (unread.size() > 3) unread.erase(unread.begin());
    results = unread;
    if (results.empty() || random_.Chance(30)) results.push_back(random_.PickFrom(pool_));
    for (int& id : results) {
      if (p_.types[id].shape.empty() && (p_.types[id].varying || random_.Chance(30)))
        id = Reshape(id, Dims(random_.Between(1, 2), 1));
      Spec spec(p_.types[id].shape.size());
      for (const int a : Shuffled(p_.manual))
        if (!spec.empty() && ((p_.types[id].varying >> a & 1) || random_.Chance(15)))
          spec[random_.Below(static_cast<int64_t>(spec.size()))].push_back(a);
      p_.body.results.push_back(id);
      p_.out_specs.push_back(spec);
    }
  }

  // ---- Values. ----
  const ValueType& TypeOf(int id) const { return p_.types[id]; }
  int64_t Rank(int id) const { return static_cast<int64_t>(TypeOf(id).shape.size()); }
  int Emit(Step step, ValueType type) {
    for (const int id : step.in) read_ids_.insert(id);
    const int id = NewValue(std::move(type));
    step.out = {id};
    body_->steps.push_back(std::move(step));
    return id;
  }
  // Returns a random value that a step may use, preferably a recent one.
  int AnyValue() {
    const auto n = static_cast<int64_t>(pool_.size());
    return pool_[n - 1 - std::min(random_.Below(n), random_.Below(n))];
  }
  // Returns a random value for which `fits` is true, or -1 after a few attempts.
  int AnyValueThat(const std::function<bool(int)>& fits) {
    for (int attempt = 0; attempt < 6; ++attempt)
      if (const int id = AnyValue(); fits(id)) return id;
    return -1;
  }
  int AnyValueOfRankAtLeast(int64_t least) {
    return AnyValueThat([&](int id) { return Rank(id) >= least; });
  }
  int64_t AnyDim(int id) { return random_.Below(Rank(id)); }
  int Reshape(int id, Dims shape) {
    if (TypeOf(id).shape == shape) return id;
    return Emit({.kind = StepKind::kReshape, .in = {id}, .ints = shape},
                {shape, TypeOf(id).varying, TypeOf(id).bound});
  }
  int EmitUnary(StepKind kind, int id, double bound, double number = 0) {
    return Emit({.kind = kind, .in = {id}, .numbers = {number}},
                {TypeOf(id).shape, TypeOf(id).varying, bound});
  }
  // Returns a value derived from `id` whose magnitude is at most `bound`, which must be at least 1.
  // A large value is scaled before it goes into a bounded function. Otherwise a rounding error
  // could grow in a loop until it is as large as the values.
  int Bounded(int id, double bound = kBoundMax) {
    if (TypeOf(id).bound <= bound) return id;
    const double to = std::min(bound, 3.0);
    const double factor = std::max(1e-3, std::floor(1000 * to / TypeOf(id).bound) / 1000);
    if (factor < 1) id = EmitUnary(StepKind::kScale, id, TypeOf(id).bound * factor, factor);
    if (TypeOf(id).bound <= bound && random_.Chance(40)) return id;
    return EmitUnary(random_.PickFrom<StepKind>({StepKind::kSin, StepKind::kCos, StepKind::kTanh}),
                     id, 1);
  }
  int EmitSum(int id, const Dims& dims) {
    Dims left;
    int64_t n = 1;
    for (int64_t d = 0; d < Rank(id); ++d) {
      if (std::count(dims.begin(), dims.end(), d))
        n *= TypeOf(id).shape[d];
      else
        left.push_back(TypeOf(id).shape[d]);
    }
    return Emit({.kind = StepKind::kSum, .in = {id}, .ints = dims},
                {left, TypeOf(id).varying, TypeOf(id).bound * static_cast<double>(n)});
  }
  Dims AllDims(int id) const {
    Dims dims(Rank(id));
    for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int64_t>(d);
    return dims;
  }
  int ToScalar(int id) {
    if (Rank(id) == 0) return id;
    if (Count(TypeOf(id).shape) == 1 && random_.Chance(50)) return Reshape(id, {});
    return Bounded(EmitSum(id, AllDims(id)));
  }
  int Broadcast(int id, Dims shape, const Dims& dims) {
    Dims ints = shape;
    ints.insert(ints.end(), dims.begin(), dims.end());
    return Emit({.kind = StepKind::kBroadcast, .in = {id}, .ints = ints},
                {shape, TypeOf(id).varying, TypeOf(id).bound});
  }
  // Returns a value of shape `shape` that is made from `id`.
  int WithShape(int id, Dims shape) {
    if (TypeOf(id).shape == shape) return id;
    if (Count(TypeOf(id).shape) == Count(shape)) return Reshape(id, shape);
    if (Count(TypeOf(id).shape) > Count(shape) && random_.Chance(60)) {
      const int64_t have = Count(TypeOf(id).shape), need = Count(shape);
      const int64_t start = random_.Between(0, have - need);
      const int flat = Reshape(id, {have});
      return Reshape(Emit({.kind = StepKind::kSlice, .in = {flat}, .ints = {start, start + need}},
                          {{need}, TypeOf(id).varying, TypeOf(id).bound}),
                     shape);
    }
    // Broadcasts the dims from the last one, as NumPy does, if they fit.
    Dims dims;
    const int64_t offset = static_cast<int64_t>(shape.size()) - Rank(id);
    bool fits = offset >= 0;
    for (int64_t d = 0; fits && d < Rank(id); ++d) {
      fits = TypeOf(id).shape[d] == shape[d + offset] || TypeOf(id).shape[d] == 1;
      dims.push_back(d + offset);
    }
    if (fits) return Broadcast(id, shape, dims);
    return Broadcast(ToScalar(id), shape, {});
  }
  int CastToVarying(int id, AxisSet axes) {
    axes &= ~TypeOf(id).varying & p_.mesh_axes();
    if (!axes) return id;
    return Emit({.kind = StepKind::kPvary, .in = {id}, .axes = Shuffled(axes)},
                {TypeOf(id).shape, TypeOf(id).varying | axes, TypeOf(id).bound});
  }
  int NewConstant(const Dims& shape) {
    Step step{.kind = StepKind::kConstant, .ints = shape};
    for (int64_t k = 0; k < Count(shape); ++k) step.numbers.push_back(random_.Number(-1.5, 1.5));
    return Emit(step, {shape, 0, 1.5});
  }

  // ---- Steps. ----
  void MakeSteps(int64_t n) {
    for (int attempt = 0; n > 0 && attempt < 200; ++attempt) {
      const std::optional<int> made = MakeStep();
      if (!made) continue;
      pool_.push_back(Bounded(*made));
      --n;
    }
  }
  std::optional<int> MakeStep() {
    const int64_t kind = random_.Below(100);
    if (kind < 26) return MakeElementwise();
    if (kind < 44) return MakeLocal();
    if (kind < 80) return MakeCollective();
    return MakeRegion();
  }

  // Makes a sharding constraint over the axes that the planner decides about. Returns nullopt if no
  // constraint fits.
  std::optional<int> MakeConstraint() {
    const int x = AnyValue();
    const AxisSet rest = p_.mesh_axes() & ~active_;
    if (!rest || p_.is_explicit || Rank(x) == 0) return {};
    return Emit(
        {.kind = StepKind::kConstrain, .in = {x}, .specs = {AnyFittingSpec(TypeOf(x).shape, rest)}},
        TypeOf(x));
  }
  // Returns a random spec whose axes divide the dims.
  Spec AnyFittingSpec(const Dims& shape, AxisSet axes) {
    Spec spec = AnySpec(shape.size(), axes, 70);
    for (size_t d = 0; d < spec.size(); ++d)
      while (shape[d] % p_.SizeOf(spec[d]) != 0) spec[d].pop_back();
    return spec;
  }

  // Makes an elementwise step. All functions that make a step return nullopt if the step that they
  // drew does not fit.
  std::optional<int> MakeElementwise() {
    if (active_ != p_.mesh_axes() && random_.Chance(12)) return MakeConstraint();
    if (random_.Chance(8)) return NewConstant(random_.Chance(50) ? Dims{} : AnyShape(2));
    const int x = AnyValue();
    const double x_bound = TypeOf(x).bound;
    if (random_.Chance(35)) {
      switch (random_.Below(9)) {
        case 0:
          return EmitUnary(StepKind::kSin, x, 1);
        case 1:
          return EmitUnary(StepKind::kCos, x, 1);
        case 2:
          return EmitUnary(StepKind::kTanh, x, 1);
        case 3:
          return EmitUnary(StepKind::kLogistic, x, 1);
        case 4:
          return EmitUnary(StepKind::kNegate, x, x_bound);
        case 5:
          return x_bound > 7 ? std::optional<int>()
                             : EmitUnary(StepKind::kSquare, x, x_bound * x_bound);
        case 6:
          return EmitUnary(StepKind::kScale, x, 1.5 * x_bound, random_.Number(-1.5, 1.5));
        case 7:
          return EmitUnary(StepKind::kShift, x, x_bound + 1.5, random_.Number(-1.5, 1.5));
        default:
          return random_.Chance(30) ? EmitUnary(StepKind::kStopGradient, x, x_bound)
                                    : std::optional<int>();
      }
    }
    const int y = WithShape(AnyValue(), TypeOf(x).shape);
    const double y_bound = TypeOf(y).bound;
    const auto both = [&](StepKind kind, double bound) {
      Step step{.kind = kind, .in = {x, y}};
      if (random_.Chance(50)) std::swap(step.in[0], step.in[1]);
      if (kind == StepKind::kDivide) bound = TypeOf(step.in[0]).bound / 2;
      return Emit(step, {TypeOf(x).shape, TypeOf(x).varying | TypeOf(y).varying, bound});
    };
    switch (random_.Below(9)) {
      case 0:
      case 1:
        return both(StepKind::kAdd, x_bound + y_bound);
      case 2:
        return both(StepKind::kSubtract, x_bound + y_bound);
      case 3:
      case 4:
        return both(StepKind::kMultiply, x_bound * y_bound);
      case 5:
        return both(StepKind::kDivide, 0);
      case 6:
        return both(StepKind::kMax, std::max(x_bound, y_bound));
      case 7:
        return both(StepKind::kMin, std::max(x_bound, y_bound));
      default: {
        const int u = WithShape(AnyValue(), TypeOf(x).shape);
        return Emit({.kind = StepKind::kSelect, .in = {x, y, u, y}},
                    {TypeOf(x).shape, TypeOf(x).varying | TypeOf(y).varying | TypeOf(u).varying,
                     std::max(y_bound, TypeOf(u).bound)});
      }
    }
  }

  // Makes a step that needs no blocks of other devices and is not elementwise. A kind of step with
  // several case labels is drawn more often.
  std::optional<int> MakeLocal() {
    const int x = AnyValueOfRankAtLeast(1);
    if (x < 0) return {};
    const ValueType type = TypeOf(x);
    const Dims& shape = type.shape;
    const int64_t d = AnyDim(x), n = shape[d];
    switch (random_.Below(14)) {
      case 0: {
        Dims to = {Count(shape)};
        if (to[0] % 2 == 0 && random_.Chance(60)) to = {2, to[0] / 2};
        if (random_.Chance(40)) to.insert(to.begin() + random_.Between(0, 1), 1);
        return to == shape ? std::optional<int>() : Reshape(x, to);
      }
      case 1: {
        if (Rank(x) < 2) return {};
        Dims permutation = AllDims(x), to;
        random_.Shuffle(&permutation);
        for (const int64_t from : permutation) to.push_back(shape[from]);
        return Emit({.kind = StepKind::kTranspose, .in = {x}, .ints = permutation},
                    {to, type.varying, type.bound});
      }
      case 2: {
        Dims to = shape, dims;
        const int64_t at = random_.Between(0, Rank(x));
        to.insert(to.begin() + at, random_.Between(1, 3));
        if (Count(to) > kBlockMax) return {};
        for (int64_t i = 0; i < Rank(x); ++i) dims.push_back(i < at ? i : i + 1);
        return Broadcast(x, to, dims);
      }
      case 3: {
        Dims ints(shape.size(), 0), to = shape;
        ints.insert(ints.end(), shape.begin(), shape.end());
        const int64_t start = random_.Between(0, n - 1), limit = random_.Between(start + 1, n);
        ints[d] = start;
        ints[shape.size() + d] = limit;
        to[d] = limit - start;
        return Emit({.kind = StepKind::kSlice, .in = {x}, .ints = ints},
                    {to, type.varying, type.bound});
      }
      case 4: {
        const int y = WithShape(AnyValue(), shape);
        Dims to = shape;
        to[d] *= 2;
        if (Count(to) > kBlockMax) return {};
        return Emit({.kind = StepKind::kConcatenate, .in = {x, y}, .ints = {d}},
                    {to, type.varying | TypeOf(y).varying, std::max(type.bound, TypeOf(y).bound)});
      }
      case 5: {
        Dims ints(2 * shape.size(), 0), to = shape;
        ints[d] = random_.Between(n > 1 ? -1 : 0, 1);
        ints[shape.size() + d] = random_.Between(0, 1);
        to[d] += ints[d] + ints[shape.size() + d];
        if (Count(to) > kBlockMax) return {};
        return Emit(
            {.kind = StepKind::kPad, .in = {x}, .ints = ints, .numbers = {random_.Number(-1, 1)}},
            {to, type.varying, std::max(type.bound, 1.0)});
      }
      case 6:
        return Emit({.kind = StepKind::kReverse, .in = {x}, .ints = {d}}, type);
      case 7:
        return Emit({.kind = StepKind::kCumsum, .in = {x}, .ints = {d}},
                    {shape, type.varying, type.bound * static_cast<double>(n)});
      case 8:
        return Emit({.kind = StepKind::kSort, .in = {x}, .ints = {d}}, type);
      case 9: {
        Dims dims = {d};
        if (random_.Chance(30)) dims = AllDims(x);
        return EmitSum(x, dims);
      }
      case 10: {
        Dims to = shape;
        to.erase(to.begin() + d);
        if (random_.Chance(50) || type.bound > 2)
          return Emit({.kind = StepKind::kLargest, .in = {x}, .ints = {d}},
                      {to, type.varying, type.bound});
        return Emit({.kind = StepKind::kProduct, .in = {x}, .ints = {d}},
                    {to, type.varying, std::pow(std::max(1.0, type.bound), n)});
      }
      case 11:
      case 12: {
        const int y = AnyValueThat([&](int id) {
          return std::count(TypeOf(id).shape.begin(), TypeOf(id).shape.end(), n) > 0;
        });
        if (y < 0) return {};
        int64_t e = AnyDim(y);
        while (TypeOf(y).shape[e] != n) e = AnyDim(y);
        Dims to = shape;
        to.erase(to.begin() + d);
        Dims rest = TypeOf(y).shape;
        rest.erase(rest.begin() + e);
        to.insert(to.end(), rest.begin(), rest.end());
        if (Count(to) > kBlockMax || to.size() > 4) return {};
        return Emit({.kind = StepKind::kDot, .in = {x, y}, .ints = {d, e}},
                    {to, type.varying | TypeOf(y).varying,
                     type.bound * TypeOf(y).bound * static_cast<double>(n)});
      }
      default: {
        const Axes axes = SomeAxes(active_ & allowed_);
        if (axes.empty()) return {};
        Dims part = shape;
        part[d] = random_.Between(1, n);
        if (random_.Chance(60))
          return Emit(
              {.kind = StepKind::kDynamicSlice, .in = {x}, .axes = axes, .ints = {d, part[d]}},
              {part, type.varying | SetOf(axes), type.bound});
        const int y = WithShape(AnyValue(), part);
        return Emit({.kind = StepKind::kDynamicUpdate, .in = {x, y}, .axes = axes, .ints = {d}},
                    {shape, type.varying | TypeOf(y).varying | SetOf(axes),
                     std::max(type.bound, TypeOf(y).bound)});
      }
    }
  }

  // Returns one or more axes of the set, in random order.
  Axes SomeAxes(AxisSet of) {
    Axes axes = Shuffled(of);
    while (axes.size() > 1 && random_.Chance(55)) axes.pop_back();
    return axes;
  }
  // Returns axes for a collective of x. JAX demands that x varies along all of these axes or along
  // none of them; if necessary, replaces x by a cast to varying. `adds` says that the result will
  // vary along the axes. In the body of a vmap with a name, the axes may include the axis of the
  // vmap.
  Axes AxesForCollective(int* x, bool adds) {
    const AxisSet named = active_ & ~p_.mesh_axes(), varying = TypeOf(*x).varying & active_;
    if (named && random_.Chance(50)) {
      Axes axes = SomeAxes(named);
      if ((varying & allowed_) && random_.Chance(50)) {
        const Axes more = SomeAxes(varying & allowed_);
        axes.insert(axes.end(), more.begin(), more.end());
        random_.Shuffle(&axes);
      }
      return axes;
    }
    AxisSet others = active_ & p_.mesh_axes() & ~varying;
    if (adds) others &= allowed_;
    if (varying && random_.Chance(65)) return SomeAxes(varying);
    if (others && random_.Chance(60)) return SomeAxes(others);
    const Axes axes = SomeAxes(varying | (others & allowed_));
    *x = CastToVarying(*x, SetOf(axes));
    return axes;
  }

  // Makes a collective. The shapes and the varying axes of the results follow the rules of JAX. A
  // collective through the states unreduced and reduced needs a body in which all axes of the mesh
  // are manual.
  std::optional<int> MakeCollective() {
    int x = AnyValue();
    const bool unreduced_fits = p_.manual == p_.mesh_axes();
    switch (random_.Below(17)) {
      case 0:
      case 1:
      case 2: {
        const Axes axes = AxesForCollective(&x, false);
        if (axes.empty()) return {};
        const bool mean = random_.Chance(35);
        return Emit({.kind = mean ? StepKind::kPmean : StepKind::kPsum, .in = {x}, .axes = axes},
                    {TypeOf(x).shape, TypeOf(x).varying & ~SetOf(axes),
                     TypeOf(x).bound * (mean ? 1 : static_cast<double>(p_.SizeOf(axes)))});
      }
      case 3: {
        x = EmitUnary(StepKind::kStopGradient, x,
                      TypeOf(x).bound);  // pmax and pmin have no derivative
        const Axes axes = AxesForCollective(&x, false);
        if (axes.empty()) return {};
        return Emit({.kind = random_.Chance(50) ? StepKind::kPmax : StepKind::kPmin,
                     .in = {x},
                     .axes = axes},
                    {TypeOf(x).shape, TypeOf(x).varying & ~SetOf(axes), TypeOf(x).bound});
      }
      case 4:
      case 5:
      case 6: {
        const int64_t which = random_.Below(5);
        StepKind kind = which < 3                       ? StepKind::kAllGather
                        : which == 3 || !unreduced_fits ? StepKind::kGatherInvarying
                                                        : StepKind::kGatherReduced;
        const Axes axes = AxesForCollective(&x, kind != StepKind::kGatherInvarying);
        if (axes.empty()) return {};
        if (SetOf(axes) & ~p_.mesh_axes()) kind = StepKind::kAllGather;
        const bool adds = kind != StepKind::kGatherInvarying;
        if (kind == StepKind::kGatherReduced && SetOf(axes) & ~allowed_) return {};
        const bool tiled = Rank(x) > 0 && random_.Chance(50);
        const int64_t n = p_.SizeOf(axes);
        Dims to = TypeOf(x).shape;
        const int64_t d = tiled ? AnyDim(x) : random_.Between(0, Rank(x));
        if (tiled)
          to[d] *= n;
        else
          to.insert(to.begin() + d, n);
        if (Count(to) > kBlockMax || to.size() > 4) return {};
        if (kind == StepKind::kGatherReduced) x = CastToVarying(x, SetOf(axes));
        const AxisSet varying =
            adds ? TypeOf(x).varying | SetOf(axes) : TypeOf(x).varying & ~SetOf(axes);
        return Emit({.kind = kind, .in = {x}, .axes = axes, .ints = {d}, .tiled = tiled},
                    {to, varying, TypeOf(x).bound});
      }
      case 7:
      case 8:
      case 9: {
        const Axes axes = AxesForCollective(&x, true);
        if (axes.empty() || SetOf(axes) & ~allowed_) return {};
        const bool unreduced =
            unreduced_fits && !(SetOf(axes) & ~p_.mesh_axes()) && random_.Chance(30);
        const int64_t n = p_.SizeOf(axes);
        // Scatters a dim that n divides, or makes one by a broadcast.
        Dims fitting_dims;
        for (int64_t d = 0; d < Rank(x); ++d)
          if (TypeOf(x).shape[d] % n == 0) fitting_dims.push_back(d);
        if (fitting_dims.empty() || random_.Chance(20)) {
          Dims to = TypeOf(x).shape;
          if (Count(to) * n > kBlockMax || Rank(x) > 3) return {};
          to.insert(to.begin(), n);
          Dims dims = AllDims(x);
          for (int64_t& d : dims) ++d;
          x = Broadcast(x, to, dims);
          fitting_dims = {0};
        }
        if (unreduced) x = CastToVarying(x, SetOf(axes));
        const int64_t d = random_.PickFrom(fitting_dims);
        const bool tiled = TypeOf(x).shape[d] != n || random_.Chance(50);
        Dims to = TypeOf(x).shape;
        if (tiled)
          to[d] /= n;
        else
          to.erase(to.begin() + d);
        return Emit(
            {.kind = unreduced ? StepKind::kScatterUnreduced : StepKind::kPsumScatter,
             .in = {x},
             .axes = axes,
             .ints = {d},
             .tiled = tiled},
            {to, TypeOf(x).varying | SetOf(axes), TypeOf(x).bound * static_cast<double>(n)});
      }
      case 10:
      case 11: {
        const Axes axes = AxesForCollective(&x, true);
        if (axes.empty() || SetOf(axes) & ~allowed_) return {};
        const int64_t n = p_.SizeOf(axes);
        Dims fitting_dims;
        for (int64_t d = 0; d < Rank(x); ++d)
          if (TypeOf(x).shape[d] % n == 0) fitting_dims.push_back(d);
        if (fitting_dims.empty()) return {};
        const int64_t split_dim = random_.PickFrom(fitting_dims);
        const bool tiled = TypeOf(x).shape[split_dim] != n || random_.Chance(50);
        const int64_t join_dim = random_.Below(Rank(x));
        Dims to = TypeOf(x).shape;
        if (tiled) {
          to[split_dim] /= n;
          to[join_dim] *= n;
        } else {
          to.erase(to.begin() + split_dim);
          to.insert(to.begin() + join_dim, n);
        }
        return Emit({.kind = StepKind::kAllToAll,
                     .in = {x},
                     .axes = axes,
                     .ints = {split_dim, join_dim},
                     .tiled = tiled},
                    {to, TypeOf(x).varying | SetOf(axes), TypeOf(x).bound});
      }
      case 12:
      case 13: {
        Axes axes = AxesForCollective(&x, true);
        if (axes.empty() || SetOf(axes) & ~allowed_) return {};
        const int64_t n = p_.SizeOf(axes);
        const ValueType type = {TypeOf(x).shape, TypeOf(x).varying | SetOf(axes), TypeOf(x).bound};
        if (random_.Chance(20)) {
          x = CastToVarying(x, SetOf(axes));
          return Emit(
              {.kind = StepKind::kPbroadcast, .in = {x}, .axes = axes, .ints = {random_.Below(n)}},
              type);
        }
        // If the axes include the axis of a vmap, ppermute takes no other axis. JAX has the same
        // limit.
        if (axes.size() > 1 && (SetOf(axes) & ~p_.mesh_axes())) return {};
        std::sort(axes.begin(), axes.end());
        Dims to(n), pairs;
        for (int64_t i = 0; i < n; ++i) to[i] = i;
        random_.Shuffle(&to);
        for (int64_t i = 0; i < n; ++i)
          if (!random_.Chance(15)) pairs.insert(pairs.end(), {i, to[i]});
        return Emit({.kind = StepKind::kPermute, .in = {x}, .axes = axes, .ints = pairs}, type);
      }
      case 14: {
        const Axes axes = SomeAxes(active_ & allowed_);
        if (axes.empty()) return {};
        return Emit({.kind = StepKind::kAxisIndex, .axes = axes},
                    {{}, SetOf(axes), static_cast<double>(p_.SizeOf(axes))});
      }
      case 15: {
        const AxisSet missing = active_ & allowed_ & p_.mesh_axes() & ~TypeOf(x).varying;
        if (!missing) return {};
        const Axes axes = SomeAxes(missing);
        if (unreduced_fits && random_.Chance(40))
          return Emit({.kind = StepKind::kThroughReduced, .in = {x}, .axes = axes},
                      {TypeOf(x).shape, TypeOf(x).varying | SetOf(axes), TypeOf(x).bound});
        return CastToVarying(x, SetOf(axes));
      }
      default: {
        if (!unreduced_fits || !TypeOf(x).varying) return {};
        const Axes axes = SomeAxes(TypeOf(x).varying);
        return Emit({.kind = StepKind::kPsumUnreduced, .in = {x}, .axes = axes},
                    {TypeOf(x).shape, TypeOf(x).varying & ~SetOf(axes),
                     TypeOf(x).bound * static_cast<double>(p_.SizeOf(axes))});
      }
    }
  }

  // ---- Steps with bodies. ----
  // Makes a body with these parameters. `finish` returns its results.
  Body MakeBody(const std::vector<int>& params, AxisSet allowed, int64_t num_steps,
                const std::function<std::vector<int>()>& finish) {
    Body body;
    body.params = params;
    Body* const outer_body = body_;
    const std::vector<int> outer_pool = pool_;
    const AxisSet outer_allowed = allowed_;
    body_ = &body;
    allowed_ = allowed;
    std::erase_if(pool_, [&](int id) { return (TypeOf(id).varying & ~allowed) != 0; });
    pool_.insert(pool_.end(), params.begin(), params.end());
    pool_.insert(pool_.end(), params.begin(), params.end());  // twice, to prefer the parameters
    ++depth_;
    MakeSteps(num_steps);
    body.results = finish();
    --depth_;
    body_ = outer_body;
    pool_ = outer_pool;
    allowed_ = outer_allowed;
    return body;
  }
  int64_t FewSteps() { return random_.Between(1, depth_ > 0 ? 2 : 4); }

  std::optional<int> MakeRegion() {
    if (depth_ >= 2) return {};
    switch (random_.Below(10)) {
      case 0:
      case 1:
        return MakeLoop();
      case 2:
      case 3:
        return MakeBranch();
      case 4:
        return MakeCall(StepKind::kJit);
      case 5:
        return MakeCall(StepKind::kCheckpoint);
      case 6:
      case 7:
        return MakeVmap();
      case 8:
        return MakeGrad();
      default:
        return MakeNested();
    }
  }

  // Makes a scan or a fori_loop. The carry must keep its type. So the result of the body gets the
  // shape, the bound and the varying axes of the initial value.
  std::optional<int> MakeLoop() {
    int init = Bounded(AnyValue(), 1.5);
    const AxisSet allowed =
        TypeOf(init).varying | (active_ & ~p_.mesh_axes()) |
        (SetOf(SomeAxes(active_ & allowed_)) & (random_.Chance(60) ? ~AxisSet{0} : 0));
    init = CastToVarying(init, allowed);
    Step step{.kind = random_.Chance(30) ? StepKind::kFori : StepKind::kScan, .in = {init}};
    const ValueType type = {TypeOf(init).shape, allowed, std::max(1.0, TypeOf(init).bound)};
    std::vector<int> params = {NewValue(type)};
    int64_t n = random_.Between(1, 3);
    if (step.kind == StepKind::kFori) {
      params.push_back(NewValue({{}, 0, static_cast<double>(n)}));
    } else if (random_.Chance(60)) {
      const int xs = AnyValueThat(
          [&](int id) { return Rank(id) > 0 && (TypeOf(id).varying & ~allowed) == 0; });
      if (xs >= 0) {
        Dims element = TypeOf(xs).shape;
        n = element[0];
        element.erase(element.begin());
        step.in.push_back(xs);
        params.push_back(NewValue({element, TypeOf(xs).varying, TypeOf(xs).bound}));
      }
    }
    step.ints = {n, step.kind == StepKind::kScan && random_.Chance(30)};
    const bool stacks = step.kind == StepKind::kScan && random_.Chance(50);
    step.bodies.push_back(MakeBody(params, allowed, FewSteps(), [&] {
      int carry = WithShape(pool_.back(), type.shape);
      carry = Bounded(carry, type.bound);
      carry = CastToVarying(carry, allowed);
      std::vector<int> results = {carry};
      if (stacks) results.push_back(AnyValue());
      return results;
    }));
    if (stacks && n * Count(TypeOf(step.bodies[0].results[1]).shape) > kBlockMax)
      step.bodies[0].results.pop_back();
    const int carry = Emit(step, type);
    if (step.bodies[0].results.size() > 1) {
      ValueType y = TypeOf(step.bodies[0].results[1]);
      y.shape.insert(y.shape.begin(), n);
      const int stacked = NewValue(y);
      body_->steps.back().out.push_back(stacked);
      pool_.push_back(stacked);
    }
    return carry;
  }

  // Makes a cond or a switch. All branches must return the same type, so their results get the same
  // shape and are cast to vary along the same axes.
  std::optional<int> MakeBranch() {
    if (active_ & ~p_.mesh_axes()) return {};
    // The predicate must be the same on all devices.
    int predicate = AnyValue();
    if (TypeOf(predicate).varying) {
      const Axes axes = Shuffled(TypeOf(predicate).varying);
      if (SetOf(axes) & ~active_) return {};
      predicate = Emit({.kind = StepKind::kPmean, .in = {predicate}, .axes = axes},
                       {TypeOf(predicate).shape, 0, TypeOf(predicate).bound});
    }
    predicate = ToScalar(predicate);
    Step step{
        .kind = StepKind::kBranch, .in = {predicate}, .numbers = {random_.Number(-1, 1) + 5e-6}};
    if (random_.Chance(30)) step.numbers.push_back(step.numbers[0] + 0.5);
    const int x = AnyValue();
    const bool has_operand = random_.Chance(70);
    if (has_operand) step.in.push_back(x);
    Dims shape = TypeOf(x).shape;
    AxisSet varying = 0;
    double bound = 0;
    for (size_t i = 0; i <= step.numbers.size(); ++i) {
      std::vector<int> params;
      if (has_operand) params.push_back(NewValue(TypeOf(x)));
      step.bodies.push_back(MakeBody(params, allowed_, FewSteps(), [&] {
        return std::vector<int>{WithShape(pool_.back(), shape)};
      }));
      varying |= TypeOf(step.bodies.back().results[0]).varying;
      bound = std::max(bound, TypeOf(step.bodies.back().results[0]).bound);
    }
    Body* const outer_body = body_;
    for (Body& body : step.bodies) {
      body_ = &body;
      body.results[0] = CastToVarying(body.results[0], varying);
    }
    body_ = outer_body;
    return Emit(step, {shape, varying, bound});
  }

  std::optional<int> MakeCall(StepKind kind) {
    Step step{.kind = kind};
    std::vector<int> params;
    for (int64_t i = random_.Between(1, 2); i > 0; --i) {
      step.in.push_back(AnyValue());
      params.push_back(NewValue(TypeOf(step.in.back())));
    }
    step.bodies.push_back(
        MakeBody(params, allowed_, FewSteps(), [&] { return std::vector<int>{pool_.back()}; }));
    return Emit(step, TypeOf(step.bodies[0].results[0]));
  }

  // Makes a vmap of one or two operands. Half of them have a name, which adds an axis that
  // collectives in the body may use.
  std::optional<int> MakeVmap() {
    const int x = AnyValueOfRankAtLeast(1);
    if (x < 0) return {};
    Step step{.kind = StepKind::kVmap, .in = {x}, .ints = {AnyDim(x)}};
    const int64_t n = TypeOf(x).shape[step.ints[0]];
    if (random_.Chance(50)) {
      const int y = AnyValue();
      step.in.push_back(y);
      Dims fitting_dims = {-1};
      for (int64_t d = 0; d < Rank(y); ++d)
        if (TypeOf(y).shape[d] == n) fitting_dims.push_back(d);
      step.ints.push_back(random_.PickFrom(fitting_dims));
    }
    std::vector<int> params;
    for (size_t i = 0; i < step.in.size(); ++i) {
      ValueType type = TypeOf(step.in[i]);
      if (step.ints[i] >= 0) type.shape.erase(type.shape.begin() + step.ints[i]);
      params.push_back(NewValue(type));
    }
    const bool outer_in_vmap = in_vmap_;
    const AxisSet outer_active = active_;
    in_vmap_ = true;
    if (random_.Chance(50)) {
      step.axes = {static_cast<int>(p_.mesh.size())};
      p_.mesh.push_back({absl::StrCat("v", step.axes[0]), n, true});
      active_ |= SetOf(step.axes);
    }
    step.bodies.push_back(MakeBody(params, allowed_ | SetOf(step.axes), FewSteps(), [&] {
      int result = pool_.back();
      if (Count(TypeOf(result).shape) * n > kBlockMax) result = ToScalar(result);
      return std::vector<int>{result};
    }));
    in_vmap_ = outer_in_vmap;
    active_ = outer_active;
    ValueType type = TypeOf(step.bodies[0].results[0]);
    step.ints.push_back(random_.Between(0, static_cast<int64_t>(type.shape.size())));
    type.shape.insert(type.shape.begin() + step.ints.back(), n);
    return Emit(step, type);
  }

  std::optional<int> MakeGrad() {
    // In a vmap with a name, the derivative of a psum is a psum again. The plain loop does not know
    // this rule.
    if (in_grad_ || (active_ & ~p_.mesh_axes())) return {};
    const int x = AnyValue();
    if (Count(TypeOf(x).shape) > 12) return {};
    Step step{.kind = StepKind::kGrad, .in = {x}};
    in_grad_ = true;
    step.bodies.push_back(MakeBody({NewValue(TypeOf(x))}, ~AxisSet{0} & active_, FewSteps(),
                                   [&] { return std::vector<int>{ToScalar(pool_.back())}; }));
    in_grad_ = false;
    if (TypeOf(x).varying & ~allowed_) return {};
    p_.valid_unchecked = false;
    return Emit(step, {TypeOf(x).shape, TypeOf(x).varying, 1e3});
  }

  // Makes a shard_map inside the body, over the axes that are not manual yet. The result no longer
  // varies along these axes.
  std::optional<int> MakeNested() {
    const AxisSet rest = p_.mesh_axes() & ~active_;
    if (!rest || in_grad_ || in_vmap_ || depth_ > 0) return {};
    Step step{.kind = StepKind::kNested};
    std::vector<int> params;
    for (int64_t i = random_.Between(1, 2); i > 0; --i) {
      const int x = AnyValue();
      ValueType type = TypeOf(x);
      const Spec spec = AnyFittingSpec(type.shape, rest);
      for (size_t d = 0; d < spec.size(); ++d) type.shape[d] /= p_.SizeOf(spec[d]);
      type.varying |= SetOf(spec);
      step.in.push_back(x);
      step.specs.push_back(spec);
      params.push_back(NewValue(type));
    }
    const AxisSet outer_active = active_;
    active_ = p_.mesh_axes();
    step.bodies.push_back(MakeBody(params, allowed_ | rest, FewSteps() + 1, [&] {
      int result = pool_.back();
      if (Rank(result) == 0) result = Reshape(result, {1});
      return std::vector<int>{result};
    }));
    active_ = outer_active;
    ValueType type = TypeOf(step.bodies[0].results[0]);
    Spec spec(type.shape.size());
    for (const int a : Shuffled(rest))
      if ((type.varying >> a & 1) || random_.Chance(15))
        spec[random_.Below(static_cast<int64_t>(spec.size()))].push_back(a);
    for (size_t d = 0; d < spec.size(); ++d) type.shape[d] *= p_.SizeOf(spec[d]);
    type.varying &= ~rest;
    step.specs.push_back(spec);
    return Emit(step, type);
  }

  // ---- Mistakes. ----
  // Adds a result to the program, so that the step with the mistake is needed for a result.
  void AddResult(int id) {
    if (Rank(id) == 0) id = Reshape(id, {1});
    Spec spec(Rank(id));
    spec[0] = AxesOf(TypeOf(id).varying);
    p_.body.results.push_back(id);
    p_.out_specs.push_back(spec);
  }
  int IndexAlong(int axis) {
    return Emit({.kind = StepKind::kAxisIndex, .axes = {axis}}, {{}, AxisSet{1} << axis, 4});
  }
  // Adds the mistake to a finished program. Returns false if the program has no place for it. The
  // types that AddFault records for the wrong values are arbitrary, because nothing compares them.
  bool AddFault(Fault fault) {
    const Axes manual = Shuffled(p_.manual);
    const int a = manual[0];
    const AxisSet along = AxisSet{1} << a;
    const int64_t n = p_.mesh[a].size;
    switch (fault) {
      case Fault::kNone:
        return true;
      case Fault::kAxisMissingInOutSpec:
        for (size_t r = 0; r < p_.out_specs.size(); ++r) {
          if (!TypeOf(p_.body.results[r]).varying) continue;
          const int unproven = Shuffled(TypeOf(p_.body.results[r]).varying)[0];
          for (Axes& axes : p_.out_specs[r]) std::erase(axes, unproven);
          return true;
        }
        return false;
      case Fault::kUnboundAxis:
        AddResult(
            Emit({.kind = StepKind::kPsum, .in = {p_.body.params[0]}, .axes = {a, kUnknownAxis}},
                 TypeOf(p_.body.params[0])));
        return true;
      case Fault::kCarryVariesMore: {
        const int zero = NewConstant({}), carry = NewValue({{}, 0, 1});
        Step step{.kind = StepKind::kScan, .in = {zero}, .ints = {2, 0}};
        step.bodies.emplace_back();
        step.bodies[0].params = {carry};
        body_ = &step.bodies[0];
        const int index = IndexAlong(a);
        const int sum = Emit({.kind = StepKind::kAdd, .in = {carry, index}}, {{}, along, 4});
        step.bodies[0].results = {sum};
        body_ = &p_.body;
        AddResult(Emit(step, {{}, along, 4}));
        return true;
      }
      case Fault::kBranchesDiffer: {
        const int zero = NewConstant({});
        Step step{.kind = StepKind::kBranch, .in = {zero}, .numbers = {0.25}};
        for (int i = 0; i < 2; ++i) {
          step.bodies.emplace_back();
          body_ = &step.bodies[i];
          step.bodies[i].results = {i ? IndexAlong(a) : EmitUnary(StepKind::kScale, zero, 1, 0.5)};
        }
        body_ = &p_.body;
        AddResult(Emit(step, {{}, along, 4}));
        return true;
      }
      case Fault::kMixedStates: {
        if (manual.size() < 2) return false;
        const int index = IndexAlong(a);
        AddResult(Emit({.kind = StepKind::kPsum, .in = {index}, .axes = manual}, {{}, 0, 4}));
        return true;
      }
      case Fault::kInSpecLong:
        p_.in_specs[0].resize(p_.inputs[0].size() + 1);
        p_.in_specs[0].back() = {};
        return true;
      case Fault::kOutSpecLong:
        p_.out_specs[0].resize(TypeOf(p_.body.results[0]).shape.size() + 1);
        return true;
      case Fault::kIndivisible:
        for (size_t i = 0; i < p_.inputs.size(); ++i)
          for (size_t d = 0; d < p_.inputs[i].size(); ++d) {
            if (p_.SizeOf(p_.in_specs[i][d]) < 2) continue;
            ++p_.inputs[i][d];
            p_.input_numbers[i].resize(Count(p_.inputs[i]), 0.5);
            return true;
          }
        return false;
      case Fault::kCastTwice: {
        const int index = IndexAlong(a);
        AddResult(Emit({.kind = StepKind::kPvary, .in = {index}, .axes = {a}}, TypeOf(index)));
        return true;
      }
      case Fault::kPermuteTwice: {
        if (n < 2) return false;
        const int index = IndexAlong(a);
        AddResult(
            Emit({.kind = StepKind::kPermute, .in = {index}, .axes = {a}, .ints = {0, 0, 1, 0}},
                 TypeOf(index)));
        return true;
      }
      case Fault::kIndivisibleScatter: {
        if (n < 2) return false;
        const int x = NewConstant({n + 1});
        AddResult(Emit(
            {.kind = StepKind::kPsumScatter, .in = {x}, .axes = {a}, .ints = {0}, .tiled = true},
            {{1}, along, 8}));
        return true;
      }
      case Fault::kGradOfPmax: {
        const int x = p_.body.params[0];
        AddResult(Emit({.kind = StepKind::kPmax, .in = {CastToVarying(x, along)}, .axes = {a}},
                       {TypeOf(x).shape, TypeOf(x).varying & ~along, 8}));
        return true;
      }
      case Fault::kUnknownAxisInSpec:
        if (p_.in_specs[0].empty()) return false;
        p_.in_specs[0][0].push_back(kUnknownAxis);
        return true;
    }
    return false;
  }

  Random random_;
  Program p_;
  Body* body_ = nullptr;
  std::vector<int> pool_;  // values that a step may use
  std::set<int> read_ids_;
  AxisSet active_ = 0;   // axes that collectives may name
  AxisSet allowed_ = 0;  // axes along which results may vary
  int depth_ = 0;
  bool in_vmap_ = false, in_grad_ = false;
};

// Returns the name of a kind of step in transcripts.
absl::string_view NameOf(StepKind kind) {
  // The names are in the order of the enumerators of StepKind.
  static constexpr absl::string_view kNames[] = {"constant",
                                                 "sin",
                                                 "cos",
                                                 "tanh",
                                                 "logistic",
                                                 "negate",
                                                 "square",
                                                 "scale",
                                                 "shift",
                                                 "stop_gradient",
                                                 "add",
                                                 "subtract",
                                                 "multiply",
                                                 "divide",
                                                 "max",
                                                 "min",
                                                 "select",
                                                 "reshape",
                                                 "transpose",
                                                 "broadcast",
                                                 "slice",
                                                 "concatenate",
                                                 "pad",
                                                 "reverse",
                                                 "cumsum",
                                                 "sort",
                                                 "dynamic_slice",
                                                 "dynamic_update",
                                                 "sum",
                                                 "product",
                                                 "largest",
                                                 "dot",
                                                 "psum",
                                                 "pmean",
                                                 "pmax",
                                                 "pmin",
                                                 "all_gather",
                                                 "psum_scatter",
                                                 "all_to_all",
                                                 "ppermute",
                                                 "pbroadcast",
                                                 "axis_index",
                                                 "pvary",
                                                 "all_gather_invarying",
                                                 "psum_unreduced",
                                                 "psum_scatter_unreduced",
                                                 "all_gather_reduced",
                                                 "through_reduced",
                                                 "scan",
                                                 "fori_loop",
                                                 "branch",
                                                 "jit",
                                                 "checkpoint",
                                                 "vmap",
                                                 "sharding_constraint",
                                                 "grad",
                                                 "shard_map"};
  static_assert(std::size(kNames) == static_cast<size_t>(StepKind::kNested) + 1);
  return kNames[static_cast<size_t>(kind)];
}
std::string NameOfAxis(const Program& p, int axis) {
  return axis == kUnknownAxis ? "nowhere" : p.mesh[axis].name;
}
std::string AxesText(const Program& p, const Axes& axes) {
  return absl::StrCat(
      "(",
      absl::StrJoin(axes, ",",
                    [&](std::string* out, int a) { absl::StrAppend(out, NameOfAxis(p, a)); }),
      ")");
}
std::string SpecText(const Program& p, const Spec& spec) {
  return absl::StrCat("P(",
                      absl::StrJoin(spec, ", ",
                                    [&](std::string* out, const Axes& axes) {
                                      absl::StrAppend(out,
                                                      axes.empty() ? "None" : AxesText(p, axes));
                                    }),
                      ")");
}
std::string ValueText(const Program& p, int id) {
  std::string out = absl::StrCat("v", id, ": f64[", absl::StrJoin(p.types[id].shape, ","), "]");
  std::string axes;
  for (size_t a = 0; a < p.mesh.size(); ++a)
    if (p.types[id].varying >> a & 1)
      absl::StrAppend(&axes, axes.empty() ? "" : ",", p.mesh[a].name);
  if (!axes.empty()) absl::StrAppend(&out, "{V:", axes, "}");
  return out;
}
std::string IdsText(const std::vector<int>& ids) {
  return absl::StrJoin(ids, ", ", [](std::string* out, int id) { absl::StrAppend(out, "v", id); });
}
void AppendBody(const Program& p, const Body& body, const std::string& indent, std::string* out) {
  for (const Step& s : body.steps) {
    absl::StrAppend(
        out, indent,
        absl::StrJoin(s.out, ", ", [&](std::string* o, int id) { *o += ValueText(p, id); }), " = ",
        NameOf(s.kind), "(", IdsText(s.in), ")");
    if (!s.axes.empty()) absl::StrAppend(out, " axes=", AxesText(p, s.axes));
    if (!s.ints.empty()) absl::StrAppend(out, " [", absl::StrJoin(s.ints, ","), "]");
    if (!s.numbers.empty()) absl::StrAppend(out, " {", absl::StrJoin(s.numbers, ","), "}");
    if (s.tiled) absl::StrAppend(out, " tiled");
    for (const Spec& spec : s.specs) absl::StrAppend(out, " ", SpecText(p, spec));
    absl::StrAppend(out, "\n");
    for (const Body& inner : s.bodies) {
      absl::StrAppend(out, indent, "  of (",
                      absl::StrJoin(inner.params, ", ",
                                    [&](std::string* o, int id) { *o += ValueText(p, id); }),
                      ")\n");
      AppendBody(p, inner, indent + "    ", out);
    }
  }
  absl::StrAppend(out, indent, "return ", IdsText(body.results), "\n");
}

bool BodyHas(const Body& body, StepKind kind) {
  return std::any_of(body.steps.begin(), body.steps.end(), [&](const Step& s) {
    return s.kind == kind || std::any_of(s.bodies.begin(), s.bodies.end(),
                                         [&](const Body& b) { return BodyHas(b, kind); });
  });
}
void AddReads(const Body& body, std::set<int>* reads) {
  reads->insert(body.results.begin(), body.results.end());
  for (const Step& s : body.steps) {
    reads->insert(s.in.begin(), s.in.end());
    for (const Body& inner : s.bodies) AddReads(inner, reads);
  }
}
// Removes the steps that the results do not need.
void Prune(Body* body) {
  std::set<int> needed(body->results.begin(), body->results.end());
  std::vector<Step> kept;
  for (size_t i = body->steps.size(); i-- > 0;) {
    Step& s = body->steps[i];
    if (std::none_of(s.out.begin(), s.out.end(), [&](int id) { return needed.count(id) > 0; }))
      continue;
    for (Body& inner : s.bodies) {
      Prune(&inner);
      AddReads(inner, &needed);
    }
    needed.insert(s.in.begin(), s.in.end());
    kept.insert(kept.begin(), std::move(s));
  }
  body->steps = std::move(kept);
}

}  // namespace

bool Program::Has(StepKind kind) const { return BodyHas(body, kind); }

Program MakeProgram(uint64_t seed) { return ProgramMaker(seed).Make(); }
Program MakeWrongProgram(uint64_t seed) {
  const auto fault = static_cast<Fault>(1 + seed % kNumFaults);
  for (uint64_t next = seed;; next += 1000003)
    if (std::optional<Program> p = ProgramMaker(next).MakeWithFault(fault)) return *std::move(p);
}

std::string ToText(const Program& p) {
  std::string out = absl::StrCat("seed ", p.seed, "\nmesh (");
  for (size_t a = 0; a < p.mesh.size(); ++a)
    if (!p.mesh[a].mapped)
      absl::StrAppend(&out, a ? ", " : "", p.mesh[a].name, "=", p.mesh[a].size);
  absl::StrAppend(&out, p.is_explicit ? ", Explicit" : "", ")");
  if (p.manual != p.mesh_axes()) {
    absl::StrAppend(&out, " manual:");
    for (size_t a = 0; a < p.mesh.size(); ++a)
      if (p.manual >> a & 1) absl::StrAppend(&out, " ", p.mesh[a].name);
  }
  absl::StrAppend(&out, "\n");
  for (size_t i = 0; i < p.inputs.size(); ++i)
    absl::StrAppend(&out, ValueText(p, p.body.params[i]), " of f64[",
                    absl::StrJoin(p.inputs[i], ","), "] ", SpecText(p, p.in_specs[i]), " on ",
                    SpecText(p, p.input_shardings[i]), " = ",
                    absl::StrJoin(p.input_numbers[i], " "), "\n");
  AppendBody(p, p.body, "", &out);
  for (const Spec& spec : p.out_specs) absl::StrAppend(&out, "  ", SpecText(p, spec), "\n");
  return out;
}

std::vector<Program> SmallerPrograms(const Program& p) {
  std::vector<Program> out;
  for (size_t i = 0; i < p.body.steps.size(); ++i) {
    for (const int id : p.body.steps[i].out) {
      Program small = p;
      small.body.steps.resize(i + 1);
      int result = id;
      const ValueType type = p.types[id];
      if (type.shape.empty()) {
        small.types.push_back({{1}, type.varying, type.bound});
        result = static_cast<int>(small.types.size()) - 1;
        small.body.steps.push_back(
            {.kind = StepKind::kReshape, .in = {id}, .out = {result}, .ints = {1}});
      }
      small.body.results = {result};
      Spec spec(small.types[result].shape.size());
      for (int a = 0; a < static_cast<int>(p.mesh.size()); ++a)
        if (type.varying >> a & 1) spec[0].push_back(a);
      small.out_specs = {spec};
      Prune(&small.body);
      out.push_back(std::move(small));
    }
  }
  return out;
}

}  // namespace tessera::shard_maps
