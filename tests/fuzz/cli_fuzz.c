/* cli_fuzz.c - input of people: a TOML file, a join line. Values of TOML have texts and places;
 * no part of a join line is left in the argument after the #. */
#include "cli/join_line.h"
#include "cli/settings/toml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool on_value(void *user, const dl_toml_value *value)
{
    (void)user;
    if (!value->key || !value->text || !value->at.line || !value->key_at.column) abort();
    return strlen(value->key) < 1000;
}

static void check_line(const char *text, const char *command)
{
    char argument[4096];
    const dl_command row = {.name = command};
    dl_args args = {.command = &row, .target = argument};
    snprintf(argument, sizeof argument, "https://%s", text);
    const bool whole = strchr(argument, '#') != NULL;
    (void)!dl_join_line_take(&args);
    if (whole && strchr(argument, '#')) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dl_toml_error error = {.text = ""};
    if (!dl_toml_walk((const char *)data, size, on_value, NULL, &error) && !*error.text) abort();
    char *text = malloc(size + 1);
    if (!text) abort();
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    check_line(text, "join");
    check_line(text, "status");
    free(text);
    return 0;
}
