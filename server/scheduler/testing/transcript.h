// Formats effects as lines of text, for the transcripts of step_test.cc.
#pragma once
#include <string>

#include "server/scheduler/effects.h"

namespace tessera::server::scheduler {

// Returns one line, or "" for an AcceptWorker without adopted executors and for a Commit. The line
// contains no array contents and no secrets.
std::string ToString(const Effect& effect);

}  // namespace tessera::server::scheduler
