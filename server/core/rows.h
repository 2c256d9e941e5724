// The rows of the coordinator's durable state (server/store/store.h). A row has a kind, a key and a
// value. The scheduler writes its state as rows and reads them in its next life. A store knows
// nothing else about rows.
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

// The names of the kinds, in the order of RowKind. A database's tables have the same names.
inline constexpr std::string_view kRowKindNames[] = {
    "session", "array",  "operation", "executable", "program",
    "mesh",    "worker", "executor",  "answer",
};
inline constexpr int kNumRowKinds = static_cast<int>(std::size(kRowKindNames));
static_assert(kNumRowKinds == static_cast<int>(RowKind::kAnswer) + 1);

constexpr std::string_view NameOf(RowKind kind) { return kRowKindNames[static_cast<int>(kind)]; }

// The largest sizes of the key and of the value of a row. Code that makes rows must not exceed
// them. A value can hold a program of max_program_bytes (its default, 64 MiB) and its description.
inline constexpr size_t kRowKeyBytesMax = 1 << 10;
inline constexpr size_t kRowValueBytesMax = 128 << 20;

struct Row {
  RowKind kind = RowKind::kSession;
  std::string key;                   // bytes by which the rows of a kind are ordered (memcmp)
  std::optional<std::string> value;  // nullopt if the row is deleted
  bool operator==(const Row&) const = default;
};

// Returns the key of the object with this id: 8 bytes that sort in the order of the ids.
inline std::string IdKey(uint64_t id) {
  std::string key(sizeof(id), '\0');
  for (size_t i = key.size(); i-- > 0; id >>= 8) key[i] = static_cast<char>(id & 0xff);
  return key;
}

// Returns the id that IdKey turned into this key, or nullopt if the key has another form.
inline std::optional<uint64_t> IdOfKey(std::string_view key) {
  if (key.size() != sizeof(uint64_t)) return std::nullopt;
  uint64_t id = 0;
  for (const char c : key) id = id << 8 | static_cast<unsigned char>(c);
  return id;
}

}  // namespace tessera::server::core
