// The code of ir/fourier/kernels.h, as templates over the number of elements in a vector. One file
// for each instruction set includes it. Everything in it is therefore in an anonymous namespace,
// and it calls nothing from the standard library that could be compiled out of line: the linker
// would keep only one of the copies, and its instructions might not exist on the machine.
#pragma once
#include <cstdint>
#include <utility>

#include "ir/fourier/kernels.h"

namespace tessera::ir::fourier {
namespace {

// Type is a vector of W elements of type T. Loose is such a vector at an address that is aligned
// only for T.
template <class T, int W>
struct VectorOf {
  typedef T Type __attribute__((vector_size(W * sizeof(T)), aligned(W * sizeof(T))));
  typedef T Loose __attribute__((vector_size(W * sizeof(T)), aligned(alignof(T))));
};

template <class T, int W>
struct Vectors {
  using V = typename VectorOf<T, W>::Type;
  using Loose = typename VectorOf<T, W>::Loose;
  // The complex numbers re + i im, one for each lane.
  struct C {
    V re, im;
    friend C operator+(const C& a, const C& b) { return {a.re + b.re, a.im + b.im}; }
    friend C operator-(const C& a, const C& b) { return {a.re - b.re, a.im - b.im}; }
  };
  static V Load(const T* p) { return *reinterpret_cast<const Loose*>(p); }
  static void Store(T* p, V v) { *reinterpret_cast<Loose*>(p) = v; }
  static C Times(const C& a, T re, T im) { return {a.re * re - a.im * im, a.re * im + a.im * re}; }
  static C Times(const C& a, const C& b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
  static C Scaled(const C& a, T by) { return {a.re * by, a.im * by}; }
  // Returns -i a.
  static C Turned(const C& a) { return {a.im, -a.re}; }

  // ---- Order within vectors. ----
  template <int H, int... E>
  static void SwapBlocks(V& a, V& b, std::integer_sequence<int, E...>) {
    const V low = __builtin_shufflevector(a, b, ((E & H) ? W + E - H : E)...);
    const V high = __builtin_shufflevector(a, b, ((E & H) ? W + E : E + H)...);
    a = low;
    b = high;
  }
  template <int H>
  static void SwapAll(V* rows) {
    for (int i = 0; i < W; ++i)
      if ((i & H) == 0) SwapBlocks<H>(rows[i], rows[i + H], std::make_integer_sequence<int, W>());
  }
  // Moves element j of row i to element i of row j.
  static void Transpose(V* rows) {
    if constexpr (W >= 16) SwapAll<8>(rows);
    if constexpr (W >= 8) SwapAll<4>(rows);
    if constexpr (W >= 4) SwapAll<2>(rows);
    SwapAll<1>(rows);
  }
  template <int... E>
  static C Parts(V a, V b, std::integer_sequence<int, E...>) {
    return {__builtin_shufflevector(a, b, (2 * E)...),
            __builtin_shufflevector(a, b, (2 * E + 1)...)};
  }
  template <int... E>
  static void StoreParts(const C& c, T* p, std::integer_sequence<int, E...>) {
    Store(p, __builtin_shufflevector(c.re, c.im, (E / 2 + (E % 2) * W)...));
    Store(p + W, __builtin_shufflevector(c.re, c.im, (W / 2 + E / 2 + (E % 2) * W)...));
  }
  // Loads W adjacent complex numbers.
  static C LoadNumbers(const T* p) {
    return Parts(Load(p), Load(p + W), std::make_integer_sequence<int, W>());
  }
  static void StoreNumbers(const C& c, T* p) {
    StoreParts(c, p, std::make_integer_sequence<int, W>());
  }
};

// ---- Transforms of few elements. ----

// Computes the sums of x_k exp(-2 pi i j k / R) over R elements x, in place.
template <class T, int W, int R>
struct Butterfly;

template <class T, int W>
struct Butterfly<T, W, 2> {
  using C = typename Vectors<T, W>::C;
  static void Run(C* x) {
    const C a = x[0], b = x[1];
    x[0] = a + b;
    x[1] = a - b;
  }
};
template <class T, int W>
struct Butterfly<T, W, 3> {
  using Vs = Vectors<T, W>;
  using C = typename Vs::C;
  static void Run(C* x) {
    constexpr T kSin = static_cast<T>(0.86602540378443864676);
    const C sum = x[1] + x[2], turned = Vs::Turned(Vs::Scaled(x[1] - x[2], kSin));
    const C base = x[0] - Vs::Scaled(sum, static_cast<T>(0.5));
    x[0] = x[0] + sum;
    x[1] = base + turned;
    x[2] = base - turned;
  }
};
template <class T, int W>
struct Butterfly<T, W, 4> {
  using Vs = Vectors<T, W>;
  using C = typename Vs::C;
  static void Run(C* x) {
    const C a = x[0] + x[2], b = x[0] - x[2], c = x[1] + x[3], d = Vs::Turned(x[1] - x[3]);
    x[0] = a + c;
    x[1] = b + d;
    x[2] = a - c;
    x[3] = b - d;
  }
};
template <class T, int W>
struct Butterfly<T, W, 5> {
  using Vs = Vectors<T, W>;
  using C = typename Vs::C;
  static void Run(C* x) {
    constexpr T kCos1 = static_cast<T>(0.30901699437494742410);
    constexpr T kCos2 = static_cast<T>(-0.80901699437494742410);
    constexpr T kSin1 = static_cast<T>(0.95105651629515357212);
    constexpr T kSin2 = static_cast<T>(0.58778525229247312917);
    const C s1 = x[1] + x[4], d1 = x[1] - x[4], s2 = x[2] + x[3], d2 = x[2] - x[3];
    const C c1 = x[0] + (Vs::Scaled(s1, kCos1) + Vs::Scaled(s2, kCos2));
    const C c2 = x[0] + (Vs::Scaled(s1, kCos2) + Vs::Scaled(s2, kCos1));
    const C t1 = Vs::Turned(Vs::Scaled(d1, kSin1) + Vs::Scaled(d2, kSin2));
    const C t2 = Vs::Turned(Vs::Scaled(d1, kSin2) - Vs::Scaled(d2, kSin1));
    x[0] = x[0] + s1 + s2;
    x[1] = c1 + t1;
    x[4] = c1 - t1;
    x[2] = c2 + t2;
    x[3] = c2 - t2;
  }
};
template <class T, int W>
struct Butterfly<T, W, 8> {
  using Vs = Vectors<T, W>;
  using C = typename Vs::C;
  static void Run(C* x) {
    constexpr T kRoot = static_cast<T>(0.70710678118654752440);
    C even[4] = {x[0], x[2], x[4], x[6]}, odd[4] = {x[1], x[3], x[5], x[7]};
    Butterfly<T, W, 4>::Run(even);
    Butterfly<T, W, 4>::Run(odd);
    // Multiply by exp(-2 pi i j / 8).
    const C a = odd[1], b = odd[3];
    odd[1] = Vs::Scaled(C{a.re + a.im, a.im - a.re}, kRoot);
    odd[2] = Vs::Turned(odd[2]);
    odd[3] = Vs::Scaled(C{b.im - b.re, -b.re - b.im}, kRoot);
    for (int j = 0; j < 4; ++j) {
      x[j] = even[j] + odd[j];
      x[j + 4] = even[j] - odd[j];
    }
  }
};

// Transforms an odd prime number of elements. In the sums, elements k and R - k have the same
// cosines, and sines of opposite sign. `roots` holds the cosines and sines of 2 pi m / radix.
template <class T, int W, class Get, class Put>
void OddPrime(int64_t radix, const T* roots, const Get& get, const Put& put) {
  using Vs = Vectors<T, W>;
  using C = typename Vs::C;
  const int64_t half = radix / 2;
  C sums[kRadixMax / 2 + 1], differences[kRadixMax / 2 + 1];
  const C first = get(0);
  C all = first;
  for (int64_t k = 1; k <= half; ++k) {
    const C a = get(k), b = get(radix - k);
    sums[k] = a + b;
    differences[k] = a - b;
    all = all + sums[k];
  }
  put(0, all);
  for (int64_t j = 1; j <= half; ++j) {
    C even = first, odd = Vs::Scaled(differences[1], roots[2 * j + 1]);
    even = even + Vs::Scaled(sums[1], roots[2 * j]);
    int64_t turns = j;
    for (int64_t k = 2; k <= half; ++k) {
      turns += j;
      if (turns >= radix) turns -= radix;
      even = even + Vs::Scaled(sums[k], roots[2 * turns]);
      odd = odd + Vs::Scaled(differences[k], roots[2 * turns + 1]);
    }
    const C turned = Vs::Turned(odd);
    put(j, even + turned);
    put(radix - j, even - turned);
  }
}

template <class T, int W, int R>
void RunPass(const Pass& pass, const T* factors, const typename Vectors<T, W>::C* in,
             typename Vectors<T, W>::C* out) {
  using Vs = Vectors<T, W>;
  using C = typename Vs::C;
  const T* const twiddles = factors + 2 * pass.first_twiddle;
  const int64_t ido = pass.ido, l1 = pass.l1;
  for (int64_t k = 0; k < l1; ++k) {
    const C* const from = in + ido * R * k;
    C* const to = out + ido * k;
    for (int64_t i = 0; i < ido; ++i) {
      C x[R];
      for (int j = 0; j < R; ++j) x[j] = from[i + ido * j];
      Butterfly<T, W, R>::Run(x);
      to[i] = x[0];
      if (i == 0) {
        for (int j = 1; j < R; ++j) to[ido * l1 * j] = x[j];
        continue;
      }
      for (int j = 1; j < R; ++j) {
        const T* const w = twiddles + 2 * ((j - 1) * ido + i);
        to[i + ido * l1 * j] = Vs::Times(x[j], w[0], w[1]);
      }
    }
  }
}
template <class T, int W>
void RunOddPass(const Pass& pass, const T* factors, const typename Vectors<T, W>::C* in,
                typename Vectors<T, W>::C* out) {
  using Vs = Vectors<T, W>;
  using C = typename Vs::C;
  const T* const twiddles = factors + 2 * pass.first_twiddle;
  const T* const roots = factors + 2 * pass.first_root;
  const int64_t ido = pass.ido, l1 = pass.l1, radix = pass.radix;
  for (int64_t k = 0; k < l1; ++k) {
    const C* const from = in + ido * radix * k;
    C* const to = out + ido * k;
    for (int64_t i = 0; i < ido; ++i) {
      OddPrime<T, W>(
          radix, roots, [&](int64_t j) { return from[i + ido * j]; },
          [&](int64_t j, const C& x) {
            const T* const w = twiddles + 2 * ((j - 1) * ido + i);
            to[i + ido * l1 * j] = j == 0 || i == 0 ? x : Vs::Times(x, w[0], w[1]);
          });
    }
  }
}

template <class T, int W>
struct Runner {
  using Vs = Vectors<T, W>;
  using V = typename Vs::V;
  using C = typename Vs::C;

  // ---- Loads and stores: one vector for each element. ----
  static C Swapped(const C& c, bool swaps) { return swaps ? C{c.im, c.re} : c; }

  static void LoadOne(const LaneArgs<T>& l, int64_t i, C* to) {
    C c = {};
    for (int64_t j = 0; j < l.lanes; ++j) {
      const T* const p = l.in + 2 * (i * l.from.element + j * l.from.lane);
      c.re[j] = p[0];
      c.im[j] = p[1];
    }
    *to = Swapped(c, l.swaps_in);
  }
  static void StoreOne(const LaneArgs<T>& l, int64_t i, const C& from) {
    const C c = Swapped(from, l.swaps_out);
    for (int64_t j = 0; j < l.lanes; ++j) {
      T* const p = l.out + 2 * (i * l.to.element + j * l.to.lane);
      p[0] = c.re[j];
      p[1] = c.im[j];
    }
  }
  static void LoadAll(const LaneArgs<T>& l, C* to) {
    const int64_t n = l.pass_list.n;
    int64_t i = 0;
    if (l.lanes == W && l.from.lane == 1) {
      for (; i < n; ++i)
        to[i] = Swapped(Vs::LoadNumbers(l.in + 2 * i * l.from.element), l.swaps_in);
    } else if (l.lanes == W && l.from.element == 1) {
      for (; i + W / 2 <= n; i += W / 2) {
        V rows[W];
        for (int j = 0; j < W; ++j) rows[j] = Vs::Load(l.in + 2 * (i + j * l.from.lane));
        Vs::Transpose(rows);
        for (int k = 0; k < W / 2; ++k)
          to[i + k] = Swapped({rows[2 * k], rows[2 * k + 1]}, l.swaps_in);
      }
    }
    for (; i < n; ++i) LoadOne(l, i, to + i);
  }
  static C Factor(const LaneArgs<T>& l, int64_t i) {
    if (l.lanes == W && l.to.lane == 1) return Vs::LoadNumbers(l.factors + 2 * i * l.to.element);
    C c = {};
    for (int64_t j = 0; j < l.lanes; ++j) {
      const T* const p = l.factors + 2 * (i * l.to.element + j * l.to.lane);
      c.re[j] = p[0];
      c.im[j] = p[1];
    }
    return c;
  }
  static void StoreAll(const LaneArgs<T>& l, C* from) {
    const int64_t n = l.pass_list.n;
    if (l.factors != nullptr)
      for (int64_t i = 0; i < n; ++i) from[i] = Vs::Times(from[i], Factor(l, i));
    if (l.scale != 1)
      for (int64_t i = 0; i < n; ++i) from[i] = Vs::Scaled(from[i], l.scale);
    int64_t i = 0;
    if (l.lanes == W && l.to.lane == 1) {
      for (; i < n; ++i)
        Vs::StoreNumbers(Swapped(from[i], l.swaps_out), l.out + 2 * i * l.to.element);
    } else if (l.lanes == W && l.to.element == 1) {
      for (; i + W / 2 <= n; i += W / 2) {
        V rows[W];
        for (int k = 0; k < W / 2; ++k) {
          const C c = Swapped(from[i + k], l.swaps_out);
          rows[2 * k] = c.re;
          rows[2 * k + 1] = c.im;
        }
        Vs::Transpose(rows);
        for (int j = 0; j < W; ++j) Vs::Store(l.out + 2 * (i + j * l.to.lane), rows[j]);
      }
    }
    for (; i < n; ++i) StoreOne(l, i, from[i]);
  }

  static void Multiply(const ProductArgs<T>& p) {
    const auto part = [&](const T* in, const T* by, T* out) {
      const C x = Vs::Times(Swapped(Vs::LoadNumbers(in), p.swaps_in), Vs::LoadNumbers(by));
      Vs::StoreNumbers(Swapped(Vs::Scaled(x, p.scale), p.swaps_out), out);
    };
    int64_t i = 0;
    for (; i + W <= p.n; i += W) part(p.in + 2 * i, p.factors + 2 * i, p.out + 2 * i);
    if (i == p.n) return;
    T in[2 * W] = {}, by[2 * W] = {}, out[2 * W];
    for (int64_t j = 0; j < 2 * (p.n - i); ++j)
      in[j] = p.in[2 * i + j], by[j] = p.factors[2 * i + j];
    part(in, by, out);
    for (int64_t j = 0; j < 2 * (p.n - i); ++j) p.out[2 * i + j] = out[j];
  }

  static void Run(const LaneArgs<T>& l) {
    C* from = reinterpret_cast<C*>(l.scratch);
    C* to = from + l.pass_list.n;
    LoadAll(l, from);
    for (int64_t p = 0; p < l.pass_list.num_passes; ++p) {
      const Pass& pass = l.pass_list.passes[p];
      const T* const factors = l.pass_list.factors;
      switch (pass.radix) {
        case 2:
          RunPass<T, W, 2>(pass, factors, from, to);
          break;
        case 3:
          RunPass<T, W, 3>(pass, factors, from, to);
          break;
        case 4:
          RunPass<T, W, 4>(pass, factors, from, to);
          break;
        case 5:
          RunPass<T, W, 5>(pass, factors, from, to);
          break;
        case 8:
          RunPass<T, W, 8>(pass, factors, from, to);
          break;
        default:
          RunOddPass<T, W>(pass, factors, from, to);
      }
      C* const swapped = from;
      from = to;
      to = swapped;
    }
    StoreAll(l, from);
  }
};

}  // namespace
}  // namespace tessera::ir::fourier
