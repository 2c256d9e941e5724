// Measures what a durable commit costs: the coordinator's store beside SQLite's own commit, on one
// disk and in turns. A committer is a thread that writes one row, waits until the row is durable,
// and then writes the next.
//
//   bench-store [--folder DIR] [--rounds N] [--commits N] [--smoke]
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/sqlite.h"
#include "base/status.h"
#include "bench/flags.h"
#include "bench/samples.h"
#include "server/store/sqlite_store.h"

namespace tessera::bench {
namespace {

namespace store = server::store;
namespace core = server::core;

constexpr int64_t kLogPagesMax = 1'000;  // the store's limit, which is also SQLite's default
constexpr uint64_t kKeys = 10'000;

struct Settings {
  std::string folder = std::filesystem::temp_directory_path();
  int rounds = 5;
  int commits = 2'000;  // commits of all committers together in a round
};

// Returns a value that is about as long as an operation's row.
std::string ValueOf(uint64_t n) { return absl::StrCat(n, std::string(1'000, 'v')); }

// Makes one row durable at a time with SQLite alone, in a transaction for each row.
class BareSqlite {
 public:
  explicit BareSqlite(const std::string& folder) {
    const std::string path = folder + "/bare.db";
    auto opened = sqlite::Database::Open(path, sqlite::OpenMode::kCreate, 1000);
    TESSERA_CHECK(opened.ok()) << opened.status();
    database_ = *std::move(opened);
    for (const char* sql :
         {"PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL",
          "CREATE TABLE t (key BLOB PRIMARY KEY NOT NULL, value BLOB NOT NULL) STRICT, "
          "WITHOUT ROWID"})
      TESSERA_CHECK(database_->Execute(sql).ok());
    auto replace = database_->Prepare(
        "INSERT INTO t VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value");
    TESSERA_CHECK(replace.ok()) << replace.status();
    replace_ = std::make_unique<sqlite::Statement>(*std::move(replace));
  }
  void Commit() {
    absl::MutexLock lock(&mu_);
    const std::string key = core::IdKey(++last_commit_ % kKeys), value = ValueOf(last_commit_);
    replace_->BindBlob(1, key);
    replace_->BindBlob(2, value);
    TESSERA_CHECK(replace_->Run().ok());
    if (database_->log_pages() >= kLogPagesMax) {
      TESSERA_CHECK(database_->Checkpoint(/*shrink=*/false).ok());
    }
  }

 private:
  absl::Mutex mu_;
  std::unique_ptr<sqlite::Database> database_;
  std::unique_ptr<sqlite::Statement> replace_ ABSL_GUARDED_BY(mu_);
  uint64_t last_commit_ ABSL_GUARDED_BY(mu_) = 0;
};

// Makes one row durable through the store. Each committer waits until its own commit is durable.
class StoreClient final : public store::Store::Listener {
 public:
  explicit StoreClient(const std::string& folder) {
    store::SqliteOptions options;
    options.folder = folder + "/state";
    auto opened = store::SqliteStore::Open(std::move(options));
    TESSERA_CHECK(opened.ok()) << opened.status();
    store_ = *std::move(opened);
    store_->Listen(this);
  }
  ~StoreClient() override { store_->Listen(nullptr); }
  void OnDurable(uint64_t commit) override {
    absl::MutexLock lock(&mu_);
    durable_ = commit;
  }
  void OnCommitsFailed(absl::Status why) override { TESSERA_CHECK(false) << why; }
  void Commit() {
    absl::MutexLock lock(&mu_);
    const uint64_t commit = ++last_commit_;
    store_->Commit(commit,
                   {{core::RowKind::kOperation, core::IdKey(commit % kKeys), ValueOf(commit)}});
    const auto durable = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return durable_ >= commit; };
    mu_.Await(absl::Condition(&durable));
  }

 private:
  absl::Mutex mu_;
  uint64_t last_commit_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t durable_ ABSL_GUARDED_BY(mu_) = 0;
  std::unique_ptr<store::SqliteStore> store_;
};

struct Row {
  Samples latency;
  Samples rate;  // commits per second, one value per round
};

void Measure(int committers, int commits, const std::function<void()>& commit, Row& row) {
  std::vector<Samples> samples(static_cast<size_t>(committers));
  const absl::Time start = absl::Now();
  {
    std::vector<std::thread> threads;
    for (Samples& own : samples)
      threads.emplace_back([&own, &commit, each = commits / committers] {
        for (int i = 0; i < each; ++i) {
          const absl::Time before = absl::Now();
          commit();
          own.Add(absl::Now() - before);
        }
      });
    for (std::thread& t : threads) t.join();
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  row.rate.AddValue(commits / committers * committers / seconds);
  for (const Samples& own : samples) row.latency.Add(own);
}

// Measures both sides with 1 and with 64 committers, and prints a row for each and their ratio. The
// databases of both sides are in one new folder, so that they use the same disk. The store can put
// the commits of several committers on disk together, which the rows with 64 committers show.
void Run(const Settings& settings) {
  std::string folder = settings.folder + "/bench-store-XXXXXX";
  TESSERA_CHECK(mkdtemp(folder.data()) != nullptr) << folder;
  std::vector<Row> bare(2), ours(2);
  constexpr int kCommitters[] = {1, 64};
  {
    BareSqlite sqlite(folder);
    StoreClient store(folder);
    for (int round = 0; round < settings.rounds; ++round)
      for (size_t i : {0, 1}) {
        Measure(
            kCommitters[i], settings.commits, [&] { sqlite.Commit(); }, bare[i]);
        Measure(
            kCommitters[i], settings.commits, [&] { store.Commit(); }, ours[i]);
      }
  }
  std::filesystem::remove_all(folder);
  absl::PrintF("%-34s %10s %10s %10s %12s\n", "durable commit of 1 KB", "p50", "p90", "p99",
               "commits/s");
  const auto print = [](const std::string& name, const Row& row) {
    absl::PrintF("%-34s %7.0f us %7.0f us %7.0f us %12.0f\n", name, row.latency.Quantile(0.5),
                 row.latency.Quantile(0.9), row.latency.Quantile(0.99), row.rate.Quantile(0.5));
  };
  for (size_t i : {0, 1}) {
    const std::string suffix = absl::StrCat(", ", kCommitters[i], " at a time");
    print("SQLite's own" + suffix, bare[i]);
    print("the store" + suffix, ours[i]);
    absl::PrintF("%-34s %10.2f %10.2f %10.2f %12.2f\n", "ratio" + suffix,
                 ours[i].latency.Quantile(0.5) / bare[i].latency.Quantile(0.5),
                 ours[i].latency.Quantile(0.9) / bare[i].latency.Quantile(0.9),
                 ours[i].latency.Quantile(0.99) / bare[i].latency.Quantile(0.99),
                 ours[i].rate.Quantile(0.5) / bare[i].rate.Quantile(0.5));
  }
}

int Main(int argc, char** argv) {
  Settings settings;
  FlagParser parser("bench-store", "Measures what a durable commit costs, beside SQLite's own.");
  parser.AddText("--folder", "DIR", &settings.folder, "folder on the disk that is measured");
  parser.AddNumber("--rounds", &settings.rounds, "number of rounds");
  parser.AddNumber("--commits", &settings.commits, "commits of all committers in a round",
                   {.least = 64});
  parser.AddAction(
      "--smoke",
      [&settings] {
        settings.rounds = 1;
        settings.commits = 64;
      },
      "runs short, as a test");
  if (const std::optional<int> status = parser.Parse(argc, argv)) return *status;
  Run(settings);
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::Main(argc, argv); }
