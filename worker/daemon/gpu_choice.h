// Chooses the GPUs of a worker by its --gpus.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::worker::daemon {

inline constexpr char kAllGpus[] = "all";
inline constexpr size_t kGpusMax = 64;

// Returns the ids of the GPUs that `wanted` names:
//   "all"             all GPUs in `present`
//   "4"               the first four
//   "0,2", "device=2" those at these indices, counted from 0
//   "GPU-8f9e0d,..."  those whose ids begin so
//   "MIG-...,..."     these MIG devices, whose ids must be complete: `present` need not have them
// `present` are the ids of the GPUs that the driver shows, in its order. `why_none` says why there
// are none, if that is known. Returns NOT_ENOUGH_DEVICES if `present` has fewer, or has no GPU of
// this index or id. Returns VALUE_ERROR if `wanted` has another form, names a GPU twice or names
// more than kGpusMax.
absl::StatusOr<std::vector<std::string>> ChooseGpus(const std::string& wanted,
                                                    const std::vector<std::string>& present,
                                                    const std::string& why_none);

}  // namespace tessera::worker::daemon
