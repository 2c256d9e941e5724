// Delivers, delays and loses the messages of streams. Daemons and executors open streams to the
// coordinator (coordinator.cc); faults slow down, block or reset the paths of machines and clients.
#include "tests/sim/network.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"

namespace tessera::sim {
namespace {

constexpr absl::Duration kKeepaliveMin = absl::Seconds(2), kKeepaliveMax = absl::Seconds(8);
constexpr absl::Duration kConnectTimeout = absl::Seconds(3);
// Time until the end of a silent connection is noticed.
constexpr absl::Duration kNoticeMax = absl::Seconds(5);

}  // namespace

// Messages under way own the stream that owns them. Clearing the messages breaks this cycle.
Path::~Path() {
  for (const std::shared_ptr<Stream>& stream : OpenStreams()) {
    stream->up_.messages.clear();
    stream->down_.messages.clear();
  }
}

absl::Duration Path::Delay() {
  Random& random = world_->random();
  if (world_->now() < slow_until_)
    return random.Within(absl::Milliseconds(10), absl::Milliseconds(400));
  // A few messages take long, and then all later messages of the stream wait behind them.
  if (random.OneIn(300)) return random.Within(absl::Milliseconds(10), absl::Milliseconds(900));
  return random.Within(absl::Microseconds(50), absl::Milliseconds(4));
}

void Path::SlowFor(absl::Duration time) { slow_until_ = world_->now() + time; }

void Path::Block(bool up, bool down, absl::Duration time) {
  const absl::Time until = world_->now() + time;
  if (up) up_blocked_until_ = std::max(up_blocked_until_, until);
  if (down) down_blocked_until_ = std::max(down_blocked_until_, until);
  for (const std::shared_ptr<Stream>& stream : OpenStreams()) {
    const absl::Duration keepalive = world_->random().Within(kKeepaliveMin, kKeepaliveMax);
    if (keepalive < time)
      world_->After(keepalive, [stream] { stream->Break("its keepalive failed", kNoticeMax); });
  }
}

void Path::BreakStreams() {
  for (const std::shared_ptr<Stream>& stream : OpenStreams())
    stream->Break("its connection was reset", kNoticeMax);
}

std::vector<std::shared_ptr<Stream>> Path::OpenStreams() {
  std::vector<std::shared_ptr<Stream>> open;
  std::erase_if(streams_, [](const auto& stream) { return stream.expired(); });
  for (const auto& stream : streams_) open.push_back(stream.lock());
  return open;
}

std::shared_ptr<Stream> Stream::Open(World* world, Path* path) {
  const std::shared_ptr<Stream> stream(new Stream(world, path));
  std::erase_if(path->streams_, [](const auto& other) { return other.expired(); });
  path->streams_.push_back(stream);
  world->After(kConnectTimeout, [stream] {
    if (!stream->connected_) stream->Break("nobody answers", absl::ZeroDuration());
  });
  return stream;
}

void Stream::Send(Direction& direction, std::function<void()> arrives) {
  if (direction.cut) return;
  direction.messages.push_back(std::move(arrives));
  direction.last_arrival = std::max({direction.last_arrival, world_->now() + path_->Delay(),
                                     path_->blocked_until(direction.is_up)});
  world_->After(direction.last_arrival - world_->now(),
                [self = shared_from_this(), &direction] { self->Deliver(direction); });
}

void Stream::Deliver(Direction& direction) {
  if (direction.cut) return;
  if (const absl::Time until = path_->blocked_until(direction.is_up); world_->now() < until)
    return world_->After(until - world_->now(),
                         [self = shared_from_this(), &direction] { self->Deliver(direction); });
  const std::function<void()> arrives = std::move(direction.messages.front());
  direction.messages.pop_front();
  if (direction.is_up) connected_ = true;
  arrives();
}

void Stream::TellAbove(const absl::Status& why, absl::Duration after) {
  world_->After(after, [self = shared_from_this(), why] {
    if (const OnEndFn on_end = std::exchange(self->on_end_above, nullptr)) on_end(why);
  });
}

void Stream::TellBelow(const absl::Status& why, absl::Duration after) {
  world_->After(after, [self = shared_from_this(), why] {
    if (const OnEndFn on_end = std::exchange(self->on_end_below, nullptr)) on_end(why);
  });
}

void Stream::Break(const std::string& why, absl::Duration notice) {
  if (up_.cut && down_.cut) return;
  up_.cut = down_.cut = true;
  up_.messages.clear();
  down_.messages.clear();
  Random& random = world_->random();
  TellAbove(absl::UnavailableError(why), random.Within(absl::ZeroDuration(), notice));
  TellBelow(absl::UnavailableError(why), random.Within(absl::ZeroDuration(), notice));
}

void Stream::EndFromAbove(const absl::Status& why) {
  if (up_.cut) return;
  up_.cut = true;
  up_.messages.clear();
  on_end_above = nullptr;
  SendDown([this, why] {
    down_.cut = true;
    TellBelow(why, absl::ZeroDuration());
  });
}

void Stream::EndFromBelow(const absl::Status& why) {
  if (down_.cut) return;
  down_.cut = true;
  down_.messages.clear();
  TellBelow(why, absl::ZeroDuration());
  SendUp([this, why] {
    up_.cut = true;
    TellAbove(why, absl::ZeroDuration());
  });
}

}  // namespace tessera::sim
