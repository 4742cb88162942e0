/* web_redirect.c - a read that a service answers with the address of another host.
 *
 * The other host gets the range and the condition of the read, and nothing else: no signature, no
 * token. Each try begins at the first host again, since such addresses expire. A redirection from
 * TLS to plain HTTP is not followed, and none from outside to this machine. */
#include "store/http/web_parts.h"

#include <string.h>
#include <strings.h>

enum { HOPS_MAX = 3 };

static bool is_tls(const char *url)
{
    return strncasecmp(url, "https://", 8) == 0;
}

/* May a read at `from` be continued at `url`? The answer's header is untrusted. */
static bool may_follow(const char *url, const char *from)
{
    const char *host = strstr(url, "://");
    if (!is_tls(url) && (strncasecmp(url, "http://", 7) != 0 || is_tls(from))) return false;
    if (dl_web_is_near(url) && !dl_web_is_near(from)) return false;
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
    const char *url = dl_web_answer(x, "Location"), *from = dl_buf_str(&x->url);
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
