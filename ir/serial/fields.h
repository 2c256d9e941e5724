// Converts structs to protos and back. Each struct has one list of its fields, which serves both
// directions.
//
//   TESSERA_FIELDS(api::Device, v1::Device, id, kind, worker, host)
//
// says that both types have fields of these names. WriteFields(device, &proto) then fills in the
// proto, and ReadFields(proto, {}, &device) the struct. The type of the struct's field decides how
// the proto's field is written:
//   numbers, bools, strings         unchanged
//   ir::DType                       as the dtype's name
//   absl::Status                    not set if the status is OK
//   absl::Duration, absl::Time      not set if infinite
//   std::optional<T>                not set if empty; T is a time, a duration or a struct
//   absl::StatusOr<T>               by the rule for T; an error is written to the field `status`
//   std::vector<T>                  as a repeated field
//   programs, arrays, meshes, ...   by ToProto; read by FromProto
//   a struct with TESSERA_FIELDS    by the struct's own list
// If a duration or a time is not set in the proto, reading leaves the struct's field as it is.
// If this namespace has a function Check(struct, limits) for the struct, it is called after the
// fields have been read. It checks conditions that the types do not express, and may change the
// struct. Stateless; thread-safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/for_each.h"
#include "base/status.h"
#include "ir/serial/program.h"
#include "ir/serial/status.h"

namespace tessera::ir::serial {

template <class T>
// Specialised by TESSERA_FIELDS.
struct Fields;

#define TESSERA_FIELD_AS_(member, f)                                      \
  visit(                                                                  \
      self.member, [](const auto& p) -> decltype(auto) { return p.f(); }, \
      [](const auto& p) { return p.has_##f(); },                          \
      [](auto* p, const auto& value) { p->set_##f(value); },              \
      [](auto* p) { return p->mutable_##f(); });
#define TESSERA_FIELD_(f) TESSERA_FIELD_AS_(f, f)

// Declares the list of a struct's fields. Use it in namespace tessera::ir::serial. If another
// struct contains this one, declare this one first.
#define TESSERA_FIELDS(Struct, Message, ...)                                       \
  template <>                                                                      \
  struct Fields<Struct> {                                                          \
    using Proto = Message;                                                         \
    template <class Self, class Visit>                                             \
    static void Each([[maybe_unused]] Self& self, [[maybe_unused]] Visit& visit) { \
      TESSERA_FOR_EACH(TESSERA_FIELD_, __VA_ARGS__)                                \
    }                                                                              \
  };
// Like TESSERA_FIELDS, for a struct whose member `member` is the field `field` of the message. The
// further arguments are the fields that have the same name in both.
#define TESSERA_FIELDS_RENAMED(Struct, Message, member, field, ...) \
  template <>                                                       \
  struct Fields<Struct> {                                           \
    using Proto = Message;                                          \
    template <class Self, class Visit>                              \
    static void Each(Self& self, Visit& visit) {                    \
      TESSERA_FIELD_AS_(member, field)                              \
      TESSERA_FOR_EACH(TESSERA_FIELD_, __VA_ARGS__)                 \
    }                                                               \
  };

struct ReadLimits {
  Limits limits = {};
  int64_t array_bytes_max = 0;  // bound for each array
};

template <class T>
void WriteFields(const T& from, typename Fields<T>::Proto* to);
template <class T>
absl::Status ReadFields(const typename Fields<T>::Proto& from, const ReadLimits& limits, T* to);

namespace internal {

template <class T>
inline constexpr bool kIsPlain = std::is_arithmetic_v<T> || std::is_same_v<T, std::string>;
template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsStatusOr = false;
template <class T>
inline constexpr bool kIsStatusOr<absl::StatusOr<T>> = true;
template <class T>
concept HasFields = requires {
  typename Fields<T>::Proto;
};

// A wall-clock time becomes a Timestamp. A time of another clock, which has an arbitrary epoch,
// becomes the Duration since that epoch; as an absl::Time, the epoch is absl::UnixEpoch().
inline void WriteTimeOrDuration(absl::Duration from, google::protobuf::Duration* to) {
  *to = ToProto(from);
}
inline void WriteTimeOrDuration(absl::Time from, google::protobuf::Timestamp* to) {
  *to = ToProto(from);
}
inline void WriteTimeOrDuration(absl::Time from, google::protobuf::Duration* to) {
  *to = ToProto(from - absl::UnixEpoch());
}
inline void ReadTimeOrDuration(const google::protobuf::Duration& from, absl::Duration* to) {
  *to = FromProto(from);
}
inline void ReadTimeOrDuration(const google::protobuf::Timestamp& from, absl::Time* to) {
  *to = FromProto(from);
}
inline void ReadTimeOrDuration(const google::protobuf::Duration& from, absl::Time* to) {
  *to = absl::UnixEpoch() + FromProto(from);
}

template <class T>
constexpr bool IsTimeOrDuration() {
  return std::is_same_v<T, absl::Duration> || std::is_same_v<T, absl::Time>;
}
inline bool IsInfinite(absl::Duration d) { return d == absl::InfiniteDuration(); }
inline bool IsInfinite(absl::Time t) { return t == absl::InfiniteFuture(); }

template <class T, class P>
void WriteMessage(const T& from, P* to) {
  if constexpr (HasFields<T>) {
    WriteFields(from, to);
  } else {
    *to = ToProto(from);
  }
}
template <class P, class T>
absl::Status ReadMessage(const P& from, const ReadLimits& limits, T* to) {
  if constexpr (HasFields<T>) {
    return ReadFields(from, limits, to);
  } else if constexpr (std::is_same_v<T, Array>) {
    TESSERA_ASSIGN_OR_RETURN(*to, FromProto(from, limits.array_bytes_max, limits.limits));
  } else {
    TESSERA_ASSIGN_OR_RETURN(*to, FromProto(from, limits.limits));
  }
  return absl::OkStatus();
}

template <class P>
struct FieldWriter {
  P* proto;

  template <class T, class Get, class Has, class Set, class Mutable>
  void operator()(const T& value, Get get, Has has, Set set, Mutable mutable_field) {
    if constexpr (kIsPlain<T>) {
      set(proto, value);
    } else if constexpr (std::is_same_v<T, DType>) {
      set(proto, std::string(DTypeName(value)));
    } else if constexpr (std::is_same_v<T, absl::Status>) {
      if (!value.ok()) *mutable_field(proto) = ToProto(value);
    } else if constexpr (IsTimeOrDuration<T>()) {
      if (!IsInfinite(value)) WriteTimeOrDuration(value, mutable_field(proto));
    } else if constexpr (kIsOptional<T>) {
      if constexpr (IsTimeOrDuration<typename T::value_type>()) {
        // An infinite value is written, too: it differs from an absent one.
        if (value) WriteTimeOrDuration(*value, mutable_field(proto));
      } else if (value) {
        WriteMessage(*value, mutable_field(proto));
      }
    } else if constexpr (kIsStatusOr<T>) {
      if (!value.ok()) {
        *proto->mutable_status() = ToProto(value.status());
      } else {
        (*this)(*value, get, has, set, mutable_field);
      }
    } else if constexpr (kIsVector<T>) {
      if constexpr (kIsPlain<typename T::value_type>) {
        mutable_field(proto)->Assign(value.begin(), value.end());
      } else {
        for (const auto& each : value) WriteMessage(each, mutable_field(proto)->Add());
      }
    } else {
      WriteMessage(value, mutable_field(proto));
    }
  }
};

template <class P>
struct FieldReader {
  const P& proto;
  const ReadLimits& limits;
  // The error of the first field that cannot be read. Later fields are skipped.
  absl::Status status;

  template <class T, class Get, class Has, class Set, class Mutable>
  void operator()(T& value, Get get, Has has, Set set, Mutable mutable_field) {
    if (!status.ok()) return;
    if constexpr (kIsPlain<T>) {
      value = get(proto);
    } else if constexpr (std::is_same_v<T, DType>) {
      status = Into(DTypeFromName(get(proto)), &value);
    } else if constexpr (std::is_same_v<T, absl::Status>) {
      value = FromProto(get(proto));
    } else if constexpr (IsTimeOrDuration<T>()) {
      if (has(proto)) ReadTimeOrDuration(get(proto), &value);
    } else if constexpr (kIsOptional<T>) {
      if (has(proto)) (*this)(value.emplace(), get, has, set, mutable_field);
    } else if constexpr (kIsStatusOr<T>) {
      typename T::value_type read{};
      if (status = FromProto(proto.status()); status.ok())
        (*this)(read, get, has, set, mutable_field);
      if (status.ok()) {
        value = std::move(read);
      } else {
        value = std::exchange(status, absl::OkStatus());
      }
    } else if constexpr (kIsVector<T>) {
      if constexpr (kIsPlain<typename T::value_type>) {
        value.assign(get(proto).begin(), get(proto).end());
      } else {
        for (const auto& each : get(proto)) {
          status = ReadMessage(each, limits, &value.emplace_back());
          if (!status.ok()) return;
        }
      }
    } else {
      status = ReadMessage(get(proto), limits, &value);
    }
  }

 private:
  template <class T>
  static absl::Status Into(absl::StatusOr<T> from, T* to) {
    if (from.ok()) *to = *std::move(from);
    return from.status();
  }
};

}  // namespace internal

template <class T>
void WriteFields(const T& from, typename Fields<T>::Proto* to) {
  internal::FieldWriter<typename Fields<T>::Proto> write{to};
  Fields<T>::Each(from, write);
}
template <class T>
absl::Status ReadFields(const typename Fields<T>::Proto& from, const ReadLimits& limits, T* to) {
  internal::FieldReader<typename Fields<T>::Proto> read{from, limits, {}};
  Fields<T>::Each(*to, read);
  if constexpr (requires { Check(*to, limits); }) {
    if (read.status.ok()) return Check(*to, limits);
  }
  return read.status;
}

// Like WriteFields and ReadFields, but return the result by value.
template <class T>
typename Fields<T>::Proto Written(const T& from) {
  typename Fields<T>::Proto to;
  WriteFields(from, &to);
  return to;
}
template <class T>
absl::StatusOr<T> ReadAs(const typename Fields<T>::Proto& from, const ReadLimits& limits) {
  T to;
  TESSERA_RETURN_IF_ERROR(ReadFields(from, limits, &to));
  return to;
}

}  // namespace tessera::ir::serial
