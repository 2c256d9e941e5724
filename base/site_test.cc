// Proves that the table of file names is bounded. The test fills the table, so it runs in a process
// of its own.
#include "base/site.h"

#include <string>
#include <string_view>

#include "gtest/gtest.h"

namespace tessera {
namespace {

TEST(SiteTest, FileNamesBeyondTheBoundAreNotKept) {
  const char* first = InternFile("model.cc");
  for (size_t i = 0; i < kInternedFilesMax + 10; ++i) InternFile("file" + std::to_string(i));
  EXPECT_EQ(InternFile("model.cc"), first) << "what was kept stays";
  EXPECT_EQ(std::string_view(InternFile("one_more.cc")), "(another file)");
  EXPECT_EQ(InternFile("one_more.cc"), InternFile("and_another.cc"));
}

}  // namespace
}  // namespace tessera
