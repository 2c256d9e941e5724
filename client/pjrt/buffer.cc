// Buffers, and the functions of the PJRT C API about them. JAX makes buffers from host memory, gets
// them as results of runs (execute.cc), passes them to further runs, and reads them back. A buffer
// refers to a shard of an array at the service, so most of these functions move no bytes.
#include "client/pjrt/buffer.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "client/pjrt/status.h"
#include "client/pjrt/types.h"
#include "client/trace/trace.h"
#include "ir/api/placement.h"
#include "ir/strided.h"

namespace tessera::pjrt {
namespace {

// The most bytes of a buffer that are kept on a device twice: as an array of its own, and as part
// of the array that was assembled from it.
constexpr int64_t kKeptTwiceBytesMax = 1 << 20;

// The longest wait of one call to the service. Between calls the waiting thread checks whether the
// client is being closed.
constexpr absl::Duration kWaitSlice = absl::Seconds(1);
// How long the framework waits for a device that is away. The coordinator decides much earlier
// whether the device is lost, unless its outage_grace_ms is longer.
constexpr absl::Duration kDeviceWaitMax = absl::Minutes(10);
// How long a copy waits for the state of its device. If there is no answer, the copy is tried.
constexpr absl::Duration kDeviceAnswerWait = absl::Seconds(1);
// The longest wait for an array whose run has ended.
constexpr absl::Duration kReadTimeout = absl::Minutes(10);

absl::StatusOr<ir::Dims> ElementStrides(absl::Span<const int64_t> byte_strides, int64_t width) {
  ir::Dims out;
  for (const int64_t stride : byte_strides) {
    if (stride % width != 0) {
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("a stride of ", stride, " bytes is not a multiple of the ",
                                    width, " bytes of an element"));
    }
    out.push_back(stride / width);
  }
  return out;
}

// Copies the framework's bytes, which may lie in any order of dims, into a row-major array. If the
// number of bytes overflows, that is an error, unless a dim is 0.
absl::StatusOr<ir::Array> CopyHostBuffer(const Client_BufferFromHostBuffer_Args& args,
                                         ir::DType dtype) {
  ir::Dims dims(args.dims, args.dims + args.num_dims);
  const int64_t width = ir::ByteWidth(dtype);
  int64_t num_bytes = width;
  bool countable = true;
  for (const int64_t d : dims) {
    if (d < 0) return MakeError(ErrorKind::kValueError, absl::StrCat("a dim of a buffer is ", d));
    if (__builtin_mul_overflow(num_bytes, d, &num_bytes)) countable = false;
  }
  if (!countable && std::find(dims.begin(), dims.end(), 0) == dims.end()) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("a buffer of ", ir::MakeType(dtype, dims).ToString(),
                                  " has more than 2^63 - 1 bytes"));
  }
  const auto* const data = static_cast<const std::byte*>(args.data);
  if (args.byte_strides == nullptr || args.num_byte_strides != args.num_dims)
    return ir::Array(dtype, std::move(dims), absl::MakeConstSpan(data, countable ? num_bytes : 0));
  ir::Array out(dtype, dims);
  if (out.num_elements() == 0) return out;
  TESSERA_ASSIGN_OR_RETURN(
      const ir::Dims strides,
      ElementStrides(absl::MakeConstSpan(args.byte_strides, args.num_byte_strides), width));
  ir::CopyStrided(width, dims, data, strides, out.MutableData(), ir::StridesOf(dims));
  return out;
}

// A run, and an array that the run makes.
struct RunAndArray {
  explicit RunAndArray(const internal::ConcreteState& c) : operation(c.operation), array(c.id) {}
  uint64_t operation, array;
};

// Returns the error of a run that ended so long ago that its record is gone. If the run failed, its
// array still has the error. If a later run took the array, the run must have succeeded.
absl::Status ErrorOfForgottenRun(const Client& client, const RunAndArray& run) {
  const absl::Status status =
      client.session->service().GetShard(run.array, 0, internal::kMaxWaitPerCall).status();
  if (status.ok()) return status;
  const ErrorKind kind = KindOf(status);
  const bool taken = kind == ErrorKind::kArrayDeleted || kind == ErrorKind::kArrayNotFound;
  return taken ? absl::OkStatus() : status;
}

absl::Status AwaitEndOfRun(const Client& client, const RunAndArray& run) {
  const MainThreadWait wait;
  while (true) {
    if (client.closing.load()) return absl::CancelledError("the client has been closed");
    const absl::StatusOr<api::Operation> record =
        client.session->service().WaitOperation(run.operation, kWaitSlice);
    if (!record.ok() && KindOf(record.status()) == ErrorKind::kOperationNotFound)
      return ErrorOfForgottenRun(client, run);
    TESSERA_RETURN_IF_ERROR(record.status());
    if (internal::HasEnded(*record)) return record->error;
  }
}

// Calls `read` again and again while the coordinator is away. After a bound of its own the service
// returns another error than DEADLINE_EXCEEDED.
template <class Read>
absl::StatusOr<ir::Array> ReadWhenReady(const Client& client, const Read& read) {
  const absl::Time end = SteadyNow() + kReadTimeout;
  while (true) {
    const absl::Time began = SteadyNow();
    absl::StatusOr<ir::Array> value = read(internal::kMaxWaitPerCall);
    // If the call lasted for the whole wait, the array is not ready yet or nobody knows. If the
    // call returned earlier, DEADLINE_EXCEEDED is the error of the run.
    const absl::Time now = SteadyNow();
    const bool not_yet = absl::IsDeadlineExceeded(value.status()) &&
                         now - began >= internal::kMaxWaitPerCall && now < end;
    if (!not_yet || client.closing.load()) return value;
  }
}

// Writes an array to memory of the framework, which may have another order of dims.
void WriteTo(const ir::Array& value, const std::optional<ir::Dims>& strides, void* dst) {
  if (value.num_elements() == 0) return;
  if (!strides) {
    std::memcpy(dst, value.data(), value.num_bytes());
  } else {
    ir::CopyStrided(ir::ByteWidth(value.dtype()), value.shape(), value.data(),
                    ir::StridesOf(value.shape()), static_cast<std::byte*>(dst), *strides);
  }
}

// Returns the strides of the layout in elements, or nullopt if the layout is row-major.
absl::StatusOr<std::optional<ir::Dims>> HostStrides(const MemoryLayout* layout,
                                                    const Buffer& buffer) {
  if (layout == nullptr || buffer.dims.size() < 2) return std::optional<ir::Dims>();
  ir::Dims strides(buffer.dims.size());
  if (layout->type == kStrides) {
    TESSERA_ASSIGN_OR_RETURN(strides,
                             ElementStrides(absl::MakeConstSpan(layout->strides.byte_strides,
                                                                layout->strides.num_byte_strides),
                                            ir::ByteWidth(buffer.dtype)));
  } else {
    if (layout->tiled.num_tiles != 0) {
      return MakeError(ErrorKind::kNotImplemented,
                       "reading into a tiled layout: ask for an untiled one");
    }
    int64_t stride = 1;
    for (size_t i = 0; i < layout->tiled.minor_to_major_size; ++i) {
      const int64_t dim = layout->tiled.minor_to_major[i];
      if (dim < 0 || static_cast<size_t>(dim) >= strides.size()) {
        return MakeError(ErrorKind::kValueError, absl::StrCat("a layout names dim ", dim));
      }
      strides[dim] = stride;
      stride *= buffer.dims[dim];
    }
  }
  if (strides.size() != buffer.dims.size())
    return MakeError(ErrorKind::kValueError, "a layout does not have the dims of its buffer");
  if (strides == ir::StridesOf(buffer.dims)) return std::optional<ir::Dims>();
  return std::optional<ir::Dims>(std::move(strides));
}

}  // namespace

void ArrayCell::Fill(tessera::Array array) {
  absl::MutexLock lock(&mu_);
  array_ = std::move(array);
  filled_.store(true, std::memory_order_release);
}

void ArrayCell::Fail(const absl::Status& why) {
  absl::MutexLock lock(&mu_);
  failure_ = why;
  filled_.store(true, std::memory_order_release);
}

absl::StatusOr<Contents> ArrayCell::ContentsOfShard(int ordinal, bool zero) const {
  absl::MutexLock lock(&mu_);
  if (!failure_.ok()) return failure_;
  if (bytes_) return Contents{bytes_, {}, 0};
  if (array_.valid()) return Contents{std::nullopt, array_, ordinal, zero};
  return Contents{std::nullopt, assembled_, assembled_ordinal_};
}

std::pair<tessera::Array, tessera::Array> ArrayCell::ArraysWithShard(int shard, bool shard_is_zero,
                                                                     int ordinal, bool zero) const {
  std::pair<tessera::Array, tessera::Array> out;
  absl::MutexLock lock(&mu_);
  if (ordinal == shard && zero == shard_is_zero) out.first = array_;
  if (assembled_ordinal_ == shard && !shard_is_zero) out.second = assembled_;
  return out;
}

void ArrayCell::NoteAssembled(const tessera::Array& array, int ordinal, LiveRunRef run) {
  std::optional<ir::Array> bytes;  // destroyed without the lock
  tessera::Array old, old_assembled;
  absl::MutexLock lock(&mu_);
  bytes.swap(bytes_);
  std::swap(old_assembled, assembled_);
  run.swap(assembled_run_);
  assembled_ = array;
  assembled_ordinal_ = ordinal;
  // Keep the old array beside the new one if other buffers may use it, or if it is small.
  if (array_.valid() && array_.placement().devices.size() == 1 &&
      array_.type().num_bytes() > kKeptTwiceBytesMax)
    std::swap(old, array_);
}

LiveRunRef ArrayCell::assembled_run() const {
  absl::MutexLock lock(&mu_);
  return assembled_run_;
}

absl::StatusOr<CellShard> Buffer::shard() const {
  absl::MutexLock lock(&mu_);
  if (shard_.cell) return shard_;
  return MakeError(ErrorKind::kArrayDeleted,
                   absl::StrCat("a buffer of ", ir::MakeType(dtype, dims).ToString(),
                                " was deleted or donated"));
}

absl::StatusOr<Contents> Buffer::contents() const {
  TESSERA_ASSIGN_OR_RETURN(const CellShard shard, this->shard());
  if (!shard.cell->filled()) device->client->run_queue.DoWaitingJobs();
  return shard.contents();
}

void Buffer::Delete() {
  CellShard old;  // destroyed without the lock
  absl::MutexLock lock(&mu_);
  std::swap(old, shard_);
}

bool Buffer::deleted() const {
  absl::MutexLock lock(&mu_);
  return shard_.cell == nullptr;
}

namespace {

// Returns whether each shard, whose shape is `local`, is the whole array.
bool IsWhole(const tessera::Array& array, const ir::Dims& local) {
  return local == array.shape() && !api::IsPendingSum(array.placement());
}

}  // namespace

bool ReshardMovesShard(const Contents& contents, const ir::Dims& local,
                       const std::vector<int64_t>& to) {
  if (contents.zero || !IsWhole(contents.array, local)) return false;
  const std::vector<int64_t>& devices = contents.array.placement().devices;
  return devices.size() == 1 || (to.size() == 1 && devices.at(contents.ordinal) == to[0]);
}

int64_t Buffer::num_bytes() const {
  return std::accumulate(dims.begin(), dims.end(), ir::ByteWidth(dtype), std::multiplies<>());
}

absl::Status AwaitRun(const Client& client, const tessera::Array& array) {
  const internal::ConcreteState* const c = internal::AsConcrete(array);
  if (!c->may_be_pending()) return absl::OkStatus();
  TESSERA_RETURN_IF_ERROR(AwaitEndOfRun(client, RunAndArray(*c)));
  c->ready.store(true);
  return absl::OkStatus();
}

// Does not keep the array alive while it waits: an array that the framework has dropped must be
// deleted before the next runs, and not only once the end of its run has been noticed.
void SettleAtEndOfRun(Client& client, const tessera::Array& array,
                      const std::shared_ptr<Outcome>& outcome) {
  const internal::ConcreteState* const c = internal::AsConcrete(array);
  if (!c->may_be_pending()) return outcome->Settle(absl::OkStatus());
  outcome->SetLazyStart([&client, run = RunAndArray(*c), outcome = outcome.get()] {
    // The task keeps the outcome alive. The code that asks for the outcome holds it as well, so the
    // plain pointer is valid here.
    auto settler = std::make_shared<Settler>(outcome->shared_from_this());
    client.waiters.Push(/*size=*/0,
                        [&client, run, settler] { settler->Settle(AwaitEndOfRun(client, run)); });
  });
}

std::shared_ptr<Outcome> OutcomeOfRun(Client& client, const tessera::Array& array) {
  if (!internal::AsConcrete(array)->may_be_pending()) return SettledOutcome();
  auto outcome = std::make_shared<Outcome>();
  SettleAtEndOfRun(client, array, outcome);
  return outcome;
}

namespace {

// Returns an outcome that settles when the device may take data, or is lost. The outcome asks the
// coordinator only when the framework asks for it. A device of this process is never lost.
std::shared_ptr<Outcome> OutcomeOfDevice(Client& client, const Device& device) {
  if (client.embedded) return SettledOutcome();
  auto outcome = std::make_shared<Outcome>();
  outcome->SetLazyStart([&client, id = device.id, outcome = outcome.get()] {
    // The code that asks for the outcome holds it, as in SettleAtEndOfRun.
    auto settler = std::make_shared<Settler>(outcome->shared_from_this());
    client.waiters.Push(/*size=*/0, [&client, id, settler] {
      settler->Settle(CatchExceptions(
          [&] { return client.device_states->AwaitUsable(id, kDeviceWaitMax, client.closing); }));
    });
  });
  return outcome;
}

// Fails if the device is lost. Asks the coordinator at most once a second.
absl::Status CheckNotLost(Client& client, const Device& device) {
  if (client.embedded) return absl::OkStatus();
  const DeviceState state =
      client.device_states->Get(device.id, /*max_age=*/absl::Seconds(1), kDeviceAnswerWait);
  return state.kind == DeviceState::kLost ? DeviceLostError(device.id, state) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<ir::Array> ReadShard(const Client& client, const Contents& contents, ir::DType dtype,
                                    const ir::Dims& local) {
  TESSERA_RETURN_IF_ERROR(AwaitRun(client, contents.array));
  if (contents.zero) return ir::Array(dtype, local);
  api::Service& service = client.session->service();
  const uint64_t id = internal::AsConcrete(contents.array)->id;
  // Get reads the array from its first device, and is free if the array came inline with the
  // completion of its run. If a device's executor is lost or away, the coordinator gives tickets
  // for another device with the same shard.
  const bool whole = contents.ordinal == 0 && IsWhole(contents.array, local);
  return ReadWhenReady(client, [&](absl::Duration wait) {
    return whole ? service.Get(id, wait) : service.GetShard(id, contents.ordinal, wait);
  });
}

Error* Client_BufferFromHostBuffer(Client_BufferFromHostBuffer_Args* args) {
  return Guarded([args]() -> absl::Status {
    const std::optional<ir::DType> dtype = DTypeOfPjrtType(args->type);
    if (!dtype) {
      return MakeError(ErrorKind::kNotImplemented,
                       absl::StrCat("Tessera has no elements of PJRT's type ", args->type));
    }
    Device* const device = args->memory != nullptr ? args->memory->device : args->device;
    if (device == nullptr)
      return MakeError(ErrorKind::kValueError, "a buffer needs a device or a memory");
    TESSERA_ASSIGN_OR_RETURN(ir::Array bytes, CopyHostBuffer(*args, *dtype));
    ir::Dims dims = bytes.shape();
    args->buffer =
        new Buffer(device, *dtype, std::move(dims), {std::make_shared<ArrayCell>(std::move(bytes))},
                   OutcomeOfDevice(*device->client, *device));
    args->done_with_host_buffer = new Event{SettledOutcome()};
    return absl::OkStatus();
  });
}

Error* Buffer_Destroy(Buffer_Destroy_Args* args) {
  delete args->buffer;
  return nullptr;
}

Error* Buffer_ElementType(Buffer_ElementType_Args* args) {
  args->type = args->buffer->is_token ? kTokenType : PjrtTypeOfDType(args->buffer->dtype);
  return nullptr;
}

Error* Buffer_Dimensions(Buffer_Dimensions_Args* args) {
  args->dims = args->buffer->dims.data();
  args->num_dims = args->buffer->dims.size();
  return nullptr;
}

Error* Buffer_UnpaddedDimensions(Buffer_UnpaddedDimensions_Args* args) {
  args->unpadded_dims = args->buffer->dims.data();
  args->num_dims = args->buffer->dims.size();
  return nullptr;
}

Error* Buffer_DynamicDimensionIndices(Buffer_DynamicDimensionIndices_Args* args) {
  args->dynamic_dim_indices = nullptr;
  args->num_dynamic_dims = 0;
  return nullptr;
}

Error* Buffer_OnDeviceSizeInBytes(Buffer_OnDeviceSizeInBytes_Args* args) {
  args->on_device_size_in_bytes = args->buffer->num_bytes();
  return nullptr;
}

Error* Buffer_Device(Buffer_Device_Args* args) {
  args->device = args->buffer->device;
  return nullptr;
}

Error* Buffer_Memory(Buffer_Memory_Args* args) {
  args->memory = &args->buffer->device->memory;
  return nullptr;
}

Error* Buffer_Delete(Buffer_Delete_Args* args) {
  args->buffer->Delete();
  return nullptr;
}

Error* Buffer_IsDeleted(Buffer_IsDeleted_Args* args) {
  args->is_deleted = args->buffer->deleted();
  return nullptr;
}

// Always answers false. If the answer were true, the framework would read the buffer's memory
// directly, but this memory is in another process.
Error* Buffer_IsOnCpu(Buffer_IsOnCpu_Args* args) {
  args->is_on_cpu = false;
  return nullptr;
}

// The framework asks for this event when it is about to wait for the buffer, so all queued runs are
// requested first.
Error* Buffer_ReadyEvent(Buffer_ReadyEvent_Args* args) {
  return Guarded([args] {
    const absl::StatusOr<CellShard> shard = args->buffer->shard();
    if (shard.ok() && !shard->cell->filled())
      args->buffer->device->client->run_queue.DoWaitingJobs();
    args->buffer->ready->NoteWait();
    args->event = new Event{args->buffer->ready};
    return absl::OkStatus();
  });
}

// Copies a buffer into the framework's memory, or returns its size if there is no memory. Bytes
// that were never sent, and results of an embedded cluster that are ready, are copied at once:
// handing them to another thread would cost more than the copy. Everything else is read by a waiter
// thread, which settles the event.
Error* Buffer_ToHostBuffer(Buffer_ToHostBuffer_Args* args) {
  return Guarded([args]() -> absl::Status {
    const Buffer& buffer = *args->src;
    args->event = nullptr;
    if (args->dst == nullptr) {
      args->dst_size = buffer.num_bytes();
      return absl::OkStatus();
    }
    if (args->dst_size < static_cast<size_t>(buffer.num_bytes())) {
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("the buffer has ", buffer.num_bytes(),
                                    " bytes, but the destination has room for ", args->dst_size));
    }
    TESSERA_ASSIGN_OR_RETURN(const std::optional<ir::Dims> strides,
                             HostStrides(args->host_layout, buffer));
    TESSERA_ASSIGN_OR_RETURN(const CellShard shard, buffer.shard());
    TESSERA_ASSIGN_OR_RETURN(const Contents contents, buffer.contents());
    if (contents.bytes) {
      WriteTo(*contents.bytes, strides, args->dst);
      args->event = new Event{SettledOutcome()};
      return absl::OkStatus();
    }
    Client& client = *buffer.device->client;
    // The framework keeps the buffer until the event is ready.
    const auto read = [&client, &buffer, shard, contents, strides,
                       dst = args->dst]() -> absl::Status {
      TESSERA_ASSIGN_OR_RETURN(const ir::Array value,
                               ReadShard(client, contents, buffer.dtype, buffer.dims));
      WriteTo(value, strides, dst);
      if (shard.cell->run() != nullptr) shard.cell->run()->NoteEnded();
      return absl::OkStatus();
    };
    if (client.embedded && !internal::AsConcrete(contents.array)->may_be_pending()) {
      args->event = new Event{std::make_shared<Outcome>(read())};
      return absl::OkStatus();
    }
    auto outcome = std::make_shared<Outcome>();
    outcome->NoteWait();
    client.waiters.Push(/*size=*/0, [read, settler = std::make_shared<Settler>(outcome)] {
      settler->Settle(CatchExceptions(read));
    });
    args->event = new Event{std::move(outcome)};
    return absl::OkStatus();
  });
}

// Makes a buffer with the same contents on another device. If the run of the buffer has failed, the
// copy shares the buffer's cell and so has the same error. Bytes that were never sent stay in this
// process. If the other device is lost, the copy has an error that says so.
Error* Buffer_CopyToMemory(Buffer_CopyToMemory_Args* args) {
  return Guarded([args]() -> absl::Status {
    const Buffer& from = *args->buffer;
    Device* const to = args->dst_memory->device;
    Client& client = *from.device->client;
    const auto return_copy = [&](CellShard shard, std::shared_ptr<Outcome> ready) {
      args->dst_buffer = new Buffer(to, from.dtype, from.dims, std::move(shard), std::move(ready));
      return absl::OkStatus();
    };
    TESSERA_ASSIGN_OR_RETURN(const CellShard shard, from.shard());
    if (from.device == to) return return_copy(shard, from.ready);
    if (!shard.cell->filled()) client.run_queue.DoWaitingJobs();
    const absl::StatusOr<Contents> contents = shard.contents();
    if (!contents.ok() || !from.ready->status().ok()) return return_copy(shard, from.ready);
    if (contents->bytes)
      return return_copy({std::make_shared<ArrayCell>(*contents->bytes)},
                         OutcomeOfDevice(client, *to));
    if (const absl::Status lost = CheckNotLost(client, *to); !lost.ok()) {
      auto failed = std::make_shared<ArrayCell>(LiveRunRef());
      failed->Fail(lost);
      return return_copy({std::move(failed)}, std::make_shared<Outcome>(lost));
    }
    if (ReshardMovesShard(*contents, from.dims, {to->id})) {
      const tessera::Array copy =
          client.session->Reshard(contents->array, Mesh{{}, {to->id}}, {}, Site{});
      return return_copy({std::make_shared<ArrayCell>(copy, shard.cell->run())},
                         OutcomeOfRun(client, copy));
    }
    // The service cannot move one shard of several alone, so its bytes go through this process.
    TESSERA_ASSIGN_OR_RETURN(ir::Array bytes, ReadShard(client, *contents, from.dtype, from.dims));
    return return_copy({std::make_shared<ArrayCell>(std::move(bytes))},
                       OutcomeOfDevice(client, *to));
  });
}

}  // namespace tessera::pjrt
