// TLS between executors, by OpenSSL. TcpLinks (tcp.cc) makes one stream per connection, and the
// executor process one context from its worker's certificate. OpenSSL's types stay in this file.
#include "worker/collectives/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/api/identity.h"

namespace tessera::worker {
namespace {

template <auto F>
struct Free {
  template <class T>
  void operator()(T* p) const {
    F(p);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;

std::string LastError() {
  char text[256] = "no reason given";
  if (const unsigned long error = ERR_get_error(); error != 0) {
    ERR_error_string_n(error, text, sizeof(text));
  }
  ERR_clear_error();
  return text;
}

absl::Status ValueError(absl::string_view what) {
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat("TLS between executors: ", what, ": ", LastError()));
}

Bio MemoryBio(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// The functions up to SocketBio implement a BIO for sockets. Unlike OpenSSL's own, this BIO raises
// no SIGPIPE and never blocks.
int FdOf(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }
int SocketWrite(BIO* bio, const char* from, int size) {
  BIO_clear_retry_flags(bio);
  ssize_t put = -1;
  do {
    put = send(FdOf(bio), from, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (put < 0 && errno == EINTR);
  if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_write(bio);
  return static_cast<int>(put);
}
int SocketRead(BIO* bio, char* into, int size) {
  BIO_clear_retry_flags(bio);
  errno = 0;
  ssize_t got = -1;
  do {
    got = recv(FdOf(bio), into, static_cast<size_t>(size), MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(got);
}
long SocketControl(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}
BIO* SocketBio(int fd) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    BIO_meth_set_write(m, SocketWrite);
    BIO_meth_set_read(m, SocketRead);
    BIO_meth_set_ctrl(m, SocketControl);
    return m;
  }();
  BIO* const bio = BIO_new(method);
  TESSERA_CHECK(bio != nullptr) << LastError();
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(bio, 1);
  return bio;
}

int ClampToInt(size_t size) {
  return static_cast<int>(std::min<size_t>(size, std::numeric_limits<int>::max()));
}

}  // namespace

class TlsContext {
 public:
  explicit TlsContext(SSL_CTX* context) : context_(context) {}
  SSL_CTX* get() const { return context_.get(); }

 private:
  std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>> context_;
};

// Makes a context that accepts only peers with a certificate of the given authorities. Session
// tickets and renegotiation are off, so that a read never has to wait for a write after the
// handshake: one thread reads while another writes. Partial writes are on, because a write that
// ends at a deadline continues later from another buffer. A stream that ends without a close_notify
// is no error of TLS, since the lengths in the frames show whether it was truncated.
absl::StatusOr<std::shared_ptr<const TlsContext>> MakeTlsContext(
    const std::string& certificates, const std::string& key, const std::string& ca_certificates) {
  ERR_clear_error();
  auto context = std::make_shared<TlsContext>(SSL_CTX_new(TLS_method()));
  SSL_CTX* const ctx = context->get();
  TESSERA_CHECK(ctx != nullptr) << LastError();
  SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(
      ctx, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
  // A peer that dies sends no close_notify. The lengths in the frames show that a stream is
  // truncated.
  SSL_CTX_set_options(ctx,
                      SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_num_tickets(ctx, 0);
  SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(ctx, 1);
  SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);

  const Bio chain = MemoryBio(certificates);
  Certificate own(PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr));
  if (own == nullptr || SSL_CTX_use_certificate(ctx, own.get()) != 1)
    return ValueError("certificate");
  while (X509* const more = PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr)) {
    if (SSL_CTX_add0_chain_cert(ctx, more) != 1) X509_free(more);
  }
  ERR_clear_error();  // reading past the last certificate leaves an error
  const Bio key_text = MemoryBio(key);
  const Key own_key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
  if (own_key == nullptr || SSL_CTX_use_PrivateKey(ctx, own_key.get()) != 1 ||
      SSL_CTX_check_private_key(ctx) != 1) {
    return ValueError("key");
  }
  const Bio ca_text = MemoryBio(ca_certificates);
  int count = 0;
  while (const Certificate ca =
             Certificate(PEM_read_bio_X509(ca_text.get(), nullptr, nullptr, nullptr))) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), ca.get());
    ++count;
  }
  if (count == 0) return ValueError("authorities");
  ERR_clear_error();
  return std::shared_ptr<const TlsContext>(std::move(context));
}

namespace {

class OpenSslStream final : public TlsStream {
 public:
  OpenSslStream(const TlsContext& context, int fd, bool connects) : ssl_(SSL_new(context.get())) {
    TESSERA_CHECK(ssl_ != nullptr) << LastError();
    BIO* const bio = SocketBio(fd);
    SSL_set_bio(ssl_.get(), bio, bio);  // takes ownership
    connects ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
  }

  bool Handshake(TlsWant* want) override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    if (result == 1) return true;
    HandleError(result, want);
    return false;
  }

  bool PeerIs(const std::string& worker) const override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    const Certificate peer(SSL_get1_peer_certificate(ssl_.get()));
    if (peer == nullptr) return false;
    const std::string wanted = absl::StrCat(api::kWorkerUriPrefix, worker);
    const std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>> names(
        static_cast<GENERAL_NAMES*>(
            X509_get_ext_d2i(peer.get(), NID_subject_alt_name, nullptr, nullptr)));
    for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
      const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
      if (name->type != GEN_URI) continue;
      const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
      const absl::string_view text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                                   static_cast<size_t>(ASN1_STRING_length(uri)));
      if (text == wanted) return true;
    }
    return false;
  }

  ptrdiff_t Read(void* into, size_t size, TlsWant* want) override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    ERR_clear_error();
    const int got = SSL_read(ssl_.get(), into, ClampToInt(size));
    return got > 0 ? got : HandleError(got, want);
  }

  ptrdiff_t Write(const void* from, size_t size, TlsWant* want) override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    ERR_clear_error();
    const int put = SSL_write(ssl_.get(), from, ClampToInt(size));
    return put > 0 ? put : HandleError(put, want);
  }

  std::string Reason() const override ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return reason_;
  }

 private:
  ptrdiff_t HandleError(int result, TlsWant* want) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    *want = TlsWant::kNothing;
    const int saved_errno = errno;
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ:
        *want = TlsWant::kRead;
        return -1;
      case SSL_ERROR_WANT_WRITE:
        *want = TlsWant::kWrite;
        return -1;
      case SSL_ERROR_ZERO_RETURN:
        return 0;
      case SSL_ERROR_SYSCALL:
        reason_ = saved_errno == 0 ? "it closed the connection" : std::strerror(saved_errno);
        return -1;
      default:
        reason_ = absl::StrCat("TLS: ", LastError());
        return -1;
    }
  }

  mutable absl::Mutex mu_;
  const std::unique_ptr<SSL, Free<SSL_free>> ssl_ ABSL_PT_GUARDED_BY(mu_);
  std::string reason_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

std::unique_ptr<TlsStream> MakeTlsStream(const TlsContext& context, int fd, bool connects) {
  return std::make_unique<OpenSslStream>(context, fd, connects);
}

}  // namespace tessera::worker
