// Makes the waits of Abseil measure time by the monotonic clock, in every program that links
// base/clock.cc. Setting the wall clock then neither delays nor shortens a wait of this process.
//
// steady_wait.cc defines a function that Abseil calls. No other code has to call anything.
// Reference: docs/decisions/0033.
#pragma once

namespace tessera::internal {

// Always true. base/clock.cc refers to it, so that linkers take steady_wait.cc out of a static
// library. No other code refers to a name of that file.
extern const bool kWaitsAreSteady;

}  // namespace tessera::internal
