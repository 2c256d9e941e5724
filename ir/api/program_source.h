// A program as a client sends it: bytes in one of the forms in which programs travel. Borrows the
// bytes.
#pragma once
#include <cstdint>
#include <string_view>

namespace tessera::api {

struct ProgramSource {
  enum class Form : uint8_t {
    kMessage,    // a serialized tessera.v1.Program
    kText,       // the text form
    kStablehlo,  // a StableHLO portable artifact
  };
  Form form = Form::kMessage;
  std::string_view bytes;
};

}  // namespace tessera::api
