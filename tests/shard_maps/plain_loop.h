// Computes the results of a shard_map program (program.h) by a plain loop over the devices. The
// loop holds every value for all devices, and a collective is a loop over the devices of a group.
// If the numbers are Duals instead of doubles, the loop computes derivatives; if they are Duals of
// Duals, second derivatives.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <type_traits>
#include <vector>

#include "tests/shard_maps/program.h"

namespace tessera::shard_maps {

// A value and its derivative along one direction.
template <class T>
struct Dual {
  T v, d;
  Dual() : v(0), d(0) {}
  Dual(double x) : v(x), d(0) {}  // NOLINT(google-explicit-constructor): numbers are constants
  Dual(T v, T d) : v(v), d(d) {}
};
template <class T>
inline constexpr int kDualDepth = 0;
template <class T>
inline constexpr int kDualDepth<Dual<T>> = kDualDepth<T> + 1;

inline double ValueOf(double x) { return x; }
template <class T>
double ValueOf(const Dual<T>& x) {
  return ValueOf(x.v);
}
inline double LargestPart(double x) { return std::abs(x); }
template <class T>
double LargestPart(const Dual<T>& x) {
  return std::max(LargestPart(x.v), LargestPart(x.d));
}
template <class T>
Dual<T> operator+(const Dual<T>& a, const Dual<T>& b) {
  return {a.v + b.v, a.d + b.d};
}
template <class T>
Dual<T> operator-(const Dual<T>& a, const Dual<T>& b) {
  return {a.v - b.v, a.d - b.d};
}
template <class T>
Dual<T> operator*(const Dual<T>& a, const Dual<T>& b) {
  return {a.v * b.v, a.d * b.v + a.v * b.d};
}
template <class T>
Dual<T> operator/(const Dual<T>& a, const Dual<T>& b) {
  return {a.v / b.v, a.d / b.v - a.v * b.d / (b.v * b.v)};
}
inline double Sin(double x) { return std::sin(x); }
inline double Cos(double x) { return std::cos(x); }
inline double Tanh(double x) { return std::tanh(x); }
inline double StopGradient(double x) { return x; }
template <class T>
Dual<T> Cos(const Dual<T>& x);
template <class T>
Dual<T> Sin(const Dual<T>& x) {
  return {Sin(x.v), Cos(x.v) * x.d};
}
template <class T>
Dual<T> Cos(const Dual<T>& x) {
  return {Cos(x.v), T(-1) * Sin(x.v) * x.d};
}
template <class T>
Dual<T> Tanh(const Dual<T>& x) {
  const T y = Tanh(x.v);
  return {y, (T(1) - y * y) * x.d};
}
template <class T>
Dual<T> StopGradient(const Dual<T>& x) {
  return {StopGradient(x.v), T(0)};
}
template <class T>
T Logistic(const T& x) {
  return T(0.5) + T(0.5) * Tanh(T(0.5) * x);
}
// Returns the larger number, or the mean of the two if they are equal. The derivative is then
// shared between them, as in JAX.
template <class T>
T Larger(const T& a, const T& b) {
  return ValueOf(a) > ValueOf(b) ? a : ValueOf(b) > ValueOf(a) ? b : T(0.5) * (a + b);
}

// The devices along the active axes of the mesh, in row-major order. Along each other axis only one
// device is counted.
struct Devices {
  Dims sizes;
  int64_t count = 1;
  Devices() = default;
  Devices(const std::vector<Axis>& mesh, AxisSet active) {
    for (size_t a = 0; a < mesh.size(); ++a) {
      sizes.push_back(active >> a & 1 ? mesh[a].size : 1);
      count *= sizes.back();
    }
  }
  Dims CoordinatesOf(int64_t device) const {
    Dims at(sizes.size());
    for (size_t a = sizes.size(); a-- > 0; device /= sizes[a]) at[a] = device % sizes[a];
    return at;
  }
  int64_t DeviceAt(const Dims& at) const {
    int64_t device = 0;
    for (size_t a = 0; a < sizes.size(); ++a)
      device = device * sizes[a] + (sizes[a] > 1 ? at[a] : 0);
    return device;
  }
  // IndexAlong returns the position of a device in its group along `axes`. Group returns the
  // devices of this group in order.
  int64_t IndexAlong(int64_t device, const Axes& axes) const {
    const Dims at = CoordinatesOf(device);
    int64_t index = 0;
    for (const int a : axes) index = index * sizes[a] + at[a];
    return index;
  }
  std::vector<int64_t> Group(int64_t device, const Axes& axes) const {
    int64_t n = 1;
    for (const int a : axes) n *= sizes[a];
    std::vector<int64_t> group;
    for (int64_t i = 0; i < n; ++i) {
      Dims at = CoordinatesOf(device);
      int64_t rest = i;
      for (size_t k = axes.size(); k-- > 0; rest /= sizes[axes[k]])
        at[axes[k]] = rest % sizes[axes[k]];
      group.push_back(DeviceAt(at));
    }
    return group;
  }
};

inline int64_t FlatIndex(const Dims& shape, const Dims& at) {
  int64_t k = 0;
  for (size_t d = 0; d < shape.size(); ++d) k = k * shape[d] + at[d];
  return k;
}
// Calls f(index, k) for each element of an array of this shape, in row-major order. `index` has one
// number per dim, and `k` counts the elements.
template <class F>
void ForEach(const Dims& shape, const F& f) {
  if (Count(shape) == 0) return;
  Dims at(shape.size(), 0);
  for (int64_t k = 0, n = Count(shape); k < n; ++k) {
    f(static_cast<const Dims&>(at), k);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < shape[d]) break;
      at[d] = 0;
    }
  }
}

template <class T>
struct Block {
  Dims shape;
  std::vector<T> data;
  const T& operator()(const Dims& at) const { return data[FlatIndex(shape, at)]; }
  T& operator()(const Dims& at) { return data[FlatIndex(shape, at)]; }
};
template <class T>
Block<T> Zeros(const Dims& shape) {
  return {shape, std::vector<T>(Count(shape), T(0))};
}
template <class T, class F>
Block<T> MakeBlock(const Dims& shape, const F& f) {
  Block<T> out = Zeros<T>(shape);
  ForEach(shape, [&](const Dims& at, int64_t k) { out.data[k] = f(at); });
  return out;
}
// BlockOn (below) returns the block of a whole array that lies on a device. StartOf returns the
// index of the whole array at which this block starts.
inline Dims StartOf(const Dims& block, const Spec& spec, const Devices& devices, int64_t device) {
  Dims start(block.size(), 0);
  for (size_t d = 0; d < spec.size(); ++d)
    start[d] = devices.IndexAlong(device, spec[d]) * block[d];
  return start;
}
inline Dims AddIndices(Dims a, const Dims& b) {
  for (size_t d = 0; d < a.size(); ++d) a[d] += b[d];
  return a;
}
template <class T>
Block<T> BlockOn(const Block<T>& whole, const Spec& spec, const Devices& devices, int64_t device) {
  Dims shape = whole.shape;
  for (size_t d = 0; d < spec.size(); ++d)
    for (const int a : spec[d]) shape[d] /= devices.sizes[a];
  const Dims start = StartOf(shape, spec, devices, device);
  return MakeBlock<T>(shape, [&](const Dims& at) { return whole(AddIndices(at, start)); });
}

template <class T>
struct Value {
  AxisSet active = 0;  // active axes of the devices that hold the value
  std::vector<Block<T>> blocks;
};

// Runs programs on numbers of type T.
template <class T>
class PlainLoop {
 public:
  explicit PlainLoop(const Program& p)
      : p_(p), active_(p.manual), devices_(p.mesh, p.manual), env_(p.types.size()) {}

  // Returns the whole results for whole inputs.
  std::vector<Block<T>> Run(const std::vector<Block<T>>& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i)
      env_[p_.body.params[i]] = MakeValue(
          [&](int64_t device) { return BlockOn(inputs[i], p_.in_specs[i], devices_, device); });
    RunBody(p_.body);
    std::vector<Block<T>> out;
    for (size_t r = 0; r < p_.body.results.size() && mistyped_id_ < 0; ++r)
      out.push_back(
          Join(Get(p_.body.results[r]), p_.out_specs[r], [](const Dims&) { return true; }));
    return out;
  }
  // Returns the largest magnitude of all numbers that the run computed, derivatives included.
  double largest() const { return largest_; }
  // Returns the id of the first value whose shape is not the one in the program, or that
  // differs along an axis along which it should not vary. Returns -1 if there is none.
  int mistyped_id() const { return mistyped_id_; }

 private:
  template <class U>
  friend class PlainLoop;

  template <class F>
  Value<T> MakeValue(const F& f) const {
    Value<T> out{active_, {}};
    for (int64_t device = 0; device < devices_.count; ++device) out.blocks.push_back(f(device));
    return out;
  }
  // Returns a value on the devices of the current body. A value from an outer body may be held
  // along fewer axes. It is then copied along the other axes.
  const Value<T>& Get(int id) {
    Value<T>& v = env_[id];
    if (v.active != active_) {
      const Devices from(p_.mesh, v.active);
      const Value<T> old = v;
      v = MakeValue([&](int64_t device) {
        return old.blocks[from.DeviceAt(devices_.CoordinatesOf(device))];
      });
    }
    return v;
  }
  // Returns the whole array that is sharded as `spec` says. Reads the blocks of those devices for
  // whose coordinates `includes` is true.
  template <class F>
  Block<T> Join(const Value<T>& v, const Spec& spec, const F& includes) const {
    Dims whole = v.blocks[0].shape;
    for (size_t d = 0; d < spec.size(); ++d)
      for (const int a : spec[d]) whole[d] *= devices_.sizes[a];
    Block<T> out = Zeros<T>(whole);
    for (int64_t device = devices_.count; device-- > 0;) {
      if (!includes(devices_.CoordinatesOf(device))) continue;
      const Dims start = StartOf(v.blocks[device].shape, spec, devices_, device);
      ForEach(v.blocks[device].shape, [&](const Dims& at, int64_t k) {
        out(AddIndices(at, start)) = v.blocks[device].data[k];
      });
    }
    return out;
  }

  void RunBody(const Body& body) {
    for (const Step& s : body.steps) {
      RunStep(s);
      for (const int id : s.out) CheckType(id);
    }
  }
  // Sets mistyped_id_ if the value has another type than in the program, and updates largest_.
  void CheckType(int id) {
    const Value<T>& v = env_[id];
    for (int64_t device = 0; device < devices_.count; ++device) {
      Dims at = devices_.CoordinatesOf(device);
      for (size_t a = 0; a < at.size(); ++a)
        if (!((p_.types[id].varying | ~p_.mesh_axes()) >> a & 1)) at[a] = 0;
      const Block<T>& first = v.blocks[devices_.DeviceAt(at)];
      bool as_typed = v.blocks[device].shape == p_.types[id].shape;
      for (size_t k = 0; k < first.data.size(); ++k) {
        largest_ = std::max(largest_, LargestPart(v.blocks[device].data[k]));
        as_typed = as_typed && ValueOf(first.data[k]) == ValueOf(v.blocks[device].data[k]);
      }
      if (!as_typed && mistyped_id_ < 0) mistyped_id_ = id;
    }
  }

  template <class F>
  void Elementwise(const Step& s, const F& f) {
    std::vector<const Value<T>*> in;
    for (const int id : s.in) in.push_back(&Get(id));
    env_[s.out[0]] = MakeValue([&](int64_t device) {
      Block<T> out = in[0]->blocks[device];
      for (size_t k = 0; k < out.data.size(); ++k) {
        const auto x = [&](size_t i) -> const T& { return in[i]->blocks[device].data[k]; };
        out.data[k] = f(x);
      }
      return out;
    });
  }
  // Sets the result to f(block, device) for each block of in[0].
  template <class F>
  void MapBlocks(const Step& s, const F& f) {
    const Value<T>& x = Get(s.in[0]);
    env_[s.out[0]] = MakeValue([&](int64_t device) { return f(x.blocks[device], device); });
  }
  // Sets the result on each device to f(blocks of its group, position of the device in the group).
  template <class F>
  void Collective(const Step& s, const F& f) {
    const Value<T>& x = Get(s.in[0]);
    env_[s.out[0]] = MakeValue([&](int64_t device) {
      std::vector<const Block<T>*> group;
      for (const int64_t member : devices_.Group(device, s.axes))
        group.push_back(&x.blocks[member]);
      return f(group, devices_.IndexAlong(device, s.axes));
    });
  }
  // Sets the result on each device to the blocks of its group combined by f, element by element.
  template <class F>
  void Fold(const Step& s, const F& f) {
    Collective(s, [&](const std::vector<const Block<T>*>& group, int64_t) {
      Block<T> out = *group[0];
      for (size_t i = 1; i < group.size(); ++i)
        for (size_t k = 0; k < out.data.size(); ++k)
          out.data[k] = f(out.data[k], group[i]->data[k]);
      return out;
    });
  }
  // Returns a block in which each element is f(all elements of x along `dims`).
  template <class F>
  Block<T> Reduce(const Block<T>& x, const Dims& dims, const F& f) const {
    const auto is_reduced = [&](int64_t d) { return std::count(dims.begin(), dims.end(), d) > 0; };
    Dims kept;
    for (size_t d = 0; d < x.shape.size(); ++d)
      if (!is_reduced(static_cast<int64_t>(d))) kept.push_back(x.shape[d]);
    std::vector<std::vector<T>> groups(Count(kept));
    ForEach(x.shape, [&](const Dims& at, int64_t k) {
      Dims to;
      for (size_t d = 0; d < at.size(); ++d)
        if (!is_reduced(static_cast<int64_t>(d))) to.push_back(at[d]);
      groups[FlatIndex(kept, to)].push_back(x.data[k]);
    });
    Block<T> out{kept, {}};
    for (const std::vector<T>& group : groups) out.data.push_back(f(group));
    return out;
  }
  static T Total(const std::vector<T>& all) {
    T sum(0);
    for (const T& x : all) sum = sum + x;
    return sum;
  }
  // Returns the mean of those elements that are the largest. Usually there is only one.
  static T Largest(const std::vector<T>& all) {
    double most = ValueOf(all[0]);
    for (const T& x : all) most = std::max(most, ValueOf(x));
    T sum(0);
    double n = 0;
    for (const T& x : all) {
      if (ValueOf(x) != most) continue;
      sum = sum + x;
      ++n;
    }
    return sum / T(n);
  }
  // Returns the blocks joined along `dim` if `tiled`, or stacked along a new dim `dim`.
  static Block<T> JoinBlocks(const std::vector<Block<T>>& blocks, int64_t dim, bool tiled) {
    Dims shape = blocks[0].shape;
    const auto n = static_cast<int64_t>(blocks.size());
    if (!tiled) {
      shape.insert(shape.begin() + dim, n);
      return MakeBlock<T>(shape, [&](Dims at) {
        const int64_t i = at[dim];
        at.erase(at.begin() + dim);
        return blocks[i](at);
      });
    }
    shape[dim] = 0;
    for (const Block<T>& b : blocks) shape[dim] += b.shape[dim];
    return MakeBlock<T>(shape, [&](Dims at) {
      size_t i = 0;
      while (at[dim] >= blocks[i].shape[dim]) at[dim] -= blocks[i++].shape[dim];
      return blocks[i](at);
    });
  }
  // Returns part i of n along `dim`. Unless `tiled`, the dim has size n and is removed.
  static Block<T> Part(const Block<T>& x, int64_t dim, int64_t i, int64_t n, bool tiled) {
    Dims shape = x.shape;
    if (!tiled) {
      shape.erase(shape.begin() + dim);
      return MakeBlock<T>(shape, [&](Dims at) {
        at.insert(at.begin() + dim, i);
        return x(at);
      });
    }
    shape[dim] /= n;
    return MakeBlock<T>(shape, [&](Dims at) {
      at[dim] += i * shape[dim];
      return x(at);
    });
  }
  int64_t StartAt(const Step& s, int64_t device, int64_t max_start) const {
    return std::min(devices_.IndexAlong(device, s.axes), max_start);
  }

  void RunStep(const Step& s);
  void RunLoop(const Step& s);
  void RunGradient(const Step& s);
  void RunNamedVmap(const Step& s);
  void RunNested(const Step& s);

  const Program& p_;
  AxisSet active_;
  Devices devices_;
  std::vector<Value<T>> env_;
  double largest_ = 0;
  int mistyped_id_ = -1;
};

template <class T>
void PlainLoop<T>::RunStep(const Step& s) {
  using enum StepKind;
  switch (s.kind) {
    case kConstant:
      env_[s.out[0]] = MakeValue([&](int64_t) {
        Block<T> out{s.ints, {}};
        for (const double x : s.numbers) out.data.push_back(T(x));
        return out;
      });
      return;
    case kSin:
      return Elementwise(s, [](auto x) { return Sin(x(0)); });
    case kCos:
      return Elementwise(s, [](auto x) { return Cos(x(0)); });
    case kTanh:
      return Elementwise(s, [](auto x) { return Tanh(x(0)); });
    case kLogistic:
      return Elementwise(s, [](auto x) { return Logistic(x(0)); });
    case kNegate:
      return Elementwise(s, [](auto x) { return T(-1) * x(0); });
    case kSquare:
      return Elementwise(s, [](auto x) { return x(0) * x(0); });
    case kScale:
      return Elementwise(s, [&](auto x) { return T(s.numbers[0]) * x(0); });
    case kShift:
      return Elementwise(s, [&](auto x) { return T(s.numbers[0]) + x(0); });
    case kStopGradient:
      return Elementwise(s, [](auto x) { return StopGradient(x(0)); });
    case kAdd:
      return Elementwise(s, [](auto x) { return x(0) + x(1); });
    case kSubtract:
      return Elementwise(s, [](auto x) { return x(0) - x(1); });
    case kMultiply:
      return Elementwise(s, [](auto x) { return x(0) * x(1); });
    case kDivide:
      return Elementwise(s, [](auto x) { return x(0) / (T(2) + x(1) * x(1)); });
    case kMax:
      return Elementwise(s, [](auto x) { return Larger(x(0), x(1)); });
    case kMin:
      return Elementwise(s, [](auto x) { return T(-1) * Larger(T(-1) * x(0), T(-1) * x(1)); });
    case kSelect:
      return Elementwise(s, [](auto x) { return ValueOf(x(0)) < ValueOf(x(1)) ? x(2) : x(3); });
    case kReshape:
      return MapBlocks(s, [&](const Block<T>& x, int64_t) { return Block<T>{s.ints, x.data}; });
    case kTranspose:
      return MapBlocks(s, [&](const Block<T>& x, int64_t) {
        Dims shape;
        for (const int64_t d : s.ints) shape.push_back(x.shape[d]);
        return MakeBlock<T>(shape, [&](const Dims& at) {
          Dims from(at.size());
          for (size_t d = 0; d < at.size(); ++d) from[s.ints[d]] = at[d];
          return x(from);
        });
      });
    case kBroadcast:
      return MapBlocks(s, [&](const Block<T>& x, int64_t) {
        const size_t rank = s.ints.size() - x.shape.size();
        const Dims shape(s.ints.begin(), s.ints.begin() + static_cast<int64_t>(rank));
        return MakeBlock<T>(shape, [&](const Dims& at) {
          Dims from(x.shape.size());
          for (size_t d = 0; d < from.size(); ++d)
            from[d] = x.shape[d] == 1 ? 0 : at[s.ints[rank + d]];
          return x(from);
        });
      });
    case kSlice:
      return MapBlocks(s, [&](const Block<T>& x, int64_t) {
        const auto rank = static_cast<int64_t>(x.shape.size());
        const Dims start(s.ints.begin(), s.ints.begin() + rank);
        Dims shape(s.ints.begin() + rank, s.ints.end());
        for (size_t d = 0; d < shape.size(); ++d) shape[d] -= start[d];
        return MakeBlock<T>(shape, [&](const Dims& at) { return x(AddIndices(at, start)); });
      });
    case kConcatenate: {
      std::vector<const Value<T>*> in;
      for (const int id : s.in) in.push_back(&Get(id));
      env_[s.out[0]] = MakeValue([&](int64_t device) {
        std::vector<Block<T>> blocks;
        for (const Value<T>* v : in) blocks.push_back(v->blocks[device]);
        return JoinBlocks(blocks, s.ints[0], true);
      });
      return;
    }
    case kPad:
      return MapBlocks(s, [&](const Block<T>& x, int64_t) {
        const size_t rank = x.shape.size();
        Dims shape = x.shape;
        for (size_t d = 0; d < rank; ++d) shape[d] += s.ints[d] + s.ints[rank + d];
        return MakeBlock<T>(shape, [&](Dims at) {
          for (size_t d = 0; d < rank; ++d) {
            at[d] -= s.ints[d];
            if (at[d] < 0 || at[d] >= x.shape[d]) return T(s.numbers[0]);
          }
          return x(at);
        });
      });
    case kReverse:
      return MapBlocks(s, [&](const Block<T>& x, int64_t) {
        return MakeBlock<T>(x.shape, [&](Dims at) {
          for (const int64_t d : s.ints) at[d] = x.shape[d] - 1 - at[d];
          return x(at);
        });
      });
    case kCumsum:
      return MapBlocks(s, [&](const Block<T>& x, int64_t) {
        return MakeBlock<T>(x.shape, [&](Dims at) {
          T sum(0);
          for (int64_t last = at[s.ints[0]], i = 0; i <= last; ++i) {
            at[s.ints[0]] = i;
            sum = sum + x(at);
          }
          return sum;
        });
      });
    case kSort:
      return MapBlocks(s, [&](const Block<T>& x, int64_t) {
        return MakeBlock<T>(x.shape, [&](Dims at) {
          const int64_t position = at[s.ints[0]];
          std::vector<T> all;
          for (int64_t i = 0; i < x.shape[s.ints[0]]; ++i) {
            at[s.ints[0]] = i;
            all.push_back(x(at));
          }
          std::stable_sort(all.begin(), all.end(),
                           [](const T& a, const T& b) { return ValueOf(a) < ValueOf(b); });
          return all[position];
        });
      });
    case kDynamicSlice:
      return MapBlocks(s, [&](const Block<T>& x, int64_t device) {
        Dims shape = x.shape;
        shape[s.ints[0]] = s.ints[1];
        const int64_t start = StartAt(s, device, x.shape[s.ints[0]] - s.ints[1]);
        return MakeBlock<T>(shape, [&](Dims at) {
          at[s.ints[0]] += start;
          return x(at);
        });
      });
    case kDynamicUpdate: {
      const Value<T>& update = Get(s.in[1]);
      return MapBlocks(s, [&](const Block<T>& x, int64_t device) {
        Block<T> out = x;
        const Block<T>& u = update.blocks[device];
        const int64_t start = StartAt(s, device, x.shape[s.ints[0]] - u.shape[s.ints[0]]);
        ForEach(u.shape, [&](Dims at, int64_t k) {
          at[s.ints[0]] += start;
          out(at) = u.data[k];
        });
        return out;
      });
    }
    case kSum:
      return MapBlocks(s, [&](const Block<T>& x, int64_t) { return Reduce(x, s.ints, Total); });
    case kProduct:
      return MapBlocks(s, [&](const Block<T>& x, int64_t) {
        return Reduce(x, s.ints, [](const std::vector<T>& all) {
          T product(1);
          for (const T& f : all) product = product * f;
          return product;
        });
      });
    case kLargest:
      return MapBlocks(s, [&](const Block<T>& x, int64_t) { return Reduce(x, s.ints, Largest); });
    case kDot: {
      const Value<T>& right = Get(s.in[1]);
      return MapBlocks(s, [&](const Block<T>& x, int64_t device) {
        const Block<T>& y = right.blocks[device];
        Dims a = x.shape, b = y.shape;
        const int64_t n = a[s.ints[0]];
        a.erase(a.begin() + s.ints[0]);
        b.erase(b.begin() + s.ints[1]);
        Dims shape = a;
        shape.insert(shape.end(), b.begin(), b.end());
        return MakeBlock<T>(shape, [&](const Dims& at) {
          const auto middle = at.begin() + static_cast<int64_t>(a.size());
          T sum(0);
          for (int64_t i = 0; i < n; ++i) {
            Dims l(at.begin(), middle), r(middle, at.end());
            l.insert(l.begin() + s.ints[0], i);
            r.insert(r.begin() + s.ints[1], i);
            sum = sum + x(l) * y(r);
          }
          return sum;
        });
      });
    }
    case kPsum:
    case kPsumUnreduced:
      return Fold(s, [](const T& a, const T& b) { return a + b; });
    case kPmean:
      return Collective(s, [&](const std::vector<const Block<T>*>& group, int64_t) {
        Block<T> out = Zeros<T>(group[0]->shape);
        for (size_t k = 0; k < out.data.size(); ++k) {
          for (const Block<T>* b : group) out.data[k] = out.data[k] + b->data[k];
          out.data[k] = out.data[k] / T(static_cast<double>(group.size()));
        }
        return out;
      });
    case kPmax:
      return Fold(s, [](const T& a, const T& b) { return Larger(a, b); });
    case kPmin:
      return Fold(s, [](const T& a, const T& b) { return T(-1) * Larger(T(-1) * a, T(-1) * b); });
    case kAllGather:
    case kGatherInvarying:
    case kGatherReduced:
      return Collective(s, [&](const std::vector<const Block<T>*>& group, int64_t) {
        std::vector<Block<T>> blocks;
        for (const Block<T>* b : group) blocks.push_back(*b);
        return JoinBlocks(blocks, s.ints[0], s.tiled);
      });
    case kPsumScatter:
    case kScatterUnreduced:
      return Collective(s, [&](const std::vector<const Block<T>*>& group, int64_t index) {
        Block<T> sum = *group[0];
        for (size_t i = 1; i < group.size(); ++i)
          for (size_t k = 0; k < sum.data.size(); ++k)
            sum.data[k] = sum.data[k] + group[i]->data[k];
        return Part(sum, s.ints[0], index, static_cast<int64_t>(group.size()), s.tiled);
      });
    case kAllToAll:
      return Collective(s, [&](const std::vector<const Block<T>*>& group, int64_t index) {
        std::vector<Block<T>> parts;
        for (const Block<T>* b : group)
          parts.push_back(Part(*b, s.ints[0], index, static_cast<int64_t>(group.size()), s.tiled));
        return JoinBlocks(parts, s.ints[1], s.tiled);
      });
    case kPermute:
      return Collective(s, [&](const std::vector<const Block<T>*>& group, int64_t index) {
        for (size_t i = 0; i < s.ints.size(); i += 2)
          if (s.ints[i + 1] == index) return *group[s.ints[i]];
        return Zeros<T>(group[0]->shape);
      });
    case kPbroadcast:
      return Collective(
          s, [&](const std::vector<const Block<T>*>& group, int64_t) { return *group[s.ints[0]]; });
    case kAxisIndex:
      env_[s.out[0]] = MakeValue([&](int64_t device) {
        return Block<T>{{}, {T(static_cast<double>(devices_.IndexAlong(device, s.axes)))}};
      });
      return;
    case kPvary:
    case kConstrain:
    case kThroughReduced:
      return MapBlocks(s, [](const Block<T>& x, int64_t) { return x; });
    case kScan:
    case kFori:
      return RunLoop(s);
    case kBranch: {
      const Value<T>& index = Get(s.in[0]);
      size_t which = 0;
      for (const double threshold : s.numbers)
        which += ValueOf(index.blocks[0].data[0]) > threshold;
      const Body& body = s.bodies[which];
      for (size_t i = 0; i < body.params.size(); ++i) env_[body.params[i]] = Get(s.in[i + 1]);
      RunBody(body);
      for (size_t i = 0; i < s.out.size(); ++i) env_[s.out[i]] = Get(body.results[i]);
      return;
    }
    case kJit:
    case kCheckpoint: {
      const Body& body = s.bodies[0];
      for (size_t i = 0; i < body.params.size(); ++i) env_[body.params[i]] = Get(s.in[i]);
      RunBody(body);
      for (size_t i = 0; i < s.out.size(); ++i) env_[s.out[i]] = Get(body.results[i]);
      return;
    }
    case kVmap: {
      if (!s.axes.empty()) return RunNamedVmap(s);
      const Body& body = s.bodies[0];
      std::vector<Value<T>> in, out;
      int64_t n = 0;
      for (size_t i = 0; i < s.in.size(); ++i) {
        in.push_back(Get(s.in[i]));
        if (s.ints[i] >= 0) n = in[i].blocks[0].shape[s.ints[i]];
      }
      for (int64_t member = 0; member < n; ++member) {
        for (size_t i = 0; i < s.in.size(); ++i)
          env_[body.params[i]] = MakeValue([&](int64_t device) {
            const Block<T>& x = in[i].blocks[device];
            return s.ints[i] < 0 ? x : Part(x, s.ints[i], member, n, false);
          });
        RunBody(body);
        out.push_back(Get(body.results[0]));
      }
      env_[s.out[0]] = MakeValue([&](int64_t device) {
        std::vector<Block<T>> blocks;
        for (const Value<T>& v : out) blocks.push_back(v.blocks[device]);
        return JoinBlocks(blocks, s.ints.back(), false);
      });
      return;
    }
    case kGrad:
      return RunGradient(s);
    case kNested:
      return RunNested(s);
  }
}

template <class T>
void PlainLoop<T>::RunLoop(const Step& s) {
  const Body& body = s.bodies[0];
  const int64_t n = s.ints[0];
  Value<T> carry = Get(s.in[0]);
  std::vector<std::vector<Block<T>>> stacked(devices_.count);
  for (int64_t iteration = 0; iteration < n; ++iteration) {
    const int64_t i = s.ints[1] ? n - 1 - iteration : iteration;
    env_[body.params[0]] = carry;
    if (s.kind == StepKind::kFori) {
      env_[body.params[1]] = MakeValue([&](int64_t) {
        return Block<T>{{}, {T(static_cast<double>(i))}};
      });
    } else if (body.params.size() > 1) {
      const Value<T>& xs = Get(s.in[1]);
      env_[body.params[1]] =
          MakeValue([&](int64_t device) { return Part(xs.blocks[device], 0, i, n, false); });
    }
    RunBody(body);
    carry = Get(body.results[0]);
    if (s.out.size() > 1) {
      const Value<T>& y = Get(body.results[1]);
      for (int64_t device = 0; device < devices_.count; ++device)
        stacked[device].push_back(y.blocks[device]);
    }
  }
  env_[s.out[0]] = carry;
  if (s.out.size() < 2) return;
  if (s.ints[1])
    for (std::vector<Block<T>>& blocks : stacked) std::reverse(blocks.begin(), blocks.end());
  env_[s.out[1]] = MakeValue([&](int64_t device) { return JoinBlocks(stacked[device], 0, false); });
}

// Computes the derivative of the sum of all devices' losses by each element of in[0]. A loss or an
// element that several devices share counts once.
template <class T>
void PlainLoop<T>::RunGradient(const Step& s) {
  if constexpr (kDualDepth<T> >= 2) {
    std::abort();  // no program has a gradient in a gradient
  } else {
    const Body& body = s.bodies[0];
    const AxisSet input_shared = ~p_.types[s.in[0]].varying,
                  loss_shared = ~p_.types[body.results[0]].varying;
    const auto first_along = [&](Dims at, AxisSet axes) {
      for (size_t a = 0; a < at.size(); ++a)
        if (axes >> a & 1) at[a] = 0;
      return devices_.DeviceAt(at);
    };
    PlainLoop<Dual<T>> inner(p_);
    inner.active_ = active_;
    inner.devices_ = devices_;
    for (size_t id = 0; id < env_.size(); ++id) {
      inner.env_[id].active = env_[id].active;
      for (const Block<T>& b : env_[id].blocks) {
        Block<Dual<T>> lifted{b.shape, {}};
        for (const T& x : b.data) lifted.data.push_back({x, T(0)});
        inner.env_[id].blocks.push_back(lifted);
      }
    }
    const Value<Dual<T>> w = inner.Get(s.in[0]);
    Value<T> out = MakeValue([&](int64_t device) { return Zeros<T>(w.blocks[device].shape); });
    for (int64_t owner = 0; owner < devices_.count; ++owner) {
      if (first_along(devices_.CoordinatesOf(owner), input_shared) != owner) continue;
      for (size_t k = 0; k < w.blocks[owner].data.size(); ++k) {
        Value<Dual<T>> perturbed = w;
        for (int64_t device = 0; device < devices_.count; ++device)
          if (first_along(devices_.CoordinatesOf(device), input_shared) == owner)
            perturbed.blocks[device].data[k].d = T(1);
        inner.env_[body.params[0]] = perturbed;
        inner.RunBody(body);
        const Value<Dual<T>>& loss = inner.Get(body.results[0]);
        T sum(0);
        for (int64_t device = 0; device < devices_.count; ++device)
          if (first_along(devices_.CoordinatesOf(device), loss_shared) == device)
            sum = sum + loss.blocks[device].data[0].d;
        out.blocks[owner].data[k] = sum;
      }
    }
    env_[s.out[0]] = MakeValue([&](int64_t device) {
      return out.blocks[first_along(devices_.CoordinatesOf(device), input_shared)];
    });
    largest_ = std::max(largest_, inner.largest_);
    if (mistyped_id_ < 0) mistyped_id_ = inner.mistyped_id_;
  }
}

// Runs a vmap with a name. The members run like devices along one more axis.
template <class T>
void PlainLoop<T>::RunNamedVmap(const Step& s) {
  const Body& body = s.bodies[0];
  const int64_t n = p_.mesh[s.axes[0]].size;
  std::vector<Value<T>> in;
  for (const int id : s.in) in.push_back(Get(id));
  const std::vector<Value<T>> outer_env = env_;
  const AxisSet outer_active = active_;
  const Devices outer_devices = devices_;
  active_ |= AxisSet{1} << s.axes[0];
  devices_ = Devices(p_.mesh, active_);
  for (size_t i = 0; i < in.size(); ++i)
    env_[body.params[i]] = MakeValue([&](int64_t device) {
      const Dims at = devices_.CoordinatesOf(device);
      const Block<T>& x = in[i].blocks[outer_devices.DeviceAt(at)];
      return s.ints[i] < 0 ? x : Part(x, s.ints[i], at[s.axes[0]], n, false);
    });
  RunBody(body);
  const Value<T> result = Get(body.results[0]);
  const Devices inner_devices = devices_;
  env_ = outer_env;
  active_ = outer_active;
  devices_ = outer_devices;
  env_[s.out[0]] = MakeValue([&](int64_t device) {
    std::vector<Block<T>> blocks;
    for (int64_t member = 0; member < n; ++member) {
      Dims at = outer_devices.CoordinatesOf(device);
      at[s.axes[0]] = member;
      blocks.push_back(result.blocks[inner_devices.DeviceAt(at)]);
    }
    return JoinBlocks(blocks, s.ints.back(), false);
  });
}

template <class T>
void PlainLoop<T>::RunNested(const Step& s) {
  const Body& body = s.bodies[0];
  std::vector<Value<T>> in;
  for (const int id : s.in) in.push_back(Get(id));
  const std::vector<Value<T>> outer_env = env_;
  const AxisSet outer_active = active_;
  const Devices outer_devices = devices_;
  active_ = p_.mesh_axes();
  devices_ = Devices(p_.mesh, active_);
  for (size_t i = 0; i < in.size(); ++i)
    env_[body.params[i]] = MakeValue([&](int64_t device) {
      return BlockOn(in[i].blocks[outer_devices.DeviceAt(devices_.CoordinatesOf(device))],
                     s.specs[i], devices_, device);
    });
  RunBody(body);
  const Value<T> result = Get(body.results[0]);
  std::vector<Block<T>> joined;
  for (int64_t device = 0; device < outer_devices.count; ++device) {
    const Dims outer_at = outer_devices.CoordinatesOf(device);
    joined.push_back(Join(result, s.specs.back(), [&](const Dims& at) {
      for (size_t a = 0; a < at.size(); ++a)
        if ((outer_active >> a & 1) && at[a] != outer_at[a]) return false;
      return true;
    }));
  }
  env_ = outer_env;
  active_ = outer_active;
  devices_ = outer_devices;
  env_[s.out[0]] = MakeValue([&](int64_t device) { return joined[device]; });
}

}  // namespace tessera::shard_maps
