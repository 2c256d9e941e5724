// A fixture for tests of the SDK that run programs. It provides a cluster of at least four devices:
// the cluster that TESSERA_SUITE_ADDRESS names, over gRPC, or a cluster in this process. The
// session of the cluster is the default session.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/tessera.h"

namespace tessera::testing {

class ClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const address = std::getenv("TESSERA_SUITE_ADDRESS");
    ConnectOptions options;
    options.min_devices = 4;
    EmbeddedOptions embedded;
    embedded.devices = 4;
    session_ = address ? Session::Connect(address, options) : Session::Embedded(embedded);
    Session::SetDefault(session_);
  }
  void TearDown() override { Session::SetDefault(nullptr); }

  std::shared_ptr<Session> session_;
};

// Returns the text that `f` prints to stdout. If `f` throws an error, the message of the error
// follows.
template <class F>
std::string Printed(const F& f) {
  ::testing::internal::CaptureStdout();
  try {
    f();
  } catch (const Error& error) {
    return absl::StrCat(::testing::internal::GetCapturedStdout(), error.what());
  }
  return ::testing::internal::GetCapturedStdout();
}

}  // namespace tessera::testing
