// Makes random shard_map programs for shard_maps_test.cc. A Maker draws steps one after the other
// and gives each result its type, as JAX would. It keeps values bounded, so that rounding errors
// stay small, and can add a deliberate mistake.
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
constexpr double kBoundMax = 50;

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed * 0x9e3779b97f4a7c15u + 1) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(bits_() % static_cast<uint64_t>(n)); }
  int64_t From(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool In(int percent) { return Below(100) < percent; }
  // Returns a number with five decimals. It can be printed exactly, and sums of such numbers are
  // hardly ever equal. If two numbers were equal, their rounding would decide the derivative of a
  // max or a min of them.
  double Number(double low, double high) {
    constexpr int kDecimals = 100'000;
    const double at = low + (high - low) * static_cast<double>(Below(kDecimals)) / kDecimals;
    return std::round(at * kDecimals) / kDecimals;
  }
  template <class T>
  const T& One(const std::vector<T>& of) {
    return of[Below(static_cast<int64_t>(of.size()))];
  }
  template <class T>
  void Shuffle(std::vector<T>* v) {
    for (size_t i = v->size(); i > 1; --i)
      std::swap((*v)[i - 1], (*v)[Below(static_cast<int64_t>(i))]);
  }

 private:
  std::mt19937_64 bits_;
};

class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) { p_.seed = seed; }

  Program Run() {
    MakeMesh();
    MakeInputs();
    body_ = &p_.body;
    active_ = allowed_ = p_.manual;
    for (const int id : p_.body.params) pool_.push_back(id);
    MakeSteps(random_.From(3, 11));
    MakeResults();
    return p_;
  }
  // Like Run, but adds a mistake. Returns nullopt if the program has no place for this mistake.
  std::optional<Program> RunWith(Fault fault) {
    Run();
    p_.fault = fault;
    p_.is_explicit = false;
    p_.placed.assign(p_.inputs.size(), Spec());
    if (!Break(fault)) return std::nullopt;
    return std::move(p_);
  }

 private:
  // ---- The frame. ----
  void MakeMesh() {
    const int64_t rank = random_.In(25) ? 3 : random_.In(60) ? 2 : 1;
    int64_t left = kDevicesMax;
    for (int64_t a = 0; a < rank; ++a) {
      int64_t size = random_.One<int64_t>({1, 2, 2, 2, 3, 4});
      while (size > left) size = random_.One<int64_t>({1, 2, 3});
      left /= size;
      p_.mesh.push_back({std::string(1, "xyz"[a]), size});
    }
    p_.manual = p_.all();
    if (rank > 1 && random_.In(25))
      p_.manual = static_cast<AxisSet>(random_.From(1, static_cast<int64_t>(p_.all()) - 1));
    p_.is_explicit = p_.manual == p_.all() && random_.In(25);
  }
  Dims AnyShape(int64_t rank_max = 3) {
    Dims shape(random_.From(0, rank_max));
    for (int64_t& d : shape) d = random_.One<int64_t>({1, 2, 2, 3, 4});
    while (Count(shape) > 24) shape.pop_back();
    return shape;
  }
  // Returns a spec that assigns each axis of the set to a random dim with a probability of
  // `percent`.
  Spec AnySpec(size_t rank, AxisSet axes, int percent) {
    Spec spec(rank);
    if (rank == 0) return spec;
    for (const int a : Shuffled(axes))
      if (random_.In(percent)) spec[random_.Below(static_cast<int64_t>(rank))].push_back(a);
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
    type.varying &= p_.all();  // types do not track whether a value varies along the axis of a vmap
    p_.values.push_back(std::move(type));
    return static_cast<int>(p_.values.size()) - 1;
  }
  void MakeInputs() {
    const int64_t n = random_.From(1, 3);
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
      p_.placed.push_back(random_.In(50) ? Fitting(whole, p_.all()) : Spec());
      p_.numbers.emplace_back();
      for (int64_t k = 0; k < Count(whole); ++k)
        p_.numbers.back().push_back(random_.Number(-1.5, 1.5));
      p_.body.params.push_back(NewValue({block, SetOf(spec), 1.5}));
    }
  }
  void MakeResults() {
    std::vector<int> results;
    std::vector<int> unread;
    for (const int id : pool_)
      if (!read_.count(id)) unread.push_back(id);
    while (unread.size() > 3) unread.erase(unread.begin());
    results = unread;
    if (results.empty() || random_.In(30)) results.push_back(random_.One(pool_));
    for (int& id : results) {
      if (p_.values[id].shape.empty() && (p_.values[id].varying || random_.In(30)))
        id = Reshape(id, Dims(random_.From(1, 2), 1));
      Spec spec(p_.values[id].shape.size());
      for (const int a : Shuffled(p_.manual))
        if (!spec.empty() && ((p_.values[id].varying >> a & 1) || random_.In(15)))
          spec[random_.Below(static_cast<int64_t>(spec.size()))].push_back(a);
      p_.body.results.push_back(id);
      p_.out_specs.push_back(spec);
    }
  }

  // ---- Values. ----
  const ValueType& Of(int id) const { return p_.values[id]; }
  int64_t Rank(int id) const { return static_cast<int64_t>(Of(id).shape.size()); }
  int Emit(Step step, ValueType type) {
    for (const int id : step.in) read_.insert(id);
    const int id = NewValue(std::move(type));
    step.out = {id};
    body_->steps.push_back(std::move(step));
    return id;
  }
  // Returns a random value that a step may use, preferably a recent one.
  int Any() {
    const auto n = static_cast<int64_t>(pool_.size());
    return pool_[n - 1 - std::min(random_.Below(n), random_.Below(n))];
  }
  // Returns a random value for which `fits` is true, or -1 after a few attempts.
  int AnyThat(const std::function<bool(int)>& fits) {
    for (int attempt = 0; attempt < 6; ++attempt)
      if (const int id = Any(); fits(id)) return id;
    return -1;
  }
  int AnyOfRank(int64_t least) {
    return AnyThat([&](int id) { return Rank(id) >= least; });
  }
  int64_t AnyDim(int id) { return random_.Below(Rank(id)); }
  int Reshape(int id, Dims shape) {
    if (Of(id).shape == shape) return id;
    return Emit({.what = Do::kReshape, .in = {id}, .ints = shape},
                {shape, Of(id).varying, Of(id).bound});
  }
  int Unary(Do what, int id, double bound, double number = 0) {
    return Emit({.what = what, .in = {id}, .numbers = {number}},
                {Of(id).shape, Of(id).varying, bound});
  }
  // Returns a value derived from `id` whose magnitude is at most `bound`, which must be at least 1.
  // A large value is scaled before it goes into a bounded function. Otherwise a rounding error
  // could grow in a loop until it is as large as the values.
  int Tamed(int id, double bound = kBoundMax) {
    if (Of(id).bound <= bound) return id;
    const double to = std::min(bound, 3.0);
    const double factor = std::max(1e-3, std::floor(1000 * to / Of(id).bound) / 1000);
    if (factor < 1) id = Unary(Do::kScale, id, Of(id).bound * factor, factor);
    if (Of(id).bound <= bound && random_.In(40)) return id;
    return Unary(random_.One<Do>({Do::kSin, Do::kCos, Do::kTanh}), id, 1);
  }
  int SumOf(int id, const Dims& dims) {
    Dims left;
    int64_t n = 1;
    for (int64_t d = 0; d < Rank(id); ++d) {
      if (std::count(dims.begin(), dims.end(), d))
        n *= Of(id).shape[d];
      else
        left.push_back(Of(id).shape[d]);
    }
    return Emit({.what = Do::kSum, .in = {id}, .ints = dims},
                {left, Of(id).varying, Of(id).bound * static_cast<double>(n)});
  }
  Dims AllDims(int id) const {
    Dims dims(Rank(id));
    for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int64_t>(d);
    return dims;
  }
  int Scalar(int id) {
    if (Rank(id) == 0) return id;
    if (Count(Of(id).shape) == 1 && random_.In(50)) return Reshape(id, {});
    return Tamed(SumOf(id, AllDims(id)));
  }
  int Broadcast(int id, Dims shape, const Dims& dims) {
    Dims ints = shape;
    ints.insert(ints.end(), dims.begin(), dims.end());
    return Emit({.what = Do::kBroadcast, .in = {id}, .ints = ints},
                {shape, Of(id).varying, Of(id).bound});
  }
  // Returns a value of shape `shape` that is made from `id`.
  int Shaped(int id, Dims shape) {
    if (Of(id).shape == shape) return id;
    if (Count(Of(id).shape) == Count(shape)) return Reshape(id, shape);
    if (Count(Of(id).shape) > Count(shape) && random_.In(60)) {
      const int64_t have = Count(Of(id).shape), need = Count(shape);
      const int64_t start = random_.From(0, have - need);
      const int flat = Reshape(id, {have});
      return Reshape(Emit({.what = Do::kSlice, .in = {flat}, .ints = {start, start + need}},
                          {{need}, Of(id).varying, Of(id).bound}),
                     shape);
    }
    // Broadcasts the dims from the last one, as NumPy does, if they fit.
    Dims dims;
    const int64_t offset = static_cast<int64_t>(shape.size()) - Rank(id);
    bool fits = offset >= 0;
    for (int64_t d = 0; fits && d < Rank(id); ++d) {
      fits = Of(id).shape[d] == shape[d + offset] || Of(id).shape[d] == 1;
      dims.push_back(d + offset);
    }
    if (fits) return Broadcast(id, shape, dims);
    return Broadcast(Scalar(id), shape, {});
  }
  int Varying(int id, AxisSet axes) {
    axes &= ~Of(id).varying & p_.all();
    if (!axes) return id;
    return Emit({.what = Do::kPvary, .in = {id}, .axes = Shuffled(axes)},
                {Of(id).shape, Of(id).varying | axes, Of(id).bound});
  }
  int NewConstant(const Dims& shape) {
    Step step{.what = Do::kConstant, .ints = shape};
    for (int64_t k = 0; k < Count(shape); ++k) step.numbers.push_back(random_.Number(-1.5, 1.5));
    return Emit(step, {shape, 0, 1.5});
  }

  // ---- Steps. ----
  void MakeSteps(int64_t n) {
    for (int attempt = 0; n > 0 && attempt < 200; ++attempt) {
      const std::optional<int> made = MakeStep();
      if (!made) continue;
      pool_.push_back(Tamed(*made));
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
    const int x = Any();
    const AxisSet rest = p_.all() & ~active_;
    if (!rest || p_.is_explicit || Rank(x) == 0) return {};
    return Emit({.what = Do::kConstrain, .in = {x}, .specs = {Fitting(Of(x).shape, rest)}}, Of(x));
  }
  // Returns a random spec whose axes divide the dims.
  Spec Fitting(const Dims& shape, AxisSet axes) {
    Spec spec = AnySpec(shape.size(), axes, 70);
    for (size_t d = 0; d < spec.size(); ++d)
      while (shape[d] % p_.SizeOf(spec[d]) != 0) spec[d].pop_back();
    return spec;
  }

  // Makes an elementwise step. All Make... functions return nullopt if the step that they drew does
  // not fit.
  std::optional<int> MakeElementwise() {
    if (active_ != p_.all() && random_.In(12)) return MakeConstraint();
    if (random_.In(8)) return NewConstant(random_.In(50) ? Dims{} : AnyShape(2));
    const int x = Any();
    const double b = Of(x).bound;
    if (random_.In(35)) {
      switch (random_.Below(9)) {
        case 0:
          return Unary(Do::kSin, x, 1);
        case 1:
          return Unary(Do::kCos, x, 1);
        case 2:
          return Unary(Do::kTanh, x, 1);
        case 3:
          return Unary(Do::kLogistic, x, 1);
        case 4:
          return Unary(Do::kNegate, x, b);
        case 5:
          return b > 7 ? std::optional<int>() : Unary(Do::kSquare, x, b * b);
        case 6:
          return Unary(Do::kScale, x, 1.5 * b, random_.Number(-1.5, 1.5));
        case 7:
          return Unary(Do::kShift, x, b + 1.5, random_.Number(-1.5, 1.5));
        default:
          return random_.In(30) ? Unary(Do::kStopGradient, x, b) : std::optional<int>();
      }
    }
    const int y = Shaped(Any(), Of(x).shape);
    const double c = Of(y).bound;
    const auto both = [&](Do what, double bound) {
      Step step{.what = what, .in = {x, y}};
      if (random_.In(50)) std::swap(step.in[0], step.in[1]);
      if (what == Do::kDivide) bound = Of(step.in[0]).bound / 2;
      return Emit(step, {Of(x).shape, Of(x).varying | Of(y).varying, bound});
    };
    switch (random_.Below(9)) {
      case 0:
      case 1:
        return both(Do::kAdd, b + c);
      case 2:
        return both(Do::kSubtract, b + c);
      case 3:
      case 4:
        return both(Do::kMultiply, b * c);
      case 5:
        return both(Do::kDivide, 0);
      case 6:
        return both(Do::kMax, std::max(b, c));
      case 7:
        return both(Do::kMin, std::max(b, c));
      default: {
        const int u = Shaped(Any(), Of(x).shape);
        return Emit(
            {.what = Do::kSelect, .in = {x, y, u, y}},
            {Of(x).shape, Of(x).varying | Of(y).varying | Of(u).varying, std::max(c, Of(u).bound)});
      }
    }
  }

  // Makes a step that reads one block and is not elementwise. A kind with several case labels is
  // drawn more often.
  std::optional<int> MakeLocal() {
    const int x = AnyOfRank(1);
    if (x < 0) return {};
    const ValueType type = Of(x);
    const Dims& shape = type.shape;
    const int64_t d = AnyDim(x), n = shape[d];
    switch (random_.Below(14)) {
      case 0: {
        Dims to = {Count(shape)};
        if (to[0] % 2 == 0 && random_.In(60)) to = {2, to[0] / 2};
        if (random_.In(40)) to.insert(to.begin() + random_.From(0, 1), 1);
        return to == shape ? std::optional<int>() : Reshape(x, to);
      }
      case 1: {
        if (Rank(x) < 2) return {};
        Dims permutation = AllDims(x), to;
        random_.Shuffle(&permutation);
        for (const int64_t from : permutation) to.push_back(shape[from]);
        return Emit({.what = Do::kTranspose, .in = {x}, .ints = permutation},
                    {to, type.varying, type.bound});
      }
      case 2: {
        Dims to = shape, dims;
        const int64_t at = random_.From(0, Rank(x));
        to.insert(to.begin() + at, random_.From(1, 3));
        if (Count(to) > kBlockMax) return {};
        for (int64_t i = 0; i < Rank(x); ++i) dims.push_back(i < at ? i : i + 1);
        return Broadcast(x, to, dims);
      }
      case 3: {
        Dims ints(shape.size(), 0), to = shape;
        ints.insert(ints.end(), shape.begin(), shape.end());
        const int64_t start = random_.From(0, n - 1), limit = random_.From(start + 1, n);
        ints[d] = start;
        ints[shape.size() + d] = limit;
        to[d] = limit - start;
        return Emit({.what = Do::kSlice, .in = {x}, .ints = ints}, {to, type.varying, type.bound});
      }
      case 4: {
        const int y = Shaped(Any(), shape);
        Dims to = shape;
        to[d] *= 2;
        if (Count(to) > kBlockMax) return {};
        return Emit({.what = Do::kConcatenate, .in = {x, y}, .ints = {d}},
                    {to, type.varying | Of(y).varying, std::max(type.bound, Of(y).bound)});
      }
      case 5: {
        Dims ints(2 * shape.size(), 0), to = shape;
        ints[d] = random_.From(n > 1 ? -1 : 0, 1);
        ints[shape.size() + d] = random_.From(0, 1);
        to[d] += ints[d] + ints[shape.size() + d];
        if (Count(to) > kBlockMax) return {};
        return Emit({.what = Do::kPad, .in = {x}, .ints = ints, .numbers = {random_.Number(-1, 1)}},
                    {to, type.varying, std::max(type.bound, 1.0)});
      }
      case 6:
        return Emit({.what = Do::kReverse, .in = {x}, .ints = {d}}, type);
      case 7:
        return Emit({.what = Do::kCumsum, .in = {x}, .ints = {d}},
                    {shape, type.varying, type.bound * static_cast<double>(n)});
      case 8:
        return Emit({.what = Do::kSort, .in = {x}, .ints = {d}}, type);
      case 9: {
        Dims dims = {d};
        if (random_.In(30)) dims = AllDims(x);
        return SumOf(x, dims);
      }
      case 10: {
        Dims to = shape;
        to.erase(to.begin() + d);
        if (random_.In(50) || type.bound > 2)
          return Emit({.what = Do::kLargest, .in = {x}, .ints = {d}},
                      {to, type.varying, type.bound});
        return Emit({.what = Do::kProduct, .in = {x}, .ints = {d}},
                    {to, type.varying, std::pow(std::max(1.0, type.bound), n)});
      }
      case 11:
      case 12: {
        const int y = AnyThat(
            [&](int id) { return std::count(Of(id).shape.begin(), Of(id).shape.end(), n) > 0; });
        if (y < 0) return {};
        int64_t e = AnyDim(y);
        while (Of(y).shape[e] != n) e = AnyDim(y);
        Dims to = shape;
        to.erase(to.begin() + d);
        Dims rest = Of(y).shape;
        rest.erase(rest.begin() + e);
        to.insert(to.end(), rest.begin(), rest.end());
        if (Count(to) > kBlockMax || to.size() > 4) return {};
        return Emit(
            {.what = Do::kDot, .in = {x, y}, .ints = {d, e}},
            {to, type.varying | Of(y).varying, type.bound * Of(y).bound * static_cast<double>(n)});
      }
      default: {
        const Axes axes = SomeAxes(active_ & allowed_);
        if (axes.empty()) return {};
        Dims part = shape;
        part[d] = random_.From(1, n);
        if (random_.In(60))
          return Emit({.what = Do::kDynamicSlice, .in = {x}, .axes = axes, .ints = {d, part[d]}},
                      {part, type.varying | SetOf(axes), type.bound});
        const int y = Shaped(Any(), part);
        return Emit(
            {.what = Do::kDynamicUpdate, .in = {x, y}, .axes = axes, .ints = {d}},
            {shape, type.varying | Of(y).varying | SetOf(axes), std::max(type.bound, Of(y).bound)});
      }
    }
  }

  // Returns one or more axes of the set, in random order.
  Axes SomeAxes(AxisSet of) {
    Axes axes = Shuffled(of);
    while (axes.size() > 1 && random_.In(55)) axes.pop_back();
    return axes;
  }
  // Returns axes for a collective of x. JAX demands that x varies along all of these axes or along
  // none of them; if necessary, replaces x by a cast to varying. `adds` says that the result will
  // vary along the axes. In the body of a vmap with a name, the axes may include the axis of the
  // vmap.
  Axes StateAxes(int* x, bool adds) {
    const AxisSet named = active_ & ~p_.all(), varying = Of(*x).varying & active_;
    if (named && random_.In(50)) {
      Axes axes = SomeAxes(named);
      if ((varying & allowed_) && random_.In(50)) {
        const Axes more = SomeAxes(varying & allowed_);
        axes.insert(axes.end(), more.begin(), more.end());
        random_.Shuffle(&axes);
      }
      return axes;
    }
    AxisSet others = active_ & p_.all() & ~varying;
    if (adds) others &= allowed_;
    if (varying && random_.In(65)) return SomeAxes(varying);
    if (others && random_.In(60)) return SomeAxes(others);
    const Axes axes = SomeAxes(varying | (others & allowed_));
    *x = Varying(*x, SetOf(axes));
    return axes;
  }

  // Makes a collective. The shapes and the varying axes of the results follow the rules of JAX. A
  // collective through the states unreduced and reduced needs a body in which all axes of the mesh
  // are manual.
  std::optional<int> MakeCollective() {
    int x = Any();
    const bool unreduced_fits = p_.manual == p_.all();
    switch (random_.Below(17)) {
      case 0:
      case 1:
      case 2: {
        const Axes axes = StateAxes(&x, false);
        if (axes.empty()) return {};
        const bool mean = random_.In(35);
        return Emit({.what = mean ? Do::kPmean : Do::kPsum, .in = {x}, .axes = axes},
                    {Of(x).shape, Of(x).varying & ~SetOf(axes),
                     Of(x).bound * (mean ? 1 : static_cast<double>(p_.SizeOf(axes)))});
      }
      case 3: {
        x = Unary(Do::kStopGradient, x, Of(x).bound);  // pmax and pmin have no derivative
        const Axes axes = StateAxes(&x, false);
        if (axes.empty()) return {};
        return Emit({.what = random_.In(50) ? Do::kPmax : Do::kPmin, .in = {x}, .axes = axes},
                    {Of(x).shape, Of(x).varying & ~SetOf(axes), Of(x).bound});
      }
      case 4:
      case 5:
      case 6: {
        const int64_t which = random_.Below(5);
        Do what = which < 3                       ? Do::kAllGather
                  : which == 3 || !unreduced_fits ? Do::kGatherInvarying
                                                  : Do::kGatherReduced;
        const Axes axes = StateAxes(&x, what != Do::kGatherInvarying);
        if (axes.empty()) return {};
        if (SetOf(axes) & ~p_.all()) what = Do::kAllGather;
        const bool adds = what != Do::kGatherInvarying;
        if (what == Do::kGatherReduced && SetOf(axes) & ~allowed_) return {};
        const bool tiled = Rank(x) > 0 && random_.In(50);
        const int64_t n = p_.SizeOf(axes);
        Dims to = Of(x).shape;
        const int64_t d = tiled ? AnyDim(x) : random_.From(0, Rank(x));
        if (tiled)
          to[d] *= n;
        else
          to.insert(to.begin() + d, n);
        if (Count(to) > kBlockMax || to.size() > 4) return {};
        if (what == Do::kGatherReduced) x = Varying(x, SetOf(axes));
        const AxisSet varying = adds ? Of(x).varying | SetOf(axes) : Of(x).varying & ~SetOf(axes);
        return Emit({.what = what, .in = {x}, .axes = axes, .ints = {d}, .tiled = tiled},
                    {to, varying, Of(x).bound});
      }
      case 7:
      case 8:
      case 9: {
        const Axes axes = StateAxes(&x, true);
        if (axes.empty() || SetOf(axes) & ~allowed_) return {};
        const bool unreduced = unreduced_fits && !(SetOf(axes) & ~p_.all()) && random_.In(30);
        const int64_t n = p_.SizeOf(axes);
        // Scatters a dim that n divides, or makes one by a broadcast.
        Dims fits;
        for (int64_t d = 0; d < Rank(x); ++d)
          if (Of(x).shape[d] % n == 0) fits.push_back(d);
        if (fits.empty() || random_.In(20)) {
          Dims to = Of(x).shape;
          if (Count(to) * n > kBlockMax || Rank(x) > 3) return {};
          to.insert(to.begin(), n);
          Dims dims = AllDims(x);
          for (int64_t& d : dims) ++d;
          x = Broadcast(x, to, dims);
          fits = {0};
        }
        if (unreduced) x = Varying(x, SetOf(axes));
        const int64_t d = random_.One(fits);
        const bool tiled = Of(x).shape[d] != n || random_.In(50);
        Dims to = Of(x).shape;
        if (tiled)
          to[d] /= n;
        else
          to.erase(to.begin() + d);
        return Emit({.what = unreduced ? Do::kScatterUnreduced : Do::kPsumScatter,
                     .in = {x},
                     .axes = axes,
                     .ints = {d},
                     .tiled = tiled},
                    {to, Of(x).varying | SetOf(axes), Of(x).bound * static_cast<double>(n)});
      }
      case 10:
      case 11: {
        const Axes axes = StateAxes(&x, true);
        if (axes.empty() || SetOf(axes) & ~allowed_) return {};
        const int64_t n = p_.SizeOf(axes);
        Dims fits;
        for (int64_t d = 0; d < Rank(x); ++d)
          if (Of(x).shape[d] % n == 0) fits.push_back(d);
        if (fits.empty()) return {};
        const int64_t split = random_.One(fits);
        const bool tiled = Of(x).shape[split] != n || random_.In(50);
        const int64_t joined = random_.Below(Rank(x));
        Dims to = Of(x).shape;
        if (tiled) {
          to[split] /= n;
          to[joined] *= n;
        } else {
          to.erase(to.begin() + split);
          to.insert(to.begin() + joined, n);
        }
        return Emit({.what = Do::kAllToAll,
                     .in = {x},
                     .axes = axes,
                     .ints = {split, joined},
                     .tiled = tiled},
                    {to, Of(x).varying | SetOf(axes), Of(x).bound});
      }
      case 12:
      case 13: {
        Axes axes = StateAxes(&x, true);
        if (axes.empty() || SetOf(axes) & ~allowed_) return {};
        const int64_t n = p_.SizeOf(axes);
        const ValueType type = {Of(x).shape, Of(x).varying | SetOf(axes), Of(x).bound};
        if (random_.In(20)) {
          x = Varying(x, SetOf(axes));
          return Emit({.what = Do::kFrom, .in = {x}, .axes = axes, .ints = {random_.Below(n)}},
                      type);
        }
        // If the axes include the axis of a vmap, ppermute takes no other axis. JAX has the same
        // limit.
        if (axes.size() > 1 && (SetOf(axes) & ~p_.all())) return {};
        std::sort(axes.begin(), axes.end());
        Dims to(n), pairs;
        for (int64_t i = 0; i < n; ++i) to[i] = i;
        random_.Shuffle(&to);
        for (int64_t i = 0; i < n; ++i)
          if (!random_.In(15)) pairs.insert(pairs.end(), {i, to[i]});
        return Emit({.what = Do::kPermute, .in = {x}, .axes = axes, .ints = pairs}, type);
      }
      case 14: {
        const Axes axes = SomeAxes(active_ & allowed_);
        if (axes.empty()) return {};
        return Emit({.what = Do::kAxisIndex, .axes = axes},
                    {{}, SetOf(axes), static_cast<double>(p_.SizeOf(axes))});
      }
      case 15: {
        const AxisSet missing = active_ & allowed_ & p_.all() & ~Of(x).varying;
        if (!missing) return {};
        const Axes axes = SomeAxes(missing);
        if (unreduced_fits && random_.In(40))
          return Emit({.what = Do::kThroughReduced, .in = {x}, .axes = axes},
                      {Of(x).shape, Of(x).varying | SetOf(axes), Of(x).bound});
        return Varying(x, SetOf(axes));
      }
      default: {
        if (!unreduced_fits || !Of(x).varying) return {};
        const Axes axes = SomeAxes(Of(x).varying);
        return Emit({.what = Do::kPsumUnreduced, .in = {x}, .axes = axes},
                    {Of(x).shape, Of(x).varying & ~SetOf(axes),
                     Of(x).bound * static_cast<double>(p_.SizeOf(axes))});
      }
    }
  }

  // ---- Steps with bodies. ----
  // Makes a body with these parameters. `finish` returns its results.
  Body MakeBody(const std::vector<int>& params, AxisSet allowed, int64_t steps,
                const std::function<std::vector<int>()>& finish) {
    Body body;
    body.params = params;
    Body* const around = body_;
    const std::vector<int> pool = pool_;
    const AxisSet allowed_around = allowed_;
    body_ = &body;
    allowed_ = allowed;
    std::erase_if(pool_, [&](int id) { return (Of(id).varying & ~allowed) != 0; });
    pool_.insert(pool_.end(), params.begin(), params.end());
    pool_.insert(pool_.end(), params.begin(), params.end());  // twice, to prefer the parameters
    ++depth_;
    MakeSteps(steps);
    body.results = finish();
    --depth_;
    body_ = around;
    pool_ = pool;
    allowed_ = allowed_around;
    return body;
  }
  int64_t FewSteps() { return random_.From(1, depth_ > 0 ? 2 : 4); }

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
        return MakeCall(Do::kJit);
      case 5:
        return MakeCall(Do::kCheckpoint);
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
    int init = Tamed(Any(), 1.5);
    const AxisSet allowed =
        Of(init).varying | (active_ & ~p_.all()) |
        (SetOf(SomeAxes(active_ & allowed_)) & (random_.In(60) ? ~AxisSet{0} : 0));
    init = Varying(init, allowed);
    Step step{.what = random_.In(30) ? Do::kFori : Do::kScan, .in = {init}};
    const ValueType type = {Of(init).shape, allowed, std::max(1.0, Of(init).bound)};
    std::vector<int> params = {NewValue(type)};
    int64_t n = random_.From(1, 3);
    if (step.what == Do::kFori) {
      params.push_back(NewValue({{}, 0, static_cast<double>(n)}));
    } else if (random_.In(60)) {
      const int xs =
          AnyThat([&](int id) { return Rank(id) > 0 && (Of(id).varying & ~allowed) == 0; });
      if (xs >= 0) {
        Dims element = Of(xs).shape;
        n = element[0];
        element.erase(element.begin());
        step.in.push_back(xs);
        params.push_back(NewValue({element, Of(xs).varying, Of(xs).bound}));
      }
    }
    step.ints = {n, step.what == Do::kScan && random_.In(30)};
    const bool stacks = step.what == Do::kScan && random_.In(50);
    step.bodies.push_back(MakeBody(params, allowed, FewSteps(), [&] {
      int carry = Shaped(pool_.back(), type.shape);
      carry = Tamed(carry, type.bound);
      carry = Varying(carry, allowed);
      std::vector<int> results = {carry};
      if (stacks) results.push_back(Any());
      return results;
    }));
    if (stacks && n * Count(Of(step.bodies[0].results[1]).shape) > kBlockMax)
      step.bodies[0].results.pop_back();
    const int carry = Emit(step, type);
    if (step.bodies[0].results.size() > 1) {
      ValueType y = Of(step.bodies[0].results[1]);
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
    if (active_ & ~p_.all()) return {};
    // The predicate must be the same on all devices.
    int decides = Any();
    if (Of(decides).varying) {
      const Axes axes = Shuffled(Of(decides).varying);
      if (SetOf(axes) & ~active_) return {};
      decides = Emit({.what = Do::kPmean, .in = {decides}, .axes = axes},
                     {Of(decides).shape, 0, Of(decides).bound});
    }
    decides = Scalar(decides);
    Step step{.what = Do::kBranch, .in = {decides}, .numbers = {random_.Number(-1, 1) + 5e-6}};
    if (random_.In(30)) step.numbers.push_back(step.numbers[0] + 0.5);
    const int x = Any();
    const bool operand = random_.In(70);
    if (operand) step.in.push_back(x);
    Dims shape = Of(x).shape;
    AxisSet varying = 0;
    double bound = 0;
    for (size_t i = 0; i <= step.numbers.size(); ++i) {
      std::vector<int> params;
      if (operand) params.push_back(NewValue(Of(x)));
      step.bodies.push_back(MakeBody(params, allowed_, FewSteps(), [&] {
        return std::vector<int>{Shaped(pool_.back(), shape)};
      }));
      varying |= Of(step.bodies.back().results[0]).varying;
      bound = std::max(bound, Of(step.bodies.back().results[0]).bound);
    }
    Body* const around = body_;
    for (Body& body : step.bodies) {
      body_ = &body;
      body.results[0] = Varying(body.results[0], varying);
    }
    body_ = around;
    return Emit(step, {shape, varying, bound});
  }

  std::optional<int> MakeCall(Do what) {
    Step step{.what = what};
    std::vector<int> params;
    for (int64_t i = random_.From(1, 2); i > 0; --i) {
      step.in.push_back(Any());
      params.push_back(NewValue(Of(step.in.back())));
    }
    step.bodies.push_back(
        MakeBody(params, allowed_, FewSteps(), [&] { return std::vector<int>{pool_.back()}; }));
    return Emit(step, Of(step.bodies[0].results[0]));
  }

  // Makes a vmap of one or two operands. Half of them have a name, which adds an axis that
  // collectives in the body may use.
  std::optional<int> MakeVmap() {
    const int x = AnyOfRank(1);
    if (x < 0) return {};
    Step step{.what = Do::kVmap, .in = {x}, .ints = {AnyDim(x)}};
    const int64_t n = Of(x).shape[step.ints[0]];
    if (random_.In(50)) {
      const int y = Any();
      step.in.push_back(y);
      Dims fits = {-1};
      for (int64_t d = 0; d < Rank(y); ++d)
        if (Of(y).shape[d] == n) fits.push_back(d);
      step.ints.push_back(random_.One(fits));
    }
    std::vector<int> params;
    for (size_t i = 0; i < step.in.size(); ++i) {
      ValueType type = Of(step.in[i]);
      if (step.ints[i] >= 0) type.shape.erase(type.shape.begin() + step.ints[i]);
      params.push_back(NewValue(type));
    }
    const bool around = in_vmap_;
    const AxisSet active = active_;
    in_vmap_ = true;
    if (random_.In(50)) {
      step.axes = {static_cast<int>(p_.mesh.size())};
      p_.mesh.push_back({absl::StrCat("v", step.axes[0]), n, true});
      active_ |= SetOf(step.axes);
    }
    step.bodies.push_back(MakeBody(params, allowed_ | SetOf(step.axes), FewSteps(), [&] {
      int result = pool_.back();
      if (Count(Of(result).shape) * n > kBlockMax) result = Scalar(result);
      return std::vector<int>{result};
    }));
    in_vmap_ = around;
    active_ = active;
    ValueType type = Of(step.bodies[0].results[0]);
    step.ints.push_back(random_.From(0, static_cast<int64_t>(type.shape.size())));
    type.shape.insert(type.shape.begin() + step.ints.back(), n);
    return Emit(step, type);
  }

  std::optional<int> MakeGrad() {
    // In a vmap with a name, the derivative of a psum is a psum again. The plain loop does not know
    // this rule.
    if (in_grad_ || (active_ & ~p_.all())) return {};
    const int x = Any();
    if (Count(Of(x).shape) > 12) return {};
    Step step{.what = Do::kGrad, .in = {x}};
    in_grad_ = true;
    step.bodies.push_back(MakeBody({NewValue(Of(x))}, ~AxisSet{0} & active_, FewSteps(),
                                   [&] { return std::vector<int>{Scalar(pool_.back())}; }));
    in_grad_ = false;
    if (Of(x).varying & ~allowed_) return {};
    p_.without_types = false;
    return Emit(step, {Of(x).shape, Of(x).varying, 1e3});
  }

  // Makes a shard_map inside the body, over the axes that are not manual yet. The result no longer
  // varies along these axes.
  std::optional<int> MakeNested() {
    const AxisSet rest = p_.all() & ~active_;
    if (!rest || in_grad_ || in_vmap_ || depth_ > 0) return {};
    Step step{.what = Do::kNested};
    std::vector<int> params;
    for (int64_t i = random_.From(1, 2); i > 0; --i) {
      const int x = Any();
      ValueType type = Of(x);
      const Spec spec = Fitting(type.shape, rest);
      for (size_t d = 0; d < spec.size(); ++d) type.shape[d] /= p_.SizeOf(spec[d]);
      type.varying |= SetOf(spec);
      step.in.push_back(x);
      step.specs.push_back(spec);
      params.push_back(NewValue(type));
    }
    const AxisSet around = active_;
    active_ = p_.all();
    step.bodies.push_back(MakeBody(params, allowed_ | rest, FewSteps() + 1, [&] {
      int result = pool_.back();
      if (Rank(result) == 0) result = Reshape(result, {1});
      return std::vector<int>{result};
    }));
    active_ = around;
    ValueType type = Of(step.bodies[0].results[0]);
    Spec spec(type.shape.size());
    for (const int a : Shuffled(rest))
      if ((type.varying >> a & 1) || random_.In(15))
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
    spec[0] = AxesOf(Of(id).varying);
    p_.body.results.push_back(id);
    p_.out_specs.push_back(spec);
  }
  int IndexAlong(int axis) {
    return Emit({.what = Do::kAxisIndex, .axes = {axis}}, {{}, AxisSet{1} << axis, 4});
  }
  // Adds the mistake to a finished program. Returns false if the program has no place for it. The
  // types that Break records for the wrong values are arbitrary, because nothing compares them.
  bool Break(Fault fault) {
    const Axes manual = Shuffled(p_.manual);
    const int a = manual[0];
    const AxisSet along = AxisSet{1} << a;
    const int64_t n = p_.mesh[a].size;
    switch (fault) {
      case Fault::kNone:
        return true;
      case Fault::kUnproven:
        for (size_t r = 0; r < p_.out_specs.size(); ++r) {
          if (!Of(p_.body.results[r]).varying) continue;
          const int unproven = Shuffled(Of(p_.body.results[r]).varying)[0];
          for (Axes& axes : p_.out_specs[r]) std::erase(axes, unproven);
          return true;
        }
        return false;
      case Fault::kUnboundAxis:
        AddResult(Emit({.what = Do::kPsum, .in = {p_.body.params[0]}, .axes = {a, kNowhere}},
                       Of(p_.body.params[0])));
        return true;
      case Fault::kCarry: {
        const int zero = NewConstant({}), carry = NewValue({{}, 0, 1});
        Step step{.what = Do::kScan, .in = {zero}, .ints = {2, 0}};
        step.bodies.emplace_back();
        step.bodies[0].params = {carry};
        body_ = &step.bodies[0];
        const int index = IndexAlong(a);
        const int sum = Emit({.what = Do::kAdd, .in = {carry, index}}, {{}, along, 4});
        step.bodies[0].results = {sum};
        body_ = &p_.body;
        AddResult(Emit(step, {{}, along, 4}));
        return true;
      }
      case Fault::kBranches: {
        const int zero = NewConstant({});
        Step step{.what = Do::kBranch, .in = {zero}, .numbers = {0.25}};
        for (int i = 0; i < 2; ++i) {
          step.bodies.emplace_back();
          body_ = &step.bodies[i];
          step.bodies[i].results = {i ? IndexAlong(a) : Unary(Do::kScale, zero, 1, 0.5)};
        }
        body_ = &p_.body;
        AddResult(Emit(step, {{}, along, 4}));
        return true;
      }
      case Fault::kMixedStates: {
        if (manual.size() < 2) return false;
        const int index = IndexAlong(a);
        AddResult(Emit({.what = Do::kPsum, .in = {index}, .axes = manual}, {{}, 0, 4}));
        return true;
      }
      case Fault::kInSpecLong:
        p_.in_specs[0].resize(p_.inputs[0].size() + 1);
        p_.in_specs[0].back() = {};
        return true;
      case Fault::kOutSpecLong:
        p_.out_specs[0].resize(Of(p_.body.results[0]).shape.size() + 1);
        return true;
      case Fault::kIndivisible:
        for (size_t i = 0; i < p_.inputs.size(); ++i)
          for (size_t d = 0; d < p_.inputs[i].size(); ++d) {
            if (p_.SizeOf(p_.in_specs[i][d]) < 2) continue;
            ++p_.inputs[i][d];
            p_.numbers[i].resize(Count(p_.inputs[i]), 0.5);
            return true;
          }
        return false;
      case Fault::kCastTwice: {
        const int index = IndexAlong(a);
        AddResult(Emit({.what = Do::kPvary, .in = {index}, .axes = {a}}, Of(index)));
        return true;
      }
      case Fault::kPermuteTwice: {
        if (n < 2) return false;
        const int index = IndexAlong(a);
        AddResult(Emit({.what = Do::kPermute, .in = {index}, .axes = {a}, .ints = {0, 0, 1, 0}},
                       Of(index)));
        return true;
      }
      case Fault::kScatter: {
        if (n < 2) return false;
        const int x = NewConstant({n + 1});
        AddResult(
            Emit({.what = Do::kPsumScatter, .in = {x}, .axes = {a}, .ints = {0}, .tiled = true},
                 {{1}, along, 8}));
        return true;
      }
      case Fault::kGradOfPmax: {
        const int x = p_.body.params[0];
        AddResult(Emit({.what = Do::kPmax, .in = {Varying(x, along)}, .axes = {a}},
                       {Of(x).shape, Of(x).varying & ~along, 8}));
        return true;
      }
      case Fault::kSpecOfOther:
        if (p_.in_specs[0].empty()) return false;
        p_.in_specs[0][0].push_back(kNowhere);
        return true;
    }
    return false;
  }

  Random random_;
  Program p_;
  Body* body_ = nullptr;
  std::vector<int> pool_;  // values that a step may use
  std::set<int> read_;
  AxisSet active_ = 0;   // axes that collectives may name
  AxisSet allowed_ = 0;  // axes along which results may vary
  int depth_ = 0;
  bool in_vmap_ = false, in_grad_ = false;
};

// Returns the name of a kind of step in transcripts.
absl::string_view NameOf(Do what) {
  // The names are in the order of the enumerators of Do.
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
  static_assert(std::size(kNames) == static_cast<size_t>(Do::kNested) + 1);
  return kNames[static_cast<size_t>(what)];
}
std::string NameOfAxis(const Program& p, int axis) {
  return axis == kNowhere ? "nowhere" : p.mesh[axis].name;
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
  std::string out = absl::StrCat("v", id, ": f64[", absl::StrJoin(p.values[id].shape, ","), "]");
  std::string axes;
  for (size_t a = 0; a < p.mesh.size(); ++a)
    if (p.values[id].varying >> a & 1)
      absl::StrAppend(&axes, axes.empty() ? "" : ",", p.mesh[a].name);
  if (!axes.empty()) absl::StrAppend(&out, "{V:", axes, "}");
  return out;
}
std::string Ids(const std::vector<int>& ids) {
  return absl::StrJoin(ids, ", ", [](std::string* out, int id) { absl::StrAppend(out, "v", id); });
}
void AppendBody(const Program& p, const Body& body, const std::string& indent, std::string* out) {
  for (const Step& s : body.steps) {
    absl::StrAppend(
        out, indent,
        absl::StrJoin(s.out, ", ", [&](std::string* o, int id) { *o += ValueText(p, id); }), " = ",
        NameOf(s.what), "(", Ids(s.in), ")");
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
  absl::StrAppend(out, indent, "return ", Ids(body.results), "\n");
}

bool HasIn(const Body& body, Do what) {
  return std::any_of(body.steps.begin(), body.steps.end(), [&](const Step& s) {
    return s.what == what || std::any_of(s.bodies.begin(), s.bodies.end(),
                                         [&](const Body& b) { return HasIn(b, what); });
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

bool Program::Has(Do what) const { return HasIn(body, what); }

Program MakeProgram(uint64_t seed) { return Maker(seed).Run(); }
Program MakeWrongProgram(uint64_t seed) {
  const auto fault = static_cast<Fault>(1 + seed % kNumFaults);
  for (uint64_t next = seed;; next += 1000003)
    if (std::optional<Program> p = Maker(next).RunWith(fault)) return *std::move(p);
}

std::string ToText(const Program& p) {
  std::string out = absl::StrCat("seed ", p.seed, "\nmesh (");
  for (size_t a = 0; a < p.mesh.size(); ++a)
    if (!p.mesh[a].mapped)
      absl::StrAppend(&out, a ? ", " : "", p.mesh[a].name, "=", p.mesh[a].size);
  absl::StrAppend(&out, p.is_explicit ? ", Explicit" : "", ")");
  if (p.manual != p.all()) {
    absl::StrAppend(&out, " manual:");
    for (size_t a = 0; a < p.mesh.size(); ++a)
      if (p.manual >> a & 1) absl::StrAppend(&out, " ", p.mesh[a].name);
  }
  absl::StrAppend(&out, "\n");
  for (size_t i = 0; i < p.inputs.size(); ++i)
    absl::StrAppend(&out, ValueText(p, p.body.params[i]), " of f64[",
                    absl::StrJoin(p.inputs[i], ","), "] ", SpecText(p, p.in_specs[i]), " on ",
                    SpecText(p, p.placed[i]), " = ", absl::StrJoin(p.numbers[i], " "), "\n");
  AppendBody(p, p.body, "", &out);
  for (const Spec& spec : p.out_specs) absl::StrAppend(&out, "  ", SpecText(p, spec), "\n");
  return out;
}

std::vector<Program> Smaller(const Program& p) {
  std::vector<Program> out;
  for (size_t i = 0; i < p.body.steps.size(); ++i) {
    for (const int id : p.body.steps[i].out) {
      Program small = p;
      small.body.steps.resize(i + 1);
      int result = id;
      const ValueType type = p.values[id];
      if (type.shape.empty()) {
        small.values.push_back({{1}, type.varying, type.bound});
        result = static_cast<int>(small.values.size()) - 1;
        small.body.steps.push_back(
            {.what = Do::kReshape, .in = {id}, .out = {result}, .ints = {1}});
      }
      small.body.results = {result};
      Spec spec(small.values[result].shape.size());
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
