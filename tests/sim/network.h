// The network between the coordinator and one machine. A stream keeps its order and loses at most a
// suffix of its messages. Streams do not wait for each other. A cut connection is noticed late.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/sim/world.h"

namespace tessera::sim {

class Stream;

// The way of messages from a machine to the coordinator (up) and back (down).
class Path {
 public:
  explicit Path(World* world) : world_(world) {}
  Path(const Path&) = delete;
  ~Path();

  // Returns the delay of a message that is sent now.
  absl::Duration Delay();
  // Until this time no message gets through.
  absl::Time blocked_until(bool up) const { return up ? up_blocked_until_ : down_blocked_until_; }
  bool blocked(bool up) const { return world_->now() < blocked_until(up); }

  void SlowFor(absl::Duration time);
  // Blocks the path. Streams that are cut off for longer than their keepalive break.
  void Block(bool up, bool down, absl::Duration time);
  // Resets all connections.
  void BreakStreams();

 private:
  friend class Stream;
  std::vector<std::shared_ptr<Stream>> OpenStreams();

  World* const world_;
  absl::Time slow_until_ = absl::InfinitePast();
  absl::Time up_blocked_until_ = absl::InfinitePast(), down_blocked_until_ = absl::InfinitePast();
  std::vector<std::weak_ptr<Stream>> streams_;
};

// One gRPC stream from a machine (below) to the coordinator (above).
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  using OnEndFn = std::function<void(const absl::Status& why)>;

  static std::shared_ptr<Stream> Open(World* world, Path* path);

  // Each is called once, when its side learns that the stream has ended. `above` is the side of the
  // coordinator.
  OnEndFn on_end_above, on_end_below;

  void SendUp(std::function<void()> arrives) { Send(up_, std::move(arrives)); }
  void SendDown(std::function<void()> arrives) { Send(down_, std::move(arrives)); }
  // Breaks the stream. Messages that are under way are lost. Each side notices the end by itself,
  // within `notice`.
  void Break(const std::string& why, absl::Duration notice);
  // The coordinator ends the stream. No further message comes up. The other side learns the reason
  // after it has received what was sent before.
  void EndFromAbove(const absl::Status& why);
  // The machine ends the stream.
  void EndFromBelow(const absl::Status& why);
  // Returns the number of messages that have not arrived yet.
  size_t num_waiting_up() const { return up_.messages.size(); }

 private:
  struct Direction {
    bool is_up = false;
    bool cut = false;
    absl::Time last_arrival = absl::InfinitePast();
    std::deque<std::function<void()>> messages;
  };
  friend class Path;
  Stream(World* world, Path* path) : world_(world), path_(path) { up_.is_up = true; }
  void Send(Direction& direction, std::function<void()> arrives);
  void Deliver(Direction& direction);
  void TellAbove(const absl::Status& why, absl::Duration after);
  void TellBelow(const absl::Status& why, absl::Duration after);

  World* const world_;
  Path* const path_;
  Direction up_, down_;
  bool connected_ = false;  // whether a message has come up
};

}  // namespace tessera::sim
