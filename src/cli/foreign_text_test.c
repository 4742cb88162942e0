/* foreign_text_test.c - text of a run, which is untrusted, in the output of the program. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/display/report_page.h"
#include "log/runfile.h"
#include "toy_run.h"

#include <fcntl.h>
#include <sys/stat.h>

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

/* Make `fd` the standard output. Returns the one before, for another call. */
static int redirect(int fd)
{
    fflush(stdout);
    const int before = dup(STDOUT_FILENO);
    CHECK(fd >= 0 && before >= 0 && dup2(fd, STDOUT_FILENO) >= 0);
    close(fd);
    return before;
}

/* Return the text that the program writes to stdout, valid until the next call. argv ends with
 * NULL. */
static const char *output_of(const char *const *argv)
{
    const char *path = scratch_path("stdout");
    int n = 0;
    while (argv[n])
        n++;
    const int before = redirect(open(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
    const int code = dl_cli_main(n, (char **)(uintptr_t)argv);
    close(redirect(before));
    CHECK_INT(0, code);
    return contents(path);
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

TEST(the_program_in_a_status_cannot_steer_a_terminal_or_add_a_line)
{
    const char *store = hostile_run("status", "gpt", "1\x1b[2J\nforged");
    const char *text = output_of((const char *const[]){"diloco", "status", store, NULL});
    CHECK_CONTAINS("made by diloco 1?[2J?forged\n", text);
}

/* The tracker's process is a script that answers as diloco._track does, with a run's name. */
TEST(a_name_in_the_answer_of_a_tracker_cannot_steer_a_terminal)
{
    static const char script[] = "#!/bin/sh\ncat >/dev/null\nprintf 'the run a\\033[2Jb\\n'\n";
    const char *python = scratch_write("python", script, sizeof script - 1);
    const char *store = hostile_run("track", "gpt", "1");
    CHECK(!chmod(python, 0700) && !setenv("DILOCO_PYTHON", python, 1));
    CHECK_STR("the run a?[2Jb\n", output_of((const char *const[]){"diloco", "track", store, "--to",
                                                                  "wandb", "--once", NULL}));
}

/* A terminal's own output is read back from its other end. */
TEST(foreign_bytes_are_harmless_on_a_terminal_and_unchanged_in_a_file)
{
    static const char bytes[] = "a\x1b[2J\tb\xc3\xa9\xc2\x9b\xff\r\n";
    char seen[64];
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && !grantpt(master) && !unlockpt(master));
    int before = redirect(open(ptsname(master), O_RDWR | O_NOCTTY));
    dl_print_foreign(bytes, sizeof bytes - 1);
    fflush(stdout);
    const ssize_t n = read(master, seen, sizeof seen - 1);
    close(redirect(before));
    close(master);
    CHECK(n > 0);
    seen[n] = '\0';
    CHECK_STR("a?[2J\tb\xc3\xa9???\r\n", seen); /* the terminal adds the \r */

    const char *path = scratch_path("bytes");
    before = redirect(open(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
    dl_print_foreign(bytes, sizeof bytes - 1);
    close(redirect(before));
    CHECK_STR(bytes, contents(path));
}

TEST_MAIN(model_and_program_are_escaped_in_a_markdown_report,
          the_program_in_a_status_cannot_steer_a_terminal_or_add_a_line,
          a_name_in_the_answer_of_a_tracker_cannot_steer_a_terminal,
          foreign_bytes_are_harmless_on_a_terminal_and_unchanged_in_a_file)
