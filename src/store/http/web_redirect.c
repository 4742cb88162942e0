/* web_redirect.c - a read that a service answers with the address of another host.
 *
 * The other host gets the range and the condition of the read, and nothing else: no signature, no
 * token. Each try begins at the first host again, since such addresses expire. A redirection from
 * TLS to plain HTTP is not followed, and none from outside to this machine. */
#include "store/http/web_parts.h"

#include "base/host_port.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

enum { HOPS_MAX = 3 };

static bool is_tls(const char *url)
{
    return strncasecmp(url, "https://", 8) == 0;
}

/* Returns whether a host could be one of this machine or its network segment. It errs on the side
 * of true, since a redirection to such a host is refused: "127.1" and "0x7f000001" are loopback,
 * too. */
static bool may_be_near(const char *url)
{
    static const char *const near[] = {"127.", "localhost", "[::1]", "169.254."};
    const char *host = strstr(url, "://");
    for (size_t i = 0; host && i < sizeof near / sizeof *near; i++)
        if (!strncasecmp(host + 3, near[i], strlen(near[i]))) return true;
    char number[64];
    struct in_addr in;
    const size_t len = host ? strcspn(host + 3, ":/?#") : 0;
    if (!len || len >= sizeof number) return dl_url_is_near(url);
    memcpy(number, host + 3, len);
    number[len] = '\0';
    if (!inet_aton(number, &in)) return dl_url_is_near(url);
    const uint32_t address = ntohl(in.s_addr);
    return address >> 24 == 127 || address >> 24 == 0 || address >> 16 == 0xA9FE;
}

/* May a read at `from` be continued at `url`? The answer's header is untrusted. */
static bool may_follow(const char *url, const char *from)
{
    const char *host = strstr(url, "://");
    if (!is_tls(url) && (strncasecmp(url, "http://", 7) != 0 || is_tls(from))) return false;
    if (may_be_near(url) && !dl_url_is_near(from)) return false;
    if (memchr(host + 3, '@', strcspn(host + 3, "/?#"))) return false;
    for (const char *c = url; *c; c++)
        if (*c <= ' ' || *c > '~') return false;
    return strlen(url) < DL_WEB_URL;
}

static bool is_redirection(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

diloco_status dl_web_note_redirect(dl_web_slot *s, bool *yes)
{
    dl_web_exchange *x = &s->x;
    *yes = false;
    if (!x->follows || !is_redirection(x->status) || s->hops == HOPS_MAX) return DILOCO_OK;
    const char *url = dl_web_response_header(x, "Location"), *from = dl_buf_str(&x->url);
    if (!url || !from || !may_follow(url, from)) return DILOCO_OK;
    dl_buf_clear(&s->elsewhere);
    DL_TRY(dl_buf_add(&s->elsewhere, url, strlen(url)));
    s->hops++;
    *yes = true;
    return DILOCO_OK;
}

static bool goes_along(const char *header)
{
    return strncasecmp(header, "Range:", 6) == 0 || strncasecmp(header, "If-Match:", 9) == 0;
}

diloco_status dl_web_apply_redirect(dl_web_slot *s)
{
    struct curl_slist *before = s->headers;
    diloco_status status = DILOCO_OK;
    if (!s->elsewhere.len) return DILOCO_OK;
    dl_buf_clear(&s->x.url);
    DL_TRY(dl_buf_add(&s->x.url, s->elsewhere.data, s->elsewhere.len));
    s->headers = NULL;
    for (const struct curl_slist *header = before; !status && header; header = header->next)
        if (goes_along(header->data)) status = dl_web_add_header(s, header->data);
    curl_slist_free_all(before);
    return status;
}

void dl_web_forget_redirect(dl_web_slot *s)
{
    dl_buf_clear(&s->elsewhere);
    s->hops = 0;
}
