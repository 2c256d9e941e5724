// The table of all ops. Readers of programs find ops by their wire name here. It refers to every
// op, so it stands above all ops, and a program that links it has all of them.
#include "ir/registry.h"

#include "ir/op_def.h"
#include "ir/ops.h"

namespace tessera::ir {
namespace {

// The list is written out. If each op registered itself, the linker of a static library could drop
// ops to which nothing else refers.
constexpr const OpDef* kAllOps[] = {
#define TESSERA_OP(Symbol, wire, lax) &ops::k##Symbol,
#define TESSERA_UNARY TESSERA_OP
#define TESSERA_BINARY TESSERA_OP
#include "ir/ops.def"
#undef TESSERA_UNARY
#undef TESSERA_BINARY
#undef TESSERA_OP
};

}  // namespace

absl::Span<const OpDef* const> AllOps() { return kAllOps; }

const OpDef* FindOp(std::string_view wire_name) {
  for (const OpDef* op : kAllOps)
    if (op->name == wire_name) return op;
  return nullptr;
}

}  // namespace tessera::ir
