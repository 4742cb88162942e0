/* toml_test.c - the values of a file, with types, in the order of the text and with their places.
 */
#include "cli/settings/toml.h"

#include "check.h"

typedef struct seen {
    char text[2048];
    size_t n, stop_after;
} seen;

static bool note(void *user, const dl_toml_value *value)
{
    seen *all = user;
    size_t used = strlen(all->text);
    snprintf(all->text + used, sizeof all->text - used, "%s=%s:%d@%u:%u,%u:%u;", value->key,
             value->text, (int)value->type, value->key_at.line, value->key_at.column,
             value->at.line, value->at.column);
    return ++all->n != all->stop_after;
}

static void check_reads(const char *expected, const char *text)
{
    seen all = {.n = 0};
    dl_toml_error error = {.text = ""};
    if (!dl_toml_walk(text, strlen(text), note, &all, &error)) CHECK_FAIL("%s", error.text);
    CHECK_STR(expected, all.text);
}

static void check_refuses(const char *part, unsigned line, unsigned column, const char *text,
                          size_t len)
{
    seen all = {.n = 0};
    dl_toml_error error = {.text = ""};
    CHECK(!dl_toml_walk(text, len, note, &all, &error));
    CHECK_CONTAINS(part, error.text);
    CHECK_INT(line, error.at.line);
    CHECK_INT(column, error.at.column);
    CHECK_INT(0, all.n);
}

TEST(tables_and_dotted_keys_become_dotted_names_in_the_order_of_the_text)
{
    check_reads("b=x:0@1:1,1:5;a.z=1:1@3:1,3:5;a.c.d=true:3@4:3,4:7;",
                "b = 'x'\n[a]\nz = 1\nc.d = true\n");
}

TEST(numbers_keep_their_type_and_read_back_to_equal_bits)
{
    check_reads("a=4e-04:2@1:1,1:5;b=1000000:1@2:1,2:5;c=0.1:2@3:1,3:5;d=16:1@4:1,4:5;",
                "a = 4e-4\nb = 1_000_000\nc = 0.1\nd = 0x10\n");
    seen all = {.n = 0};
    dl_toml_error error;
    const char text[] = "a = 0.1234567890123456789";
    CHECK(dl_toml_walk(text, sizeof text - 1, note, &all, &error));
    CHECK(strtod(all.text + 2, NULL) == 0.1234567890123456789);
}

TEST(an_array_of_strings_is_joined_by_commas)
{
    check_reads("p=a,b c:4@1:1,1:5;q=:4@2:1,2:5;", "p = ['a', \"b c\"]\nq = []\n");
}

static bool note_list(void *user, const dl_toml_value *value)
{
    char *text = user;
    size_t used = strlen(text);
    snprintf(text + used, 512 - used, "%s@%u:%u;", value->json ? value->json : "NULL",
             value->comma_at.line, value->comma_at.column);
    return true;
}

TEST(an_array_of_strings_is_json_too_and_has_the_place_of_the_first_comma)
{
    char text[512] = "";
    dl_toml_error error;
    const char toml[] = "a = ['x', 'y,z', ',']\nb = [\"q\\\"\\\\\\n\"]\nc = 'd,'\ne = []\n";
    CHECK(dl_toml_walk(toml, strlen(toml), note_list, text, &error));
    CHECK_STR("[\"x\",\"y,z\",\",\"]@1:11;[\"q\\\"\\\\\\u000a\"]@0:0;NULL@0:0;[]@0:0;", text);
}

TEST(walking_stops_on_request)
{
    seen all = {.stop_after = 1};
    dl_toml_error error;
    CHECK(dl_toml_walk("a=1\nb=2\n", 8, note, &all, &error));
    CHECK_INT(1, all.n);
}

static void check_refuses_text(const char *part, unsigned line, unsigned column, const char *text)
{
    check_refuses(part, line, column, text, strlen(text));
}

TEST(other_types_are_refused_with_their_place)
{
    check_refuses_text("only strings", 2, 11, "ok = 1\nx = ['a', 2]\n");
    check_refuses_text("dates", 1, 5, "x = 2024-01-01\n");
    check_refuses_text("infinities", 1, 5, "x = inf\n");
    check_refuses_text("zero byte", 1, 5, "x = \"a\\u0000b\"\n");
    check_refuses_text("only strings", 1, 6, "x = [[]]\n");
}

TEST(broken_text_is_refused_with_its_place)
{
    seen all = {.n = 0};
    dl_toml_error error = {.text = ""};
    CHECK(!dl_toml_walk("a = 1\nb = \n", 11, note, &all, &error));
    CHECK_INT(2, error.at.line);
    CHECK(error.text[0]);
    CHECK(!dl_toml_walk("a = 1\na = 2\n", 12, note, &all, &error)); /* a key given twice */
    CHECK_INT(2, error.at.line);
    CHECK(!dl_toml_walk("a = \"\xff\"\n", 8, note, &all, &error)); /* not UTF-8 */
    CHECK_INT(1, error.at.line);
    CHECK(!dl_toml_walk("a = 1\nb = -.2\n", 14, note, &all, &error));
    CHECK_INT(2, error.at.line);
    CHECK_CONTAINS("0.5 instead of .5", error.text);
    CHECK(!dl_toml_walk(".2", 2, note, &all, &error)); /* no number, and nothing after it */
    CHECK(!dl_toml_walk("a = .", 5, note, &all, &error));
    CHECK(!strstr(error.text, "0.5"));
    /* Found by fuzzing: a text that toml++ takes for impossible. */
    CHECK(!dl_toml_walk("a = 1\n[.x]\n", 11, note, &all, &error));
    CHECK_INT(2, error.at.line);
    CHECK(!dl_toml_walk("a = \xcb\x9e-1\n", 9, note, &all, &error));
    CHECK_INT(1, error.at.line);
}

static void check_dots(const char *before, const char *after, unsigned column)
{
    enum { N = 20000 };
    char text[2 * N + 64];
    size_t len = (size_t)snprintf(text, sizeof text, "ok = 1\n%s", before);
    for (int i = 0; i < N; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "a.");
    len += (size_t)snprintf(text + len, sizeof text - len, "a%s", after);
    dl_toml_error error = {.text = ""};
    seen all = {.n = 0, .stop_after = 1};
    if (!column) CHECK(dl_toml_walk(text, len, note, &all, &error));
    if (column) check_refuses("more than 1000 parts", 2, column, text, len);
}

TEST(a_key_of_many_parts_is_refused_before_it_takes_the_stack)
{
    check_dots("", " = 1\n", 2002);
    check_dots("[", "]\nb = 1\n", 2003);
    check_dots("b = \"\\\"", "\"\n", 0);
    check_dots("b = '", "'\n", 0);
}

TEST_MAIN(a_key_of_many_parts_is_refused_before_it_takes_the_stack,
          tables_and_dotted_keys_become_dotted_names_in_the_order_of_the_text,
          numbers_keep_their_type_and_read_back_to_equal_bits,
          an_array_of_strings_is_joined_by_commas,
          an_array_of_strings_is_json_too_and_has_the_place_of_the_first_comma,
          walking_stops_on_request, other_types_are_refused_with_their_place,
          broken_text_is_refused_with_its_place)
