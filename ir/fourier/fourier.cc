// Plans and runs Fourier transforms: how a length is divided into passes, which rows or columns
// share the lanes of a vector, and what is kept for the next transform. ops/fft.cc calls it to
// evaluate the op `fft`; the inner loops are in kernels_inl.h. Reference: docs/decisions/0022.
#include "ir/fourier/fourier.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <list>
#include <memory>
#include <new>
#include <numbers>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "ir/fourier/kernel_sets.h"
#include "ir/fourier/kernels.h"

namespace tessera::ir::fourier {
namespace {

// Rows of up to kShortMax elements and columns of up to kDirectMax are transformed directly. Longer
// ones are arranged as matrices, in two dims. Rows of up to kDirectMax are also transformed
// directly if in two dims less than kBusyMin of the vectors' lanes would be busy.
constexpr int64_t kShortMax = 128, kDirectMax = 2048;
constexpr double kBusyMin = 0.75;
// A row of at least this length is shared among threads; shorter rows are distributed over the
// threads.
constexpr int64_t kSharedMin = 1 << 15;
// The largest number of parts of the work that are computed at the same time. Long columns take
// more memory, so at most kLongPartsMax of their parts are computed at the same time.
constexpr int64_t kPartsMax = 32, kLongPartsMax = 4;

// Aligned memory for vectors.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t size)
      : data_(static_cast<T*>(::operator new(size * sizeof(T), std::align_val_t(64)))) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { ::operator delete(data_, std::align_val_t(64)); }
  T* get() const { return data_; }

 private:
  T* const data_;
};

// The factors are computed with more digits than the results have, so that each is rounded once.
using Number = std::complex<long double>;

// Returns exp(-2 pi i turns / n). The angle is reduced to an eighth of a turn, where the functions
// are most exact.
Number Root(int64_t turns, int64_t n) {
  turns %= n;
  const auto angle = [&](int64_t part) {
    return 2 * std::numbers::pi_v<long double> * static_cast<long double>(part) /
           static_cast<long double>(8 * n);
  };
  // `past` is the part of the angle beyond `eighth` eighths of a turn, in units of an n-th of an
  // eighth.
  const int64_t eighth = 8 * turns / n, past = 8 * turns - eighth * n;
  // The distance from the nearest multiple of a quarter of a turn, in the same units.
  const int64_t near = eighth % 2 == 0 ? past : n - past;
  const long double c = std::cos(angle(near)), s = std::sin(angle(near));
  const int64_t quarter = (eighth + 1) / 2;
  const long double sine = eighth % 2 == 0 ? s : -s;
  switch (quarter % 4) {
    case 0:
      return {c, -sine};
    case 1:
      return {-sine, -c};
    case 2:
      return {-c, sine};
    default:
      return {sine, c};
  }
}

// The n-th roots of unity, each as a product of two numbers of which about 2 sqrt(n) are stored.
class Roots {
 public:
  explicit Roots(int64_t n) : n_(n) {
    while (step_ * step_ < n) step_ *= 2;
    for (int64_t i = 0; i < std::min(step_, n); ++i) near_.push_back(Root(i, n));
    for (int64_t i = 0; i * step_ < n; ++i) far_.push_back(Root(i * step_, n));
  }
  Number operator()(int64_t turns) const {
    turns %= n_;
    return far_[turns / step_] * near_[turns % step_];
  }

 private:
  const int64_t n_;
  int64_t step_ = 1;
  std::vector<Number> near_, far_;
};

template <class T>
void PutNumber(Number x, T* to) {
  to[0] = static_cast<T>(x.real());
  to[1] = static_cast<T>(x.imag());
}

// Returns the prime factors of n, ascending.
std::vector<int64_t> PrimesOf(int64_t n) {
  std::vector<int64_t> primes;
  for (int64_t p = 2; p * p <= n; ++p)
    for (; n % p == 0; n /= p) primes.push_back(p);
  if (n > 1) primes.push_back(n);
  return primes;
}
// Returns the largest divisor of n that is at most its square root.
int64_t LargestDivisorBelowRoot(int64_t n) {
  for (auto a = static_cast<int64_t>(std::sqrt(static_cast<double>(n))); a > 1; --a)
    if (n % a == 0) return a;
  return 1;
}

// Returns the share of the vectors' lanes that are busy if rows of length n are transformed in two
// dims.
template <class T>
double BusyLaneShare(int64_t n) {
  const int64_t rows = LargestDivisorBelowRoot(n), width = BestKernels<T>().width;
  const auto part = [&](int64_t lanes) {
    return static_cast<double>(lanes) / static_cast<double>((lanes + width - 1) / width * width);
  };
  return part(rows) * part(n / rows);
}
template <class T>
bool IsDirect(int64_t n) {
  return n <= kShortMax || (n <= kDirectMax && BusyLaneShare<T>(n) < kBusyMin);
}
// Returns the length, n or more, whose transform of one row takes the least time, approximately.
template <class T>
int64_t QuickLength(int64_t n) {
  const int64_t most = 5 * n / 4 + 16;
  int64_t best = 0;
  double least = 0;
  for (int64_t fives = 1; fives <= most; fives *= 5)
    for (int64_t odd = fives; odd <= most; odd *= 3)
      for (int64_t m = odd; m <= most; m *= 2) {
        if (m < n) continue;
        const double busy = IsDirect<T>(m) ? 1.0 / BestKernels<T>().width : BusyLaneShare<T>(m);
        const double cost = static_cast<double>(m) * std::log2(static_cast<double>(m)) / busy;
        if (best == 0 || cost < least) best = m, least = cost;
      }
  return best;
}

// The passes for one length, and their factors.
template <class T>
class PassTable {
 public:
  PassTable() = default;
  explicit PassTable(int64_t n) : n_(n) {
    std::vector<int64_t> radices;
    int64_t twos = n & -n, odd = n / twos;
    for (; twos >= 64 || twos == 8; twos /= 8) radices.push_back(8);
    for (; twos >= 4; twos /= 4) radices.push_back(4);
    if (twos == 2) radices.push_back(2);
    for (const int64_t p : PrimesOf(odd)) radices.push_back(p);
    const Roots roots(n);
    int64_t l1 = 1;
    for (const int64_t radix : radices) {
      Pass pass{radix, l1, n / (l1 * radix), Size(), 0};
      for (int64_t j = 1; j < radix; ++j)
        for (int64_t i = 0; i < pass.ido; ++i) Add(roots(j * i * l1));
      pass.first_root = Size();
      if (radix > 5 && radix != 8)
        for (int64_t j = 0; j < radix; ++j) Add(std::conj(Root(j, radix)));
      passes_.push_back(pass);
      l1 *= radix;
    }
  }
  PassList<T> pass_list() const {
    return {n_, passes_.data(), static_cast<int64_t>(passes_.size()), factors_.data()};
  }
  int64_t bytes() const { return static_cast<int64_t>(factors_.size() * sizeof(T)); }

 private:
  int64_t Size() const { return static_cast<int64_t>(factors_.size()) / 2; }
  void Add(Number x) {
    factors_.resize(factors_.size() + 2);
    PutNumber(x, factors_.data() + factors_.size() - 2);
  }

  int64_t n_ = 1;
  std::vector<Pass> passes_;
  std::vector<T> factors_;
};

// The tables for transforms of one length. Constant after construction.
template <class T>
struct Plan {
  int64_t n = 0;
  PassTable<T> direct_passes;  // for a direct transform
  // A transform in two dims: `first` transforms the columns. Then the elements are multiplied by
  // the factors in `between`, and `second` transforms the rows.
  bool is_two_dims = false;
  PassTable<T> first, second;
  std::vector<T> between;
  // A transform by a chirp.
  std::vector<T> chirp, spectrum;
  std::shared_ptr<const Plan<T>> inner;
  // Factors for transforms between complex rows and real rows of twice the length.
  std::vector<T> halves;

  int64_t bytes() const {
    const size_t numbers = between.size() + chirp.size() + spectrum.size() + halves.size();
    return direct_passes.bytes() + first.bytes() + second.bytes() +
           static_cast<int64_t>(numbers * sizeof(T)) + (inner ? inner->bytes() : 0);
  }
};

enum class Shape { kRows, kColumns };
template <class T>
using PlanOr = absl::StatusOr<std::shared_ptr<const Plan<T>>>;

template <class T>
PlanOr<T> MakePlan(int64_t n, Shape shape, ParallelFor parallel_for);

// Returns the plan for a length. The plans of the lengths that were used last are kept, up to a
// bound on their bytes. A plan that is larger than the bound is used once and dropped. The tables
// of a long plan are computed in pieces, because they take seconds; the errors are those of
// `parallel_for`.
template <class T>
PlanOr<T> PlanOf(int64_t n, Shape shape, ParallelFor parallel_for) {
  constexpr int64_t kKeptBytesMax = int64_t{32} << 20;  // for each precision
  struct Kept {
    absl::Mutex mu;
    // The plan used last comes first.
    std::list<std::pair<Shape, std::shared_ptr<const Plan<T>>>> plans;
    int64_t bytes = 0;
  };
  static Kept& kept = *new Kept;
  {
    absl::MutexLock lock(&kept.mu);
    for (auto it = kept.plans.begin(); it != kept.plans.end(); ++it) {
      if (it->second->n != n || it->first != shape) continue;
      kept.plans.splice(kept.plans.begin(), kept.plans, it);
      return kept.plans.front().second;
    }
  }
  TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<const Plan<T>> plan,
                           MakePlan<T>(n, shape, parallel_for));
  if (plan->bytes() > kKeptBytesMax / 2) return plan;
  absl::MutexLock lock(&kept.mu);
  kept.plans.emplace_front(shape, plan);
  kept.bytes += plan->bytes();
  while (kept.bytes > kKeptBytesMax) {
    kept.bytes -= kept.plans.back().second->bytes();
    kept.plans.pop_back();
  }
  return plan;
}

template <class T>
class Transformer {
 public:
  explicit Transformer(ParallelFor parallel_for)
      : kernels_(BestKernels<T>()), parallel_for_(parallel_for) {}

  // Rows whose elements are adjacent. Row r begins at the complex number r * stride.
  struct Rows {
    int64_t count = 0;
    const T* in = nullptr;
    int64_t in_stride = 0;
    T* out = nullptr;
    int64_t out_stride = 0;
    bool inverse = false;
    T scale = 1;
  };
  absl::Status TransformRows(const Plan<T>& plan, const Rows& rows) const {
    if (plan.n >= kSharedMin) {
      for (int64_t r = 0; r < rows.count; ++r)
        TESSERA_RETURN_IF_ERROR(TransformRow(plan, Part(rows, r, r + 1), parallel_for_));
      return absl::OkStatus();
    }
    const int64_t at_once = plan.is_two_dims ? 1 : kernels_.width;
    return InGroups(rows.count, at_once, plan.n, [&](int64_t begin, int64_t end) {
      TransformRowsOnThisThread(plan, Part(rows, begin, end));
    });
  }

  // Transforms columns in `outer` blocks; the elements of a column are `inner` apart.
  absl::Status TransformColumns(int64_t outer, int64_t inner, bool inverse, T scale, const T* in,
                                T* out, const Plan<T>& plan) const {
    const int64_t n = plan.n;
    const int64_t width = kernels_.width, groups = (inner + width - 1) / width;
    const auto transform_groups = [&](int64_t begin, int64_t end) {
      const bool direct = plan.direct_passes.pass_list().n == n;
      const Scratch<T> scratch(direct ? 4 * n * width : 2 * n * width);
      for (int64_t g = begin; g < end; ++g) {
        const int64_t column = g % groups * width, lanes = std::min(width, inner - column);
        const int64_t at = 2 * (g / groups * n * inner + column);
        if (direct) {
          kernels_.transform({.pass_list = plan.direct_passes.pass_list(),
                              .in = in + at,
                              .out = out + at,
                              .from = {inner, 1},
                              .to = {inner, 1},
                              .lanes = lanes,
                              .swaps_in = inverse,
                              .swaps_out = inverse,
                              .scale = scale,
                              .scratch = scratch.get()});
          continue;
        }
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < 2 * lanes; ++j)
            scratch.get()[2 * (j / 2 * n + i) + j % 2] = in[at + 2 * i * inner + j];
        TransformRowsOnThisThread(plan,
                                  {lanes, scratch.get(), n, scratch.get(), n, inverse, scale});
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < 2 * lanes; ++j)
            out[at + 2 * i * inner + j] = scratch.get()[2 * (j / 2 * n + i) + j % 2];
      }
    };
    const int64_t all = outer * groups;
    if (n < kSharedMin) return InGroups(all, 1, n * width, transform_groups);
    // Long columns have few parts. They go in rounds of a few tenths of a second, because
    // `parallel_for_` can stop the work between two parts only.
    constexpr int64_t kElementsOfPart = 1 << 24;
    const int64_t round = kLongPartsMax * std::max<int64_t>(kElementsOfPart / (n * width), 1);
    for (int64_t first = 0; first < all; first += round)
      TESSERA_RETURN_IF_ERROR(InGroups(
          std::min(round, all - first), 1, n * width,
          [&](int64_t begin, int64_t end) { transform_groups(first + begin, first + end); },
          kLongPartsMax));
    return absl::OkStatus();
  }

  // Transforms real rows of even length 2 * plan.n by a complex transform of half their length.
  absl::Status FromEven(const Plan<T>& plan, int64_t rows, const T* in, T* out) const {
    const int64_t h = plan.n;
    TESSERA_RETURN_IF_ERROR(TransformRows(plan, {rows, in, h, out, h + 1, false, 1}));
    return InGroups(rows, 1, h, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        T* const x = out + 2 * r * (h + 1);
        const T re = x[0], im = x[1];
        x[0] = re + im, x[1] = 0;
        x[2 * h] = re - im, x[2 * h + 1] = 0;
        for (int64_t k = 1; k <= h / 2; ++k) {
          T *const a = x + 2 * k, *const b = x + 2 * (h - k);
          const T* const w = plan.halves.data() + 2 * k;
          const T even_re = (a[0] + b[0]) / 2, even_im = (a[1] - b[1]) / 2;
          const T odd_re = (a[1] + b[1]) / 2, odd_im = (b[0] - a[0]) / 2;
          const T re_part = odd_re * w[0] - odd_im * w[1];
          const T im_part = odd_re * w[1] + odd_im * w[0];
          a[0] = even_re + re_part, a[1] = even_im + im_part;
          b[0] = even_re - re_part, b[1] = im_part - even_im;
        }
      }
    });
  }
  absl::Status ToEven(const Plan<T>& plan, int64_t rows, T scale, const T* in, T* out) const {
    const int64_t h = plan.n;
    TESSERA_RETURN_IF_ERROR(InGroups(rows, 1, h, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* const x = in + 2 * r * (h + 1);
        T* const z = out + 2 * r * h;
        z[0] = x[0] + x[2 * h], z[1] = x[0] - x[2 * h];
        for (int64_t k = 1; k <= h / 2; ++k) {
          const T *const a = x + 2 * k, *const b = x + 2 * (h - k);
          const T* const w = plan.halves.data() + 2 * k;
          const T even_re = a[0] + b[0], even_im = a[1] - b[1];
          const T re = a[0] - b[0], im = a[1] + b[1];
          // This is the difference times the conjugate of the root.
          const T odd_re = re * w[0] + im * w[1], odd_im = im * w[0] - re * w[1];
          T *const to = z + 2 * k, *const back = z + 2 * (h - k);
          to[0] = even_re - odd_im, to[1] = even_im + odd_re;
          back[0] = even_re + odd_im, back[1] = odd_re - even_im;
        }
      }
    }));
    return TransformRows(plan, {rows, out, h, out, h, true, scale});
  }

  // Transforms real rows of odd length by a complex transform of the same length, plan.n.
  absl::Status FromOdd(const Plan<T>& plan, int64_t rows, const T* in, T* out) const {
    const int64_t n = plan.n, half = n / 2 + 1;
    return ForEachRow(plan, rows, [&](int64_t r, T* z, const auto& transform) {
      for (int64_t i = 0; i < n; ++i) z[2 * i] = in[r * n + i], z[2 * i + 1] = 0;
      TESSERA_RETURN_IF_ERROR(transform(false, 1));
      std::copy(z, z + 2 * half, out + 2 * r * half);
      out[2 * r * half + 1] = 0;
      return absl::OkStatus();
    });
  }
  absl::Status ToOdd(const Plan<T>& plan, int64_t rows, T scale, const T* in, T* out) const {
    const int64_t n = plan.n, half = n / 2 + 1;
    return ForEachRow(plan, rows, [&](int64_t r, T* z, const auto& transform) {
      const T* const x = in + 2 * r * half;
      z[0] = x[0], z[1] = 0;
      for (int64_t i = 1; i < half; ++i) {
        z[2 * i] = z[2 * (n - i)] = x[2 * i];
        z[2 * i + 1] = x[2 * i + 1];
        z[2 * (n - i) + 1] = -x[2 * i + 1];
      }
      TESSERA_RETURN_IF_ERROR(transform(true, scale));
      for (int64_t i = 0; i < n; ++i) out[r * n + i] = z[2 * i];
      return absl::OkStatus();
    });
  }

 private:
  static Rows Part(const Rows& rows, int64_t begin, int64_t end) {
    Rows part = rows;
    part.count = end - begin;
    part.in += 2 * begin * rows.in_stride;
    part.out += 2 * begin * rows.out_stride;
    return part;
  }

  // Calls work(begin, end) for parts of [0, n). The sizes of the parts are multiples of `at_once`
  // if possible.
  template <class F>
  absl::Status InGroups(int64_t n, int64_t at_once, int64_t length, const F& work,
                        int64_t parts_max = kPartsMax) const {
    const int64_t groups = (n + at_once - 1) / at_once, parts = std::min(groups, parts_max);
    const int64_t each = 4 * std::max<int64_t>(n / std::max<int64_t>(parts, 1), 1) * length * 8;
    return parallel_for_(parts, each, [&](int64_t begin, int64_t end) {
      work(groups * begin / parts * at_once, std::min(groups * end / parts * at_once, n));
    });
  }
  // Calls f(row, memory for the row, function that transforms this memory in place).
  template <class F>
  absl::Status ForEachRow(const Plan<T>& plan, int64_t rows, const F& f) const {
    const int64_t n = plan.n;
    if (n >= kSharedMin) {
      const Scratch<T> z(2 * n);
      for (int64_t r = 0; r < rows; ++r)
        TESSERA_RETURN_IF_ERROR(f(r, z.get(), [&](bool inverse, T scale) {
          return TransformRow(plan, {1, z.get(), n, z.get(), n, inverse, scale}, parallel_for_);
        }));
      return absl::OkStatus();
    }
    return InGroups(rows, 1, n, [&](int64_t begin, int64_t end) {
      const Scratch<T> z(2 * n);
      for (int64_t r = begin; r < end; ++r)
        f(r, z.get(), [&](bool inverse, T scale) {
          TransformRowsOnThisThread(plan, {1, z.get(), n, z.get(), n, inverse, scale});
          return absl::OkStatus();
          // TransformRowsOnThisThread runs on this thread only, so there is no error.
        }).IgnoreError();
    });
  }

  // Transforms rows on this thread.
  void TransformRowsOnThisThread(const Plan<T>& plan, const Rows& rows) const {
    if (plan.is_two_dims || plan.inner) {
      for (int64_t r = 0; r < rows.count; ++r)
        // InOrder runs on this thread only, so there is no error.
        TransformRow(plan, Part(rows, r, r + 1), InOrder).IgnoreError();
      return;
    }
    const int64_t width = kernels_.width;
    const Scratch<T> scratch(4 * plan.n * width);
    for (int64_t r = 0; r < rows.count; r += width)
      kernels_.transform({.pass_list = plan.direct_passes.pass_list(),
                          .in = rows.in + 2 * r * rows.in_stride,
                          .out = rows.out + 2 * r * rows.out_stride,
                          .from = {1, rows.in_stride},
                          .to = {1, rows.out_stride},
                          .lanes = std::min(width, rows.count - r),
                          .swaps_in = rows.inverse,
                          .swaps_out = rows.inverse,
                          .scale = rows.scale,
                          .scratch = scratch.get()});
  }

  // Transforms one row, by the method of its plan. In two dims, the columns are transformed and
  // multiplied by the factors between the dims, and then the rows are. The lanes of a vector are
  // neighbouring columns or rows, so that a single row fills the vectors and threads can share it.
  absl::Status TransformRow(const Plan<T>& plan, const Rows& row, ParallelFor parallel_for) const {
    if (plan.inner) return ByChirp(plan, row, parallel_for);
    if (!plan.is_two_dims) {
      TransformRowsOnThisThread(plan, row);
      return absl::OkStatus();
    }
    const Scratch<T> between(2 * plan.n);
    const int64_t rows = plan.first.pass_list().n, cols = plan.second.pass_list().n;
    TESSERA_RETURN_IF_ERROR(
        ForEachLaneGroup(cols, rows, parallel_for, [&](int64_t j, int64_t lanes, T* scratch) {
          kernels_.transform({.pass_list = plan.first.pass_list(),
                              .in = row.in + 2 * j,
                              .out = between.get() + 2 * j,
                              .from = {cols, 1},
                              .to = {cols, 1},
                              .lanes = lanes,
                              .factors = plan.between.data() + 2 * j,
                              .swaps_in = row.inverse,
                              .scratch = scratch});
        }));
    return ForEachLaneGroup(rows, cols, parallel_for, [&](int64_t j, int64_t lanes, T* scratch) {
      kernels_.transform({.pass_list = plan.second.pass_list(),
                          .in = between.get() + 2 * j * cols,
                          .out = row.out + 2 * j,
                          .from = {1, cols},
                          .to = {rows, 1},
                          .lanes = lanes,
                          .swaps_out = row.inverse,
                          .scale = row.scale,
                          .scratch = scratch});
    });
  }
  // Calls f(first lane, number of lanes, scratch) for groups of as many lanes as a vector has, of
  // transforms of n elements.
  template <class F>
  absl::Status ForEachLaneGroup(int64_t lanes, int64_t n, ParallelFor parallel_for,
                                const F& f) const {
    const int64_t width = kernels_.width, groups = (lanes + width - 1) / width;
    const int64_t parts = std::min(groups, kPartsMax);
    return parallel_for(parts, groups / parts * n * width * 16, [&](int64_t begin, int64_t end) {
      const Scratch<T> scratch(4 * n * width);
      const int64_t last = std::min(groups * end / parts * width, lanes);
      for (int64_t j = groups * begin / parts * width; j < last; j += width)
        f(j, std::min(width, last - j), scratch.get());
    });
  }

  // Bluestein's transform. Since k j = (k^2 + j^2 - (k - j)^2) / 2, it is a product with a chirp, a
  // convolution with the chirp's conjugate, whose transform is the plan's spectrum, and a product
  // again.
  absl::Status ByChirp(const Plan<T>& plan, const Rows& row, ParallelFor parallel_for) const {
    const int64_t n = plan.n, m = plan.inner->n;
    const Scratch<T> scratch(2 * m);
    T* const z = scratch.get();
    kernels_.multiply({n, row.in, plan.chirp.data(), z, row.inverse, false, 1});
    std::fill(z + 2 * n, z + 2 * m, T{0});
    TESSERA_RETURN_IF_ERROR(TransformRow(*plan.inner, {1, z, m, z, m, false, 1}, parallel_for));
    kernels_.multiply({m, z, plan.spectrum.data(), z, false, false, 1});
    TESSERA_RETURN_IF_ERROR(TransformRow(*plan.inner, {1, z, m, z, m, true, 1}, parallel_for));
    kernels_.multiply({n, z, plan.chirp.data(), row.out, false, row.inverse, row.scale});
    return absl::OkStatus();
  }

  const Kernels<T>& kernels_;
  const ParallelFor parallel_for_;
};

// The cost of a root of unity in a table, in the unit of ParallelFor.
constexpr int64_t kCostOfRoot = 64;

template <class T>
absl::Status SetTwoDims(int64_t n, Plan<T>* plan, ParallelFor parallel_for) {
  const int64_t rows = LargestDivisorBelowRoot(n), cols = n / rows;
  plan->is_two_dims = true;
  plan->first = PassTable<T>(rows);
  plan->second = PassTable<T>(cols);
  plan->between.resize(2 * n);
  const Roots roots(n);
  return parallel_for(rows, cols * kCostOfRoot, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      for (int64_t j = 0; j < cols; ++j)
        PutNumber(roots(k * j), plan->between.data() + 2 * (k * cols + j));
  });
}
template <class T>
absl::Status SetChirp(int64_t n, Plan<T>* plan, ParallelFor parallel_for) {
  const int64_t m = QuickLength<T>(2 * n - 1);
  TESSERA_ASSIGN_OR_RETURN(plan->inner, PlanOf<T>(m, Shape::kRows, parallel_for));
  plan->chirp.resize(2 * n);
  plan->spectrum.assign(2 * m, T{0});
  const Roots roots(2 * n);
  TESSERA_RETURN_IF_ERROR(parallel_for(n, 2 * kCostOfRoot, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Number root = roots(i * i % (2 * n));  // i < LengthMax, so the square fits
      PutNumber(root, plan->chirp.data() + 2 * i);
      const Number back = std::conj(root) / static_cast<long double>(m);
      PutNumber(back, plan->spectrum.data() + 2 * i);
      if (i > 0) PutNumber(back, plan->spectrum.data() + 2 * (m - i));
    }
  }));
  T* const z = plan->spectrum.data();
  return Transformer<T>(parallel_for).TransformRows(*plan->inner, {1, z, m, z, m, false, 1});
}

template <class T>
PlanOr<T> MakePlan(int64_t n, Shape shape, ParallelFor parallel_for) {
  auto plan = std::make_shared<Plan<T>>();
  plan->n = n;
  const std::vector<int64_t> primes = PrimesOf(n);
  if (!primes.empty() && primes.back() > kRadixMax) {
    TESSERA_RETURN_IF_ERROR(SetChirp(n, plan.get(), parallel_for));
  } else if (shape == Shape::kRows ? IsDirect<T>(n) : n <= kDirectMax) {
    plan->direct_passes = PassTable<T>(n);
  } else {
    TESSERA_RETURN_IF_ERROR(SetTwoDims(n, plan.get(), parallel_for));
  }
  if (shape == Shape::kColumns) return plan;
  plan->halves.resize(2 * (n / 2 + 1));
  const Roots roots(2 * n);
  TESSERA_RETURN_IF_ERROR(parallel_for(n / 2 + 1, kCostOfRoot, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) PutNumber(roots(k), plan->halves.data() + 2 * k);
  }));
  return plan;
}

}  // namespace

absl::Status InOrder(int64_t n, int64_t, Work work) {
  if (n > 0) work(0, n);
  return absl::OkStatus();
}

template <class T>
absl::Status Transform(int64_t outer, int64_t n, int64_t inner, bool inverse, T scale, const T* in,
                       T* out, ParallelFor parallel_for) {
  const Transformer<T> transformer(parallel_for);
  TESSERA_ASSIGN_OR_RETURN(const auto plan,
                           PlanOf<T>(n, inner == 1 ? Shape::kRows : Shape::kColumns, parallel_for));
  if (inner == 1) return transformer.TransformRows(*plan, {outer, in, n, out, n, inverse, scale});
  return transformer.TransformColumns(outer, inner, inverse, scale, in, out, *plan);
}

template <class T>
absl::Status FromReal(int64_t rows, int64_t n, const T* in, T* out, ParallelFor parallel_for) {
  const Transformer<T> transformer(parallel_for);
  TESSERA_ASSIGN_OR_RETURN(const auto plan,
                           PlanOf<T>(n % 2 == 0 ? n / 2 : n, Shape::kRows, parallel_for));
  if (n % 2 == 0) return transformer.FromEven(*plan, rows, in, out);
  return transformer.FromOdd(*plan, rows, in, out);
}
template <class T>
absl::Status ToReal(int64_t rows, int64_t n, T scale, const T* in, T* out,
                    ParallelFor parallel_for) {
  const Transformer<T> transformer(parallel_for);
  TESSERA_ASSIGN_OR_RETURN(const auto plan,
                           PlanOf<T>(n % 2 == 0 ? n / 2 : n, Shape::kRows, parallel_for));
  if (n % 2 == 0) return transformer.ToEven(*plan, rows, scale, in, out);
  return transformer.ToOdd(*plan, rows, scale, in, out);
}

int64_t LengthMax(int64_t n) {
  const std::vector<int64_t> primes = PrimesOf(n);
  return int64_t{1} << (!primes.empty() && primes.back() > kRadixMax ? 26 : 28);
}

int64_t ScratchBytes(int64_t rows, int64_t n, int64_t width, bool are_columns) {
  // A chirp is transformed at a length of about 5 / 4 * 2 n at most (QuickLength).
  constexpr int64_t kVectorBytes = 64;
  const int64_t m = 3 * n + 16;
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(m)) * kRadixMax) + 1;
  const int64_t vector_bytes = 4 * kVectorBytes * std::min(side, m);
  const int64_t plan_bytes = 6 * (2 * m) * width;
  int64_t part_bytes =
      2 * (2 * m) * width + std::max(vector_bytes, 4 * kVectorBytes * std::min(n, kDirectMax));
  if (are_columns) part_bytes += 2 * n * kVectorBytes;
  const int64_t parts = n < kSharedMin ? kPartsMax : are_columns ? kLongPartsMax : 1;
  return plan_bytes + part_bytes * std::min(rows, parts) + kPartsMax * vector_bytes;
}

namespace {
template <class T>
KernelList<T> SupportedKernels(const Kernels<T>& plain, [[maybe_unused]] const Kernels<T>* avx2,
                               [[maybe_unused]] const Kernels<T>* avx512) {
  KernelList<T> list = {{&plain}, 1};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    list.kernels[list.count++] = avx2;
  if (list.count == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
    list.kernels[list.count++] = avx512;
#endif
  return list;
}
}  // namespace
#ifdef __x86_64__
template <>
KernelList<float> AllKernels() {
  return SupportedKernels(kPlainOfF32, &kAvx2OfF32, &kAvx512OfF32);
}
template <>
KernelList<double> AllKernels() {
  return SupportedKernels(kPlainOfF64, &kAvx2OfF64, &kAvx512OfF64);
}
#else
template <>
KernelList<float> AllKernels() {
  return SupportedKernels<float>(kPlainOfF32, nullptr, nullptr);
}
template <>
KernelList<double> AllKernels() {
  return SupportedKernels<double>(kPlainOfF64, nullptr, nullptr);
}
#endif
template <>
const Kernels<float>& BestKernels() {
  const KernelList<float> all = AllKernels<float>();
  return *all.kernels[all.count - 1];
}
template <>
const Kernels<double>& BestKernels() {
  const KernelList<double> all = AllKernels<double>();
  return *all.kernels[all.count - 1];
}
template absl::Status Transform(int64_t, int64_t, int64_t, bool, float, const float*, float*,
                                ParallelFor);
template absl::Status Transform(int64_t, int64_t, int64_t, bool, double, const double*, double*,
                                ParallelFor);
template absl::Status FromReal(int64_t, int64_t, const float*, float*, ParallelFor);
template absl::Status FromReal(int64_t, int64_t, const double*, double*, ParallelFor);
template absl::Status ToReal(int64_t, int64_t, float, const float*, float*, ParallelFor);
template absl::Status ToReal(int64_t, int64_t, double, const double*, double*, ParallelFor);

}  // namespace tessera::ir::fourier
