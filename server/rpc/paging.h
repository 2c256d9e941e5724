// Page tokens of List methods. A token holds the last key of the previous page, and a hash of this
// key and of the list (its scope). So a token is valid only for the same list of the same tenant.
// Tokens contain no secrets. The functions are thread-safe.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/call.h"

namespace tessera::server::rpc {

// Returns the token of the page that begins after the key `after`. `scope` identifies the list:
// method, tenant and filter.
std::string PageToken(std::string_view scope, std::string_view after);
// Returns the key in the token.  Returns VALUE_ERROR if the token belongs to another list or does
// not parse.
absl::StatusOr<std::string> PageAfter(std::string_view scope, std::string_view token);
// Returns the error for a token that this list has not returned.
absl::Status BadPageToken();
// Returns VALUE_ERROR if `size` is negative.
absl::Status CheckPageSize(int32_t size);

// Reads page_size and page_token of a request.  Keys are strings or integers.
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

// Finishes a List call with the requested page. Posts `event` and calls `add(item, &response)` for
// each item of the reply. `filter` is part of the token's scope. The next page begins after
// `key(item)` of the last item.
template <class Item, class Event, class Q, class R, class Add, class Key>
void AnswerPage(const CallRef<Q, R>& call, Event event, std::string_view filter, Add add, Key key) {
  const std::string scope = absl::StrCat(Q::descriptor()->name(), "|", call->caller().tenant,
                                         filter.empty() ? "" : "|", ToAbsl(filter));
  if (absl::Status s = ReadPage(scope, call->request(), &event.page); !s.ok())
    return call->Finish(s);
  Answer<scheduler::Page<Item>>(
      call, std::move(event), [=](const scheduler::Page<Item>& page, R* out) {
        for (const Item& item : page.items) add(item, out);
        if (page.more)
          out->set_next_page_token(PageToken(scope, absl::StrCat(key(page.items.back()))));
      });
}

}  // namespace tessera::server::rpc
