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
inline constexpr int kDepth = 0;
template <class T>
inline constexpr int kDepth<Dual<T>> = kDepth<T> + 1;

inline double Plain(double x) { return x; }
template <class T>
double Plain(const Dual<T>& x) {
  return Plain(x.v);
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
inline double Constant(double x) { return x; }
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
Dual<T> Constant(const Dual<T>& x) {
  return {Constant(x.v), T(0)};
}
template <class T>
T Logistic(const T& x) {
  return T(0.5) + T(0.5) * Tanh(T(0.5) * x);
}
// Returns the larger number, or the mean of the two if they are equal. The derivative is then
// shared between them, as in JAX.
template <class T>
T Larger(const T& a, const T& b) {
  return Plain(a) > Plain(b) ? a : Plain(b) > Plain(a) ? b : T(0.5) * (a + b);
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
  Dims At(int64_t device) const {
    Dims at(sizes.size());
    for (size_t a = sizes.size(); a-- > 0; device /= sizes[a]) at[a] = device % sizes[a];
    return at;
  }
  int64_t Of(const Dims& at) const {
    int64_t device = 0;
    for (size_t a = 0; a < sizes.size(); ++a)
      device = device * sizes[a] + (sizes[a] > 1 ? at[a] : 0);
    return device;
  }
  // IndexAlong returns the position of a device in its group along `axes`. Group returns the
  // devices of this group in order.
  int64_t IndexAlong(int64_t device, const Axes& axes) const {
    const Dims at = At(device);
    int64_t index = 0;
    for (const int a : axes) index = index * sizes[a] + at[a];
    return index;
  }
  std::vector<int64_t> Group(int64_t device, const Axes& axes) const {
    int64_t n = 1;
    for (const int a : axes) n *= sizes[a];
    std::vector<int64_t> group;
    for (int64_t i = 0; i < n; ++i) {
      Dims at = At(device);
      int64_t rest = i;
      for (size_t k = axes.size(); k-- > 0; rest /= sizes[axes[k]])
        at[axes[k]] = rest % sizes[axes[k]];
      group.push_back(Of(at));
    }
    return group;
  }
};

inline int64_t Flat(const Dims& shape, const Dims& at) {
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
  const T& operator()(const Dims& at) const { return data[Flat(shape, at)]; }
  T& operator()(const Dims& at) { return data[Flat(shape, at)]; }
};
template <class T>
Block<T> Blank(const Dims& shape) {
  return {shape, std::vector<T>(Count(shape), T(0))};
}
template <class T, class F>
Block<T> Made(const Dims& shape, const F& f) {
  Block<T> out = Blank<T>(shape);
  ForEach(shape, [&](const Dims& at, int64_t k) { out.data[k] = f(at); });
  return out;
}
// Cut (below) returns the block of a whole array that lies on a device. StartOf returns the index
// of the whole array at which this block starts.
inline Dims StartOf(const Dims& block, const Spec& spec, const Devices& devices, int64_t device) {
  Dims start(block.size(), 0);
  for (size_t d = 0; d < spec.size(); ++d)
    start[d] = devices.IndexAlong(device, spec[d]) * block[d];
  return start;
}
inline Dims Sum(Dims a, const Dims& b) {
  for (size_t d = 0; d < a.size(); ++d) a[d] += b[d];
  return a;
}
template <class T>
Block<T> Cut(const Block<T>& whole, const Spec& spec, const Devices& devices, int64_t device) {
  Dims shape = whole.shape;
  for (size_t d = 0; d < spec.size(); ++d)
    for (const int a : spec[d]) shape[d] /= devices.sizes[a];
  const Dims start = StartOf(shape, spec, devices, device);
  return Made<T>(shape, [&](const Dims& at) { return whole(Sum(at, start)); });
}

template <class T>
struct Value {
  AxisSet active = 0;  // active axes of the devices that hold the value
  std::vector<Block<T>> on;
};

// Runs programs on numbers of type T.
template <class T>
class PlainLoop {
 public:
  explicit PlainLoop(const Program& p)
      : p_(p), active_(p.manual), devices_(p.mesh, p.manual), env_(p.values.size()) {}

  // Returns the whole results for whole inputs.
  std::vector<Block<T>> Run(const std::vector<Block<T>>& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i)
      env_[p_.body.params[i]] =
          OnAll([&](int64_t device) { return Cut(inputs[i], p_.in_specs[i], devices_, device); });
    Do(p_.body);
    std::vector<Block<T>> out;
    for (size_t r = 0; r < p_.body.results.size() && mistyped_ < 0; ++r)
      out.push_back(
          Join(Get(p_.body.results[r]), p_.out_specs[r], [](const Dims&) { return true; }));
    return out;
  }
  // Returns the largest magnitude of all numbers that the run computed, derivatives included.
  double largest() const { return largest_; }
  // Returns the number of the first value whose shape is not the one in the program, or that
  // differs along an axis along which it should not vary. Returns -1 if there is none.
  int mistyped() const { return mistyped_; }

 private:
  template <class U>
  friend class PlainLoop;

  template <class F>
  Value<T> OnAll(const F& f) const {
    Value<T> out{active_, {}};
    for (int64_t device = 0; device < devices_.count; ++device) out.on.push_back(f(device));
    return out;
  }
  // Returns a value on the devices of the current body. A value from an outer body may be held
  // along fewer axes. It is then copied along the other axes.
  const Value<T>& Get(int id) {
    Value<T>& v = env_[id];
    if (v.active != active_) {
      const Devices from(p_.mesh, v.active);
      const Value<T> old = v;
      v = OnAll([&](int64_t device) { return old.on[from.Of(devices_.At(device))]; });
    }
    return v;
  }
  template <class F>
  Block<T> Join(const Value<T>& v, const Spec& spec, const F& counts) const {
    Dims whole = v.on[0].shape;
    for (size_t d = 0; d < spec.size(); ++d)
      for (const int a : spec[d]) whole[d] *= devices_.sizes[a];
    Block<T> out = Blank<T>(whole);
    for (int64_t device = devices_.count; device-- > 0;) {
      if (!counts(devices_.At(device))) continue;
      const Dims start = StartOf(v.on[device].shape, spec, devices_, device);
      ForEach(v.on[device].shape,
              [&](const Dims& at, int64_t k) { out(Sum(at, start)) = v.on[device].data[k]; });
    }
    return out;
  }

  void Do(const Body& body) {
    for (const Step& s : body.steps) {
      Do(s);
      for (const int id : s.out) Check(id);
    }
  }
  void Check(int id) {
    const Value<T>& v = env_[id];
    for (int64_t device = 0; device < devices_.count; ++device) {
      Dims at = devices_.At(device);
      for (size_t a = 0; a < at.size(); ++a)
        if (!((p_.values[id].varying | ~p_.all()) >> a & 1)) at[a] = 0;
      const Block<T>& first = v.on[devices_.Of(at)];
      bool as_typed = v.on[device].shape == p_.values[id].shape;
      for (size_t k = 0; k < first.data.size(); ++k) {
        largest_ = std::max(largest_, LargestPart(v.on[device].data[k]));
        as_typed = as_typed && Plain(first.data[k]) == Plain(v.on[device].data[k]);
      }
      if (!as_typed && mistyped_ < 0) mistyped_ = id;
    }
  }

  template <class F>
  void Elementwise(const Step& s, const F& f) {
    std::vector<const Value<T>*> in;
    for (const int id : s.in) in.push_back(&Get(id));
    env_[s.out[0]] = OnAll([&](int64_t device) {
      Block<T> out = in[0]->on[device];
      for (size_t k = 0; k < out.data.size(); ++k) {
        const auto x = [&](size_t i) -> const T& { return in[i]->on[device].data[k]; };
        out.data[k] = f(x);
      }
      return out;
    });
  }
  // Sets the result to f(block, device) for each block of in[0].
  template <class F>
  void Local(const Step& s, const F& f) {
    const Value<T>& x = Get(s.in[0]);
    env_[s.out[0]] = OnAll([&](int64_t device) { return f(x.on[device], device); });
  }
  // Sets the result on each device to f(blocks of its group, position of the device in the group).
  template <class F>
  void Collective(const Step& s, const F& f) {
    const Value<T>& x = Get(s.in[0]);
    env_[s.out[0]] = OnAll([&](int64_t device) {
      std::vector<const Block<T>*> group;
      for (const int64_t member : devices_.Group(device, s.axes)) group.push_back(&x.on[member]);
      return f(group, devices_.IndexAlong(device, s.axes));
    });
  }
  template <class F>
  void Folded(const Step& s, const F& f) {
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
  Block<T> Reduced(const Block<T>& x, const Dims& dims, const F& f) const {
    const auto gone = [&](int64_t d) { return std::count(dims.begin(), dims.end(), d) > 0; };
    Dims left;
    for (size_t d = 0; d < x.shape.size(); ++d)
      if (!gone(static_cast<int64_t>(d))) left.push_back(x.shape[d]);
    std::vector<std::vector<T>> of(Count(left));
    ForEach(x.shape, [&](const Dims& at, int64_t k) {
      Dims to;
      for (size_t d = 0; d < at.size(); ++d)
        if (!gone(static_cast<int64_t>(d))) to.push_back(at[d]);
      of[Flat(left, to)].push_back(x.data[k]);
    });
    Block<T> out{left, {}};
    for (const std::vector<T>& all : of) out.data.push_back(f(all));
    return out;
  }
  static T Total(const std::vector<T>& all) {
    T sum(0);
    for (const T& x : all) sum = sum + x;
    return sum;
  }
  // Returns the mean of those elements that are the largest. Usually there is only one.
  static T Largest(const std::vector<T>& all) {
    double most = Plain(all[0]);
    for (const T& x : all) most = std::max(most, Plain(x));
    T sum(0);
    double n = 0;
    for (const T& x : all) {
      if (Plain(x) != most) continue;
      sum = sum + x;
      ++n;
    }
    return sum / T(n);
  }
  // Returns the blocks joined along `dim` if `tiled`, or stacked along a new dim `dim`.
  static Block<T> Beside(const std::vector<Block<T>>& blocks, int64_t dim, bool tiled) {
    Dims shape = blocks[0].shape;
    const auto n = static_cast<int64_t>(blocks.size());
    if (!tiled) {
      shape.insert(shape.begin() + dim, n);
      return Made<T>(shape, [&](Dims at) {
        const int64_t i = at[dim];
        at.erase(at.begin() + dim);
        return blocks[i](at);
      });
    }
    shape[dim] = 0;
    for (const Block<T>& b : blocks) shape[dim] += b.shape[dim];
    return Made<T>(shape, [&](Dims at) {
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
      return Made<T>(shape, [&](Dims at) {
        at.insert(at.begin() + dim, i);
        return x(at);
      });
    }
    shape[dim] /= n;
    return Made<T>(shape, [&](Dims at) {
      at[dim] += i * shape[dim];
      return x(at);
    });
  }
  int64_t StartAt(const Step& s, int64_t device, int64_t room) const {
    return std::min(devices_.IndexAlong(device, s.axes), room);
  }

  void Do(const Step& s);
  void Loop(const Step& s);
  void Gradient(const Step& s);
  void NamedVmap(const Step& s);
  void Nested(const Step& s);

  const Program& p_;
  AxisSet active_;
  Devices devices_;
  std::vector<Value<T>> env_;
  double largest_ = 0;
  int mistyped_ = -1;
};

template <class T>
void PlainLoop<T>::Do(const Step& s) {
  using enum shard_maps::Do;
  switch (s.what) {
    case kConstant:
      env_[s.out[0]] = OnAll([&](int64_t) {
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
      return Elementwise(s, [](auto x) { return Constant(x(0)); });
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
      return Elementwise(s, [](auto x) { return Plain(x(0)) < Plain(x(1)) ? x(2) : x(3); });
    case kReshape:
      return Local(s, [&](const Block<T>& x, int64_t) { return Block<T>{s.ints, x.data}; });
    case kTranspose:
      return Local(s, [&](const Block<T>& x, int64_t) {
        Dims shape;
        for (const int64_t d : s.ints) shape.push_back(x.shape[d]);
        return Made<T>(shape, [&](const Dims& at) {
          Dims from(at.size());
          for (size_t d = 0; d < at.size(); ++d) from[s.ints[d]] = at[d];
          return x(from);
        });
      });
    case kBroadcast:
      return Local(s, [&](const Block<T>& x, int64_t) {
        const size_t rank = s.ints.size() - x.shape.size();
        const Dims shape(s.ints.begin(), s.ints.begin() + static_cast<int64_t>(rank));
        return Made<T>(shape, [&](const Dims& at) {
          Dims from(x.shape.size());
          for (size_t d = 0; d < from.size(); ++d)
            from[d] = x.shape[d] == 1 ? 0 : at[s.ints[rank + d]];
          return x(from);
        });
      });
    case kSlice:
      return Local(s, [&](const Block<T>& x, int64_t) {
        const auto rank = static_cast<int64_t>(x.shape.size());
        const Dims start(s.ints.begin(), s.ints.begin() + rank);
        Dims shape(s.ints.begin() + rank, s.ints.end());
        for (size_t d = 0; d < shape.size(); ++d) shape[d] -= start[d];
        return Made<T>(shape, [&](const Dims& at) { return x(Sum(at, start)); });
      });
    case kConcatenate: {
      std::vector<const Value<T>*> in;
      for (const int id : s.in) in.push_back(&Get(id));
      env_[s.out[0]] = OnAll([&](int64_t device) {
        std::vector<Block<T>> blocks;
        for (const Value<T>* v : in) blocks.push_back(v->on[device]);
        return Beside(blocks, s.ints[0], true);
      });
      return;
    }
    case kPad:
      return Local(s, [&](const Block<T>& x, int64_t) {
        const size_t rank = x.shape.size();
        Dims shape = x.shape;
        for (size_t d = 0; d < rank; ++d) shape[d] += s.ints[d] + s.ints[rank + d];
        return Made<T>(shape, [&](Dims at) {
          for (size_t d = 0; d < rank; ++d) {
            at[d] -= s.ints[d];
            if (at[d] < 0 || at[d] >= x.shape[d]) return T(s.numbers[0]);
          }
          return x(at);
        });
      });
    case kReverse:
      return Local(s, [&](const Block<T>& x, int64_t) {
        return Made<T>(x.shape, [&](Dims at) {
          for (const int64_t d : s.ints) at[d] = x.shape[d] - 1 - at[d];
          return x(at);
        });
      });
    case kCumsum:
      return Local(s, [&](const Block<T>& x, int64_t) {
        return Made<T>(x.shape, [&](Dims at) {
          T sum(0);
          for (int64_t last = at[s.ints[0]], i = 0; i <= last; ++i) {
            at[s.ints[0]] = i;
            sum = sum + x(at);
          }
          return sum;
        });
      });
    case kSort:
      return Local(s, [&](const Block<T>& x, int64_t) {
        return Made<T>(x.shape, [&](Dims at) {
          const int64_t which = at[s.ints[0]];
          std::vector<T> all;
          for (int64_t i = 0; i < x.shape[s.ints[0]]; ++i) {
            at[s.ints[0]] = i;
            all.push_back(x(at));
          }
          std::stable_sort(all.begin(), all.end(),
                           [](const T& a, const T& b) { return Plain(a) < Plain(b); });
          return all[which];
        });
      });
    case kDynamicSlice:
      return Local(s, [&](const Block<T>& x, int64_t device) {
        Dims shape = x.shape;
        shape[s.ints[0]] = s.ints[1];
        const int64_t start = StartAt(s, device, x.shape[s.ints[0]] - s.ints[1]);
        return Made<T>(shape, [&](Dims at) {
          at[s.ints[0]] += start;
          return x(at);
        });
      });
    case kDynamicUpdate: {
      const Value<T>& update = Get(s.in[1]);
      return Local(s, [&](const Block<T>& x, int64_t device) {
        Block<T> out = x;
        const Block<T>& u = update.on[device];
        const int64_t start = StartAt(s, device, x.shape[s.ints[0]] - u.shape[s.ints[0]]);
        ForEach(u.shape, [&](Dims at, int64_t k) {
          at[s.ints[0]] += start;
          out(at) = u.data[k];
        });
        return out;
      });
    }
    case kSum:
      return Local(s, [&](const Block<T>& x, int64_t) { return Reduced(x, s.ints, Total); });
    case kProduct:
      return Local(s, [&](const Block<T>& x, int64_t) {
        return Reduced(x, s.ints, [](const std::vector<T>& all) {
          T product(1);
          for (const T& f : all) product = product * f;
          return product;
        });
      });
    case kLargest:
      return Local(s, [&](const Block<T>& x, int64_t) { return Reduced(x, s.ints, Largest); });
    case kDot: {
      const Value<T>& right = Get(s.in[1]);
      return Local(s, [&](const Block<T>& x, int64_t device) {
        const Block<T>& y = right.on[device];
        Dims a = x.shape, b = y.shape;
        const int64_t n = a[s.ints[0]];
        a.erase(a.begin() + s.ints[0]);
        b.erase(b.begin() + s.ints[1]);
        Dims shape = a;
        shape.insert(shape.end(), b.begin(), b.end());
        return Made<T>(shape, [&](const Dims& at) {
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
      return Folded(s, [](const T& a, const T& b) { return a + b; });
    case kPmean:
      return Collective(s, [&](const std::vector<const Block<T>*>& group, int64_t) {
        Block<T> out = Blank<T>(group[0]->shape);
        for (size_t k = 0; k < out.data.size(); ++k) {
          for (const Block<T>* b : group) out.data[k] = out.data[k] + b->data[k];
          out.data[k] = out.data[k] / T(static_cast<double>(group.size()));
        }
        return out;
      });
    case kPmax:
      return Folded(s, [](const T& a, const T& b) { return Larger(a, b); });
    case kPmin:
      return Folded(s, [](const T& a, const T& b) { return T(-1) * Larger(T(-1) * a, T(-1) * b); });
    case kAllGather:
    case kGatherInvarying:
    case kGatherReduced:
      return Collective(s, [&](const std::vector<const Block<T>*>& group, int64_t) {
        std::vector<Block<T>> blocks;
        for (const Block<T>* b : group) blocks.push_back(*b);
        return Beside(blocks, s.ints[0], s.tiled);
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
        return Beside(parts, s.ints[1], s.tiled);
      });
    case kPermute:
      return Collective(s, [&](const std::vector<const Block<T>*>& group, int64_t index) {
        for (size_t i = 0; i < s.ints.size(); i += 2)
          if (s.ints[i + 1] == index) return *group[s.ints[i]];
        return Blank<T>(group[0]->shape);
      });
    case kFrom:
      return Collective(
          s, [&](const std::vector<const Block<T>*>& group, int64_t) { return *group[s.ints[0]]; });
    case kAxisIndex:
      env_[s.out[0]] = OnAll([&](int64_t device) {
        return Block<T>{{}, {T(static_cast<double>(devices_.IndexAlong(device, s.axes)))}};
      });
      return;
    case kPvary:
    case kConstrain:
    case kThroughReduced:
      return Local(s, [](const Block<T>& x, int64_t) { return x; });
    case kScan:
    case kFori:
      return Loop(s);
    case kBranch: {
      const Value<T>& index = Get(s.in[0]);
      size_t which = 0;
      for (const double threshold : s.numbers) which += Plain(index.on[0].data[0]) > threshold;
      const Body& body = s.bodies[which];
      for (size_t i = 0; i < body.params.size(); ++i) env_[body.params[i]] = Get(s.in[i + 1]);
      Do(body);
      for (size_t i = 0; i < s.out.size(); ++i) env_[s.out[i]] = Get(body.results[i]);
      return;
    }
    case kJit:
    case kCheckpoint: {
      const Body& body = s.bodies[0];
      for (size_t i = 0; i < body.params.size(); ++i) env_[body.params[i]] = Get(s.in[i]);
      Do(body);
      for (size_t i = 0; i < s.out.size(); ++i) env_[s.out[i]] = Get(body.results[i]);
      return;
    }
    case kVmap: {
      if (!s.axes.empty()) return NamedVmap(s);
      const Body& body = s.bodies[0];
      std::vector<Value<T>> in, out;
      int64_t n = 0;
      for (size_t i = 0; i < s.in.size(); ++i) {
        in.push_back(Get(s.in[i]));
        if (s.ints[i] >= 0) n = in[i].on[0].shape[s.ints[i]];
      }
      for (int64_t member = 0; member < n; ++member) {
        for (size_t i = 0; i < s.in.size(); ++i)
          env_[body.params[i]] = OnAll([&](int64_t device) {
            const Block<T>& x = in[i].on[device];
            return s.ints[i] < 0 ? x : Part(x, s.ints[i], member, n, false);
          });
        Do(body);
        out.push_back(Get(body.results[0]));
      }
      env_[s.out[0]] = OnAll([&](int64_t device) {
        std::vector<Block<T>> blocks;
        for (const Value<T>& v : out) blocks.push_back(v.on[device]);
        return Beside(blocks, s.ints.back(), false);
      });
      return;
    }
    case kGrad:
      return Gradient(s);
    case kNested:
      return Nested(s);
  }
}

template <class T>
void PlainLoop<T>::Loop(const Step& s) {
  const Body& body = s.bodies[0];
  const int64_t n = s.ints[0];
  Value<T> carry = Get(s.in[0]);
  std::vector<std::vector<Block<T>>> stacked(devices_.count);
  for (int64_t turn = 0; turn < n; ++turn) {
    const int64_t i = s.ints[1] ? n - 1 - turn : turn;
    env_[body.params[0]] = carry;
    if (s.what == shard_maps::Do::kFori) {
      env_[body.params[1]] = OnAll([&](int64_t) {
        return Block<T>{{}, {T(static_cast<double>(i))}};
      });
    } else if (body.params.size() > 1) {
      const Value<T>& xs = Get(s.in[1]);
      env_[body.params[1]] =
          OnAll([&](int64_t device) { return Part(xs.on[device], 0, i, n, false); });
    }
    Do(body);
    carry = Get(body.results[0]);
    if (s.out.size() > 1) {
      const Value<T>& y = Get(body.results[1]);
      for (int64_t device = 0; device < devices_.count; ++device)
        stacked[device].push_back(y.on[device]);
    }
  }
  env_[s.out[0]] = carry;
  if (s.out.size() < 2) return;
  if (s.ints[1])
    for (std::vector<Block<T>>& blocks : stacked) std::reverse(blocks.begin(), blocks.end());
  env_[s.out[1]] = OnAll([&](int64_t device) { return Beside(stacked[device], 0, false); });
}

// Computes the derivative of the sum of all devices' losses by each element of in[0]. A loss or an
// element that several devices share counts once.
template <class T>
void PlainLoop<T>::Gradient(const Step& s) {
  if constexpr (kDepth<T> >= 2) {
    std::abort();  // no program has a gradient in a gradient
  } else {
    const Body& body = s.bodies[0];
    const AxisSet shared = ~p_.values[s.in[0]].varying, same = ~p_.values[body.results[0]].varying;
    const auto first_along = [&](Dims at, AxisSet axes) {
      for (size_t a = 0; a < at.size(); ++a)
        if (axes >> a & 1) at[a] = 0;
      return devices_.Of(at);
    };
    PlainLoop<Dual<T>> inner(p_);
    inner.active_ = active_;
    inner.devices_ = devices_;
    for (size_t id = 0; id < env_.size(); ++id) {
      inner.env_[id].active = env_[id].active;
      for (const Block<T>& b : env_[id].on) {
        Block<Dual<T>> lifted{b.shape, {}};
        for (const T& x : b.data) lifted.data.push_back({x, T(0)});
        inner.env_[id].on.push_back(lifted);
      }
    }
    const Value<Dual<T>> w = inner.Get(s.in[0]);
    Value<T> out = OnAll([&](int64_t device) { return Blank<T>(w.on[device].shape); });
    for (int64_t owner = 0; owner < devices_.count; ++owner) {
      if (first_along(devices_.At(owner), shared) != owner) continue;
      for (size_t k = 0; k < w.on[owner].data.size(); ++k) {
        Value<Dual<T>> moved = w;
        for (int64_t device = 0; device < devices_.count; ++device)
          if (first_along(devices_.At(device), shared) == owner) moved.on[device].data[k].d = T(1);
        inner.env_[body.params[0]] = moved;
        inner.Do(body);
        const Value<Dual<T>>& loss = inner.Get(body.results[0]);
        T sum(0);
        for (int64_t device = 0; device < devices_.count; ++device)
          if (first_along(devices_.At(device), same) == device)
            sum = sum + loss.on[device].data[0].d;
        out.on[owner].data[k] = sum;
      }
    }
    env_[s.out[0]] =
        OnAll([&](int64_t device) { return out.on[first_along(devices_.At(device), shared)]; });
    largest_ = std::max(largest_, inner.largest_);
    if (mistyped_ < 0) mistyped_ = inner.mistyped_;
  }
}

// Runs a vmap with a name. The members run like devices along one more axis.
template <class T>
void PlainLoop<T>::NamedVmap(const Step& s) {
  const Body& body = s.bodies[0];
  const int64_t n = p_.mesh[s.axes[0]].size;
  std::vector<Value<T>> in;
  for (const int id : s.in) in.push_back(Get(id));
  const std::vector<Value<T>> around = env_;
  const AxisSet outer = active_;
  const Devices before = devices_;
  active_ |= AxisSet{1} << s.axes[0];
  devices_ = Devices(p_.mesh, active_);
  for (size_t i = 0; i < in.size(); ++i)
    env_[body.params[i]] = OnAll([&](int64_t device) {
      const Dims at = devices_.At(device);
      const Block<T>& x = in[i].on[before.Of(at)];
      return s.ints[i] < 0 ? x : Part(x, s.ints[i], at[s.axes[0]], n, false);
    });
  Do(body);
  const Value<T> result = Get(body.results[0]);
  const Devices inside = devices_;
  env_ = around;
  active_ = outer;
  devices_ = before;
  env_[s.out[0]] = OnAll([&](int64_t device) {
    std::vector<Block<T>> blocks;
    for (int64_t member = 0; member < n; ++member) {
      Dims at = before.At(device);
      at[s.axes[0]] = member;
      blocks.push_back(result.on[inside.Of(at)]);
    }
    return Beside(blocks, s.ints.back(), false);
  });
}

template <class T>
void PlainLoop<T>::Nested(const Step& s) {
  const Body& body = s.bodies[0];
  std::vector<Value<T>> in;
  for (const int id : s.in) in.push_back(Get(id));
  const std::vector<Value<T>> around = env_;
  const AxisSet outer = active_;
  const Devices before = devices_;
  active_ = p_.all();
  devices_ = Devices(p_.mesh, active_);
  for (size_t i = 0; i < in.size(); ++i)
    env_[body.params[i]] = OnAll([&](int64_t device) {
      return Cut(in[i].on[before.Of(devices_.At(device))], s.specs[i], devices_, device);
    });
  Do(body);
  const Value<T> result = Get(body.results[0]);
  std::vector<Block<T>> joined;
  for (int64_t device = 0; device < before.count; ++device) {
    const Dims where = before.At(device);
    joined.push_back(Join(result, s.specs.back(), [&](const Dims& at) {
      for (size_t a = 0; a < at.size(); ++a)
        if ((outer >> a & 1) && at[a] != where[a]) return false;
      return true;
    }));
  }
  env_ = around;
  active_ = outer;
  devices_ = before;
  env_[s.out[0]] = OnAll([&](int64_t device) { return joined[device]; });
}

}  // namespace tessera::shard_maps
