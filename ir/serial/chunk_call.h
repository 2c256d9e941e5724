// gRPC messages that carry bulk bytes without copying them, and streaming calls of such messages.
// Includes gRPC's headers: include this header in few files.
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

// A received message. The views that data() returns are valid as long as the Chunk lives.
// Thread-compatible.
template <class Message>
class Chunk {
 public:
  // Parses a message. Returns false if `buffer` does not hold a message of this type.
  bool Parse(const grpc::ByteBuffer& buffer);
  // Returns the message without its data.
  const Message& rest() const { return rest_; }
  const std::vector<absl::string_view>& data() const { return data_; }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<absl::string_view> data_;
  Message rest_;
};

// Returns `rest` with `size` bytes of `array`, starting at `at`, as its data. The message shares
// these bytes with the array until gRPC is done with them, which may be after the end of the call.
grpc::ByteBuffer MakeChunk(const v1::WriteRequest& rest, const Array& array, int64_t at,
                           int64_t size);
grpc::ByteBuffer MakeChunk(const v1::ReadResponse& rest, const Array& array, int64_t at,
                           int64_t size);

// Convert messages that carry no bulk bytes.
grpc::ByteBuffer ToBuffer(const google::protobuf::MessageLite& message);
bool FromBuffer(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message);

// A call of `method`, such as "/tessera.v1.DataService/Read", whose steps block. The context's
// deadline bounds each step. If a step returns false, Finish returns the reason. Finish must always
// be called, as the last step. Thread-compatible, but any thread may call context->TryCancel().
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

// Reads ReadResponses into `*block`, starting at byte `*received`, until the stream ends.
// `*received` counts the bytes that are in the block. Calls `on_chunk` after each chunk; an error
// of `on_chunk` ends the reading. INTERNAL: a chunk leaves a gap, overruns the block or does not
// parse. DATA_LOSS (CHECKSUM_MISMATCH): a chunk was damaged; the bytes before it are good. OK means
// only that the stream has ended; Finish tells whether the call succeeded.
absl::Status ReceiveBlock(ChunkCall& call, absl::string_view peer, Array* block, int64_t* received,
                          const std::function<absl::Status(int64_t bytes)>& on_chunk);

}  // namespace tessera::ir::serial
