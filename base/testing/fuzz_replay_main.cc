// Runs a fuzz target without libFuzzer, as an ordinary test. It runs each file of the corpus once,
// and then mutations of the files, which are the same in every run. The fuzz preset links
// libFuzzer's own main instead.
//
//   NAME CORPUS... [--mutations=3000]
//
// If an input ends the process, it is written to fuzz_crash.bin in the working directory.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// The sanitizers end the process without a signal, so they call this callback instead.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

constexpr uint32_t kSeed = 20220623;
constexpr size_t kInputBytesMax = 64 << 10;

std::string* g_input = nullptr;

// Writes the input that is being run to fuzz_crash.bin. Async-signal-safe.
void KeepInput() {
  const int fd = open("fuzz_crash.bin", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0 || g_input == nullptr) return;
  static_cast<void>(!write(fd, g_input->data(), g_input->size()));
  close(fd);
}
void OnSignal(int number) {
  KeepInput();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void RunOn(std::string input) {
  *g_input = std::move(input);
  // The copy has exactly the size of the input, so that a sanitizer notices a read past its end.
  const std::vector<uint8_t> bytes(g_input->begin(), g_input->end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

// Makes mutations of the corpus. It uses std::mt19937 without the standard distributions, because
// only the generator itself gives the same numbers everywhere.
class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>* corpus) : corpus_(corpus) {}

  std::string Next() {
    std::string input = Pick();
    // Half of the inputs get a single change: after several changes, most inputs no longer parse.
    const size_t changes = Below(2) == 0 ? 1 : 1 + Below(4);
    for (size_t i = 0; i < changes; ++i) Change(&input);
    input.resize(std::min(input.size(), kInputBytesMax));
    return input;
  }

 private:
  size_t Below(size_t n) { return n == 0 ? 0 : random_() % n; }
  const std::string& Pick() { return (*corpus_)[Below(corpus_->size())]; }

  // Makes one random change at one random place: flips a bit, replaces, inserts, deletes or copies
  // bytes, or inserts a part of another input. Some changes insert tokens or numbers that parsers
  // treat specially, since random bytes rarely form them.
  void Change(std::string* input) {
    static constexpr const char* kTokens[] = {"0",
                                              "-1",
                                              "1",
                                              "255",
                                              "65536",
                                              "2147483648",
                                              "9223372036854775807",
                                              "-9223372036854775808",
                                              "1e308",
                                              "nan",
                                              "inf",
                                              "(",
                                              ")",
                                              "[",
                                              "]",
                                              "{",
                                              "}",
                                              "<",
                                              ">",
                                              ",",
                                              ":",
                                              "=",
                                              "%",
                                              "'",
                                              "\"",
                                              "\\",
                                              "\n",
                                              "#"};
    const size_t at = Below(input->size() + 1);
    const size_t length = std::min(1 + Below(16), input->size() - at);
    switch (Below(10)) {
      case 0:
        if (at < input->size()) (*input)[at] ^= static_cast<char>(1 << Below(8));
        return;
      case 1:
        if (at < input->size()) (*input)[at] = static_cast<char>(Below(256));
        return;
      case 2:
        input->insert(at, 1, static_cast<char>(Below(256)));
        return;
      case 3:
        input->erase(at, length);
        return;
      case 4:
        input->insert(Below(input->size() + 1), input->substr(at, length));
        return;
      case 5: {
        const std::string& other = Pick();
        input->replace(at, length, other, Below(other.size() + 1), 1 + Below(64));
        return;
      }
      case 6:
        input->replace(at, length, kTokens[Below(std::size(kTokens))]);
        return;
      default:
        ReplaceNumber(at, input);
    }
  }

  // Replaces the next run of digits by another number.
  void ReplaceNumber(size_t from, std::string* input) {
    const size_t begin = input->find_first_of("0123456789", from);
    if (begin == std::string::npos) return;
    const size_t end = std::min(input->find_first_not_of("0123456789", begin), input->size());
    const uint64_t bits = uint64_t{random_()} << 32 | random_();
    input->replace(begin, end - begin, std::to_string(bits >> Below(64)));
  }

  const std::vector<std::string>* const corpus_;
  std::mt19937 random_{kSeed};
};

}  // namespace

// Reads the corpus in the order of its file names, so that every run makes the same mutations. The
// handlers of signals and sanitizers are set only after the corpus was read, because they write the
// input that is being run.
int main(int argc, char** argv) {
  std::vector<std::string> corpus;
  int mutations = 3000;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.rfind("--mutations=", 0) == 0) {
      mutations = std::atoi(arg.c_str() + arg.find('=') + 1);
      continue;
    }
    std::vector<std::filesystem::path> files;
    if (std::filesystem::is_directory(arg)) {
      for (const auto& entry : std::filesystem::directory_iterator(arg)) {
        files.push_back(entry.path());
      }
    } else {
      files.push_back(arg);
    }
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
      std::ifstream in(file, std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no corpus; name its folder\n", argv[0]);
    return 1;
  }
  g_input = new std::string;
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTERM}) {
    std::signal(number, OnSignal);
  }
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(KeepInput);
  for (const std::string& input : corpus) RunOn(input);
  Mutator mutator(&corpus);
  for (int i = 0; i < mutations; ++i) RunOn(mutator.Next());
  std::printf("replayed %zu inputs and %d mutations, seed %u\n", corpus.size(), mutations, kSeed);
  return 0;
}
