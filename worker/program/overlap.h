// Which steps may run concurrently with earlier collectives: Step::after. Stateless; deterministic.
#pragma once
#include <vector>

#include "worker/program/step_program.h"

namespace tessera::worker::program {

// Sets Step::after of every step: the last earlier collective whose slots conflict with the step's.
// A donation that would make a step wait longer is dropped, unless a step writes it in place.
void PlanOverlap(StepProgram* program);

// The slots that the steps of a program read and write, and the conflicts between steps.
class Conflicts {
 public:
  // The program outlives this.
  explicit Conflicts(const StepProgram& program);

  // Distinct slots. Those of a loop are those of its body.
  struct Use {
    std::vector<int> reads, writes;
  };
  Use UseOf(const Step& step) const;
  // Whether one writes what the other reads or writes.
  bool Between(const Use& a, const Use& b) const;

 private:
  // Whether they may lie in the same bytes, in any iteration and with any donations.
  bool MayAlias(int a, int b) const;

  const StepProgram& p_;
  struct Extent {
    int64_t low = 0, high = 0;
  };
  std::vector<Extent> extents_;  // of slots
};

}  // namespace tessera::worker::program
