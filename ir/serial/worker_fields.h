// The field lists of those messages of worker.proto that other messages contain, too. A struct has
// one list.
#pragma once
#include "ir/api/worker_link.h"
#include "ir/serial/fields.h"
#include "tessera/v1/cluster.pb.h"
#include "tessera/v1/worker.pb.h"

namespace tessera::ir::serial {

TESSERA_FIELDS(Build, v1::Build, version, revision, protocol_min, protocol_max)
TESSERA_FIELDS(api::ExecutorInfo, v1::ExecutorInfo, index, incarnation, device_kind, num_devices,
               data_endpoint, peer_endpoint, peer_data_endpoint, memory_bytes, files, files_folder,
               has_state, flops_per_second, memory_bytes_per_second)
TESSERA_FIELDS(api::FileArrayInfo, v1::FileArray, name, dtype, shape)

}  // namespace tessera::ir::serial
