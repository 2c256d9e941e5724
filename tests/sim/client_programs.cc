// The actions of a client on uploaded programs. It sends programs in chunks, checks them as the
// server around the scheduler would, looks for them, lists and deletes them.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "base/sha256.h"
#include "base/status.h"
#include "tests/sim/client_call.h"

namespace tessera::sim {
namespace {

constexpr size_t kUploadedMax = 6;
constexpr size_t kChunk = 7;
constexpr int kChunksMax = 40;  // number of chunks per upload, including those that are sent again
constexpr int64_t kOnlyProgress = -1;  // in place of an offset: only asks for the progress
constexpr char kNoProgram[] = "no program";

bool IsProgram(const std::string& bytes) { return !absl::StartsWith(bytes, kNoProgram); }

// Returns the format to claim for the bytes. The scheduler stores the format and does not look at
// the bytes.
scheduler::ProgramFormat FormatOf(const std::string& bytes) {
  return bytes.size() % 2 == 0 ? scheduler::ProgramFormat::kTessera
                               : scheduler::ProgramFormat::kStablehlo;
}

}  // namespace

void Client::HandlePrograms() {
  Random& random = world_->random();
  if (uploaded_programs_.empty() || (uploaded_programs_.size() < kUploadedMax && random.OneIn(3))) {
    // No two uploads have the same bytes, so that a call about one says nothing about another.
    const std::string bytes = absl::StrCat(random.OneIn(5) ? kNoProgram : "program", " ", life_,
                                           " of ", caller_.tenant, " ", ++last_request_);
    return SendChunk(bytes, random.OneIn(4) ? kOnlyProgress : 0, kChunksMax);
  }
  auto it = uploaded_programs_.begin();
  std::advance(it, random.Below(static_cast<int64_t>(uploaded_programs_.size())));
  if (uploaded_programs_.size() >= kUploadedMax || random.OneIn(4)) return DeleteProgram(it->first);
  if (random.OneIn(3)) return ListPrograms();
  FindProgram(it->first);
}

// Sends the next chunk of an upload and continues with what the answer says: the next chunk, the
// check of all bytes, or another look at the progress. A chunk that does not fit is no error, since
// a copy of it may have come before.
void Client::SendChunk(const std::string& bytes, int64_t from, int chunks_left) {
  if (chunks_left == 0 || stopped_) return;
  scheduler::UploadProgram e;
  e.sha256 = Sha256Hex(bytes);
  e.format = FormatOf(bytes);
  e.size_bytes = static_cast<int64_t>(bytes.size());
  if (from != kOnlyProgress) {
    e.offset = from;
    e.data = bytes.substr(static_cast<size_t>(from), kChunk);
  }
  Ask(absl::StrCat("upload ", e.sha256.substr(0, 8), " from ", from), e,
      [=, this](const scheduler::Reply& reply) {
        if (!reply.status.ok()) {
          // Another copy of the chunk came before, or the coordinator has restarted.
          if (KindOf(reply.status) == ErrorKind::kValueError)
            SendChunk(bytes, kOnlyProgress, chunks_left - 1);
          return;
        }
        const auto& progress = std::get<scheduler::UploadProgress>(reply.body);
        if (progress.complete) {
          OnProgramKept(bytes);
        } else if (progress.unchecked) {
          if (*progress.unchecked->bytes != bytes)
            world_->Violate("the upload of '", bytes, "' is '", *progress.unchecked->bytes, "'");
          CheckProgram(bytes, chunks_left - 1);
        } else {
          SendChunk(bytes, progress.committed_bytes, chunks_left - 1);
        }
      });
}

void Client::OnProgramKept(const std::string& bytes) {
  if (!IsProgram(bytes)) world_->Violate("'", bytes, "' is kept, and is no program");
  const std::string sha256 = Sha256Hex(bytes);
  if (dropped_programs_.count(sha256) == 0) uploaded_programs_[sha256] = bytes;
}

void Client::CheckProgram(const std::string& bytes, int chunks_left) {
  scheduler::KeepProgram e;
  e.sha256 = Sha256Hex(bytes);
  if (!IsProgram(bytes)) e.checked = MakeError(ErrorKind::kMalformedProgram, "it does not parse");
  Ask(absl::StrCat("keep ", e.sha256.substr(0, 8)), e, [=, this](const scheduler::Reply& reply) {
    if (reply.status.ok()) return OnProgramKept(bytes);
    // The coordinator has restarted since the bytes came.
    if (KindOf(reply.status) == ErrorKind::kProgramNotFound) SendChunk(bytes, 0, chunks_left);
  });
}

void Client::FindProgram(const std::string& sha256) {
  scheduler::GetProgram e;
  e.sha256 = sha256;
  Ask(absl::StrCat("find ", sha256.substr(0, 8)), e, [=, this](const scheduler::Reply& reply) {
    const auto known = uploaded_programs_.find(sha256);
    if (known == uploaded_programs_.end()) return;
    if (reply.status.ok()) {
      const auto& found = std::get<scheduler::ProgramInfo>(reply.body);
      if (*found.bytes != known->second || found.format != FormatOf(known->second))
        world_->Violate("program '", known->second, "' is '", *found.bytes, "'");
    } else if (KindOf(reply.status) == ErrorKind::kProgramNotFound) {
      world_->Violate("program '", known->second, "' is gone");
    }
  });
}

void Client::ListPrograms() {
  scheduler::ListPrograms e;
  e.page.size = 1000;
  const std::map<std::string, std::string> before = uploaded_programs_;
  Ask("list programs", e, [=, this](const scheduler::Reply& reply) {
    if (!reply.status.ok()) return;
    std::set<std::string> listed;
    for (const scheduler::ProgramInfo& info :
         std::get<scheduler::Page<scheduler::ProgramInfo>>(reply.body).items) {
      listed.insert(info.sha256);
      // A program whose text does not contain this life was uploaded by an earlier process of the
      // client.
      if (!absl::StrContains(*info.bytes, absl::StrCat(" ", life_, " of ", caller_.tenant, " ")))
        DeleteProgram(info.sha256);
    }
    for (const auto& [sha256, bytes] : before)
      if (uploaded_programs_.count(sha256) > 0 && listed.count(sha256) == 0)
        world_->Violate("program '", bytes, "' is not listed");
  });
}

void Client::DeleteProgram(std::string sha256) {
  uploaded_programs_.erase(sha256);
  dropped_programs_.insert(sha256);
  scheduler::DeleteProgram e;
  e.sha256 = sha256;
  Ask(absl::StrCat("delete program ", sha256.substr(0, 8)), e, [](const scheduler::Reply&) {});
}

}  // namespace tessera::sim
