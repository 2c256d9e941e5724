// Sorts rows for the sort steps of a program; program_run.cc calls Sort. A row is sorted in one of
// three ways: its values alone, its keys together with the positions of their elements, or a
// selection of the first few elements. The bits are those of the reference evaluator.
#include "worker/cpu/sort.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "ir/array.h"

namespace tessera::worker {
namespace {

using ir::DType;

constexpr int64_t kElementsPerPoll = 1 << 20;       // elements of a row between two polls
constexpr int64_t kElementsPerThreadMin = 1 << 15;  // elements that are worth a thread
constexpr int64_t kInsertionSortMax = 32;  // rows of at most this length are sorted by insertion
// The most elements that are selected without sorting the whole row.
constexpr int64_t kSelectedMax = 1 << 16;
constexpr int64_t kDigitValues = 256;  // a digit of the radix sort is a byte of the key
constexpr int64_t kAlignment = 64;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// ---- Keys: unsigned numbers in the order of the elements. ---------------------------------------

template <class U>
constexpr U kSign = U(U{1} << (8 * sizeof(U) - 1));

template <class U>
struct UnsignedKey {
  using Bits = U;
  U operator()(U bits) const { return bits; }
};
template <class U>
struct SignedKey {
  using Bits = U;
  U operator()(U bits) const { return bits ^ kSign<U>; }
};
// The key of IEEE's total order: by the sign, then by the magnitude. It orders NaNs, too.
template <class U>
struct TotalKey {
  using Bits = U;
  U operator()(U bits) const { return (bits & kSign<U>) != 0 ? U(~bits) : U(bits | kSign<U>); }
};
// The key of a float in ascending order. Both zeros have the same key. All NaNs have the same key,
// which is greater than that of any number.
template <class U, U kInfinity>
struct FloatKey {
  using Bits = U;
  static bool IsNaN(U bits) { return U(bits & ~kSign<U>) > kInfinity; }
  static bool IsZero(U bits) { return U(bits << 1) == 0; }
  static constexpr U kZero = kSign<U>, kNaN = U(~U{0});
  U operator()(U bits) const {
    if (IsNaN(bits)) return kNaN;
    if (IsZero(bits)) return kZero;
    return TotalKey<U>()(bits);
  }
};
// The key of a dtype of one byte, from a table.
struct ByteKey {
  using Bits = uint8_t;
  const std::array<uint8_t, 256>* table;
  uint8_t operator()(uint8_t bits) const { return (*table)[bits]; }
};
template <class Key>
struct Descending {
  using Bits = typename Key::Bits;
  Key key;
  Bits operator()(Bits bits) const { return Bits(~key(bits)); }
};

using ByteTable = std::array<uint8_t, 256>;

ByteTable MakeByteTable(DType dtype) {
  ir::Array all(dtype, {256});
  for (int i = 0; i < 256; ++i) all.MutableData()[i] = static_cast<std::byte>(i);
  const auto value = [&](int i) {
    return ir::IsFloat(dtype) ? all.At(i) : static_cast<double>(all.IntAt(i));
  };
  std::vector<double> numbers;
  for (int i = 0; i < 256; ++i)
    if (!std::isnan(value(i))) numbers.push_back(value(i));
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  ByteTable table{};
  for (int i = 0; i < 256; ++i)
    table[i] = static_cast<uint8_t>(
        std::isnan(value(i))
            ? static_cast<std::ptrdiff_t>(numbers.size())
            : std::lower_bound(numbers.begin(), numbers.end(), value(i)) - numbers.begin());
  return table;
}

const ByteTable& ByteTableOf(DType dtype) {
  static const auto* const tables = [] {
    auto* all = new std::array<ByteTable, ir::kNumDTypes>();
    for (int d = 0; d < ir::kNumDTypes; ++d)
      if (ir::ByteWidth(static_cast<DType>(d)) == 1)
        (*all)[d] = MakeByteTable(static_cast<DType>(d));
    return all;
  }();
  return (*tables)[static_cast<int>(dtype)];
}

// Calls f with the key function of the dtype, which must not be complex.
template <class F>
void WithKeyFunction(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kF64:
      return f(FloatKey<uint64_t, 0x7ff0000000000000>());
    case DType::kF32:
      return f(FloatKey<uint32_t, 0x7f800000>());
    case DType::kF16:
      return f(FloatKey<uint16_t, 0x7c00>());
    case DType::kBF16:
      return f(FloatKey<uint16_t, 0x7f80>());
    default:
      break;
  }
  const bool is_signed = ir::IsSignedInt(dtype);
  switch (ir::ByteWidth(dtype)) {
    case 8:
      return is_signed ? f(SignedKey<uint64_t>()) : f(UnsignedKey<uint64_t>());
    case 4:
      return is_signed ? f(SignedKey<uint32_t>()) : f(UnsignedKey<uint32_t>());
    case 2:
      return is_signed ? f(SignedKey<uint16_t>()) : f(UnsignedKey<uint16_t>());
    default:
      return f(ByteKey{&ByteTableOf(dtype)});
  }
}
template <class F>
void WithKeyFunction(DType dtype, bool descending, const F& f) {
  if (!descending) return WithKeyFunction(dtype, f);
  switch (dtype) {
    case DType::kF64:
      return f(Descending<TotalKey<uint64_t>>());
    case DType::kF32:
      return f(Descending<TotalKey<uint32_t>>());
    case DType::kF16:
    case DType::kBF16:
      return f(Descending<TotalKey<uint16_t>>());
    default:
      return WithKeyFunction(dtype, [&](auto key) { f(Descending<decltype(key)>{key}); });
  }
}

// ---- Sorted elements: keys with or without the positions of their elements in the row. ----------

template <class U>
struct KeyElement {
  U key;
};
struct PackedElement {
  uint64_t bits;
  static PackedElement Of(uint64_t key, int64_t index) {
    return {key << 32 | static_cast<uint64_t>(index)};
  }
  uint64_t key() const { return bits >> 32; }
  int64_t index() const { return static_cast<int64_t>(bits & 0xffffffff); }
};
struct WideElement {
  uint64_t bits;
  uint32_t at;
  static WideElement Of(uint64_t key, int64_t index) { return {key, static_cast<uint32_t>(index)}; }
  uint64_t key() const { return bits; }
  int64_t index() const { return at; }
};
template <class U>
U KeyOf(const KeyElement<U>& e) {
  return e.key;
}
inline uint64_t KeyOf(const PackedElement& e) { return e.key(); }
inline uint64_t KeyOf(const WideElement& e) { return e.key(); }

// Orders elements by their keys, and elements with equal keys by their positions.
inline bool IsBefore(const PackedElement& a, const PackedElement& b) { return a.bits < b.bits; }
inline bool IsBefore(const WideElement& a, const WideElement& b) {
  return a.bits != b.bits ? a.bits < b.bits : a.at < b.at;
}

// ---- How the work is split. ---------------------------------------------------------------------

// Returns whether the values are sorted without their positions. This takes a single operand, of
// more than one byte per element, that is sorted in ascending order and kept whole, and no indices
// in the result.
bool SortsKeysOnly(const SortShape& s) {
  return s.dtypes.size() == 1 && !s.has_indices && !s.descending && s.kept == s.n &&
         ir::ByteWidth(s.dtypes[0]) > 1;
}

int64_t ElementBytes(const SortShape& s) {
  if (SortsKeysOnly(s)) return ir::ByteWidth(s.dtypes[0]);
  for (int k = 0; k < s.num_keys; ++k)
    if (ir::ByteWidth(s.dtypes[k]) > 4) return sizeof(WideElement);
  return sizeof(PackedElement);
}

struct WorkSplit {
  // The number of pieces into which the rows are divided. Pieces run at the same time.
  int64_t pieces = 1;
  // The number of threads that work on one row.
  int64_t threads = 1;
  // The number of elements of a chunk, and the number of chunks of a row. Threads share a row by
  // chunk, and poll the cancellation flag between chunks.
  int64_t chunk = 0, chunks = 0;
  // Whether the elements that are kept are found first, and only these are sorted.
  bool selects = false;
  // The number of elements that the scratch memory of a piece holds.
  int64_t elements = 0;
  int64_t piece_bytes = 0;

  WorkSplit(const SortShape& s, int num_threads) {
    const int64_t rows = s.rows();
    const bool threads_share_rows = rows < num_threads && s.n >= 2 * kElementsPerThreadMin;
    if (threads_share_rows) {
      threads = num_threads;
    } else {
      pieces = std::clamp<int64_t>(rows * s.n / kElementsPerThreadMin, 1,
                                   std::min<int64_t>(rows, num_threads));
    }
    chunk =
        std::clamp(CeilDiv(s.n, threads), std::min(s.n, kElementsPerThreadMin), kElementsPerPoll);
    chunks = CeilDiv(s.n, chunk);
    threads = std::min(threads, chunks);
    selects = s.num_keys == 1 && !SortsKeysOnly(s) && s.kept <= kSelectedMax &&
              s.kept <= s.n / 8 / threads;
    elements = selects ? threads * 2 * s.kept : 2 * s.n;
    piece_bytes = Aligned(elements * ElementBytes(s));
    if (!selects) piece_bytes += chunks * kDigitValues * static_cast<int64_t>(sizeof(uint32_t));
  }
};

// ---- Sorting. -----------------------------------------------------------------------------------

struct SortJob {
  const SortShape& shape;
  const SortMemory& memory;
  const WorkSplit split;
  ThreadPool& threads;
  absl::FunctionRef<bool()> cancelled;
};

template <class Bits>
Bits Load(const std::byte* data, int64_t at) {
  Bits bits;
  std::memcpy(&bits, data + at * static_cast<int64_t>(sizeof(Bits)), sizeof bits);
  return bits;
}
template <class Bits>
void Store(std::byte* data, int64_t at, Bits bits) {
  std::memcpy(data + at * static_cast<int64_t>(sizeof(Bits)), &bits, sizeof bits);
}

// Sorts one row after the other, in scratch memory of its own.
template <class Element>
class RowSorter {
 public:
  RowSorter(const SortJob& job, int64_t piece) : job_(job), s_(job.shape), split_(job.split) {
    std::byte* const scratch = job.memory.scratch + piece * split_.piece_bytes;
    from_ = reinterpret_cast<Element*>(scratch);
    to_ = from_ + s_.n;
    counts_ =
        reinterpret_cast<uint32_t*>(scratch + Aligned(split_.elements * int64_t{sizeof(Element)}));
  }

  // Returns false if the sort is cancelled.
  bool SortValues(int64_t row) {
    bool ok = false;
    WithKeyFunction(s_.dtypes[0], [&](auto key) {
      if constexpr (std::is_same_v<Element, KeyElement<typename decltype(key)::Bits>>)
        ok = SortValues(row, key);
    });
    return ok;
  }

  bool SortWithPlaces(int64_t row) {
    bool ok = true;
    for (int k = s_.num_keys - 1; ok && k >= 0; --k)
      WithKeyFunction(s_.dtypes[k], s_.descending, [&](auto key) {
        if constexpr (sizeof(typename decltype(key)::Bits) <= kKeyBytes) {
          ok = split_.selects
                   ? Select(row, key)
                   : ReadKeys(row, k, key) && RadixSort(sizeof(typename decltype(key)::Bits));
        }
      });
    return ok && WriteResults(row);
  }

 private:
  static constexpr size_t kKeyBytes = std::is_same_v<Element, PackedElement> ? 4 : 8;

  // Calls f(chunk, begin, end) for the chunks of the first n elements of a row. Returns false if
  // some chunks may be left out because of a cancel.
  template <class F>
  bool ForEachChunk(int64_t n, const F& f) {
    const auto run = [&](int64_t c) {
      const int64_t begin = c * split_.chunk;
      if (!job_.cancelled()) f(c, begin, std::min(begin + split_.chunk, n));
    };
    InParallel(CeilDiv(n, split_.chunk), run);
    return !job_.cancelled();
  }
  template <class F>
  void InParallel(int64_t count, const F& f) {
    const int64_t threads = std::min(split_.threads, count);
    const auto share = [&](int64_t t) {
      for (int64_t i = t; i < count; i += threads) f(i);
    };
    threads > 1 ? job_.threads.Run(threads, share) : share(0);
  }

  // Returns the flat index of the first of `n` elements of a row. Neighbouring elements are
  // s_.inner apart.
  int64_t BeginOf(int64_t row, int64_t n) const {
    return row / s_.inner * n * s_.inner + row % s_.inner;
  }

  // ---- Radix sort. ----

  // Sorts `from_` by the lowest `bytes` bytes of its keys. Elements with equal keys stay in their
  // order.
  bool RadixSort(size_t bytes) {
    if (s_.n <= kInsertionSortMax) {
      InsertionSort();
      return true;
    }
    for (size_t byte = 0; byte < bytes; ++byte) {
      const auto digit = [shift = 8 * byte](const Element& e) {
        return static_cast<uint8_t>(KeyOf(e) >> shift);
      };
      if (!ForEachChunk(s_.n, [&](int64_t c, int64_t begin, int64_t end) {
            uint32_t* const counts = counts_ + c * kDigitValues;
            std::fill_n(counts, kDigitValues, 0);
            for (int64_t i = begin; i < end; ++i) ++counts[digit(from_[i])];
          }))
        return false;
      if (!CountsToPlaces()) continue;
      if (!ForEachChunk(s_.n, [&](int64_t c, int64_t begin, int64_t end) {
            uint32_t* const positions = counts_ + c * kDigitValues;
            for (int64_t i = begin; i < end; ++i) to_[positions[digit(from_[i])]++] = from_[i];
          }))
        return false;
      std::swap(from_, to_);
    }
    return true;
  }

  // Turns the number of elements with a digit in a chunk into the position to which the first of
  // them goes. Returns false if all elements have the same digit.
  bool CountsToPlaces() {
    uint32_t next = 0;
    for (int64_t d = 0; d < kDigitValues; ++d) {
      const uint32_t before = next;
      for (int64_t c = 0; c < split_.chunks; ++c)
        next += std::exchange(counts_[c * kDigitValues + d], next);
      if (next - before == s_.n) return false;
    }
    return true;
  }

  void InsertionSort() {
    for (int64_t i = 1; i < s_.n; ++i) {
      const Element e = from_[i];
      int64_t at = i;
      for (; at > 0 && KeyOf(e) < KeyOf(from_[at - 1]); --at) from_[at] = from_[at - 1];
      from_[at] = e;
    }
  }

  // ---- Values alone: a key determines its element, except for zeros and NaNs. ----

  template <class Key>
  bool SortValues(int64_t row, const Key& key) {
    using Bits = typename Key::Bits;
    const std::byte* const in = job_.memory.in[0];
    std::byte* const out = job_.memory.out[0];
    const int64_t first = BeginOf(row, s_.n);
    std::atomic<bool> has_special{false};  // whether some element is -0 or NaN
    if (!ForEachChunk(s_.n,
                      [&](int64_t, int64_t begin, int64_t end) {
                        bool found = false;
                        for (int64_t i = begin; i < end; ++i) {
                          const Bits bits = Load<Bits>(in, first + i * s_.inner);
                          from_[i].key = key(bits);
                          found |= ElementOf(key, from_[i].key) != bits;
                        }
                        if (found) has_special.store(true, std::memory_order_relaxed);
                      }) ||
        !RadixSort(sizeof(Bits)) || !ForEachChunk(s_.n, [&](int64_t, int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            Store<Bits>(out, first + i * s_.inner, ElementOf(key, from_[i].key));
        }))
      return false;
    return !has_special.load() || WriteZerosAndNaNs(key, first);
  }

  template <class U>
  static U ElementOf(const UnsignedKey<U>&, U key) {
    return key;
  }
  template <class U>
  static U ElementOf(const SignedKey<U>&, U key) {
    return key ^ kSign<U>;
  }
  template <class U, U kInfinity>
  static U ElementOf(const FloatKey<U, kInfinity>&, U key) {
    return (key & kSign<U>) != 0 ? U(key ^ kSign<U>) : U(~key);
  }

  // Writes the zeros and the NaNs again with their own bits, in their original order.
  template <class Key>
  bool WriteZerosAndNaNs(const Key&, int64_t) {
    return true;  // integers have no such values
  }
  template <class U, U kInfinity>
  bool WriteZerosAndNaNs(const FloatKey<U, kInfinity>& key, int64_t first) {
    const auto place_of = [&](U k) {
      return std::lower_bound(from_, from_ + s_.n, k,
                              [](const Element& e, U k) { return e.key < k; }) -
             from_;
    };
    int64_t zero = place_of(key.kZero), nan = place_of(key.kNaN);
    for (int64_t i = 0; i < s_.n; ++i) {
      if (i % kElementsPerPoll == 0 && job_.cancelled()) return false;
      const U bits = Load<U>(job_.memory.in[0], first + i * s_.inner);
      int64_t* const at = key.IsNaN(bits) ? &nan : key.IsZero(bits) ? &zero : nullptr;
      if (at != nullptr) Store<U>(job_.memory.out[0], first + (*at)++ * s_.inner, bits);
    }
    return true;
  }

  // ---- With positions. ----

  // Reads the keys of operand k. The last key is read in the order of the row. The keys before it
  // are read in the order that the later keys gave.
  template <class Key>
  bool ReadKeys(int64_t row, int k, const Key& key) {
    using Bits = typename Key::Bits;
    const std::byte* const in = job_.memory.in[k];
    const int64_t first = BeginOf(row, s_.n);
    return ForEachChunk(s_.n, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = k == s_.num_keys - 1 ? i : from_[i].index();
        from_[i] = Element::Of(key(Load<Bits>(in, first + at * s_.inner)), at);
      }
    });
  }

  // Finds the elements that are kept, without sorting the others. Each thread collects candidates
  // among its part of the row: up to twice as many as are wanted, and then cuts them to half. The
  // candidates of all threads are cut again and sorted.
  template <class Key>
  bool Select(int64_t row, const Key& key) {
    const int64_t k = s_.kept, parts = split_.threads;
    const auto cut = [k](Element* begin, Element* end) {
      std::nth_element(begin, begin + k - 1, end,
                       [](const Element& a, const Element& b) { return IsBefore(a, b); });
    };
    InParallel(parts, [&](int64_t part) {
      Element* const kept = from_ + part * 2 * k;
      CollectCandidates(row, key, s_.n * part / parts, s_.n * (part + 1) / parts, kept, cut);
    });
    if (job_.cancelled()) return false;
    for (int64_t part = 1; part < parts; ++part)
      std::copy_n(from_ + part * 2 * k, k, from_ + part * k);
    if (parts > 1) cut(from_, from_ + parts * k);
    std::sort(from_, from_ + k, [](const Element& a, const Element& b) { return IsBefore(a, b); });
    return true;
  }

  // Leaves at `kept` the k elements of [begin, end) that come first, in any order. Requires that
  // there are more than 2 k elements. Blocks without a candidate, which are nearly all, are skipped
  // after one vectorizable comparison loop.
  template <class Key, class Cut>
  void CollectCandidates(int64_t row, const Key& key, int64_t begin, int64_t end, Element* kept,
                         const Cut& cut) {
    using Bits = typename Key::Bits;
    constexpr int64_t kBlock = 64;
    const std::byte* const in = job_.memory.in[0];
    const int64_t first = BeginOf(row, s_.n), k = s_.kept;
    const auto key_at = [&](int64_t i) { return key(Load<Bits>(in, first + i * s_.inner)); };
    int64_t count = 0, i = begin;
    for (; count < 2 * k; ++i) kept[count++] = Element::Of(key_at(i), i);
    const auto cut_to_half = [&] {
      cut(kept, kept + count);
      count = k;
      return static_cast<Bits>(kept[k - 1].key());
    };
    // `last_key` is the greatest key of the k candidates that come first. A later element with this
    // key comes after them, so it is not wanted.
    Bits last_key = cut_to_half();
    const auto visit = [&](int64_t from, int64_t to) {
      for (int64_t j = from; j < to; ++j) {
        const Bits element_key = key_at(j);
        if (element_key >= last_key) continue;
        kept[count++] = Element::Of(element_key, j);
        if (count == 2 * k) last_key = cut_to_half();
      }
    };
    for (; i + kBlock <= end; i += kBlock) {
      if ((i - begin) / kBlock % (kElementsPerPoll / kBlock) == 0 && job_.cancelled()) return;
      bool any = false;
      if (s_.inner == 1) {
        for (int64_t j = 0; j < kBlock; ++j) any |= key(Load<Bits>(in, first + i + j)) < last_key;
      } else {
        for (int64_t j = 0; j < kBlock; ++j) any |= key_at(i + j) < last_key;
      }
      if (any) visit(i, i + kBlock);
    }
    visit(i, end);
    if (count > k) cut_to_half();
  }

  // Writes the kept elements of every operand and, if the result has indices, their positions in
  // the row.
  bool WriteResults(int64_t row) {
    const int64_t from = BeginOf(row, s_.n), to = BeginOf(row, s_.kept);
    const auto write = [&](size_t operand, auto element) {
      using T = decltype(element);
      const std::byte* const in = job_.memory.in[operand];
      std::byte* const out = job_.memory.out[operand];
      return ForEachChunk(s_.kept, [&](int64_t, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          Store<T>(out, to + i * s_.inner, Load<T>(in, from + from_[i].index() * s_.inner));
      });
    };
    for (size_t i = 0; i < s_.dtypes.size(); ++i) {
      const int64_t width = ir::ByteWidth(s_.dtypes[i]);
      const bool ok = width == 1   ? write(i, uint8_t{})
                      : width == 2 ? write(i, uint16_t{})
                      : width == 4 ? write(i, uint32_t{})
                      : width == 8 ? write(i, uint64_t{})
                                   : write(i, std::array<uint64_t, 2>{});
      if (!ok) return false;
    }
    if (!s_.has_indices) return true;
    std::byte* const out = job_.memory.out.back();
    return ForEachChunk(s_.kept, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        Store<int32_t>(out, to + i * s_.inner, static_cast<int32_t>(from_[i].index()));
    });
  }

  const SortJob& job_;
  const SortShape& s_;
  const WorkSplit& split_;
  // Each holds the n elements of a row. In a selection, `from_` holds the candidates.
  Element *from_ = nullptr, *to_ = nullptr;
  // For each chunk and digit: the number of its elements, and then the position of the next of
  // them.
  uint32_t* counts_ = nullptr;
};

template <class Element>
void SortRows(const SortJob& job) {
  const int64_t rows = job.shape.rows(), pieces = job.split.pieces;
  const auto sort = [&](int64_t piece) {
    RowSorter<Element> sorter(job, piece);
    for (int64_t row = rows * piece / pieces; row < rows * (piece + 1) / pieces; ++row) {
      if (job.cancelled()) return;
      bool ok = false;
      if constexpr (std::is_same_v<Element, PackedElement> ||
                    std::is_same_v<Element, WideElement>) {
        ok = sorter.SortWithPlaces(row);
      } else {
        ok = sorter.SortValues(row);
      }
      if (!ok) return;
    }
  };
  if (pieces == 1) return sort(0);
  job.threads.Run(pieces, sort);
}

}  // namespace

int64_t SortScratchBytes(const SortShape& shape, int num_threads) {
  const WorkSplit split(shape, num_threads);
  return split.pieces * split.piece_bytes;
}

void Sort(const SortShape& shape, const SortMemory& memory, ThreadPool& threads, int num_threads,
          absl::FunctionRef<bool()> cancelled) {
  const SortJob job{shape, memory, WorkSplit(shape, num_threads), threads, cancelled};
  const int64_t bytes = ElementBytes(shape);
  if (SortsKeysOnly(shape)) {
    if (bytes == 2) return SortRows<KeyElement<uint16_t>>(job);
    if (bytes == 4) return SortRows<KeyElement<uint32_t>>(job);
    return SortRows<KeyElement<uint64_t>>(job);
  }
  if (bytes == sizeof(PackedElement)) return SortRows<PackedElement>(job);
  SortRows<WideElement>(job);
}

}  // namespace tessera::worker
