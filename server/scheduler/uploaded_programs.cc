// The requests about uploaded programs. A client sends a program in chunks (UploadProgram). The
// server around the scheduler checks the bytes of a complete upload (server/rpc) and says in
// KeepProgram whether they are a program. The table of the programs is uploads.cc.
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
absl::Status CheckFormat(ProgramFormat declared, ProgramFormat before) {
  if (declared == before) return absl::OkStatus();
  return Error(ErrorKind::kValueError, "upload: these bytes are declared as ", NameOf(declared),
               ", but were declared as ", NameOf(before), " before; give the same format");
}

absl::Status NoProgramError(const std::string& sha256) {
  return Error(ErrorKind::kProgramNotFound, "program ", sha256.substr(0, 64),
               " is not uploaded, or was dropped; upload it");
}

}  // namespace

// Checks a chunk against the chunks before it, and against the bounds of programs, so that a
// refused chunk changes nothing.
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
    return Error(ErrorKind::kValueError, "upload: a chunk of ", size, " bytes at offset ", e.offset,
                 " when ", committed, " of ", e.size_bytes, " bytes have come; go on from ",
                 committed);
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
    MarkChanged(core::RowKind::kProgram, NameInRow(key));
    Log("program ", e.sha256.substr(0, 8), " uploaded");
  }
  // Another call may have checked the same bytes and kept the program already.
  const UploadedProgram* const program = s_.uploads.FindProgram(key);
  if (program == nullptr) return NoProgramError(e.sha256);
  return UploadProgress{static_cast<int64_t>(program->bytes->size()), true, std::nullopt};
}

absl::StatusOr<ProgramInfo> Machine::On(const GetProgram& e) {
  const UploadedProgram* const program = s_.uploads.FindProgram({e.caller.tenant, e.sha256});
  if (program == nullptr) return NoProgramError(e.sha256);
  return ProgramInfo{e.sha256, program->bytes, program->format};
}

absl::StatusOr<Page<ProgramInfo>> Machine::On(const ListPrograms& e) {
  Page<ProgramInfo> page;
  const auto size = static_cast<size_t>(PageSize(e.page.size));
  const auto& programs = s_.uploads.programs();
  auto it = programs.upper_bound({e.caller.tenant, e.page.after});
  const auto is_of_caller = [&] {
    return it != programs.end() && it->first.first == e.caller.tenant;
  };
  for (; is_of_caller() && page.items.size() < size; ++it)
    page.items.push_back({it->first.second, it->second.bytes, it->second.format});
  page.has_more = is_of_caller();
  return page;
}

absl::StatusOr<std::monostate> Machine::On(const DeleteProgram& e) {
  const Uploads::Key key(e.caller.tenant, e.sha256);
  if (s_.uploads.FindProgram(key) == nullptr) return NoProgramError(e.sha256);
  s_.uploads.RemoveProgram(key);
  MarkChanged(core::RowKind::kProgram, NameInRow(key));
  Log("program ", e.sha256.substr(0, 8), " deleted");
  Remember(e);
  return std::monostate();
}

}  // namespace tessera::server::scheduler
