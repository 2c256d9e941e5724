// Messages between the ranks of a fake communicator. Every operation of NCCL is a set of messages
// that are sent and received at the same time.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tests/fakes/nccl_segment.h"

namespace tessera::fakes {

// One end of a message: a send or a receive.
struct Message {
  int peer = 0;
  Label label;
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// Callbacks of an exchange. The thread of Exchange calls them. All but `aborted` report why the
// exchange does not complete.
struct ExchangeEvents {
  // Returns whether the communicator was aborted. If so, the exchange stops.
  std::function<bool()> aborted;
  // Reports that a peer, or its process, is gone. The exchange goes on waiting.
  std::function<void(int peer, const char* how)> lost;
  // Reports a deadlock: every rank that this one waits for, directly or indirectly, waits too, and
  // none can go on.
  std::function<void(uint32_t ranks)> deadlocked;
  // Reports that a peer sent another message than the expected one. The exchange then waits for the
  // abort.
  std::function<void(int peer, const Label& sent, const Label& expected)> mismatched;
};

// Sends and receives all messages. The messages to one peer go in the order of `sends`, and those
// from one peer in the order of `receives`. Blocks until all messages have moved. Returns false if
// the exchange was aborted.
bool Exchange(Segment* segment, int rank, std::vector<Message> sends, std::vector<Message> receives,
              const ExchangeEvents& events);

}  // namespace tessera::fakes
