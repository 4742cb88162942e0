/* cert.c - see cert.h. Every OpenSSL call that fails ends in the one sentence of no_cert. */
#include "hub/cert.h"

#include "base/signature.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NAMES_MAX = 1024, PEM_MAX = 1 << 20 };

/* Return DILOCO_EIO with the oldest error of OpenSSL in this thread. */
static diloco_status no_cert(void)
{
    char text[160];
    ERR_error_string_n(ERR_get_error(), text, sizeof text);
    return dl_fail(DILOCO_EIO, "making a certificate: %s", text);
}

static bool is_address(const char *host)
{
    unsigned char out[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, out) == 1 || inet_pton(AF_INET6, host, out) == 1;
}

/* Write the subject alternative names, "DNS:localhost,IP:127.0.0.1,…". A host name from outside
 * is left out if it has any other character than names have. A comma in it would add a name of
 * its own choice to OpenSSL's list. */
static void list_names(char out[NAMES_MAX], const char *host)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:";
    char name[256] = "";
    if (gethostname(name, sizeof name - 1) || strspn(name, good) != strlen(name)) name[0] = '\0';
    int n = snprintf(out, NAMES_MAX, "DNS:localhost,IP:127.0.0.1,IP:::1%s%s",
                     *name ? is_address(name) ? ",IP:" : ",DNS:" : "", name);
    if (host && *host && strlen(host) < 256 && strspn(host, good) == strlen(host))
        snprintf(out + n, NAMES_MAX - (size_t)n, ",%s:%s", is_address(host) ? "IP" : "DNS", host);
}

/* Add one extension in OpenSSL's text form. The certificate is its own issuer, which the context
 * has to name. */
static bool add_extension(X509 *cert, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, cert, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    bool ok = extension && X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
    return ok;
}

/* Fill in all fields of a certificate of version 3 and sign it. The top bit of the serial number
 * is cleared, because RFC 5280 (4.1.2.2) asks for a positive number. */
static bool fill(X509 *cert, EVP_PKEY *key, const char *host)
{
    unsigned char serial[16];
    char names[NAMES_MAX];
    X509_NAME *name = X509_get_subject_name(cert);
    list_names(names, host);
    BIGNUM *number = RAND_bytes(serial, sizeof serial) == 1
                         ? (serial[0] &= 0x7f, BN_bin2bn(serial, sizeof serial, NULL))
                         : NULL;
    bool ok = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert)) &&
              X509_set_version(cert, X509_VERSION_3) &&
              X509_gmtime_adj(X509_getm_notBefore(cert), -3600) && /* clocks differ */
              X509_gmtime_adj(X509_getm_notAfter(cert), 86400L * DL_CERT_DAYS) &&
              X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                         (const unsigned char *)"diloco hub", -1, -1, 0) &&
              X509_set_issuer_name(cert, name) && X509_set_pubkey(cert, key) &&
              /* CA:TRUE lets a client use the certificate as its own authority (DILOCO_HUB_CA).
               * pathlen:0 keeps it from issuing other authorities. */
              add_extension(cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
              add_extension(cert, NID_key_usage, "critical,digitalSignature,keyCertSign") &&
              add_extension(cert, NID_ext_key_usage, "serverAuth") &&
              add_extension(cert, NID_subject_alt_name, names) &&
              X509_sign(cert, key, EVP_sha256());
    BN_free(number);
    return ok;
}

/* SHA-256 of the SubjectPublicKeyInfo, the form that curl's --pinnedpubkey and a join line's pin
 * have. */
static bool hash_key(unsigned char hash[32], X509 *cert)
{
    unsigned char *spki = NULL;
    const int len = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(cert), &spki);
    const bool ok = len > 0 && EVP_Digest(spki, (size_t)len, hash, NULL, EVP_sha256(), NULL);
    OPENSSL_free(spki);
    return ok;
}

/* Write the fingerprint ("AB:CD:…") and the pin as texts. The hash has 32 bytes, so
 * DL_CERT_PRINT and DL_CERT_PIN hold both. */
static bool describe(X509 *cert, char fingerprint[DL_CERT_PRINT], char pin[DL_CERT_PIN])
{
    unsigned char hash[32];
    unsigned len = 0;
    if (!X509_digest(cert, EVP_sha256(), hash, &len) || len != sizeof hash) return false;
    for (size_t i = 0; i < sizeof hash; i++)
        snprintf(fingerprint + 3 * i, 4, "%02X%s", hash[i], i + 1 < sizeof hash ? ":" : "");
    if (!hash_key(hash, cert)) return false;
    int at = snprintf(pin, DL_CERT_PIN, "sha256//");
    EVP_EncodeBlock((unsigned char *)pin + at, hash, sizeof hash);
    return true;
}

/* A new file; its mode from the first moment on. */
static diloco_status create_file(int *fd, const char *path, unsigned mode)
{
    *fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (*fd >= 0) return DILOCO_OK;
    if (errno == EEXIST)
        return dl_fail(DILOCO_EEXIST, "%s exists already; move it away, or give other names", path);
    return dl_fail_errno(errno, "create", path);
}

/* Write a memory BIO into a new file. The file is removed again after an error, so no half of a
 * key stays. */
static diloco_status write_pem(BIO *memory, const char *path, unsigned mode)
{
    char *text;
    int fd;
    long len = BIO_get_mem_data(memory, &text);
    DL_TRY(create_file(&fd, path, mode));
    diloco_status status = dl_fd_write(fd, &(dl_span){text, (size_t)len}, 1, path);
    if (close(fd) && !status) status = dl_fail_errno(errno, "write", path);
    if (status) unlink(path);
    return status;
}

/* Write the key before the certificate, and remove the key if the certificate fails. The key's
 * buffer is a secure BIO, which is cleansed when it is freed. */
static diloco_status write_both(X509 *cert, EVP_PKEY *key, const char *cert_path,
                                const char *key_path)
{
    BIO *c = BIO_new(BIO_s_mem()), *k = BIO_new(BIO_s_secmem());
    diloco_status status = DILOCO_OK;
    if (!c || !k || !PEM_write_bio_X509(c, cert) ||
        !PEM_write_bio_PKCS8PrivateKey(k, key, NULL, NULL, 0, NULL, NULL))
        status = no_cert();
    if (!status) status = write_pem(k, key_path, 0600);
    if (!status) {
        status = write_pem(c, cert_path, 0644);
        if (status) unlink(key_path);
    }
    BIO_free(c);
    BIO_free(k);
    return status;
}

/* Make the key and the certificate in memory, and write them last, so a failure of OpenSSL
 * leaves no file. */
diloco_status dl_cert_make(const char *cert_path, const char *key_path, const char *host,
                           char fingerprint[DL_CERT_PRINT], char pin[DL_CERT_PIN])
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    diloco_status status = DILOCO_OK;
    if (!key || !cert || !fill(cert, key, host) || !describe(cert, fingerprint, pin))
        status = no_cert();
    if (!status) status = write_both(cert, key, cert_path, key_path);
    X509_free(cert);
    EVP_PKEY_free(key);
    return status;
}

/* The file may be the user's own; only its first certificate is read, as a server shows it. */
diloco_status dl_cert_key_hash(char out[DL_CERT_KEY_HEX + 1], const char *cert_path)
{
    dl_buf text;
    unsigned char hash[32];
    dl_buf_init(&text, PEM_MAX);
    diloco_status status = dl_file_read(&text, cert_path);
    BIO *memory = status ? NULL : BIO_new_mem_buf(text.data, (int)text.len);
    X509 *cert = memory ? PEM_read_bio_X509(memory, NULL, NULL, NULL) : NULL;
    if (!status && (!cert || !hash_key(hash, cert)))
        status = dl_fail(DILOCO_EPROTO, "%s holds no certificate in PEM", cert_path);
    if (!status) dl_hex(out, hash, sizeof hash);
    X509_free(cert);
    BIO_free(memory);
    dl_buf_deinit(&text);
    return status;
}
