/* signature.c - see signature.h: thin over OpenSSL's EVP. A signer's public key is taken once, when
 * it is opened; a signature uses a context of its own, so a signer is shared between threads. */
#include "base/signature.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char scheme[] = "ed25519:";

/* ---- texts */

void dl_hex(char *out, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

static int digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Exactly n bytes of lower-case hex, so a key or signature has one text. */
bool dl_unhex(unsigned char *out, size_t n, const char *text, size_t len)
{
    if (len != 2 * n) return false;
    for (size_t i = 0; i < n; i++) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

bool dl_public_equal(const dl_public *a, const dl_public *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

/* The scheme's name is part of the text, so that another kind of key may follow. */
void dl_public_text(char out[DL_PUBLIC_TEXT], const dl_public *key)
{
    memcpy(out, scheme, sizeof scheme);
    dl_hex(out + sizeof scheme - 1, key->bytes, sizeof key->bytes);
}

/* Returns false for any other length, scheme or digit. */
bool dl_public_parse(dl_public *out, const char *text, size_t len)
{
    const size_t head = sizeof scheme - 1;
    return len == DL_PUBLIC_TEXT - 1 && memcmp(text, scheme, head) == 0 &&
           dl_unhex(out->bytes, sizeof out->bytes, text + head, len - head);
}

/* The place follows the XDG rule: $XDG_CONFIG_HOME, else ~/.config. A relative path is ignored. */
diloco_status dl_signer_path(char *out, size_t cap)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n = -1;
    if (config && config[0] == '/')
        n = snprintf(out, cap, "%s/diloco/key.pem", config);
    else if (home && home[0] == '/')
        n = snprintf(out, cap, "%s/.config/diloco/key.pem", home);
    if (n > 0 && (size_t)n < cap) return DILOCO_OK;
    return dl_fail(DILOCO_EINVAL,
                   "cannot find the key's folder (HOME is not set): set run.key (or --key) to "
                   "the key's file");
}

#if !DL_CRYPTO

/* Builds without OpenSSL have these functions alone. A run with keys is then refused by name. */
static diloco_status refuse(void)
{
    return dl_fail(DILOCO_EREFUSED,
                   "this program was built without keys and signatures (DILOCO_CLOUD=OFF)");
}

diloco_status dl_signer_make(const char *path)
{
    (void)path;
    return refuse();
}

diloco_status dl_signer_open(dl_signer **out, const char *path)
{
    (void)path;
    *out = NULL;
    return refuse();
}

diloco_status dl_signer_generate(dl_signer **out)
{
    *out = NULL;
    return refuse();
}

diloco_status dl_public_pin(char out[DL_PIN_TEXT], const dl_public *key)
{
    (void)out, (void)key;
    return refuse();
}

void dl_signer_close(dl_signer *signer)
{
    (void)signer;
}

const dl_public *dl_signer_public(const dl_signer *signer)
{
    (void)signer;
    return NULL;
}

diloco_status dl_signer_certificate(dl_buf *cert, dl_buf *secret, const dl_signer *signer)
{
    (void)cert, (void)secret, (void)signer;
    return refuse();
}

void dl_cleanse(dl_buf *secret)
{
    dl_buf_deinit(secret);
}

diloco_status dl_sign(dl_signature *out, const dl_signer *signer, const void *data, size_t len)
{
    (void)out, (void)signer, (void)data, (void)len;
    return refuse();
}

bool dl_verify(const dl_signature *signature, const dl_public *key, const void *data, size_t len)
{
    (void)signature, (void)key, (void)data, (void)len;
    return false;
}

diloco_status dl_strong_begin(dl_strong_stream **out)
{
    *out = NULL;
    return refuse();
}

void dl_strong_add(dl_strong_stream *stream, const void *data, size_t n)
{
    (void)stream, (void)data, (void)n;
}

dl_strong dl_strong_end(dl_strong_stream *stream)
{
    (void)stream;
    return (dl_strong){{0}};
}

void dl_strong_drop(dl_strong_stream *stream)
{
    (void)stream;
}

diloco_status dl_strong_bytes(dl_strong *out, const void *data, size_t n)
{
    (void)out, (void)data, (void)n;
    return refuse();
}

#else

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

enum { FILE_MAX = 4096 };

/* A private key and its public half. It is not changed after it was opened, so threads may share
 * it. */
struct dl_signer {
    EVP_PKEY *key;
    dl_public known;
};

static diloco_status no_crypto(const char *what)
{
    return dl_fail(DILOCO_EIO, "%s: OpenSSL refuses", what);
}

/* ---- a key's file */

/* Folders are made with mode 0700, since they hold a secret. */
static diloco_status make_folders(const char *path)
{
    char folder[PATH_MAX];
    const char *end = strrchr(path, '/');
    if (!end || end == path) return DILOCO_OK;
    if ((size_t)(end - path) >= sizeof folder)
        return dl_fail(DILOCO_EINVAL, "the path of the key is too long");
    for (const char *at = path + 1; at <= end; at++) {
        if (*at != '/') continue;
        memcpy(folder, path, (size_t)(at - path));
        folder[at - path] = '\0';
        if (mkdir(folder, 0700) && errno != EEXIST)
            return dl_fail_errno(errno, "make the folder", folder);
    }
    return DILOCO_OK;
}

/* The mode is set at the creation, so the key is never readable by others, not even for a
 * moment. */
static diloco_status write_aside(const char *path, BIO *memory)
{
    char *text;
    const long len = BIO_get_mem_data(memory, &text);
    unlink(path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return dl_fail_errno(errno, "create", path);
    diloco_status status = dl_fd_write(fd, &(dl_span){text, (size_t)len}, 1, path);
    if (!status && fsync(fd)) status = dl_fail_errno(errno, "sync", path);
    if (close(fd) && !status) status = dl_fail_errno(errno, "write", path);
    return status;
}

/* The file under its name is always whole, even if two processes write it at once or one is killed.
 */
static diloco_status write_new(const char *path, BIO *memory)
{
    char aside[PATH_MAX];
    if (snprintf(aside, sizeof aside, "%s.%ld", path, (long)getpid()) >= (int)sizeof aside)
        return dl_fail(DILOCO_EINVAL, "%s: the path is too long", path);
    diloco_status status = write_aside(aside, memory);
    if (!status && link(aside, path))
        status = errno == EEXIST
                     ? dl_fail(DILOCO_EEXIST, "%s exists already; it is not replaced", path)
                     : dl_fail_errno(errno, "create", path);
    unlink(aside);
    return status;
}

/* The key's text is in OpenSSL's secure memory, which is cleared when it is freed. */
static diloco_status make_key(const char *path)
{
    DL_TRY(make_folders(path));
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    BIO *memory = BIO_new(BIO_s_secmem());
    diloco_status status = DILOCO_OK;
    if (!key || !memory || !PEM_write_bio_PKCS8PrivateKey(memory, key, NULL, NULL, 0, NULL, NULL))
        status = no_crypto("make a key");
    if (!status) status = write_new(path, memory);
    BIO_free(memory);
    EVP_PKEY_free(key);
    return status;
}

diloco_status dl_signer_make(const char *path)
{
    const diloco_status status = make_key(path);
    if (!status || status == DILOCO_EEXIST) return status;
    return dl_fail_context(status,
                           "no key can be stored here; name another file with run.key or --key");
}

/* The file, after a check that no other user could read or change it. The check is made on the open
 * file, so the file cannot be exchanged between check and read. */
static diloco_status read_private(char text[FILE_MAX], size_t *len, const char *path)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) return dl_fail_errno(errno, "open the key", path);
    diloco_status status = DILOCO_OK;
    if (fstat(fd, &st)) status = dl_fail_errno(errno, "look at", path);
    if (!status && (!S_ISREG(st.st_mode) || st.st_mode & 077))
        status = dl_fail(DILOCO_EREFUSED,
                         "%s holds a secret key and others may read it (mode %04o): chmod 600 it",
                         path, (unsigned)st.st_mode & 07777);
    const ssize_t n = status ? 0 : read(fd, text, FILE_MAX);
    if (n < 0) status = dl_fail_errno(errno, "read", path);
    if (n == FILE_MAX) status = dl_fail(DILOCO_EPROTO, "%s is too long for a key", path);
    *len = n > 0 ? (size_t)n : 0;
    close(fd);
    return status;
}

static int no_password(char *out, int cap, int writing, void *user)
{
    (void)out, (void)cap, (void)writing, (void)user;
    return -1; /* never ask at the terminal */
}

/* Returns false unless it is an Ed25519 key. */
static bool find_public(dl_signer *signer)
{
    size_t n = sizeof signer->known.bytes;
    return signer->key && EVP_PKEY_get_id(signer->key) == EVP_PKEY_ED25519 &&
           EVP_PKEY_get_raw_public_key(signer->key, signer->known.bytes, &n) == 1 &&
           n == sizeof signer->known.bytes;
}

/* A key with a password is refused: no process may wait for a terminal. */
static diloco_status take_key(dl_signer *signer, const char *text, size_t len, const char *path)
{
    BIO *memory = BIO_new_mem_buf(text, (int)len);
    if (memory) signer->key = PEM_read_bio_PrivateKey(memory, NULL, no_password, NULL);
    BIO_free(memory);
    if (find_public(signer)) return DILOCO_OK;
    return dl_fail(DILOCO_EPROTO, "%s holds no Ed25519 key in PEM without a password", path);
}

/* The file's text is cleared on every path. After an error *out is NULL. */
diloco_status dl_signer_open(dl_signer **out, const char *path)
{
    char text[FILE_MAX];
    size_t len = 0;
    *out = NULL;
    DL_TRY(read_private(text, &len, path));
    dl_signer *signer = calloc(1, sizeof *signer);
    diloco_status status = signer ? take_key(signer, text, len, path)
                                  : dl_fail(DILOCO_ENOMEM, "out of memory for a key");
    OPENSSL_cleanse(text, sizeof text);
    if (status)
        dl_signer_close(signer);
    else
        *out = signer;
    return status;
}

/* A key for this process alone, which is never written to disk. */
diloco_status dl_signer_generate(dl_signer **out)
{
    dl_signer *signer = *out = calloc(1, sizeof *signer);
    if (!signer) return dl_fail(DILOCO_ENOMEM, "out of memory for a key");
    signer->key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    if (find_public(signer)) return DILOCO_OK;
    dl_signer_close(signer);
    *out = NULL;
    return no_crypto("make a key");
}

void dl_signer_close(dl_signer *signer)
{
    if (!signer) return;
    EVP_PKEY_free(signer->key);
    free(signer);
}

const dl_public *dl_signer_public(const dl_signer *signer)
{
    return &signer->known;
}

/* ---- a certificate */

/* The hash is of the key as a SubjectPublicKeyInfo (RFC 8410): for Ed25519 these bytes and the
 * key itself. */
diloco_status dl_public_pin(char out[DL_PIN_TEXT], const dl_public *key)
{
    static const unsigned char head[] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
                                         0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
    unsigned char info[sizeof head + sizeof key->bytes], hash[32];
    memcpy(info, head, sizeof head);
    memcpy(info + sizeof head, key->bytes, sizeof key->bytes);
    if (EVP_Q_digest(NULL, "SHA256", NULL, info, sizeof info, hash, NULL) != 1)
        return no_crypto("hash a key");
    const int at = snprintf(out, DL_PIN_TEXT, "sha256//");
    EVP_EncodeBlock((unsigned char *)out + at, hash, sizeof hash);
    return DILOCO_OK;
}

enum { YEARS = 20 }; /* a peer that trusts the certificate checks only the key */

/* A peer trusts the key and nothing else, so name, serial number and issuer are the same in every
 * certificate. */
static bool fill_certificate(X509 *cert, EVP_PKEY *key)
{
    X509_NAME *name = X509_get_subject_name(cert);
    return X509_set_version(cert, X509_VERSION_3) &&
           ASN1_INTEGER_set(X509_get_serialNumber(cert), 1) &&
           X509_gmtime_adj(X509_getm_notBefore(cert), -86400) && /* clocks differ */
           X509_gmtime_adj(X509_getm_notAfter(cert), 86400L * 365 * YEARS) &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"diloco", -1,
                                      -1, 0) &&
           X509_set_issuer_name(cert, name) && X509_set_pubkey(cert, key) &&
           X509_sign(cert, key, NULL);
}

static diloco_status take_bio(dl_buf *out, BIO *memory)
{
    char *text;
    const long len = BIO_get_mem_data(memory, &text);
    return dl_buf_add(out, text, (size_t)len);
}

/* `secret` gets the private key: clear it with dl_cleanse. */
diloco_status dl_signer_certificate(dl_buf *cert, dl_buf *secret, const dl_signer *signer)
{
    X509 *x = X509_new();
    BIO *c = BIO_new(BIO_s_mem()), *k = BIO_new(BIO_s_secmem());
    diloco_status status = DILOCO_OK;
    if (!x || !c || !k || !fill_certificate(x, signer->key) || !PEM_write_bio_X509(c, x) ||
        !PEM_write_bio_PKCS8PrivateKey(k, signer->key, NULL, NULL, 0, NULL, NULL))
        status = no_crypto("make a certificate");
    if (!status) status = take_bio(cert, c);
    if (!status) status = take_bio(secret, k);
    BIO_free(c);
    BIO_free(k);
    X509_free(x);
    return status;
}

void dl_cleanse(dl_buf *secret)
{
    if (secret->data) OPENSSL_cleanse(secret->data, secret->cap);
    dl_buf_deinit(secret);
}

/* ---- signatures */

/* Ed25519 needs no random numbers, so equal data gives equal signatures. */
diloco_status dl_sign(dl_signature *out, const dl_signer *signer, const void *data, size_t len)
{
    size_t n = sizeof out->bytes;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const bool ok = context && EVP_DigestSignInit(context, NULL, NULL, NULL, signer->key) == 1 &&
                    EVP_DigestSign(context, out->bytes, &n, data, len) == 1;
    EVP_MD_CTX_free(context);
    return ok ? DILOCO_OK : no_crypto("sign");
}

/* Any failure, also one of OpenSSL itself, counts as a wrong signature. */
bool dl_verify(const dl_signature *signature, const dl_public *key, const void *data, size_t len)
{
    EVP_PKEY *known =
        EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key->bytes, sizeof key->bytes);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const bool ok =
        known && context && EVP_DigestVerifyInit(context, NULL, NULL, NULL, known) == 1 &&
        EVP_DigestVerify(context, signature->bytes, sizeof signature->bytes, data, len) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(known);
    return ok;
}

/* ---- the hash */

struct dl_strong_stream {
    EVP_MD_CTX *context;
};

/* A stream is on the heap: OpenSSL's context has no fixed size. */
diloco_status dl_strong_begin(dl_strong_stream **out)
{
    dl_strong_stream *s = *out = calloc(1, sizeof *s);
    if (s) s->context = EVP_MD_CTX_new();
    if (s && s->context && EVP_DigestInit_ex(s->context, EVP_blake2b512(), NULL) == 1)
        return DILOCO_OK;
    dl_strong_drop(s);
    *out = NULL;
    return dl_fail(DILOCO_ENOMEM, "out of memory for a hash");
}

/* Neither call fails on a context that was begun. */
void dl_strong_add(dl_strong_stream *stream, const void *data, size_t n)
{
    DL_ASSERT(EVP_DigestUpdate(stream->context, data, n) == 1);
}

/* BLAKE2b-512 cut to its first 32 bytes. It ends the stream. */
dl_strong dl_strong_end(dl_strong_stream *stream)
{
    unsigned char all[EVP_MAX_MD_SIZE];
    dl_strong out;
    DL_ASSERT(EVP_DigestFinal_ex(stream->context, all, NULL) == 1);
    memcpy(out.bytes, all, sizeof out.bytes);
    dl_strong_drop(stream);
    return out;
}

void dl_strong_drop(dl_strong_stream *stream)
{
    if (!stream) return;
    EVP_MD_CTX_free(stream->context);
    free(stream);
}

diloco_status dl_strong_bytes(dl_strong *out, const void *data, size_t n)
{
    dl_strong_stream *s;
    DL_TRY(dl_strong_begin(&s));
    dl_strong_add(s, data, n);
    *out = dl_strong_end(s);
    return DILOCO_OK;
}

#endif
