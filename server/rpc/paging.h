// Reads the page that a List call asks for, and answers the call with it. Any thread may call these
// functions. page_token.h makes the tokens.
#pragma once
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/call.h"
#include "server/rpc/page_token.h"

namespace tessera::server::rpc {

// Reads page_size and page_token of a request.  Keys are strings or integers.
template <class Request>
absl::Status ReadPage(std::string_view scope, const Request& request,
                      scheduler::PageRequest<std::string>* page) {
  if (absl::Status s = CheckPageSize(request.page_size()); !s.ok()) return s;
  page->size = request.page_size();
  if (request.page_token().empty()) return absl::OkStatus();
  absl::StatusOr<std::string> after = KeyOfPageToken(scope, request.page_token());
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
    return PageTokenError();
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
        if (page.has_more)
          out->set_next_page_token(PageToken(scope, absl::StrCat(key(page.items.back()))));
      });
}

}  // namespace tessera::server::rpc
