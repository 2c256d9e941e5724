// Effects as lines of text, for transcripts.
#pragma once
#include <string>

#include "server/scheduler/effects.h"

namespace tessera::server::scheduler {

// One line; "" of an AcceptWorker.  No array contents, no secrets.
std::string ToString(const Effect& effect);

}  // namespace tessera::server::scheduler
