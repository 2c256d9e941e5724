// Splits and joins messages that carry bulk bytes without copying the bytes. The wire format is
// that of protobuf: the generated classes read and write the same bytes. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tessera/v1/data.pb.h"

namespace tessera::ir::serial {

// Returns the encoded message up to its data; the sender appends `size` bytes of data. Requires:
// `rest` has no data.
std::string EncodeUpToData(const v1::WriteRequest& rest, int64_t size);
std::string EncodeUpToData(const v1::ReadResponse& rest, int64_t size);

// Parses the message that is the concatenation of `pieces`. The data of the message become views
// into the pieces; the other fields go to `*rest`. Returns false, with unspecified outputs, if the
// bytes do not parse.
bool SplitChunk(absl::Span<const absl::string_view> pieces, v1::WriteRequest* rest,
                std::vector<absl::string_view>* data);
bool SplitChunk(absl::Span<const absl::string_view> pieces, v1::ReadResponse* rest,
                std::vector<absl::string_view>* data);

}  // namespace tessera::ir::serial
