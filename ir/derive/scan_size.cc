// The estimate by which backends choose between an accelerator and the host for scans and scatters
// (docs/decisions/0018). It compares rough times of the two.
#include "ir/derive/scan_size.h"

#include <algorithm>
#include <vector>

#include "ir/op_def.h"
#include "ir/type.h"

namespace tessera::ir {
namespace {

// Estimated times, in microseconds, for an accelerator on a PCIe bus. kElementUs: a thread waits
// for memory for each element that it handles. kLookUs: it only looks at an element that another
// thread handles.
constexpr double kElementUs = 0.3;
constexpr double kLookUs = 0.03;
constexpr double kThreads = 65'536;  // threads that run at the same time
constexpr double kStagingUs = 50;    // waiting for the steps enqueued before, and two copies
constexpr double kStagedBytesPerUs = 20'000;  // bytes that are copied in a microsecond
constexpr double kHostElementUs = 0.005;      // the host's time for one element
constexpr double kDeviceMaxUs = 100'000;      // longest time that the op may take

}  // namespace

ScanSize ScanSizeOf(const Function& f, const Op& op) {
  ScanSize size;
  std::vector<Type> in;
  for (const ValueId v : op.operands) size.bytes += in.emplace_back(f.types[v]).num_bytes();
  for (const ValueId v : op.results) size.bytes += f.types[v].num_bytes();
  if (op.def->lowering == Lowering::kScan) {
    size.length = in[0].shape[op.attrs.Int("dimension")];
    size.rows = in[0].num_elements() / std::max<int64_t>(size.length, 1);
    return size;
  }
  const ScatterMap map = op.def->scatter_map({*op.def, f.scope, in, op.attrs, op.regions});
  size.rows = size.length = 1;
  for (int d = 0; d < static_cast<int>(map.shape.size()); ++d)
    (d < map.num_parallel ? size.rows : size.length) *= map.shape[d];
  size.is_scatter = true;
  return size;
}

bool IsForAccelerators(const ScanSize& size) {
  const auto rows = static_cast<double>(size.rows), length = static_cast<double>(size.length);
  // The threads of a row share its updates.
  const double sharing =
      size.is_scatter ? std::clamp(kThreads / std::max(rows, 1.0), 1.0, 1024.0) : 1;
  const double element = kElementUs / sharing + (size.is_scatter ? kLookUs : 0);
  const double device = length * element * std::max(rows / kThreads, 1.0);
  const double host = kStagingUs + static_cast<double>(size.bytes) / kStagedBytesPerUs +
                      rows * length * kHostElementUs;
  return HasCode(size) && device <= std::min(host, kDeviceMaxUs);
}

}  // namespace tessera::ir
