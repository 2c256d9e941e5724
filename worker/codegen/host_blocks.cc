// Loads and stores of blocks for the host emitter. On a target with masked memory operations a
// partial block uses masks. On other targets it goes through a copy on the stack. Either way the
// same vector instructions compute it, and no element outside the block is touched.
#include "worker/codegen/host_blocks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "worker/codegen/math.h"

namespace tessera::worker::codegen {

using ir::DType;
using llvm::BasicBlock;
using llvm::Type;
using llvm::Value;

namespace {

constexpr int64_t kAheadBytes = 1024;  // how far ahead of a load its prefetch reads

}  // namespace

llvm::Function* AddHostFunction(llvm::FunctionType* type, llvm::GlobalValue::LinkageTypes linkage,
                                int vector_bytes, const std::string& name, llvm::Module* module) {
  llvm::Function* const function = llvm::Function::Create(type, linkage, name, module);
  function->setDoesNotThrow();
  function->addFnAttr("prefer-vector-width", std::to_string(8 * vector_bytes));
  function->addFnAttr("min-legal-vector-width", std::to_string(8 * vector_bytes));
  return function;
}

void HostBlocks::EnterBlock(Value* num_lanes) {
  num_lanes_ = num_lanes;
  if (!AlwaysFull() && (plan_.has_masked_memory_ops || plan_.vectorize_reduction))
    mask_ = MakeMask();
}

// Returns the mask of the lanes that exist. At least one lane exists.
Value* HostBlocks::MakeMask() {
  const auto bits = static_cast<unsigned>(plan_.lanes);
  if (plan_.has_masked_memory_ops) {
    Type* const type = b_.getIntNTy(bits);
    Value* const missing = b_.CreateTrunc(b_.CreateSub(Int(bits), num_lanes_), type);
    Value* const ones = b_.CreateLShr(llvm::ConstantInt::getAllOnesValue(type), missing);
    return b_.CreateBitCast(ones, llvm::FixedVectorType::get(b_.getInt1Ty(), bits));
  }
  Value* const count = b_.CreateTrunc(num_lanes_, b_.getInt32Ty());
  return b_.CreateICmpULT(Iota(b_.getInt32Ty()), Splat(count));
}

Value* HostBlocks::LoadBlock(DType dtype, Value* address, int64_t stride) {
  Type* const type = MemoryType(b_.getContext(), dtype, plan_.lanes);
  const llvm::Align align = ElementAlign(dtype);
  if (stride == 1 && plan_.prefetch)
    Prefetch(address, kAheadBytes, plan_.lanes * ir::ByteWidth(dtype));
  Value* stored = nullptr;
  if (stride == 1 && AlwaysFull()) {
    stored = b_.CreateAlignedLoad(type, address, align);
  } else if (stride == 1 && plan_.has_masked_memory_ops) {
    stored = b_.CreateMaskedLoad(type, address, align, mask_, llvm::Constant::getNullValue(type));
  } else if (stride == 1) {
    Value* const from = ReadableBlock(dtype, address, /*elements_per_lane=*/1);
    stored = b_.CreateFreeze(b_.CreateAlignedLoad(type, from, align));
  } else {
    Value* const stage = EntryAlloca(type);
    Copy(dtype, stage, 1, address, stride);
    stored = b_.CreateFreeze(b_.CreateAlignedLoad(type, stage, align));
  }
  return FromMemory(b_, dtype, stored);
}

Value* HostBlocks::ReadableBlock(DType dtype, Value* address, int64_t elements_per_lane) {
  if (AlwaysFull()) return address;
  BasicBlock* const before = b_.GetInsertBlock();
  Value* const stage = EntryAlloca(
      MemoryType(b_.getContext(), dtype, static_cast<int>(elements_per_lane) * plan_.lanes));
  If(b_.CreateNot(IsFull()),
     [&] { Copy(dtype, b_.CreateMul(num_lanes_, Int(elements_per_lane)), stage, 1, address, 1); });
  llvm::PHINode* const from = b_.CreatePHI(b_.getPtrTy(), 2);
  for (BasicBlock* const in : llvm::predecessors(b_.GetInsertBlock()))
    from->addIncoming(in == before ? address : stage, in);
  return from;
}

// Reads the memory of all the loads as contiguous vectors and sorts their lanes by shuffles. That
// takes log2(`loads`) shuffles per vector, which is far cheaper than loading elements one by one. A
// partial block is read from a copy on the stack, so nothing beyond it is touched.
std::vector<Value*> HostBlocks::LoadInterleaved(DType dtype, Value* address, int64_t loads) {
  Type* const type = MemoryType(b_.getContext(), dtype, plan_.lanes);
  if (plan_.prefetch) Prefetch(address, kAheadBytes, loads * plan_.lanes * ir::ByteWidth(dtype));
  Value* const from = ReadableBlock(dtype, address, loads);
  std::vector<Value*> vectors;
  for (int64_t k = 0; k < loads; ++k) {
    Value* const at = b_.CreateConstGEP1_64(type, from, k);
    vectors.push_back(b_.CreateFreeze(b_.CreateAlignedLoad(type, at, ElementAlign(dtype))));
  }
  std::vector<int> even;
  for (int lane = 0; lane < plan_.lanes; ++lane) even.push_back(2 * lane);
  std::vector<int> odd = even;
  for (int& lane : odd) ++lane;
  // Every step splits each run of vectors into a run of the elements at even positions and a run of
  // those at odd positions. In the end, run k holds the elements whose positions are the bits of k
  // in reverse order.
  for (int64_t run = loads; run > 1; run /= 2) {
    std::vector<Value*> halved(vectors.size());
    for (int64_t first = 0; first < loads; first += run)
      for (int64_t k = 0; k < run / 2; ++k) {
        Value *const a = vectors[first + 2 * k], *const b = vectors[first + 2 * k + 1];
        halved[first + k] = b_.CreateShuffleVector(a, b, even);
        halved[first + run / 2 + k] = b_.CreateShuffleVector(a, b, odd);
      }
    vectors = std::move(halved);
  }
  std::vector<Value*> lanes(vectors.size());
  for (int64_t k = 0; k < loads; ++k) {
    int64_t position = 0;
    for (int64_t bit = 1; bit < loads; bit *= 2) position = 2 * position + ((k & bit) != 0 ? 1 : 0);
    lanes[position] = FromMemory(b_, dtype, vectors[k]);
  }
  return lanes;
}

Value* HostBlocks::LoadGathered(DType dtype, Value* address, Value* offsets) {
  Type* const element = MemoryType(b_.getContext(), dtype);
  Type* const type = MemoryType(b_.getContext(), dtype, plan_.lanes);
  const llvm::Align align = ElementAlign(dtype);
  if (plan_.has_masked_memory_ops && ir::ByteWidth(dtype) >= 4) {
    Value* const mask = AlwaysFull() ? Splat(b_.getTrue()) : mask_;
    Value* const stored = b_.CreateMaskedGather(type, b_.CreateGEP(element, address, offsets),
                                                align, mask, llvm::Constant::getNullValue(type));
    return FromMemory(b_, dtype, stored);
  }
  Type* const offset_type = offsets->getType()->getScalarType();
  Value* const staged_offsets = EntryAlloca(offsets->getType());
  Value* const stage = EntryAlloca(type);
  b_.CreateStore(offsets, staged_offsets);
  For(Int(0), num_lanes_, [&](Value* i) {
    Value* const offset = b_.CreateLoad(offset_type, b_.CreateGEP(offset_type, staged_offsets, i));
    Value* const read =
        b_.CreateAlignedLoad(element, b_.CreateGEP(element, address, offset), align);
    b_.CreateAlignedStore(read, b_.CreateGEP(element, stage, i), align);
    return b_.CreateAdd(i, Int(1));
  });
  return FromMemory(b_, dtype, b_.CreateFreeze(b_.CreateAlignedLoad(type, stage, align)));
}

void HostBlocks::StoreLanes(DType dtype, Value* value, Value* address) {
  const llvm::Align align = ElementAlign(dtype);
  if (AlwaysFull()) {
    b_.CreateAlignedStore(value, address, align);
    return;
  }
  if (plan_.has_masked_memory_ops) {
    b_.CreateMaskedStore(value, address, align, mask_);
    return;
  }
  IfElse(
      IsFull(), [&] { b_.CreateAlignedStore(value, address, align); },
      [&] {
        Value* const stage = EntryAlloca(value->getType());
        b_.CreateStore(value, stage);
        Copy(dtype, address, 1, stage, 1);
      });
}

llvm::AllocaInst* HostBlocks::EntryAlloca(Type* type) {
  llvm::AllocaInst* const stage = Local(type);
  stage->setAlignment(llvm::Align(kLineBytes));
  return stage;
}

void HostBlocks::Copy(DType dtype, Value* count, Value* to, int64_t to_stride, Value* from,
                      int64_t from_stride) {
  Type* const type = MemoryType(b_.getContext(), dtype);
  const llvm::Align align = ElementAlign(dtype);
  For(Int(0), count, [&](Value* i) {
    Value* const source = b_.CreateGEP(type, from, b_.CreateMul(i, Int(from_stride)));
    Value* const target = b_.CreateGEP(type, to, b_.CreateMul(i, Int(to_stride)));
    b_.CreateAlignedStore(b_.CreateAlignedLoad(type, source, align), target, align);
    return b_.CreateAdd(i, Int(1));
  });
}

// Stores a block in one of three ways. A stride other than 1 goes element by element through the
// stack. Non-temporal stores need a full block that is aligned to a cache line, which only the
// run-time address tells, so both forms are emitted. All other blocks are stored as vectors.
void HostBlocks::StoreBlock(DType dtype, Value* lanes, Value* address, int64_t stride) {
  Value* const value = ToMemory(b_, dtype, lanes);
  if (stride != 1) {
    Value* const stage = EntryAlloca(value->getType());
    b_.CreateStore(value, stage);
    Copy(dtype, address, stride, stage, 1);
    return;
  }
  const int64_t block_bytes = plan_.lanes * ir::ByteWidth(dtype);
  if (!plan_.nontemporal_stores || block_bytes % kLineBytes != 0) {
    StoreLanes(dtype, value, address);
    return;
  }
  Value* const at = b_.CreatePtrToInt(address, b_.getInt64Ty());
  Value* const aligned = b_.CreateIsNull(b_.CreateAnd(at, Int(kLineBytes - 1)));
  IfElse(
      b_.CreateAnd(aligned, IsFull()),
      [&] {
        llvm::StoreInst* const store =
            b_.CreateAlignedStore(value, address, llvm::Align(kLineBytes));
        store->setMetadata(
            llvm::LLVMContext::MD_nontemporal,
            llvm::MDNode::get(b_.getContext(), llvm::ConstantAsMetadata::get(b_.getInt32(1))));
      },
      [&] { StoreLanes(dtype, value, address); });
}

void HostBlocks::StoreInterleaved(DType dtype, Value* even, Value* odd, Value* address) {
  Value *const a = ToMemory(b_, dtype, even), *const b = ToMemory(b_, dtype, odd);
  Type* const type = a->getType();
  const llvm::Align align = ElementAlign(dtype);
  std::vector<int> low, high;
  for (int i = 0; i < plan_.lanes; ++i) {
    low.push_back(i / 2 + i % 2 * plan_.lanes);
    high.push_back(low.back() + plan_.lanes / 2);
  }
  const auto store = [&](Value* to) {
    b_.CreateAlignedStore(b_.CreateShuffleVector(a, b, low), to, align);
    b_.CreateAlignedStore(b_.CreateShuffleVector(a, b, high), b_.CreateConstGEP1_64(type, to, 1),
                          align);
  };
  if (AlwaysFull()) return store(address);
  IfElse(
      IsFull(), [&] { store(address); },
      [&] {
        Value* const stage = EntryAlloca(llvm::ArrayType::get(type, 2));
        store(stage);
        Copy(dtype, b_.CreateMul(num_lanes_, Int(2)), address, 1, stage, 1);
      });
}

void HostBlocks::Prefetch(Value* address, int64_t ahead_bytes, int64_t bytes) {
  constexpr int kRead = 0, kAllCaches = 3, kData = 1;
  for (int64_t at = 0; at < bytes; at += kLineBytes) {
    Value* const ahead = b_.CreateConstGEP1_64(b_.getInt8Ty(), address, ahead_bytes + at);
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {b_.getPtrTy()},
                       {ahead, b_.getInt32(kRead), b_.getInt32(kAllCaches), b_.getInt32(kData)});
  }
}

Value* HostBlocks::Splat(Value* value) {
  return b_.CreateVectorSplat(static_cast<unsigned>(plan_.lanes), value);
}
Value* HostBlocks::Iota(Type* type) {
  std::vector<llvm::Constant*> lanes;
  for (int i = 0; i < plan_.lanes; ++i)
    lanes.push_back(llvm::ConstantInt::get(type, static_cast<uint64_t>(i)));
  return llvm::ConstantVector::get(lanes);
}

llvm::Align HostBlocks::ElementAlign(DType dtype) {
  return llvm::Align(static_cast<uint64_t>(std::min<int64_t>(ir::ByteWidth(dtype), 8)));
}

Value* HostBlocks::Max(Value* x, Value* y) { return b_.CreateSelect(b_.CreateICmpSLT(x, y), y, x); }
Value* HostBlocks::Min(Value* x, Value* y) { return b_.CreateSelect(b_.CreateICmpSLT(x, y), x, y); }

}  // namespace tessera::worker::codegen
