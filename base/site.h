// A place in the user's source: the file and line that errors point at.
//
// A Site is two words and is copied freely. `file` is never owned: it is a literal, or a string
// that InternFile keeps for the life of the process. Any thread may call anything here.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

struct Site {
  const char* file = "";
  int line = 0;

  bool valid() const { return line > 0; }

  // "model.cc:41", without folders; "" when not valid.
  std::string ToString() const;

  // The caller's place, when used as a default argument: void Add(..., Site site = Site::Here()).
  static Site Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return Site{file, line};
  }

  // The same file text and line.
  friend bool operator==(const Site& a, const Site& b) {
    return a.line == b.line && std::string_view(a.file) == std::string_view(b.file);
  }
};

// One pointer per distinct text, valid until the process ends. Programs of clients bring such texts
// and they are never freed, so new ones beyond the bound are all "(another file)".
inline constexpr size_t kInternedFilesMax = 65'536;
const char* InternFile(std::string_view file);

}  // namespace tessera
