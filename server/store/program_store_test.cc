#include "server/store/program_store.h"

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/testing/status_matchers.h"
#include "ir/api/crc32c.h"

namespace tessera::server::store {
namespace {

const absl::Time kStart = absl::UnixEpoch();

class ProgramStoreTest : public ::testing::Test {
 protected:
  absl::StatusOr<ProgramStore::Progress> Send(const std::string& all, int64_t offset, int64_t size,
                                              const std::string& tenant = "a",
                                              absl::Time now = kStart) {
    const std::string data = all.substr(static_cast<size_t>(offset), static_cast<size_t>(size));
    return store_.Upload(tenant,
                         {Sha256Hex(all), static_cast<int64_t>(all.size()), offset, data,
                          api::Crc32c(0, data.data(), data.size())},
                         now, Check);
  }
  int64_t Committed(const std::string& all, absl::Time now = kStart) {
    const auto p = store_.Upload("a", {Sha256Hex(all)}, now, Check);
    TESSERA_EXPECT_OK(p);
    return p.ok() ? p->committed_bytes : -1;
  }

  // Bytes that begin with "bad" are no program.
  static absl::Status Check(std::string_view bytes) {
    return bytes.substr(0, 3) == "bad" ? MakeError(ErrorKind::kMalformedProgram, "no program")
                                       : absl::OkStatus();
  }

  ProgramStore store_{{.programs_max = 3, .bytes_max = 100, .program_bytes_max = 60}};
};

TEST_F(ProgramStoreTest, ChunksMakeAProgramOfOneTenant) {
  const std::string all = "abcdefghij";
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto first, Send(all, 0, 4));
  EXPECT_EQ(first.committed_bytes, 4);
  EXPECT_FALSE(first.complete);
  EXPECT_EQ(Committed(all), 4) << "a question goes on where a broken connection ended";
  EXPECT_THAT(store_.Find("a", Sha256Hex(all)), ReasonIs("PROGRAM_NOT_FOUND"));
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto last, Send(all, 4, 6));
  EXPECT_TRUE(last.complete);
  TESSERA_ASSERT_OK_AND_ASSIGN(const ProgramStore::Bytes bytes, store_.Find("a", Sha256Hex(all)));
  EXPECT_EQ(*bytes, all);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto again, Send(all, 0, 4));
  EXPECT_TRUE(again.complete) << "who brings what is there learns so at once";
  EXPECT_THAT(store_.Find("b", Sha256Hex(all)), ReasonIs("PROGRAM_NOT_FOUND"));
  EXPECT_THAT(store_.Delete("b", Sha256Hex(all)), ReasonIs("PROGRAM_NOT_FOUND"));
  TESSERA_EXPECT_OK(store_.Delete("a", Sha256Hex(all)));
  EXPECT_THAT(store_.Find("a", Sha256Hex(all)), ReasonIs("PROGRAM_NOT_FOUND"));
}

TEST_F(ProgramStoreTest, WhatDoesNotFitIsRefusedAndChangesNothing) {
  const std::string all = "abcdefghij";
  EXPECT_THAT(store_.Upload("a", {"xyz"}, kStart, Check),
              ReasonIs("VALUE_ERROR", "64 lower-case hex"));
  EXPECT_THAT(Send(all, 2, 2), ReasonIs("VALUE_ERROR", "go on from 0"));
  TESSERA_ASSERT_OK(Send(all, 0, 4));
  EXPECT_THAT(Send(all, 0, 4), ReasonIs("VALUE_ERROR", "go on from 4"));
  EXPECT_THAT(store_.Upload("a", {Sha256Hex(all), 10, 4, "ef", 1}, kStart, Check),
              ReasonIs("CHECKSUM_MISMATCH", "chunk at 4"));
  const std::string data = "ef";
  const uint32_t crc = api::Crc32c(0, data.data(), data.size());
  EXPECT_THAT(store_.Upload("a", {Sha256Hex(all), 9, 4, data, crc}, kStart, Check),
              ReasonIs("VALUE_ERROR", "10 as before"));
  EXPECT_EQ(Committed(all), 4);
}

TEST_F(ProgramStoreTest, TheWholeIsChecked) {
  EXPECT_THAT(Send("bad program", 0, 11), ReasonIs("MALFORMED_PROGRAM"));
  EXPECT_EQ(Committed("bad program"), 0) << "dropped";
  const std::string data = "abc";
  EXPECT_THAT(store_.Upload("a", {Sha256Hex("other"), 3, 0, data, api::Crc32c(0, data.data(), 3)},
                            kStart, Check),
              ReasonIs("CHECKSUM_MISMATCH", "SHA-256"));
  EXPECT_EQ(Committed("other"), 0);
}

TEST_F(ProgramStoreTest, BoundsHold) {
  EXPECT_THAT(Send(std::string(61, 'x'), 0, 10), ReasonIs("LIMIT_EXCEEDED", "max_program_bytes"));
  TESSERA_ASSERT_OK(Send(std::string(60, 'x'), 0, 60));
  TESSERA_ASSERT_OK(Send(std::string(60, 'y'), 0, 40));
  EXPECT_THAT(Send(std::string(60, 'z'), 0, 1), ReasonIs("LIMIT_EXCEEDED", "programs_bytes_max"));
  TESSERA_ASSERT_OK(store_.Delete("a", Sha256Hex(std::string(60, 'x'))));
  TESSERA_ASSERT_OK(Send("1", 0, 1));
  TESSERA_ASSERT_OK(Send("2", 0, 1, "b"));
  EXPECT_THAT(Send("3", 0, 1), ReasonIs("LIMIT_EXCEEDED", "programs_max"));
}

TEST_F(ProgramStoreTest, UploadsThatRestAreForgotten) {
  const std::string all = "abcdefghij";
  TESSERA_ASSERT_OK(Send(all, 0, 4));
  TESSERA_ASSERT_OK(Send("whole", 0, 5));
  EXPECT_EQ(Committed(all, kStart + absl::Minutes(5) - absl::Seconds(1)), 4);
  EXPECT_EQ(Committed(all, kStart + absl::Minutes(5)), 0);
  TESSERA_EXPECT_OK(store_.Find("a", Sha256Hex("whole")));
}

TEST_F(ProgramStoreTest, ListsGoByHash) {
  std::vector<std::string> hashes;
  for (const char* text : {"1", "2"}) {
    TESSERA_ASSERT_OK(Send(text, 0, 1));
    hashes.push_back(Sha256Hex(text));
  }
  TESSERA_ASSERT_OK(Send("34", 0, 1));  // not whole
  std::sort(hashes.begin(), hashes.end());
  const auto page = store_.List("a", "", 1);
  ASSERT_EQ(page.size(), 1u);
  EXPECT_EQ(page[0].sha256, hashes[0]);
  const auto next = store_.List("a", hashes[0], 10);
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].sha256, hashes[1]);
  EXPECT_TRUE(store_.List("b", "", 10).empty());
}

}  // namespace
}  // namespace tessera::server::store
