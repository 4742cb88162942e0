/* sse.c - see sse.h. */
#include "store/http/sse.h"

#include <stdio.h>
#include <string.h>

/* The text after "<name>:" and one space; NULL: it is not that field. */
static const char *field(const char *line, const char *name)
{
    size_t len = strlen(name);
    if (strncmp(line, name, len) != 0 || (line[len] && line[len] != ':')) return NULL;
    const char *value = line + len + (line[len] == ':');
    return value + (*value == ' ');
}

/* An empty line ends an event. Comments, ids and other fields are ignored. */
static void on_line(dl_sse *s, dl_sse_fn on_event, void *context)
{
    const char *value;
    if (!s->line[0]) {
        if (s->has_data && !s->lost) on_event(context, s->event, s->data);
        s->event[0] = '\0';
        s->has_data = s->lost = false;
    } else if ((value = field(s->line, "data"))) {
        snprintf(s->data, sizeof s->data, "%s", value);
        s->has_data = true;
    } else if ((value = field(s->line, "event"))) {
        snprintf(s->event, sizeof s->event, "%.*s", DL_SSE_NAME - 1, value);
    }
}

/* Lines may be cut anywhere between two calls. A line that is too long loses its event, and the
 * stream continues. */
void dl_sse_add(dl_sse *s, const void *bytes, size_t n, dl_sse_fn on_event, void *context)
{
    for (const char *at = bytes, *end = at + n; at < end; at++) {
        if (*at != '\n') {
            s->too_long |= s->len + 1 == sizeof s->line;
            if (!s->too_long) s->line[s->len++] = *at;
            continue;
        }
        if (s->len && s->line[s->len - 1] == '\r') s->len--;
        s->line[s->len] = '\0';
        s->lost |= s->too_long;
        if (!s->too_long) on_line(s, on_event, context);
        s->len = 0;
        s->too_long = false;
    }
}
