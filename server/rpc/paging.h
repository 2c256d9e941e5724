// Pages of lists.  A token says behind which key the next page begins, and a check of what it was
// made for: it is good for the same list of the same tenant only.  Tokens hold nothing secret.
//
// Pure functions; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/coordinator.h"

namespace tessera::server::rpc {

// `scope` names the list: method, tenant and filter.
std::string PageToken(std::string_view scope, std::string_view after);
// VALUE_ERROR: the token is not one of this list.
absl::StatusOr<std::string> PageAfter(std::string_view scope, std::string_view token);
absl::Status BadPageToken();
// VALUE_ERROR: negative.
absl::Status CheckPageSize(int32_t size);

// What a request with page_size and page_token asks for.  Keys are texts or integers.
template <class Request>
absl::Status ReadPage(std::string_view scope, const Request& request,
                      scheduler::PageRequest<std::string>* page) {
  if (absl::Status s = CheckPageSize(request.page_size()); !s.ok()) return s;
  page->size = request.page_size();
  if (request.page_token().empty()) return absl::OkStatus();
  absl::StatusOr<std::string> after = PageAfter(scope, request.page_token());
  if (!after.ok()) return after.status();
  page->after = *std::move(after);
  return absl::OkStatus();
}
template <class Request, class Integer>
absl::Status ReadPage(std::string_view scope, const Request& request,
                      scheduler::PageRequest<Integer>* page) {
  scheduler::PageRequest<std::string> text;
  if (absl::Status s = ReadPage(scope, request, &text); !s.ok()) return s;
  page->size = text.size;
  if (!request.page_token().empty() && !absl::SimpleAtoi(text.after, &page->after))
    return BadPageToken();
  return absl::OkStatus();
}

}  // namespace tessera::server::rpc
