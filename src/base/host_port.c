/* host_port.c - see host_port.h. */
#include "base/host_port.h"

#include "base/text.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* The last colon separates the port, so an IPv6 address needs brackets. The host may be empty:
 * every address. */
diloco_status dl_address_parse(dl_address *out, const char *text)
{
    const char *colon = strrchr(text, ':'), *host = text;
    size_t len = colon ? (size_t)(colon - text) : 0;
    uint64_t port;
    if (!colon || !dl_text_to_u64(&port, colon + 1, strlen(colon + 1)) || port > 65535)
        return dl_fail(DILOCO_EINVAL, "%.300s is not HOST:PORT, such as 127.0.0.1:8000", text);
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') host++, len -= 2;
    if (len > DL_HOST_MAX || (host == text && memchr(host, ':', len)))
        return dl_fail(DILOCO_EINVAL, "%.300s is not HOST:PORT; write an IPv6 address in brackets",
                       text);
    memcpy(out->host, host, len);
    out->host[len] = '\0';
    snprintf(out->port, sizeof out->port, "%u", (unsigned)port);
    return DILOCO_OK;
}

/* Copies the host of "scheme://user@host:port/path". Returns false if the URL has no host. An IPv6
 * address loses its brackets and sets *v6. */
static bool host_of(char host[DL_HOST_MAX + 1], bool *v6, const char *url)
{
    const char *at = strstr(url, "://");
    if (!at) return false;
    const char *end = at + 3 + strcspn(at + 3, "/?#");
    for (const char *c = at += 3; c < end; c++)
        if (*c == '@') at = c + 1;
    *v6 = *at == '[';
    at += *v6;
    const size_t len = strcspn(at, *v6 ? "]" : ":/?#");
    if (len == 0 || len > DL_HOST_MAX || (*v6 && at[len] != ']')) return false;
    const char *after = at + len + *v6;
    if (after > end || (after < end && *after != ':')) return false;
    memcpy(host, at, len);
    host[len] = '\0';
    return true;
}

bool dl_url_is_loopback(const char *url)
{
    char host[DL_HOST_MAX + 1];
    bool v6;
    struct in_addr in;
    struct in6_addr in6;
    if (!host_of(host, &v6, url)) return false;
    if (v6) return inet_pton(AF_INET6, host, &in6) == 1 && IN6_IS_ADDR_LOOPBACK(&in6);
    if (!strcasecmp(host, "localhost")) return true;
    return inet_pton(AF_INET, host, &in) == 1 && ntohl(in.s_addr) >> 24 == 127;
}

bool dl_url_is_near(const char *url)
{
    char host[DL_HOST_MAX + 1];
    bool v6;
    struct in_addr in;
    if (dl_url_is_loopback(url)) return true;
    return host_of(host, &v6, url) && !v6 && inet_pton(AF_INET, host, &in) == 1 &&
           ntohl(in.s_addr) >> 16 == 0xA9FE;
}
