// Proves that the encoding by hand agrees with protobuf in both directions, however the bytes are
// cut into pieces, and that truncated or malformed messages are refused.
#include "ir/serial/chunk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

namespace tessera::ir::serial {
namespace {

std::vector<absl::string_view> Cut(absl::string_view bytes, size_t step) {
  std::vector<absl::string_view> pieces;
  for (; !bytes.empty(); bytes.remove_prefix(pieces.back().size())) {
    pieces.push_back("");
    pieces.push_back(bytes.substr(0, step));
  }
  return pieces;
}

v1::WriteRequest Sample() {
  v1::WriteRequest request;
  request.set_ticket("a ticket");
  request.set_offset(int64_t{5} << 32);
  request.set_crc32c(0x12345678);
  return request;
}

TEST(ChunkTest, ProtobufParsesTheEncoding) {
  const std::string data(300, 'd');
  v1::WriteRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(EncodeUpToData(Sample(), 300) + data));
  EXPECT_EQ(parsed.data(), data);
  EXPECT_EQ(parsed.ticket(), "a ticket");
  EXPECT_EQ(parsed.offset(), int64_t{5} << 32);
  EXPECT_EQ(parsed.crc32c(), 0x12345678u);

  v1::ReadResponse empty;
  ASSERT_TRUE(empty.ParseFromString(EncodeUpToData(v1::ReadResponse(), 0)));
  EXPECT_EQ(empty.data(), "");
}

TEST(ChunkTest, AMessageOfProtobufIsReadFromPiecesOfAnySize) {
  v1::WriteRequest sent = Sample();
  sent.set_data(std::string(300, 'd'));
  const std::string bytes = sent.SerializeAsString();
  for (size_t step = 1; step <= bytes.size(); ++step) {
    v1::WriteRequest rest;
    std::vector<absl::string_view> data;
    ASSERT_TRUE(SplitChunk(Cut(bytes, step), &rest, &data)) << step;
    EXPECT_EQ(absl::StrJoin(data, ""), sent.data());
    EXPECT_EQ(rest.SerializeAsString(), Sample().SerializeAsString());
  }
}

TEST(ChunkTest, TheLastDataFieldWins) {
  v1::ReadResponse rest;
  std::vector<absl::string_view> data;
  const std::string bytes = EncodeUpToData(rest, 3) + "oneX" + EncodeUpToData(rest, 3) + "two";
  EXPECT_FALSE(SplitChunk({bytes}, &rest, &data));  // X is not a field
  const std::string twice = EncodeUpToData(rest, 3) + "one" + EncodeUpToData(rest, 3) + "two";
  ASSERT_TRUE(SplitChunk({twice}, &rest, &data));
  EXPECT_THAT(data, ::testing::ElementsAre("two"));
}

// A truncated message is refused exactly when protobuf refuses it.
TEST(ChunkTest, MalformedMessagesAreRefused) {
  const std::string whole = EncodeUpToData(Sample(), 300) + std::string(300, 'd');
  v1::WriteRequest rest;
  std::vector<absl::string_view> data;
  int refused = 0;
  for (size_t size = 1; size < whole.size(); ++size) {
    const bool taken = SplitChunk({absl::string_view(whole).substr(0, size)}, &rest, &data);
    v1::WriteRequest parsed;
    EXPECT_EQ(taken, parsed.ParseFromString(whole.substr(0, size))) << size;
    refused += taken ? 0 : 1;
  }
  EXPECT_GT(refused, 300);
  const absl::string_view kNone[] = {
      // A group begins.
      "\x1b",
      // The data field claims 2^64 - 1 bytes.
      "\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
      // A tag does not end.
      "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
      // The checksum has only half of its bytes.
      "\x25\x01",
      // The ticket is not UTF-8.
      "\x0a\x01\xff",
  };
  for (const absl::string_view bytes : kNone) {
    EXPECT_FALSE(SplitChunk({bytes}, &rest, &data)) << ::testing::PrintToString(bytes);
  }
}

}  // namespace
}  // namespace tessera::ir::serial
