// Streams of array bytes over gRPC, for clients and for executors that copy from other executors.
// Messages are raw byte buffers of two slices: the encoded fields, and a view of the array's
// memory.
#include "ir/serial/chunk_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "ir/api/crc32c.h"
#include "ir/serial/chunk.h"

namespace tessera::ir::serial {
namespace {

template <class Message>
grpc::ByteBuffer Make(const Message& rest, const Array& array, int64_t at, int64_t size) {
  using Owner = std::shared_ptr<std::byte[]>;
  const grpc::Slice parts[] = {
      grpc::Slice(EncodeUpToData(rest, size)),
      size == 0
          ? grpc::Slice()
          : grpc::Slice(
                array.bytes().get() + at, static_cast<size_t>(size),
                [](void* owner) { delete static_cast<Owner*>(owner); }, new Owner(array.bytes()))};
  return grpc::ByteBuffer(parts, 2);
}

}  // namespace

template <class Message>
bool Chunk<Message>::Parse(const grpc::ByteBuffer& buffer) {
  slices_.clear();
  if (!buffer.Dump(&slices_).ok()) return false;
  std::vector<absl::string_view> pieces;
  pieces.reserve(slices_.size());
  for (const grpc::Slice& s : slices_)
    pieces.emplace_back(reinterpret_cast<const char*>(s.begin()), s.size());
  return SplitChunk(pieces, &rest_, &data_);
}
template class Chunk<v1::WriteRequest>;
template class Chunk<v1::ReadResponse>;

grpc::ByteBuffer MakeChunk(const v1::WriteRequest& rest, const Array& array, int64_t at,
                           int64_t size) {
  return Make(rest, array, at, size);
}
grpc::ByteBuffer MakeChunk(const v1::ReadResponse& rest, const Array& array, int64_t at,
                           int64_t size) {
  return Make(rest, array, at, size);
}

grpc::ByteBuffer ToBuffer(const google::protobuf::MessageLite& message) {
  const grpc::Slice bytes(message.SerializeAsString());
  return grpc::ByteBuffer(&bytes, 1);
}

bool FromBuffer(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return false;
  std::string bytes;
  for (const grpc::Slice& s : slices)
    bytes.append(reinterpret_cast<const char*>(s.begin()), s.size());
  return message->ParseFromString(bytes);
}

ChunkCall::ChunkCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     grpc::ClientContext* context)
    : stub_(channel), call_(stub_.PrepareCall(context, method, &queue_)) {
  call_->StartCall(this);
  // If the start fails, Finish reports it.
  Step();
}

ChunkCall::~ChunkCall() {
  call_.reset();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool ChunkCall::Write(const grpc::ByteBuffer& message) {
  call_->Write(message, this);
  return Step();
}
bool ChunkCall::WritesDone() {
  call_->WritesDone(this);
  return Step();
}
bool ChunkCall::Read(grpc::ByteBuffer* message) {
  call_->Read(message, this);
  return Step();
}
grpc::Status ChunkCall::Finish() {
  grpc::Status status;
  call_->Finish(&status, this);
  Step();
  return status;
}

bool ChunkCall::Step() {
  void* tag = nullptr;
  bool ok = false;
  // The queue is shut down only in the destructor.
  TESSERA_CHECK(queue_.Next(&tag, &ok));
  return ok;
}

// Checks every chunk before it counts: it must continue where the last one ended, stay inside the
// block and match its checksum. The bytes are checksummed while they are copied into place.
// `*received` therefore always says how many good bytes there are, and a caller can resume from
// there after an error.
absl::Status ReceiveBlock(ChunkCall& call, absl::string_view peer, Array* block, int64_t* received,
                          const std::function<absl::Status(int64_t bytes)>& on_chunk) {
  std::byte* const bytes = block->MutableData();
  const int64_t block_bytes = block->num_bytes();
  grpc::ByteBuffer message;
  Chunk<v1::ReadResponse> chunk;
  while (call.Read(&message)) {
    if (!chunk.Parse(message)) {
      return MakeError(ErrorKind::kInternal, absl::StrCat(peer, " sent an invalid chunk"));
    }
    int64_t size = 0;
    for (const absl::string_view part : chunk.data()) size += static_cast<int64_t>(part.size());
    if (chunk.rest().offset() != *received || size > block_bytes - *received) {
      return MakeError(ErrorKind::kInternal,
                       absl::StrCat(peer, " sent ", size, " bytes at ", chunk.rest().offset(),
                                    " when ", *received, " of ", block_bytes, " had arrived"));
    }
    if (api::CopyWithCrc32c(chunk.data(), bytes + *received) != chunk.rest().crc32c()) {
      return MakeError(
          ErrorKind::kChecksumMismatch,
          absl::StrCat("the chunk from ", peer, " at ", *received, " does not match its checksum"));
    }
    *received += size;
    TESSERA_RETURN_IF_ERROR(on_chunk(size));
  }
  return absl::OkStatus();
}

}  // namespace tessera::ir::serial
