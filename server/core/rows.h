// The rows of the coordinator's durable state (server/store/store.h): a value of a kind under a
// key. The scheduler makes them of its state and reads them in its next life; a store knows no more
// of them than this.
#pragma once
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::server::core {

enum class RowKind : uint8_t {
  kSession,
  kArray,
  kOperation,
  kExecutable,
  kProgram,
  kMesh,
  kWorker,
  kExecutor,
  kAnswer,
};

// The names of the kinds, in their order; also those of a database's tables.
inline constexpr std::string_view kRowKindNames[] = {
    "session", "array",  "operation", "executable", "program",
    "mesh",    "worker", "executor",  "answer",
};
inline constexpr int kRowKinds = static_cast<int>(std::size(kRowKindNames));
static_assert(kRowKinds == static_cast<int>(RowKind::kAnswer) + 1);

constexpr std::string_view NameOf(RowKind kind) { return kRowKindNames[static_cast<int>(kind)]; }

// What one row may hold at most; who makes rows keeps below both. A value has room for the largest
// program that is accepted by default, and what is said of it.
inline constexpr size_t kRowKeyBytesMax = 1 << 10;
inline constexpr size_t kRowValueBytesMax = 128 << 20;

struct Row {
  RowKind kind = RowKind::kSession;
  std::string key;                   // bytes; rows of a kind are ordered by it as memcmp does
  std::optional<std::string> value;  // none: the row is deleted
  bool operator==(const Row&) const = default;
};

// The key of what has an id: 8 bytes, in the order of the ids.
inline std::string IdKey(uint64_t id) {
  std::string key(sizeof(id), '\0');
  for (size_t i = key.size(); i-- > 0; id >>= 8) key[i] = static_cast<char>(id & 0xff);
  return key;
}

// The id whose key it is; none if it is the key of no id.
inline std::optional<uint64_t> IdOfKey(std::string_view key) {
  if (key.size() != sizeof(uint64_t)) return std::nullopt;
  uint64_t id = 0;
  for (const char c : key) id = id << 8 | static_cast<unsigned char>(c);
  return id;
}

}  // namespace tessera::server::core
