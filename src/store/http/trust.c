/* trust.c - where distributions store the certificate authorities. */
#include "store/http/trust.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <unistd.h>

/* Returns NULL where libcurl's own file exists, and its default then applies. */
const char *dl_trust_pick(const char *given, const char *own, const char *const *places)
{
    if (given && *given) return given;
    if (!own || !access(own, R_OK)) return NULL;
    for (; *places; places++)
        if (!access(*places, R_OK)) return *places;
    return NULL;
}

const char *dl_trust_file(void)
{
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Arch, Gentoo */
        "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora, Red Hat, until 42 */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* Fedora, Red Hat */
        "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
        "/etc/ssl/cert.pem",                                 /* Alpine */
        NULL};
    return dl_trust_pick(getenv("SSL_CERT_FILE"), curl_version_info(CURLVERSION_NOW)->cainfo,
                         places);
}
