// Prints step programs and runs parts of them. Dumps and golden tests show the printed form. The
// backends call Evaluate for steps that run on the host, and ChooseDonations before each run.
#include "worker/program/step_program.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace tessera::worker::program {
namespace {

std::string TypeText(const Buffer& buffer) {
  return ir::MakeType(buffer.dtype, buffer.shape).ToString();
}

class Printer {
 public:
  explicit Printer(const StepProgram& program) : p_(program) {}

  std::string Print() {
    for (size_t i = 0; i < p_.arguments.size(); ++i)
      absl::StrAppend(&out_, "argument ", i, ": ", TypeText(p_.arguments[i]), "\n");
    for (size_t i = 0; i < p_.results.size(); ++i)
      absl::StrAppend(&out_, "result ", i, ": ", TypeText(p_.results[i].buffer), " = s",
                      p_.results[i].slot, "\n");
    for (size_t i = 0; i < p_.constants.size(); ++i)
      absl::StrAppend(&out_, "constant ", i, ": ",
                      ir::MakeType(p_.constants[i].dtype(), p_.constants[i].shape()).ToString(),
                      " ", p_.constants[i].ToString(), "\n");
    for (const Donation& donation : p_.donations)
      absl::StrAppend(&out_, "result ", donation.result, " in place of argument ",
                      donation.argument, "\n");
    absl::StrAppend(&out_, "arena: ", p_.arena_bytes, " bytes\n");
    for (size_t i = 0; i < p_.slots.size(); ++i)
      absl::StrAppend(&out_, "s", i, ": ", Print(p_.slots[i]), "\n");
    Print(p_.steps, "");
    for (size_t i = 0; i < p_.tiles.size(); ++i)
      absl::StrAppend(&out_, "tile ", i, ": ", p_.tiles[i].rows, " rows\n");
    for (size_t i = 0; i < p_.kernels.size(); ++i)
      absl::StrAppend(&out_, "kernel ", i, "\n", p_.kernels[i].ToString());
    return std::move(out_);
  }

 private:
  static std::string Print(const Slot& slot) {
    static constexpr absl::string_view kKinds[] = {"argument ", "result ", "constant ", "arena"};
    std::string text = absl::StrCat(kKinds[static_cast<int>(slot.kind)]);
    if (slot.kind != Slot::Kind::kArena) absl::StrAppend(&text, slot.index);
    if (slot.kind == Slot::Kind::kArena || slot.offset != 0)
      absl::StrAppend(&text, " + ", slot.offset);
    for (const auto& [loop, stride] : slot.loop_strides)
      absl::StrAppend(&text, " + ", stride, " * loop", loop);
    absl::StrAppend(&text, ", ", ToAbsl(DTypeName(slot.dtype)), "[", slot.elements, "]");
    return text;
  }
  static std::string Names(const std::vector<int>& slots) {
    return absl::StrJoin(slots, ", ",
                         [](std::string* out, int s) { absl::StrAppend(out, "s", s); });
  }
  static std::string Strides(const int64_t (&strides)[3]) {
    return absl::StrCat("(", strides[0], ", ", strides[1], ", ", strides[2], ")");
  }

  void Print(const std::vector<Step>& steps, const std::string& indent) {
    for (const Step& step : steps) {
      absl::StrAppend(&out_, indent, Print(step),
                      step.after < 0 ? "" : absl::StrCat(" after step ", step.after), "  # ",
                      absl::StrJoin(step.fused_labels, "; ",
                                    [&](std::string* out, int label) {
                                      absl::StrAppend(out, p_.labels[label]);
                                    }),
                      "\n");
      int branch = 0;
      ForEachList(step, [&](const std::vector<Step>& list) {
        if (std::holds_alternative<BranchStep>(step.what))
          absl::StrAppend(&out_, indent, "branch ", branch++, "\n");
        Print(list, indent + "  ");
      });
    }
  }

  // Prints one step on one line, without its lists. Golden files and dumps depend on this form.
  static std::string Print(const Step& step) {
    if (const auto* k = std::get_if<KernelStep>(&step.what))
      return absl::StrCat("kernel ", k->kernel, " (", Names(k->slots), ")",
                          k->tile < 0 ? "" : absl::StrCat(" in tile ", k->tile));
    if (const auto* matmul = std::get_if<MatmulStep>(&step.what)) {
      const auto at = [](int slot, int64_t offset) {
        return offset == 0 ? absl::StrCat("s", slot) : absl::StrCat("s", slot, " + ", offset);
      };
      const MatmulShape& shape = matmul->shape;
      return absl::StrCat("s", matmul->c, " = contract ", shape.batch, " x ", shape.m, " x ",
                          shape.n, " x ", shape.k, " (", at(matmul->a, matmul->a_offset), " ",
                          Strides(shape.a_strides), ", ", at(matmul->b, matmul->b_offset), " ",
                          Strides(shape.b_strides), ")", shape.allow_tf32 ? " in tf32 or f32" : "");
    }
    if (const auto* s = std::get_if<SortStep>(&step.what)) {
      const SortShape& shape = s->shape;
      return absl::StrCat(Names(s->out), " = sort ", shape.outer, " x ", shape.n, " x ",
                          shape.inner, shape.descending ? " descending" : "", " by ",
                          shape.num_keys,
                          shape.kept < shape.n ? absl::StrCat(", the first ", shape.kept) : "",
                          shape.has_indices ? ", with indices" : "", " (", Names(s->in),
                          "), scratch s", s->scratch);
    }
    if (const auto* c = std::get_if<CollectiveStep>(&step.what)) {
      std::string text = absl::StrCat("s", c->out, " = ", ToAbsl(ir::InfoOf(c->kind).name));
      if (c->reduce != ir::ReduceKind::kNone)
        absl::StrAppend(&text, " ", ToAbsl(ir::ReduceKindName(c->reduce)));
      absl::StrAppend(&text, " {", absl::StrJoin(c->axes, ","), "} of ", c->group_size, ", ",
                      c->elements, " elements (s", c->in, ")");
      for (const auto& [source, target] : c->pairs)
        absl::StrAppend(&text, " ", source, "->", target);
      return text;
    }
    if (const auto* p = std::get_if<AxisIndexStep>(&step.what))
      return absl::StrCat("s", p->out, " = position {", absl::StrJoin(p->axes, ","), "}");
    if (const auto* c = std::get_if<CopyStep>(&step.what))
      return absl::StrCat("s", c->out, " = s", c->in);
    if (const auto* h = std::get_if<HostStep>(&step.what))
      return absl::StrCat(Names(h->out), " = host (", Names(h->in), ")",
                          h->is_long ? ", long" : "");
    if (const auto* b = std::get_if<BranchStep>(&step.what))
      return absl::StrCat("branch s", b->index, " of ", b->branches.size());
    const LoopStep& loop = std::get<LoopStep>(step.what);
    if (loop.condition >= 0) return absl::StrCat("loop", loop.number, " while s", loop.condition);
    return absl::StrCat("loop", loop.number, " of ", loop.trip_count, " trips");
  }

  const StepProgram& p_;
  std::string out_;
};

}  // namespace

Carrier CarrierOf(ir::DType dtype) {
  if (ir::IsComputable(dtype)) return {dtype, 1};
  if (dtype == ir::DType::kC64) return {ir::DType::kF32, 2};
  if (dtype == ir::DType::kC128) return {ir::DType::kF64, 2};
  return {ir::DType::kU8, 1};  // all others take one byte
}

std::string StepProgram::ToString() const { return Printer(*this).Print(); }

bool IsCommunicatingStep(const Step& step) {
  const auto* collective = std::get_if<CollectiveStep>(&step.what);
  return collective != nullptr && collective->group_size > 1;
}

bool ContainsCollective(const Step& step) {
  bool found = IsCommunicatingStep(step);
  ForEachList(step, [&](const std::vector<Step>& list) {
    found = found || std::any_of(list.begin(), list.end(), ContainsCollective);
  });
  return found;
}

bool NeedsHost(const Step& step) {
  const auto* loop = std::get_if<LoopStep>(&step.what);
  bool needs = std::holds_alternative<HostStep>(step.what) ||
               std::holds_alternative<BranchStep>(step.what) ||
               (loop != nullptr && loop->condition >= 0);
  ForEachList(step, [&](const std::vector<Step>& list) {
    needs = needs || std::any_of(list.begin(), list.end(), NeedsHost);
  });
  return needs;
}

absl::Status Evaluate(const HostStep& step, ir::EvalOptions options, ReadSlot read,
                      WriteSlot write) {
  return EvaluateBy(
      [&](std::vector<ir::Array> in) {
        return ir::Evaluator(std::move(options)).Run(*step.function, std::move(in));
      },
      step, read, write);
}

absl::Status EvaluateBy(EvaluateStep evaluate, const HostStep& step, ReadSlot read,
                        WriteSlot write) {
  const ir::Function& f = *step.function;
  std::vector<ir::Array> in;
  for (size_t i = 0; i < step.in.size(); ++i) {
    ir::Array& operand = in.emplace_back(f.types[i].dtype, f.types[i].shape);
    if (operand.num_bytes() == 0) continue;  // it has no memory
    TESSERA_RETURN_IF_ERROR(
        read(step.in[i], {operand.MutableData(), static_cast<size_t>(operand.num_bytes())}));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<ir::Array> out, evaluate(std::move(in)));
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].num_bytes() == 0) continue;
    TESSERA_RETURN_IF_ERROR(
        write(step.out[i], {out[i].data(), static_cast<size_t>(out[i].num_bytes())}));
  }
  return absl::OkStatus();
}

absl::Status EvaluateInPlace(const HostStep& step, ir::EvalOptions options,
                             absl::FunctionRef<std::byte*(int slot)> address) {
  const ir::Function& f = *step.function;
  // `references` holds a second reference to each operand, so that the evaluator copies an operand
  // before it writes to it.
  std::vector<ir::Array> in, references;
  for (size_t i = 0; i < step.in.size(); ++i) {
    const ir::Type& t = f.types[i];
    in.push_back(t.num_bytes() == 0 ? ir::Array(t.dtype, t.shape)
                                    : ir::Array(t.dtype, t.shape,
                                                std::shared_ptr<std::byte[]>(address(step.in[i]),
                                                                             [](std::byte*) {})));
  }
  references = in;
  if (f.ops.size() == 1 && f.ops[0].regions.empty() && f.ops[0].results == f.results)
    options.result_memory = [&](size_t i) { return address(step.out[i]); };
  TESSERA_ASSIGN_OR_RETURN(const std::vector<ir::Array> out,
                           ir::Evaluator(std::move(options)).Run(f, std::move(in)));
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].num_bytes() == 0) continue;
    std::byte* const to = address(step.out[i]);
    if (out[i].data() != to) std::memcpy(to, out[i].data(), out[i].num_bytes());
  }
  return absl::OkStatus();
}

std::vector<int> ChooseDonations(const StepProgram& program, const std::vector<bool>& donated) {
  std::vector<int> chosen(program.results.size(), -1);
  std::vector<bool> available = donated;
  available.resize(program.arguments.size(), false);
  for (const Donation& donation : program.donations) {
    if (!available[donation.argument] || chosen[donation.result] >= 0) continue;
    chosen[donation.result] = donation.argument;
    available[donation.argument] = false;
  }
  return chosen;
}

}  // namespace tessera::worker::program
