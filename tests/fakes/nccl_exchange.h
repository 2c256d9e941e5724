// Messages between the ranks of a fake communicator: every operation of NCCL is a set of them, sent
// and received at the same time.
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

// How an exchange that does not complete is told about it. All are called by the thread of
// Exchange.
struct ExchangeEvents {
  std::function<bool()> aborted;
  // A peer, or its process, is gone. Called while the exchange waits; it goes on waiting.
  std::function<void(int peer, const char* how)> lost;
  // Every rank that this one waits for, directly or not, waits too, and none can go on.
  std::function<void(uint32_t ranks)> deadlocked;
  // What a peer sent is not what is received. The exchange waits for the abort.
  std::function<void(int peer, const Label& sent, const Label& expected)> mismatched;
};

// Sends and receives everything, in order for each peer and direction; blocks. False if it was
// aborted.
bool Exchange(Segment* segment, int rank, std::vector<Message> sends, std::vector<Message> receives,
              const ExchangeEvents& events);

}  // namespace tessera::fakes
