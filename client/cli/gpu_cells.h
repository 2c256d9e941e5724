// The columns of a table that show the state of GPUs, for the commands devices and top.
#pragma once
#include <string>
#include <vector>

#include "client/cli/json.h"

namespace tessera::cli {

// Returns whether a worker has reported the state of one of these devices.
bool AnyGpu(const Json& devices);
const std::vector<std::string>& GpuTitles();
// Returns the cells of a device below GpuTitles(). A cell whose figure is unknown is empty.
std::vector<std::string> GpuCells(const Json& device);

}  // namespace tessera::cli
