// Runs a test and writes down how long it took. CTest starts every test through this program
// (cmake/tessera_library.cmake).
//
//   tessera_timed NAME COMMAND [ARGUMENTS...]
//
// If TESSERA_TEST_TIMES names a file, a line is appended to it: the test's name, the processor
// seconds of the command and of all its descendants that were waited for, the elapsed seconds, and
// the exit status. This program ends with the exit status of the command.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

// Appends the line with a single write, so that tests that end at the same time do not mix their
// lines.
void Append(const char* path, const char* name, const rusage& used, double elapsed, int status) {
  const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    std::perror(path);
    return;
  }
  char line[512];
  const int size = std::snprintf(line, sizeof line, "%s\t%.3f\t%.3f\t%d\n", name,
                                 Seconds(used.ru_utime) + Seconds(used.ru_stime), elapsed, status);
  if (size > 0 && static_cast<size_t>(size) < sizeof line &&
      write(fd, line, static_cast<size_t>(size)) != size) {
    std::perror(path);
  }
  close(fd);
}

}  // namespace

// Forks instead of replacing itself by the command, because only a parent learns what the command
// and its descendants have used. This program ends in the same way as the command, if need be by
// the same signal, so that CTest sees no difference.
int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: tessera_timed NAME COMMAND [ARGUMENTS...]\n");
    return 2;
  }
  const auto begin = std::chrono::steady_clock::now();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    std::perror("fork");
    return 2;
  }
  if (child == 0) {
    // CTest kills this process at the time limit of a test, and the test must not outlive it.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(2);
    execvp(argv[2], argv + 2);
    std::perror(argv[2]);
    _exit(127);
  }
  int status = 0;
  rusage used{};
  if (wait4(child, &status, 0, &used) != child) {
    std::perror("wait4");
    return 2;
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (const char* path = std::getenv("TESSERA_TEST_TIMES"); path != nullptr && *path != '\0') {
    Append(path, argv[1], used, elapsed.count(), code);
  }
  if (WIFSIGNALED(status)) {
    // If a signal ended the test, end by the same signal, whose name CTest then reports.
    std::signal(WTERMSIG(status), SIG_DFL);
    std::raise(WTERMSIG(status));
  }
  return code;
}
