// Lowers a function to a list of items of a few kinds (items.h). Regions are inlined, and ops that
// only return their operands are removed. The result is the input of Fuse. Stateless; thread-safe.
#pragma once
#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "ir/op_kinds.h"
#include "ir/program.h"
#include "worker/program/build_options.h"
#include "worker/program/items.h"

namespace tessera::worker::program {

// The kinds of ops that can be lowered.
inline constexpr ir::Lowering kLoweredKinds[] = {
    ir::Lowering::kScalar,   ir::Lowering::kReduce,       ir::Lowering::kContract,
    ir::Lowering::kIndexMap, ir::Lowering::kDynamicIndex, ir::Lowering::kScan,
    ir::Lowering::kScatter,  ir::Lowering::kCollective,   ir::Lowering::kRegion,
    ir::Lowering::kAlias,    ir::Lowering::kBarrier,      ir::Lowering::kSort,
    ir::Lowering::kHost};

// Returns the name and call site of an op of the function, for example "psum (model.cc:41)".
std::string LabelOf(const ir::Function& f, size_t op_index);

// Lowers `function` for a backend with these abilities. Errors name the op and its call site.
absl::StatusOr<LoweredFunction> Lower(const ir::Function& function, const BuildOptions& options);

}  // namespace tessera::worker::program
