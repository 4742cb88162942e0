/* peer.c - the key of a client's certificate.
 *
 * The certificate is the client's own and proves only that it has the key. TLS has checked
 * that before the first request. Names, dates and signatures in it are not looked at. */
#include "hub/server.h"

#include <gnutls/gnutls.h>
#include <openssl/x509.h>

/* Read the key of a certificate (DER, untrusted bytes). Returns false for any other kind of key
 * than Ed25519, or for bytes that are no certificate. */
static bool key_of(dl_public *out, const unsigned char *der, size_t len)
{
    size_t n = sizeof out->bytes;
    X509 *cert = d2i_X509(NULL, &der, (long)len);
    EVP_PKEY *key = cert ? X509_get0_pubkey(cert) : NULL;
    const bool ok = key && EVP_PKEY_get_id(key) == EVP_PKEY_ED25519 &&
                    EVP_PKEY_get_raw_public_key(key, out->bytes, &n) == 1 && n == sizeof out->bytes;
    X509_free(cert);
    return ok;
}

/* libmicrohttpd has no function for the client's certificate, so GnuTLS is asked for the chain
 * of the TLS connection. The first one is the client's own. */
bool dl_request_peer(dl_public *out, const dl_http_request *r)
{
    unsigned n = 0;
    if (!r->hub->tls) return false;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (!info || !info->tls_session) return false;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(info->tls_session, &n);
    return chain && n > 0 && key_of(out, chain[0].data, chain[0].size);
}
