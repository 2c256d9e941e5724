// Which steps may run beside the exchanges that come before them: Step::after.
//
// Pure; deterministic; any thread.
#pragma once
#include <vector>

#include "worker/program/device_program.h"

namespace tessera::worker::program {

// Makes every step wait for the last of the exchanges before it that it has to come after, and for
// no other, given its slots. A takeover that would cost a wait is dropped, unless a step writes in
// place.
void PlanOverlap(DeviceProgram* program);

// What the steps of a program read and write, and which of them therefore have an order.
class Conflicts {
 public:
  // The program outlives this.
  explicit Conflicts(const DeviceProgram& program);

  // Slots, each once; of a loop those of its body.
  struct Use {
    std::vector<int> reads, writes;
  };
  Use UseOf(const Step& step) const;
  // Whether one writes what the other reads or writes.
  bool Between(const Use& a, const Use& b) const;

 private:
  // Whether they may lie in the same bytes, in any trips and with any takeovers.
  bool Meet(int a, int b) const;
  void Add(const Step& step, Use* use) const;

  const DeviceProgram& p_;
  struct Extent {
    int64_t low = 0, high = 0;
  };
  std::vector<Extent> extents_;  // of slots
};

}  // namespace tessera::worker::program
