// tessera-sim: runs seeds of the simulation.
//
//   tessera-sim --seeds 500                    runs seeds 1 to 500 and prints what they covered
//   tessera-sim --seeds 50000 --resume FILE    continues after the last seed that FILE records
//   tessera-sim --first 77 --seeds 1 --print   runs one seed and prints its transcript
//
// If a seed fails, tessera-sim runs it again with fewer and fewer faults, as long as it still
// fails. It prints the faults that are left and the end of the transcript. The exit status is 1 if
// a seed has failed, and 3 if --cover is given and an event was never seen under some kind of
// fault.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "tests/sim/sim.h"

namespace tessera::sim {
namespace {

struct Options {
  uint64_t first = 1, seeds = 500;
  int jobs = 0;        // number of processes; 0 means one per core
  std::string resume;  // file with the totals so far; empty if there is none
  bool print = false, cover = false, shrink = true;
  std::vector<uint64_t> faults;  // numbers of the faults given with --faults
  bool has_fault_list = false;
};

// The totals of many seeds. They are written and read as text, so that the processes of one run can
// pass their totals to the first process.
struct Totals {
  uint64_t next = 0;  // the first seed that has not been run
  int64_t seeds = 0, operations = 0, operations_min = 0, faults = 0;
  double simulated_seconds = 0;
  Checker::Coverage coverage = {};

  void Add(const Outcome& outcome, size_t faults_of_seed) {
    operations_min = seeds == 0 ? outcome.operations : std::min(operations_min, outcome.operations);
    ++seeds;
    operations += outcome.operations;
    faults += static_cast<int64_t>(faults_of_seed);
    simulated_seconds += absl::ToDoubleSeconds(outcome.time);
    Add(outcome.coverage);
  }
  void Add(const Totals& other) {
    if (other.seeds == 0) return;
    operations_min =
        seeds == 0 ? other.operations_min : std::min(operations_min, other.operations_min);
    seeds += other.seeds;
    operations += other.operations;
    faults += other.faults;
    simulated_seconds += other.simulated_seconds;
    Add(other.coverage);
  }
  void Add(const Checker::Coverage& other) {
    for (size_t e = 0; e < coverage.size(); ++e)
      for (size_t f = 0; f < kFaultKinds; ++f) coverage[e][f] += other[e][f];
  }
  void Write(std::ostream& out) const {
    out << next << " " << seeds << " " << operations << " " << operations_min << " " << faults
        << " " << simulated_seconds;
    for (const auto& row : coverage)
      for (const int64_t cell : row) out << " " << cell;
    out << "\n";
  }
  bool Read(std::istream& in) {
    in >> next >> seeds >> operations >> operations_min >> faults >> simulated_seconds;
    for (auto& row : coverage)
      for (int64_t& cell : row) in >> cell;
    return !in.fail();
  }
};

// Prints a table of how often each kind of event came under each kind of fault. Returns the number
// of empty cells.
int64_t PrintCoverage(const Checker::Coverage& coverage) {
  int64_t empty = 0;
  std::printf("\n%-20s", "events while");
  for (size_t f = 0; f < kFaultKinds; ++f) std::printf(" %7zu", f + 1);
  std::printf("\n");
  for (size_t e = 0; e < coverage.size(); ++e) {
    const std::string name = Checker::EventName(e);
    if (name.empty()) continue;
    std::printf("%-20s", name.c_str());
    for (const int64_t cell : coverage[e]) {
      std::printf(" %7lld", static_cast<long long>(cell));
      empty += cell == 0;
    }
    std::printf("\n");
  }
  for (size_t f = 0; f < kFaultKinds; ++f)
    std::printf("%s%zu: %s", f == 0 ? "" : ", ", f + 1, NameOf(static_cast<FaultKind>(f)));
  std::printf("\n");
  return empty;
}

void PrintFailure(uint64_t seed, const std::vector<Fault>& faults, bool shrink) {
  const std::vector<Fault> fewer = shrink ? Shrink(seed, faults) : faults;
  const Outcome outcome = Run(seed, fewer);
  std::istringstream transcript(outcome.transcript);
  std::vector<std::string> lines;
  for (std::string line; std::getline(transcript, line);) lines.push_back(line);
  std::string text = absl::StrCat("seed ", seed, " fails: ", outcome.violation, "\nwith ",
                                  fewer.size(), " of ", faults.size(), " faults:\n");
  std::vector<size_t> numbers;
  for (size_t i = 0; i < faults.size(); ++i)
    for (const Fault& fault : fewer)
      if (fault.at == faults[i].at) numbers.push_back(i);
  for (const Fault& fault : fewer) absl::StrAppend(&text, "  ", ToString(fault), "\n");
  absl::StrAppend(&text, "the last lines (all: tessera-sim --print --seeds 1 --first ", seed,
                  " --faults ", numbers.empty() ? "none" : absl::StrJoin(numbers, ","), "):\n");
  for (const std::string& line : lines) absl::StrAppend(&text, "  ", line, "\n");
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

constexpr size_t kAllLines = 10'000'000;

// Runs the seeds and returns whether every seed kept every promise.
bool RunSeeds(const Options& options, uint64_t first, uint64_t end, uint64_t step, Totals* totals) {
  bool all_kept = true;
  for (uint64_t seed = first; seed < end; seed += step) {
    std::vector<Fault> faults = FaultsOf(seed, kFaultTime);
    if (options.has_fault_list) {
      std::vector<Fault> some;
      for (const uint64_t number : options.faults) some.push_back(faults.at(number));
      faults = some;
    }
    const Outcome outcome = options.print ? Run(seed, faults, kAllLines) : Run(seed, faults);
    totals->Add(outcome, faults.size());
    if (options.print) {
      for (const Fault& fault : faults) std::printf("%s\n", ToString(fault).c_str());
      std::printf("%s%s\n", outcome.transcript.c_str(), outcome.violation.c_str());
    }
    if (outcome.violation.empty()) continue;
    all_kept = false;
    if (!options.print) PrintFailure(seed, faults, options.shrink);
  }
  return all_kept;
}

// Runs the seeds in several processes, each with its share of them. Each process passes its totals
// on in a file.
bool RunInProcesses(const Options& options, uint64_t first, uint64_t end, int jobs,
                    Totals* totals) {
  std::vector<std::pair<pid_t, std::FILE*>> children;
  std::fflush(stdout);
  for (int job = 0; job < jobs; ++job) {
    std::FILE* const file = std::tmpfile();
    const pid_t pid = fork();
    if (pid == 0) {
      Totals part;
      const bool all_kept = RunSeeds(options, first + static_cast<uint64_t>(job), end,
                                     static_cast<uint64_t>(jobs), &part);
      std::ostringstream text;
      part.Write(text);
      std::fputs(text.str().c_str(), file);
      std::fflush(file);
      std::fflush(stdout);
      _exit(all_kept ? 0 : 1);
    }
    children.emplace_back(pid, file);
  }
  bool all_kept = true;
  for (const auto& [pid, file] : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    all_kept &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
    std::rewind(file);
    std::string text;
    char buffer[1 << 12];
    for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), file)) > 0;) text.append(buffer, n);
    std::fclose(file);
    std::istringstream in(text);
    Totals part;
    if (part.Read(in)) totals->Add(part);
  }
  return all_kept;
}

// Parses "none", or numbers with commas between them.
bool ParseNumbers(const std::string& text, std::vector<uint64_t>* numbers) {
  if (text == "none") return true;
  for (const auto& part : absl::StrSplit(text, ','))
    if (!absl::SimpleAtoi(part, &numbers->emplace_back())) return false;
  return true;
}

// Parses the command line. An unknown or incomplete flag prints the usage and makes it return
// false. The flags that take a value read it here and skip it.
bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--print") {
      options->print = true;
    } else if (flag == "--cover") {
      options->cover = true;
    } else if (flag == "--no-shrink") {
      options->shrink = false;
    } else if (flag == "--seeds" && absl::SimpleAtoi(value, &options->seeds)) {
      ++i;
    } else if (flag == "--first" && absl::SimpleAtoi(value, &options->first)) {
      ++i;
    } else if (flag == "--jobs" && absl::SimpleAtoi(value, &options->jobs)) {
      ++i;
    } else if (flag == "--faults" && ParseNumbers(value, &options->faults)) {
      options->has_fault_list = true;
      ++i;
    } else if (flag == "--resume" && !value.empty()) {
      options->resume = value;
      ++i;
    } else {
      std::fprintf(stderr,
                   "usage: tessera-sim [--seeds N] [--first K] [--jobs J] [--resume FILE] "
                   "[--print] [--faults N,N] [--cover] [--no-shrink]; not: %s\n",
                   flag.c_str());
      return false;
    }
  }
  return true;
}

// Runs all seeds in parts of kPart seeds, prints the totals, and returns the exit status. If a seed
// fails, the run stops after the part that contains it. With --resume, Main first reads the totals
// of earlier runs, so that a long run can be stopped and continued.
int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) return 2;
  int jobs =
      options.jobs > 0 ? options.jobs : static_cast<int>(std::thread::hardware_concurrency());
  if (options.print) jobs = 1;
  Totals totals;
  totals.next = options.first;
  if (!options.resume.empty()) {
    std::ifstream in(options.resume);
    Totals before;
    if (before.Read(in)) totals = before;
  }
  const uint64_t end = options.first + options.seeds;
  // The totals are written after each part, so that a run that was stopped continues from there.
  constexpr uint64_t kPart = 250;
  bool all_kept = true;
  while (totals.next < end && all_kept) {
    const uint64_t until = std::min(end, totals.next + kPart);
    all_kept = jobs == 1 ? RunSeeds(options, totals.next, until, 1, &totals)
                         : RunInProcesses(options, totals.next, until, jobs, &totals);
    if (!all_kept) break;
    totals.next = until;
    if (options.resume.empty()) continue;
    std::ostringstream out;
    totals.Write(out);
    if (const absl::Status saved = ReplaceFile(options.resume, out.str(), /*is_private=*/false);
        !saved.ok())
      std::fprintf(stderr, "tessera-sim: --resume: %s\n", std::string(saved.message()).c_str());
  }
  const int64_t empty = PrintCoverage(totals.coverage);
  std::printf(
      "%lld seeds, each with at least %lld operations; %.0f operations, %.0f faults and "
      "%.0f simulated seconds a seed; %lld empty cells\n%s\n",
      static_cast<long long>(totals.seeds), static_cast<long long>(totals.operations_min),
      static_cast<double>(totals.operations) / std::max<double>(1, totals.seeds),
      static_cast<double>(totals.faults) / std::max<double>(1, totals.seeds),
      totals.simulated_seconds / std::max<double>(1, totals.seeds), static_cast<long long>(empty),
      all_kept ? "every promise was kept" : "A PROMISE WAS BROKEN");
  if (!all_kept) return 1;
  return options.cover && empty > 0 ? 3 : 0;
}

}  // namespace
}  // namespace tessera::sim

int main(int argc, char** argv) { return tessera::sim::Main(argc, argv); }
