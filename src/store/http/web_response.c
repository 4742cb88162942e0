/* web_response.c - functions that prepare and finish may call: headers, dates, and the meaning of
 * an unexpected answer. */
#include "store/http/web_parts.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

diloco_status dl_web_add_header(dl_web_slot *s, const char *line)
{
    struct curl_slist *more = curl_slist_append(s->headers, line);
    if (!more) return dl_fail(DILOCO_ENOMEM, "%s: out of memory for a request", s->x.what);
    s->headers = more;
    return DILOCO_OK;
}

/* A value with a line break could add a header, so it is refused. */
diloco_status dl_web_header(dl_web_exchange *x, const char *format, ...)
{
    char *line;
    va_list args;
    va_start(args, format);
    int len = vasprintf(&line, format, args);
    va_end(args);
    if (len < 0) return dl_fail(DILOCO_ENOMEM, "%s: out of memory for a request", x->what);
    diloco_status status = strpbrk(line, "\r\n")
                               ? dl_fail(DILOCO_EINVAL, "%s: a header with a line break", x->what)
                               : dl_web_add_header(x->slot, line);
    free(line);
    return status;
}

/* Returns NULL if the answer has no such header, or an empty one. The text is valid until the
 * exchange is cleared. */
const char *dl_web_response_header(const dl_web_exchange *x, const char *name)
{
    struct curl_header *header;
    if (curl_easy_header(x->slot->easy, name, 0, CURLH_HEADER, -1, &header)) return NULL;
    return strspn(header->value, "\r\n") == strlen(header->value) ? NULL : header->value;
}

/* Returns seconds since 1970, or 0 if the text is no date. */
int64_t dl_web_time(const char *date)
{
    struct tm tm = {0};
    if (sscanf(date, "%d-%d-%dT%d:%d:%d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec) == 6) {
        tm.tm_year -= 1900;
        tm.tm_mon--;
        time_t iso = timegm(&tm);
        return iso < 0 ? 0 : (int64_t)iso;
    }
    time_t t = curl_getdate(date, NULL);
    return t < 0 ? 0 : (int64_t)t;
}

int64_t dl_web_date(const dl_web_exchange *x)
{
    const char *date = dl_web_response_header(x, "Date");
    return date ? dl_web_time(date) : 0;
}

/* Everything but RFC 3986's unreserved characters is escaped, as signatures require. */
diloco_status dl_web_escape(dl_buf *out, const char *text, bool keep_slash)
{
    static const char hex[] = "0123456789ABCDEF";
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        char escaped[3] = {'%', hex[*c >> 4], hex[*c & 15]};
        bool plain = (*c < 128 && isalnum(*c)) || strchr("-._~", *c) || (*c == '/' && keep_slash);
        DL_TRY(plain ? dl_buf_add(out, c, 1) : dl_buf_add(out, escaped, 3));
    }
    return DILOCO_OK;
}

/* The text of an XML element, without decoding; it is for people, so the first one will do. */
static bool element(char *out, size_t cap, const char *text, const char *open, const char *close)
{
    const char *begin = strstr(text, open), *end = begin ? strstr(begin, close) : NULL;
    if (!end) return false;
    begin += strlen(open);
    snprintf(out, cap, "%.*s", (int)dl_size_min((size_t)(end - begin), cap - 1), begin);
    return true;
}

static const char SILENT[] = "without a word";

/* The server's answer in one line without control characters or trailing spaces. For an error in
 * XML the code and the message are shown, for any other the beginning of the text. */
void dl_web_excerpt(char out[TROUBLE_MAX], const dl_web_exchange *x)
{
    char code[80], message[240];
    dl_buf *text = &((dl_web_slot *)x->slot)->x.text;
    const char *body = text->len ? dl_buf_str(text) : "";
    if (!body) body = "";
    if (element(code, sizeof code, body, "<Code>", "</Code>"))
        snprintf(out, TROUBLE_MAX, "%s%s%s", code,
                 element(message, sizeof message, body, "<Message>", "</Message>") ? ": " : "",
                 element(message, sizeof message, body, "<Message>", "</Message>") ? message : "");
    else
        snprintf(out, TROUBLE_MAX, "%.200s", *body ? body : SILENT);
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = ' ';
    size_t len = strlen(out);
    while (len > 0 && out[len - 1] == ' ')
        out[--len] = 0;
    if (!len) snprintf(out, TROUBLE_MAX, "%s", SILENT);
}

/* Where a redirection leads, if it can be shown; NULL: nowhere, or it is odd, or has secrets. */
static const char *leads_to(const dl_web_exchange *x)
{
    const char *url = x->status / 100 == 3 ? dl_web_response_header(x, "Location") : NULL;
    for (const char *c = url; c && *c; c++)
        if (*c <= ' ' || *c > '~' || *c == '?' || *c == '@') return NULL;
    return url;
}

/* The server's text is shown only as an excerpt without control characters, since it reaches
 * terminals. */
diloco_status dl_web_unexpected(const dl_web_exchange *x)
{
    char text[TROUBLE_MAX];
    const char *elsewhere = leads_to(x);
    dl_web_excerpt(text, x);
    if (elsewhere)
        return dl_fail(DILOCO_EPROTO,
                       "%s: the server answered %d: it is at %.200s; credentials are not "
                       "taken elsewhere, so the url has to name that",
                       x->what, x->status, elsewhere);
    diloco_status status = x->status == 401 || x->status == 403   ? DILOCO_EREFUSED
                           : x->status == 404                     ? DILOCO_ENOENT
                           : x->status == 507                     ? DILOCO_EFULL
                           : x->status >= 400 && x->status <= 499 ? DILOCO_EIO
                                                                  : DILOCO_EPROTO;
    return dl_fail(status, "%s: the server answered %d (%s)", x->what, x->status, text);
}
