// The C++ side of the comparisons with JAX: starts a script of bench/ under a given Python and asks
// it, line by line, to time or check its calls. bench/served_jax.py answers in the child process;
// its docstring describes the lines. Most benchmarks start such a process if they are given --jax.
#include "bench/compared.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status.h"

namespace tessera::bench {
namespace {

constexpr absl::Duration kReplyTimeout = absl::Seconds(300);

}  // namespace

absl::StatusOr<JaxScript> JaxScript::Start(const std::string& python, const std::string& script,
                                           const std::vector<std::string>& args) {
  std::vector<std::string> words = {python, absl::StrCat(TESSERA_SOURCE_DIR, "/bench/", script)};
  words.insert(words.end(), args.begin(), args.end());
  TESSERA_ASSIGN_OR_RETURN(Process process, Process::Start(words));
  TESSERA_ASSIGN_OR_RETURN(const std::string line, process.ReadLine(kReplyTimeout));
  if (line != "ready") return absl::InternalError(absl::StrCat("JAX printed '", line, "'"));
  return JaxScript(std::move(process));
}

absl::Status JaxScript::Measure(const std::string& name, int count, Samples* times) {
  return Ask("time", name, count, times);
}

absl::Status JaxScript::MeasureEnqueued(const std::string& name, int count, Samples* times) {
  return Ask("enqueue", name, count, times);
}

absl::Status JaxScript::Ask(const std::string& command, const std::string& name, int count,
                            Samples* times) {
  TESSERA_RETURN_IF_ERROR(process_.WriteLine(absl::StrCat(command, "\t", name, "\t", count)));
  TESSERA_ASSIGN_OR_RETURN(const std::string line, process_.ReadLine(kReplyTimeout));
  for (const absl::string_view word : absl::StrSplit(line, ' ')) {
    double us = 0;
    if (!absl::SimpleAtod(word, &us))
      return absl::InternalError(absl::StrCat("JAX printed '", line, "'"));
    times->AddValue(us);
  }
  return absl::OkStatus();
}

absl::Status JaxScript::Check(const std::string& name, const std::vector<double>& results) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / absl::StrCat("tessera-bench-", getpid());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(results.data()),
             static_cast<std::streamsize>(results.size() * sizeof(double)));
  file.close();
  const absl::Status written =
      process_.WriteLine(absl::StrCat("check\t", name, "\t", path.string()));
  const absl::StatusOr<std::string> line = process_.ReadLine(kReplyTimeout);
  std::filesystem::remove(path);
  TESSERA_RETURN_IF_ERROR(written);
  TESSERA_RETURN_IF_ERROR(line.status());
  if (*line == "equal") return absl::OkStatus();
  return absl::InternalError(absl::StrCat(name, " computes something else than JAX: ", *line));
}

absl::Status MeasureInTurn(const std::string& name, int count, const std::function<void()>& call,
                           JaxScript* jax, Samples* ours, Samples* theirs) {
  for (int i = 0; i < count; ++i) {
    const absl::Time begin = absl::Now();
    call();
    ours->Add(absl::Now() - begin);
  }
  return jax == nullptr ? absl::OkStatus() : jax->Measure(name, count, theirs);
}

}  // namespace tessera::bench
