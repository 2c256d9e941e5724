// Messages that carry bulk bytes, taken apart and put together without copying these. The wire is
// protobuf's: the generated classes read and write the same. Pure; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/v1/data.pb.h"

namespace tessera::ir::serial {

// The message up to its data, when `size` bytes of data come last. Requires: `rest` has none.
std::string BeforeData(const v1::WriteRequest& rest, int64_t size);
std::string BeforeData(const v1::ReadResponse& rest, int64_t size);

// The message that lies in `pieces`, one after the other: its data as views into them, the other
// fields into `*rest`. False: it is no such message; the outputs mean nothing.
bool SplitChunk(absl::Span<const absl::string_view> pieces, v1::WriteRequest* rest,
                std::vector<absl::string_view>* data);
bool SplitChunk(absl::Span<const absl::string_view> pieces, v1::ReadResponse* rest,
                std::vector<absl::string_view>* data);

}  // namespace tessera::ir::serial
