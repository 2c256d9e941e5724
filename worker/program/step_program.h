// What one lane of a device program does, step by step, for any machine: which kernels, products,
// exchanges and loops run, in which order, on which memory.
//
// Made by Build from a function at local types; the CPU backend and the backend of accelerators run
// it. Plain values, immutable once built; any thread may read them. What must hold is checked by
// Verify.
//
// Memory: a slot says where a value's bytes lie: in an argument, in a result, in a constant, or in
// the one arena of a run. Those of arguments, results and constants, and the arena, begin at
// addresses that are multiples of kAlignment; a slot with trips may begin at any element. Slots
// that are in use at the same time do not overlap, unless they are the same memory. Steps write
// their results only; arguments and constants are never written, save that a result may be given
// the memory of an argument (Takeover).
//
// Order: steps run in order, or exchanges beside the others as Step::after says. Collectives and
// Position are the only ones that depend on the device.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ir/array.h"
#include "ir/mesh.h"
#include "ir/op_def.h"
#include "ir/program.h"
#include "worker/codegen/kernel.h"
#include "worker/program/matmul.h"

namespace tessera::worker::program {

inline constexpr int64_t kAlignment = 64;

// In trip i of loop `loop`, the slot lies i * stride bytes further.
struct Trip {
  int loop = 0;
  int64_t stride = 0;
  bool operator==(const Trip&) const = default;
};

struct Slot {
  enum class Kind : uint8_t { kArgument, kResult, kConstant, kArena };
  Kind kind = Kind::kArena;
  int index = 0;       // which argument, result or constant
  int64_t offset = 0;  // bytes from the beginning of that, or of the arena
  ir::DType dtype = ir::DType::kF32;
  int64_t elements = 0;
  std::vector<Trip> trips;

  int64_t bytes() const { return elements * ir::ByteWidth(dtype); }
  bool operator==(const Slot&) const = default;
};

// A kernel of `kernels` on slots, one per param.
struct KernelStep {
  int kernel = 0;
  std::vector<int> slots;
};

// One product of batches of matrices, at element offsets in the operands' slots.
struct ContractStep {
  MatmulShape shape;
  int a = 0, b = 0, c = 0;
  int64_t a_offset = 0, b_offset = 0;
};

// One exchange among the devices that differ along `axes`, in the order of Mesh::GroupOf; blocks
// are contiguous. `elements` are those of this device's part: all of `in` for kAllReduce,
// kAllGather and kPermute; one chunk of `in` for kReduceScatter and kAllToAll. kAllGather's `out`
// holds the parts, kReduceScatter's one chunk, kAllToAll's one chunk from each.
struct CollectiveStep {
  ir::Exchange exchange = ir::Exchange::kNone;
  ir::ReduceKind reduce = ir::ReduceKind::kNone;
  ir::AxisList axes;
  std::vector<std::pair<int, int>> pairs;  // kPermute: source, target, as positions in the group
  int group_size = 1;
  ir::DType dtype = ir::DType::kF32;
  int64_t elements = 0;
  int in = 0, out = 0;
};

// Writes the device's position along `axes`, an s32.
struct PositionStep {
  ir::AxisList axes;
  int out = 0;
};

// The same bytes elsewhere. The slots do not overlap.
struct CopyStep {
  int in = 0, out = 0;
};

// Work for which there is no code: the function, of one op, is evaluated on the host.
struct GeneralStep {
  ir::FunctionRef function;
  std::vector<int> in, out;
};

struct Step;
// Runs `body` `trips` times. The cancel word is looked at on each back-edge.
struct LoopStep {
  int loop = 0;  // what Trip::loop names
  int64_t trips = 0;
  std::vector<Step> body;
};

// An exchange begins when the steps before it have ended. Another step begins when those before it
// that are no exchanges have ended, and the exchanges up to `after`, so that later ones may still
// be under way. All have ended at the end of the list: of the program, and of each trip of a loop.
struct Step {
  // A position in the list that this step is in, of an exchange before it; -1: it needs none.
  int after = -1;
  // Of the op that the step is named after, and of all it does: indices into `labels`.
  int label = 0;
  std::vector<int> fused;
  std::variant<KernelStep, ContractStep, CollectiveStep, PositionStep, CopyStep, GeneralStep,
               LoopStep>
      what;
};

struct Buffer {
  ir::DType dtype = ir::DType::kF32;
  ir::Dims shape;
};
// Result i lies in slot `slot`: one of kind kResult that is all of result `index` (i itself, or an
// earlier one: the two are one buffer), or one of kind kArgument that is all of an argument, whose
// memory the result shares.
struct Result {
  Buffer buffer;
  int slot = 0;
};

// Result `result` may be given the memory of argument `argument`, if that may be overwritten: the
// result's memory is written when the argument has been read for the last time, or by the step that
// reads it last, element for element: a kernel whose param is marked `overwritten`, or a copy,
// which then has nothing to do. Of several for one argument or one result a run uses one; any
// choice is right.
struct Takeover {
  int argument = 0, result = 0;
  bool operator==(const Takeover&) const = default;
};

struct DeviceProgram {
  ir::Mesh mesh;
  std::vector<Buffer> arguments;
  std::vector<Result> results;
  std::vector<ir::Array> constants;
  std::vector<codegen::Kernel> kernels;  // distinct
  std::vector<Slot> slots;
  std::vector<Step> steps;
  std::vector<std::string> labels;  // "psum (model.cc:41)"
  std::vector<Takeover> takeovers;  // the most useful first
  int num_loops = 0;
  int64_t arena_bytes = 0;

  // One line per buffer, slot and step, then the kernels.
  std::string ToString() const;
};

struct BuildOptions {
  // Whether the backend's library multiplies matrices of dtype `in` to `out`; null: never. Others
  // become kernels.
  std::function<bool(ir::DType in, ir::DType out)> multiplies;
  // Whether the backend's exchanges combine blocks of `dtype` by `reduce`; null: always. Where not,
  // the blocks are gathered and a kernel combines them.
  std::function<bool(ir::ReduceKind reduce, ir::DType dtype)> combines;
};

// Errors name the op and the user's line.
absl::StatusOr<DeviceProgram> Build(const ir::Function& function, const BuildOptions& options);

// Whether the step exchanges blocks with other devices.
bool IsExchange(const Step& step);
// The same of it, or of a step in it.
bool HasExchange(const Step& step);

// For each result the argument whose memory it is given in a run that may overwrite these
// arguments; -1: none.
std::vector<int> ChooseTakeovers(const DeviceProgram& program,
                                 const std::vector<bool>& may_overwrite);

// Every rule above, and codegen::Verify for each kernel. What fails is our bug.
absl::Status Verify(const DeviceProgram& program);

}  // namespace tessera::worker::program
