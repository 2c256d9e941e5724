// Decides which steps may run concurrently with earlier collectives: Step::after. Stateless;
// deterministic.
#pragma once
#include <vector>

#include "worker/program/step_program.h"

namespace tessera::worker::program {

// Sets Step::after of every step to the last earlier collective whose slots conflict with the
// step's. Drops a donation if it would make a step wait longer, unless one step reads the argument
// and writes the result in its place.
void PlanOverlap(StepProgram* program);

// The slots that the steps of a program read and write, and the conflicts between steps.
class Conflicts {
 public:
  // The program outlives this object.
  explicit Conflicts(const StepProgram& program);

  // The slots that a step uses, sorted and without duplicates.
  struct Use {
    std::vector<int> reads, writes;
  };
  // Returns the slots that the step uses, including the steps of its lists.
  Use UseOf(const Step& step) const;
  // Returns whether one step writes memory that the other one reads or writes.
  bool Between(const Use& a, const Use& b) const;
  // Returns whether the slots may overlap, in any iterations of loops and whichever donations a run
  // uses.
  bool MayAlias(int a, int b) const;

 private:
  const StepProgram& p_;
  struct Extent {
    int64_t low = 0, high = 0;
  };
  std::vector<Extent> extents_;  // the bytes of each slot, over all iterations
};

}  // namespace tessera::worker::program
