// The processes by which a worker's daemon learns about the machine's devices. The daemon holds no
// state of a driver, and a driver may block for ever when a device is broken, so a child of the
// daemon makes the calls. Both functions are the main function of such a child and write to a
// descriptor that the daemon reads.
#pragma once
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tessera::worker::device {

// Writes the ids of the devices that this process may use, one per line, in the order of the
// driver. Writes a line "! " and the reason instead if there are none. Returns the exit status.
int ListDevices(const std::string& plugin, int fd);

// Writes lines (reading.h) about these devices until the descriptor is closed at the other end.
// Returns the exit status.
int MonitorDevices(const std::string& plugin, const std::vector<std::string>& ids,
                   absl::Duration interval, int fd);

}  // namespace tessera::worker::device
