// Finds and checks row tiles. Build (build.cc) plans them after PlanOverlap, Verify checks them,
// and the CPU backend asks RowKernelOf how to run a kernel on a block of rows. Everything follows
// from the row stride of each access: how far it moves from one row to the next.
#include "worker/program/row_tile.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "worker/program/overlap.h"

namespace tessera::worker::program {
namespace {

using codegen::Access;
using codegen::Kernel;
using codegen::Node;

// The largest number of bytes in one row of all slots of a tile together. A larger row leaves the
// caches before it is read again.
constexpr int64_t kRowBytesMax = 1 << 19;
constexpr int kStepsMax = 16;  // largest number of steps of a tile

// Calls f(param, access) for the loads and stores.
template <class KernelType, class F>
void ForEachAccess(KernelType& kernel, const F& f) {
  for (auto& node : kernel.nodes)
    if (node.kind == Node::Kind::kLoad) f(node.param, node.access);
  for (auto& store : kernel.stores) f(store.param, store.access);
}

// Like ForEachAccess, but also calls f(-1, access) for indices, which have no param.
template <class KernelType, class F>
void ForEachAccessAndIndex(KernelType& kernel, const F& f) {
  ForEachAccess(kernel, f);
  for (auto& node : kernel.nodes)
    if (node.kind == Node::Kind::kIndex) f(-1, node.access);
}

// Splits the parallel dims so that the first of them are the rows. Returns how many dims are rows,
// or -1 if there is no such split.
int SplitRows(int64_t rows, Kernel* kernel) {
  int64_t before = 1;
  for (int d = 0; d < kernel->num_parallel(); ++d) {
    if (before == rows) return d;
    const int64_t outer = rows / before, size = kernel->shape[d];
    if (rows % before != 0 || (size > outer && size % outer != 0)) return -1;
    if (size > outer) {
      const int64_t inner = size / outer;
      ForEachAccessAndIndex(*kernel, [&](int, Access& access) {
        codegen::ForEachStrides(access, [&](ir::Dims& strides) {
          strides.insert(strides.begin() + d, strides[d] * inner);
        });
      });
      kernel->shape[d] = inner;
      kernel->shape.insert(kernel->shape.begin() + d, outer);
      return d + 1;
    }
    before *= size;
  }
  return before == rows ? kernel->num_parallel() : -1;
}

// Returns the row stride of an access or a shift: the number of elements by which it moves from one
// row to the next. Returns nullopt if that number differs between rows. `strides` are the strides
// of the access or shift; an empty list means that all are 0. The rows are the first `num_dims`
// dims.
std::optional<int64_t> RowStrideOf(const Kernel& kernel, int num_dims, const ir::Dims& strides) {
  if (strides.empty()) return 0;
  std::optional<int64_t> row_stride;
  int64_t inner = 1;  // the number of rows that one step along the dim passes
  for (int d = num_dims - 1; d >= 0; --d) {
    if (kernel.shape[d] == 1) continue;
    if (!row_stride) row_stride = strides[d];
    if (strides[d] != *row_stride * inner) return std::nullopt;
    inner *= kernel.shape[d];
  }
  return row_stride.value_or(0);
}

// A kernel, divided into the rows of a tile.
struct KernelRows {
  Kernel kernel;  // split, so that the first num_dims dims are the rows
  int num_dims = 0;
  // By param: the row stride of all of its accesses, and of the shifts for which it is read.
  // Nullopt if they have different row strides.
  std::vector<std::optional<int64_t>> row_strides;
  // By param: whether row r uses only the `row_stride` elements from r * row_stride on.
  std::vector<bool> uses_own_row;
  bool index_depends_on_row = false;
};

// Divides a kernel into rows and finds the row strides of its params. A param uses only its own row
// if its accesses stay within the elements between one row and the next. A param whose accesses
// have shifts never counts as one that uses only its own row, because its elements are known only
// at run time.
std::optional<KernelRows> SplitIntoRows(const Kernel& kernel, int64_t rows) {
  KernelRows split{kernel, 0, std::vector<std::optional<int64_t>>(kernel.params.size(), 0),
                   std::vector<bool>(kernel.params.size(), true)};
  split.num_dims = SplitRows(rows, &split.kernel);
  if (split.num_dims < 0) return std::nullopt;
  std::vector<bool> seen(kernel.params.size(), false);
  const auto set_row_stride = [&](int param, std::optional<int64_t> row_stride) {
    if (seen[param] && split.row_strides[param] != row_stride) row_stride.reset();
    seen[param] = true;
    split.row_strides[param] = row_stride;
    if (!row_stride) split.uses_own_row[param] = false;
  };
  ForEachAccessAndIndex(split.kernel, [&](int param, const Access& access) {
    const std::optional<int64_t> row_stride =
        RowStrideOf(split.kernel, split.num_dims, access.strides);
    if (param < 0) {
      split.index_depends_on_row = split.index_depends_on_row || row_stride != 0;
      return;
    }
    set_row_stride(param, row_stride);
    int64_t low = access.offset, high = access.offset;
    for (int d = split.num_dims; d < split.kernel.rank(); ++d) {
      const int64_t last = access.strides[d] * (split.kernel.shape[d] - 1);
      (last < 0 ? low : high) += last;
    }
    if (!row_stride || !access.shifts.empty() || low < 0 || high >= *row_stride ||
        *row_stride * rows != kernel.params[param].size)
      split.uses_own_row[param] = false;
    for (const codegen::DynamicOffset& shift : access.shifts) {
      set_row_stride(shift.param, RowStrideOf(split.kernel, split.num_dims, shift.strides));
      split.uses_own_row[shift.param] = false;
    }
  });
  return split;
}

// Checks the kernels of a tile, for the planner and for the verifier.
class TileChecker {
 public:
  TileChecker(const StepProgram& program, const Conflicts& conflicts)
      : p_(program), conflicts_(conflicts) {}

  // Returns whether the steps are a tile of `rows` rows.
  bool Fits(absl::Span<const KernelStep* const> steps, int64_t rows) const {
    std::vector<KernelRows> split;
    for (const KernelStep* step : steps) {
      std::optional<KernelRows> kernel = SplitIntoRows(p_.kernels[step->kernel], rows);
      if (!kernel) return false;
      split.push_back(*std::move(kernel));
      for (size_t i = 0; i + 1 < split.size(); ++i)
        if (!AreApart(*steps[i], split[i], *step, split.back())) return false;
    }
    return true;
  }

  // Returns whether both steps use the same slot.
  static bool ShareSlot(const KernelStep& a, const KernelStep& b) {
    return std::any_of(a.slots.begin(), a.slots.end(), [&](int slot) {
      return std::find(b.slots.begin(), b.slots.end(), slot) != b.slots.end();
    });
  }

  // Returns the total size of the steps' slots in bytes.
  int64_t BytesOf(absl::Span<const KernelStep* const> steps) const {
    std::vector<int> slots;
    for (const KernelStep* step : steps)
      slots.insert(slots.end(), step->slots.begin(), step->slots.end());
    std::sort(slots.begin(), slots.end());
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    int64_t bytes = 0;
    for (const int slot : slots) bytes += p_.slots[slot].bytes();
    return bytes;
  }

 private:
  // Returns whether no row of one step uses memory that another row of the other step writes.
  bool AreApart(const KernelStep& a, const KernelRows& a_rows, const KernelStep& b,
                const KernelRows& b_rows) const {
    for (size_t i = 0; i < a.slots.size(); ++i)
      for (size_t j = 0; j < b.slots.size(); ++j) {
        if (!a_rows.kernel.params[i].output && !b_rows.kernel.params[j].output) continue;
        if (!conflicts_.MayAlias(a.slots[i], b.slots[j])) continue;
        if (!a_rows.uses_own_row[i] || !b_rows.uses_own_row[j] ||
            !IsSameMemory(p_.slots[a.slots[i]], p_.slots[b.slots[j]]))
          return false;
      }
    return true;
  }

  // Requires that the slots may alias.
  static bool IsSameMemory(const Slot& a, const Slot& b) {
    if (a.bytes() != b.bytes() || a.loop_strides != b.loop_strides) return false;
    // An argument and the result to which it is donated begin at the same place.
    return a.offset == b.offset;
  }

  const StepProgram& p_;
  const Conflicts& conflicts_;
};

class RowTilePlanner {
 public:
  RowTilePlanner(StepProgram* program, int64_t rows_min)
      : p_(*program), conflicts_(*program), checker_(*program, conflicts_), rows_min_(rows_min) {}

  void PlanList(std::vector<Step>* steps) {
    for (size_t first = 0; first < steps->size();) {
      ForEachList((*steps)[first], [this](std::vector<Step>& list) { PlanList(&list); });
      first += std::max<size_t>(PlanFrom(steps, first), 1);
    }
  }

 private:
  // Makes a tile of as many steps from `first` on as possible. Returns their number.
  size_t PlanFrom(std::vector<Step>* steps, size_t first) {
    std::vector<const KernelStep*> kernels;
    int64_t rows = 0;
    for (size_t at = first; at < steps->size() && kernels.size() < kStepsMax; ++at) {
      const auto* step = std::get_if<KernelStep>(&(*steps)[at].what);
      if (step == nullptr) break;
      const int64_t common = std::gcd(rows, p_.kernels[step->kernel].num_iterations());
      const bool shares =
          kernels.empty() || std::any_of(kernels.begin(), kernels.end(), [&](const KernelStep* k) {
            return TileChecker::ShareSlot(*k, *step);
          });
      if (common < rows_min_ || !shares) break;
      kernels.push_back(step);
      if (checker_.BytesOf(kernels) / common > kRowBytesMax || !checker_.Fits(kernels, common)) {
        kernels.pop_back();
        break;
      }
      rows = common;
    }
    if (kernels.size() < 2) return 0;
    for (size_t i = 0; i < kernels.size(); ++i)
      std::get<KernelStep>((*steps)[first + i].what).tile = static_cast<int>(p_.tiles.size());
    p_.tiles.push_back({rows});
    return kernels.size();
  }

  StepProgram& p_;
  const Conflicts conflicts_;
  const TileChecker checker_;
  const int64_t rows_min_;
};

// Checks the tiles of one list of steps, and of the lists inside. The steps of a tile must be
// consecutive, each tile must occur once, and its rows must be apart, since a host runs the rows in
// any order.
absl::Status CheckList(const StepProgram& p, const TileChecker& checker,
                       const std::vector<Step>& steps, std::vector<bool>* seen) {
  for (size_t first = 0; first < steps.size();) {
    absl::Status inside;
    ForEachList(steps[first], [&](const std::vector<Step>& list) {
      inside.Update(CheckList(p, checker, list, seen));
    });
    TESSERA_RETURN_IF_ERROR(inside);
    const std::vector<const KernelStep*> kernels = TileStepsFrom(steps, first);
    if (kernels.empty()) {
      ++first;
      continue;
    }
    const int number = kernels[0]->tile;
    const auto fault = [&](absl::string_view what) {
      return MakeError(ErrorKind::kInternal,
                       absl::StrCat("device program: row tile ", number, " (",
                                    p.labels[steps[first].label], ") ", what));
    };
    if (number >= static_cast<int>(p.tiles.size())) return fault("does not exist");
    if ((*seen)[number]) return fault("is not consecutive steps");
    (*seen)[number] = true;
    if (p.tiles[number].rows < 1) return fault("has no rows");
    if (!checker.Fits(kernels, p.tiles[number].rows))
      return fault("has steps that use other rows than their own");
    first += kernels.size();
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<const KernelStep*> TileStepsFrom(const std::vector<Step>& steps, size_t first) {
  std::vector<const KernelStep*> kernels;
  for (size_t at = first; at < steps.size(); ++at) {
    const auto* step = std::get_if<KernelStep>(&steps[at].what);
    if (step == nullptr || step->tile < 0) break;
    if (!kernels.empty() && kernels[0]->tile != step->tile) break;
    kernels.push_back(step);
  }
  return kernels;
}

void PlanRowTiles(StepProgram* program, int64_t rows_min) {
  RowTilePlanner(program, rows_min).PlanList(&program->steps);
}

absl::Status CheckRowTiles(const StepProgram& program) {
  const Conflicts conflicts(program);
  std::vector<bool> seen(program.tiles.size(), false);
  return CheckList(program, TileChecker(program, conflicts), program.steps, &seen);
}

// Makes the kernel that runs a block of rows. If every param has a row stride and no index depends
// on the row, the row dims become one dim of `block` rows, and the caller moves the buffers. All
// blocks then share one piece of compiled code. In all other cases the kernel stays as it is, and
// the caller begins at the iteration of the first row.
std::optional<RowKernel> RowKernelOf(const Kernel& kernel, int64_t rows, int64_t block) {
  std::optional<KernelRows> split = SplitIntoRows(kernel, rows);
  if (!split) return std::nullopt;
  RowKernel out{kernel, std::vector<int64_t>(kernel.params.size(), 0),
                kernel.num_iterations() / rows};
  out.moves_buffers = !split->index_depends_on_row;
  for (const std::optional<int64_t>& row_stride : split->row_strides)
    out.moves_buffers = out.moves_buffers && row_stride.has_value();
  if (!out.moves_buffers) return out;
  for (size_t i = 0; i < out.row_strides.size(); ++i) out.row_strides[i] = *split->row_strides[i];
  // The row dims become one dim of `block` rows, along which each access has its row stride.
  Kernel& k = out.kernel = std::move(split->kernel);
  const auto replace = [&](ir::Dims* list, int64_t entry) {
    list->erase(list->begin(), list->begin() + split->num_dims);
    list->insert(list->begin(), entry);
  };
  ForEachAccessAndIndex(k, [&](int param, Access& access) {
    replace(&access.strides, param < 0 ? 0 : out.row_strides[param]);
    for (codegen::DynamicOffset& shift : access.shifts)
      if (!shift.strides.empty()) replace(&shift.strides, out.row_strides[shift.param]);
  });
  replace(&k.shape, block);
  for (size_t i = 0; i < k.params.size(); ++i)
    k.params[i].size -= (rows - block) * std::max<int64_t>(out.row_strides[i], 0);
  return out;
}

}  // namespace tessera::worker::program
