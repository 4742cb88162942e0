/* foreign_text_test.c - text of a run, which is untrusted, in the output of the program. */
#include "base/file.h"
#include "cli/display/report_page.h"
#include "log/runfile.h"
#include "toy_run.h"

/* Train a run, then replace texts of run.json that its readers do not check. */
static const char *hostile_run(const char *name, const char *model, const char *program)
{
    const char *store = scratch_path(name);
    dl_config_path path;
    dl_buf text;
    dl_runfile *file = malloc(sizeof *file);
    toy one;
    toy_crew(&one, 1, store, "none");
    toy_set(&one, "trainer.model_name", model);
    toy_live_all(&one, 1);
    TOY_OK(one);
    dl_buf_init(&text, 1 << 20);
    snprintf(path, sizeof path, "%s/run.json", store);
    CHECK_OK(dl_file_read(&text, path));
    CHECK_OK(dl_runfile_read(file, text.data, text.len));
    snprintf(file->program, sizeof file->program, "%s", program);
    dl_buf_clear(&text);
    CHECK_OK(dl_runfile_write(&text, file));
    const dl_span span = {text.data, text.len};
    CHECK_OK(dl_file_write(path, &span, 1));
    dl_runfile_deinit(file);
    dl_buf_deinit(&text);
    free(file);
    return store;
}

/* Return the contents of a file, valid until the next call. */
static const char *contents(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    CHECK(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

TEST(model_and_program_are_escaped_in_a_markdown_report)
{
    const char *store = hostile_run("markdown", "<b>|x|", "[a](b)\n# forged");
    const char *path = scratch_path("report.md");
    CHECK_OK(dl_report_page_write(path, &store, 1));
    const char *text = contents(path);
    CHECK_CONTAINS("Model &#60;b&#62;&#124;x&#124;, ", text);
    CHECK_CONTAINS("made by diloco &#91;a&#93;&#40;b&#41; &#35; forged.\n", text);
}

TEST_MAIN(model_and_program_are_escaped_in_a_markdown_report)
