// For the SDK's tests that run programs: a cluster of at least four devices, that of
// TESSERA_SUITE_ADDRESS over gRPC, or one in this process. Its session is the default one.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/tessera.h"

namespace tessera::testing {

class OnCluster : public ::testing::Test {
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

// What `f` prints to stdout; with the text of its error behind it, if it throws one.
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
