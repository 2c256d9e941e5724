// A wrapper of Collectives that records metrics of every call of every rank.
#pragma once
#include <memory>
#include <vector>

#include "worker/collectives/collectives.h"
#include "worker/telemetry/executor_metrics.h"
#include "worker/telemetry/link_meter.h"

namespace tessera::worker {

// Wraps `inner`. `metrics` and `links` outlive the result. `executor_of` is by rank; its numbers
// only tell executors apart, and it is empty if there is only one executor. Everything else is as
// with `inner`.
std::unique_ptr<Collectives> Metered(std::unique_ptr<Collectives> inner, CollectiveBackend backend,
                                     const ExecutorMetrics* metrics, LinkMeter* links,
                                     std::vector<int> executor_of = {});

}  // namespace tessera::worker
