// Proves that StableHLO's conformance cases give the expected results for a user of a cluster. Each
// artifact is sent to a coordinator, which plans it, and a worker compiles and runs it. Both are
// processes of their own. The worker compiles even the programs that it would normally evaluate.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/status.h"
#include "base/testing/status_matchers.h"
#include "client/remote/json_client.h"
#include "nlohmann/json.hpp"
#include "tests/service/cluster.h"
#include "tests/stablehlo/cases.h"

namespace tessera::ir::stablehlo {
namespace {

using nlohmann::json;

constexpr int kCallers = 4;          // number of concurrent callers
constexpr int kCompiledMin = 1'500;  // a worker that evaluates small programs compiles only 417
constexpr absl::Duration kPatience = absl::Seconds(60);

// A temporary folder that is removed with this object.
class TempFolder {
 public:
  TempFolder() { TESSERA_CHECK(mkdtemp(path_.data()) != nullptr); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  int NumFiles() const {
    int files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_))
      files += entry.is_regular_file() ? 1 : 0;
    return files;
  }

 private:
  std::string path_ = (std::filesystem::temp_directory_path() / "tessera-code-XXXXXX").string();
};

// Compiles a case on the cluster and returns the id of the executable.
absl::StatusOr<uint64_t> Compile(const remote::JsonClient& client, const Case& test) {
  const json request = {{"stablehlo", absl::Base64Escape(test.artifact)}, {"name", test.name}};
  TESSERA_ASSIGN_OR_RETURN(const std::string response,
                           client.Call("ProgramService/CompileProgram", request.dump(), kPatience));
  uint64_t executable = 0;
  const std::string text = json::parse(response).value("executable", "");
  if (!absl::SimpleAtoi(text, &executable))
    return absl::InternalError(absl::StrCat("no executable: ", response));
  return executable;
}

absl::StatusOr<std::vector<Array>> RunServed(api::Service& service, uint64_t executable,
                                             const std::vector<Array>& args,
                                             const api::Placement& device) {
  api::ExecuteRequest execute;
  execute.executable = executable;
  for (const Array& arg : args) {
    TESSERA_ASSIGN_OR_RETURN(execute.args.emplace_back(), service.Put(arg, device, kPatience));
  }
  TESSERA_ASSIGN_OR_RETURN(const api::ExecuteReply executed, service.Execute(execute));
  std::vector<Array> out;
  for (const uint64_t array : executed.outputs) {
    TESSERA_ASSIGN_OR_RETURN(out.emplace_back(), service.Get(array, kPatience));
  }
  std::vector<uint64_t> arrays = execute.args;
  arrays.insert(arrays.end(), executed.outputs.begin(), executed.outputs.end());
  TESSERA_RETURN_IF_ERROR(service.Delete(arrays));
  return out;
}

// Several threads send cases at the same time, because the test mostly waits for the cluster.
TEST(ServedCasesTest, EveryCaseThatIsReadGivesWhatItSays) {
  const std::optional<std::string> folder = CasesFolder();
  if (!folder) GTEST_SKIP() << "TESSERA_SHARED does not name the cases";
  service::ClusterOptions options;
  options.workers = options.devices_per_worker = 1;
  const TempFolder code;
  options.worker_flags = {"--compile-always", "--cache-dir=" + code.path()};
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto cluster, service::Cluster::Start(options));
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto client, remote::JsonClient::Make(cluster->address(), {}));
  const api::Placement device{{}, {}, {cluster->session()->devices().at(0).id}};
  std::vector<Case> cases;
  ForEachCase(*folder, [&](const Case& test) { cases.push_back(test); });

  absl::Mutex mu;
  Counts counts;
  int right = 0;
  std::atomic<size_t> next = 0;
  const auto run_all = [&] {
    for (size_t i = next++; i < cases.size(); i = next++) {
      const Case& test = cases[i];
      std::string wrong;
      const bool is_read = ProgramOf(test).ok() && test.problem.empty();
      const absl::StatusOr<uint64_t> compiled = Compile(*client, test);
      if (is_read && !compiled.ok()) wrong = compiled.status().ToString();
      if (!is_read && compiled.ok() && test.problem.empty()) wrong = "it is read there, not here";
      if (is_read && compiled.ok()) {
        const auto got = RunServed(cluster->session()->service(), *compiled, test.args, device);
        wrong = got.ok() ? Mismatch(test, *got) : got.status().ToString();
      }
      absl::MutexLock lock(&mu);
      EXPECT_EQ(wrong, "") << test.name;
      counts.Add("served", test.family, is_read && wrong.empty());
      right += is_read && wrong.empty();
    }
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) callers.emplace_back(run_all);
  for (std::thread& caller : callers) caller.join();
  std::cout << right << " of " << cases.size() << " cases right\n";
  EXPECT_GT(right, 0);
  counts.Expect();
  std::cout << code.NumFiles() << " programs compiled\n";
  EXPECT_GT(code.NumFiles(), kCompiledMin);
  if (HasFailure()) std::cerr << cluster->Logs();
}

}  // namespace
}  // namespace tessera::ir::stablehlo
