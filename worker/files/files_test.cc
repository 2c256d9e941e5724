// Proves that headers are read strictly and written as other tools write them, that paths and links
// cannot leave the folder, and that several parts save one file together. The tests use real files
// in a temporary folder; each part of a save is a thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/testing/status_matchers.h"
#include "ir/strided.h"
#include "worker/files/folder.h"
#include "worker/files/index.h"
#include "worker/files/task.h"

namespace tessera::worker::files {
namespace {

using api::FileArrayInfo;
using api::FileFormat;
using ir::Array;
using ir::DType;
using ::testing::Each;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string LittleEndian(uint64_t value) {
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return out;
}

absl::StatusOr<Index> IndexOf(FileFormat format, const std::string& file) {
  return ReadIndex(format, static_cast<int64_t>(file.size()),
                   [&](int64_t offset, int64_t size, char* into) {
                     std::memcpy(into, file.data() + offset, static_cast<size_t>(size));
                     return absl::OkStatus();
                   });
}

TEST(SafetensorsTest, AHeaderOfAnotherToolIsRead) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"}, "b\"\u00e9":{"data_offsets":[8,10],"dtype":"BF16",)"
      R"("shape":[]},"a":{"dtype":"F32","shape":[1, 2],"data_offsets":[0,8]}}  )";
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const Index index, IndexOf(FileFormat::kSafetensors,
                                 LittleEndian(header.size()) + header + std::string(10, 'x')));
  ASSERT_EQ(index.entries.size(), 2u);
  const int64_t data = 8 + static_cast<int64_t>(header.size());
  EXPECT_EQ(index.entries[0].array, (FileArrayInfo{"a", DType::kF32, {1, 2}}));
  EXPECT_EQ(index.entries[0].offset, data);
  EXPECT_EQ(index.entries[1].array, (FileArrayInfo{"b\"\xc3\xa9", DType::kBF16, {}}));
  EXPECT_EQ(index.entries[1].offset, data + 8);
}

// Each row is a header with one mistake, and the place and reason that the error must name.
TEST(SafetensorsTest, AnInvalidHeaderIsRefusedWithItsPlace) {
  const auto parse = [](const std::string& header, int64_t bytes = 8) {
    return ParseSafetensors(header, bytes).status();
  };
  const auto tensor = [](const std::string& rest) {
    return R"({"a":{"dtype":"F32",)" + rest + "}}";
  };
  const std::string good = tensor(R"("shape":[2],"data_offsets":[0,8])");
  ASSERT_THAT(parse(good), IsOk());
  EXPECT_THAT(parse(good, 9), ReasonIs("FILE_CORRUPT", "end at 8, the file at 9"));
  EXPECT_THAT(parse(good + "x"), ReasonIs("FILE_CORRUPT", "expected the end"));
  EXPECT_THAT(parse(tensor(R"("shape":[2],"data_offsets":[0,9])")), ReasonIs("FILE_CORRUPT"));
  EXPECT_THAT(parse(tensor(R"("shape":[2],"data_offsets":[8,0])")), ReasonIs("FILE_CORRUPT"));
  EXPECT_THAT(parse(tensor(R"("shape":[2],"data_offsets":[1,9])"), 9),
              ReasonIs("FILE_CORRUPT", "'a' begins at 1"));
  EXPECT_THAT(parse(tensor(R"("shape":[-2],"data_offsets":[0,8])")),
              ReasonIs("FILE_CORRUPT", "expected a number"));
  EXPECT_THAT(parse(tensor(R"("shape":[2.0],"data_offsets":[0,8])")),
              ReasonIs("FILE_CORRUPT", "whole number"));
  EXPECT_THAT(parse(tensor(R"("shape":[4611686018427387904,4],"data_offsets":[0,8])")),
              ReasonIs("FILE_CORRUPT", "do not fit"));
  EXPECT_THAT(parse(tensor(R"("shape":[99999999999999999999],"data_offsets":[0,8])")),
              ReasonIs("FILE_CORRUPT", "too large"));
  EXPECT_THAT(parse(tensor(R"("shape":[2],"shape":[2],"data_offsets":[0,8])")),
              ReasonIs("FILE_CORRUPT", "a key occurs twice"));
  EXPECT_THAT(parse(tensor(R"("shape":[2])")), ReasonIs("FILE_CORRUPT", "expected dtype"));
  EXPECT_THAT(parse(R"({"a":{"dtype":"F4","shape":[],"data_offsets":[0,0]}})"),
              ReasonIs("FILE_CORRUPT", "F4 is unknown"));
  EXPECT_THAT(parse(R"({"a":{"a":{"a":{}}}})"), ReasonIs("FILE_CORRUPT"));
  EXPECT_THAT(parse(std::string(100'000, '{')), ReasonIs("FILE_CORRUPT"));
  EXPECT_THAT(parse("{\"\\ud800\":1}"), ReasonIs("FILE_CORRUPT", "surrogate"));
  EXPECT_THAT(IndexOf(FileFormat::kSafetensors, "short"), ReasonIs("FILE_CORRUPT"));
  EXPECT_THAT(IndexOf(FileFormat::kSafetensors, LittleEndian(uint64_t{1} << 62) + "{}"),
              ReasonIs("FILE_CORRUPT", "a header of"));
}

TEST(NumpyTest, AnInvalidHeaderIsRefused) {
  const auto parse = [](const std::string& header, int64_t bytes) {
    return ParseNumpy(header, bytes);
  };
  EXPECT_THAT(parse("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24),
              IsOkAndHolds(FileArrayInfo{"", DType::kF32, {2, 3}}));
  EXPECT_THAT(parse("{'shape': (), 'descr': '|b1', 'fortran_order': True}", 1),
              IsOkAndHolds(FileArrayInfo{"", DType::kBool, {}}));
  EXPECT_THAT(parse("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", 8),
              ReasonIs("FILE_CORRUPT", ">f4 is unknown"))
      << "big endian";
  EXPECT_THAT(parse("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 24),
              ReasonIs("NOT_IMPLEMENTED", "Fortran"));
  EXPECT_THAT(parse("{'descr': '<f4', 'fortran_order': False, 'shape': (2), }", 8),
              ReasonIs("FILE_CORRUPT", "','"));
  EXPECT_THAT(parse("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 9),
              ReasonIs("FILE_CORRUPT"));
  EXPECT_THAT(parse("{'descr': '<f4', 'shape': (2,), }", 8), ReasonIs("FILE_CORRUPT"));
  EXPECT_THAT(parse("__import__('os')", 8), ReasonIs("FILE_CORRUPT", "expected '{'"));
  EXPECT_THAT(IndexOf(FileFormat::kNumpy, "\x93NUMPY\x07"), ReasonIs("FILE_CORRUPT"));
}

TEST(IndexTest, HeadersAreReadAsTheyWereMade) {
  for (int d = 0; d < ir::kNumDTypes; ++d) {
    for (const FileFormat format : {FileFormat::kSafetensors, FileFormat::kNumpy}) {
      std::vector<FileArrayInfo> arrays = {{"x", static_cast<DType>(d), {3, 5}}};
      if (!api::CheckFileArrays(format, arrays).ok()) continue;
      if (format == FileFormat::kNumpy) arrays[0].name = "";
      Index made;
      std::string file = MakeHeader(format, arrays, &made);
      file.resize(static_cast<size_t>(made.file_bytes), 'd');
      TESSERA_ASSERT_OK_AND_ASSIGN(const Index read, IndexOf(format, file));
      ASSERT_EQ(read.entries.size(), 1u);
      EXPECT_EQ(read.entries[0].array, arrays[0]);
      EXPECT_EQ(read.entries[0].offset, made.entries[0].offset);
      EXPECT_EQ(made.entries[0].offset % (format == FileFormat::kNumpy ? 64 : 8), 0);
    }
  }
}

TEST(PathTest, OnlyRelativePathsInsideTheFolderAreAccepted) {
  EXPECT_THAT(api::CheckFilePath("runs/7/model.safetensors"),
              IsOkAndHolds(FileFormat::kSafetensors));
  EXPECT_THAT(api::CheckFilePath("x.npy"), IsOkAndHolds(FileFormat::kNumpy));
  for (const char* path : {"", "/etc/x.npy", "../x.npy", "a/../x.npy", "a//x.npy", ".x.npy",
                           "a/.git/x.npy", "x.txt", "a\\x.npy", "a\n.npy", "x.npy/", "."}) {
    EXPECT_THAT(api::CheckFilePath(path), ReasonIs("VALUE_ERROR")) << path;
  }
  EXPECT_THAT(api::CheckFilePath(std::string(2000, 'a') + ".npy"), ReasonIs("VALUE_ERROR"));
}

class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    root_ = fs::path(::testing::TempDir()) /
            absl::StrCat("tessera-files-", getpid(), "-",
                         ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~FolderTest() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  std::string ReadFile(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(root_ / path).rdbuf();
    return text.str();
  }
  int NumFiles() {
    int files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root_))
      files += entry.is_regular_file();
    return files;
  }

  fs::path root_;
};

TEST_F(FolderTest, LinksAreNotFollowed) {
  std::ofstream(root_ / "x.npy") << "here";
  fs::create_symlink(root_ / "x.npy", root_ / "link.npy");
  fs::create_directory_symlink("/tmp", root_ / "out");
  ASSERT_EQ(mkfifo((root_ / "pipe.npy").c_str(), 0600), 0);
  const FilesRoot folder(root_);
  int64_t bytes = 0;
  EXPECT_THAT(folder.Open("x.npy", &bytes), IsOk());
  EXPECT_EQ(bytes, 4);
  EXPECT_THAT(folder.Open("link.npy", &bytes), ReasonIs("VALUE_ERROR", "links"));
  EXPECT_FALSE(folder.Open("out/x.npy", &bytes).ok());
  EXPECT_FALSE(folder.Locate("out/x.npy", /*make_directories=*/true).ok());
  EXPECT_THAT(folder.Open("pipe.npy", &bytes), ReasonIs("FILE_NOT_FOUND"));
  EXPECT_THAT(folder.Open("no/x.npy", &bytes), ReasonIs("FILE_NOT_FOUND"));
  EXPECT_THAT(FilesRoot("").Open("x.npy", &bytes), ReasonIs("FILES_DISABLED", "--files-dir"));
}

TEST_F(FolderTest, AllProcessesReadTheSameIdentityOfAFolder) {
  std::vector<std::string> names(8);
  std::vector<std::thread> threads;
  for (std::string& name : names)
    threads.emplace_back([&] { name = FilesRoot(root_).Identity().value_or("none"); });
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(names, Each(names[0]));
  EXPECT_EQ(names[0].size(), 32u);
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1) << "drafts";
  fs::create_directory(root_ / "other");
  const auto other = FilesRoot(root_ / "other").Identity();
  ASSERT_THAT(other, IsOk());
  EXPECT_NE(*other, names[0]);
  EXPECT_THAT(FilesRoot(root_ / "no").Identity(), ReasonIs("VALUE_ERROR", "does not open"));
}

// Saves two arrays that are divided among the parts: the one by rows, the other by columns.
class TaskTest : public FolderTest {
 protected:
  static constexpr int kParts = 3;

  TaskTest() {
    for (int64_t i = 0; i < rows_.num_elements(); ++i) rows_.Set(i, static_cast<double>(i % 251));
    for (int64_t i = 0; i < columns_.num_elements(); ++i) columns_.Set(i, static_cast<double>(i));
  }
  api::SaveShards Part(int part, bool overwrite = false) {
    api::SaveShards command;
    command.path = "deep/model.safetensors";
    command.token = "1";
    command.overwrite = overwrite;
    command.part = part;
    command.parts = kParts;
    command.arrays = {{"rows", DType::kBF16, {6, 10}}, {"columns", DType::kF64, {4, 9}}};
    command.shards = Shards(part);
    return command;
  }
  static std::vector<api::FileShard> Shards(int part) {
    return {{0, 7, part, {2 * part, 0}, {2, 10}}, {1, 8, part, {0, 3 * part}, {4, 3}}};
  }
  const Array& Whole(const api::FileShard& shard) { return shard.index == 0 ? rows_ : columns_; }
  Hooks SaveHooks() {
    Hooks hooks;
    hooks.bytes_of = [this](const api::FileShard& s) -> absl::StatusOr<Array> {
      return ir::SliceBlock(Whole(s), s.starts, s.shape);
    };
    hooks.wait = [](absl::Duration d) {
      absl::Notification never;
      never.WaitForNotificationWithTimeout(d);
      return absl::OkStatus();
    };
    return hooks;
  }
  // Saves every part on its own thread, and returns the status of each.
  std::vector<absl::Status> SaveAll(bool overwrite = false, const std::string& token = "1") {
    std::vector<absl::Status> ends(kParts);
    std::vector<std::thread> threads;
    for (int part = 0; part < kParts; ++part) {
      threads.emplace_back([&, part] {
        api::SaveShards command = Part(part, overwrite);
        command.token = token;
        ends[part] = Save(FilesRoot(root_), command, SaveHooks(), absl::Seconds(20));
      });
    }
    for (std::thread& t : threads) t.join();
    return ends;
  }

  Array rows_{DType::kBF16, {6, 10}}, columns_{DType::kF64, {4, 9}};
};

// Three parts save one file; it is then loaded by shards that are cut in another way.
TEST_F(TaskTest, AFileSavedInPartsMayBeLoadedByOtherShards) {
  for (const absl::Status& end : SaveAll()) ASSERT_THAT(end, IsOk());
  EXPECT_EQ(NumFiles(), 1) << "nothing is left beside it";
  const std::string file = ReadFile("deep/model.safetensors");
  TESSERA_ASSERT_OK_AND_ASSIGN(const Index index, IndexOf(FileFormat::kSafetensors, file));
  const Entry* columns = index.Find("columns");
  ASSERT_NE(columns, nullptr);
  EXPECT_EQ(std::memcmp(file.data() + columns->offset, columns_.data(), columns_.num_bytes()), 0);

  TESSERA_ASSERT_OK_AND_ASSIGN(const auto arrays,
                               Inspect(FilesRoot(root_), "deep/model.safetensors"));
  EXPECT_EQ(arrays, Part(0).arrays);
  api::LoadShards load;
  load.path = "deep/model.safetensors";
  load.arrays = arrays;
  load.shards = {{0, 1, 0, {1, 3}, {4, 5}}, {1, 2, 0, {0, 0}, {4, 9}}, {1, 2, 1, {3, 8}, {1, 1}}};
  size_t taken = 0;
  int64_t reserved = 0;
  Hooks hooks = SaveHooks();
  hooks.reserve = [&](const api::FileShard&, int64_t bytes) {
    reserved += bytes;
    return absl::OkStatus();
  };
  hooks.store = [&](const api::FileShard& s, Array value) {
    ++taken;
    EXPECT_TRUE(value == ir::SliceBlock(Whole(s), s.starts, s.shape));
    return absl::OkStatus();
  };
  EXPECT_THAT(Load(FilesRoot(root_), load, hooks), IsOk());
  EXPECT_EQ(taken, load.shards.size());
  EXPECT_EQ(reserved, 4 * 5 * 2 + 4 * 9 * 8 + 8);
  load.arrays[0].shape = {60, 1};
  EXPECT_THAT(Load(FilesRoot(root_), load, hooks),
              ReasonIs("FILE_NOT_FOUND", "since it was inspected"));
}

TEST_F(TaskTest, AnExistingFileIsKeptUnlessOverwriteIsSet) {
  for (const absl::Status& end : SaveAll()) ASSERT_THAT(end, IsOk());
  const std::string before = ReadFile("deep/model.safetensors");
  columns_.Set(0, 123);
  // A save of one part only, so that nobody waits for it.
  api::SaveShards alone = Part(0);
  alone.parts = 1;
  alone.token = "2";
  EXPECT_THAT(Save(FilesRoot(root_), alone, SaveHooks()), ReasonIs("ALREADY_EXISTS", "overwrite"));
  EXPECT_EQ(ReadFile("deep/model.safetensors"), before);
  for (const absl::Status& end : SaveAll(/*overwrite=*/true, "3")) ASSERT_THAT(end, IsOk());
  EXPECT_NE(ReadFile("deep/model.safetensors"), before);
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(TaskTest, AFailedPartLeavesNoFile) {
  std::vector<absl::Status> ends(2);
  std::thread other([&] {
    api::SaveShards command = Part(1);
    command.parts = 2;
    Hooks hooks = SaveHooks();
    hooks.bytes_of = [](const api::FileShard&) -> absl::StatusOr<Array> {
      return MakeError(ErrorKind::kArrayDeleted, "gone");
    };
    ends[1] = Save(FilesRoot(root_), command, hooks, absl::Seconds(20));
  });
  api::SaveShards command = Part(0);
  command.parts = 2;
  ends[0] = Save(FilesRoot(root_), command, SaveHooks());
  other.join();
  EXPECT_THAT(ends[0], ReasonIs("PEER_FAILED", "part 1"));
  EXPECT_THAT(ends[1], ReasonIs("ARRAY_DELETED"));
  EXPECT_EQ(NumFiles(), 0);
}

// A disk of 64 KiB. It is too small for the array, then for the header, and then for the folder.
class FullDiskTest : public TaskTest {
 protected:
  void SetUp() override {
    if (mount("tessera-test", root_.c_str(), "tmpfs", 0, "size=64k") != 0)
      GTEST_SKIP() << "a small disk cannot be mounted: " << std::strerror(errno)
                   << "; run it as root";
    mounted_ = true;
  }
  void TearDown() override {
    if (mounted_) umount(root_.c_str());
  }
  // Fills the rest of the disk.
  void Fill() const { std::ofstream(root_ / "rest") << std::string(1 << 20, 'x'); }
  bool mounted_ = false;
};

TEST_F(FullDiskTest, AFullDiskGivesNoSpaceAndLeavesNoFile) {
  const Array large(DType::kF32, {1 << 16});
  api::SaveShards command;
  command.path = "large.safetensors";
  command.token = "1";
  command.arrays = {{"large", DType::kF32, large.shape()}};
  command.shards = {{0, 1, 0, {0}, large.shape()}};
  Hooks hooks = SaveHooks();
  hooks.bytes_of = [&](const api::FileShard&) -> absl::StatusOr<Array> { return large; };
  EXPECT_THAT(Save(FilesRoot(root_), command, hooks), ReasonIs("NO_SPACE", "more room"));
  EXPECT_EQ(NumFiles(), 0);
  command.path = "deep/large.safetensors";
  Fill();
  EXPECT_THAT(Save(FilesRoot(root_), command, hooks), ReasonIs("NO_SPACE"));
  EXPECT_EQ(NumFiles(), 1) << "more is left than the file that filled the disk";
}

TEST(FileErrorTest, OnlyAFullDiskIsNoSpace) {
  for (const int error : {ENOSPC, EDQUOT}) EXPECT_THAT(FileError("x", error), ReasonIs("NO_SPACE"));
  EXPECT_THAT(FileError("x", EFBIG), ReasonIs("LIMIT_EXCEEDED"));
  EXPECT_THAT(FileError("x", EIO), ReasonIs("INTERNAL"));
}

TEST_F(TaskTest, APartInAnotherFolderIsReported) {
  EXPECT_THAT(Save(FilesRoot(root_), Part(1), SaveHooks(), absl::Milliseconds(50)),
              ReasonIs("FILES_DISABLED", "share"));
}

TEST_F(TaskTest, PartZeroMayBeCancelledWhileItWaits) {
  Hooks hooks = SaveHooks();
  int waits = 0;
  hooks.wait = [&](absl::Duration) {
    return ++waits > 5 ? MakeError(ErrorKind::kCancelled, "enough") : absl::OkStatus();
  };
  EXPECT_THAT(Save(FilesRoot(root_), Part(0), hooks), ReasonIs("CANCELLED", "enough"));
  EXPECT_EQ(NumFiles(), 0);
}

TEST_F(TaskTest, OnlyAbandonedTemporaryFilesAreDeleted) {
  fs::create_directories(root_ / "deep");
  for (const char* token : {"old", "new"}) {
    std::ofstream(root_ / absl::StrCat("deep/.model.safetensors.tessera-", token)) << "x";
  }
  fs::last_write_time(root_ / "deep/.model.safetensors.tessera-old",
                      fs::file_time_type::clock::now() - std::chrono::hours(3));
  for (const absl::Status& end : SaveAll()) ASSERT_THAT(end, IsOk());
  EXPECT_EQ(NumFiles(), 2);
  EXPECT_TRUE(fs::exists(root_ / "deep/.model.safetensors.tessera-new"));
}

}  // namespace
}  // namespace tessera::worker::files
