/* program_test.c - the digest of a program's file. */
#include "launch/program.h"

#include "check.h"
#include "launch/command.h"
#include "scratch.h"

TEST(digest_is_that_of_the_bytes_whatever_the_name_of_the_file)
{
    static const char *const names[] = {"plain", "back\\slash", "new\nline", "-dash"};
    char digest[DL_PROGRAM_DIGEST + 1];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK_OK(dl_program_digest(digest, scratch_write(names[i], "abc", 3)));
        CHECK_STR("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", digest);
    }
    CHECK_STATUS(DILOCO_EIO, dl_program_digest(digest, scratch_path("none")));
}

static const char *const none[] = {NULL};

static int shell(const char *text)
{
    const char *const argv[] = {"sh", "-c", text, NULL};
    dl_command_result result;
    CHECK_OK(dl_command_do(&result, &(dl_command_run){.argv = argv}));
    dl_buf_deinit(&result.out);
    return result.exit_code;
}

/* A wheel with one program, in the form that pip requires. */
static const char make_wheel[] =
    "import sys, zipfile\n"
    "info = 'diloco-0.0.1.dist-info/'\n"
    "files = {'diloco/__init__.py': '', 'diloco/_lib/diloco': '#!/bin/sh\\necho whole\\n',\n"
    "    info + 'METADATA': 'Metadata-Version: 2.1\\nName: diloco\\nVersion: 0.0.1\\n',\n"
    "    info + 'WHEEL': 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'}\n"
    "files[info + 'RECORD'] = ''.join(name + ',,\\n' for name in files)\n"
    "out = zipfile.ZipFile(sys.argv[1], 'w')\n"
    "for name in files: out.writestr(name, files[name])\n"
    "out.close()\n";

TEST(a_wheel_is_installed_and_again_if_a_file_of_it_was_changed)
{
    char command[3 * PATH_MAX], program[2 * PATH_MAX], digest[DL_PROGRAM_DIGEST + 1];
    if (shell("python3 -m pip --version >/dev/null 2>&1")) {
        printf("left out: there is no pip\n");
        return;
    }
    const char *dir = scratch_folder("it's far"), *maker = scratch_path("maker.py");
    const char *wheel = scratch_path("diloco-0.0.1-py3-none-any.whl");
    scratch_write("maker.py", make_wheel, sizeof make_wheel - 1);
    snprintf(command, sizeof command, "python3 '%s' '%s'", maker, wheel);
    CHECK_INT(0, shell(command));

    const dl_launch_spec spec = {
        .dir = dir, .program = wheel, .argv = none, .env = none, .secrets = none};
    CHECK(dl_program_is_wheel(wheel) && !dl_program_is_wheel(maker));
    CHECK_OK(dl_program_digest(digest, wheel));
    CHECK_OK(dl_program_install(&spec, digest));
    snprintf(program, sizeof program, "%s/bin/%s/%s", dir, digest, DL_WHEEL_PROGRAM);
    snprintf(command, sizeof command, "[ \"$(sh \"%s\")\" = whole ]", program);
    CHECK_INT(0, shell(command));
    CHECK(truncate(program, 3) == 0);
    CHECK_OK(dl_program_install(&spec, digest));
    CHECK_INT(0, shell(command));
}

TEST(a_wheel_that_pip_refuses_is_named)
{
    char digest[DL_PROGRAM_DIGEST + 1];
    if (shell("python3 -m pip --version >/dev/null 2>&1")) return;
    const dl_launch_spec spec = {.dir = scratch_folder("refused"),
                                 .program = scratch_write("diloco-1-py3-none-any.whl", "x", 1),
                                 .argv = none,
                                 .env = none,
                                 .secrets = none};
    CHECK_OK(dl_program_digest(digest, spec.program));
    CHECK_STATUS(DILOCO_EIO, dl_program_install(&spec, digest));
    CHECK_CONTAINS("pip install ", diloco_error_text());
}

TEST(machine_of_a_wheel_is_that_of_its_name)
{
    static const char *const pairs[][2] = {
        {"dist/diloco-0.2-py3-none-manylinux_2_28_x86_64.whl", "x86_64"},
        {"diloco-0.2-py3-none-musllinux_1_2_aarch64.whl", "aarch64"},
        {"diloco-0.2-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", "x86_64"},
        {"diloco-0.2-py3-none-any.whl", NULL},
        {"diloco-0.2-py3-none-macosx_11_0_x86_64.whl", NULL},
        {"linux-aarch64.whl/diloco-0.2-py3-none-any.whl", NULL},
        {"diloco.whl", NULL},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *machine = dl_program_machine(pairs[i][0]);
        CHECK_STR(pairs[i][1] ? pairs[i][1] : "", machine ? machine : "");
    }
}

/* pip refuses a wheel whose name is that of no Linux before it reads it. */
TEST(wheel_of_another_platform_is_refused_with_the_way_out)
{
    char digest[DL_PROGRAM_DIGEST + 1];
    if (shell("python3 -m pip --version >/dev/null 2>&1")) {
        printf("left out: there is no pip\n");
        return;
    }
    const dl_launch_spec spec = {
        .dir = scratch_folder("mac"),
        .program = scratch_write("diloco-1-py3-none-macosx_11_0_arm64.whl", "x", 1),
        .argv = none,
        .env = none,
        .secrets = none};
    CHECK_OK(dl_program_digest(digest, spec.program));
    CHECK_STATUS(DILOCO_EREFUSED, dl_program_install(&spec, digest));
    CHECK_CONTAINS(
        "is not a supported wheel on this platform: set launch.binary to a wheel for its "
        "architecture and its glibc",
        diloco_error_text());
}

TEST_MAIN(digest_is_that_of_the_bytes_whatever_the_name_of_the_file,
          a_wheel_is_installed_and_again_if_a_file_of_it_was_changed,
          a_wheel_that_pip_refuses_is_named, machine_of_a_wheel_is_that_of_its_name,
          wheel_of_another_platform_is_refused_with_the_way_out)
