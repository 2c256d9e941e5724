// The rules for faults of devices. DeviceMonitor applies them; the daemon reports a fault to the
// coordinator, which cordons the device.
#include "worker/daemon/device_faults.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera::worker::daemon {
namespace {

struct Xid {
  int64_t number;
  bool from_program;  // whether a program can cause it on a GPU that works
  const char* words;
};
// NVIDIA's Xids of compute GPUs, by number. The list of those that programs cause is the one that
// NVIDIA's device plugin for Kubernetes ignores.
constexpr Xid kXids[] = {
    {13, true, "an exception of the graphics engine"},
    {31, true, "a memory page fault"},
    {43, true, "the GPU stopped processing a program"},
    {45, true, "a program was removed after an earlier error"},
    {48, false, "a memory error that ECC could not correct"},
    {61, false, "an internal microcontroller stopped"},
    {62, false, "an internal microcontroller halted"},
    {63, false, "a row of memory was remapped; the GPU needs a reset"},
    {64, false, "a row of memory could not be remapped"},
    {68, true, "an exception of the video processor"},
    {69, false, "an error of the graphics engine"},
    {74, false, "an NVLink error"},
    {79, false, "the GPU has fallen off the bus"},
    {92, false, "a high rate of corrected memory errors"},
    {94, false, "a contained memory error that ECC could not correct"},
    {95, false, "an uncontained memory error that ECC could not correct"},
    {109, true, "a context switch took too long"},
    {119, false, "the GPU's system processor does not answer"},
    {120, false, "an error of the GPU's system processor"},
    {140, false, "an unrecovered memory error"},
};

const Xid* Find(int64_t number) {
  const auto* const found = std::find_if(std::begin(kXids), std::end(kXids),
                                         [number](const Xid& xid) { return xid.number == number; });
  return found == std::end(kXids) ? nullptr : found;
}

constexpr absl::Duration kRepetition = absl::Minutes(1);

}  // namespace

std::string DescribeXid(int64_t xid) {
  const Xid* const known = Find(xid);
  return absl::StrCat("Xid ", xid, known == nullptr ? "" : absl::StrCat(" (", known->words, ")"));
}

void DeviceFaults::OnReading(const tessera_device_reading& reading, absl::Time wall) {
  lost_ = false;
  // Errors from before the first reading are old: the driver counts from when it was loaded.
  const double errors = reading.ecc_uncorrected;
  if (errors >= 0) {
    if (ecc_uncorrected_ >= 0 && errors > ecc_uncorrected_)
      Add(absl::StrCat("memory errors that ECC could not correct: ", errors), wall);
    ecc_uncorrected_ = errors;
  }
  const bool pending = reading.rows_pending > 0, failed = reading.rows_failed > 0;
  if (!std::exchange(rows_pending_, pending) && pending)
    Add("rows of memory wait to be remapped; the GPU needs a reset", wall);
  if (!std::exchange(rows_failed_, failed) && failed)
    Add("a row of memory could not be remapped; the GPU needs to be replaced", wall);
}

void DeviceFaults::OnError(int64_t xid, absl::Time wall) {
  const Xid* const known = Find(xid);
  if (known != nullptr && known->from_program) return;
  Add(DescribeXid(xid), wall);
}

void DeviceFaults::OnLost(std::string_view why, absl::Time wall) {
  if (std::exchange(lost_, true)) return;
  Add(absl::StrCat("the GPU is lost: ", absl::string_view(why.data(), why.size())), wall);
}

void DeviceFaults::Add(std::string words, absl::Time wall) {
  if (words == words_ && wall - at_ < kRepetition) return;
  words_ = std::move(words);
  at_ = wall;
  fault_ = absl::StrCat(words_, " at ",
                        absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", wall, absl::UTCTimeZone()));
}

}  // namespace tessera::worker::daemon
