// NVPTX's intrinsics behind functions, for gpu_nodes.cc and gpu_emit.cc. The emulator
// (testing/simt_lower.cc) rewrites exactly the intrinsics that are emitted here, so a new one needs
// code there, too.
#include "worker/codegen/gpu_thread.h"

#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/Metadata.h"

namespace tessera::worker::codegen {

using llvm::Type;
using llvm::Value;

namespace {

constexpr unsigned kGlobalSpace = 1;
constexpr unsigned kSharedSpace = 3;
constexpr int64_t kSlotBytes = 8;

// gcc wrongly reports the operators new and delete of LLVM's globals as a mismatch.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
llvm::GlobalVariable* AddGlobal(const llvm::Twine& name, Type* type, llvm::Constant* value,
                                unsigned space, llvm::Module* module) {
  auto* const global = new llvm::GlobalVariable(
      *module, type, /*isConstant=*/false,
      value == nullptr ? llvm::GlobalValue::ExternalLinkage : llvm::GlobalValue::InternalLinkage,
      value, name, nullptr, llvm::GlobalValue::NotThreadLocal, space);
  global->setAlignment(llvm::Align(kBufferAlign));
  return global;
}
#pragma GCC diagnostic pop

llvm::Function* AddEntry(int num_params, const std::string& entry, llvm::Module* module) {
  llvm::LLVMContext& context = module->getContext();
  const std::vector<Type*> params(num_params, llvm::PointerType::get(context, kGlobalSpace));
  llvm::Function* const function = llvm::Function::Create(
      llvm::FunctionType::get(Type::getVoidTy(context), params, /*isVarArg=*/false),
      llvm::Function::ExternalLinkage, entry, module);
  function->setCallingConv(llvm::CallingConv::PTX_Kernel);
  function->setDoesNotThrow();
  for (int p = 0; p < num_params; ++p)
    function->addParamAttr(p,
                           llvm::Attribute::getWithAlignment(context, llvm::Align(kBufferAlign)));
  return function;
}

}  // namespace

GpuThread::GpuThread(const GpuPlan& plan, int num_params, const std::string& entry,
                     llvm::Module* module)
    : ControlFlow(AddEntry(num_params, entry, module)),
      plan_(plan),
      module_(*module),
      index_type_(plan.wide_index ? b_.getInt64Ty() : b_.getInt32Ty()) {
  Annotate("maxntidx", plan.block[0]);
  Annotate("maxntidy", plan.block[1]);
  Annotate("maxntidz", plan.block[2]);
}

void GpuThread::For(Value* from, Value* to, int64_t step, const std::function<void(Value*)>& body) {
  ControlFlow::For(from, to, [&](Value* i) {
    body(i);
    return b_.CreateAdd(i, Int(step));
  });
}

Value* GpuThread::ThreadIdxX() {
  return Index(b_.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {}, {}));
}
Value* GpuThread::ThreadIdxY() {
  return Index(b_.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_y, {}, {}));
}
Value* GpuThread::BlockIdxY() {
  return Index(b_.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_y, {}, {}));
}
Value* GpuThread::BlockIdxX() {
  return Index(b_.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x, {}, {}));
}
void GpuThread::Barrier() { b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {}); }

Value* GpuThread::Shuffle(Value* v, int mask) {
  Type* const type = v->getType();
  const unsigned bits = type->getScalarSizeInBits();
  Value* whole = b_.CreateBitCast(v, b_.getIntNTy(bits));
  if (bits < 32) whole = b_.CreateZExt(whole, b_.getInt32Ty());
  if (bits <= 32)
    return b_.CreateBitCast(b_.CreateTrunc(ShuffleWord(whole, mask), b_.getIntNTy(bits)), type);
  Value* const low = ShuffleWord(b_.CreateTrunc(whole, b_.getInt32Ty()), mask);
  Value* const high = ShuffleWord(b_.CreateTrunc(b_.CreateLShr(whole, 32), b_.getInt32Ty()), mask);
  return b_.CreateBitCast(b_.CreateOr(b_.CreateZExt(low, b_.getInt64Ty()),
                                      b_.CreateShl(b_.CreateZExt(high, b_.getInt64Ty()), 32)),
                          type);
}
Value* GpuThread::ShuffleWord(Value* word, int mask) {
  return b_.CreateIntrinsic(
      llvm::Intrinsic::nvvm_shfl_sync_bfly_i32, {},
      {b_.getInt32(0xffffffff), word, b_.getInt32(mask), b_.getInt32(kWarpSize - 1)});
}

Value* GpuThread::SharedWordAddress(Value* number) {
  llvm::GlobalVariable* array = module_.getGlobalVariable(kSharedArray);
  if (array == nullptr)
    array = AddGlobal(kSharedArray, llvm::ArrayType::get(b_.getInt8Ty(), 0), nullptr, kSharedSpace,
                      &module_);
  return b_.CreateGEP(b_.getInt8Ty(), array, b_.CreateMul(number, Int(kSlotBytes)));
}

void GpuThread::Annotate(const char* key, uint32_t value) {
  module_.getOrInsertNamedMetadata("nvvm.annotations")
      ->addOperand(llvm::MDNode::get(
          b_.getContext(),
          {llvm::ConstantAsMetadata::get(function_), llvm::MDString::get(b_.getContext(), key),
           llvm::ConstantAsMetadata::get(b_.getInt32(value))}));
}

llvm::GlobalVariable* GpuThread::DeviceGlobal(const char* what, Type* element, int64_t count) {
  Type* const type = llvm::ArrayType::get(element, count);
  return AddGlobal(function_->getName() + "_" + what, type, llvm::ConstantAggregateZero::get(type),
                   kGlobalSpace, &module_);
}

void GpuThread::Fence() { b_.CreateIntrinsic(llvm::Intrinsic::nvvm_membar_gl, {}, {}); }

}  // namespace tessera::worker::codegen
