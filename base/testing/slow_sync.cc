// A library for LD_PRELOAD that makes the disk slow for the processes that load it. Each sync of a
// file takes SLOW_SYNC_MS milliseconds longer. If HANG_SYNC names a file, no sync ends while that
// file exists.
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

namespace {

using Sync = int (*)(int);

int SyncSlowly(const char* name, int file) {
  static const long millis = [] {  // NOLINT(google-runtime-int): timespec's
    const char* const text = getenv("SLOW_SYNC_MS");
    return text == nullptr ? 0 : strtol(text, nullptr, 10);
  }();
  const timespec delay = {millis / 1000, millis % 1000 * 1'000'000};
  nanosleep(&delay, nullptr);
  static const char* const hang = getenv("HANG_SYNC");
  const timespec poll_interval = {0, 10'000'000};
  while (hang != nullptr && access(hang, F_OK) == 0) nanosleep(&poll_interval, nullptr);
  return reinterpret_cast<Sync>(dlsym(RTLD_NEXT, name))(file);
}

}  // namespace

extern "C" {
int fsync(int file) { return SyncSlowly("fsync", file); }
int fdatasync(int file) { return SyncSlowly("fdatasync", file); }
}
