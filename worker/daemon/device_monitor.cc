// Starts monitor processes one after the other, and reads the lines that they write to a pipe. The
// daemon (worker/rpc/worker_daemon.cc) puts the states into heartbeats and metrics.
#include "worker/daemon/device_monitor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/child_process.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread_name.h"

namespace tessera::worker {
namespace {

constexpr size_t kLineMax = 4096;
constexpr absl::Duration kEndWait = absl::Seconds(1);

}  // namespace

DeviceMonitor::DeviceMonitor(DeviceMonitorOptions options)
    : options_(std::move(options)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TESSERA_CHECK(wake_.ok()) << std::strerror(errno);
  {
    absl::MutexLock lock(&mu_);
    devices_.resize(static_cast<size_t>(options_.num_devices));
  }
  thread_ = std::thread([this] { Run(); });
}

DeviceMonitor::~DeviceMonitor() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  const uint64_t one = 1;
  static_cast<void>(!write(wake_.get(), &one, sizeof one));
  thread_.join();
}

DeviceMonitor::DeviceState DeviceMonitor::state(int32_t device) const {
  absl::MutexLock lock(&mu_);
  return devices_.at(static_cast<size_t>(device)).state;
}

bool DeviceMonitor::stopping() const {
  absl::MutexLock lock(&mu_);
  return stopping_;
}

// Runs processes until the monitor stops. Processes that end for the same reason are logged once.
void DeviceMonitor::Run() {
  NameThread("gpu-monitor");
  absl::Duration backoff = options_.backoff_min;
  absl::Status last;
  while (true) {
    bool has_read = false;
    const absl::Status why = RunProcess(&has_read);
    absl::MutexLock lock(&mu_);
    if (stopping_) return;
    if (std::exchange(last, why) != why || has_read)
      TESSERA_LOG(WARNING) << "GPUs are not monitored" << Field("worker", options_.worker)
                           << Field("why", why.message());
    if (has_read) backoff = options_.backoff_min;
    mu_.AwaitWithTimeout(absl::Condition(&stopping_), backoff);
    if (stopping_) return;
    backoff = std::min(2 * backoff, options_.backoff_max);
  }
}

// The pipe is the only tie to the process. A process that is silent for too long, or that writes a
// line without an end, is given up like one that has ended. Lines that are not known are ignored.
// `wake_` ends the wait when the monitor stops.
absl::Status DeviceMonitor::RunProcess(bool* has_read) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return absl::InternalError(absl::StrCat("pipe: ", std::strerror(errno)));
  const UniqueFd input(ends[0]);
  UniqueFd output(ends[1]);
  absl::StatusOr<ChildProcess> child = ChildProcess::Spawn(
      options_.binary, options_.args, {output.get()}, /*minimal_environment=*/false,
      absl::StrCat("tessera-monitor ", options_.worker));
  if (!child.ok()) return child.status();
  output = UniqueFd();
  absl::Status why;
  std::string text;
  while (why.ok()) {
    pollfd fds[] = {{input.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    const int ready =
        poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(options_.silence_max)));
    if (ready < 0 && errno == EINTR) continue;
    if (stopping()) break;
    if (ready == 0) {
      why = absl::DeadlineExceededError(absl::StrCat("the monitor process has not answered for ",
                                                     absl::FormatDuration(options_.silence_max),
                                                     "; nvidia-smi and dmesg may say more"));
      break;
    }
    char buffer[4096];
    const ssize_t size = read(input.get(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) {
      why = absl::UnavailableError("the monitor process has ended");
      break;
    }
    text.append(buffer, static_cast<size_t>(size));
    for (size_t end; why.ok() && (end = text.find('\n')) != std::string::npos;) {
      const std::optional<device::MonitorLine> line =
          device::ParseLine(std::string_view(text).substr(0, end));
      text.erase(0, end + 1);
      if (!line || line->device >= options_.num_devices) continue;
      why = Handle(*line);
      *has_read |= why.ok();
    }
    if (text.size() > kLineMax) why = absl::InternalError("a line of the monitor is too long");
  }
  EndProcess(*std::move(child));
  return why;
}

void DeviceMonitor::EndProcess(ChildProcess child) {
  child.Kill(SIGKILL);
  pollfd end = {child.pidfd(), POLLIN, 0};
  if (child.pidfd() >= 0) poll(&end, 1, static_cast<int>(absl::ToInt64Milliseconds(kEndWait)));
  // A process that is blocked in the driver cannot be killed. The destructor would wait for it.
  if (child.pidfd() >= 0 && !child.Reap()) new ChildProcess(std::move(child));
}

// Updates the state of the line's device under the lock, and then logs and reports what is new
// without it, because the log and the caller's function may take locks of their own.
absl::Status DeviceMonitor::Handle(const device::MonitorLine& line) {
  using Kind = device::MonitorLine::Kind;
  if (line.kind == Kind::kUnavailable) return absl::UnavailableError(line.text);
  const absl::Time wall = absl::Now();
  std::string fault;
  {
    absl::MutexLock lock(&mu_);
    Device& device = devices_[static_cast<size_t>(line.device)];
    switch (line.kind) {
      case Kind::kReading:
        device.state.reading = line.reading;
        device.state.read_at = SteadyNow();
        device.faults.OnReading(line.reading, wall);
        break;
      case Kind::kError:
        device.faults.OnError(line.code, wall);
        break;
      case Kind::kLost:
        device.state.reading = device::UnknownReading();
        device.state.read_at = SteadyNow();
        device.faults.OnLost(line.text, wall);
        break;
      case Kind::kUnavailable:
        break;
    }
    if (device.state.fault != device.faults.fault())
      fault = device.state.fault = device.faults.fault();
  }
  if (line.kind == Kind::kError) {
    TESSERA_LOG(WARNING) << "GPU error" << Field("worker", options_.worker)
                         << Field("device", line.device)
                         << Field("error", daemon::DescribeXid(line.code));
    options_.on_error(line.device, line.code);
  }
  if (!fault.empty())
    TESSERA_LOG(ERROR) << "GPU fault" << Field("worker", options_.worker)
                       << Field("device", line.device) << Field("fault", fault);
  return absl::OkStatus();
}

}  // namespace tessera::worker
