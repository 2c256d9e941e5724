// Parses --gpus and compares it with the GPUs of the machine. The daemon calls it once, at its
// start.
#include "worker/daemon/gpu_choice.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace tessera::worker::daemon {
namespace {

// Returns the id of the GPU that one entry of a list names.
absl::StatusOr<std::string> ChooseOne(absl::string_view entry,
                                      const std::vector<std::string>& present,
                                      const std::string& machine) {
  if (absl::StartsWith(entry, "MIG-")) return std::string(entry);
  int64_t index = -1;
  if (absl::SimpleAtoi(entry, &index)) {
    if (index >= 0 && index < static_cast<int64_t>(present.size())) return present[index];
    return MakeError(ErrorKind::kNotEnoughDevices,
                     absl::StrCat("--gpus names GPU ", entry, "; ", machine));
  }
  if (!absl::StartsWith(entry, "GPU-"))
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("--gpus names '", entry,
                                  "'; expected an index, or an id that begins with GPU- or MIG-"));
  std::vector<std::string> found;
  for (const std::string& id : present)
    if (absl::StartsWith(id, entry)) found.push_back(id);
  if (found.size() == 1) return found[0];
  return MakeError(ErrorKind::kNotEnoughDevices,
                   absl::StrCat("--gpus names ", entry, ", and ", found.size(),
                                " GPUs have an id that begins so; ", machine));
}

}  // namespace

// A plain number is a count, as in `docker run --gpus 2`. Therefore one index has to be written as
// "device=2", as Docker does, or as a list of one with its id.
absl::StatusOr<std::vector<std::string>> ChooseGpus(const std::string& wanted,
                                                    const std::vector<std::string>& present,
                                                    const std::string& why_none) {
  const std::string machine =
      absl::StrCat("this machine has ", present.size(),
                   present.empty() ? "" : absl::StrCat(": ", absl::StrJoin(present, ", ")),
                   why_none.empty() ? "" : absl::StrCat(": ", why_none));
  std::vector<std::string> chosen;
  size_t count = 0;
  if (wanted == kAllGpus) {
    chosen = present;
    if (present.empty())
      return MakeError(ErrorKind::kNotEnoughDevices, absl::StrCat("--gpus is all; ", machine));
  } else if (absl::SimpleAtoi(wanted, &count)) {
    if (count > present.size() && count <= kGpusMax)
      return MakeError(ErrorKind::kNotEnoughDevices,
                       absl::StrCat("--gpus is ", wanted, "; ", machine));
    chosen.assign(present.begin(), present.begin() + std::min(count, present.size()));
  } else {
    const absl::string_view list = absl::StripPrefix(wanted, "device=");
    for (const absl::string_view entry : absl::StrSplit(list, ',')) {
      TESSERA_ASSIGN_OR_RETURN(std::string id, ChooseOne(entry, present, machine));
      if (std::find(chosen.begin(), chosen.end(), id) != chosen.end())
        return MakeError(ErrorKind::kValueError,
                         absl::StrCat("--gpus names ", id, " twice; name each GPU once"));
      chosen.push_back(std::move(id));
    }
  }
  if (std::max(count, chosen.size()) > kGpusMax)
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("--gpus is ", wanted, "; a worker has at most ", kGpusMax,
                                  " GPUs; start another worker for the others"));
  return chosen;
}

}  // namespace tessera::worker::daemon
