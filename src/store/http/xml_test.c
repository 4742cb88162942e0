/* xml_test.c - the walk over an answer, and what it does not put up with. */
#include "store/http/xml.h"

#include "check.h"

static diloco_status note(void *context, const char *path, const char *text)
{
    return dl_buf_addf(context, "%s=%s;", path, text);
}

static void check_walk(const char *expected, const char *root, const char *xml)
{
    dl_buf out;
    dl_buf_init(&out, 1000);
    CHECK_OK(dl_xml_walk(xml, strlen(xml), root, note, &out, "it"));
    CHECK_STR(expected, dl_buf_str(&out));
    dl_buf_deinit(&out);
}

static void check_refused(const char *part, const char *root, const char *xml)
{
    dl_buf out;
    dl_buf_init(&out, 100000);
    CHECK_STATUS(DILOCO_EPROTO, dl_xml_walk(xml, strlen(xml), root, note, &out, "the list"));
    CHECK_CONTAINS("the list", diloco_error_text());
    CHECK_CONTAINS(part, diloco_error_text());
    dl_buf_deinit(&out);
}

TEST(elements_end_with_their_path_and_text)
{
    check_walk("A/B=1;A/C=x & y;A=;D=;=;", "R",
               "<?xml version=\"1.0\"?><R xmlns=\"http://x/\"><A> <B>1</B>\n<C> x &amp; y </C></A>"
               "<D/></R>");
    check_walk("A=1;=;", NULL, "<s3:R xmlns:s3=\"u\"><s3:A i=\"2\">1</s3:A></s3:R>");
}

TEST(another_document_is_refused)
{
    check_refused("not <R>", "R", "<Error><Code>x</Code></Error>");
    check_refused("no XML", NULL, "");
    check_refused("no XML", NULL, "<R><A></R>");
    check_refused("no XML", NULL, "<R>");
    check_refused("no XML", NULL, "hello");
    check_refused("document type", NULL,
                  "<!DOCTYPE R [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><R>&b;</R>");
}

TEST(depth_and_texts_have_limits)
{
    char deep[512] = "", text[5000];
    for (int i = 0; i < 40; i++)
        strcat(deep, "<a>");
    check_refused("too deep", NULL, deep);
    memset(text, 'x', sizeof text);
    memcpy(text, "<R>", 3);
    strcpy(text + sizeof text - 5, "</R>");
    check_refused("more than 4095", NULL, text);
}

static diloco_status refuse(void *context, const char *path, const char *text)
{
    (void)context, (void)path, (void)text;
    return dl_fail(DILOCO_EFULL, "enough");
}

TEST(the_caller_can_end_the_walk)
{
    CHECK_STATUS(DILOCO_EFULL, dl_xml_walk("<R><A/><B/></R>", 15, "R", refuse, NULL, "it"));
    CHECK_STR("enough", diloco_error_text());
}

TEST_MAIN(elements_end_with_their_path_and_text, another_document_is_refused,
          depth_and_texts_have_limits, the_caller_can_end_the_walk)
