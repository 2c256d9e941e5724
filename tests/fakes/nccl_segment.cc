// Implements the shared memory through which the ranks of a fake communicator exchange data.
// nccl.cc creates and opens segments, and nccl_exchange.cc moves the data. Everything here must
// survive a process that is killed at any point, because tests kill ranks: the mutex is robust,
// waits are short, and names that are left behind are removed later.
#include "tests/fakes/nccl_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <system_error>

namespace tessera::fakes {
namespace {

// How long a rank waits before it checks whether its peers are still alive.
constexpr long kWaitNs = 20'000'000;

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Segment>> open;
  std::set<std::string> created;  // names to remove when the process ends
};
constexpr char kFolder[] = "/dev/shm/";
constexpr char kPrefix[] = "tessera-fake-nccl-";

// Removes names that killed processes have left. A name contains the id of the process that made
// it.
void RemoveStaleNames() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, error)) {
    const std::string name = entry.path().filename();
    if (name.compare(0, strlen(kPrefix), kPrefix) != 0) continue;
    if (!IsAlive(atoi(name.c_str() + strlen(kPrefix)))) shm_unlink(("/" + name).c_str());
  }
}

Registry& TheRegistry() {
  static auto* const registry = [] {
    RemoveStaleNames();
    atexit([] {
      Registry& r = TheRegistry();
      const std::lock_guard<std::mutex> lock(r.mutex);
      for (const std::string& name : r.created) shm_unlink(name.c_str());
    });
    return new Registry;
  }();
  return *registry;
}

[[noreturn]] void Die(const char* call) {
  perror(call);
  abort();
}

}  // namespace

Segment::Shared* Segment::Map(int file) {
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) Die("fake NCCL: mmap");
  return static_cast<Shared*>(memory);
}

std::string Segment::Create() {
  static std::atomic<int> count{0};
  const std::string name = "/" + std::string(kPrefix) + std::to_string(getpid()) + "-" +
                           std::to_string(count++) + "-" + std::to_string(std::random_device()());
  const int file = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0) Die("fake NCCL: shm_open");
  // Zeros are the initial value of everything except the mutex.
  if (ftruncate(file, sizeof(Shared)) != 0) Die("fake NCCL: ftruncate");
  Shared* const shared = Map(file);
  close(file);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  munmap(shared, sizeof(Shared));
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.created.insert(name);
  return name;
}

std::shared_ptr<Segment> Segment::Open(const std::string& name) {
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  std::weak_ptr<Segment>& slot = registry.open[name];
  if (std::shared_ptr<Segment> segment = slot.lock()) return segment;
  const int file = shm_open(name.c_str(), O_RDWR, 0600);
  if (file < 0) return nullptr;
  std::shared_ptr<Segment> segment(new Segment(name, Map(file)));
  close(file);
  slot = segment;
  return segment;
}

Segment::~Segment() { munmap(shared_, sizeof(Shared)); }

void Segment::Unlink() {
  shm_unlink(name_.c_str());
  Registry& registry = TheRegistry();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  registry.created.erase(name_);
}

Segment::Lock::Lock(Segment* segment) : segment_(segment) {
  const int result = pthread_mutex_lock(&segment->shared_->mutex);
  // The process that held the lock has died. A rank that waits for data of that process finds out
  // by itself.
  if (result == EOWNERDEAD) pthread_mutex_consistent(&segment->shared_->mutex);
}
Segment::Lock::~Lock() { pthread_mutex_unlock(&segment_->shared_->mutex); }

int Segment::NumRanksAtLeast(RankState state) {
  int count = 0;
  for (int rank = 0; rank < num_ranks(); ++rank) count += member(rank).state >= state;
  return count;
}

// Uses a futex, because a condition variable of pthreads hangs after a process has died while
// waiting for it.
void Segment::WaitForChange(uint32_t seen) {
  const timespec timeout = {0, kWaitNs};
  syscall(SYS_futex, &shared_->changes, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void Segment::NotifyChange() {
  ++shared_->changes;
  syscall(SYS_futex, &shared_->changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool IsAlive(int32_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  // The file has the form "12 (name) S ...", where the name may contain any character.
  const size_t paren = text.rfind(')');
  if (paren == std::string::npos || paren + 2 >= text.size()) return false;
  return text[paren + 2] != 'Z' && text[paren + 2] != 'X';
}

}  // namespace tessera::fakes
