/* peer_address.c - see peer_address.h. */
#include "base/peer_address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits only, from 1 to 65535. */
static bool is_port(const char *text, size_t len)
{
    char port[8];
    if (len == 0 || len > 5 || strspn(text, "0123456789") < len) return false;
    memcpy(port, text, len);
    port[len] = '\0';
    const long n = strtol(port, NULL, 10);
    return n > 0 && n < 65536;
}

/* A name, an IPv4 address, or an IPv6 one in brackets. A conservative set of characters: the name
 * goes into urls and error texts. */
static bool is_host(const char *text, size_t len)
{
    static const char name[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-";
    if (len == 0 || len > 255) return false;
    if (text[0] == '[')
        return len > 3 && text[len - 1] == ']' &&
               strspn(text + 1, "0123456789abcdefABCDEF:.") >= len - 2;
    return strspn(text, name) >= len && text[0] != '-' && text[0] != '.';
}

/* The text may come from another replica's heartbeat. Only host and port are taken over, so it
 * cannot add a path, a query or credentials. */
diloco_status dl_peer_address(char out[DL_ADDRESS_MAX + 1], const char *text, bool tls)
{
    const char *scheme = tls ? "https://" : "http://", *at = text;
    if (!strncmp(text, "http://", 7) || !strncmp(text, "https://", 8)) {
        at = strstr(text, "://") + 3;
        scheme = at - text == 7 ? "http://" : "https://";
    }
    size_t len = strcspn(at, "/");
    const char *rest = at + len, *colon = NULL;
    for (size_t i = 0; i < len; i++)
        if (at[i] == ':') colon = at + i;
    const bool ends = !*rest || !strcmp(rest, "/") || !strcmp(rest, "/run");
    if (!ends || !colon || !is_host(at, (size_t)(colon - at)) ||
        !is_port(colon + 1, len - (size_t)(colon + 1 - at)))
        return dl_fail(DILOCO_EINVAL,
                       "\"%.80s\" is no address of a node: HOST:PORT, perhaps with http:// or "
                       "https:// before it",
                       text);
    snprintf(out, DL_ADDRESS_MAX + 1, "%s%.*s", scheme, (int)len, at);
    return DILOCO_OK;
}
