// gRPC messages that carry bulk bytes without copying these, and the calls of such messages.
// Includes gRPC's headers: include it in few files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"
#include "ir/array.h"
#include "tessera/v1/data.pb.h"

namespace tessera::ir::serial {

// A received message: the views of `data` are valid as long as it lives. Thread-compatible.
template <class Message>
class Chunk {
 public:
  // Returns false if `buffer` holds no such message.
  bool Parse(const grpc::ByteBuffer& buffer);
  const Message& rest() const { return rest_; }  // without its data
  const std::vector<absl::string_view>& data() const { return data_; }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<absl::string_view> data_;
  Message rest_;
};

// `rest` with `size` bytes of `array` from `at` on as its data. These are shared with the array,
// until gRPC is done with them, which may be after the call.
grpc::ByteBuffer MakeChunk(const v1::WriteRequest& rest, const Array& array, int64_t at,
                           int64_t size);
grpc::ByteBuffer MakeChunk(const v1::ReadResponse& rest, const Array& array, int64_t at,
                           int64_t size);

// Any other message.
grpc::ByteBuffer ToBuffer(const google::protobuf::MessageLite& message);
bool FromBuffer(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message);

// One call of `method`, "/tessera.v1.DataService/Read", by blocking steps, each bounded by the
// context's deadline. Once a step has failed Finish says why; it comes last, and always.
// Thread-compatible, and context->TryCancel() from any thread.
class ChunkCall {
 public:
  ChunkCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
            grpc::ClientContext* context);
  ~ChunkCall();
  bool Write(const grpc::ByteBuffer& message);
  bool WritesDone();
  bool Read(grpc::ByteBuffer* message);
  grpc::Status Finish();

 private:
  bool Step();

  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

// Reads ReadResponses to the end of the stream into `*block` from `*received` on, which counts the
// bytes. Calls `tell` after each chunk; its error ends the reading. INTERNAL: a chunk leaves a gap,
// overruns the block or does not parse. DATA_LOSS (CHECKSUM_MISMATCH): a chunk was damaged; the
// bytes before it are good. OK does not mean that the call succeeded.
absl::Status ReceiveBlock(ChunkCall& call, absl::string_view peer, Array* block, int64_t* received,
                          const std::function<absl::Status(int64_t bytes)>& tell);

}  // namespace tessera::ir::serial
