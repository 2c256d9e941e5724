// The op in flight on each device. The executor's runs begin, name and end their ops here
// (worker/runtime/executor_run.cc), and the daemon's Supervisor reads the page when the process
// dies. These calls also feed the device's busy and idle time and the flight recorder.
#include "worker/telemetry/in_flight.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/flight_recorder.h"
#include "base/log.h"

namespace tessera::worker {

void InFlightSlot::Write(uint64_t launch, std::string_view op, bool waiting) {
  const uint64_t version = version_.load(std::memory_order_relaxed) + 1;
  Copy& copy = copies_[version % 2];
  // The fence orders the stores below after the version of the previous op, so that a reader of
  // this copy that sees a new word also sees that the version has changed.
  std::atomic_thread_fence(std::memory_order_release);
  copy.launch.store(launch, std::memory_order_relaxed);
  const size_t size = std::min(op.size(), kTextBytes);
  copy.size_and_waiting.store(size << 1 | (waiting ? 1 : 0), std::memory_order_relaxed);
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, op.data() + at, std::min(sizeof(word), size - at));
    copy.text[at / sizeof(uint64_t)].store(word, std::memory_order_relaxed);
  }
  version_.store(version, std::memory_order_release);
}

InFlightOp InFlightSlot::Read() const {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t version = version_.load(std::memory_order_acquire);
    const Copy& copy = copies_[version % 2];
    InFlightOp read;
    read.launch = copy.launch.load(std::memory_order_relaxed);
    const uint64_t packed = copy.size_and_waiting.load(std::memory_order_relaxed);
    read.waiting = (packed & 1) != 0;
    uint64_t words[kWords];
    for (size_t w = 0; w < kWords; ++w) words[w] = copy.text[w].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    // This copy is written again only after the next op has appeared in the other one.
    if (version_.load(std::memory_order_relaxed) != version) continue;
    read.op.assign(reinterpret_cast<const char*>(words), std::min(packed >> 1, kTextBytes));
    return read;
  }
  return {};
}

void InFlightQueue::Launch::SetOp(std::string_view op, bool waiting) {
  absl::MutexLock lock(&queue_->mu_);
  RecordWait(op, waiting);
  op_ = op;
  waiting_ = waiting;
  if (&queue_->launches_.front() == this) queue_->Update();
}

void InFlightQueue::Launch::RecordWait(std::string_view next, bool waiting) {
  if (waiting_)
    RecordFlight(FlightKind::kWaitEnd, op_, id_,
                 static_cast<uint64_t>(AgeGauge::Now() - waiting_since_ns_) / 1000);
  if (!waiting) return;
  waiting_since_ns_ = AgeGauge::Now();
  RecordFlight(FlightKind::kWaitBegin, next, id_);
}

InFlightQueue::Launch* InFlightQueue::Begin(uint64_t launch) {
  RecordFlight(FlightKind::kRunBegin, "", launch);
  absl::MutexLock lock(&mu_);
  if (spare_nodes_.empty()) {
    launches_.push_back(Launch(this, launch));
  } else {
    launches_.splice(launches_.end(), spare_nodes_, spare_nodes_.begin());
    launches_.back() = Launch(this, launch);
  }
  if (launches_.size() == 1) Update();
  return &launches_.back();
}

void InFlightQueue::End(Launch* launch) {
  absl::MutexLock lock(&mu_);
  launch->RecordWait("", /*waiting=*/false);
  RecordFlight(FlightKind::kRunEnd, launch->op_, launch->id_);
  const auto it = std::find_if(launches_.begin(), launches_.end(),
                               [launch](const Launch& l) { return &l == launch; });
  spare_nodes_.splice(spare_nodes_.end(), launches_, it);
  Update();
}

void InFlightQueue::Update() {
  const bool idle = launches_.empty();
  if (idle) {
    slot_->Write(0, "", false);
  } else {
    const Launch& oldest = launches_.front();
    slot_->Write(oldest.id_, oldest.op_, oldest.waiting_);
  }
  if (metrics_ == nullptr) return;
  const int64_t now = AgeGauge::Now();
  const Counter& time_in_state = state_ == State::kIdle   ? metrics_->idle_time
                                 : state_ == State::kBusy ? metrics_->busy_time
                                                          : metrics_->waiting_time;
  time_in_state.Add(now - state_since_ns_);
  state_since_ns_ = now;
  state_ = idle ? State::kIdle : launches_.front().waiting_ ? State::kWaiting : State::kBusy;
  metrics_->progress_age.Set(idle ? 0 : now);
}

InFlightPage::InFlightPage(int num_devices) : num_devices_(num_devices) {
  TESSERA_CHECK(num_devices > 0 && num_devices <= kMaxDevices) << "num_devices=" << num_devices;
  fd_ = memfd_create("tessera-in-flight", MFD_CLOEXEC);
  TESSERA_CHECK(fd_ >= 0) << std::strerror(errno);
  TESSERA_CHECK(ftruncate(fd_, sizeof(InFlightSlot) * num_devices) == 0) << std::strerror(errno);
  Map(fd_);
  for (int d = 0; d < num_devices; ++d) new (&slots_[d]) InFlightSlot();
}

InFlightPage::InFlightPage(int fd, int num_devices) : num_devices_(num_devices) { Map(fd); }

void InFlightPage::Map(int fd) {
  void* page =
      mmap(nullptr, sizeof(InFlightSlot) * num_devices_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  TESSERA_CHECK(page != MAP_FAILED) << std::strerror(errno);
  slots_ = static_cast<InFlightSlot*>(page);
}

InFlightPage::~InFlightPage() {
  munmap(slots_, sizeof(InFlightSlot) * num_devices_);
  if (fd_ >= 0) close(fd_);
}

InFlightOp InFlightPage::LikelyCulprit() const {
  InFlightOp suspect;
  for (int d = 0; d < num_devices_; ++d) {
    InFlightOp op = slots_[d].Read();
    if (op.launch == 0) continue;
    if (suspect.launch == 0 || (suspect.waiting && !op.waiting)) suspect = std::move(op);
  }
  return suspect;
}

}  // namespace tessera::worker
