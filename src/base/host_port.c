/* host_port.c - see host_port.h. */
#include "base/host_port.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

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
