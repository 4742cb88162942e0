/* xml_fuzz.c - an object store's answer: whatever comes, the walk ends, and what it shows is
 * within its limits. expat is not instrumented, so the fuzzer would hardly find a '<': each of its
 * bytes below 16 stands for a piece of XML, every other one for itself. */
#include "store/http/xml.h"

#include <string.h>

static diloco_status check(void *context, const char *path, const char *text)
{
    size_t *n = context;
    DL_ASSERT(strlen(path) <= 200 && strlen(text) < 4096);
    return ++*n < 10000 ? DILOCO_OK : dl_fail(DILOCO_EFULL, "enough");
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t len);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t len)
{
    static const char *const pieces[16] = {
        "<R>",
        "</R>",
        "<Contents>",
        "</Contents>",
        "<Key>",
        "</Key>",
        "<x:A b='c'>",
        "</x:A>",
        "<B/>",
        "&amp;",
        "<![CDATA[ <a> ]]>",
        "&lt;",
        " ",
        "<!DOCTYPE R>",
        "<!--x-->",
        "0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz"};
    size_t n = 0;
    dl_buf text;
    dl_buf_init(&text, 1 << 20);
    diloco_status status = dl_buf_add(&text, "<R>", 3);
    for (size_t i = 0; i < len && !status; i++)
        status = data[i] < 16 ? dl_buf_add(&text, pieces[data[i]], strlen(pieces[data[i]]))
                              : dl_buf_add(&text, data + i, 1);
    DL_ASSERT(!status || text.len > 1 << 19);
    status = dl_xml_walk(text.data, text.len, NULL, check, &n, "it");
    DL_ASSERT(!status || status == DILOCO_EPROTO || status == DILOCO_EFULL);
    dl_buf_deinit(&text);
    return 0;
}
