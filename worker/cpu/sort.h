// Sorts rows, and finds the first of sorted rows, on the host.
//
// Keys become unsigned numbers of the same order, which a radix sort puts in order, digit by digit
// from the least; of few wanted elements the rest is never sorted. Many rows are shared out among
// threads; a long row is sorted by all of them. The result is the same bits whatever the threads.
#pragma once
#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "worker/cpu/thread_pool.h"
#include "worker/program/sort.h"

namespace tessera::worker {

// Where the operands, the results and the scratch memory are. None overlaps another that is
// written; elements are aligned to their width, the scratch memory to 64 bytes.
struct SortMemory {
  absl::Span<const std::byte* const> in;
  absl::Span<std::byte* const> out;
  std::byte* scratch = nullptr;
};

// The bytes of scratch memory that Sort needs with so many threads.
int64_t SortScratchBytes(const SortShape& shape, int num_threads);

// Sorts by at most `num_threads` threads. Asks `cancelled`, which any of them calls, every few
// milliseconds; once it is true, returns with the results half written.
void Sort(const SortShape& shape, const SortMemory& memory, ThreadPool& threads, int num_threads,
          absl::FunctionRef<bool()> cancelled);

}  // namespace tessera::worker
