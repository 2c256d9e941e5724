// The encoding of messages that carry array bytes, written by hand so that the bytes are not copied
// into and out of protobuf objects. Every other field still goes through the generated classes.
#include "ir/serial/chunk.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/log.h"

namespace tessera::ir::serial {
namespace {

// The wire types of the protobuf encoding (protobuf.dev/programming-guides/encoding).
enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };
constexpr int kVarintBytesMax = 10;

void AppendVarint(uint64_t value, std::string* to) {
  for (; value >= 0x80; value >>= 7) to->push_back(static_cast<char>(value | 0x80));
  to->push_back(static_cast<char>(value));
}

class Reader {
 public:
  explicit Reader(absl::Span<const absl::string_view> pieces) : pieces_(pieces) { SkipEmpty(); }

  bool done() const { return piece_ == pieces_.size(); }
  bool Varint(uint64_t* value) {
    *value = 0;
    for (int i = 0; i < kVarintBytesMax; ++i) {
      if (done()) return false;
      const auto byte = static_cast<unsigned char>(pieces_[piece_][at_]);
      ++at_;
      SkipEmpty();
      *value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
      if (byte < 0x80) return true;
    }
    return false;
  }
  // Passes the next `size` bytes to `f`, piece by piece. Returns false if there are fewer.
  template <class F>
  bool Take(uint64_t size, F f) {
    while (size > 0) {
      if (done()) return false;
      const absl::string_view part = pieces_[piece_].substr(at_, size);
      f(part);
      at_ += part.size();
      size -= part.size();
      SkipEmpty();
    }
    return true;
  }

 private:
  void SkipEmpty() {
    while (piece_ < pieces_.size() && at_ == pieces_[piece_].size()) ++piece_, at_ = 0;
  }
  const absl::Span<const absl::string_view> pieces_;
  size_t piece_ = 0, at_ = 0;
};

template <class Message>
std::string EncodeUpTo(const Message& rest, int64_t size) {
  TESSERA_CHECK(rest.data().empty());
  std::string bytes = rest.SerializeAsString();
  AppendVarint(uint64_t{Message::kDataFieldNumber} << 3 | kLengthDelimited, &bytes);
  AppendVarint(static_cast<uint64_t>(size), &bytes);
  return bytes;
}

// Walks the fields of the message by their tags. The data field becomes views into the pieces; all
// other fields are copied as they are and parsed by the generated class at the end. Groups are
// refused, since no message of ours has one.
template <class Message>
bool Split(absl::Span<const absl::string_view> pieces, Message* rest,
           std::vector<absl::string_view>* data) {
  data->clear();
  std::string others;
  const auto keep = [&others](absl::string_view part) { others.append(part.data(), part.size()); };
  for (Reader reader(pieces); !reader.done();) {
    uint64_t tag = 0, value = 0;
    if (!reader.Varint(&tag) || tag > std::numeric_limits<uint32_t>::max()) return false;
    const uint64_t wire_type = tag & 7;
    const bool has_value = wire_type == kVarint || wire_type == kLengthDelimited;
    if (has_value && !reader.Varint(&value)) return false;
    if (tag == (uint64_t{Message::kDataFieldNumber} << 3 | kLengthDelimited)) {
      // If the field is repeated, its last occurrence wins.
      data->clear();
      if (!reader.Take(value, [data](absl::string_view part) { data->push_back(part); }))
        return false;
      continue;
    }
    AppendVarint(tag, &others);
    if (has_value) AppendVarint(value, &others);
    bool complete = true;
    switch (wire_type) {
      case kVarint:
        break;
      case kFixed64:
        complete = reader.Take(8, keep);
        break;
      case kLengthDelimited:
        complete = reader.Take(value, keep);
        break;
      case kFixed32:
        complete = reader.Take(4, keep);
        break;
      default:
        return false;
    }
    if (!complete) return false;
  }
  return rest->ParseFromString(others);
}

}  // namespace

std::string EncodeUpToData(const v1::WriteRequest& rest, int64_t size) {
  return EncodeUpTo(rest, size);
}
std::string EncodeUpToData(const v1::ReadResponse& rest, int64_t size) {
  return EncodeUpTo(rest, size);
}

bool SplitChunk(absl::Span<const absl::string_view> pieces, v1::WriteRequest* rest,
                std::vector<absl::string_view>* data) {
  return Split(pieces, rest, data);
}
bool SplitChunk(absl::Span<const absl::string_view> pieces, v1::ReadResponse* rest,
                std::vector<absl::string_view>* data) {
  return Split(pieces, rest, data);
}

}  // namespace tessera::ir::serial
