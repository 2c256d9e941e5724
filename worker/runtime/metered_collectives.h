// A wrapper of Collectives that records metrics of every call of every rank.
#pragma once
#include <memory>
#include <vector>

#include "worker/collectives/collectives.h"
#include "worker/telemetry/executor_metrics.h"
#include "worker/telemetry/link_meter.h"

namespace tessera::worker {

// Wraps `inner`. `metrics` and `link_meter` outlive the result. Ranks with the same number in
// `executor_by_rank` are on the same executor; it is empty if there is only one executor.
std::unique_ptr<Collectives> MeterCollectives(std::unique_ptr<Collectives> inner,
                                              CollectiveBackend backend,
                                              const ExecutorMetrics* metrics, LinkMeter* link_meter,
                                              std::vector<int> executor_by_rank = {});

}  // namespace tessera::worker
