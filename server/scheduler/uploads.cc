// The table of uploaded programs, and the requests about them. The server around the scheduler
// checks the bytes of a complete upload (server/rpc) and says in KeepProgram whether they are a
// program.
#include "server/scheduler/uploads.h"

#include <algorithm>

#include "server/scheduler/machine.h"

namespace tessera::server::scheduler {
namespace {

bool IsHash(const std::string& text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

const char* NameOf(ProgramFormat format) {
  return format == ProgramFormat::kStablehlo ? "a StableHLO artifact" : "a serialized Program";
}

// Returns an error unless the bytes are given in the same format as before. All bytes with one hash
// have one format.
absl::Status CheckFormat(ProgramFormat given, ProgramFormat before) {
  if (given == before) return absl::OkStatus();
  return Error(ErrorKind::kValueError, "upload: these bytes are declared as ", NameOf(given),
               ", but were declared as ", NameOf(before), " before; give the same format");
}

absl::Status NoProgram(const std::string& sha256) {
  return Error(ErrorKind::kProgramNotFound, "program ", sha256.substr(0, 64),
               " is not uploaded, or was dropped; upload it");
}

}  // namespace

const ProgramUpload& Uploads::Append(const Key& key, ProgramFormat format, int64_t size_bytes,
                                     const std::string& chunk, absl::Time now) {
  ProgramUpload& upload = uploads_[key];
  upload.format = format;
  upload.size_bytes = size_bytes;
  upload.last_chunk = now;
  upload.bytes.append(chunk);
  num_bytes_ += static_cast<int64_t>(chunk.size());
  if (static_cast<int64_t>(upload.bytes.size()) == size_bytes)
    upload.whole = std::make_shared<const std::string>(std::exchange(upload.bytes, {}));
  return upload;
}

void Uploads::Keep(const Key& key) {
  const auto it = uploads_.find(key);
  programs_.emplace(key, UploadedProgram{std::move(it->second.whole), it->second.format});
  uploads_.erase(it);
}

void Uploads::RemoveUpload(const Key& key) {
  const auto it = uploads_.find(key);
  num_bytes_ -= it->second.committed_bytes();
  uploads_.erase(it);
}

void Uploads::RemoveProgram(const Key& key) {
  const auto it = programs_.find(key);
  num_bytes_ -= static_cast<int64_t>(it->second.bytes->size());
  programs_.erase(it);
}

void Uploads::RemoveIdle(absl::Time until) {
  for (auto it = uploads_.begin(); it != uploads_.end();) {
    const auto next = std::next(it);
    if (it->second.last_chunk <= until) RemoveUpload(Key(it->first));
    it = next;
  }
}

void Uploads::Restore(const Key& key, UploadedProgram program) {
  num_bytes_ += static_cast<int64_t>(program.bytes->size());
  programs_.emplace(key, std::move(program));
}

// ---- Requests. ----------------------------------------------------------------------------------
absl::Status Machine::CheckChunk(const UploadProgram& e) const {
  const ProgramUpload* const upload = s_.uploads.FindUpload({e.caller.tenant, e.sha256});
  if (e.size_bytes <= 0 || (upload != nullptr && e.size_bytes != upload->size_bytes))
    return Error(ErrorKind::kValueError, "upload: size_bytes is ", e.size_bytes, ", expected ",
                 upload == nullptr ? std::string("the total size in bytes")
                                   : absl::StrCat(upload->size_bytes, " as before"));
  if (e.size_bytes > s_.config.program_bytes_max)
    return Error(ErrorKind::kLimitExceeded, "upload: the program has ", e.size_bytes,
                 " bytes, at most ", s_.config.program_bytes_max,
                 " are accepted (max_program_bytes)");
  if (upload != nullptr) TESSERA_RETURN_IF_ERROR(CheckFormat(e.format, upload->format));
  const int64_t committed = upload == nullptr ? 0 : upload->committed_bytes();
  const auto size = static_cast<int64_t>(e.data.size());
  if (e.offset != committed || size > e.size_bytes - committed)
    return Error(ErrorKind::kValueError, "upload: a chunk of ", size, " bytes at ", e.offset,
                 " when ", committed, " of ", e.size_bytes, " are there; go on from ", committed);
  if (upload == nullptr && s_.uploads.num_programs() >= s_.config.programs_max)
    return Error(ErrorKind::kLimitExceeded, "upload: ", s_.uploads.num_programs(),
                 " programs are stored, at most ", s_.config.programs_max,
                 " are kept (programs_max); delete some");
  if (s_.uploads.num_bytes() + size > s_.config.programs_bytes_max)
    return Error(ErrorKind::kLimitExceeded, "upload: programs have ", s_.uploads.num_bytes(),
                 " bytes, at most ", s_.config.programs_bytes_max,
                 " are kept (programs_bytes_max); delete some");
  return absl::OkStatus();
}

absl::StatusOr<UploadProgress> Machine::On(const UploadProgram& e) {
  if (!IsHash(e.sha256))
    return Error(ErrorKind::kValueError,
                 "upload: sha256 is not a SHA-256 hash in 64 lower-case hex digits");
  s_.uploads.RemoveIdle(now_ - s_.config.program_upload_idle);
  const Uploads::Key key(e.caller.tenant, e.sha256);
  if (const UploadedProgram* const program = s_.uploads.FindProgram(key)) {
    if (!e.data.empty()) TESSERA_RETURN_IF_ERROR(CheckFormat(e.format, program->format));
    return UploadProgress{static_cast<int64_t>(program->bytes->size()), true, std::nullopt};
  }
  const ProgramUpload* upload = s_.uploads.FindUpload(key);
  const bool was_whole = upload != nullptr && upload->whole != nullptr;
  if (!was_whole && !e.data.empty()) {
    TESSERA_RETURN_IF_ERROR(CheckChunk(e));
    upload = &s_.uploads.Append(key, e.format, e.size_bytes, e.data, now_);
  }
  if (upload == nullptr) return UploadProgress{};
  UploadProgress progress{upload->committed_bytes(), false, std::nullopt};
  if (upload->whole != nullptr)
    progress.unchecked = ProgramInfo{e.sha256, upload->whole, upload->format};
  return progress;
}

absl::StatusOr<UploadProgress> Machine::On(const KeepProgram& e) {
  const Uploads::Key key(e.caller.tenant, e.sha256);
  const ProgramUpload* const upload = s_.uploads.FindUpload(key);
  const bool unchecked = upload != nullptr && upload->whole != nullptr;
  if (!e.checked.ok()) {
    if (unchecked) s_.uploads.RemoveUpload(key);
    return e.checked;
  }
  if (unchecked) {
    s_.uploads.Keep(key);
    Changed(core::RowKind::kProgram, NameInRow(key));
    Log("program ", e.sha256.substr(0, 8), " uploaded");
  }
  // Another call may have checked the same bytes and kept the program already.
  const UploadedProgram* const program = s_.uploads.FindProgram(key);
  if (program == nullptr) return NoProgram(e.sha256);
  return UploadProgress{static_cast<int64_t>(program->bytes->size()), true, std::nullopt};
}

absl::StatusOr<ProgramInfo> Machine::On(const GetProgram& e) {
  const UploadedProgram* const program = s_.uploads.FindProgram({e.caller.tenant, e.sha256});
  if (program == nullptr) return NoProgram(e.sha256);
  return ProgramInfo{e.sha256, program->bytes, program->format};
}

absl::StatusOr<Page<ProgramInfo>> Machine::On(const ListPrograms& e) {
  Page<ProgramInfo> page;
  const auto size = static_cast<size_t>(PageSize(e.page.size));
  const auto& programs = s_.uploads.programs();
  auto it = programs.upper_bound({e.caller.tenant, e.page.after});
  const auto ours = [&] { return it != programs.end() && it->first.first == e.caller.tenant; };
  for (; ours() && page.items.size() < size; ++it)
    page.items.push_back({it->first.second, it->second.bytes, it->second.format});
  page.more = ours();
  return page;
}

absl::StatusOr<std::monostate> Machine::On(const DeleteProgram& e) {
  const Uploads::Key key(e.caller.tenant, e.sha256);
  if (s_.uploads.FindProgram(key) == nullptr) return NoProgram(e.sha256);
  s_.uploads.RemoveProgram(key);
  Changed(core::RowKind::kProgram, NameInRow(key));
  Log("program ", e.sha256.substr(0, 8), " deleted");
  Remember(e);
  return std::monostate();
}

}  // namespace tessera::server::scheduler
