#include "store/http/xml.h"

#include <expat.h>
#include <limits.h>
#include <string.h>

enum { DEPTH = 16, PATH = 200, TEXT = 4096 };

/* The state of one parse. The path is kept as text, with its length at each depth, so leaving an
 * element only cuts it. */
typedef struct walk {
    XML_Parser parser;
    const char *root, *what;
    dl_xml_fn element;
    void *context;
    diloco_status status;
    size_t depth;           /* elements open */
    size_t path_len[DEPTH]; /* of the path up to each of them */
    char path[PATH + 1];
    char text[TEXT]; /* of the innermost; a child's begin empties it */
    size_t text_len;
} walk;

/* The first error counts. */
static void stop(walk *w, diloco_status status)
{
    if (!w->status) w->status = status;
    XML_StopParser(w->parser, XML_FALSE);
}

/* Depth and path have fixed maxima, so hostile XML cannot take memory. */
static void on_start(void *context, const XML_Char *name, const XML_Char **attributes)
{
    walk *w = context;
    (void)attributes;
    const char *colon = strrchr(name, ':');
    if (colon) name = colon + 1;
    size_t before = w->depth ? w->path_len[w->depth - 1] : 0, len = strlen(name);
    w->text_len = 0;
    if (w->depth == 0) {
        if (w->root && strcmp(name, w->root))
            stop(w, dl_fail(DILOCO_EPROTO, "%s: the answer is <%.40s>, not <%s>", w->what, name,
                            w->root));
        len = 0; /* the root is not in the path */
    } else if (w->depth == DEPTH || before + 1 + len > PATH) {
        stop(w, dl_fail(DILOCO_EPROTO, "%s: the answer's XML nests too deep", w->what));
        return;
    } else {
        if (before) w->path[before++] = '/';
        memcpy(w->path + before, name, len);
    }
    w->path_len[w->depth++] = before + len;
    w->path[before + len] = '\0';
}

/* A text may come in several pieces, which are joined. Its length is bounded. */
static void on_text(void *context, const XML_Char *text, int len)
{
    walk *w = context;
    if ((size_t)len >= TEXT - w->text_len) {
        stop(w, dl_fail(DILOCO_EPROTO, "%s: the answer's XML has a text of more than %d bytes",
                        w->what, TEXT - 1));
        return;
    }
    memcpy(w->text + w->text_len, text, (size_t)len);
    w->text_len += (size_t)len;
}

/* Blanks around the text are left out. */
static void on_end(void *context, const XML_Char *name)
{
    static const char blanks[] = " \t\r\n";
    walk *w = context;
    (void)name;
    if (w->status) return;
    while (w->text_len && strchr(blanks, w->text[w->text_len - 1]))
        w->text_len--;
    w->text[w->text_len] = '\0';
    diloco_status status = w->element(w->context, w->path, w->text + strspn(w->text, blanks));
    if (status) stop(w, status);
    w->depth--;
    w->path[w->depth ? w->path_len[w->depth - 1] : 0] = '\0';
    w->text_len = 0;
}

/* A document type could define entities that expand without end, so it ends the parse. */
static void on_doctype(void *context, const XML_Char *name, const XML_Char *system,
                       const XML_Char *public, int internal)
{
    walk *w = context;
    (void)name, (void)system, (void)public, (void)internal;
    stop(w, dl_fail(DILOCO_EPROTO, "%s: the answer's XML declares a document type", w->what));
}

/* Calls `element` at the end of each element, with its path below the root and its text. A status
 * of `element` ends the walk and is returned. */
diloco_status dl_xml_walk(const void *data, size_t len, const char *root, dl_xml_fn element,
                          void *context, const char *what)
{
    walk w = {.root = root, .what = what, .element = element, .context = context};
    if (len > INT_MAX) return dl_fail(DILOCO_EPROTO, "%s: the answer is too long", what);
    w.parser = XML_ParserCreate(NULL);
    if (!w.parser) return dl_fail(DILOCO_ENOMEM, "%s: not enough memory to read the answer", what);
    XML_SetUserData(w.parser, &w);
    XML_SetElementHandler(w.parser, on_start, on_end);
    XML_SetCharacterDataHandler(w.parser, on_text);
    XML_SetStartDoctypeDeclHandler(w.parser, on_doctype);
    if (XML_Parse(w.parser, data, (int)len, XML_TRUE) == XML_STATUS_ERROR && !w.status)
        w.status = dl_fail(DILOCO_EPROTO, "%s: the answer is no XML: %s", what,
                           XML_ErrorString(XML_GetErrorCode(w.parser)));
    XML_ParserFree(w.parser);
    return w.status;
}
