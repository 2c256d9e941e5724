// Proves that acknowledged commits survive restarts, failing disks, kills and power failures, and
// that damaged, foreign or newer states are refused unchanged. Each test has a folder of its own;
// faults come from FaultyDisk, a small tmpfs, or a child process that is killed.
#include "server/store/sqlite_store.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/state_file.h"
#include "base/testing/status_matchers.h"
#include "server/store/migrations.h"
#include "server/store/testing/faulty_disk.h"

namespace tessera::server::store {
namespace {

namespace fs = std::filesystem;
using core::IdKey;
using core::Row;
using core::RowKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kPatience = absl::Seconds(30);

class RecordingListener final : public Store::Listener {
 public:
  void OnDurable(uint64_t commit) override {
    absl::MutexLock lock(&mu_);
    durable_.push_back(commit);
  }
  void OnCommitsFailed(absl::Status why) override {
    absl::MutexLock lock(&mu_);
    failures_.push_back(std::move(why));
  }
  bool AwaitDurable(uint64_t commit, absl::Duration bound = kPatience) {
    absl::MutexLock lock(&mu_);
    const auto there = [&] { return !durable_.empty() && durable_.back() >= commit; };
    return mu_.AwaitWithTimeout(absl::Condition(&there), bound);
  }
  // Returns the first failure, or OK if there is none within the bound.
  absl::Status AwaitFailure(absl::Duration bound = kPatience) {
    absl::MutexLock lock(&mu_);
    const auto there = [&] { return !failures_.empty(); };
    return mu_.AwaitWithTimeout(absl::Condition(&there), bound) ? failures_[0] : absl::OkStatus();
  }
  std::vector<uint64_t> durable() {
    absl::MutexLock lock(&mu_);
    return durable_;
  }
  std::vector<absl::Status> failures() {
    absl::MutexLock lock(&mu_);
    return failures_;
  }

 private:
  absl::Mutex mu_;
  std::vector<uint64_t> durable_;
  std::vector<absl::Status> failures_;
};

Row ArrayRow(uint64_t id, std::string value) {
  return {RowKind::kArray, IdKey(id), std::move(value)};
}

class SqliteStoreTest : public ::testing::Test {
 protected:
  SqliteStoreTest() {
    root_ = (fs::temp_directory_path() / "tessera-store-XXXXXX").string();
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    folder_ = root_ + "/state";
    options_ = {.folder = folder_, .build = "test 1", .retry = absl::Milliseconds(20)};
  }
  ~SqliteStoreTest() override { fs::remove_all(root_); }

  absl::StatusOr<std::unique_ptr<SqliteStore>> Open() { return SqliteStore::Open(options_); }
  // Opens the store, commits the rows and closes the store again, which is one life.
  void CommitInOneLife(std::vector<Row> rows) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
    store->Commit(1, std::move(rows));
    TESSERA_ASSERT_OK(store->Flush(kPatience));
  }
  std::vector<Row> LoadInNextLife() {
    const auto store = Open();
    EXPECT_THAT(store, IsOk());
    if (!store.ok()) return {};
    const auto rows = (*store)->Load();
    EXPECT_THAT(rows, IsOk());
    return rows.ok() ? *rows : std::vector<Row>();
  }
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories(folder_);
    std::ofstream(folder_ + "/" + name) << text;
  }
  std::string Read(const std::string& name) {
    std::ifstream in(folder_ + "/" + name);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  std::string database() const { return folder_ + "/state.db"; }

  std::string root_, folder_;
  SqliteOptions options_;
};

TEST_F(SqliteStoreTest, TheNextLifeReadsTheRows) {
  CommitInOneLife({ArrayRow(300, "b"),
                   ArrayRow(2, "a"),
                   {RowKind::kSession, "z", std::string("\0x", 2)},
                   ArrayRow(2, "again"),
                   {RowKind::kAnswer, "", ""}});
  EXPECT_THAT(LoadInNextLife(),
              ElementsAre(Row{RowKind::kSession, "z", std::string("\0x", 2)}, ArrayRow(2, "again"),
                          ArrayRow(300, "b"), Row{RowKind::kAnswer, "", ""}));
  CommitInOneLife({{RowKind::kArray, IdKey(2), std::nullopt},
                   {RowKind::kMesh, "never was", std::nullopt},
                   ArrayRow(300, "c")});
  EXPECT_THAT(LoadInNextLife(), ElementsAre(Row{RowKind::kSession, "z", std::string("\0x", 2)},
                                            ArrayRow(300, "c"), Row{RowKind::kAnswer, "", ""}));
}

TEST_F(SqliteStoreTest, EveryStartHasIdsOfItsOwn) {
  for (const uint64_t start : {1, 2, 3}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
    EXPECT_TRUE(store->is_persistent());
    EXPECT_EQ(store->life().epoch, start);
    EXPECT_EQ(store->life().first_id, (start - 1) << core::kIdBits);
  }
}

TEST_F(SqliteStoreTest, TheSecretIsTheSameInEveryLife) {
  std::string secret;
  for (int start = 0; start < 3; ++start) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
    if (start == 0) secret = store->secret();
    EXPECT_EQ(store->secret(), secret);
  }
  EXPECT_EQ(secret.size(), 2 * kSecretBytes);
  EXPECT_NE(MemoryStore().secret(), secret);
  EXPECT_NE(MemoryStore().secret(), MemoryStore().secret());
}

TEST_F(SqliteStoreTest, AllKindsAreKept) {
  std::vector<Row> rows;
  for (int k = 0; k < core::kNumRowKinds; ++k)
    rows.push_back({static_cast<RowKind>(k), absl::StrCat("key ", k), absl::StrCat("value ", k)});
  CommitInOneLife(rows);
  EXPECT_EQ(LoadInNextLife(), rows);
  EXPECT_EQ(Migrations().size(), static_cast<size_t>(state_file::kSchemaVersion));
}

TEST_F(SqliteStoreTest, OtherUsersCannotReadTheFiles) {
  options_.folder += "/";
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
  store->Commit(1, {ArrayRow(1, "secret")});
  TESSERA_ASSERT_OK(store->Flush(kPatience));
  struct stat info = {};
  ASSERT_EQ(stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 5) << "database, its log and index, lock, epoch";
}

TEST(LifeTest, ALifeWithoutStateBeginsAtARandomId) {
  const core::Life a = core::RandomLife(7, 12), b = core::RandomLife(8, 13);
  EXPECT_EQ(a.epoch, 7u);
  EXPECT_NE(a.first_id, b.first_id);
  EXPECT_LT(core::RandomLife(1, ~uint64_t{0}).first_id, uint64_t{1} << 52);
}

// ---- Commits. -----------------------------------------------------------------------------------
TEST_F(SqliteStoreTest, CommitsThatWaitBecomeDurableTogether) {
  FaultyDisk disk;
  options_.vfs = disk.name();
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
  RecordingListener listener;
  store->Listen(&listener);
  disk.HoldSyncs(true);
  const int64_t before = disk.syncs();
  // If Commit waited for the disk, it would wait for ever.
  for (uint64_t n = 1; n <= 1000; ++n) store->Commit(n, {ArrayRow(n % 10, absl::StrCat(n))});
  EXPECT_THAT(listener.durable(), IsEmpty());
  EXPECT_THAT(store->Flush(absl::Milliseconds(1)), ReasonIs("DEADLINE_EXCEEDED", "not durable"));
  disk.HoldSyncs(false);
  ASSERT_TRUE(listener.AwaitDurable(1000));
  TESSERA_EXPECT_OK(store->Flush(kPatience));
  const std::vector<uint64_t> durable = listener.durable();
  EXPECT_LE(durable.size(), 3u);
  EXPECT_LE(disk.syncs() - before, 3) << "one sync for each transaction";
  EXPECT_TRUE(std::is_sorted(durable.begin(), durable.end()));
  EXPECT_THAT(listener.failures(), IsEmpty());
  store->Listen(nullptr);
  store->Commit(1001, {});
  TESSERA_EXPECT_OK(store->Flush(kPatience));
  EXPECT_EQ(listener.durable().back(), 1000u) << "nobody listens";
}

TEST_F(SqliteStoreTest, ASlowDiskOnlyDelays) {
  FaultyDisk disk;
  options_.vfs = disk.name();
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
  RecordingListener listener;
  store->Listen(&listener);
  disk.SetSyncTime(absl::Milliseconds(200));
  const absl::Time start = absl::Now();
  store->Commit(1, {ArrayRow(1, "x")});
  ASSERT_TRUE(listener.AwaitDurable(1));
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(200));
  EXPECT_THAT(listener.failures(), IsEmpty());
}

TEST_F(SqliteStoreTest, ARowMayBeLarge) {
  const std::string large(1 << 20, 'x');
  CommitInOneLife(
      {ArrayRow(1, large), {RowKind::kProgram, std::string(core::kRowKeyBytesMax, 'k'), "y"}});
  EXPECT_THAT(LoadInNextLife(),
              ElementsAre(ArrayRow(1, large),
                          Row{RowKind::kProgram, std::string(core::kRowKeyBytesMax, 'k'), "y"}));
}

TEST_F(SqliteStoreTest, TheLogIsBounded) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
  const std::string value(100'000, 'x');
  for (uint64_t n = 1; n <= 400; ++n) {
    store->Commit(n, {ArrayRow(n % 7, value)});
    TESSERA_ASSERT_OK(store->Flush(kPatience));
  }
  // 40 MB went through the log. It may hold the pages of three rounds.
  EXPECT_LE(fs::file_size(database() + "-wal"), size_t{3} * 1000 * 4096);
}

TEST_F(SqliteStoreTest, AHundredThousandRowsAreLoaded) {
  std::vector<Row> rows;
  for (uint64_t id = 0; id < 100'000; ++id)
    rows.push_back(ArrayRow(id, absl::StrCat(id, std::string(300, 'v'))));
  CommitInOneLife(rows);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Row> loaded, store->Load());
  EXPECT_EQ(loaded, rows);
}

// ---- Disks that fail. ---------------------------------------------------------------------------
class FaultTest : public SqliteStoreTest,
                  public ::testing::WithParamInterface<std::pair<FaultyDisk::Fault, const char*>> {
};

TEST_P(FaultTest, IsReportedOnceAndEnds) {
  FaultyDisk disk;
  options_.vfs = disk.name();
  {
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
    RecordingListener listener;
    store->Listen(&listener);
    store->Commit(1, {ArrayRow(1, "a"), ArrayRow(2, "a")});
    ASSERT_TRUE(listener.AwaitDurable(1));
    disk.SetFault(GetParam().first);
    store->Commit(2, {ArrayRow(1, "b")});
    EXPECT_THAT(listener.AwaitFailure(absl::Seconds(1)), ReasonIs(GetParam().second, "state.db"));
    store->Commit(3, {{RowKind::kArray, IdKey(2), std::nullopt}});
    store->Commit(4, {ArrayRow(3, "d"), ArrayRow(1, "e")});
    EXPECT_THAT(store->Flush(absl::Milliseconds(100)), ReasonIs("DEADLINE_EXCEEDED"));
    EXPECT_EQ(listener.failures().size(), 1u) << "reported once";
    EXPECT_THAT(listener.durable(), ElementsAre(1));
    disk.SetFault(FaultyDisk::Fault::kNone);
    EXPECT_TRUE(listener.AwaitDurable(4, absl::Seconds(5)));
    store->Listen(nullptr);
  }
  options_.vfs = "";
  EXPECT_THAT(LoadInNextLife(), ElementsAre(ArrayRow(1, "e"), ArrayRow(3, "d")));
}

INSTANTIATE_TEST_SUITE_P(All, FaultTest,
                         ::testing::Values(std::pair(FaultyDisk::Fault::kFull, "DISK_FULL"),
                                           std::pair(FaultyDisk::Fault::kBroken, "STORE_FAILED"),
                                           std::pair(FaultyDisk::Fault::kReadOnly,
                                                     "STORE_FAILED")));

TEST_F(SqliteStoreTest, AnotherProgramThatWritesIsReported) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
  RecordingListener listener;
  store->Listen(&listener);
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto other,
                               sqlite::Database::Open(database(), sqlite::OpenMode::kReadWrite, 0));
  TESSERA_ASSERT_OK(other->Execute("BEGIN IMMEDIATE"));
  store->Commit(1, {ArrayRow(1, "x")});
  EXPECT_THAT(listener.AwaitFailure(absl::Seconds(1)), ReasonIs("STORE_FAILED", "another program"));
  TESSERA_ASSERT_OK(other->Execute("COMMIT"));
  EXPECT_TRUE(listener.AwaitDurable(1, absl::Seconds(5)));
  store->Listen(nullptr);
}

class SmallDiskTest : public SqliteStoreTest {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    if (mount("tessera-test", folder_.c_str(), "tmpfs", 0, "size=8m") != 0)
      GTEST_SKIP() << "a small disk cannot be mounted: " << std::strerror(errno)
                   << "; run it as root";
    mounted_ = true;
  }
  void TearDown() override {
    if (mounted_) umount(folder_.c_str());
  }
  bool mounted_ = false;
};

TEST_F(SmallDiskTest, AFullDiskIsReportedAndNothingIsLost) {
  uint64_t n = 0;
  const std::string value(50'000, 'v');
  {
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
    RecordingListener listener;
    store->Listen(&listener);
    store->Commit(++n, {ArrayRow(0, value)});
    ASSERT_TRUE(listener.AwaitDurable(n));
    std::ofstream(folder_ + "/rest") << std::string(16 << 20, 'x');
    // The log's file has room for some more commits.
    while (listener.failures().empty() && n < 1000) {
      ++n;
      store->Commit(n, {ArrayRow(n, value)});
      const absl::Time start = absl::Now();
      while (listener.durable().back() < n && listener.AwaitFailure(absl::Milliseconds(10)).ok())
        ASSERT_LT(absl::Now() - start, absl::Seconds(1)) << "neither durable nor failing";
    }
    EXPECT_THAT(listener.AwaitFailure(), ReasonIs("DISK_FULL"));
    const uint64_t durable = listener.durable().back();
    EXPECT_LT(durable, n);
    TESSERA_ASSERT_OK(store->Load()) << "reads go on";
    fs::remove(folder_ + "/rest");
    EXPECT_TRUE(listener.AwaitDurable(n, absl::Seconds(5)));
    store->Listen(nullptr);
  }
  TESSERA_ASSERT_OK_AND_ASSIGN(const state_file::Report report, state_file::Check(folder_));
  EXPECT_EQ(report.tables[1].name, "array");
  EXPECT_EQ(report.tables[1].rows, static_cast<int64_t>(n));
  EXPECT_EQ(LoadInNextLife().size(), n);
}

TEST_F(SmallDiskTest, AStartOnAFullDiskIsRefused) {
  std::ofstream(folder_ + "/rest") << std::string(16 << 20, 'x');
  EXPECT_THAT(Open().status(), ReasonIs("DISK_FULL"));
  fs::remove(folder_ + "/rest");
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
  EXPECT_EQ(store->life().epoch, 1u) << "the refused start was none";
}

TEST_F(SmallDiskTest, ADiskWithoutRoomForAnotherFileIsFull) {
  // With one inode only the folder itself fits, and with two also the lock.
  for (const int files : {1, 2}) {
    const std::string room = absl::StrCat("size=8m,nr_inodes=", files);
    ASSERT_EQ(mount("tessera-test", folder_.c_str(), "tmpfs", MS_REMOUNT, room.c_str()), 0);
    EXPECT_THAT(Open().status(), ReasonIs("DISK_FULL")) << files;
  }
}

TEST_F(SmallDiskTest, ALaterStartOnAFullDiskIsRefusedAsFull) {
  CommitInOneLife({ArrayRow(1, "x")});
  for (const bool killed : {false, true}) {
    if (killed) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        const auto store = Open();
        if (!store.ok()) _exit(1);
        (*store)->Commit(1, {ArrayRow(2, "y")});
        _exit((*store)->Flush(kPatience).ok() ? 0 : 2);  // The store's log and index stay.
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_EQ(status, 0);
    }
    std::ofstream(folder_ + "/rest") << std::string(16 << 20, 'x');
    EXPECT_THAT(Open().status(), ReasonIs("DISK_FULL")) << killed;
    fs::remove(folder_ + "/rest");
    EXPECT_EQ(LoadInNextLife().size(), killed ? 2u : 1u);
  }
}

// ---- Two coordinators. --------------------------------------------------------------------------
TEST_F(SqliteStoreTest, OneCoordinatorAtATimeUsesAFolder) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto held, Open());
  EXPECT_THAT(Open().status(), ReasonIs("VALUE_ERROR", "another coordinator uses"));
}

TEST_F(SqliteStoreTest, ASupersededCoordinatorWritesNoMore) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto old, Open());
  RecordingListener listener;
  old->Listen(&listener);
  old->Commit(1, {ArrayRow(1, "old")});
  ASSERT_TRUE(listener.AwaitDurable(1));
  fs::remove(folder_ + "/lock");  // Stands for a file system on which locks do not work.
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto next, Open());
  EXPECT_EQ(next->life().epoch, 2u);
  old->Commit(2, {ArrayRow(1, "overwritten")});
  EXPECT_THAT(listener.AwaitFailure(), ReasonIs("STALE_EPOCH", "start number 2"));
  old->Commit(3, {ArrayRow(1, "overwritten")});
  EXPECT_THAT(old->Flush(kPatience), ReasonIs("STALE_EPOCH"));
  EXPECT_EQ(listener.failures().size(), 1u);
  EXPECT_THAT(listener.durable(), ElementsAre(1));
  EXPECT_THAT(*next->Load(), ElementsAre(ArrayRow(1, "old")));
  next->Commit(1, {ArrayRow(2, "next")});
  TESSERA_EXPECT_OK(next->Flush(kPatience));
}

TEST_F(SqliteStoreTest, AFileThatIsReplacedIsNotWritten) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
  RecordingListener listener;
  store->Listen(&listener);
  fs::rename(database(), database() + ".kept");
  store->Commit(1, {ArrayRow(1, "x")});
  EXPECT_THAT(listener.AwaitFailure(), ReasonIs("STALE_EPOCH", "replaced"));
}

// ---- Files of other builds and programs in the folder. ------------------------------------------
TEST_F(SqliteStoreTest, AFolderFromBeforeTheDatabaseIsTakenOver) {
  Write("epoch", "7\n");
  Write("executors", "0 2 0 cpu w1\n7 1 3 gpu a b\n");
  options_.row_of_executor = [](const core::KnownExecutor& x) {
    return Row{RowKind::kExecutor, IdKey(static_cast<uint64_t>(x.first_device)),
               absl::StrCat(x.worker, "/", x.device_kind, "/", x.index, "/", x.num_devices)};
  };
  for (const uint64_t start : {8, 9}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
    EXPECT_EQ(store->life().epoch, start);
    EXPECT_THAT(*store->Load(), ElementsAre(Row{RowKind::kExecutor, IdKey(0), "w1/cpu/0/2"},
                                            Row{RowKind::kExecutor, IdKey(7), "a b/gpu/3/1"}));
  }
  EXPECT_EQ(Read("epoch"), "in state.db\n") << "no number: an older build refuses it";
  EXPECT_FALSE(fs::exists(folder_ + "/executors"));
  // An older build has run on a copy of the folder in which `epoch` was a number.
  Write("epoch", "20\n");
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto store, Open());
  EXPECT_EQ(store->life().epoch, 21u);
}

TEST_F(SqliteStoreTest, MalformedLegacyFilesAreRefusedAndKept) {
  for (const char* text : {"", "seven", "-1", "1 2", "262144", "262145"}) {
    Write("epoch", text);
    EXPECT_THAT(Open().status(),
                ReasonIs("VALUE_ERROR", ::testing::AnyOf(HasSubstr("does not contain a number"),
                                                         HasSubstr("starts, at most"))))
        << text;
    EXPECT_EQ(Read("epoch"), text);
  }
  Write("epoch", "1");
  for (const char* text : {"x", "0 0 0 cpu w", "0 1 0 cpu", "0 1 0 cpu ",
                           "3 1 0 cpu a\n3 1 0 cpu b", "-1 1 0 cpu a", "0 99999999999 0 cpu a"}) {
    Write("executors", text);
    EXPECT_THAT(Open().status(), ReasonIs("VALUE_ERROR", "does not describe an executor")) << text;
  }
  options_.folder = "/proc/nothing";
  EXPECT_THAT(Open().status(), ReasonIs("VALUE_ERROR", "/proc"));
}

TEST_F(SqliteStoreTest, AMissingDatabaseIsNotTakenForAFirstStart) {
  CommitInOneLife({ArrayRow(1, "x")});
  std::ofstream(database(), std::ios::trunc).flush();
  EXPECT_THAT(Open().status(), ReasonIs("FILE_CORRUPT", "is empty; restore a backup"));
  fs::remove(database());
  EXPECT_THAT(Open().status(), ReasonIs("FILE_CORRUPT", "is gone; restore a backup"));
  EXPECT_FALSE(fs::exists(database()));
}

TEST_F(SqliteStoreTest, ADamagedFileIsRefusedAndKept) {
  std::vector<Row> rows;
  for (uint64_t id = 0; id < 1000; ++id) rows.push_back(ArrayRow(id, std::string(500, 'v')));
  CommitInOneLife(rows);
  const std::string whole = Read("state.db");
  std::string torn = whole, page = whole;
  torn.resize(whole.size() / 2);
  std::fill_n(page.begin() + static_cast<long>(page.size() / 2), 9000, '\x5a');
  for (const std::string& bytes : {torn, page, std::string("no database at all"),
                                   std::string(100'000, '\x11'), whole.substr(0, 50)}) {
    Write("state.db", bytes);
    EXPECT_THAT(Open().status(), ReasonIs("FILE_CORRUPT", "restore a backup"));
    EXPECT_EQ(Read("state.db"), bytes);
    EXPECT_THAT(state_file::Check(folder_).status(), ReasonIs("FILE_CORRUPT", "restore a backup"));
  }
  Write("state.db", whole);
  EXPECT_EQ(LoadInNextLife(), rows);
}

TEST_F(SqliteStoreTest, AStateOfANewerBuildIsRefused) {
  CommitInOneLife({ArrayRow(1, "x")});
  {
    TESSERA_ASSERT_OK_AND_ASSIGN(
        const auto database,
        sqlite::Database::Open(this->database(), sqlite::OpenMode::kReadWrite, 0));
    TESSERA_ASSERT_OK(database->Execute("PRAGMA user_version = 7"));
  }
  const auto versions =
      ::testing::AllOf(HasSubstr("version 7"), HasSubstr("versions up to 1"), HasSubstr("newer"));
  EXPECT_THAT(Open().status(), ReasonIs("VALUE_ERROR", versions));
  EXPECT_THAT(state_file::Check(folder_).status(), ReasonIs("VALUE_ERROR", versions));
}

TEST_F(SqliteStoreTest, AnotherProgramsDatabaseIsRefused) {
  fs::create_directories(folder_);
  {
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto other,
                                 sqlite::Database::Open(database(), sqlite::OpenMode::kCreate, 0));
    TESSERA_ASSERT_OK(other->Execute("CREATE TABLE theirs (x)"));
  }
  EXPECT_THAT(Open().status(), ReasonIs("VALUE_ERROR", "another program's"));
}

TEST_F(SqliteStoreTest, SchemasMigrateForwardOrNotAtAll) {
  CommitInOneLife({ArrayRow(1, "x")});
  TESSERA_ASSERT_OK_AND_ASSIGN(
      const auto database,
      sqlite::Database::Open(this->database(), sqlite::OpenMode::kReadWrite, 0));
  std::vector<std::string> steps = Migrations();
  steps.push_back("ALTER TABLE array RENAME TO tensor");
  steps.push_back("UPDATE tensor SET value = CAST('y' AS BLOB)");
  steps.push_back("INSERT INTO nowhere VALUES (1)");
  TESSERA_ASSERT_OK(database->Execute("BEGIN"));
  EXPECT_THAT(Migrate(*database, 1, steps), ReasonIs("STORE_FAILED", "nowhere"));
  database->RollBack();
  EXPECT_THAT(database->ReadText("SELECT value FROM array"), IsOkAndHolds("x"));
  EXPECT_THAT(database->ReadInt("PRAGMA user_version"), IsOkAndHolds(1));
  steps.pop_back();
  TESSERA_ASSERT_OK(database->Execute("BEGIN"));
  TESSERA_ASSERT_OK(Migrate(*database, 1, steps));
  TESSERA_ASSERT_OK(database->Execute("COMMIT"));
  EXPECT_THAT(database->ReadText("SELECT value FROM tensor"), IsOkAndHolds("y"));
  EXPECT_THAT(database->ReadInt("PRAGMA user_version"), IsOkAndHolds(3));
}

// ---- Deaths. ------------------------------------------------------------------------------------
// The history of a writer. Commit n writes rows of two kinds under the key n mod 5; their value is
// n and bytes that follow from n. So the rows show which commit was the last, that it is there as a
// whole, and that nothing after it is there.
constexpr uint64_t kKeys = 5;

std::string ValueOf(uint64_t n) {
  return absl::StrCat(n, ":", std::string(n * 7919 % 20'000, static_cast<char>('a' + n % 26)));
}

std::vector<Row> RowsOf(uint64_t n) {
  return {ArrayRow(n % kKeys, ValueOf(n)), {RowKind::kOperation, IdKey(n % kKeys), ValueOf(n)}};
}

// Returns the last commit that the rows hold. Fails the test if the rows are not the state after
// that commit.
uint64_t LastCommit(const std::vector<Row>& rows) {
  uint64_t last = 0;
  for (const Row& row : rows)
    last = std::max<uint64_t>(last, std::strtoull(row.value->c_str(), nullptr, 10));
  std::vector<Row> expected;
  for (const RowKind kind : {RowKind::kArray, RowKind::kOperation})
    for (uint64_t key = 0; key < kKeys; ++key)
      for (uint64_t n = last; n > 0 && n + kKeys > last; --n)
        if (n % kKeys == key) expected.push_back({kind, IdKey(key), ValueOf(n)});
  EXPECT_EQ(rows, expected) << "the rows of commit " << last;
  return last;
}

// Writes the number of each durable commit to a pipe.
class Acknowledger final : public Store::Listener {
 public:
  explicit Acknowledger(int fd) : fd_(fd) {}
  void OnDurable(uint64_t commit) override {
    if (write(fd_, &commit, sizeof(commit)) != sizeof(commit)) _exit(3);
  }
  void OnCommitsFailed(absl::Status) override { _exit(4); }

 private:
  const int fd_;
};

// Commits in a process of its own until it is killed.
[[noreturn]] void CommitForEver(const SqliteOptions& options, int fd) {
  auto store = SqliteStore::Open(options);
  if (!store.ok()) _exit(1);
  const auto rows = (*store)->Load();
  if (!rows.ok()) _exit(2);
  Acknowledger acknowledger(fd);
  (*store)->Listen(&acknowledger);
  uint64_t last = 0;
  for (const Row& row : *rows)
    last = std::max<uint64_t>(last, std::strtoull(row.value->c_str(), nullptr, 10));
  for (uint64_t n = last + 1;; ++n) {
    (*store)->Commit(n, RowsOf(n));
    if (n % 7 == 0) (void)(*store)->Flush(kPatience);  // Makes transactions of several sizes.
  }
}

TEST_F(SqliteStoreTest, AKillLosesNothingAcknowledged) {
  std::mt19937_64 random(20261123);
  uint64_t last = 0;
  for (int round = 0; round < 20; ++round) {
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pipes[0]);
      CommitForEver(options_, pipes[1]);
    }
    close(pipes[1]);
    // The kill comes after a random number of acknowledgements and a random time.
    uint64_t acknowledged = last;
    for (uint64_t left = random() % 30; left > 0; --left)
      ASSERT_EQ(read(pipes[0], &acknowledged, sizeof(acknowledged)),
                static_cast<ssize_t>(sizeof(acknowledged)))
          << "the writer ended";
    pollfd never = {-1, 0, 0};
    poll(&never, 1, static_cast<int>(random() % 5));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    while (read(pipes[0], &acknowledged, sizeof(acknowledged)) == sizeof(acknowledged)) {
    }
    close(pipes[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "ended by itself, with " << WEXITSTATUS(status);
    last = LastCommit(LoadInNextLife());
    EXPECT_GE(last, acknowledged) << "round " << round;
    if (HasFailure()) return;
  }
  EXPECT_GT(last, 20u);
}

TEST_F(SqliteStoreTest, APowerFailureLosesNothingAcknowledged) {
  std::mt19937_64 random(1123);
  uint64_t last = 0;
  for (int round = 0; round < 20; ++round) {
    FaultyDisk disk;
    options_.vfs = disk.name();
    uint64_t acknowledged = last;
    {
      auto store = Open();
      TESSERA_ASSERT_OK(store);
      RecordingListener listener;
      (*store)->Listen(&listener);
      disk.FailPowerAfter(static_cast<int64_t>(1 + random() % 2000));
      for (uint64_t n = last + 1; disk.has_power(); ++n) {
        (*store)->Commit(n, RowsOf(n));
        if (random() % 5 == 0) (void)(*store)->Flush(absl::Milliseconds(100));
      }
      EXPECT_THAT(listener.AwaitFailure(), ReasonIs("STORE_FAILED"));
      if (!listener.durable().empty()) acknowledged = listener.durable().back();
      (*store)->Listen(nullptr);
    }
    disk.ReturnPower(random);
    options_.vfs = "";
    last = LastCommit(LoadInNextLife());
    EXPECT_GE(last, acknowledged) << "round " << round;
    if (HasFailure()) return;
  }
  EXPECT_GT(last, 20u);
}

// ---- Copies. ------------------------------------------------------------------------------------
TEST_F(SqliteStoreTest, ABackupIsTheStateAtOneMoment) {
  const std::string copy = root_ + "/copy.db";
  uint64_t n = 0;
  TESSERA_ASSERT_OK_AND_ASSIGN(auto store, Open());
  for (int round = 0; round < 5; ++round) {
    // Some commits still wait when the copy is made.
    for (int k = 0; k < 50; ++k) {
      ++n;
      store->Commit(n, RowsOf(n));
    }
    TESSERA_ASSERT_OK(state_file::Backup(folder_, copy));
    TESSERA_ASSERT_OK_AND_ASSIGN(const state_file::Report report, state_file::Check(copy));
    EXPECT_EQ(report.schema_version, state_file::kSchemaVersion);
    EXPECT_EQ(report.starts, 1 + state_file::kStartsSinceBackup);
    EXPECT_EQ(report.build, "test 1");
    EXPECT_EQ(report.cluster.size(), 16u);
    ASSERT_EQ(report.tables.size(), static_cast<size_t>(core::kNumRowKinds));
    // The copy is a state that a coordinator can use in another folder.
    SqliteOptions other = options_;
    other.folder = root_ + "/other";
    fs::create_directories(other.folder);
    fs::rename(copy, other.folder + "/state.db");
    {
      TESSERA_ASSERT_OK_AND_ASSIGN(const auto restored, SqliteStore::Open(other));
      EXPECT_EQ(restored->life().epoch, 2u + state_file::kStartsSinceBackup);
      LastCommit(*restored->Load());
    }
    fs::remove_all(other.folder);
  }
  TESSERA_EXPECT_OK(store->Flush(kPatience));
  store.reset();
  TESSERA_ASSERT_OK(state_file::Backup(folder_, copy)) << "a backup without a running coordinator";
  EXPECT_THAT(state_file::Backup(folder_, copy), ReasonIs("ALREADY_EXISTS"));
  struct stat info = {};
  ASSERT_EQ(stat(copy.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_THAT(state_file::Backup(root_, copy + "2"), ReasonIs("VALUE_ERROR", "holds no state.db"));
  EXPECT_THAT(state_file::Backup(folder_, root_ + "/none/copy"), ReasonIs("STORE_FAILED", "none"));
  EXPECT_THAT(state_file::Check(root_ + "/none").status(), ReasonIs("VALUE_ERROR", "No such file"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), {}), 2) << "no copy is left in parts";
}

}  // namespace
}  // namespace tessera::server::store
