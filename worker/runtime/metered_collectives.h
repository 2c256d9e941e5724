// A wrapper of Collectives that records metrics of every call of every rank.
#pragma once
#include <memory>

#include "worker/collectives/collectives.h"
#include "worker/telemetry/executor_metrics.h"

namespace tessera::worker {

// `metrics` outlives the result. Everything else is as with `inner`.
std::unique_ptr<Collectives> Metered(std::unique_ptr<Collectives> inner, CollectiveBackend backend,
                                     const ExecutorMetrics* metrics);

}  // namespace tessera::worker
