// Sorts rows on the host, or finds the first elements of their sorted order.
//
// Keys become unsigned numbers of the same order, which a radix sort puts in order digit by digit,
// from the least significant digit on. If only a few elements are wanted, the others are never
// sorted. Many rows are shared out among threads, and a long row is sorted by all threads. The bits
// of the result do not depend on the threads.
#pragma once
#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "worker/cpu/thread_pool.h"
#include "worker/program/sort.h"

namespace tessera::worker {

// The addresses of the operands, the results and the scratch memory. Memory that is written
// overlaps nothing else. Elements are aligned to their width, and the scratch memory is aligned to
// 64 bytes.
struct SortMemory {
  absl::Span<const std::byte* const> in;
  absl::Span<std::byte* const> out;
  std::byte* scratch = nullptr;
};

// Returns the number of bytes of scratch memory that Sort needs with this number of threads.
int64_t SortScratchBytes(const SortShape& shape, int num_threads);

// Sorts with at most `num_threads` threads. Each of them calls `cancelled` every few milliseconds.
// Once it returns true, Sort returns, and the results may be half written.
void Sort(const SortShape& shape, const SortMemory& memory, ThreadPool& threads, int num_threads,
          absl::FunctionRef<bool()> cancelled);

}  // namespace tessera::worker
