/* trust.h - the certificate authorities that TLS connections trust. */
#ifndef DL_STORE_HTTP_TRUST_H
#define DL_STORE_HTTP_TRUST_H

/* Return the PEM file of the authorities, or NULL where libcurl's own default is to be used.
 *
 *   given   SSL_CERT_FILE of the environment; NULL or "": not given
 *   own     the file that libcurl was built with; NULL: it needs none
 *
 * A given file wins, whether or not it can be read, so that a mistake is an error of the
 * connection. Without it libcurl's own file is used where that exists. A libcurl from another
 * distribution (that of the wheel) names a file that may not exist here; then the first one of
 * `places` that can be read is used. places ends with NULL. The result is one of the arguments. */
const char *dl_trust_pick(const char *given, const char *own, const char *const *places);

/* Return dl_trust_pick for this process and the places where distributions store the authorities.
 * Reads the environment at each call. Any thread. */
const char *dl_trust_file(void);

#endif
